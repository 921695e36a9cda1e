from __future__ import annotations

import re

import pandas as pd

from asyncsparse_lab.report import page


def claim(value, number, measured, unit="", relation="equal"):
    words = dict.fromkeys(("document", "section", "statement", "study", "how", "note"), "words")
    return {**words, "kind": "stated", "state": "reproduced", "value": value, "number": number,
            "measured": measured, "unit": unit, "relation": relation}  # fmt: skip


def test_values_and_measurements_are_written_alike(checkout, tmp_path, monkeypatch):
    nan = float("nan")
    claims = [
        claim(1e8, 1e8, 1e8),
        claim(0.3540266, 0.3540266, nan),
        claim(98, 98, 89.58333, "%", "at-least"),
        claim("grows with N", nan, 1.0),
        claim([64, 128], nan, 0.0),
    ]
    monkeypatch.setattr(page, "judge_all", lambda records: pd.DataFrame(claims))
    monkeypatch.setattr(page, "compiler_here", lambda: None)
    text = page.write_report(tmp_path, "recorded").read_text()
    table = text[text.index('id="claims"') :]
    rows = [re.findall(r"<td[^>]*>\s*([^<]*?)\s*<", row) for row in table.split("<tr id=")[1:]]
    assert [row[2:4] for row in rows] == [
        ["100000000", "100000000"],
        ["0.3540266", ""],
        ["at-least 98 %", "89.58 %"],
        ["grows with N", "holds"],
        ["[64, 128]", "does not hold"],
    ]
    assert "not yet measured</span> (of\nthe 5 values" in table
