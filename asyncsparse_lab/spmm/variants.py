"""The table of kernels: a variant is data.

A variant names a source file below ``kernels/``, the compile-time constants and how it is
launched.  A sweep is a loop over :meth:`Variant.with_constants`; what cannot run is refused there,
in one line, before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.resources import resource_path
from asyncsparse_lab.spmm.geometry import (
    BLOCK as BLOCK,
)
from asyncsparse_lab.spmm.geometry import (
    MAX_SHARED_BYTES,
    STATIC_BYTES,
    WGMMA_COLUMNS,
    Constants,
    max_stages,
    multicast_geometry,
    overlap_geometry,
    paired_geometry,
    persistent_geometry,
    pipelined_geometry,
    ring_geometry,
    rows_geometry,
    scalar_geometry,
    serial_geometry,
    window_geometry,
)
from asyncsparse_lab.spmm.geometry import WINDOW as WINDOW
from asyncsparse_lab.spmm.geometry import (
    Geometry as Geometry,
)

OUTPUT_TYPES = ("bfloat16", "float32")
"""What every kernel writes; one that reads float16 writes that too."""
PROBE_CONSTANTS = (
    "DEBUG_DELAYS",
    "INSTRUMENT",
    "MOVE_ONLY",
    "SKIP_LOAD",
    "SKIP_PRODUCT",
    "SKIP_STORE",
    "UNFENCED",
)
"""Constants that every variant takes: builds that are tested or looked into, never timed."""


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
    format : {"bcsr", "wcsr", "csr"}
        Sparse format that the kernel reads.
    role : {"paper", "ours", "probe"}
        As in the record.
    arch : str
        Target of the compilation.  One without a letter at its end is portable: it is compiled for
        the GPU at hand, or for this where there is none.
    geometry : Geometry or callable
        Launch geometry, or a rule that gives it from the constants.
    family : str
        How it is converted for and launched, a key of :data:`asyncsparse_lab.spmm.run.FAMILIES`;
        the format where nothing else is said.
    dtypes_in : tuple of str
        Types of A and B that the source can be compiled for.
    layouts : tuple of str
        Layouts of B and C that it can be compiled for.
    options : mapping
        What the host decides. WCSR has ``max_cols_per_task``: windows with more columns are cut;
        0 leaves them whole, -1 is by rule.  Its pipelined kernel has ``deterministic`` (1: pieces
        are added up in a fixed order, 0: by atomics) and ``row_order``, one of
        :data:`asyncsparse_lab.spmm.orders.ORDERS`.  CSR has ``tile_columns``, ``rows_per_task``,
        ``piece_length`` and ``order``; 0 of each is by rule (:mod:`asyncsparse_lab.spmm.csr`).

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
    format: Literal["bcsr", "wcsr", "csr"] = "bcsr"
    family: str = ""
    dtypes_in: tuple[str, ...] = ("bfloat16",)
    layouts: tuple[str, ...] = ("row-major",)
    role: Literal["paper", "ours", "probe"] = "ours"
    arch: str = "sm_90a"
    geometry: Geometry | Callable[[Constants], Geometry] = ring_geometry
    options: Constants = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", Path(self.source).stem)
        if not self.family:
            object.__setattr__(self, "family", self.format)
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
        height = self.constants.get("HEIGHT", WINDOW)
        window = {"window": height} if self.format == "wcsr" else {}
        return params | dict(self.options) | window

    @property
    def is_instrumented(self) -> bool:
        """Whether this build counts its cycles."""
        return bool(self.constants.get("INSTRUMENT"))

    def macros(
        self, dtype_out: str, dtype_in: str = "bfloat16", layout: str = "row-major"
    ) -> dict[str, int]:
        """Return the macros to compile with: the constants, and types and layout of the product.

        OUTPUT_BF16 is always there; INPUT_FP16, OUTPUT_FP16 and TRANSPOSED (B and C are
        column-major) only where they are 1.

        Raises
        ------
        InputError
            The variant is not written for such a product.
        """
        outputs = (*OUTPUT_TYPES, "float16") if "float16" in self.dtypes_in else OUTPUT_TYPES
        for what, value, offered in (
            ("output", dtype_out, outputs),
            ("input", dtype_in, self.dtypes_in),
            ("layout", layout, self.layouts),
        ):
            if value not in offered:
                raise InputError(f"{self.name}: {what} {value!r}; use {' or '.join(offered)}")
        special = {
            "INPUT_FP16": dtype_in == "float16",
            "OUTPUT_FP16": dtype_out == "float16",
            "TRANSPOSED": layout == "column-major",
        }
        return {
            **self.constants,
            "OUTPUT_BF16": int(dtype_out == "bfloat16"),
            **{name: 1 for name, holds in special.items() if holds},
        }


# The article's rule, "the largest WGMMA_N whose BN = 2 WGMMA_N divides N", gives 256 for N = 1024
# and 4096, so the ladder stands on that tile; three stages of it fill the shared memory.
_RING = {"WGMMA_N": 256, "STAGES": 3}
_BEYOND: dict[str, Any] = {
    "family": "ring",
    "dtypes_in": ("bfloat16", "float16"),
    "layouts": ("row-major", "column-major"),
}

_TABLE = (
    Variant("bcsr_opt0.cu", "bcsr-opt0", {}, role="paper", geometry=scalar_geometry),
    Variant("bcsr_opt1.cu", "bcsr-opt1", {"WGMMA_N": 256}, role="paper", geometry=serial_geometry),
    Variant("bcsr_opt2.cu", "bcsr-opt2", {"WGMMA_N": 256}, role="paper", geometry=serial_geometry),
    Variant(
        "bcsr_opt3.cu", "bcsr-opt3", {**_RING, "SETMAXNREG": 1, "MINIMUM_CTAS": 1}, role="paper"
    ),
    Variant(
        "bcsr_multicast.cu",
        "bcsr-multicast",
        {**_RING, "CLUSTER": 2},
        role="paper",
        geometry=multicast_geometry,
    ),
    Variant(
        "bcsr_persistent.cu",
        "bcsr-persistent",
        {**_RING, "COLUMN_MAJOR": 0},
        role="paper",
        geometry=persistent_geometry,
    ),
    Variant(
        "bcsr_persistent.cu",
        "bcsr-persistent-swizzle",
        {**_RING, "COLUMN_MAJOR": 1},
        role="paper",
        geometry=persistent_geometry,
    ),
    Variant("bcsr_overlap.cu", "bcsr-overlap", _RING, geometry=overlap_geometry, **_BEYOND),
    # Tiles half as wide read A twice as often, but finish more evenly where there are few of them,
    # and need half as much of B in L2 at a time.
    Variant(
        "bcsr_overlap.cu",
        "bcsr-overlap-narrow",
        {"WGMMA_N": 128, "STAGES": 5},
        geometry=overlap_geometry,
        **_BEYOND,
    ),
    Variant(
        "bcsr_paired.cu",
        "bcsr-paired",
        {**_RING, "STAGES": 5},
        geometry=paired_geometry,
        **_BEYOND,
    ),
    Variant(
        "wcsr_paper.cu",
        "wcsr-paper",
        {"WGMMA_N": 128},
        entry="wcsr_spmm",
        format="wcsr",
        role="paper",
        geometry=window_geometry,
        options={"max_cols_per_task": 512},
    ),
    Variant(
        "wcsr_paper.cu",
        "wcsr-paper-unsplit",
        {"WGMMA_N": 128},
        entry="wcsr_spmm",
        format="wcsr",
        role="paper",
        geometry=window_geometry,
        options={"max_cols_per_task": 0},
    ),
    Variant(
        "wcsr_pipelined.cu",
        "wcsr-pipelined",
        {
            "HEIGHT": 64,
            "WGMMA_N": 128,
            "COLUMN_GROUPS": 1,
            "STAGES": 3,
            "PRODUCERS": 2,
            "MINIMUM_CTAS": 3,
        },
        entry="wcsr_spmm",
        format="wcsr",
        family="pipelined",
        dtypes_in=("bfloat16", "float16"),
        geometry=pipelined_geometry,
        options={"max_cols_per_task": -1, "deterministic": 1, "row_order": 0},
    ),
    Variant(
        "csr_vector.cu",
        "csr-vector",
        {"THREADS": 64, "UNROLL": 8},
        entry="csr_spmm",
        format="csr",
        dtypes_in=("bfloat16", "float16"),
        arch="sm_90",
        geometry=rows_geometry,
        options={"tile_columns": 0, "rows_per_task": 0, "piece_length": 0, "order": 0},
    ),
)

VARIANTS: dict[str, Variant] = {variant.name: variant for variant in _TABLE}


def find_variant(name: str) -> Variant:
    """Return the variant of this name, or raise :class:`InputError` with the known names."""
    if name not in VARIANTS:
        raise InputError(f"no variant {name!r}; there are {', '.join(VARIANTS)}")
    return VARIANTS[name]
