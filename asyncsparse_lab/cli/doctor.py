"""``asyncsparse doctor``: what works on this machine, what does not, what mends it.

A machine without a GPU is no error: everything that only draws, converts or compiles works
there.  Each check tells what it found and never stops the others.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from asyncsparse_lab.errors import AsyncSparseError
from asyncsparse_lab.gpu import device

State = Literal["ok", "missing", "limited"]

# Packages by what they are for: the label, the names, what misses them, the remedy.
_PACKAGES: Final = (
    (
        "arrays",
        ("numpy", "scipy", "pandas", "typer", "rich"),
        "nothing works",
        "pip install .",
    ),
    (
        "drawing",
        ("matplotlib", "seaborn", "jinja2"),
        "no figures, no report; measuring works",
        "pip install .",
    ),
    (
        "notebooks",
        ("jupyterlab", "papermill", "ipywidgets"),
        "no `reproduce`, no explorer; measuring works",
        "pip install .",
    ),
    (
        "SuiteSparse",
        ("ssgetpy",),
        "the collection cannot be searched",
        "pip install ssgetpy==1.0rc2",
    ),
    (
        "PyTorch",
        ("torch", "triton"),
        "no PyTorch baselines, no prefill study",
        "pip install '.[llm]'",
    ),
)
_PROFILERS: Final = {
    "ncu": "reads hardware counters; comes with the CUDA toolkit or Nsight Compute",
    "compute-sanitizer": "checks memory, barriers and races; comes with the CUDA toolkit",
}
# One line that launches a kernel: what ncu is tried on.
_TINY_PROGRAM: Final = "import cupy; cupy.arange(32).sum().get()"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's report.

    Attributes
    ----------
    part : str
        What it belongs to.
    name : str
        What was looked at.
    state : {"ok", "missing", "limited"}
        Whether it can be used.
    detail : str
        What was found, or what is not possible without it.
    remedy : str
        The command that mends it; empty if there is nothing to mend, or no command does.
    """

    part: str
    name: str
    state: State
    detail: str
    remedy: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="For a program to read.")] = False,
) -> None:
    """Tell what works on this machine, and what mends the rest."""
    checks = examine()
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=1))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200)  # a log keeps long lines
    table = Table(box=None, pad_edge=False, show_header=False)
    for column in ("part", "state", "name"):
        table.add_column(column, no_wrap=True)
    table.add_column("detail", overflow="fold")
    previous = ""
    for check in checks:
        detail = f"{check.detail}\n-> {check.remedy}" if check.remedy else check.detail
        mark = f"[{'green' if check.state == 'ok' else 'yellow'}]{check.state}[/]"
        part = "" if check.part == previous else check.part
        table.add_row(part, mark, escape(check.name), escape(detail))
        previous = check.part
    console.print(table)


def examine() -> list[Check]:
    """Run every check; the order is that of the report."""
    parts: dict[str, Callable[[], Iterator[Check]]] = {
        "Python": _packages,
        "compiler": _compiler,
        "GPU": _gpu,
        "libraries": _libraries,
        "profiling": _profilers,
        "data": _data,
    }
    checks: list[Check] = []
    for part, examine_part in parts.items():
        try:
            checks.extend(examine_part())
        except (AsyncSparseError, OSError, ImportError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0]
            checks.append(Check(part, "the rest", "limited", f"{type(error).__name__}: {reason}"))
    return checks


def _packages() -> Iterator[Check]:
    part = "Python"
    fits = sys.version_info >= (3, 11)
    yield Check(
        part,
        "Python",
        "ok" if fits else "limited",
        platform.python_version(),
        "" if fits else "install Python 3.11 or newer",
    )
    for label, names, purpose, remedy in _PACKAGES:
        found = {name: _version_of(name) for name in names}
        absent = ", ".join(name for name in names if found[name] is None)
        present = ", ".join(f"{name} {found[name]}" for name in names if found[name])
        if absent:
            detail = f"without {absent}: {purpose}" + (f" ({present})" if present else "")
            yield Check(part, label, "missing", detail, remedy)
        else:
            yield Check(part, label, "ok", present)


def _compiler() -> Iterator[Check]:
    from asyncsparse_lab.errors import CompileError
    from asyncsparse_lab.gpu.inspect import find_disassembler
    from asyncsparse_lab.gpu.nvrtc import compile_text, compiler_version

    part = "compiler"
    try:
        start = time.perf_counter()
        name = compiler_version()
        built = compile_text(
            "probe.cu",
            'extern "C" __global__ void probe() { asm volatile("wgmma.fence.sync.aligned;"); }',
            {},
            ["-std=c++17", "-arch=sm_90a"],
        )
        seconds = time.perf_counter() - start
        if built.cubin is None:
            yield Check(
                part,
                "NVRTC",
                "limited",
                f"{name} does not compile for sm_90a: {built.log.splitlines()[0]}",
                "pip install nvidia-cuda-nvrtc==13.0.88",
            )
        else:
            yield Check(part, "NVRTC", "ok", f"{name} compiles for sm_90a ({seconds:.2f} s)")
    except CompileError as error:
        yield Check(
            part, "NVRTC", "missing", f"kernels need it: {error}", "pip install '.[compile]'"
        )
    tool = find_disassembler()
    if tool is None:
        yield Check(
            part,
            "nvdisasm",
            "missing",
            "`kernels show` and the SASS tests need it",
            "pip install nvidia-cuda-nvdisasm",
        )
    else:
        yield Check(part, "nvdisasm", "ok", str(tool))


