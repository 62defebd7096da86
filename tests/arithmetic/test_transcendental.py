"""Correct rounding of exp and the logistic function: Arb's certificate against rational enclosures and 60 digits."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.arithmetic import FixedPoint, transcendental
from hybridseq.arithmetic.definition import Definition


@pytest.mark.parametrize("s", range(1, 9))
def test_whole_tables_against_sixty_digits(s):
    """Every code at which the functions are not constant; with 60 digits the distance to a midpoint is seen to be safe."""
    for function in transcendental.FUNCTIONS:
        first, entries = transcendental.table(function, s)
        step = 1 if s <= 6 else 7
        with mpmath.workdps(60):
            for i in range(0, len(entries), step):
                x = mpmath.mpf(first + i) / 2**s
                scaled = (mpmath.exp(x) if function == "exp" else 1 / (1 + mpmath.exp(-x))) * 2**s
                expected = min(int(mpmath.floor(scaled + mpmath.mpf(1) / 2)), 4**s - 1)
                if first + i:
                    assert abs(scaled - mpmath.floor(scaled) - mpmath.mpf(1) / 2) > mpmath.mpf(10) ** -40
                assert entries[i] == expected, (function, s, first + i)


@settings(deadline=None, max_examples=40)
@given(s=st.integers(1, 24), place=st.floats(-1.3, 1.3))
def test_any_code_against_the_definition(s, place):
    ar, d = FixedPoint(s), Definition(s)
    code = max(-ar.max_code, min(ar.max_code, int(place * (s + 2) * ar.one)))
    stored = np.array([code], dtype=ar.dtype)
    assert ar.exp(stored).tolist() == [d.exp(Fraction(code, ar.one)) * ar.one]
    assert ar.sigmoid(stored).tolist() == [d.sigmoid(Fraction(code, ar.one)) * ar.one]


@pytest.mark.parametrize("s", [1, 2, 5, 12, 13, 16])
def test_ends_and_middle(s):
    ar = FixedPoint(s)
    one, top = ar.one, ar.max_code
    codes = np.array([-top, 0, top], dtype=ar.dtype)
    low = ar.exp(codes)[0]
    assert ar.exp(codes).tolist() == [low, one, top if s > 1 else 3]
    assert low == (0 if s > 1 else int(Definition(1).exp(Fraction(-3, 2)) * 2))
    ends = np.array([(s + 1) * one, -(s + 2) * one], dtype=ar.dtype)
    if (s + 2) * one <= top:
        assert ar.exp(ends).tolist() == [top, 0]
        assert ar.sigmoid(np.array([(s + 2) * one, -(s + 2) * one], dtype=ar.dtype)).tolist() == [one, 0]


@pytest.mark.parametrize("s", [2, 6, 10])
def test_monotone_and_symmetric(s):
    ar = FixedPoint(s)
    codes = ar.codes()
    e, sigma = ar.exp(codes), ar.sigmoid(codes)
    assert (np.diff(e) >= 0).all() and (np.diff(sigma) >= 0).all()
    assert (sigma + sigma[::-1] == ar.one).all()  # σ(−x) = 1 − σ(x), and 1 − a code is a code


def test_a_ball_that_straddles_a_midpoint_is_narrowed(monkeypatch):
    """The certificate refuses a ball that is too wide and doubles the precision until it decides."""
    from flint import arb, ctx

    seen = []
    real = arb.exp

    class Coarse:
        def __init__(self, x):
            self.x = x

        def exp(self):
            seen.append(ctx.prec)
            ball = real(self.x)
            return ball + arb(0, 1) if len(seen) == 1 else ball  # the first answer is ± 1: right, but useless

        def __neg__(self):
            return Coarse(-self.x)

    import flint

    monkeypatch.setattr(flint, "arb", lambda x: Coarse(arb(x)) if not isinstance(x, float) else arb(x))
    assert transcendental._certified("exp", 3, 2) == 8
    assert len(seen) == 2 and seen[1] == 2 * seen[0]


def test_working_precision_is_put_back():
    from flint import ctx

    before = ctx.prec
    transcendental.rounded_code("exp", 5, 3)
    assert ctx.prec == before


def test_unknown_function():
    with pytest.raises(ValueError, match="exp, sigmoid"):
        transcendental.rounded_code("tanh", 0, 2)


def test_tables_are_read_only():
    _, entries = transcendental.table("exp", 2)
    with pytest.raises(ValueError, match="read-only"):
        entries[0] = 7
