"""The rounding of square roots: the floating-point estimate never decides a close case, and the exact path is exact."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridseq.arithmetic import TIE_RULES, FixedPoint, rounding
from hybridseq.arithmetic.definition import Definition

BIG = 1 << 30


def root(p, q, ties="zero", negative=False, estimate=None, limit=BIG):
    p, q = np.array([p], dtype=object), np.array([q], dtype=object)
    estimate = np.sqrt((p / q).astype(float)) if estimate is None else np.array([estimate])
    return int(
        rounding.nearest_root(estimate, lambda i: list(p[i]), lambda i: list(q[i]), np.array([negative]), ties, limit)[0]
    )


@given(k=st.integers(0, BIG - 2), offset=st.sampled_from([-1, 0, 1]), ties=st.sampled_from(TIE_RULES), negative=st.booleans())
def test_neighbours_of_a_midpoint(k, offset, ties, negative):
    """√(p/q) at (2k + 1)/2 and one part in 10^40 beside it: far below what float64 can tell apart."""
    fine = 10**40
    p, q = (2 * k + 1) ** 2 * fine + offset, 4 * fine
    got = root(p, q, ties, negative)
    if offset:
        assert abs(got) == k + (offset > 0)
    else:
        d = Definition(40, ties)
        sign = -1 if negative else 1
        assert got == d.round(sign * Fraction(2 * k + 1, 2) * d.delta) / d.delta


@given(p=st.integers(0, 10**12), q=st.integers(1, 10**6), ties=st.sampled_from(TIE_RULES))
def test_exact_root_by_its_definition(p, q, ties):
    k = rounding.exact_root(p, q, False, ties)
    assert (2 * k - 1) ** 2 * q <= 4 * p or k == 0
    assert 4 * p <= (2 * k + 1) ** 2 * q


@pytest.mark.parametrize("error", [-(2.0**-49), 2.0**-49])
def test_an_estimate_with_the_allowed_error_changes_nothing(error):
    for k in (0, 1, 7, 1000, BIG - 2):
        for offset in (-1, 1):
            p, q = (2 * k + 1) ** 2 * 10**30 + offset, 4 * 10**30
            estimate = (k + 0.5) * (1 + error)
            assert root(p, q, estimate=estimate) == k + (offset > 0)


def test_the_doubtful_path_is_taken(monkeypatch):
    calls = []
    exact = rounding.exact_root
    monkeypatch.setattr(rounding, "exact_root", lambda *a: calls.append(a) or exact(*a))
    assert root(25, 4) == 2 and len(calls) == 1  # 5/2 is a tie
    assert root(26, 4) == 3 and len(calls) == 1  # 2.55 is not near one
    ar = FixedPoint(4)
    ar.rms_norm(np.array([[16, -16, 16, 16]] * 50))
    assert len(calls) == 1  # a vector of ±1 needs no exact comparison


def test_saturation():
    assert root(10**30, 1, limit=7) == 7
    assert root(10**30, 1, limit=7, negative=True) == -7
    assert root((2 * 7 + 1) ** 2, 4, "away", limit=7) == 7


@pytest.mark.parametrize("ties", TIE_RULES)
@given(num=st.integers(-(10**9), 10**9), den=st.integers(1, 10**4), bits=st.integers(0, 20))
def test_ratios_and_shifts(ties, num, den, bits):
    d = Definition(60, ties)

    def expected(x):
        return d.round(x * d.delta) / d.delta

    assert rounding.nearest_ratio(num, den, ties) == expected(Fraction(num, den))
    assert rounding.nearest_shift(num, bits, ties) == expected(Fraction(num, 2**bits))
    huge = num * 10**15
    assert rounding.nearest_ratio(np.array([huge], dtype=object), den, ties)[0] == expected(Fraction(huge, den))
    assert rounding.nearest_shift(np.array([huge], dtype=object), bits, ties)[0] == expected(Fraction(huge, 2**bits))
    assert rounding.nearest_shift(huge, bits, ties) == expected(Fraction(huge, 2**bits))


def test_integers_keeps_every_number():
    for value in (0, -5, 2**40, 2**63, 2**64 - 1, -(2**70)):
        assert rounding.integers(value).item() == value
        assert rounding.integers([value, 1])[0] == value
    assert rounding.integers(np.array([1, 2], dtype=np.int16)).dtype == np.int64


def test_unknown_tie_rule():
    with pytest.raises(ValueError, match="zero, even, away, odd, up, down"):
        rounding.check_tie_rule("nearest")
