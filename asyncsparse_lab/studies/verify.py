"""The verification as a study: what ran against the truth, and what was found.

``asyncsparse verify`` runs it.  A record stands for one build (a variant, its constants, an
output type) on the whole edge-case suite, for ten thousand launches of a build, or for one tool of
compute-sanitizer on the builds of a variant; it holds no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.errors import DeviceError, InputError
from asyncsparse_lab.formats.layouts import K16
from asyncsparse_lab.gpu.compile import KernelBuild, compile_many
from asyncsparse_lab.lsmr.watched import WATCHED
from asyncsparse_lab.records import Record
from asyncsparse_lab.spmm import verify
from asyncsparse_lab.spmm.builds import Build, all_builds
from asyncsparse_lab.spmm.edge_cases import EDGE_CASES, EdgeCase
from asyncsparse_lab.spmm.oracle import reference
from asyncsparse_lab.spmm.run import compile_variant, host_hash
from asyncsparse_lab.spmm.variants import (
    OUTPUT_TYPES,
    PROBE_CONSTANTS,
    VARIANTS,
    Variant,
    find_variant,
)
from asyncsparse_lab.studies import registers, sanitize, verify_solver
from asyncsparse_lab.studies.base import Case, Table
from asyncsparse_lab.studies.bcsr_ablation import OWN_KERNEL
from asyncsparse_lab.studies.spmm_common import kernel_build

if TYPE_CHECKING:
    import pandas as pd

STUDY: Final = "verify"
LAUNCHES: Final = 10_000
_ORACLE_COLUMNS: Final = 17


SUBJECTS: Final = (*VARIANTS.values(), OWN_KERNEL)
"""Every named variant, and the example of one's own kernel."""


def builds_of(variant: Variant) -> list[Build]:
    """Return every build of a variant that some study launches, each once."""
    builds = [build for build in all_builds() if build.variant.name == variant.name]
    if variant.name not in VARIANTS:
        builds = [Build(variant, dtype_out) for dtype_out in OUTPUT_TYPES]
        builds.append(_shaken(variant))
    for case in registers.cases():
        for member in registers.builds(case):
            build = Build(member, registers.DTYPE_OUT)
            if member.name == variant.name and build not in builds:
                builds.append(build)
    return builds + [_shaken(tile) for tile in _tiles(variant, builds)]


def small_builds(variant: Variant) -> list[Build]:
    """Return the builds that the sanitizer looks at.

    Of a kernel of the document the named ones, of those beyond it all that are timed.
    """
    if variant.role == "ours":
        return [build for build in builds_of(variant) if _is_timed(build)]
    kinds = [(dtype_out, "bfloat16", "row-major") for dtype_out in OUTPUT_TYPES]
    if "column-major" in variant.layouts:
        kinds.append((variant.dtypes_in[-1], variant.dtypes_in[-1], "column-major"))
    return [Build(variant, *kind) for kind in kinds]


def shaken_builds(variant: Variant) -> list[Build]:
    """Return the builds with random delays, the named one first."""
    return [b for b in builds_of(variant) if b.variant.constants.get("DEBUG_DELAYS")]


def _tiles(variant: Variant, builds: Sequence[Build]) -> list[Variant]:
    """Return the kernel at each of its tiles with windows in many pieces, if it cuts windows."""
    if variant.role != "ours" or "max_cols_per_task" not in variant.options:
        return []
    timed = [build.variant.constants for build in builds if _is_timed(build)]
    tiles = {tuple(sorted(constants.items())): constants for constants in timed}
    pieces = variant.with_options(max_cols_per_task=K16 * 4)
    return [pieces.with_constants(**constants) for constants in tiles.values()]


def _is_timed(build: Build) -> bool:
    return not any(build.variant.constants.get(name) for name in PROBE_CONSTANTS)


def _shaken(variant: Variant) -> Build:
    return Build(variant.with_constants(DEBUG_DELAYS=1), "bfloat16")


def kernel_builds() -> dict[str, list[KernelBuild]]:
    """Return the compilations behind the records of each variant."""
    products = {
        variant.name: [kernel_build(*build) for build in builds_of(variant)] for variant in SUBJECTS
    }
    return products | verify_solver.builds()


def find_subject(name: str) -> Variant:
    """Return a variant or the example by its name."""
    return OWN_KERNEL if name == OWN_KERNEL.name else find_variant(name)


