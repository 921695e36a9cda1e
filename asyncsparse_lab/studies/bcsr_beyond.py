r"""BCSR beyond the article: the epilogue hidden in the ring, and block rows matched in pairs.

What a kernel must move from L2 to shared memory follows from its tile.  For every column tile of
C a block of A is read once, and its 64 rows of B at the tile's width; a pair of block rows reads
the slices that both need once.  With b blocks and N columns, in bytes:

* opt3 and overlap, tiles of 64 x 512: :math:`b \lceil N/512 \rceil (64 \cdot 64 + 64 \cdot 512) 2`
* paired, 2 x 64 x 256: :math:`\lceil N/256 \rceil (b \cdot 64 \cdot 64 + s \cdot 64 \cdot 256) 2`,
  where s is the number of steps, the block columns in the unions of the pairs.

The floor is these bytes over the measured rate of independent TMA reads.  The probes leave out
products and stores, so that only the loads remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from asyncsparse_lab.records import Record
from asyncsparse_lab.records.frame import ratios
from asyncsparse_lab.spmm.geometry import BLOCK
from asyncsparse_lab.spmm.variants import VARIANTS, Variant
from asyncsparse_lab.studies.base import Case, Drawing, Table

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.gpu.compile import KernelBuild
    from asyncsparse_lab.spmm.product import Product

STUDY: Final = "bcsr-beyond"
LAYERS: Final = (
    ("gate_proj-keep10-uniform-s0", 1024),
    ("gate_proj-keep10-uniform-s0", 4096),
    ("gate_proj-keep10-uniform-s0", 16384),
    ("gate_proj-keep2-uniform-s0", 4096),
    ("gate_proj-keep50-uniform-s0", 4096),
    ("down_proj-keep10-uniform-s0", 4096),
)
OTHERS: Final = (
    "bcsstk16",
    "bcsstk13",
    "elasticity_tank",
    "navier_stokes_jac",
    "qp_ship12l_P",
    "mycielskian13",
)
COLUMNS: Final = 4096
DTYPE_OUT: Final = "bfloat16"
KERNELS: Final = ("bcsr-opt3", "bcsr-overlap", "bcsr-paired")
PROBED: Final = KERNELS[1:]


def cases() -> list[Case]:
    """Return a case for each pruned layer and each other matrix."""
    products = (*LAYERS, *((matrix, COLUMNS) for matrix in OTHERS))
    return [
        Case(f"{matrix}-n{n}", matrix, n, {"dtype_out": DTYPE_OUT}, seconds=2.5)
        for matrix, n in products
    ]


def loads_only(variant: Variant) -> Variant:
    """Return the build of a variant that loads and neither multiplies nor stores."""
    return variant.with_constants(SKIP_PRODUCT=1, SKIP_STORE=1)


def kernel_builds() -> dict[str, list[KernelBuild]]:
    """Return the compilations behind the records, by variant."""
    from asyncsparse_lab.studies.spmm_common import kernel_build

    builds = {name: [kernel_build(VARIANTS[name], DTYPE_OUT)] for name in KERNELS}
    for name in PROBED:
        builds[name].append(kernel_build(loads_only(VARIANTS[name]), DTYPE_OUT))
    return builds


def measure(case: Case) -> list[Record]:
    """Measure the kernels beside dense cuBLAS, and the loads of the new ones alone."""
    from asyncsparse_lab.baselines import BASELINES
    from asyncsparse_lab.studies.spmm_cases import measure_case

    kernels = [VARIANTS[name] for name in KERNELS]
    measured = measure_case(STUDY, case, kernels, [BASELINES["cublas-dense"]], seconds=0.1)
    records = measured.records + [_probe(case, VARIANTS[name], measured.product) for name in PROBED]
    loaded = loaded_bytes(measured.product)
    return [
        replace(record, result={**record.result, "l2_bytes": loaded[record.variant]})
        if record.backend == "asyncsparse" and record.status == "passed"
        else record
        for record in records
    ]


def loaded_bytes(product: Product) -> dict[str, int]:
    """Return the bytes from L2 to shared memory that each kernel's tiles ask for."""
    from asyncsparse_lab.formats import BCSR
    from asyncsparse_lab.spmm.pairs import pair_schedule

    matrix = BCSR.from_csr(product.A, (BLOCK, BLOCK))
    blocks = len(matrix.block_col_idx)
    steps = len(pair_schedule(matrix.block_row_ptr, matrix.block_col_idx)[1])
    found = {}
    for name in KERNELS:
        geometry = VARIANTS[name].launch_geometry
        column_tiles = -(-product.n // geometry.tile_columns)
        slices = steps if geometry.pairs else blocks
        values = BLOCK * (blocks * BLOCK + slices * geometry.tile_columns)
        found[name] = 2 * column_tiles * values
    return found


def _probe(case: Case, variant: Variant, product: Product) -> Record:
    """Time the loads of a variant alone, cold."""
    from asyncsparse_lab.gpu.timing import time_interleaved
    from asyncsparse_lab.spmm.measure import record_identity
    from asyncsparse_lab.spmm.run import Ours

    probe = Ours(loads_only(variant))
    prepared = probe.prepare(product)
    (timing,) = time_interleaved([prepared.run], "cold", 0.05)
    return Record(
        **record_identity(probe, product, STUDY, case.name, case.matrix),
        l2="cold",
        clock="events",
        status="passed",
        **timing.record_fields(),
        kernel_hash=prepared.kernel_hash,
        host_hash=prepared.host_hash,
        compiler=prepared.compiler,
        params=prepared.params,
    )


def draw(
    frame: pd.DataFrame,
    claims: pd.DataFrame,
    *,
    matrices: Sequence[str] = (),
    gpu: str = "",
) -> dict[str, Drawing | Table]:
    """Draw the speed over dense cuBLAS; tabulate time, floor and share of the floor.

    Parameters
    ----------
    matrices : sequence of str
        Only these; all if empty.
    gpu : str
        Folder of the GPU's records; the only one there is if empty.
    """
    from asyncsparse_lab.studies.spmm_cases import chosen_rows

    rows = chosen_rows(frame, matrices=matrices, n=0, l2="cold", gpu=gpu)
    kernels = rows[rows["role"] != "probe"]
    return {"speed": _speed(kernels), "floors": _floors(rows)}


def _speed(rows: pd.DataFrame) -> Drawing:
    import pandas as pd
    from matplotlib import pyplot as plt

    from asyncsparse_lab.studies import style

    parts = []
    for name in KERNELS:
        found = ratios(rows, f"variant == {name!r}", "variant == 'dense'").reset_index()
        parts.append(found.assign(variant=name))
    speeds = pd.concat(parts)
    names = list(dict.fromkeys(rows.sort_values(["matrix", "n"])["case"]))
    figure, axes = plt.subplots(figsize=(9.2, 0.36 * len(names) + 1.6))
    for shift, name in zip((-0.26, 0.0, 0.26), KERNELS, strict=True):
        own = speeds[speeds["variant"] == name].set_index("case")["ratio"].reindex(names)
        look = style.look(name)
        places = [place + shift for place in range(len(names))]
        axes.barh(places, own, 0.24, color=look.color, label=style.contender_name("", name))
        for place, value in zip(places, own, strict=True):
            axes.annotate(f"{value:.2f}", (value, place), (3, 0), textcoords="offset points",
                          va="center", fontsize=7)  # fmt: skip
    axes.axvline(1.0, color="#707070", linewidth=1, linestyle="--")
    axes.set_yticks(range(len(names)), [name.replace("-uniform-s0", "") for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("times dense cuBLAS's speed, bf16 out")
    axes.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.08)
    style.provenance(figure, rows)
    data = speeds[["variant", "case", "ratio"]].sort_values(["case", "variant"])
    return Drawing(
        figure,
        data.reset_index(drop=True),
        "Speed over dense cuBLAS in the same case, cold L2, bf16 out: the article's opt3, the "
        "epilogue hidden in the ring (overlap), block rows matched in pairs (paired).",
    )


def _floors(rows: pd.DataFrame) -> Table:
    import pandas as pd

    from asyncsparse_lab.studies.rooflines import ceilings_for

    ceilings = ceilings_for(rows)
    lines = []
    for (case, name), own in rows.groupby(["case", "variant"], sort=False):
        if name not in KERNELS:
            continue
        kernel = own[own["role"] != "probe"].iloc[0]
        probes = own[own["role"] == "probe"]
        floor = kernel["result.l2_bytes"] / ceilings.tma_bytes_per_s * 1e6 if ceilings else None
        lines.append(
            {
                "case": case,
                "kernel": name,
                "median, us": kernel["median_us"],
                "loads alone, us": probes["median_us"].iloc[0] if len(probes) else None,
                "bytes from L2, GB": kernel["result.l2_bytes"] / 1e9,
                "floor of the loads, us": floor,
                "floor / measured": floor / kernel["median_us"] if floor else None,
            }
        )
    return Table(
        pd.DataFrame(lines),
        "Time of each kernel, of its loads alone (neither product nor store), and what the bytes "
        "of its tiles take at the measured rate of independent TMA reads from L2.",
    )
