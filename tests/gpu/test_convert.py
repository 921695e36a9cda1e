"""Conversion on the GPU gives the arrays that the host gives, bit for bit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from asyncsparse_lab.formats import WCSR, bfloat16_bits
from asyncsparse_lab.formats.layouts import K16, core_matrices
from asyncsparse_lab.spmm import convert, convert_run, windows
from asyncsparse_lab.spmm.edge_cases import EDGE_CASES, random_matrix
from asyncsparse_lab.spmm.layout import DeviceBcsr
from asyncsparse_lab.spmm.product import DeviceCsr
from asyncsparse_lab.spmm.wcsr import DeviceWcsr
from asyncsparse_lab.spmm.windows import AUTO_LIMIT, TASK, CutRule, WindowPieces

pytestmark = pytest.mark.gpu


def with_zeros() -> csr_array:
    """A third of the stored values is zero; the formats leave them out."""
    A = random_matrix(300, 5000, 0.02, seed=4)
    A.data[::3] = 0
    return A


MATRICES = {case.name: case.make for case in EDGE_CASES if case.n != 1024 or case.scope == "named"}
MATRICES["stored-zeros"] = with_zeros


def wide_band() -> csr_array:
    """Rows far apart in 60,000 columns, each with a few neighbours, some with none."""
    rows, offsets = np.arange(1500), np.array([0, 1, 40, 500])
    columns = (37 * rows[:, None] + offsets).ravel()
    row = np.repeat(rows, len(offsets))
    chosen = row % 7 != 3
    values = np.ones(int(chosen.sum()), dtype=np.float32)
    return csr_array((values, (row[chosen], columns[chosen])), shape=(1500, 60_000))


MATRICES["wide-band"] = wide_band
MATRICES["wide"] = lambda: random_matrix(500, 50_000, 0.002, seed=5)
MATRICES["heavy"] = lambda: random_matrix(700, 3000, 0.3, seed=6)  # windows that blocks share

WAYS = {
    "usual": {},
    "many threads": {"SMALL": 0},
    "in two launches": {"AT_ONCE_BYTES": 0},
    "zeros by all": {"CLEAR_BYTES": 0},
    "shared": {"SHARE_FROM": 32},
    "shared in two launches": {"SHARE_FROM": 32, "AT_ONCE_BYTES": 0},
    "few columns at once": {"words_at_once": lambda _: 5},
    "shared, few columns at once": {"SHARE_FROM": 32, "words_at_once": lambda _: 5},
}
"""What is set otherwise in convert_run, so that small matrices take the ways of large ones."""


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WAYS[request.param].items():
        monkeypatch.setattr(convert_run, name, value)


def on_device(A: csr_array) -> DeviceCsr:
    import cupy

    return DeviceCsr(
        indptr=cupy.asarray(A.indptr.astype(np.int32)),
        indices=cupy.asarray(A.indices.astype(np.int32)),
        values=bfloat16_bits(cupy.asarray(A.data)),
    )


def host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.usefixtures("way")
def test_blocks_are_those_of_the_host(name: str) -> None:
    A = MATRICES[name]()
    made, expected = convert.blocks_from_csr(on_device(A), A.shape), DeviceBcsr.from_csr(A)
    for field in ("block_row_ptr", "block_col_idx", "blocks", "row_tasks"):
        np.testing.assert_array_equal(host(getattr(made, field)), host(getattr(expected, field)))
        assert getattr(made, field).dtype == getattr(expected, field).dtype


@pytest.mark.parametrize("name", MATRICES)
def test_windows_of_the_articles_kernel_are_those_of_the_host(name: str) -> None:
    A = MATRICES[name]()
    made, expected = convert.wcsr_from_csr(on_device(A), A.shape), DeviceWcsr.from_csr(A)
    for field in ("window_row_ptr", "window_col_idx", "values"):
        np.testing.assert_array_equal(host(getattr(made, field)), host(getattr(expected, field)))


def same_windows(made: Any, expected: WCSR) -> None:
    np.testing.assert_array_equal(made.window_row_ptr, expected.window_row_ptr)
    np.testing.assert_array_equal(host(made.window_col_idx), expected.window_col_idx)
    laid = core_matrices(bfloat16_bits(expected.values))
    np.testing.assert_array_equal(host(made.values), laid)


RULES = {
    "whole": CutRule(),
    "smallest": CutRule(16),
    "large": CutRule(512),
    "by the rule": CutRule(AUTO_LIMIT, column_tiles=4, places=396),
    "by the rule, few places": CutRule(AUTO_LIMIT, column_tiles=1, places=10),
}
WAYS_TO_CUT = [
    *(("usual", rule) for rule in RULES),
    *((way, "by the rule, few places") for way in WAYS if way != "usual"),
]


def test_the_rules_cut_some_matrices_at_more_than_the_least_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(windows, "LEAST_PIECE", 96)
    for name in ("by the rule", "by the rule, few places"):
        pointers = (WCSR.from_csr(make(), 64, K16).window_row_ptr for make in MATRICES.values())
        assert max(RULES[name].limit(pointer) for pointer in pointers) > 96


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("height", convert.HEIGHTS)
@pytest.mark.parametrize(("way", "rule"), WAYS_TO_CUT, indirect=["way"])
@pytest.mark.usefixtures("way")
def test_windows_and_pieces_are_those_of_the_host(
    name: str, height: int, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert_run, "LEAST_PIECE", 96)  # so that the rule cuts small matrices
    monkeypatch.setattr(windows, "LEAST_PIECE", 96)
    A, deterministic = MATRICES[name](), rule != "large"
    made, pieces = convert.windows_from_csr(
        on_device(A), A.shape, height, RULES[rule], deterministic=deterministic
    )
    expected = WCSR.from_csr(A, height, K16)
    same_windows(made, expected)
    limit = RULES[rule].limit(expected.window_row_ptr)
    cut = WindowPieces.of(expected.window_row_ptr, limit, deterministic)
    np.testing.assert_array_equal(host(pieces.tasks).view(TASK), cut.tasks)
    for field in ("count", "limit", "slots", "most_pieces"):
        assert getattr(pieces, field) == getattr(cut, field)
    leading = cut.on_device(made.window_col_idx).leading_indices
    np.testing.assert_array_equal(host(pieces.leading_indices), host(leading))


@pytest.mark.parametrize(
    "way",
    ["usual", "many threads", "zeros by all", "shared", "shared in two launches"],
    indirect=True,
)
@pytest.mark.usefixtures("way")
def test_ten_thousand_conversions_on_two_streams_at_once() -> None:
    import cupy

    A = MATRICES["stored-zeros"]()
    expected = WCSR.from_csr(A, 64, K16)
    device = cupy.cuda.Device()

    def convert_often(_: int) -> tuple[Any, Any]:
        with device, cupy.cuda.Stream(non_blocking=True) as stream:
            csr = on_device(A)
            for _ in range(5000):
                made = convert.windows_from_csr(csr, A.shape, 64)[0]
                assert made.window_row_ptr[-1] == expected.window_row_ptr[-1]
            stream.synchronize()
            return made.window_col_idx.get(), made.values.get()

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(convert_often, range(2)))
    laid = core_matrices(bfloat16_bits(expected.values))
    for window_col_idx, values in found:
        np.testing.assert_array_equal(window_col_idx, expected.window_col_idx)
        np.testing.assert_array_equal(values, laid)


def test_a_conversion_may_be_the_first_that_a_thread_does_on_the_gpu() -> None:
    A = MATRICES["stored-zeros"]()
    csr = on_device(A)
    convert.windows_from_csr(csr, A.shape, 64)
    with ThreadPoolExecutor(1) as pool:
        made, _ = pool.submit(convert.windows_from_csr, csr, A.shape, 64).result()
    same_windows(made, WCSR.from_csr(A, 64, K16))


def test_a_case_of_the_study_is_measured_and_right() -> None:
    from asyncsparse_lab.studies import conversion
    from asyncsparse_lab.studies.base import Case

    records = conversion.measure(Case("band", "band(n=2000)", conversion.N))
    failed = {record.variant for record in records if record.status != "passed"}
    assert failed <= {"csr-alg2"}  # cuSPARSE rounds its sums on the way
    converted = [r for r in records if r.op == "convert"]
    assert len(converted) == len(conversion.conversions())
    assert all(r.median_us for r in converted)
