"""Launch arguments kept for the next call with the same matrices, and the streams they ran on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final

Run = Callable[[], None]


class Launches:
    """The products that were prepared last, by their addresses.

    What is kept holds addresses of the caller's matrices and does not own them: an entry is only
    used again when a call brings a matrix with that address, shape and strides.  Workspaces of an
    entry (for rows that are not aligned) live as long as it does.
    """

    def __init__(self, capacity: int = 8) -> None:
        self._capacity: Final = capacity
        self._entries: OrderedDict[Hashable, Run] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Run]) -> Run:
        """Return what was made for this key, or make it and drop the entry not used longest."""
        run = self._entries.get(key)
        if run is None:
            while len(self._entries) >= self._capacity:
                self._entries.popitem(last=False)
            run = self._entries[key] = make()
        else:
            self._entries.move_to_end(key)
        return run

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


class Streams:
    """The streams that read a plan's memory.

    CuPy gives freed memory to the next allocation on the stream that it was allocated on.  With
    one stream that is in order; with several, :meth:`settle` lets each wait for all.
    """

    def __init__(self) -> None:
        self._used: dict[int, tuple[Any, Any]] = {}  # handle -> (stream, event after its last work)

    def note(self, pointer: int) -> None:
        """Note that work was enqueued on the current stream, which has this handle."""
        if len(self._used) == 1 and pointer in self._used:
            return
        import cupy

        if pointer not in self._used:
            event = cupy.cuda.Event(disable_timing=True)
            self._used[pointer] = cupy.cuda.get_current_stream(), event
            if len(self._used) == 1:
                return
            if len(self._used) == 2:  # the first stream's work was not noted until now
                for stream, event in self._used.values():
                    self._record(stream, event)
                return
        self._record(*self._used[pointer])

    @staticmethod
    def _record(stream: Any, event: Any) -> None:
        if not stream.is_capturing():  # the graph's owner keeps the plan
            event.record(stream)

    def settle(self) -> None:
        """Let what is enqueued next on any of the streams wait for the plan's work on all."""
        if len(self._used) < 2:
            return
        for stream, _ in self._used.values():
            for _, event in self._used.values():
                if not stream.is_capturing():
                    stream.wait_event(event)
