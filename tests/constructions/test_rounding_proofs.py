"""Machine proofs: what must be proved is, and what must not is refuted by a counter-model that replays."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.arithmetic import FixedPoint
from hybridseq.arithmetic.rounding import TIE_RULES, nearest_ratio
from hybridseq.constructions import rounding_proofs as rp
from hybridseq.constructions.parity_cell import F, G, ParityCell, Z, check_transitions
from hybridseq.constructions.reflection import transposition
from hybridseq.constructions.rounding_proofs import Interval

PROVED = {
    "M": rp.saturation_is_far,
    "kappa": rp.kappa_interval,
    "kappa above 2/3": lambda: rp.kappa_interval(rp.ABOVE_TWO_THIRDS),
    "doubled cell": rp.cell_table,
    "doubled cell, order B": lambda: rp.cell_table(order="B", interval=rp.ABOVE_TWO_THIRDS),
    "kappa from s = 4": lambda: rp.kappa_interval(Interval(high=Fraction(23, 32)), smallest_s=4),
    "doubled cell, ties to even, from s = 4": lambda: rp.cell_table(ties="even", interval=Interval(high=Fraction(23, 32))),
    "zero": rp.zero_absorbs,
    "nine rows": rp.seven_fall,
    "toggle A": lambda: rp.cell_table("toggle", "A"),
    "toggle B": lambda: rp.cell_table("toggle", "B"),
    "toggle D": lambda: rp.cell_table("toggle", "D"),
    "toggle Q": lambda: rp.cell_table("toggle", "Q"),
    "once, doubled": lambda: rp.rounded_once("doubled"),
    "once, toggle": lambda: rp.rounded_once("toggle"),
    "reflection A": lambda: rp.transposition_update("A"),
    "reflection Q": lambda: rp.transposition_update("Q"),
    "untouched A": lambda: rp.untouched("A"),
    "untouched Q": lambda: rp.untouched("Q"),
}


@pytest.mark.parametrize("name", sorted(PROVED))
def test_proved(name):
    check = PROVED[name]().prove()
    assert check.passed and check.value["answer"] == "unsat", check


@pytest.mark.parametrize("ties", TIE_RULES)
def test_wide_inner_product_is_proved_under_every_tie_rule(ties):
    assert rp.cell_table(ties=ties, products="wide").prove().passed


REFUTED = {
    "ties to even": (lambda: rp.cell_table(ties="even"), {"s": 2, "kappa": "3/4"}),
    "any tie": (lambda: rp.cell_table(ties="any"), {"s": 2, "kappa": "3/4"}),
    "kappa = 1/2 let in": (lambda: rp.cell_table(interval=Interval(closed_below=True)), {"s": 2, "kappa": "1/2"}),
    "kappa up to 7/8": (lambda: rp.cell_table(interval=Interval(high=Fraction(7, 8))), {"s": 3, "kappa": "7/8"}),
    "order Q": (lambda: rp.cell_table(order="Q"), {"s": 2}),
    "order B, kappa = 9/16": (lambda: rp.cell_table(order="B"), {"s": 4, "kappa": "9/16"}),
    "order D": (lambda: rp.cell_table(order="D"), {"s": 2}),
    "toggle, kappa = 1/2": (lambda: rp.cell_table("toggle", interval=Interval(closed_below=True)), {"s": 2, "kappa": "1/2"}),
    "reflection, kappa = 1/2": (lambda: rp.transposition_update(interval=Interval(closed_below=True)), {"s": 2, "kappa": "1/2"}),
}


@pytest.mark.parametrize("name", sorted(REFUTED))
def test_a_dropped_premise_gives_a_counter_model_that_replays(name):
    make, expected = REFUTED[name]
    obligation = make()
    check = obligation.prove()
    assert not check.passed and check.value["answer"] == "sat"
    assert check.counterexample.items() >= expected.items()
    if "any" not in name:
        assert not obligation.replayed().passed


@pytest.mark.parametrize("programs", (
    ((Z, Z), (F, G)), ((Z, Z), (G, G)), ((Z, Z), (F, F)), ((F, F), (G, F)),
))  # fmt: skip
def test_other_programs_are_rejected(programs):
    assert not rp.cell_table(programs=programs).prove().passed


def test_other_intervals_of_kappa_are_rejected():
    assert not rp.kappa_interval(Interval(Fraction(7, 10))).prove().passed
    assert not rp.kappa_interval(Interval(high=Fraction(23, 32)), smallest_s=2).prove().passed
    assert not rp.cell_table(products="wide", interval=Interval(closed_below=True)).prove().passed
    assert not rp.kappa_interval(Interval(high=Fraction(7, 10))).prove().passed
    assert not rp.rounded_once("toggle", Interval(Fraction(1, 2))).prove().passed


def test_a_changed_token_is_refuted(monkeypatch):
    """A weaker write does not reflect, a half-way decay loses the untouched entries, a larger v wakes the zero row."""
    monkeypatch.setattr(rp, "transposition", lambda n, i, j: replace(transposition(n, i, j), beta=Fraction(1, 4)))
    assert not rp.transposition_update("A").prove().passed
    monkeypatch.setattr(rp, "THREE_QUARTERS", Fraction(1, 2))
    assert not rp.untouched("A").prove().passed and not rp.untouched("Q").prove().passed
    monkeypatch.setattr(rp, "SCHEMES", {"doubled": ((Z, Z), (replace(G, value=8), F))})
    assert not rp.zero_absorbs().prove().passed and not rp.seven_fall().prove().passed


def test_premises_that_contradict_each_other_prove_nothing():
    check = rp.cell_table(interval=Interval(Fraction(3, 4), Fraction(1, 2))).prove()
    assert not check.passed and check.value["answer"] == "vacuous"


def test_orders_that_depend_on_s_are_refused():
    with pytest.raises(ValueError, match="depends on s"):
        rp.cell_table(order="C")
    with pytest.raises(ValueError, match="tie rule"):
        rp.cell_table(ties="nearest")
    with pytest.raises(ValueError, match="smallest_s"):
        rp.kappa_interval(smallest_s=5)
    with pytest.raises(ValueError, match="direction"):
        ar = rp.SymbolicCodes()
        ar.l2_norm(ar.array([2, 3]))


@settings(deadline=None)
@given(st.integers(-60, 60), st.integers(1, 12), st.sampled_from(TIE_RULES))
def test_symbolic_rounding_is_the_package_rounding(num, den, ties):
    term = z3.simplify(rp.nearest(z3.Q(num, den), ties))
    assert term.as_long() == int(nearest_ratio(np.array(num), den, ties))


@pytest.mark.parametrize("name", ("doubled cell", "toggle Q"))
def test_smtlib_text_reads_back_and_is_unsat(name):
    text = PROVED[name]().smtlib()
    questions = text.split("(reset)")
    assert len(questions) == 4
    for question in questions:
        solver = z3.Solver()
        solver.from_string(question)
        assert solver.check() == z3.unsat


def breakpoints(largest: int):
    """Where a rounded multiple of kappa can change on (1/2, 3/4]: those points, and one point between each two neighbours."""
    cuts = {Fraction(2 * j + 1, 2 * m) for m in range(1, largest + 1) for j in range(m)} | {Fraction(1, 2), Fraction(3, 4)}
    cuts = sorted(c for c in cuts if Fraction(1, 2) <= c <= Fraction(3, 4))
    return [(a + b) / 2 for a, b in pairwise(cuts)] + cuts[1:]


def test_a_second_proof_by_cases():
    """kappa enters only through [kappa n] with |n| <= 8, so finitely many kappa stand for all of them."""

    def rounded(x):
        return int(nearest_ratio(np.array(x.numerator), x.denominator, "zero"))

    def update(x, u, kappa):
        key = [Fraction(d) * (kappa if sum(map(abs, u.direction)) == 2 else 1) for d in u.direction]
        t = sum(rounded(k * n) for k, n in zip(key, x, strict=True))
        c, w = rounded(u.beta * t), rounded(u.beta * u.value)
        seen.update((abs(c), abs(w), *map(abs, x)))
        return [rounded(u.alpha * (n - rounded(c * k))) + rounded(w * k) for n, k in zip(x, key, strict=True)]

    seen, points = set(), breakpoints(8)
    assert len(points) > 10
    for kappa in points:
        assert [update(update(x, G, kappa), F, kappa) for x in ([0, 1], [1, 0])] == [[1, 0], [0, 1]]
        assert [update(update(x, Z, kappa), Z, kappa) for x in ([0, 1], [1, 0])] == [[0, 1], [1, 0]]
    assert max(seen) <= 8  # no larger multiple of kappa was needed, and far below the largest code 15


def test_replay_agrees_with_the_format_on_the_whole_interval():
    for code in range(33, 49):
        assert check_transitions(ParityCell(FixedPoint(6), kappa=Fraction(code, 64))).passed
