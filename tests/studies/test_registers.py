from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from asyncsparse_lab.claims import claims_frame
from asyncsparse_lab.gpu.compile import compile_kernel
from asyncsparse_lab.studies import registers


def test_each_case_compares_with_and_without_at_one_tile() -> None:
    cases = registers.cases()
    assert len({case.name for case in cases}) == len(cases)
    assert sum(case.seconds for case in cases) < 60
    for case in cases:
        if case.params.get("ladder"):
            continue
        pair = registers.builds(case)
        assert [variant.constants["SETMAXNREG"] for variant in pair] == [1, 0]
        assert {variant.constants["WGMMA_N"] for variant in pair} == {case.params["wgmma_n"]}


def test_the_ladder_is_set_beside_each_other_at_two_tiles() -> None:
    ladders = [case for case in registers.cases() if case.params.get("ladder")]
    assert [case.n for case in ladders] == list(registers.COLUMNS)
    found = {(v.name, v.constants["WGMMA_N"]) for v in registers.builds(ladders[0])}
    assert found == {(name, tile) for name in registers.LADDER for tile in (128, 256)}


def test_setmaxnreg_fills_the_sm_from_the_launch_on() -> None:
    with_it, without = (
        compile_kernel(build.source, build.entry, build.constants, build.arch).resources.registers
        for build in registers.kernel_builds()["bcsr-opt3"][:2]
    )
    assert with_it * 384 == 24 * 128 + 240 * 256
    assert 2 * without * 384 < 65_536


def test_the_table_and_the_picture(
    registers_frame: pd.DataFrame, draw_in_theme: Callable[..., dict[str, Any]]
) -> None:
    items = draw_in_theme(registers, registers_frame, claims_frame("registers"), l2="warm")
    table = items["registers"].data
    switched = [case for case in registers.cases() if not case.params.get("ladder")]
    assert len(table) == 2 * len(switched)
    assert len(items["ladder-tiles"].data) == 2 * 6
    assert set(table.loc[table["setmaxnreg"] == 1, "registers a thread"]) == {168}
    assert set(table["blocks per SM"]) == {1, 2}
    figure = items["time"].figure
    bars = [bar.get_height() for axes in figure.axes[:2] for bar in axes.patches]
    warm = registers_frame.query("l2 == 'warm' and not case.str.startswith('ladder')")["median_us"]
    assert sorted(bars) == sorted(warm)
    assert list(items["time"].data["variant"].unique()) == ["bcsr-opt3"]
