"""The notebook where no browser looks at it: parameters, and still pictures."""

import base64
from io import BytesIO
from pathlib import Path
from typing import Any

import nbformat
import pytest
from PIL import Image

from asyncsparse_lab.resources import resource_path

NOTEBOOK = resource_path("notebooks") / "explore.ipynb"


def execute(folder: Path, **parameters: Any) -> Any:
    import papermill
    from traitlets.config import Config

    return papermill.execute_notebook(
        NOTEBOOK,
        folder / "executed.ipynb",
        parameters,
        kernel_name="python3",
        progress_bar=False,
        execution_timeout=60,
        config=Config({"KernelManager": {"transport": "ipc"}}),
    )


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_it_is_committed_without_outputs_and_with_a_kernel() -> None:
    notebook = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(notebook)
    assert outputs(notebook) == []
    assert all(cell.get("execution_count") is None for cell in notebook.cells)
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.metadata.kernelspec.language == "python"


@pytest.mark.notebook
def test_papermill_finds_the_parameters_with_their_types() -> None:
    import papermill

    parameters = papermill.inspect_notebook(NOTEBOOK)
    found = {name: one["inferred_type_name"] for name, one in parameters.items()}
    assert found == {"matrix": "str", "block": "int", "window": "int"}
    assert all(one["help"] for one in parameters.values())


@pytest.mark.notebook
def test_executed_without_a_browser_it_holds_the_still_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[1]))
    executed = execute(tmp_path, matrix="stencil2d(nx=32, ny=32)", block=8)
    (shown,) = [output for output in outputs(executed) if output.output_type == "execute_result"]
    picture = Image.open(BytesIO(base64.b64decode(shown.data["image/png"])))
    assert picture.width >= 1000
    assert shown.data["text/plain"] == "explorer of stencil2d(nx=32, ny=32)"

    # nbviewer and nbconvert show the picture, since no state of the widgets is kept.
    from nbconvert import HTMLExporter

    html, _ = HTMLExporter().from_notebook_node(executed)
    assert "data:image/png;base64," in html


@pytest.mark.notebook
def test_a_broken_file_is_one_line_in_the_executed_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[1]))
    broken = tmp_path / "broken.mtx"
    broken.write_text("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1.0\n7 7 2.0\n")
    executed = execute(tmp_path, matrix=str(broken))
    (shown,) = [output for output in outputs(executed) if output.output_type == "execute_result"]
    assert "broken.mtx: line 4" in shown.data["text/plain"]
    assert "image/png" not in shown.data
