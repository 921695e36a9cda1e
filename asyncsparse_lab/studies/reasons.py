"""Why the measured values differ from the document's, in sentences whose numbers are computed.

Each table has a line for each question: what was measured here, what the document says, and the
measured reason.  Nothing is typed: a record that changes changes the sentence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from asyncsparse_lab.records.frame import geometric_mean, load_records, ratios
from asyncsparse_lab.studies.base import Table
from asyncsparse_lab.studies.spmm_cases import claimed

if TYPE_CHECKING:
    import pandas as pd

    from asyncsparse_lab.studies.ceilings import MeasuredCeilings

NARROW: Final = 128
"""WGMMA_N of the ladder's smaller tile in the study of registers."""
WIDE: Final = 256
WELL_BELOW: Final = 3.0
"""A speed of WCSR over Blocked-ELL below which the table says what keeps it there."""


def table_of(lines: list[dict[str, str]], caption: str) -> Table:
    """Return the lines as a table with its four columns."""
    import pandas as pd

    return Table(pd.DataFrame(lines, columns=["question", "here", "document", "because"]), caption)


def times(value: float, digits: int = 2) -> str:
    """Return a factor in words."""
    return f"{value:.{digits}f} x" if value == value else "not measured"


def span(values: Any, digits: int = 0, unit: str = "") -> str:
    """Return the range of some values in words."""
    low, high = float(np.min(values)), float(np.max(values))
    first, last = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return f"{first}{unit}" if first == last else f"{first} to {last}{unit}"


def ladder(rows: pd.DataFrame, claims: pd.DataFrame, ceilings: MeasuredCeilings) -> Table:
    """Return why the ladder's steps gain what they gain, by ceilings and the study of registers.

    Parameters
    ----------
    rows : DataFrame
        One output type and one state of L2 of the study ``bcsr-ablation``.
    """
    from asyncsparse_lab.studies.bcsr_figures import BLOCKED_ELL, HEADLINE, steps
    from asyncsparse_lab.studies.rooflines import counted

    ours = counted(rows)
    ours["tflops"] = ours["flops"] / ours["seconds"] / 1e12
    ours["l2"] = ours["l2_bytes"] / ours["seconds"] / ceilings.tma_bytes_per_s
    gains = {
        str(name): geometric_mean(found["ratio"]) for name, found in steps(rows).groupby("variant")
    }

    def of(variant: str, column: str) -> pd.Series[float]:
        return ours.loc[ours["variant"] == variant, column]

    tiles = _ladder_tiles(rows)
    fma = 100 * of("bcsr-opt0", "tflops") / (ceilings.fma_flops_per_s / 1e12)
    on_layer = fma[ours["matrix"] == HEADLINE]
    layer = on_layer if len(on_layer) else fma
    loads = 100 * of("bcsr-opt3", "l2")
    ell = geometric_mean(ratios(rows, "variant == 'bcsr-opt0'", BLOCKED_ELL)["ratio"])
    told = claimed(claims, "bcsr-opt0-cusparse-derived")
    lines = [
        {
            "question": "opt1 over opt0",
            "here": times(gains.get("bcsr-opt1", np.nan)),
            "document": times(claimed(claims, "bcsr-step-opt1")),
            "because": f"opt0 is no strawman: it reaches {span(layer)} % of the measured FP32 FMA "
            f"ceiling on the pruned layer ({span(fma)} % over all cases) and {times(ell)} "
            f"Blocked-ELL's speed, where the document's is derived as {times(told)}; what is left "
            f"to gain is smaller. {tiles['opt1']}",
        },
        {
            "question": "opt2 over opt1",
            "here": times(gains.get("bcsr-opt2", np.nan)),
            "document": times(claimed(claims, "bcsr-step-opt2")),
            "because": "opt1's threads bring only "
            f"{span(100 * of('bcsr-opt1', 'l2'))} % of what TMA can from L2 and wait for it; "
            f"opt2's TMA brings {span(100 * of('bcsr-opt2', 'l2'))} %. {tiles['opt2']}",
        },
        {
            "question": "opt3 over opt2",
            "here": times(gains.get("bcsr-opt3", np.nan)),
            "document": times(claimed(claims, "bcsr-step-opt3")),
            "because": f"opt3 brings {span(loads)} % of TMA's ceiling of independent reads "
            f"({ceilings.tma_bytes_per_s / 1e12:.1f} TB/s; "
            f"{ceilings.tma_shared_bytes_per_s / 1e12:.1f} where all SMs read the same), so with "
            f"long block rows little is left above it. {tiles['opt3']}",
        },
    ]
    caption = (
        "Why each step gains more or less than in the document: rates on all cases drawn above, "
        f"tiles on the pruned layer with WGMMA_N {NARROW} and {WIDE} (study registers)."
    )
    return table_of(lines, caption)


