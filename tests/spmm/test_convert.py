"""Conversion on the GPU, as far as the host decides: sizes, passes, mirrors of structs."""

from __future__ import annotations

import ctypes
import re
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from asyncsparse_lab.errors import DeviceError, InputError, MemoryLimitError, UnsupportedError
from asyncsparse_lab.formats import BCSR, WCSR
from asyncsparse_lab.formats.layouts import K16
from asyncsparse_lab.gpu.compile import compile_kernel
from asyncsparse_lab.resources import resource_path
from asyncsparse_lab.spmm import convert_kernels, convert_run
from asyncsparse_lab.spmm.convert import HEIGHTS, blocks_from_csr, windows_from_csr
from asyncsparse_lab.spmm.convert_kernels import (
    ENTRY,
    MOST_ROWS,
    WHOLE,
    ConvertArguments,
    Letter,
    kernel_builds,
    words_at_once,
    words_of,
)
from asyncsparse_lab.spmm.convert_run import (
    BLOCKS,
    PIECES,
    Conversion,
    can_convert,
    count_tasks,
)
from asyncsparse_lab.spmm.edge_cases import EDGE_CASES
from asyncsparse_lab.spmm.geometry import MAX_SHARED_BYTES
from asyncsparse_lab.spmm.product import DeviceCsr
from asyncsparse_lab.spmm.wcsr import WindowTasks
from asyncsparse_lab.spmm.windows import CutRule, WindowPieces

