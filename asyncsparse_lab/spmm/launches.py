"""Launch arguments kept for the next call with the same matrices, and the streams they ran on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final

Run = Callable[[], None]


class Launches:
    """The products that were prepared last, by their addresses and their stream.

    What is kept holds addresses of the caller's matrices and does not own them: an entry is only
    used again when a call brings a matrix with that address, shape and strides.  Workspaces of an
    entry (for rows that are not aligned, counters of tiles) live as long as it does, and are those
    of one stream.
    """

    def __init__(self, capacity: int = 8) -> None:
        self._capacity: Final = capacity
        self._entries: OrderedDict[tuple[Hashable, int], Run] = OrderedDict()

    def find(self, matrices: Hashable, stream: int) -> Run | None:
        """Return what was kept for these matrices on this stream."""
        run = self._entries.get((matrices, stream))
        if run is not None:
            self._entries.move_to_end((matrices, stream))
        return run

    def find_on_any_stream(self, matrices: Hashable) -> Run | None:
        """Return what was kept for these matrices last, for work that is only recorded now."""
        for (known, _), run in reversed(self._entries.items()):
            if known == matrices:
                return run
        return None

    def keep(self, matrices: Hashable, stream: int, run: Run) -> Run:
        """Keep a launch, and drop the one not used longest when there are too many."""
        self._entries[matrices, stream] = run
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)
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

        stream = cupy.cuda.get_current_stream()
        if stream.is_capturing():  # a graph, whose owner keeps the plan
            return
        if pointer not in self._used:
            self._used[pointer] = stream, cupy.cuda.Event(disable_timing=True)
            if len(self._used) == 1:
                return
            if len(self._used) == 2:  # the first stream's work was not noted until now
                for known, event in self._used.values():
                    event.record(known)
                return
        known, event = self._used[pointer]
        event.record(known)

    def settle(self) -> None:
        """Let what is enqueued next on any of the streams wait for the plan's work on all."""
        if len(self._used) < 2:
            return
        for stream, _ in self._used.values():
            for _, event in self._used.values():
                stream.wait_event(event)
