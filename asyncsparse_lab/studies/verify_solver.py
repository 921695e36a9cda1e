"""compute-sanitizer over LSMR's kernels: the part of the study ``verify`` that is no product."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from asyncsparse_lab.errors import CompileError, DeviceError
from asyncsparse_lab.gpu.compile import compile_many
from asyncsparse_lab.lsmr.watched import DOCUMENT, WATCHED, faults, kernel_builds
from asyncsparse_lab.records import Record
from asyncsparse_lab.studies.base import Case
from asyncsparse_lab.studies.sanitize import TOOLS, SanitizerOutcome

if TYPE_CHECKING:
    from asyncsparse_lab.gpu.compile import KernelBuild

STUDY: Final = "verify"


def cases() -> list[Case]:
    """Return a case for each tool and each backend with kernels of ours."""
    return [
        Case(
            f"sanitize-{tool}-{name}",
            params={"kind": "sanitize", "variant": name, "tool": tool},
            seconds=5 + 4.0 * len(kernel_builds(name)),
        )
        for tool in TOOLS
        for name in WATCHED
    ]


def builds() -> dict[str, list[KernelBuild]]:
    """Return the compilations behind the records, by name."""
    return {name: kernel_builds(name) for name in WATCHED}


def print_faults(name: str) -> int:
    """Solve what a tool watches, print a line each; 1 if anything is wrong."""
    exit_code = 0
    for label, fault in faults(name):
        print(f"{name} {label}: {fault or 'right'}", flush=True)
        exit_code |= bool(fault)
    return exit_code


def records(case: Case, wait: Callable[[], SanitizerOutcome]) -> list[Record]:
    """Return the records of what a tool found, one for each build, so that each may go stale.

    The tool counts over all of them: the first record has the count, the others say nothing of it.
    """
    name, tool = case.params["variant"], case.params["tool"]
    role = "paper" if name == DOCUMENT else "ours"
    identity: dict[str, Any] = {
        "study": STUDY, "case": case.name, "op": "lsmr", "role": role, "backend": "asyncsparse",
        "variant": name,
    }  # fmt: skip
    try:
        outcome = wait()
    except DeviceError as error:
        return [Record(**identity, status="error", reason=str(error), result={"tool": tool})]
    launched = kernel_builds(name)
    found = []
    for number, (build, artifact) in enumerate(zip(launched, compile_many(launched), strict=True)):
        if isinstance(artifact, CompileError):
            raise artifact
        found.append(
            Record(
                **identity,
                status="wrong" if outcome.reason else "passed",
                reason=outcome.reason,
                kernel_hash=artifact.kernel_hash,
                compiler=artifact.compiler,
                params={key.lower(): value for key, value in build.constants.items()}
                | {"entry": build.entry},
                result=outcome.result(len(launched)) if number == 0 else {"tool": tool},
            )
        )
    return found
