"""The slow definition of F_s against brute force: search through all members, and mpmath for the transcendental functions."""

from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridseq.arithmetic import TIE_RULES
from hybridseq.arithmetic.definition import Definition, exp_enclosure


def nearest_member(x, members, delta, ties):
    """The nearest member by looking at every one of them; two equally near ones are told apart in words."""
    gap = min(abs(x - m) for m in members)
    nearest = sorted(m for m in members if abs(x - m) == gap)
    if len(nearest) == 1:
        return nearest[0]
    low, high = nearest
    if ties in ("up", "down"):
        return high if ties == "up" else low
    if ties in ("zero", "away"):
        return min(nearest, key=abs) if ties == "zero" else max(nearest, key=abs)
    even = [m for m in nearest if (m / delta) % 2 == 0]
    odd = [m for m in nearest if (m / delta) % 2 == 1]
    return (even if ties == "even" else odd)[0]


@pytest.mark.parametrize("ties", TIE_RULES)
@pytest.mark.parametrize("s", [1, 2])
def test_rounding_agrees_with_a_search_through_all_members(s, ties):
    d = Definition(s, ties)
    members = d.members()
    fine = 8 * 4**s + 40  # eighths of a spacing, past both ends
    for k in range(-fine, fine + 1):
        x = Fraction(k, 8 * 2**s)
        assert d.round(x) == nearest_member(x, members, d.delta, ties), (s, ties, x)


@pytest.mark.parametrize("ties", TIE_RULES)
@given(num=st.integers(-400, 400), den=st.integers(1, 60))
def test_rounding_of_any_ratio(ties, num, den):
    d = Definition(2, ties)
    x = Fraction(num, den)
    assert d.round(x) == nearest_member(x, d.members(), d.delta, ties)


@pytest.mark.parametrize("ties", TIE_RULES)
@given(num=st.integers(0, 300), den=st.integers(1, 40), negative=st.booleans())
def test_rounding_of_roots(ties, num, den, negative):
    d = Definition(2, ties)
    square = Fraction(num, den)
    sign = -1 if negative else 1
    got = d.round_root(Fraction(sign) if square else Fraction(0), square)
    with mpmath.workprec(200):
        root = mpmath.sqrt(mpmath.mpf(square.numerator) / square.denominator)
        exact = Fraction(int(mpmath.nint(root * 2**60)), 2**60)
    # Where the root is a member or a midpoint it is rational with a small denominator, and the search decides it exactly.
    if exact**2 == square:
        assert got == nearest_member(sign * exact, d.members(), d.delta, ties)
    else:
        assert abs(abs(got) - min(exact, d.top)) <= d.delta / 2 + Fraction(1, 2**50)


@pytest.mark.parametrize("bits", [10, 60, 200])
@given(num=st.integers(-1500, 1500))
def test_exp_enclosure_holds_the_value(bits, num):
    x = Fraction(num, 100)
    low, high = exp_enclosure(x, bits)
    assert high - low <= Fraction(1, 2**bits)
    with mpmath.workprec(bits + 100):
        value = mpmath.exp(mpmath.mpf(x.numerator) / x.denominator)
        slack = mpmath.mpf(2) ** (-bits - 40)
        assert mpmath.mpf(low.numerator) / low.denominator <= value + slack
        assert mpmath.mpf(high.numerator) / high.denominator >= value - slack


@pytest.mark.parametrize("s", range(1, 7))
def test_exp_and_sigmoid_agree_with_sixty_digits(s):
    d = Definition(s)
    step = max(1, 4**s // 64)
    with mpmath.workdps(60):
        for k in range(-(4**s) + 1, 4**s, step):
            x = Fraction(k, 2**s)
            for got, value in (
                (d.exp(x), mpmath.exp(mpmath.mpf(k) / 2**s)),
                (d.sigmoid(x), 1 / (1 + mpmath.exp(-mpmath.mpf(k) / 2**s))),
            ):
                assert got == min(Fraction(int(mpmath.floor(value * 2**s + mpmath.mpf(1) / 2)), 2**s), d.top), (s, k)


def test_members_count():
    for s in (1, 2, 3, 4):
        members = Definition(s).members()
        assert len(set(members)) == len(members) == 2 ** (2 * s + 1) - 1
