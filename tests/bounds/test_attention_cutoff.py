"""The cut-off of rounded attention: the values, the two sides, and checkers that reject a wrong arithmetic."""

from dataclasses import dataclass

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint
from hybridseq.bounds import attention_cutoff as cut

SMALL = [FixedPoint(s) for s in (1, 2, 3)]


@pytest.mark.parametrize(
    ("s", "k"), [(1, 9), (2, 105), (3, 945), (4, 7905), (5, 64449), (6, 520065), (7, 4177665), (8, 33488385)]
)
def test_values(s, k):
    assert cut.formula(s) == k == FixedPoint(s).cutoff()


def test_checks_pass():
    assert cut.check_best_row([FixedPoint(s) for s in (1, 2, 3, 4)]).passed
    assert cut.check_quotient([FixedPoint(s) for s in range(1, 25)]).passed
    assert cut.check_no_row_survives(FixedPoint(1)).passed
    assert cut.check_no_row_survives(FixedPoint(2)).passed
    check = cut.check_uniform([FixedPoint(s) for s in range(1, 9)])
    assert check.passed and check.cases == sum(2 ** (s + 2) for s in range(1, 9))


@dataclass(frozen=True)
class TiesSlip(FixedPoint):
    """A format in which a quotient that is a tie is rounded up."""

    def round_ratio(self, num, den):
        return FixedPoint(self.s, "away").round_ratio(num, den)


@dataclass(frozen=True)
class SubtractsTheMaximum(FixedPoint):
    """A format whose softmax subtracts the largest score first."""

    def softmax(self, z, mask=None):
        return FixedPoint(self.s).softmax(self.sub(z, np.max(z, axis=-1, keepdims=True)), mask)


@dataclass(frozen=True)
class RoundsUp(FixedPoint):
    """A format in which no positive quotient becomes 0."""

    def round_ratio(self, num, den):
        return np.maximum(super().round_ratio(num, den), 1)


@pytest.mark.parametrize("wrong", [TiesSlip, RoundsUp])
def test_another_rounding_is_rejected(wrong):
    assert not cut.check_quotient([wrong(2)]).passed
    assert not cut.check_no_row_survives(wrong(1)).passed
    assert not cut.check_uniform([wrong(2)]).passed
    assert not cut.check_best_row([wrong(2)]).passed


def test_a_softmax_that_subtracts_the_maximum_is_rejected():
    check = cut.check_best_row([SubtractsTheMaximum(2)])
    assert not check.passed and check.counterexample["input"] == "F_2, 105 keys"


@dataclass(frozen=True)
class NeverSilent(FixedPoint):
    """A format whose softmax leaves a weight of δ where all of them are too small; its quotients are right."""

    def normalise(self, e):
        return np.where(e > 0, np.maximum(super().normalise(e), 1), 0)


@dataclass(frozen=True)
class MixesNothing(FixedPoint):
    """A format whose head returns 0 although a weight is positive."""

    def mix(self, p, v):
        return 0 * super().mix(p, v)


@pytest.mark.parametrize(("wrong", "first"), [(NeverSilent, "F_2, 8 keys"), (MixesNothing, "F_2, 1 keys")])
def test_equal_keys_go_through_softmax_and_mixing(wrong, first):
    check = cut.check_uniform([wrong(2)])
    assert not check.passed and check.counterexample["input"] == first


def test_a_wrong_formula_is_rejected(monkeypatch):
    right = cut.formula
    for off in (-1, 1):
        monkeypatch.setattr(cut, "formula", lambda s, off=off: right(s) + off)
        assert not cut.check_best_row(SMALL).passed
        assert not cut.check_quotient(SMALL).passed
        assert not cut.check_no_row_survives(FixedPoint(1)).passed


def test_largest_weight_is_the_largest_of_all_rows():
    """By brute force at s = 1: all multisets of up to 10 positive exponentials."""
    from itertools import combinations_with_replacement

    ar = FixedPoint(1)
    for keys in range(1, 11):
        rows = np.array(list(combinations_with_replacement((1, 2, 3), keys)))
        assert ar.normalise(rows).max() == cut.largest_weight(ar, keys)


def test_uniform_curves():
    assert cut.uniform_head(FixedPoint(2), range(10))[1].tolist() == [0, 4, 4, 3, 4, 5, 6, 7, 0, 0]
    p, u = cut.uniform_head(FixedPoint(4), [31, 32])
    assert p.tolist() == [1, 0] and u.tolist() == [31, 0]


def test_bad_rows():
    with pytest.raises(ValueError, match="keys=0"):
        cut.best_row(FixedPoint(2), 0)