def _ladder_tiles(rows: pd.DataFrame) -> dict[str, str]:
    """Return what the study of registers says of each step at its two tiles; empty without it."""
    empty = dict.fromkeys(("opt1", "opt2", "opt3"), "")
    frame = load_records("registers")
    frame = frame[
        frame["case"].astype(str).str.startswith("ladder") & frame["gpu"].isin(rows["gpu"])
    ]
    frame = frame[(frame["l2"].isin(rows["l2"])) & (frame["status"] == "passed")]
    if frame.empty:
        return empty
    table = frame[frame["n"] == frame["n"].max()].set_index(["variant", "params.wgmma_n"])

    def tell(variant: str, width: int) -> tuple[float, int]:
        row = table.loc[(variant, width)]
        return float(row["median_us"]), int(row["result.blocks_per_sm"])

    spent, words = {}, {}
    for name in ("opt1", "opt2", "opt3"):
        (narrow, few), (wide, one) = (tell(f"bcsr-{name}", width) for width in (NARROW, WIDE))
        spent[name] = {NARROW: narrow, WIDE: wide}
        words[name] = (
            f"{name} takes {narrow:.0f} us with {few} block{'s' * (few > 1)} an SM at WGMMA_N "
            f"{NARROW}, {wide:.0f} us with {one} at {WIDE}"
        )
    step = {
        name: ", ".join(
            f"{spent[before][width] / spent[name][width]:.2f} x at {width}"
            for width in (NARROW, WIDE)
        )
        for before, name in (("opt1", "opt2"), ("opt2", "opt3"))
    }
    return {
        "opt1": f"And it exposes its loads where nothing else runs on the SM: {words['opt1']}; "
        "with two blocks, one loads while the other multiplies.",
        "opt2": f"{words['opt2']}; the step is {step['opt2']}.",
        "opt3": f"The ring gains only what two blocks an SM do not overlap already: {words['opt2']}"
        f", {words['opt3']}; the step is {step['opt3']}.",
    }


def windows(
    dense: pd.DataFrame, probes: pd.DataFrame, claims: pd.DataFrame, sweep: pd.DataFrame,
    ceilings: MeasuredCeilings | None,
) -> Table:  # fmt: skip
    """Return why WCSR's speed over Blocked-ELL is not the document's.

    Parameters
    ----------
    dense, probes, sweep : DataFrame
        Of the study ``wcsr-ablation``: beside Blocked-ELL, instrumented, at all thresholds.
    """
    from asyncsparse_lab.studies.wcsr_figures import over_blocked_ell

    found = over_blocked_ell(dense).set_index("matrix")
    share = {
        name: 100 * probes[f"result.share_{name}"] for name in ("gather", "multiply", "epilogue")
    }
    swept = sweep[sweep["role"] == "paper"]
    rates = swept["result.gathered_bytes"] / swept["median_us"] / 1e6
    rate = rates.groupby(swept["case"]).max()
    of_ceiling = (
        f" ({span(100e12 * rate / ceilings.gather_bytes_per_s)} % of the gather's ceiling)"
        if ceilings
        else ""
    )
    lines = [
        {
            "question": "WCSR over Blocked-ELL, density of 1 % and more",
            "here": times(geometric_mean(found["ratio"])),
            "document": times(claimed(claims, "suite-wcsr-cusparse")),
            "because": "Gathering and multiplying follow each other: thread blocks spend "
            f"{span(share['gather'])} % of their time on gathering, {span(share['multiply'])} % "
            f"on WGMMA and {span(share['epilogue'])} % on writing C. The best tile and length "
            f"gather {span(rate, 1)} TB/s{of_ceiling}: so neither L2 nor the "
            "tensor cores bound it, but the latency of steps in series.",
        },
    ]
    lines += _without_gathering(dense, found["ratio"], probes, claims)
    lines += _padding_and_grid(dense, found["ratio"])
    return table_of(lines, "Why WCSR's speed over Blocked-ELL differs from the document's.")


