"""Values of F_s worked out by hand or by independent programs: each one is a number to reproduce, not a property."""

from fractions import Fraction

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint
from hybridseq.arithmetic.definition import Definition

K_S = {1: 9, 2: 105, 3: 945, 4: 7905, 5: 64449, 6: 520065, 7: 4177665, 8: 33488385}
LN3 = {2: 4, 3: 9, 4: 18, 5: 35, 6: 70, 7: 141, 8: 281}
KAPPA = {2: 3, 3: 6, 4: 11, 5: 23, 6: 45, 7: 91, 8: 181}
FIRST_ZERO_EXP = {2: -9, 3: -23, 4: -56, 5: -134, 6: -311}
EXP_2 = [0] * 7 + [1] * 5 + [2, 2, 3] + [4, 5, 7, 8, 11, 14] + [15] * 10
SIGMOID_2 = [0] * 8 + [1] * 5 + [2] * 5 + [3] * 5 + [4] * 8


@pytest.fixture
def f2():
    return FixedPoint(2)


@pytest.mark.parametrize(("s", "size"), [(1, 7), (2, 31), (3, 127), (4, 511), (5, 2047)])
def test_number_of_members(s, size):
    ar = FixedPoint(s)
    assert ar.size == size == len(ar.codes())
    assert ar.max_value == Fraction(2**s) - Fraction(1, 2**s)
    assert ar.delta == Fraction(1, 2**s)
    assert ar.bits == 2 * s + 1


def test_largest_member_at_s_2(f2):
    assert f2.max_value == Fraction(15, 4)


def test_rounding_with_ties_toward_zero(f2):
    values = [Fraction(1, 8), Fraction(3, 8), Fraction(5, 8), Fraction(7, 8), Fraction(-3, 8), 10, -10]
    assert f2.array(values).tolist() == [0, 1, 2, 3, -1, 15, -15]


@pytest.mark.parametrize(
    ("ties", "codes"),
    [
        ("zero", [0, 1, 2, 0, -1, -2]),
        ("away", [1, 2, 3, -1, -2, -3]),
        ("even", [0, 2, 2, 0, -2, -2]),
        ("odd", [1, 1, 3, -1, -1, -3]),
        ("up", [1, 2, 3, 0, -1, -2]),
        ("down", [0, 1, 2, -1, -2, -3]),
    ],
)
def test_the_six_rules_on_six_ties(ties, codes):
    halves = [Fraction(k, 8) for k in (1, 3, 5, -1, -3, -5)]
    assert FixedPoint(2, ties).array(halves).tolist() == codes


def test_the_order_of_a_rounded_sum(f2):
    assert f2.sum(np.array([15, 3, -4])) == 11
    assert f2.sum(np.array([-4, 3, 15])) == 14


def test_softmax_examples(f2):
    z = np.array([3, 1, -4, -15])
    assert f2.exp(z).tolist() == [8, 5, 1, 0]
    assert f2.softmax(z).tolist() == [2, 1, 0, 0]
    assert f2.exp(np.array([15, -8, -8])).tolist() == [15, 1, 1]
    assert f2.softmax(np.array([15, -8, -8])).tolist() == [4, 0, 0]
    assert f2.softmax(np.array([0, 0, 0])).tolist() == [1, 1, 1]
    assert f2.softmax(np.array([15, 0, 0])).tolist() == [3, 1, 1]
    assert f2.softmax(np.zeros(7, dtype=int)).tolist() == [1] * 7
    assert f2.softmax(np.zeros(8, dtype=int)).tolist() == [0] * 8


def test_a_denominator_of_zero_gives_zero_weights(f2):
    assert f2.softmax(np.array([-9, -9, -9])).tolist() == [0, 0, 0]
    assert f2.softmax(np.zeros(3, dtype=int), np.zeros(3, dtype=bool)).tolist() == [0, 0, 0]


