"""From records to figures and the report.

A notebook opens a study and shows its pictures::

    study = asl.report.open_study("formats", records="recorded")
    study.show("fill")

:mod:`~asyncsparse_lab.report.notebooks` runs the notebooks, :mod:`~asyncsparse_lab.report.page`
puts what they saved into one page.
"""

from __future__ import annotations

from asyncsparse_lab.report.study import StudyReport, open_study

__all__ = ["StudyReport", "open_study"]
