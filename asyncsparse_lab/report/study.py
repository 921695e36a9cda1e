"""A study opened for drawing: its frame, its claims, its pictures."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from asyncsparse_lab.claims import claims_frame
from asyncsparse_lab.errors import InputError
from asyncsparse_lab.records.files import Source, record_folders, study_paths
from asyncsparse_lab.records.frame import load_records
from asyncsparse_lab.report import files
from asyncsparse_lab.studies import find_study, load_study
from asyncsparse_lab.studies.base import Drawing, Missing, Study, Table

if TYPE_CHECKING:
    import pandas as pd

# Parameters that choose rows -> the column that they choose by; empty or 0 chooses all.
_CHOICES: Final = {
    "l2": "l2",
    "dtype_out": "dtype_out",
    "n": "n",
    "matrices": "matrix",
    "problems": "case",
    "backends": "variant",
    "tolerance": "params.atol",
}


def open_study(name: str, records: Source = "recorded", out: str | Path = "") -> StudyReport:
    """Open a study for a notebook.

    Parameters
    ----------
    name : str
        Such as ``"formats"``.
    records : {"recorded", "local"}
        The committed records, or one's own below ``data/local``.
    out : str or Path
        Folder below which ``show`` saves what it shows, in a folder of the study's name; empty
        saves nothing.

    Raises
    ------
    InputError
        There is no such study, or nothing was measured for it.
    """
    study = find_study(name)
    frame = load_records(name, records, judge_kernels=True)
    if frame.empty:
        raise InputError(f"no {records} records of {name}: asyncsparse measure {name}")
    return StudyReport(study, load_study(name), frame, records, out)


class StudyReport:
    """What :func:`open_study` returns.

    Attributes
    ----------
    study : Study
    frame : DataFrame
        The records, as from :func:`asyncsparse_lab.load_records`, with a column ``stale``.
    claims : DataFrame
        The documents' values that this study draws.
    """

    def __init__(
        self,
        study: Study,
        module: ModuleType,
        frame: pd.DataFrame,
        records: Source,
        out: str | Path,
    ) -> None:
        self.study = study
        self.frame = frame
        self.claims = claims_frame(study.name)
        self._module = module
        self._records = records
        self._folder = Path(out) / study.name if str(out) else None
        self._drawn: dict[str, dict[str, Drawing | Table | Missing]] = {}
        self._saved: dict[str, files.Saved] = {}

    def draw(self, **parameters: Any) -> dict[str, Drawing | Table | Missing]:
        """Return all pictures and tables for these parameters, in the workbench's look.

        A figure with a series that was measured with an earlier kernel is stamped.

        Raises
        ------
        InputError
            No record is what the parameters choose.
        """
        key = repr(sorted(parameters.items()))
        if key not in self._drawn:
            self._require_rows(parameters)
            from matplotlib import pyplot

            from asyncsparse_lab.studies import style

            with style.theme():
                items: dict[str, Drawing | Table | Missing] = self._module.draw(
                    self.frame, self.claims, **parameters
                )
            for item in items.values():
                if isinstance(item, Drawing):
                    style.stamp_stale(item.figure, self._stale_in(item))
                    style.freeze_layout(item.figure)
                    pyplot.close(item.figure)  # shown as a picture, not by the inline backend
            self._drawn[key] = items
        return self._drawn[key]

    def show(self, name: str, **parameters: Any) -> None:
        """Show one picture or table in the notebook, with its caption, and save it.

        Of what was not measured it says so, and saves nothing.

        Raises
        ------
        InputError
            The study draws nothing of that name.
        """
        from IPython.display import Image, Markdown, display
        from pandas import option_context

        items = self.draw(**parameters)
        if name not in items:
            raise InputError(f"{self.study.name} draws no {name!r}; there are {', '.join(items)}")
        item = items[name]
        if isinstance(item, Missing):
            display(Markdown(f"*{name}: not measured yet; `{item.command}` does*"))
            return
        if self._folder is not None:
            self._save(self._folder, name, item, parameters)
        if isinstance(item, Drawing):
            width = int(96 * item.figure.get_figwidth())
            display(Image(data=self._picture(name, item), width=width, alt=item.caption))
        else:
            with option_context("display.max_colwidth", None):  # sentences, whole
                display(item.data)
        display(Markdown(f"*{item.caption}*"))

    def _require_rows(self, parameters: Mapping[str, Any]) -> None:
        rows, said = self.frame, []
        for name, column in _CHOICES.items():
            if not (given := parameters.get(name)):
                continue
            said.append(f"{name}={given!r}")
            wanted = list(given) if isinstance(given, list | tuple) else [given]
            there = sorted(rows[column].dropna().unique().tolist())
            if not set(wanted) <= set(there):
                raise InputError(
                    f"{self.study.name} was not measured with {', '.join(said)};"
                    f" {column} there: {', '.join(map(str, there)) or 'none'}"
                )
            rows = rows[rows[column].isin(wanted)]

    def _picture(self, name: str, item: Drawing) -> bytes:
        if self._folder is None:
            return files.picture(item, "png")
        return (self._folder / f"{name}.png").read_bytes()

    def _save(
        self, folder: Path, name: str, item: Drawing | Table, parameters: dict[str, Any]
    ) -> None:
        stale = self._stale_in(item) if isinstance(item, Drawing) else []
        self._saved[name] = files.save(folder, name, item, parameters, stale)
        manifest = {
            "study": self.study.name,
            "notebook": self.study.notebook,
            "records": self._records,
            "records_sha256": self._records_hashes(),
            "runs": sorted(set(self.frame["run"].dropna())),
            "items": [asdict(saved) for saved in self._saved.values()],
        }
        files.write_manifest(folder, manifest)

    def _records_hashes(self) -> dict[str, str]:
        found = {}
        for folder in record_folders(self._records):
            if paths := study_paths(folder, self.study.name):
                content = b"".join(path.read_bytes() for path in paths)
                found[folder.name] = hashlib.sha256(content).hexdigest()
        return found

    def _stale_in(self, item: Drawing) -> list[str]:
        is_stale = self.frame["stale"]
        if item.cases:
            is_stale = is_stale & self.frame["case"].isin(item.cases)
        names = set(self.frame.loc[is_stale, "variant"])
        if "variant" in item.data:
            names &= set(item.data["variant"])
        return sorted(names)