def test_norm_examples(f2):
    assert f2.rms_norm(np.array([4, 8, -2])).tolist() == [3, 6, -2]
    assert f2.l2_norm(np.array([8, 12])).tolist() == [2, 3]
    assert f2.rms_norm(np.zeros(3, dtype=int)).tolist() == f2.l2_norm(np.zeros(3, dtype=int)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("s", range(2, 25))
def test_norms_of_the_constructions(s):
    """(±1, ±1) has L2 norm √2, a ±1 vector has RMS norm 1 and is left as it is."""
    ar = FixedPoint(s)
    one = ar.one
    pair = ar.l2_norm(np.array([[one, one], [-one, one]], dtype=ar.dtype))
    kappa = Definition(s).round_root(Fraction(1), Fraction(1, 2)) * one
    assert pair.tolist() == [[kappa, kappa], [-kappa, kappa]]
    if s in KAPPA:
        assert kappa == KAPPA[s]
    signs = np.array([one, -one, -one, one, one, -one], dtype=ar.dtype)
    assert ar.rms_norm(signs).tolist() == signs.tolist()
    assert ar.l2_norm(np.array([one, 0], dtype=ar.dtype)).tolist() == [one, 0]


def test_tables_at_s_2(f2):
    codes = f2.codes()
    assert f2.exp(codes).tolist() == EXP_2
    assert f2.exp_table().tolist() == EXP_2
    assert f2.sigmoid(codes).tolist() == SIGMOID_2


@pytest.mark.parametrize("s", FIRST_ZERO_EXP)
def test_where_exp_becomes_zero(s):
    ar, code = FixedPoint(s), FIRST_ZERO_EXP[s]
    assert ar.exp(np.array([code, code + 1])).tolist() == [0, 1]


@pytest.mark.parametrize("s", range(2, 25))
def test_gates(s):
    """Saturated gates are exactly 0 and 1, and [±ln 3]_s gives the gates 3/4 and 1/4 exactly."""
    ar = FixedPoint(s)
    assert ar.sigmoid(np.array([ar.max_code, -ar.max_code, 0], dtype=ar.dtype)).tolist() == [ar.one, 0, ar.one // 2]
    log3 = ar.array([Fraction(10986122886681098, 10**16)])  # ln 3 to 16 digits: enough, no code boundary is that near
    if s in LN3:
        assert log3.tolist() == [LN3[s]]
    assert ar.sigmoid(log3).tolist() == [3 * ar.one // 4]
    assert ar.sigmoid(ar.neg(log3)).tolist() == [ar.one // 4]


@pytest.mark.parametrize("s", K_S)
def test_cutoff_formula(s):
    assert FixedPoint(s).cutoff() == K_S[s]
    assert FixedPoint(s, "even").cutoff() == FixedPoint(s, "down").cutoff() == K_S[s]
    assert FixedPoint(s, "away").cutoff() == K_S[s] + 1


@pytest.mark.parametrize("ties", ["zero", "even", "away", "odd", "up", "down"])
@pytest.mark.parametrize("s", [1, 2, 3, 4])
def test_cutoff_on_both_sides(s, ties):
    """The best case (one exponential at the top, all others δ) at k = K_s and K_s + 1, through the softmax itself."""
    ar = FixedPoint(s, ties)
    k = ar.cutoff()
    small = int(np.flatnonzero(ar.exp_table() == 1)[0]) - ar.max_code  # a score whose exponential is δ
    for count, weight in ((k, 1), (k + 1, 0)):
        z = np.full(count, small)
        z[0] = ar.max_code
        p = ar.softmax(z)
        assert (p[0], p[1:].any()) == (weight, False)
    u = ar.uniform_cutoff()
    assert ar.softmax(np.zeros(u, dtype=int)).tolist() == [1] * u
    assert not ar.softmax(np.zeros(u + 1, dtype=int)).any()


@pytest.mark.parametrize(("s", "bound"), [(2, 28), (3, 120), (4, 496)])
def test_cutoff_with_subtraction_of_the_maximum(s, bound):
    """Subtracting the maximum first lowers the largest exponential from 2^s to 1, and the cut-off to 2^s (2^(s+1) - 1)."""
    ar = FixedPoint(s)
    small = int(np.flatnonzero(ar.exp_table() == 1)[0]) - ar.max_code
    for count, weight in ((bound, 1), (bound + 1, 0)):
        z = np.full(count, small)
        z[0] = 0
        shifted = ar.sub(z, z.max())
        assert ar.softmax(shifted)[0] == weight


@pytest.mark.parametrize(
    ("s", "curve"), [(1, [0, 2, 2, 3, 0, 0]), (2, [0, 4, 4, 3, 4, 5, 6, 7, 0, 0])]
)
def test_uniform_head(s, curve):
    """u(c): c keys with score 0 and value 1, all others with exponential 0."""
    ar = FixedPoint(s)
    got = []
    for ones in range(len(curve)):
        z = np.full(40, -ar.max_code)
        z[:ones] = 0
        hidden = ar.softmax(z, np.arange(40) < ones)
        got.append(int(ar.mix(hidden[None], np.full((40, 1), ar.one))[0, 0]))
    assert got == curve


def test_uniform_head_at_s_4_last_speaks_at_31():
    ar = FixedPoint(4)
    head = {c: int(ar.mix(ar.softmax(np.zeros((1, c), dtype=int)), np.full((c, 1), ar.one))[0, 0]) for c in (31, 32, 33)}
    assert head == {31: 31, 32: 0, 33: 0}


@pytest.mark.parametrize("s", [2, 3, 4, 8])
def test_products_with_the_largest_member(s):
    """δ ⊗ B_s = [1 − δ²]_s = 1, although 2^s itself is no member."""
    ar = FixedPoint(s)
    assert ar.mul(1, ar.max_code) == ar.one