SMALL = [case for case in EDGE_CASES if case.scope != "named"]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
@pytest.mark.parametrize("height", HEIGHTS)
@pytest.mark.parametrize("limit", [0, 16, 64, 512])
def test_tasks_are_counted_as_they_are_cut(case, height: int, limit: int) -> None:  # type: ignore[no-untyped-def]
    pointer = WCSR.from_csr(case.make(), height, K16).window_row_ptr
    cut = WindowTasks.of(pointer, limit)
    counted = count_tasks(pointer, limit)
    assert counted.tasks == len(cut.tasks)
    assert counted.split == len(cut.split_windows)
    assert counted.most_pieces == cut.most_pieces
    for deterministic, slots in ((True, counted.pieces_of_split), (False, counted.split)):
        assert WindowPieces.of(pointer, limit, deterministic).slots == slots


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_no_more_is_stored_than_is_allocated_before_it_is_counted(case) -> None:  # type: ignore[no-untyped-def]
    A = case.make()
    m, k = A.shape
    for height, layout in PIECES.items():
        stored = int(WCSR.from_csr(A, height, K16).window_row_ptr[-1])
        assert stored <= layout.most_stored(A.nnz, -(-m // height), k)
    blocks = len(BCSR.from_csr(A).block_col_idx)
    assert blocks <= BLOCKS.most_stored(A.nnz, -(-m // 64), k)


def test_a_full_matrix_stores_its_columns_and_no_more() -> None:
    assert PIECES[64].most_stored(100 * 40, 2, 40) == 2 * 48
    assert BLOCKS.most_stored(128 * 128, 2, 128) == 4
    assert PIECES[64].most_stored(0, 2, 40) == 0


def _letter(values: list[int], ticket: int) -> Letter:
    letter = Letter.__new__(Letter)
    letter.ticket = ticket
    letter._values = np.array(values, dtype=np.int64)
    return letter


def test_a_letter_is_read_when_its_ticket_is_there() -> None:
    letter = _letter([7, 512, 0, 16, 48, 99], ticket=7)
    limit, starts = letter.read(2, lambda: 600)
    assert (limit, starts.tolist()) == (512, [0, 16, 48])


def test_a_letter_is_waited_for_while_the_stream_is_busy() -> None:
    letter = _letter([6, WHOLE, 0, 16], ticket=7)

    def status() -> int:
        letter._values[0] = 7
        return 0  # done by now, and the letter has come meanwhile

    assert letter.read(1, status)[1].tolist() == [0, 16]


@pytest.mark.parametrize("status", [0, 700, 900])
def test_a_stream_on_which_no_letter_comes_is_an_error(status: int) -> None:
    statuses = iter([600, status])
    with pytest.raises(DeviceError, match=f"told no sizes, and its stream has status {status}"):
        _letter([6, WHOLE, 0, 16], ticket=7).read(1, lambda: next(statuses))


def test_each_stream_meets_by_its_own_count(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = iter(range(100, 200))

    filled: list[tuple[int, int]] = []

    def alloc(size: int) -> SimpleNamespace:
        if size > 1 << 20:
            raise MemoryError
        return SimpleNamespace(ptr=next(addresses))

    def ndarray(shape: tuple[int], dtype: object, memory: Any) -> SimpleNamespace:
        return SimpleNamespace(fill=lambda value: filled.append((shape[0], value)))

    def stream(number: int, captures: bool = False) -> SimpleNamespace:
        return SimpleNamespace(number=number, is_capturing=lambda: captures)

    memory = SimpleNamespace(OutOfMemoryError=MemoryError)
    module = SimpleNamespace(ndarray=ndarray, cuda=SimpleNamespace(alloc=alloc, memory=memory))
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr(convert_kernels, "_MEETINGS", {})
    monkeypatch.setattr(convert_kernels, "_MEETING_PLACES", [])
    monkeypatch.setattr(convert_kernels, "stream_id", lambda stream: stream.number)

    def meetings(device: int, stream: object, shared_bytes: int = 0) -> int:
        return convert_kernels.meetings(device, stream, shared_bytes)

    first = meetings(0, stream(0))
    assert meetings(0, stream(0)) == first
    assert meetings(1, stream(0)) != first
    assert meetings(0, stream(2)) != first
    with pytest.raises(MemoryLimitError, match="what thread blocks share of A needs 4,194,304"):
        meetings(0, stream(4), 4_000_000)
    with pytest.raises(UnsupportedError, match="a CUDA graph is recorded"):
        meetings(0, stream(3, captures=True))
    larger = meetings(0, stream(0), 1000)
    assert larger != first, "windows are shared in memory of zeros, as much as a matrix needs"
    assert meetings(0, stream(0), 1000) == meetings(0, stream(0)) == larger
    assert filled[-1] == (256, 0)
    assert convert_kernels._MEETINGS[0, 0].bytes >= 1000 + convert_kernels.SHARED_FROM
    with pytest.raises(UnsupportedError, match="a CUDA graph is recorded"):
        meetings(0, stream(0, captures=True), 5000)


def test_letters_are_used_again_where_they_are_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def make(windows: int) -> Letter:
        letter = _letter([0], ticket=0)
        letter.windows = windows
        made.append(windows)
        return letter

    monkeypatch.setattr(convert_kernels, "Letter", make)
    monkeypatch.setattr(convert_kernels, "_FREE", [])
    first = convert_kernels.take_letter(10)
    other = convert_kernels.take_letter(10)
    assert first is not other, "each conversion under way has its own"
    convert_kernels.give_letter(first)
    assert convert_kernels.take_letter(20) is first
    assert first.ticket == 2, "an old letter is not taken for the new one"
    convert_kernels.give_letter(first)
    assert convert_kernels.take_letter(10 * made[0]).windows == 20 * made[0]


@pytest.mark.parametrize("limit", [-16, 8, 100, 2**31 - 16])
def test_a_limit_is_whole_steps_of_columns(limit: int) -> None:
    with pytest.raises(InputError, match=f"max_cols_per_task is {limit}"):
        windows_from_csr(_host_csr(), (1, 1), 64, CutRule(limit))


@pytest.mark.parametrize(("columns", "words"), [(0, 1), (1, 1), (32, 1), (33, 2), (2708, 85)])
def test_columns_are_bits_of_whole_words(columns: int, words: int) -> None:
    assert words_of(columns) == words


@pytest.mark.parametrize(
    ("words", "shared_bytes"),
    [(1, 16), (85, 1024), (28_000, 222_208), (312, 4096), (100_000, 222_208)],
)
def test_few_sizes_of_shared_memory_hold_the_bits(
    words: int, shared_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = SimpleNamespace(shared_bytes_per_block=MAX_SHARED_BYTES)
    monkeypatch.setattr(convert_kernels, "facts_of", lambda _: facts)
    found = convert_kernels.bits_bytes(words, 0)
    assert found == shared_bytes
    assert words_at_once(found) >= min(words, 27_775), "all, or as many as there is room for"
    assert 8 * words_at_once(found) + 4 <= found


def test_the_kernel_leaves_the_shared_memory_that_its_bits_take() -> None:
    for build in kernel_builds():
        artifact = compile_kernel(build.source, build.entry, build.constants, build.arch)
        used = re.search(r"(\d+) bytes smem", artifact.log)
        assert used is not None
        assert int(used[1]) <= convert_kernels._STATIC_BYTES


def test_stored_columns_are_counted_in_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert_run, "give_letter", lambda letter: None)
    made = Conversion.__new__(Conversion)
    made._letter = SimpleNamespace(read=lambda *_: (WHOLE, np.array([0, 2**31])))
    made._arguments = ConvertArguments(windows=1, capacity=100)
    made._status = lambda: 0
    with pytest.raises(InputError, match="2147483648 columns"):
        made.settle()


@pytest.mark.parametrize("statuses", [[0], [201, 0], [201, 999], [999]])
def test_a_stream_s_number_is_asked_again_where_a_thread_has_no_context(
    statuses: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(statuses)

    class Status(int):
        name = "CUDA_ERROR"

    bound: list[bool] = []
    driver = SimpleNamespace(cuStreamGetId=lambda _: (Status(next(left)), 7))
    monkeypatch.setattr("cuda.bindings.driver", driver, raising=False)
    monkeypatch.setattr(convert_kernels, "bind_context", lambda: bound.append(True))
    if statuses[-1]:
        with pytest.raises(DeviceError, match="cuStreamGetId of stream 0x10: CUDA_ERROR"):
            convert_kernels.stream_id(SimpleNamespace(ptr=16))
    else:
        assert convert_kernels.stream_id(SimpleNamespace(ptr=16)) == 7
    assert bound == [True] * (len(statuses) - 1)
    assert not list(left)


def _host_csr() -> DeviceCsr:
    return DeviceCsr(np.zeros(2, np.int32), np.zeros(0, np.int32), np.zeros(0, np.uint16))


def test_arrays_of_the_host_or_of_64_bits_are_left_to_the_host() -> None:
    assert not can_convert(_host_csr())

    def on_device(dtype: str) -> SimpleNamespace:
        return SimpleNamespace(dtype=np.dtype(dtype), get=None)

    indices = on_device("int32")
    assert can_convert(DeviceCsr(on_device("int32"), indices, indices))
    wide = DeviceCsr(on_device("int64"), indices, indices)
    assert not can_convert(wide)


def test_kernels_are_refused_arrays_that_they_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    with pytest.raises(UnsupportedError, match="CuPy's with int32 offsets"):
        blocks_from_csr(_host_csr(), (1, 1))


def test_the_argument_struct_mirrors_the_source() -> None:
    kernels = resource_path("kernels")
    header = (kernels / "include" / "convert_arguments.cuh").read_text()
    body = header[header.index("struct ConvertArguments {") :].partition("};")[0]
    names = re.findall(r"(\w+);", re.sub(r"//.*", "", body))
    assert names == [field[0] for field in ConvertArguments._fields_]
    size = re.search(r"sizeof\(ConvertArguments\) == (\d+)", header)
    assert size is not None
    assert ctypes.sizeof(ConvertArguments) == int(size[1])
    source = (kernels / "convert.cu").read_text()
    share = (kernels / "include" / "convert_share.cuh").read_text()
    assert f"MOST_ROWS = {MOST_ROWS};" in share
    assert f"WHOLE = {WHOLE:#x};" in header
    entries = re.findall(r"^\s+(convert_\w+)\(const __grid_constant__", source, re.MULTILINE)
    assert entries == [ENTRY]
    assert {build.entry for build in kernel_builds()} == {*entries}
