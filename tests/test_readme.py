from __future__ import annotations

import re
from pathlib import Path

import pytest

from asyncsparse_lab.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "data" / "README.md"])


def test_the_readme_example_runs():
    text = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    assert names["stop"] == 1
    assert len(names["frame"]) > 0


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_and_commands_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("http") or (page.parent / target).exists(), target
    for command in re.findall(r"^\s*asyncsparse (\w+)", text, re.MULTILINE):
        assert command in COMMANDS
