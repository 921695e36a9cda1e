"""Rounding to 16 bits, tried at every value of the 16-bit types and between each two of them."""

from __future__ import annotations

import numpy as np
import pytest

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.formats import (
    bfloat16_bits,
    bfloat16_from_bits,
    float16_bits,
    float16_from_bits,
    round_to_bfloat16,
    round_to_float16,
)

BFLOAT16 = pytest.param(bfloat16_bits, bfloat16_from_bits, 8, 7, id="bfloat16")
FLOAT16 = pytest.param(float16_bits, float16_from_bits, 5, 10, id="float16")
both = pytest.mark.parametrize(
    ("to_bits", "from_bits", "exponent_bits", "fraction_bits"), [BFLOAT16, FLOAT16]
)


def value_of(pattern, exponent_bits, fraction_bits):
    """Evaluate a finite, non-negative pattern by the definition of IEEE 754."""
    exponent, fraction = divmod(pattern, 2**fraction_bits)
    bias = 2 ** (exponent_bits - 1) - 1
    if exponent == 0:
        return fraction * 2.0 ** (1 - bias - fraction_bits)
    return (2**fraction_bits + fraction) * 2.0 ** (exponent - bias - fraction_bits)


def finite_values(exponent_bits, fraction_bits):
    infinity = (2**exponent_bits - 1) << fraction_bits
    values = [value_of(p, exponent_bits, fraction_bits) for p in range(infinity)]
    # One more, as if the exponents went on: where rounding overflows is half-way to it.
    return np.array([*values, 2.0 ** (2 ** (exponent_bits - 1))])


@both
def test_each_pattern_has_the_value_of_ieee_754(to_bits, from_bits, exponent_bits, fraction_bits):
    values = finite_values(exponent_bits, fraction_bits)[:-1]
    patterns = np.arange(len(values), dtype="uint16")
    assert np.array_equal(from_bits(patterns), values)
    assert np.array_equal(from_bits(patterns | np.uint16(0x8000)), -values)
    assert from_bits(np.array([len(values)], "uint16"))[0] == np.inf
    assert np.array_equal(to_bits(from_bits(patterns)), patterns)
    assert to_bits(np.array([-0.0], "float32"))[0] == 0x8000


@both
def test_between_two_values_the_nearest_is_taken(to_bits, from_bits, exponent_bits, fraction_bits):
    values = finite_values(exponent_bits, fraction_bits)
    middle = ((values[:-1] + values[1:]) / 2).astype("float32")
    assert np.array_equal(middle, (values[:-1] + values[1:]) / 2)
    below = np.arange(len(middle))
    even = below + below % 2
    for sign, bit in ((1, 0), (-1, 0x8000)):
        for x, expected in (
            (middle, even),
            (np.nextafter(middle, np.float32(0)), below),
            (np.nextafter(middle, np.float32(np.inf)), below + 1),
        ):
            assert np.array_equal(to_bits(sign * x), expected + bit)


@both
def test_infinity_and_nan_stay_what_they_are(to_bits, from_bits, exponent_bits, fraction_bits):
    infinity = (2**exponent_bits - 1) << fraction_bits
    assert to_bits(np.array([np.inf, -np.inf], "float32")).tolist() == [infinity, infinity + 0x8000]
    # NaNs of which the payload lies in the lower half only, or is all ones.
    nans = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000], "uint32")
    patterns = to_bits(nans.view("float32"))
    assert np.isnan(from_bits(patterns)).all()
    assert (patterns >> 15).tolist() == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(("round_to", "digits"), [(round_to_bfloat16, 8), (round_to_float16, 11)])
def test_rounding_moves_a_value_by_half_a_unit_at_most(round_to, digits):
    x = np.random.default_rng(0).standard_normal((50, 40)).astype("float32")
    rounded = round_to(x)
    assert rounded.dtype == np.float32
    assert (np.abs(rounded - x) <= np.abs(x) * 2.0**-digits).all()
    assert (rounded != x).any()
    assert np.array_equal(round_to(rounded), rounded)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3, 4)])
def test_any_shape_and_stride(shape):
    x = np.ones(shape, "float32")
    assert bfloat16_bits(x).shape == float16_bits(x).shape == shape
    assert round_to_bfloat16(x).shape == round_to_float16(x).shape == shape
    strided = np.arange(24, dtype="float32").reshape(4, 6)[::2, ::-3]
    assert np.array_equal(round_to_bfloat16(strided), strided)
    assert np.array_equal(round_to_float16(strided.T), strided.T)


@pytest.mark.parametrize("convert", [bfloat16_bits, float16_bits, round_to_bfloat16])
def test_other_types_would_be_rounded_twice(convert):
    with pytest.raises(InputError, match="expected float32, got float64"):
        convert(np.ones(3))


@pytest.mark.parametrize("convert", [bfloat16_from_bits, float16_from_bits])
def test_patterns_are_uint16(convert):
    with pytest.raises(InputError, match="expected uint16 bit patterns, got int32"):
        convert(np.ones(3, "int32"))
