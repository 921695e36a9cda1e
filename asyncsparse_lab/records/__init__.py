"""Measurements as data: the record, its files, merging, staleness, comparison.

A study's records are JSON lines in ``<folder>/<study>.jsonl`` (a large study has a file for each
part, ``<study>.<part>.jsonl``), the provenance of the runs that
made them in ``<folder>/runs.jsonl``.  Folders are ``data/recorded/<gpu>`` (committed) and
``data/local/<gpu>`` (one's own, ignored by git).
"""

from asyncsparse_lab.records.files import (
    append_case,
    append_run,
    local_folder,
    merge,
    newest,
    read_records,
    read_runs,
    read_study,
    record_folders,
    study_path,
    study_paths,
)
from asyncsparse_lab.records.record import Record

__all__ = [
    "Record",
    "append_case",
    "append_run",
    "local_folder",
    "merge",
    "newest",
    "read_records",
    "read_runs",
    "read_study",
    "record_folders",
    "study_path",
    "study_paths",
]