def cases() -> list[Case]:
    """Return all of it: the oracle itself, the edge cases, the launches, the sanitizer."""
    found = [Case("oracle", params={"kind": "oracle"}, seconds=10)]
    for variant in SUBJECTS:
        params: dict[str, Any] = {"kind": "edge-cases", "variant": variant.name}
        seconds = 10 + 0.5 * len(builds_of(variant))
        found.append(Case(f"edge-cases-{variant.name}", params=params, seconds=seconds))
    for variant in SUBJECTS:
        for number in range(len(shaken_builds(variant))):
            name = f"launches-{variant.name}" + (f"-tile{number}" if number else "")
            params = {"kind": "launches", "variant": variant.name, "number": number}
            found.append(Case(name, params=params, seconds=12.0))
    for tool in sanitize.TOOLS:
        for variant in SUBJECTS:
            params = {"kind": "sanitize", "variant": variant.name, "tool": tool}
            seconds = 5 + (1.2 if tool == "racecheck" else 0.6) * len(small_builds(variant))
            found.append(Case(f"sanitize-{tool}-{variant.name}", params=params, seconds=seconds))
    return found + verify_solver.cases()


def find_name(name: str) -> str:
    """Return the name if ``--variant`` takes it, or raise :class:`InputError` with the known."""
    if name not in names():
        raise InputError(f"no variant {name!r}; there are {', '.join(names())}")
    return name


def names() -> list[str]:
    """Return what ``--variant`` takes: every variant, the example, and LSMR's kernels."""
    return [*(subject.name for subject in SUBJECTS), *WATCHED]


Outcome = verify.LaunchOutcome | sanitize.SanitizerOutcome
_begun: dict[str, Future[Outcome]] = {}


def begin(chosen: Iterable[Case], jobs: int) -> None:
    """Start what runs in processes of its own, so many at once; `measure` waits for each."""
    outside = [case for case in chosen if case.params["kind"] in ("launches", "sanitize")]
    # Once, not in each process.
    compile_many([build for case in outside for build in _launched(case)])
    pool = ThreadPoolExecutor(jobs)
    longest_first = sorted(outside, key=lambda case: -case.seconds)
    _begun.update({case.name: pool.submit(_outside, case) for case in longest_first})
    pool.shutdown(wait=False)


def _launched(case: Case) -> list[KernelBuild]:
    """Return what a case launches in another process."""
    name = case.params["variant"]
    if name in WATCHED:
        return verify_solver.builds()[name]
    builds = shaken_builds if case.params["kind"] == "launches" else small_builds
    return [kernel_build(*build) for build in builds(find_subject(name))]


def cancel() -> None:
    """Leave out what was not begun yet: else a run that is interrupted goes on to its end."""
    while _begun:
        _begun.popitem()[1].cancel()


def _outside(case: Case) -> Outcome:
    """Launch many times, or watch, in another process."""
    if case.params["kind"] == "launches":
        return verify.launch_in_child(_shaken_variant(case), LAUNCHES)
    return sanitize.run_sanitizer(case.params["tool"], case.params["variant"])


def _shaken_variant(case: Case) -> Variant:
    subject = find_subject(case.params["variant"])
    return shaken_builds(subject)[int(case.params["number"])].variant


def measure(case: Case) -> list[Record]:
    """Verify one case; what is wrong is a record, not an exception."""
    kind = case.params["kind"]
    if kind == "oracle":
        return _check_oracle(case)
    if kind == "edge-cases":
        return _run_edge_cases(case, find_subject(case.params["variant"]))
    begun = _begun.pop(case.name, None)
    waited: Callable[[], Any] = begun.result if begun is not None else partial(_outside, case)
    if case.params["variant"] in WATCHED:
        return verify_solver.records(case, waited)
    return [_launch(case, waited) if kind == "launches" else _sanitize(case, waited)]


def _check_oracle(case: Case) -> list[Record]:
    """Hold the reference on the GPU to SciPy's, on the generated matrices of the smoke suite."""
    import cupy

    from asyncsparse_lab.matrices import load_matrix, load_suite

    records = []
    for entry in load_suite("smoke").entries:
        A = load_matrix(entry.name)
        B = np.random.default_rng(0).standard_normal((A.shape[1], _ORACLE_COLUMNS))
        on_cpu = reference(A, B)
        rel_err = on_cpu.relative_error(cupy.asnumpy(reference(A, cupy.asarray(B)).values))
        bound = (on_cpu.longest_row + 1) * 2.0**-52
        right = rel_err <= bound
        records.append(
            Record(
                study=STUDY,
                case=case.name,
                op="spmm",
                role="probe",
                backend="cupy",
                variant="oracle",
                matrix=entry.name,
                m=A.shape[0],
                k=A.shape[1],
                n=_ORACLE_COLUMNS,
                nnz=A.nnz,
                dtype_in="float64",
                dtype_out="float64",
                layout="row-major",
                status="passed" if right else "wrong",
                reason=None if right else f"rel_err {rel_err:.3g} against SciPy",
                rel_err=rel_err,
                err_bound=bound,
            )
        )
    return records


