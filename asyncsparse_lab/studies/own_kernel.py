"""One's own kernel beside opt3: what it compiles to, whether it is right, how fast it is.

A kernel that takes ``BcsrArguments`` (``kernels/include/bcsr_arguments.cuh``) is a variant by its
source and its constants alone::

    mine = asl.Variant(source="my.cu", constants={"WGMMA_N": 256, "STAGES": 3})
    describe(mine)            # needs no GPU
    compare(mine, "bcsstk16", n=1024)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncsparse_lab.spmm.variants import VARIANTS, Variant

if TYPE_CHECKING:
    import pandas as pd

_INSTRUCTIONS: Final = ("HGMMA", "UTMALDG", "SYNCS", "LDL", "STL")


def describe(variant: Variant, dtype_out: str = "bfloat16") -> pd.DataFrame:
    """Compile a kernel and opt3; return registers, shared memory, spills and SASS counts.

    Raises
    ------
    CompileError
        The kernel does not compile, spills, or there is no compiler here.
    """
    import pandas as pd

    from asyncsparse_lab.gpu.inspect import sass_counts
    from asyncsparse_lab.spmm.run import compile_variant

    columns = {}
    for each in (VARIANTS["bcsr-opt3"], variant):
        artifact = compile_variant(each, dtype_out)
        counts = sass_counts(artifact)
        columns[each.name] = {
            "registers a thread at launch": artifact.resources.registers,
            "dynamic shared memory, bytes": each.launch_geometry.shared_bytes,
            "spilled, bytes": artifact.resources.spill_stores + artifact.resources.spill_loads,
            **{f"{name} instructions": counts.get(name, 0) for name in _INSTRUCTIONS},
        }
    return pd.DataFrame(columns)


def compare(variant: Variant, matrix: str, n: int, dtype_out: str = "bfloat16") -> pd.DataFrame:
    """Verify a kernel on the small edge cases, then time it interleaved with opt3.

    Parameters
    ----------
    matrix : str
        A name for :func:`asyncsparse_lab.load_matrix`.
    n : int
        Columns of B.

    Returns
    -------
    DataFrame
        A row for each kernel and L2 state: median and quartiles in microseconds, speed over
        opt3, the edge cases it fails, its error as a share of the bound.

    Raises
    ------
    DeviceError
        There is no suitable GPU, or the kernel broke it.
    """
    import pandas as pd

    from asyncsparse_lab.gpu.device import require_gpu

    require_gpu()
    from asyncsparse_lab.spmm.edge_cases import EDGE_CASES
    from asyncsparse_lab.spmm.measure import measure_product
    from asyncsparse_lab.spmm.run import Ours
    from asyncsparse_lab.spmm.verify import verify_build
    from asyncsparse_lab.studies.spmm_common import product_with_truth

    kernels = (VARIANTS["bcsr-opt3"], variant)
    small = [case for case in EDGE_CASES if case.scope == "small"]
    faults = {
        each.name: [found.case for found in verify_build(each, dtype_out, small) if found.fault]
        for each in kernels
    }
    product, truth = product_with_truth(matrix, n)
    records = measure_product(
        [Ours(each) for each in kernels],
        product.with_output(dtype_out),
        study="own-kernel",
        case=f"{matrix}-n{n}",
        matrix=matrix,
        truth=truth,
        seconds=0.3,
    )
    opt3 = {r.l2: r.median_us for r in records if r.variant == "bcsr-opt3"}
    lines = []
    for record in records:
        base, time = opt3[record.l2], record.median_us
        lines.append(
            {
                "variant": record.variant,
                "L2": record.l2,
                "status": record.status,
                "median, us": time,
                "q1, us": record.q1_us,
                "q3, us": record.q3_us,
                "speed / opt3": base / time if base and time else None,
                "edge cases failed": ", ".join(faults[record.variant]) or "none",
                "reason": record.reason or "",
            }
        )
    return pd.DataFrame(lines)
