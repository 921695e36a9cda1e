"""What a generator is: a name, typed parameters with ranges, a function; all of it data.

The command line, the explorer and the suites read the same table: a parameter that is unknown,
ill-typed or out of range is refused here, once, before anything is built.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from asyncsparse_lab.errors import InputError, MemoryLimitError
from asyncsparse_lab.matrices.canonical import with_small_index
from asyncsparse_lab.matrices.memory import physical_bytes

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Value = int | float | str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a generator.

    Attributes
    ----------
    name : str
        Keyword.
    default : int, float or str
        Its type is the parameter's type; an int is taken for a float.
    summary : str
        What it means, with its unit.
    minimum, maximum : int, float or None
        Inclusive range.
    choices : tuple of int or str
        If not empty, the only values there are.
    """

    name: str
    default: Value
    summary: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Value, ...] = ()

    def check(self, owner: str, value: object) -> Value:
        """Return ``value`` in the parameter's type, or raise InputError with what is allowed."""
        kind = type(self.default)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not kind:
            raise InputError(
                f"{owner}: {self.name}={value!r} is not {_KINDS[kind]}, e.g. {self.default!r}"
            )
        assert isinstance(value, int | float | str)
        if self.choices and value not in self.choices:
            allowed = ", ".join(map(repr, self.choices))
            raise InputError(f"{owner}: {self.name}={value!r} is none of {allowed}")
        if not isinstance(value, str):
            # written so that NaN is outside every range
            above = self.minimum is None or value >= self.minimum
            below = self.maximum is None or value <= self.maximum
            if not (above and below):
                raise InputError(f"{owner}: {self.name}={value!r} is outside {self._range()}")
        return value

    def _range(self) -> str:
        if self.maximum is None:
            return f"{self.minimum:g} and above"
        return f"{self.minimum:g}..{self.maximum:.12g}"


_KINDS: dict[type, str] = {int: "a whole number", float: "a number", str: "a string"}

BYTES_PER_ELEMENT = 32
"""A value, its row and column, and a copy of half of that while sorting."""

SEED = Parameter("seed", 0, "of numpy's default_rng", 0, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Generator:
    """A family of matrices.

    Attributes
    ----------
    name : str
        As in ``name(key=value, ...)``.
    summary : str
        One line: what the matrices look like.
    build : callable
        Takes the parameters by keyword, gives a canonical float64 ``csr_array``.
    parameters : tuple of Parameter
    elements : callable
        Takes the same; the array elements that building handles at most at a time.
    """

    name: str
    summary: str
    build: Callable[..., csr_array[Any]]
    parameters: tuple[Parameter, ...]
    elements: Callable[..., float]

    def call(self, arguments: Mapping[str, object]) -> GeneratorCall:
        """Check arguments against the parameters and fill in defaults.

        Raises
        ------
        InputError
            A parameter is unknown, ill-typed or out of range.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in arguments:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else "it has " + ", ".join(known)
                raise InputError(f"{self.name} has no parameter {name!r}: {hint}")
        values = {
            parameter.name: parameter.check(
                self.name, arguments.get(parameter.name, parameter.default)
            )
            for parameter in self.parameters
        }
        return GeneratorCall(self, values)


@dataclass(frozen=True, slots=True)
class GeneratorCall:
    """A generator with checked values for all of its parameters."""

    generator: Generator
    values: Mapping[str, Value]

    def build(self) -> csr_array[Any]:
        """Make the matrix.

        Raises
        ------
        InputError
            Values that are right by themselves do not go together.
        MemoryLimitError
            The machine has not enough memory for it.
        """
        wanted = BYTES_PER_ELEMENT * self.generator.elements(**self.values)
        there = physical_bytes()
        if wanted > there:
            raise MemoryLimitError(
                f"{self} would take about {wanted / 1e9:.1f} GB to build, this machine has"
                f" {there / 1e9:.1f} GB: choose smaller parameters"
            )
        return with_small_index(self.generator.build(**self.values))

    def __str__(self) -> str:
        """Return the call in its one canonical spelling: every parameter, in table order."""
        inside = ", ".join(f"{name}={value!r}" for name, value in self.values.items())
        return f"{self.generator.name}({inside})"


def parse_call(text: str, generators: Mapping[str, Generator]) -> GeneratorCall:
    """Read ``name(key=value, ...)``; values are literals, nothing is evaluated.

    Raises
    ------
    InputError
        Not of that form, no such generator, or arguments that it refuses.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)):
        raise InputError(f"{text[:80]!r} is not of the form generator(key=value, ...)")
    name = tree.func.id
    if name not in generators:
        near = get_close_matches(name, generators, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "there are " + ", ".join(generators)
        raise InputError(f"no generator {name!r}: {hint}")
    if tree.args or any(keyword.arg is None for keyword in tree.keywords):
        first = generators[name].parameters[0]
        raise InputError(
            f"{name}: arguments are given by name, e.g. {name}({first.name}={first.default!r})"
        )
    arguments: dict[str, object] = {}
    for keyword in tree.keywords:
        assert keyword.arg is not None
        if keyword.arg in arguments:
            raise InputError(f"{name}: {keyword.arg} is given twice")
        try:
            arguments[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, SyntaxError) as error:
            value = ast.unparse(keyword.value)[:40]
            raise InputError(f"{name}: {keyword.arg}={value} is not a number or string") from error
    return generators[name].call(arguments)
