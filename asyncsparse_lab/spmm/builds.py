"""Every build that a study or the verification launches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from asyncsparse_lab.spmm.geometry import WGMMA_COLUMNS, max_stages
from asyncsparse_lab.spmm.orders import SIMILARITY
from asyncsparse_lab.spmm.variants import OUTPUT_TYPES, VARIANTS, Variant


class Build(NamedTuple):
    """One cubin: a variant at its constants, and the types and layout of the product."""

    variant: Variant
    dtype_out: str
    dtype_in: str = "bfloat16"
    layout: str = "row-major"


def ring_sweep(variant: Variant) -> Iterator[Variant]:
    """Yield a ring variant at every WGMMA_N and every depth that fits."""
    for wgmma_n in WGMMA_COLUMNS:
        for stages in range(2, max_stages(wgmma_n) + 1):
            yield variant.with_constants(WGMMA_N=wgmma_n, STAGES=stages)


def cluster_sweep() -> list[Variant]:
    """Return the multicast kernel in clusters of 1 (opt3 and a cluster's barriers), 2 and 4."""
    return [VARIANTS["bcsr-multicast"].with_constants(CLUSTER=size) for size in (1, 2, 4)]


def pipelined_builds() -> list[Variant]:
    """Return the pipelined WCSR kernel in the tiles that are chosen from, the table's first."""
    kernel = VARIANTS["wcsr-pipelined"]
    names = ("HEIGHT", "WGMMA_N", "COLUMN_GROUPS", "STAGES", "PRODUCERS", "MINIMUM_CTAS")
    return [
        kernel.with_constants(**dict(zip(names, values, strict=True)))
        for values in (
            (64, 128, 1, 3, 2, 3),
            (64, 128, 1, 4, 4, 2),
            (64, 64, 1, 4, 4, 3),
            (64, 128, 2, 2, 2, 2),
            (128, 128, 1, 3, 2, 2),
            (128, 256, 1, 4, 4, 1),
            (256, 128, 1, 4, 4, 1),
        )
    ]


def instrumented() -> list[Variant]:
    """Return the probes of every kernel that can count its cycles.

    INSTRUMENT=2 also times the release of ring slots, and waits for the rest of a cluster.
    """
    names = ("bcsr-opt3", "bcsr-persistent", "bcsr-persistent-swizzle", "wcsr-paper",
             "wcsr-paper-unsplit")  # fmt: skip
    light = [VARIANTS[name].with_constants(INSTRUMENT=1) for name in names]
    full = [VARIANTS["bcsr-opt3"], *cluster_sweep()]
    return light + [kernel.with_constants(INSTRUMENT=2) for kernel in full]


def unfenced(variant: Variant) -> Variant | None:
    """Return the probe of a multicast kernel whose remote arrivals have no fence, if it has any."""
    if variant.constants.get("CLUSTER", 1) == 1:
        return None
    return variant.with_constants(UNFENCED=1)


def all_builds() -> list[Build]:
    """Return every build that a study or the verification launches, each once."""
    opt3 = VARIANTS["bcsr-opt3"]
    builds = [Build(variant, dtype) for variant in VARIANTS.values() for dtype in OUTPUT_TYPES]
    for base in (VARIANTS["bcsr-opt1"], VARIANTS["bcsr-opt2"], opt3):
        builds += [Build(base.with_constants(WGMMA_N=128), dtype) for dtype in OUTPUT_TYPES]
    builds += [Build(variant, "bfloat16") for variant in ring_sweep(opt3)]
    builds += [Build(variant, "bfloat16") for variant in cluster_sweep()]
    wcsr = VARIANTS["wcsr-paper"]
    for variant in (
        wcsr.with_constants(WGMMA_N=64),
        wcsr.with_constants(WGMMA_N=256),
        wcsr.with_options(max_cols_per_task=64),  # the same code, but many more pieces
    ):
        builds += [Build(variant, dtype) for dtype in OUTPUT_TYPES]
    for variant in pipelined_builds():
        pieces = variant.with_options(max_cols_per_task=64)
        unordered = pieces.with_options(deterministic=0)
        builds += [Build(v, dtype) for v in (variant, pieces) for dtype in OUTPUT_TYPES]
        builds.append(Build(unordered, "bfloat16"))
    similar = VARIANTS["wcsr-pipelined"].with_options(row_order=SIMILARITY, max_cols_per_task=64)
    builds += [Build(similar, dtype) for dtype in OUTPUT_TYPES]
    builds += [Build(v.with_constants(DEBUG_DELAYS=1), "bfloat16") for v in VARIANTS.values()]
    builds += [Build(variant, dtype) for variant in instrumented() for dtype in OUTPUT_TYPES]
    bare = filter(None, map(unfenced, cluster_sweep()))
    builds += [Build(variant, "bfloat16") for variant in bare]
    for variant in VARIANTS.values():
        for layout in variant.layouts:
            for dtype_in in variant.dtypes_in:
                builds += [Build(variant, out, dtype_in, layout) for out in (dtype_in, "float32")]
    unique = {(b.variant.name, tuple(sorted(b.variant.params.items())), *b[1:]): b for b in builds}
    return list(unique.values())
