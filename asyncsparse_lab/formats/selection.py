"""The article's rule for choosing between BCSR and WCSR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from asyncsparse_lab.formats.bcsr import BCSR

PREFERRED_FILL = 0.70
"""Above this fill ratio the article takes BCSR."""
SUITABLE_FILL = 0.50
"""Above this fill ratio the article calls BCSR suitable."""


@dataclass(frozen=True, slots=True)
class FormatChoice:
    """What the rule picks, and why.

    Attributes
    ----------
    format : {"bcsr", "wcsr"}
    verdict : {"preferred", "suitable", "unsuitable"}
        What the rule says of BCSR.
    fill_ratio : float
        Of the matrix in BCSR.
    reasons : tuple of str
        One sentence each.
    """

    format: Literal["bcsr", "wcsr"]
    verdict: Literal["preferred", "suitable", "unsuitable"]
    fill_ratio: float
    reasons: tuple[str, ...]


def choose_by_fill(fill_ratio: float) -> FormatChoice:
    """Apply the rule to a fill ratio: BCSR above 70 %, suitable above 50 %, else WCSR.

    The article states two thresholds for one choice; between them BCSR is taken, as suitable.
    """
    waste = (
        f"BCSR would spend {1 / fill_ratio:.1f} multiplications for each useful one"
        if fill_ratio
        else "BCSR would store no useful value"
    )
    fill = f"the fill ratio is {fill_ratio:.1%}"
    if fill_ratio > PREFERRED_FILL:
        reasons = (f"{fill}, above {PREFERRED_FILL:.0%}: BCSR", waste)
        return FormatChoice("bcsr", "preferred", fill_ratio, reasons)
    if fill_ratio > SUITABLE_FILL:
        reasons = (
            f"{fill}, above {SUITABLE_FILL:.0%} but not above {PREFERRED_FILL:.0%}: BCSR suits",
            waste,
        )
        return FormatChoice("bcsr", "suitable", fill_ratio, reasons)
    reasons = (f"{fill}, not above {SUITABLE_FILL:.0%}: WCSR", waste)
    return FormatChoice("wcsr", "unsuitable", fill_ratio, reasons)


def choose_format(A: Any, block: tuple[int, int] = (64, 64)) -> FormatChoice:
    """Apply the rule to a CSR matrix, without converting it."""
    return choose_by_fill(BCSR.predict(A, block).fill_ratio)