def _without_gathering(
    dense: pd.DataFrame, ratio: pd.Series[float], probes: pd.DataFrame, claims: pd.DataFrame
) -> list[dict[str, str]]:
    """Return how far the gather alone keeps WCSR below the document's factor."""
    mean = geometric_mean(ratio)
    if mean >= WELL_BELOW:
        return []
    share = probes.groupby("matrix")["result.share_gather"].max().reindex(ratio.index).dropna()
    if share.empty:
        return []
    now, free = (geometric_mean(r) for r in (ratio[share.index], ratio[share.index] / (1 - share)))
    part = 100 * np.log(free / now) / np.log(claimed(claims, "suite-wcsr-cusparse") / now)
    reached = int((ratio >= WELL_BELOW).sum())
    words = "on no matrix" if not reached else f"on {reached} of {len(ratio)} matrices"
    return [
        {
            "question": f"why it stays below {WELL_BELOW:.0f} x",
            "here": f"{words} {WELL_BELOW:.0f} x or more; {times(float(ratio.max()))} at best",
            "document": "",
            "because": "Were gathering free and all else as it is, the kernel would come to "
            f"{times(free)} on the {len(share)} of these matrices where its blocks were timed, "
            f"from {times(now)}: that is {part:.0f} % of the factor (of its logarithm) to the "
            f"document's.{_blocked_ell_rate(dense)}",
        }
    ]


def _blocked_ell_rate(dense: pd.DataFrame) -> str:
    """Return how fast Blocked-ELL multiplies, padding included, where its width is known."""
    from asyncsparse_lab.studies.wcsr_figures import BLOCKED_ELL

    ell = dense.query(BLOCKED_ELL)
    if "params.ell_width" not in ell:
        return ""
    blocks = np.ceil(ell["m"] / 64) * ell["params.ell_width"]
    tflops = 2 * 64 * 64 * blocks * ell["n"] / ell["median_us"] / 1e6
    return (
        " The rest is the baseline: Blocked-ELL multiplies its blocks on tensor cores at "
        f"{span(tflops)} TFLOPS here, padding included."
    )


def _padding_and_grid(dense: pd.DataFrame, ratio: pd.Series[float]) -> list[dict[str, str]]:
    """Return what Blocked-ELL's padding and the number of thread blocks say, where it is known."""
    from asyncsparse_lab.studies.wcsr_figures import BLOCKED_ELL

    own = dense[dense["variant"] == "wcsr-paper-unsplit"].set_index("matrix")
    ell = dense.query(BLOCKED_ELL).set_index("matrix")
    sms = sm_count(dense)
    if not {"params.ell_width", "result.blocks", "result.blocks_per_sm"} <= set(dense) or not sms:
        return []
    padding = np.ceil(ell["m"] / 64) * ell["params.ell_width"] / own["result.blocks"]
    even = padding.index[padding < padding.median()]
    uneven = padding.index.difference(even)
    launched = own["result.tasks"] * np.ceil(own["n"] / own["params.wgmma_n"])
    fit = own["result.blocks_per_sm"] * sms
    return [
        {
            "question": "on which matrices",
            "here": f"{times(geometric_mean(ratio[even]))} where Blocked-ELL pads little, "
            f"{times(geometric_mean(ratio[uneven]))} where it pads much",
            "document": "its own matrices, not named",
            "because": "Blocked-ELL pads every block row to the longest: it multiplies "
            f"{span(padding[even], 1)} times the blocks of BCSR on one half of these matrices and "
            f"{span(padding[uneven], 1)} times on the other, and WCSR wins on the second.",
        },
        {
            "question": "whether these matrices fill the GPU",
            "here": f"{int((launched < fit).sum())} of {len(launched)} do not",
            "document": "not told",
            "because": f"The kernel launches {span(launched)} thread blocks on them, and "
            f"{span(fit)} fit at a time. Below that the loads in flight are too few, and the time "
            "is one block's own: its gathers and products one after the other.",
        },
    ]


def sm_count(rows: pd.DataFrame) -> int:
    """Return how many SMs the GPU of the rows has, by their runs' provenance; 0 if unknown."""
    from asyncsparse_lab.records.files import read_runs, record_folders

    wanted = set(rows["run"])
    for source in ("recorded", "local"):
        for folder in record_folders(source):
            for name, run in read_runs(folder).items():
                if name in wanted and run.get("gpu"):
                    return int(run["gpu"].get("sm_count", 0))
    return 0


