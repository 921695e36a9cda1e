"""compute-sanitizer over LSMR's kernels: the part of the study ``verify`` that is no product."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from asyncsparse_lab.errors import DeviceError
from asyncsparse_lab.gpu.compile import compile_kernel
from asyncsparse_lab.lsmr.watched import DOCUMENT, WATCHED, faults, kernel_builds, persistent_solves
from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm.sanitize import TOOLS, SanitizerOutcome
from asyncsparse_lab.studies.base import Case

if TYPE_CHECKING:
    from asyncsparse_lab.gpu.compile import KernelBuild

STUDY = "verify"


def cases() -> list[Case]:
    """Return a case for each tool and each backend with kernels of ours."""
    return [
        Case(
            f"sanitize-{tool}-{name}",
            params={"kind": "sanitize", "variant": name, "tool": tool},
            seconds=5 + 4.0 * solves(name),
        )
        for tool in TOOLS
        for name in WATCHED
    ]


def solves(name: str) -> int:
    """Return how many solves a tool watches."""
    return len(kernel_builds(name)) if name == DOCUMENT else len(persistent_solves())


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


def record(case: Case, wait: Callable[[], SanitizerOutcome]) -> Record:
    """Return the record of what a tool found."""
    name, tool = case.params["variant"], case.params["tool"]
    role = "paper" if name == DOCUMENT else "ours"
    identity: dict[str, Any] = {
        "study": STUDY, "case": case.name, "op": "lsmr", "role": role, "backend": "asyncsparse",
        "variant": name,
    }  # fmt: skip
    try:
        outcome = wait()
    except DeviceError as error:
        return Record(**identity, status="error", reason=str(error), result={"tool": tool})
    first = kernel_builds(name)[0]
    artifact = compile_kernel(first.source, first.entry, first.constants, first.arch)
    return Record(
        **identity,
        status="passed" if outcome.reason is None else "wrong",
        reason=outcome.reason,
        kernel_hash=artifact.kernel_hash,
        compiler=artifact.compiler,
        result=outcome.result(solves(name)),
    )
