"""What an installed wheel carries, and what the repository must not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_a_wheel_carries_what_the_package_reads(tmp_path):
    pytest.importorskip("hatchling")
    build = f"from hatchling.build import build_wheel; build_wheel({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    inside = {name.removeprefix("asyncsparse_lab/_resources/") for name in names}
    for folder, pattern in (
        ("kernels", "**/*.cu*"),
        ("notebooks", "*.ipynb"),
        ("data/suites", "*.toml"),
        ("data/recorded", "**/*.jsonl"),
        ("data/peers", "*.*"),
        ("data/rates", "*.toml"),
    ):
        wanted = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).glob(pattern)}
        assert wanted
        assert wanted <= inside
    assert "data/claims.toml" in inside
    assert {"asyncsparse_lab/py.typed", "asyncsparse_lab/report/template.html"} <= names
    assert not any("data/local" in name or "__pycache__" in name for name in names)


def test_no_extra_brings_two_cupys_and_the_compiler_is_pinned():
    extras = project()["optional-dependencies"]
    for name, needed in extras.items():
        assert sum(item.startswith("cupy") for item in needed) == (name in ("gpu", "gpu13"))
    for name in ("gpu13", "compile"):
        assert "nvidia-cuda-nvrtc==13.0.88" in extras[name]
    assert "ssgetpy==1.0rc2" in project()["dependencies"]


def test_the_extra_fits_the_machine():
    script = ROOT / "scripts" / "pick_extra.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in project()["optional-dependencies"]


@pytest.mark.parametrize(
    ("version", "extra"), [(0, "compile"), (12090, "gpu"), (13000, "gpu13"), (13020, "gpu13")]
)
def test_the_driver_decides_about_the_extra(monkeypatch, capsys, version, extra):
    import runpy

    class Driver:
        def cuDriverGetVersion(self, pointer):
            pointer._obj.value = version

    def load(name):
        if not version:
            raise OSError(name)
        return Driver()

    monkeypatch.setattr("ctypes.CDLL", load)
    runpy.run_path(str(ROOT / "scripts" / "pick_extra.py"), run_name="__main__")
    assert capsys.readouterr().out.strip() == extra


@pytest.mark.parametrize(
    "notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.name
)
def test_notebooks_are_stripped_and_have_typed_parameters(notebook):
    content = json.loads(notebook.read_text())
    assert content["metadata"]["kernelspec"]["name"] == "python3"
    assert content["metadata"]["kernelspec"]["language"] == "python"
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    tagged = [cell for cell in code if "parameters" in cell["metadata"].get("tags", [])]
    assert len(tagged) == 1
    lines = [line for line in "".join(tagged[0]["source"]).splitlines() if line.strip()]
    assert all(re.match(r"\w+: [\w\[\], |]+ = ", line) for line in lines)


def test_files_stay_readable():
    found = [
        f"{path.relative_to(ROOT)}: {len(lines)} lines"
        for folder in ("asyncsparse_lab", "kernels", "tests", "scripts")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".cu", ".cuh")
        and len(lines := path.read_text().splitlines()) > 400
    ]
    assert found == []
