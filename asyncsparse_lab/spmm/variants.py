"""The table of kernels: a variant is data.

A variant names a source file below ``kernels/``, the compile-time constants and how it is
launched.  A sweep is a loop over :meth:`Variant.with_constants`; what cannot run is refused there,
in one line, before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.resources import resource_path

BLOCK = 64
"""Rows and columns of a block of A in every BCSR kernel."""
WINDOW = 64
"""Rows of a window of A in every WCSR kernel."""
WGMMA_COLUMNS = (8, 16, 32, 64, 128, 192, 256)
"""Values of WGMMA_N that the kernels are built for."""
MAX_SHARED_BYTES = 232_448
"""Shared memory that one thread block may use on sm_90 (CUDA C++ Programming Guide, table of
compute capabilities)."""
ALIGNMENT_BYTES = 1024
"""Extra dynamic shared memory, since 128-byte swizzle wants 1024-byte alignment."""
STATIC_BYTES = 1024
"""Room kept for barriers and scheduling state in static shared memory."""
CONSUMERS = 2
OUTPUT_TYPES = ("bfloat16", "float32")
PROBE_CONSTANTS = ("DEBUG_DELAYS", "INSTRUMENT", "SKIP_PRODUCT", "SKIP_STORE")
"""Constants that every variant takes: builds that are tested or looked into, never timed."""

Constants = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a kernel is launched.

    Attributes
    ----------
    threads : int
        Threads per block.
    tile_columns : int
        Columns of C that one tile covers; a tile has 64 rows.
    slice_columns : int
        Columns of the box of B's tensor map; 0 where the kernel uses none.
    shared_bytes : int
        Dynamic shared memory in bytes.
    cluster : int
        Thread blocks in a cluster, neighbours along N.
    persistent : bool
        One thread block an SM, each taking several tiles.
    stores_by_tma : bool
        C needs 16-byte rows; other outputs go through a workspace.
    schedules : bool
        The kernel takes tiles from a counter and needs zeroed memory for it.
    pairs : bool
        The kernel computes matched pairs of block rows.
    stage_k : int
        Rows of B, and columns of a block of A, in one stage.
    """

    threads: int
    tile_columns: int
    slice_columns: int
    shared_bytes: int
    cluster: int = 1
    persistent: bool = False
    stores_by_tma: bool = False
    schedules: bool = False
    pairs: bool = False
    stage_k: int = BLOCK

    def grid(self, block_rows: int, n: int, sm_count: int) -> int:
        """Return the thread blocks of a launch: one a tile, or one an SM."""
        if self.persistent:
            return sm_count
        column_tiles = -(-n // self.tile_columns)
        return block_rows * (column_tiles + -column_tiles % self.cluster)


def stage_bytes(wgmma_n: int) -> int:
    """Return the bytes of one ring slot: a 64 x 64 block of A and 64 rows of B, in bf16."""
    return BLOCK * BLOCK * 2 + BLOCK * CONSUMERS * wgmma_n * 2


def max_stages(wgmma_n: int) -> int:
    """Return how many ring slots fit into shared memory at this WGMMA_N."""
    room = MAX_SHARED_BYTES - ALIGNMENT_BYTES - STATIC_BYTES
    return room // stage_bytes(wgmma_n)


def _scalar_geometry(constants: Constants) -> Geometry:
    return Geometry(threads=128, tile_columns=128, slice_columns=0, shared_bytes=0)


def _tile_geometry(constants: Constants, threads: int, stages: int) -> Geometry:
    wgmma_n = constants["WGMMA_N"]
    return Geometry(
        threads=threads,
        tile_columns=CONSUMERS * wgmma_n,
        slice_columns=min(64, wgmma_n),
        shared_bytes=stages * stage_bytes(wgmma_n) + ALIGNMENT_BYTES,
    )


def _serial_geometry(constants: Constants) -> Geometry:
    return _tile_geometry(constants, threads=256, stages=1)


def ring_geometry(constants: Constants) -> Geometry:
    """Return the geometry of opt3: one producer and two consumer warpgroups."""
    return _tile_geometry(constants, threads=384, stages=constants["STAGES"])


def _multicast_geometry(constants: Constants) -> Geometry:
    return replace(ring_geometry(constants), cluster=constants["CLUSTER"])


def _persistent_geometry(constants: Constants) -> Geometry:
    return replace(ring_geometry(constants), persistent=True)


def _overlap_geometry(constants: Constants, tile_columns: int = 0, a_blocks: int = 1) -> Geometry:
    tile_columns = tile_columns or CONSUMERS * constants["WGMMA_N"]
    stage_k = constants["STAGE_K"]
    slot_bytes = 2 * stage_k * (a_blocks * BLOCK + tile_columns)
    return Geometry(
        threads=384,
        tile_columns=tile_columns,
        slice_columns=64,
        shared_bytes=constants["STAGES"] * slot_bytes + ALIGNMENT_BYTES,
        persistent=True,
        stores_by_tma=True,
        schedules=True,
        stage_k=stage_k,
    )


def _paired_geometry(constants: Constants) -> Geometry:
    geometry = _overlap_geometry(constants, tile_columns=constants["WGMMA_N"], a_blocks=CONSUMERS)
    return replace(geometry, pairs=True)


def _window_geometry(constants: Constants) -> Geometry:
    wgmma_n = constants["WGMMA_N"]
    return Geometry(
        threads=128,
        tile_columns=wgmma_n,
        slice_columns=0,
        shared_bytes=2 * BLOCK * (WINDOW + wgmma_n) + ALIGNMENT_BYTES,
    )


@dataclass(frozen=True)
class Variant:
    """A kernel with its constants and its launch geometry.

    The default geometry is opt3's, so that one's own kernel with the same argument struct
    (``kernels/include/bcsr_arguments.cuh``), WGMMA_N and STAGES needs only its source.

    Attributes
    ----------
    source : str
        File below ``kernels/``, or a path to one's own source.
    name : str
        Defaults to the source's stem.
    constants : mapping
        Preprocessor macros; the output type is added by who compiles.
    entry : str
        The kernel's ``extern "C"`` name.
    format : {"bcsr", "wcsr"}
        Sparse format that the kernel reads.
    role : {"paper", "ours", "probe"}
        As in the record.
    arch : str
        Target of the compilation.
    geometry : Geometry or callable
        Launch geometry, or a rule that gives it from the constants.
    options : mapping
        What the host decides. WCSR has ``max_cols_per_task``: windows with more columns are cut;
        0 leaves them whole.

    Raises
    ------
    InputError
        If WGMMA_N is none of 8, 16, 32, 64, 128, 192, 256, a ring has fewer than two stages, or
        the shared memory exceeds 232,448 bytes.
    """

    source: str
    name: str = ""
    constants: Constants = field(default_factory=lambda: {"WGMMA_N": 256, "STAGES": 3})
    entry: str = "bcsr_spmm"
    format: Literal["bcsr", "wcsr"] = "bcsr"
    role: Literal["paper", "ours", "probe"] = "ours"
    arch: str = "sm_90a"
    geometry: Geometry | Callable[[Constants], Geometry] = ring_geometry
    options: Constants = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", Path(self.source).stem)
        wgmma_n = self.constants.get("WGMMA_N")
        if wgmma_n is not None and wgmma_n not in WGMMA_COLUMNS:
            choices = ", ".join(map(str, WGMMA_COLUMNS))
            raise InputError(f"{self.name}: WGMMA_N = {wgmma_n} is not built; use one of {choices}")
        stages = self.constants.get("STAGES")
        if stages is not None and stages < 2:
            raise InputError(f"{self.name}: STAGES = {stages}; the ring needs 2 slots or more")
        if self.constants.get("SETMAXNREG") and self.constants.get("MINIMUM_CTAS", 1) > 1:
            raise InputError(
                f"{self.name}: MINIMUM_CTAS = {self.constants['MINIMUM_CTAS']} with SETMAXNREG: "
                "24/240 registers need a whole SM, and a claim for more would wait for ever"
            )
        needed = self.launch_geometry.shared_bytes + STATIC_BYTES
        if needed > MAX_SHARED_BYTES:
            fits = f"; at most {max_stages(wgmma_n)} stages fit" if stages and wgmma_n else ""
            raise InputError(
                f"{self.name}: {needed} bytes of shared memory exceed {MAX_SHARED_BYTES}{fits}"
            )

    @property
    def launch_geometry(self) -> Geometry:
        """The geometry at these constants."""
        return self.geometry(self.constants) if callable(self.geometry) else self.geometry

    @property
    def path(self) -> Path:
        """The source file; a relative name is looked up below ``kernels/`` first."""
        shipped = resource_path("kernels") / self.source
        return shipped if shipped.exists() else Path(self.source)

    def with_constants(self, **constants: int) -> Variant:
        """Return this variant with some constants replaced; the result is checked anew."""
        unknown = set(constants) - set(self.constants) - set(PROBE_CONSTANTS)
        if unknown:
            known = ", ".join(self.constants)
            raise InputError(f"{self.name}: no constant {', '.join(unknown)}; it has {known}")
        changed = replace(self, constants={**self.constants, **constants})
        is_probe = any(changed.constants.get(name) for name in PROBE_CONSTANTS[1:])
        return replace(changed, role="probe") if is_probe else changed

    def with_options(self, **options: int) -> Variant:
        """Return this variant with some options of the host replaced."""
        unknown = set(options) - set(self.options)
        if unknown:
            known = ", ".join(self.options) or "none"
            raise InputError(f"{self.name}: no option {', '.join(unknown)}; it has {known}")
        return replace(self, options={**self.options, **options})

    @property
    def params(self) -> dict[str, int]:
        """What a record says of the variant: constants in lower case, options, window."""
        params = {name.lower(): value for name, value in sorted(self.constants.items())}
        window = {"window": WINDOW} if self.format == "wcsr" else {}
        return params | dict(self.options) | window

    @property
    def is_instrumented(self) -> bool:
        """Whether this build counts its cycles."""
        return bool(self.constants.get("INSTRUMENT"))

    def macros(self, dtype_out: str) -> dict[str, int]:
        """Return the macros to compile with for an output type."""
        if dtype_out not in OUTPUT_TYPES:
            raise InputError(f"{self.name}: output {dtype_out!r}; use {' or '.join(OUTPUT_TYPES)}")
        return {**self.constants, "OUTPUT_BF16": int(dtype_out == "bfloat16")}


# The article's rule, "the largest WGMMA_N whose BN = 2 WGMMA_N divides N", gives 256 for N = 1024
# and 4096, so the ladder stands on that tile; three stages of it fill the shared memory.
_RING = {"WGMMA_N": 256, "STAGES": 3}

_TABLE = (
    Variant("bcsr_opt0.cu", "bcsr-opt0", {}, role="paper", geometry=_scalar_geometry),
    Variant("bcsr_opt1.cu", "bcsr-opt1", {"WGMMA_N": 256}, role="paper", geometry=_serial_geometry),
    Variant("bcsr_opt2.cu", "bcsr-opt2", {"WGMMA_N": 256}, role="paper", geometry=_serial_geometry),
    Variant(
        "bcsr_opt3.cu", "bcsr-opt3", {**_RING, "SETMAXNREG": 1, "MINIMUM_CTAS": 1}, role="paper"
    ),
    Variant(
        "bcsr_multicast.cu",
        "bcsr-multicast",
        {**_RING, "CLUSTER": 2},
        role="paper",
        geometry=_multicast_geometry,
    ),
    Variant(
        "bcsr_persistent.cu",
        "bcsr-persistent",
        {**_RING, "COLUMN_MAJOR": 0},
        role="paper",
        geometry=_persistent_geometry,
    ),
    Variant(
        "bcsr_persistent.cu",
        "bcsr-persistent-swizzle",
        {**_RING, "COLUMN_MAJOR": 1},
        role="paper",
        geometry=_persistent_geometry,
    ),
    Variant(
        "bcsr_overlap.cu",
        "bcsr-overlap",
        {"WGMMA_N": 256, "STAGES": 3, "STAGE_K": 64},
        geometry=_overlap_geometry,
    ),
    Variant(
        "bcsr_paired.cu",
        "bcsr-paired",
        {"WGMMA_N": 256, "STAGES": 4, "STAGE_K": 64},
        geometry=_paired_geometry,
    ),
    Variant(
        "wcsr_paper.cu",
        "wcsr-paper",
        {"WGMMA_N": 128},
        entry="wcsr_spmm",
        format="wcsr",
        role="paper",
        geometry=_window_geometry,
        options={"max_cols_per_task": 512},
    ),
    Variant(
        "wcsr_paper.cu",
        "wcsr-paper-unsplit",
        {"WGMMA_N": 128},
        entry="wcsr_spmm",
        format="wcsr",
        role="paper",
        geometry=_window_geometry,
        options={"max_cols_per_task": 0},
    ),
)

VARIANTS: dict[str, Variant] = {variant.name: variant for variant in _TABLE}


def find_variant(name: str) -> Variant:
    """Return the variant of this name, or raise :class:`InputError` with the known names."""
    if name not in VARIANTS:
        raise InputError(f"no variant {name!r}; there are {', '.join(VARIANTS)}")
    return VARIANTS[name]


class Build(NamedTuple):
    """One cubin: a variant at its constants, and an output type."""

    variant: Variant
    dtype_out: str


def ring_sweep(variant: Variant) -> Iterator[Variant]:
    """Yield a ring variant at every WGMMA_N and every depth that fits."""
    for wgmma_n in WGMMA_COLUMNS:
        for stages in range(2, max_stages(wgmma_n) + 1):
            yield variant.with_constants(WGMMA_N=wgmma_n, STAGES=stages)


def cluster_sweep() -> list[Variant]:
    """Return the multicast kernel in clusters of 1 (opt3 and a cluster's barriers), 2 and 4."""
    return [VARIANTS["bcsr-multicast"].with_constants(CLUSTER=size) for size in (1, 2, 4)]


def instrumented() -> list[Variant]:
    """Return the probes of every kernel that can count its cycles."""
    names = ("bcsr-opt3", "bcsr-persistent", "bcsr-persistent-swizzle", "wcsr-paper",
             "wcsr-paper-unsplit")  # fmt: skip
    kernels = [*(VARIANTS[name] for name in names), *cluster_sweep()]
    return [kernel.with_constants(INSTRUMENT=1) for kernel in kernels]


def all_builds() -> list[Build]:
    """Return every build that a study or the verification launches, each once."""
    opt3 = VARIANTS["bcsr-opt3"]
    builds = [Build(variant, dtype) for variant in _TABLE for dtype in OUTPUT_TYPES]
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
    builds += [Build(v.with_constants(DEBUG_DELAYS=1), "bfloat16") for v in _TABLE]
    builds += [Build(variant, dtype) for variant in instrumented() for dtype in OUTPUT_TYPES]
    unique = {
        (b.variant.name, tuple(sorted(b.variant.params.items())), b.dtype_out): b for b in builds
    }
    return list(unique.values())