def selection(table: pd.DataFrame, claims: pd.DataFrame) -> Table:
    """Return why the break-even is not where the document's rule puts it.

    Parameters
    ----------
    table : DataFrame
        From :func:`asyncsparse_lab.studies.wcsr_figures.compared`.
    """
    from asyncsparse_lab.studies.wcsr_figures import break_even

    equal = break_even(table)
    low, high = table.iloc[0], table.iloc[-1]
    where = f"at {equal:.1f} %" if equal == equal else (
        f"below {low['fill']:.0f} %: BCSR is faster at every measured fill"
        if (table["bcsr_over_wcsr"] < 1).all() else "at no measured fill"
    )  # fmt: skip
    stated = [claimed(claims, name) for name in ("bcsr-suitable-fill", "bcsr-good-fill")]
    lines = [
        {
            "question": "at which fill both are equally fast",
            "here": where,
            "document": " and ".join(f"{value:.0f} %" for value in stated),
            "because": f"BCSR's time does not depend on fill ({span(table['bcsr_us'])} us). "
            f"WCSR's falls from {high['wcsr_us']:.0f} us at {high['fill']:.0f} % to "
            f"{low['wcsr_us']:.0f} us at {low['fill']:.0f} %, since of the 64 rows of a window one "
            "non-zero keeps a column: only below a few per cent do columns become empty. On full "
            f"blocks both do the same products, and BCSR needs {100 * high['bcsr_over_wcsr']:.0f} "
            "% of WCSR's time: TMA and a ring against a gather in series.",
        }
    ]
    return table_of(lines, "Why the break-even lies elsewhere than the article's thresholds.")


def widths(rules: pd.DataFrame, claims: pd.DataFrame) -> Table:
    """Return how the article's choices of WGMMA_N stand to the best that was measured.

    Parameters
    ----------
    rules : DataFrame
        Of :func:`asyncsparse_lab.studies.tile_figures.rules`.
    """
    example = claimed(claims, "wgmma-n-1024")
    ruled = rules[rules["largest that divides"].notna()]
    lines = [
        {
            "question": "the largest WGMMA_N whose BN divides N",
            "here": f"{span(ruled['of the best, %'], 0, ' %')} of the best",
            "document": "the rule",
            "because": f"it answers for {len(ruled)} of {len(rules)} values of N; no BN divides "
            f"{', '.join(str(n) for n in rules.loc[rules['largest that divides'].isna(), 'N'])}.",
        },
        {
            "question": "the least padding of 64, 128 and 256",
            "here": f"{span(rules['of the best, % (least padding)'], 0, ' %')} of the best",
            "document": "the rule for an N that varies",
            "because": "padding is not all: where two widths pad alike, the rule takes the wider, "
            "which has fewer and longer tiles; with few block rows these leave SMs idle.",
        },
    ]
    at_example = rules[(rules["N"] == 1024) & rules["article's example"].notna()]
    if len(at_example):
        best = at_example.iloc[0]
        lines.append(
            {
                "question": "N = 1024",
                "here": f"best is {int(best['best WGMMA_N'])}",
                "document": f"{example:.0f}",
                "because": f"the article's example reaches {best['example, % of the best']:.0f} % "
                "of the best throughput: both are within a few per cent of each other.",
            }
        )
    return table_of(lines, "The article's rules beside the best, geometric means over matrices.")


def depths(best: pd.DataFrame, claims: pd.DataFrame) -> Table:
    """Return how Q = 3 stands to the best depth.

    Parameters
    ----------
    best : DataFrame
        Of :func:`asyncsparse_lab.studies.tile_figures.best_depth`.
    """
    widest = best[best["WGMMA_N"] == best["WGMMA_N"].max()]
    narrow = best[best["WGMMA_N"] < best["WGMMA_N"].max()]
    losses = 100 * (narrow["3 stages / best"] - 1)
    lines = [
        {
            "question": f"the widest tile, WGMMA_N = {int(widest['WGMMA_N'].iloc[0])}",
            "here": f"best: {span(widest['best depth'])} stages",
            "document": f"{claimed(claims, 'ring-depth'):.0f}",
            "because": f"{span(widest['deepest that fits'])} stages are all that fits; with two it "
            f"takes {span(widest['2 stages / best'], 2)} times as long.",
        },
        {
            "question": "narrower tiles",
            "here": f"best: {span(narrow['best depth'])} stages",
            "document": f"{claimed(claims, 'ring-depth'):.0f}",
            "because": f"a slot holds less, so more of them keep as many bytes in flight: three "
            f"stages take {span(losses)} % longer than the best depth, two "
            f"{span(100 * (narrow['2 stages / best'] - 1))} %.",
        },
    ]
    return table_of(lines, "Depth of the ring: the document's beside the best.")
