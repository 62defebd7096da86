"""The checks of the number format pass for F_s, and each rejects an arithmetic with one rule changed."""

from dataclasses import dataclass

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint
from hybridseq.constructions import number_format as nf


def rng():
    return np.random.default_rng(7)


def all_checks(ar):
    return [
        nf.check_size([ar]),
        nf.check_rounding([ar]),
        nf.check_pairs([ar]),
        nf.check_functions([ar], rng()),
        *nf.check_vectors([ar], rng(), count=40),
    ]


@pytest.mark.parametrize("ties", ["zero", "even", "up"])
@pytest.mark.parametrize("s", [1, 2])
def test_everything_holds(s, ties):
    checks = all_checks(FixedPoint(s, ties))
    assert [c.name for c in checks if not c.passed] == []
    assert len(checks) == 14


def test_every_s_to_12_on_vectors():
    checks = nf.check_vectors([FixedPoint(s) for s in range(1, 13)], rng(), count=5)
    assert all(c.passed for c in checks)
    assert all("F_1 to F_12" in c.scope for c in checks)


def test_functions_at_every_s_to_12():
    check = nf.check_functions([FixedPoint(s) for s in range(1, 13)], rng(), count=40)
    assert check.passed and check.cases > 2 * 12 * 30


@dataclass(frozen=True)
class OtherTies(FixedPoint):
    def mul(self, a, b):
        return FixedPoint(self.s, "away").mul(a, b)


@dataclass(frozen=True)
class SaturatesOnlyAtTheEnd(FixedPoint):
    def sum(self, x, axis=-1):
        return self.saturate(np.sum(x, axis=axis))


@dataclass(frozen=True)
class RoundedNorm(FixedPoint):
    def rms_norm(self, x):
        squares = self.mul(x, x)  # rounds where the definition accumulates exactly
        mean = np.maximum(squares.sum(-1, keepdims=True) // x.shape[-1], 1)
        return self.saturate(np.rint(x / np.sqrt(mean / self.one)).astype(np.int64))


@dataclass(frozen=True)
class FlooredExp(FixedPoint):
    def exp(self, x):
        return np.minimum(np.floor(np.exp(np.asarray(x) / self.one) * self.one).astype(np.int64), self.max_code)


@dataclass(frozen=True)
class SubtractsTheMaximum(FixedPoint):
    def softmax(self, z, mask=None):
        return super().softmax(self.sub(z, np.max(z, axis=-1, keepdims=True)), mask)


@dataclass(frozen=True)
class MixesBackwards(FixedPoint):
    def mix(self, p, v):
        return super().mix(p[..., ::-1], v[..., ::-1, :])


@dataclass(frozen=True)
class RoundsProductsOfQueriesAndKeys(FixedPoint):
    def wide_dot(self, x, y, scale="raw"):
        return self.dot(x, y) if scale == "raw" else super().wide_dot(x, y, scale)


@pytest.mark.parametrize(
    ("wrong", "noticed_by"),
    [
        (OtherTies, "sum, difference and product, each rounded"),
        (SaturatesOnlyAtTheEnd, "rounded sum, left to right"),
        (RoundedNorm, "RMS norm"),
        (FlooredExp, "exp and the logistic function, correctly rounded"),
        (SubtractsTheMaximum, "softmax"),
        (MixesBackwards, "mixing in position order"),
        (RoundsProductsOfQueriesAndKeys, "wide inner product, scale raw"),
    ],
)
def test_one_changed_rule_is_noticed(wrong, noticed_by):
    failed = {c.name: c for c in all_checks(wrong(2)) if not c.passed}
    assert noticed_by in failed
    assert failed[noticed_by].counterexample["input"]


def test_wrong_saturation_is_noticed():
    @dataclass(frozen=True)
    class OneStepTooFar(FixedPoint):
        @property
        def max_code(self):
            return super().max_code + 1

    assert not nf.check_size([OneStepTooFar(2)]).passed
    assert not nf.check_rounding([OneStepTooFar(2)]).passed
