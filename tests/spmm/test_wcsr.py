"""WCSR on the host: mirrors of the structs, and the tasks that windows are cut into."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats import WCSR
from asyncsparse_lab.formats.layouts import K16, core_matrices
from asyncsparse_lab.resources import resource_path
from asyncsparse_lab.spmm.arguments import BcsrArguments, WcsrArguments
from asyncsparse_lab.spmm.builds import all_builds, instrumented
from asyncsparse_lab.spmm.contender import Prepared
from asyncsparse_lab.spmm.edge_cases import EDGE_CASES, one_dense_row, random_matrix
from asyncsparse_lab.spmm.instrument import (
    ROLE_ROW,
    ROW,
    MeasuredBcsrArguments,
    MeasuredWcsrArguments,
    read_rows,
    with_measurements,
)
from asyncsparse_lab.spmm.oracle import reference
from asyncsparse_lab.spmm.product import Product
from asyncsparse_lab.spmm.run import Ours, host_hash
from asyncsparse_lab.spmm.variants import VARIANTS
from asyncsparse_lab.spmm.verify import verify_case
from asyncsparse_lab.spmm.wcsr import WindowTasks


def struct_of(header: str, name: str) -> tuple[list[str], int]:
    """Return the fields of a struct in a header, and the size that it asserts."""
    text = (resource_path("kernels") / "include" / header).read_text()
    body = re.sub(r"//.*", "", text[text.index(f"{name} {{") :].partition("};")[0])
    size = re.search(rf"sizeof\({name}\) == (\d+)", text)
    assert size is not None
    return re.findall(r"(\w+)(?:\[\d+\])?;", body), int(size[1])


def test_the_argument_struct_mirrors_the_header() -> None:
    names, size = struct_of("wcsr_arguments.cuh", "WcsrArguments")
    assert names == [field[0] for field in WcsrArguments._fields_]
    assert ctypes.sizeof(WcsrArguments) == size


def test_the_rows_of_instruments_mirror_the_header() -> None:
    for header, name, row in (
        ("instrument.cuh", "InstrumentRow", ROW),
        ("role_clock.cuh", "RoleRow", ROLE_ROW),
    ):
        names, size = struct_of(header, name)
        assert tuple(names) == row.names
        assert row.itemsize == size


def test_an_instrumented_build_takes_the_same_arguments_and_an_address() -> None:
    # Tensor maps are aligned to 64 bytes, and so is the struct that ends with the address.
    assert ctypes.sizeof(MeasuredBcsrArguments) % 64 == 0
    assert ctypes.sizeof(MeasuredWcsrArguments) == ctypes.sizeof(WcsrArguments) + 8
    for arguments in (BcsrArguments(m=7, ldc=11), WcsrArguments(m=7, ldc=11)):
        measured: Any = with_measurements(arguments, 4096)
        assert (measured.m, measured.ldc, measured.measurements) == (7, 11, 4096)
        assert type(measured).measurements.offset == ctypes.sizeof(arguments)


def test_rows_are_read_by_block_and_role() -> None:
    for row in (ROW, ROLE_ROW):
        memory = np.zeros((5, 3, row.itemsize), dtype=np.uint8)
        memory[4, 2].view(row)["epilogue"] = 99
        rows = read_rows(memory)
        assert rows.shape == (5, 3)
        assert rows.dtype == row
        assert rows[4, 2]["epilogue"] == 99
        assert rows["epilogue"].sum() == 99


@pytest.mark.parametrize("limit", [0, 64, 512])
def test_tasks_add_up_to_the_product(limit: int) -> None:
    A = one_dense_row().astype(np.float64)
    windows = WCSR.from_csr(A, 64, K16)
    work = WindowTasks.of(windows.window_row_ptr, limit)
    B = np.random.default_rng(0).standard_normal((A.shape[1], 5))
    C = np.full((-(-A.shape[0] // 64) * 64, 5), np.nan)
    for window in work.split_windows:
        C[64 * window : 64 * window + 64] = 0
    for window, first, count, pieces in work.tasks:
        columns = slice(first, first + count)
        index = windows.window_col_idx[columns]
        gathered = np.where(index[:, None] >= 0, B[index], 0)
        part = windows.values[columns].T @ gathered
        rows = slice(64 * window, 64 * window + 64)
        C[rows] = C[rows] + part if pieces > 1 else part
    np.testing.assert_allclose(C[: A.shape[0]], A @ B, atol=1e-9)
    assert (work.tasks[:, 2] % K16 == 0).all()
    assert (np.diff(work.tasks[:, 2]) <= 0).all(), "the longest tasks start first"
    assert (len(work.split_windows) > 0) == (limit > 0)
    assert work.most_pieces == (1 if limit == 0 else -(-windows.columns_per_window.max() // limit))


def test_values_of_a_task_are_contiguous_core_matrices() -> None:
    A = random_matrix(128, 300, 0.2, seed=5)
    windows = WCSR.from_csr(A, 64, K16)
    values = np.arange(windows.values.size, dtype=np.uint16).reshape(windows.values.shape)
    laid = core_matrices(values).reshape(-1)
    step = 3  # what the kernel reads of step 3: row i, column c at 1024 B an 8 columns, 128 B a row
    for i, c in ((0, 0), (9, 7), (63, 15), (8, 8)):
        offset = step * 64 * 16 + c // 8 * 512 + i // 8 * 64 + i % 8 * 8 + c % 8
        assert laid[offset] == values[16 * step + c, i]


def test_options_are_the_hosts_and_part_of_what_a_record_says() -> None:
    split, whole = VARIANTS["wcsr-paper"], VARIANTS["wcsr-paper-unsplit"]
    assert Ours(split).params == {"wgmma_n": 128, "window": 64, "max_cols_per_task": 512}
    assert Ours(whole).params["max_cols_per_task"] == 0
    other = split.with_options(max_cols_per_task=64)
    assert other.macros("float32") == split.macros("float32")
    assert host_hash(other) != host_hash(split)
    with pytest.raises(InputError, match="no option window; it has max_cols_per_task"):
        split.with_options(window=128)
    with pytest.raises(InputError, match="no option max_cols_per_task; it has none"):
        VARIANTS["bcsr-opt3"].with_options(max_cols_per_task=64)


def test_instrumented_builds_are_probes() -> None:
    probes = instrumented()
    assert {variant.role for variant in probes} == {"probe"}
    assert {probe.name for probe in probes} >= {"bcsr-opt3", "bcsr-multicast", "wcsr-paper"}
    assert [VARIANTS[probe.name].role for probe in probes] == ["paper"] * len(probes)
    built = [build.variant.params for build in all_builds() if build.variant.is_instrumented]
    assert len(built) == 2 * len(probes)


@dataclass
class UnorderedSums:
    """A right product whose second run differs: in its last bits, or by more."""

    deterministic: bool
    second_error: float = 2.0**-20
    role: str = "paper"
    backend: str = "asyncsparse"
    variant: str = "host"
    params: dict[str, Any] = field(default_factory=dict)

    def prepare(self, product: Product) -> Prepared:
        output = product.new_output()
        right = reference(product.A, product.B).values
        runs = 0

        def run() -> None:
            nonlocal runs
            output[...] = right * (1 + self.second_error * runs)
            runs += 1

        return Prepared(run, output, 0.0, {"deterministic": self.deterministic})


@pytest.mark.parametrize(
    ("contender", "fault"),
    [
        (UnorderedSums(deterministic=False), None),
        (UnorderedSums(deterministic=True), "the second run gave other bits"),
        (UnorderedSums(deterministic=False, second_error=0.5), "rel_err"),
    ],
)
def test_unordered_sums_need_to_be_right_each_time(
    contender: UnorderedSums, fault: str | None
) -> None:
    case = next(case for case in EDGE_CASES if case.name == "ragged-n100")
    outcome = verify_case(contender, "float32", case, np)
    assert (outcome.fault is None) if fault is None else fault in str(outcome.fault)