def _gpu() -> Iterator[Check]:
    part = "GPU"
    if not device.driver_is_loadable():
        yield Check(
            part,
            "driver",
            "missing",
            "libcuda.so.1 does not load: running kernels needs a GPU and its driver; compiling and "
            "exploring do not, and figures are drawn from the records",
        )
        return
    reason = device.missing_gpu()
    if reason is not None:
        yield Check(part, "driver", "limited", reason)
        return
    facts = device.device_facts()
    cuda = f"CUDA {facts.cuda_driver}, runtime {facts.cuda_runtime}"
    yield Check(part, "driver", "ok", f"{facts.driver or 'version unknown'} ({cuda})")
    free = device.free_memory() / 2**30
    yield Check(
        part,
        facts.name,
        "ok" if facts.capability == (9, 0) else "limited",
        f"compute capability {facts.capability[0]}.{facts.capability[1]}, {facts.sm_count} SMs, "
        f"{facts.l2_bytes / 2**20:.0f} MiB L2, {free:.0f} of {facts.memory_bytes / 2**30:.0f} "
        "GiB free"
        + ("" if facts.capability == (9, 0) else "; WGMMA kernels need 9.0 (H100, H200)"),
    )
    state = device.clock_state()
    if state["sm_clock_mhz"] is None:
        yield Check(
            part,
            "clocks",
            "missing",
            "records would not tell the SM clock and throttling",
            "pip install nvidia-ml-py",
        )
    else:
        held = ", ".join(state["throttle_reasons"] or ()) or "nothing holds them down"
        yield Check(
            part,
            "clocks",
            "ok",
            f"SM {state['sm_clock_mhz']:.0f} of {state['sm_clock_max_mhz'] or 0:.0f} MHz, {held}",
        )
    for name in ("cupy-cuda12x", "cupy-cuda13x", "cuda-bindings"):
        if number := _version_of(name):
            yield Check(part, name, "ok", number)


def _libraries() -> Iterator[Check]:
    from asyncsparse_lab.baselines.libraries import load_library

    if not device.driver_is_loadable():
        return
    for name in ("cublas", "cusparse"):
        try:
            load_library(name)
        except (AsyncSparseError, OSError) as error:
            remedy = f"pip install nvidia-{name} (CUDA 12: nvidia-{name}-cu12)"
            yield Check("libraries", name, "missing", str(error), remedy)
        else:
            yield Check("libraries", name, "ok", "loads")


def _profilers() -> Iterator[Check]:
    part = "profiling"
    for name, purpose in _PROFILERS.items():
        tool = _find_tool(name)
        if tool is None:
            yield Check(part, name, "missing", purpose)
        elif name == "ncu" and device.missing_gpu() is None:
            yield _counters(tool)
        else:
            yield Check(part, name, "ok", str(tool))


def _counters(ncu: Path) -> Check:
    """Try the counters on one kernel: a container may hold ncu and still refuse them."""
    # ncu would set the clocks to their base by itself; the card is looked at as it is.
    command = [str(ncu), "--clock-control", "none", "--launch-count", "1"]
    command += ["--metrics", "sm__cycles_elapsed.max"]
    try:
        ran = subprocess.run(
            [*command, sys.executable, "-c", _TINY_PROGRAM],
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
    except subprocess.TimeoutExpired:
        return Check("profiling", "ncu", "limited", "did not end within 90 s on one kernel")
    output = ran.stdout + ran.stderr
    if "ERR_NVGPUCTRPERM" in output:
        return Check(
            "profiling",
            "ncu",
            "limited",
            "this user may not read the hardware counters",
            "ask the administrator for NVreg_RestrictProfilingToAdminUsers=0",
        )
    if ran.returncode != 0 or "sm__cycles_elapsed.max" not in output:
        last = (output.strip().splitlines() or ["no output"])[-1]
        return Check("profiling", "ncu", "limited", f"reads no counters: {last}")
    return Check("profiling", "ncu", "ok", f"{ncu}, counters can be read")


def _data() -> Iterator[Check]:
    from asyncsparse_lab.matrices.catalogue import index_path
    from asyncsparse_lab.matrices.folders import matrix_folder
    from asyncsparse_lab.records import local_folder, record_folders

    part = "data"
    folder = matrix_folder()
    if folder is None:
        yield Check(
            part,
            "real matrices",
            "missing",
            "generated matrices and stand-ins work without them",
            "export ASYNCSPARSE_MATRICES=FOLDER, or: asyncsparse matrices fetch GROUP/NAME",
        )
    else:
        count = len(list(folder.glob("*.mtx.gz"))) + len(list(folder.glob("*.mtx")))
        yield Check(part, "real matrices", "ok", f"{count} in {folder}")
    index = index_path()
    if index.is_file():
        days = (time.time() - index.stat().st_mtime) / 86_400
        yield Check(part, "SuiteSparse index", "ok", f"{days:.0f} days old")
    else:
        yield Check(
            part,
            "SuiteSparse index",
            "missing",
            "made at the first search: from the network, or from a file ssstats.csv",
            "asyncsparse matrices fetch --dry-run GROUP/NAME",
        )
    recorded = [path.name for path in record_folders("recorded")]
    yield Check(
        part,
        "committed records",
        "ok" if recorded else "missing",
        ", ".join(recorded) or "figures have nothing to draw",
    )
    own = [path.name for path in record_folders("local")] if local_folder().is_dir() else []
    if own:
        yield Check(part, "records of this machine", "ok", ", ".join(own))


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _find_tool(name: str) -> Path | None:
    if found := shutil.which(name):
        return Path(found)
    roots = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    places = [Path(root) / "bin" / name for root in roots if root]
    return next((place for place in places if os.access(place, os.X_OK)), None)