def _run_edge_cases(case: Case, variant: Variant) -> list[Record]:
    builds = [b for b in builds_of(variant) if not b.variant.constants.get("DEBUG_DELAYS")]
    compile_many([kernel_build(*build) for build in builds])
    records = []
    for build in builds:
        is_named = build == Build(variant, build.dtype_out)
        suite = [edge for edge in EDGE_CASES if edge.scope != "named" or is_named]
        try:
            records.append(_edge_record(case, build, suite))
        except DeviceError as error:
            records.append(_record(case, build, "error", str(error)))
            break  # the GPU answers nothing any more
    return records


def _edge_record(case: Case, build: Build, suite: Sequence[EdgeCase]) -> Record:
    outcomes = verify.verify_build(
        build.variant, build.dtype_out, suite, build.dtype_in, build.layout
    )
    worst = max(outcomes, key=lambda outcome: outcome.share)
    faults = [f"{outcome.case}: {outcome.fault}" for outcome in outcomes if outcome.fault]
    reason = f"{len(faults)} of {len(outcomes)} cases; {faults[0]}" if faults else None
    return _record(
        case,
        build,
        "wrong" if faults else "passed",
        reason,
        rel_err=worst.rel_err,
        err_bound=worst.err_bound,
        kernel_hash=worst.kernel_hash,
        host_hash=worst.host_hash,
        compiler=worst.compiler,
        result={
            "elements": sum(outcome.elements for outcome in outcomes),
            "rel_err": {outcome.case: outcome.rel_err for outcome in outcomes},
            "faults": faults,
        },
    )


def _launch(case: Case, wait: Callable[[], Any]) -> Record:
    shaken = Build(_shaken_variant(case), "bfloat16")
    try:
        outcome: verify.LaunchOutcome = wait()
    except DeviceError as error:
        return _record(case, shaken, "error", str(error))
    reason = None
    if outcome.different_words:
        reason = (
            f"{outcome.different_words} words differ from the first launch, "
            f"from launch {outcome.first_different} on"
        )
    return _record(
        case,
        shaken,
        "wrong" if reason else "passed",
        reason,
        kernel_hash=outcome.kernel_hash,
        compiler=outcome.compiler,
        result={
            "launches": outcome.launches,
            "different_words": outcome.different_words,
            "seconds": round(outcome.seconds, 2),
        },
    )


def _sanitize(case: Case, wait: Callable[[], Any]) -> Record:
    subject = find_subject(case.params["variant"])
    named = Build(subject, "bfloat16")
    tool = case.params["tool"]
    try:
        outcome: sanitize.SanitizerOutcome = wait()
    except DeviceError as error:
        return _record(case, named, "error", str(error), result={"tool": tool})
    artifact = compile_variant(subject, "bfloat16")
    return _record(
        case,
        named,
        "wrong" if outcome.reason else "passed",
        outcome.reason,
        kernel_hash=artifact.kernel_hash,
        host_hash=host_hash(subject),
        compiler=artifact.compiler,
        result=outcome.result(len(small_builds(subject))),
    )


def _record(case: Case, build: Build, status: str, reason: str | None, **more: Any) -> Record:
    variant = build.variant
    return Record(
        study=STUDY,
        case=case.name,
        op="spmm",
        role=variant.role,
        backend="asyncsparse",
        variant=variant.name,
        dtype_in=build.dtype_in,
        dtype_out=build.dtype_out,
        layout=build.layout,
        status=status,
        reason=reason,
        params=variant.params,
        **more,
    )


def draw(frame: pd.DataFrame, claims: pd.DataFrame) -> dict[str, Table]:
    """Return the table of what was verified: a line for each variant, and for each tool."""
    import pandas as pd

    lines = []
    for variant, rows in frame.groupby("variant", sort=True):
        edges = rows[rows["case"].str.startswith("edge-cases")]
        launches = rows[rows["case"].str.startswith("launches")]
        lines.append(
            {
                "variant": variant,
                "records": len(rows),
                "not passed": int((rows["status"] != "passed").sum()),
                "builds": len(edges) or _total(rows, "result.builds", "max"),
                "elements compared": _total(edges, "result.elements"),
                "largest error / bound": (rows["rel_err"] / rows["err_bound"]).max(),
                "launches": _total(launches, "result.launches"),
                "words that differed": _total(launches, "result.different_words"),
                "sanitizer errors": _total(rows, "result.errors"),
            }
        )
    caption = (
        "What was held to the FP64 reference, element by element, and what was found; launches "
        "are of builds with random delays at their synchronisation points. No sanitizer errors are "
        "told of a kernel that was not looked at. The tools look at builds of lsmr-persistent that "
        "meet twice, since racecheck takes one barrier after another one of fewer warps for none, "
        "and of which the one in a cluster polls by atomics, since it takes polled words for races."
    )
    return {"verify": Table(pd.DataFrame(lines), caption)}


def _total(rows: pd.DataFrame, column: str, how: str = "sum") -> int | None:
    """Sum, say, a column that not every record has; None where none of the rows has it."""
    if column not in rows or rows[column].isna().all():
        return None
    return int(rows[column].agg(how))
