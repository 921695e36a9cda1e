"""What ptxas tells about a kernel, and what of it the gate refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from asyncsparse_lab.errors import CompileError

# ptxas prints these as mere information: setmaxnreg was ignored, or the wgmma pipeline was
# serialised (C7504, C7508 to C7511).  The kernel then runs, slowly.
_PERFORMANCE_LOSS: Final = re.compile(r"^.*(?:\(C75\d\d\)|Potential Performance Loss).*$", re.M)


@dataclass(frozen=True, slots=True)
class Resources:
    """What ptxas reports on one function.

    Attributes
    ----------
    registers : int
        Registers a thread at launch (``setmaxnreg`` moves them later).
    static_shared : int
        Bytes of statically declared shared memory a block.
    barriers : int
        Named barriers a block.
    stack : int
        Bytes of stack a thread.
    spill_stores, spill_loads : int
        Bytes of registers spilled to local memory.
    """

    registers: int = 0
    static_shared: int = 0
    barriers: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0


def parse_ptxas_log(log: str) -> tuple[list[str], dict[str, Resources]]:
    """Read what ``ptxas -v`` printed.

    Returns
    -------
    entries : list of str
        The kernels.
    functions : dict
        Resources of the kernels and of the device functions that were not inlined.
    """
    entries: list[str] = []
    numbers: dict[str, dict[str, int]] = {}
    function = ""
    for line in log.splitlines():
        if found := re.search(r"Compiling entry function '([^']+)'", line):
            entries.append(found.group(1))
            numbers[found.group(1)] = {}
        elif found := re.search(r"Function properties for (\S+)", line):
            function = found.group(1)
            numbers.setdefault(function, {})
        elif found := re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line
        ):
            stack, stores, loads = map(int, found.groups())
            numbers[function] |= {"stack": stack, "spill_stores": stores, "spill_loads": loads}
        elif found := re.search(r"Used (\d+) registers", line):
            used = {"registers": int(found.group(1))}
            for key, pattern in (
                ("barriers", r"used (\d+) barriers"),
                ("static_shared", r"(\d+) bytes smem"),
            ):
                if extra := re.search(pattern, line):
                    used[key] = int(extra.group(1))
            numbers[entries[-1]] |= used
    return entries, {name: Resources(**values) for name, values in numbers.items()}


def check_gate(name: str, log: str, functions: Mapping[str, Resources]) -> None:
    """Refuse a kernel that compiled into something slow.

    Parameters
    ----------
    name : str
        The source, for the message.
    log : str
        What the compiler and ptxas said.
    functions : mapping
        Resources of all functions in the cubin.

    Raises
    ------
    CompileError
        ptxas reports a performance loss, or registers are spilled.
    """
    lost = _PERFORMANCE_LOSS.search(log)
    if lost is not None:
        raise CompileError(f"{name}: {lost.group(0).strip()}")
    for function, numbers in functions.items():
        if numbers.spill_stores or numbers.spill_loads:
            raise CompileError(
                f"{name}: {function} spills {numbers.spill_stores} bytes of registers at "
                f"{numbers.registers} a thread: use fewer accumulators or a wider launch bound"
            )
