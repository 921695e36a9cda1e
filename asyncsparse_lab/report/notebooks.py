"""Run notebooks with papermill, several at a time, into a folder that replaces the last one."""

from __future__ import annotations

import multiprocessing
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.records.files import Source, read_study, record_folders
from asyncsparse_lab.resources import resource_path
from asyncsparse_lab.studies import STUDIES, find_study
from asyncsparse_lab.studies.base import Study

START_TIMEOUT: Final = 120


@dataclass(frozen=True, slots=True)
class Job:
    """A notebook to run, its typed parameters, and where the executed copy goes."""

    notebook: Path
    studies: tuple[str, ...]
    parameters: Mapping[str, Any]
    executed: Path
    timeout: int


@dataclass(frozen=True, slots=True)
class Result:
    """How a notebook ended: seconds, and five lines about its failure, empty if it did not."""

    job: Job
    seconds: float
    failure: str


def notebook_path(study: Study) -> Path | None:
    """Return a study's notebook if it is there."""
    if study.notebook is None:
        return None
    path = resource_path("notebooks") / f"{study.notebook}.ipynb"
    return path if path.exists() else None


def choose(names: Sequence[str], records: Source) -> tuple[dict[Path, list[str]], list[str]]:
    """Return notebook -> its studies, and a line for each study that is left out.

    Of named studies each must have a notebook and records.  Without names, all those that have
    are chosen.

    Raises
    ------
    InputError
        A named study is unknown, has no notebook, or nothing was measured for it.
    """
    why_not: dict[str, str] = {}
    chosen: dict[Path, list[str]] = {}
    for study in [find_study(name) for name in names] or list(STUDIES.values()):
        path = notebook_path(study)
        if path is None:
            why_not[study.name] = "no notebook yet"
            continue
        # a notebook may draw several studies, and needs records of each
        sharing = [other.name for other in STUDIES.values() if other.notebook == study.notebook]
        unmeasured = [name for name in sharing if not has_records(name, records)]
        if unmeasured:
            why_not[study.name] = (
                f"no {records} records of {', '.join(unmeasured)}: "
                f"asyncsparse measure {' '.join(unmeasured)}"
            )
        else:
            chosen[path] = sharing
    lines = [f"{name}: left out, {reason}" for name, reason in why_not.items()]
    if names and lines:
        raise InputError(lines[0].replace("left out, ", ""))
    return chosen, lines


def has_records(name: str, records: Source) -> bool:
    """Return whether something was measured for a study."""
    return any(read_study(path, name) for path in record_folders(records))


def run_all(jobs: Sequence[Job], workers: int, tell: Callable[[Result], None]) -> list[Result]:
    """Run notebooks in processes of their own and return how each ended."""
    context = multiprocessing.get_context("spawn")
    results = []
    with ProcessPoolExecutor(min(workers, len(jobs) or 1), mp_context=context) as pool:
        futures: list[Future[Result]] = [pool.submit(run_notebook, job) for job in jobs]
        for future in as_completed(futures):
            results.append(future.result())
            tell(results[-1])
    return results


def run_notebook(job: Job) -> Result:
    """Run one notebook; its executed copy is kept, also when it fails."""
    import papermill
    from traitlets.config import Config

    started = monotonic()
    job.executed.parent.mkdir(parents=True, exist_ok=True)
    failure = ""
    # Kernels talk over sockets in this folder: its name is short, and nobody else can reach them.
    # Without a name of their own, all notebooks' sockets would lie in the current folder as
    # kernel-ipc-1, -2, ... and kernels that start together would answer each other.
    with tempfile.TemporaryDirectory(prefix="asyncsparse-") as runtime:
        os.environ["JUPYTER_RUNTIME_DIR"] = runtime
        try:
            papermill.execute_notebook(
                str(job.notebook),
                str(job.executed),
                parameters=dict(job.parameters),
                kernel_name="python3",
                progress_bar=False,
                start_timeout=START_TIMEOUT,
                execution_timeout=job.timeout,
                # A kernel that is told to end may call that an error; how it ended is our line.
                extra_arguments=["--IPKernelApp.log_level=CRITICAL"],
                config=Config({"KernelManager": {"transport": "ipc", "ip": f"{runtime}/kernel"}}),
            )
        except Exception as error:  # whatever it was, the other notebooks go on
            failure = describe_failure(job, error)
    return Result(job, monotonic() - started, failure)


def describe_failure(job: Job, error: Exception) -> str:
    """Return five lines: notebook and cell, error, code, where the copy is, what to type."""
    index = getattr(error, "cell_index", None)
    cell = "before its first cell" if index is None else f"in cell {index}"
    kind = getattr(error, "ename", type(error).__name__)
    text = str(getattr(error, "evalue", error)).strip() or "no message"
    source = str(getattr(error, "source", "")).strip() or "(no code)"
    return "\n".join(
        (
            f"notebook {job.notebook.stem} failed {cell}",
            f"  {kind}: {text.splitlines()[0]}",
            f"  code: {source.splitlines()[0]}",
            f"  executed copy: {job.executed}",
            f"  again: asyncsparse reproduce {shlex.join([*job.studies, *_options(job)])}",
        )
    )


def _options(job: Job) -> Iterator[str]:
    """Yield the options that give a job's parameters."""
    for name, value in job.parameters.items():
        if name != "out":
            yield from ("-p", f"{name}={value}")


def replace_folder(staged: Path, target: Path) -> None:
    """Put a finished study's folder in the place of the last one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        shutil.rmtree(target)
    shutil.move(staged, target)
