"""Bad input to the formats: a ValueError that names the argument, its value and what is allowed."""

from fractions import Fraction

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint


@pytest.mark.parametrize("s", [0, -1, 2.0, 1.5, True, "4", None, np.float64(2)])
def test_s(s):
    with pytest.raises(ValueError, match=r"s=.*integer s >= 1"):
        FixedPoint(s)


def test_numpy_integers_are_integers():
    assert FixedPoint(np.int64(3)) == FixedPoint(3)
    assert isinstance(FixedPoint(np.int64(3)).s, int)


@pytest.mark.parametrize("ties", ["nearest", "", "ZERO", None, 0])
def test_ties(ties):
    with pytest.raises(ValueError, match="zero, even, away, odd, up, down"):
        FixedPoint(2, ties)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), "1/2", None, 1j, np.nan, np.float32("inf")])
@pytest.mark.parametrize("s", [2, 16])
def test_values_that_are_no_finite_reals(s, value):
    ar = FixedPoint(s)
    with pytest.raises(ValueError, match=f"F_{s}.*finite real"):
        ar.array([0, value])
    with pytest.raises(ValueError, match=f"F_{s}.*finite real"):
        ar.full((2,), value)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_float_arrays_with_one_bad_entry(bad):
    with pytest.raises(ValueError, match="finite real"):
        FixedPoint(4).array(np.array([0.5, bad]))


def test_codes_outside():
    ar = FixedPoint(2)
    assert ar.check([15, -15, 0]).tolist() == [15, -15, 0]
    assert ar.check([]).size == 0
    for code in (16, -16, 2**70):
        with pytest.raises(ValueError, match=r"outside F_2: allowed codes are -15\.\.15"):
            ar.check([0, code])
    for entry in (1.0, True, Fraction(1, 2)):
        with pytest.raises(ValueError, match=r"no code of F_2; use array\(\)"):
            ar.check([entry])
        with pytest.raises(ValueError, match="no code of F_2"):
            ar.check(np.array([entry], dtype=object))
    assert FixedPoint(16).check([1]).dtype == object


def test_shapes_that_do_not_fit():
    ar = FixedPoint(2)
    with pytest.raises(ValueError, match="affine"):
        ar.affine(np.ones((2, 3), dtype=int), np.ones(4, dtype=int))
    with pytest.raises(ValueError, match="affine"):
        ar.affine(np.ones(3, dtype=int), np.ones(3, dtype=int))
    with pytest.raises(ValueError, match="scores"):
        ar.scores(np.ones((2, 3), dtype=int), np.ones((2, 4), dtype=int))
    with pytest.raises(ValueError, match="mix"):
        ar.mix(np.ones((2, 3), dtype=int), np.ones((2, 4), dtype=int))
    with pytest.raises(ValueError, match="wide_dot"):
        ar.wide_dot(np.ones((2, 1), dtype=int), np.ones((2, 4), dtype=int))
    with pytest.raises(ValueError, match="raw, sqrt, dim"):
        ar.scores(np.ones((2, 3), dtype=int), np.ones((2, 3), dtype=int), "half")


def test_formats_too_small_or_too_large_for_a_use():
    with pytest.raises(ValueError, match=r"s=1: the cell needs s >= 2; use FixedPoint\(2\)"):
        FixedPoint(1).require(2, "the cell")
    FixedPoint(2).require(2, "the cell")
    with pytest.raises(ValueError, match="s <= 11"):
        FixedPoint(12).codes()


def test_names():
    assert FixedPoint(4).name == "F_4"
    assert FixedPoint(4, "even").name == "F_4 (ties even)"
    assert FixedPoint(2).fraction(3) == Fraction(3, 4)
    assert FixedPoint(2).values(np.array([3, -15])).tolist() == [0.75, -3.75]
    assert FixedPoint(2) == FixedPoint(2) != FixedPoint(2, "even")
