"""The command ``asyncsparse``: its commands, loaded when called, and its exit codes.

0 done, 1 failed, 2 usage, 3 no suitable GPU.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import asyncsparse_lab
from asyncsparse_lab.errors import AsyncSparseError, DeviceError

__all__ = ["COMMANDS", "main"]

# Where each command lives and what it does; a module is imported when its command is called.
# The object is a function, or a typer application with commands of its own.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "doctor": (
        "asyncsparse_lab.cli.doctor:doctor",
        "What works on this machine, and what mends the rest.",
    ),
    "matrices": (
        "asyncsparse_lab.cli.matrices:app",
        "List, describe, fetch and make matrices.",
    ),
    "kernels": (
        "asyncsparse_lab.cli.kernels:app",
        "List, build and show the kernels; needs no GPU.",
    ),
    "plan": (
        "asyncsparse_lab.cli.plan:plan",
        "Which format and kernel, every candidate's predicted time, and why.",
    ),
    "verify": (
        "asyncsparse_lab.cli.verify:verify",
        "Every kernel against the FP64 reference, on the edge cases.",
    ),
    "measure": (
        "asyncsparse_lab.cli.measure:measure",
        "Run a study on this machine; resumes where it stopped.",
    ),
    "records": (
        "asyncsparse_lab.cli.records:app",
        "Merge, compare and check measurements.",
    ),
    "reproduce": (
        "asyncsparse_lab.cli.reproduce:reproduce",
        "Every figure, table and the report, from the records.",
    ),
    "solve": (
        "asyncsparse_lab.cli.solve:solve",
        "Least squares with LSMR, with the convergence shown.",
    ),
}

# The user's choice of a place, not a bug of ours.
_UNWRITABLE: Final = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENOTDIR,
    errno.EEXIST,
}


class _LazyCommand(TyperCommand):
    """Stands for a command in the list of commands, and gives way to it when it is called."""

    def __init__(self, name: str, place: str, help_line: str) -> None:
        super().__init__(name, help=help_line)
        self.place = place

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **more: Any) -> Any:
        module, _, attribute = self.place.partition(":")
        target = getattr(import_module(module), attribute)
        if not isinstance(target, typer.Typer):
            function, target = target, typer.Typer(add_completion=False)
            target.command()(function)
        return get_command(target).make_context(info_name, args, *rest, **more)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"asyncsparse-lab {asyncsparse_lab.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Sparse kernels on asynchronous GPUs: matrices, kernels, measurements, figures."""


def _command() -> TyperGroup:
    app = typer.Typer(add_completion=False, no_args_is_help=True)
    app.callback()(_options)
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    for name, (place, help_line) in COMMANDS.items():
        group.add_command(_LazyCommand(name, place, help_line))
    return group


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code; an error of ours is one line."""
    try:
        _command().main(args=arguments, prog_name="asyncsparse")
    except AsyncSparseError as error:
        print(f"asyncsparse: {error}", file=sys.stderr)
        sys.exit(3 if isinstance(error, DeviceError) else 1)
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        print(
            f"asyncsparse: {error.filename or 'the disk'}: {error.strerror}: choose a place that"
            " can be written and has room",
            file=sys.stderr,
        )
        sys.exit(1)
