"""Lemmas E1, E1', E2, E2': values of the specification, certified minima, and wrong inequalities that are noticed."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product
from math import ceil, comb, log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.bounds.composition_bounds import (
    Budget,
    IntegerBudget,
    OneFullLayer,
    SeveralStarts,
    check_against_upper_side,
    check_bounds,
    composition_instance,
    largest_size,
    smallest_one_full_layer,
    smallest_table,
    sufficient_length,
    table_bits,
    union_size,
)
from hybridseq.bounds.logarithms import as_float, ceil_scaled, exceeds

SEVERAL = [  # m, n_1, s, k, budget, n, x
    (1514, 4, 97, 11, Budget(1000, 1000, 16), 7572, 394),
    (183134, 9, 713, 232, Budget(33792, 33792, 1056), 1831342, 83455),
    (88961, 3, 5301, 9, Budget(65536, 65536, 16), 355846, 18664),
    (3738236, 4, 120501, 19, Budget(2359296, 2359296, 72), 18691182, 963066),
    (10, 3, 1, 6, Budget(8, 8, 8), 42, 6),
]


# logarithms --------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(1, 200), st.integers(0, 400))
@settings(deadline=None)
def test_one_logarithm_is_decided_as_integers_decide_it(c, b, bits):
    assert exceeds([(c, b)], bits) == (b**c > 2**bits)


def test_equality_is_no_gain():
    assert not exceeds([(3, 8)], 9) and exceeds([(3, 8)], Fraction(899, 100))
    assert not exceeds([(2, 3), (-1, 9)]) and not exceeds([(6, 6), (-3, 36)]) and not exceeds([(2, 12), (-1, 9)], 4)
    assert exceeds([(1, 2**200 + 1)], 200) and not exceeds([(-1, 2**200 + 1)], -200)
    assert as_float([(1, 8)], 1) == 2


@given(st.integers(1, 5000), st.integers(0, 60), st.integers(1, 12))
@settings(deadline=None)
def test_ceil_scaled(number, p, q):
    x = ceil_scaled(number, Fraction(p, q))
    assert x**q * 2**p >= number**q and (x == 1 or (x - 1) ** q * 2**p < number**q)


def test_bad_logarithms():
    with pytest.raises(ValueError, match="base=0"):
        exceeds([(1, 0)])
    with pytest.raises(ValueError, match="bits=Fraction"):
        ceil_scaled(3, -1)


# E1 ----------------------------------------------------------------------------------------------------------------------


def test_tables():
    assert [smallest_table(S) for S in (100, 1000, 10_000, 100_000)] == [23, 141, 1003, 7741]
    assert [table_bits(m) for m in range(1, 6)] == [0, 2, 5, 8, 12]
    assert smallest_table(2) == 3 and smallest_table(0) == 2  # 2 log2 2 = 2 is no more than 2


# E2 ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "row"),
    [
        (Budget(1, 1, 1), (8, 2, 2, 2)),
        (Budget(8, 8, 8), (42, 10, 3, 6)),
        (Budget(24, 24, 12), (121, 17, 6, 7)),
        (Budget(64, 64, 32), (482, 40, 11, 14)),
        (Budget(160, 160, 40), (1612, 70, 22, 15)),
    ],
)
def test_smallest_prompts(budget, row):
    found = smallest_one_full_layer(budget)
    assert found.row == row and found.proved_minimal and found.bound.holds


def _plain_search(budget, limit):
    """Every (m, n_1, x_1) with floats, one by one; exact integers where a float is close to 0."""
    for n in range(4, limit + 1):
        for m in range(2, (n - 2) // 2 + 1):
            if (n - 2) % m:
                continue
            n_1, b = (n - 2) // m - 1, budget.at(n)
            for x in range(1, ceil(m * 2 ** (-b.before / m) - 1e-9) + 1):
                cost = b.before + x * b.after + b.accumulator * (1 + n_1)
                if (m * n_1) ** (n_1 * x) > 2**cost:
                    return n
    return None


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 5))
@settings(deadline=None, max_examples=25)
def test_the_search_finds_what_a_plain_search_finds(before, after, b):
    budget = Budget(before, after, b)
    found, plain = smallest_one_full_layer(budget, limit=60), _plain_search(budget, 60)
    assert (found and found.bound.length) == plain


@pytest.mark.parametrize(("sizes", "n"), [((1, 0, 0), 20), ((2, 1, 0), 23), ((1, 0, 1), 104), ((2, 1, 1), 156)])
def test_integer_models_with_their_own_accumulators(sizes, n):
    p, g, layers = sizes
    budget = IntegerBudget(p, g, layers_before=layers, layers_after=layers)
    found = smallest_one_full_layer(budget)
    assert found.bound.length == n and found.bound.budget == budget.at(n)
    assert _plain_search(budget, n - 1) is None


def test_numbers_of_eight_bits():
    budget = Budget.of_layers(8, layers_before=1, layers_after=1)
    assert budget == Budget(16, 16, 16) and smallest_one_full_layer(budget).bound.length == 92
    assert Budget.of_layers(8, dim=8, layers_before=4096, layers_after=4096) == Budget(2359296, 2359296, 72)


def test_slack():
    budget = Budget(24, 24, 12)
    assert OneFullLayer(17, 6, budget).slack == pytest.approx(4.241864, abs=1e-6)
    assert OneFullLayer(16, 8, budget).slack == 60 and OneFullLayer(16, 8, budget).x_1 == 6


def test_large_budgets():
    exact = smallest_one_full_layer(Budget(33792, 33792, 1056), limit=1 << 24)
    assert exact.proved_minimal and exact.row == (12323372, 6990, 1762, 246)
    grid = smallest_one_full_layer(Budget(33792, 33792, 1056), limit=1 << 24, grid=0.01)
    assert not grid.proved_minimal and exact.bound.length <= grid.bound.length < 1.01 * exact.bound.length
    assert smallest_one_full_layer(Budget(2359296, 2359296, 72), 1 << 36, 0.01).bound.length == pytest.approx(1.45e10, rel=0.01)


def test_an_accumulator_of_sixteen_bits_fails_already_because_a_query_brings_too_little():
    """x_1 = 1: at n_1 log2 N_1 > S_pre + S_post + b (1 + n_1) one pair (z_1, z_0) is enough; shorter than the table's 2.2e7."""
    found = smallest_one_full_layer(Budget(65536, 65536, 16))
    assert found.row == (179936, 2, 89966, 1) and found.proved_minimal
    assert 89966 * log2(2 * 89966) > 2 * 65536 + 16 * 89967


def test_no_solver_is_refused():
    assert check_against_upper_side().passed


@pytest.mark.parametrize("dropped", ["before", "after", "accumulator", "range"])
def test_wrong_inequalities_are_noticed(dropped):
    class Wrong(OneFullLayer):
        def constant(self):
            b = self.budget
            parts = {"before": b.before, "after": self.x_1 * b.after, "accumulator": b.accumulator * (1 + self.n_1)}
            return sum(v for k, v in parts.items() if k != dropped)

        @property
        def most_values(self):
            return self.m if dropped == "range" else super().most_values

    check = check_against_upper_side(bound=Wrong)
    if dropped == "range":  # x_1 = m for any state: refused only where it matters
        wrong = Wrong(40, 1, Budget(160, 0, 1))
        assert wrong.holds and not OneFullLayer(40, 1, Budget(160, 0, 1)).holds
    else:
        assert not check.passed and check.counterexample["word"]


def test_bad_instances():
    for make in (
        lambda: OneFullLayer(1, 3, Budget(1, 1, 1)),
        lambda: OneFullLayer(10, 3, Budget(8, 8, 8), x_1=7),
        lambda: OneFullLayer(10, 3, Budget(8, 8, 8), x_1=0),
        lambda: Budget(-1, 0, 0),
        lambda: Budget(1.5, 0, 0),
        lambda: IntegerBudget(0, 0),
        lambda: SeveralStarts(5, 3, starts=6, functions=1, budget=Budget(1, 1, 1)),
        lambda: smallest_one_full_layer(Budget(1, 1, 1), limit=1 << 30),
        lambda: smallest_one_full_layer(Budget(1, 1, 1), grid=2.0),
        lambda: union_size(10, 2, -1, 3),
    ):
        with pytest.raises(ValueError, match="="):
            make()


# E2' ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n_1", "s", "k", "budget", "n", "x"), SEVERAL)
def test_several_starts(m, n_1, s, k, budget, n, x):
    bound = SeveralStarts(m, n_1, s, k, budget)
    assert (bound.length, bound.values, bound.holds) == (n, x, True)


def test_one_start_is_lemma_e2():
    for m, n_1 in product(range(2, 12), range(1, 6)):
        first = OneFullLayer(m, n_1, Budget(3, 2, 4))
        for k in range(1, first.most_values + 1):
            several = SeveralStarts(m, n_1, 1, k, Budget(3, 2, 4))
            assert several.slack == pytest.approx(OneFullLayer(m, n_1, Budget(3, 2, 4), k).slack)


def test_several_starts_refuse_no_solver():
    for s, k in product((1, 2, 3), (1, 2, 4)):
        assert check_against_upper_side(9, 9, lambda m, n_1, b, s=s, k=k: SeveralStarts(m, n_1, min(s, m), k, b)).passed


def test_check_bounds_names_the_one_that_fails():
    good, bad = OneFullLayer(10, 3, Budget(8, 8, 8)), OneFullLayer(10, 3, Budget(9, 9, 9))
    assert check_bounds([good], "E2").passed
    check = check_bounds([good, bad], "E2")
    assert not check.passed and "Budget(before=9" in check.counterexample["instance"]


def _smallest_best_union(values, places, size, members):
    """min over classes of that size of the largest union that `members` of them can have. Exhaustive."""
    vectors = [frozenset(v) for v in product(range(values), repeat=places)]
    least = values
    for chosen in combinations(range(len(vectors)), size):
        best = max(len(frozenset().union(*(vectors[i] for i in pick))) for pick in combinations(chosen, min(members, size)))
        least = min(least, best)
    return least


@pytest.mark.parametrize(("values", "places"), [(2, 2), (3, 2), (2, 3), (4, 1), (7, 1)])
@pytest.mark.parametrize("members", [1, 2, 3])
def test_union_fact_exhaustively(values, places, members):
    """Every class of every size: the promised union exists (the fact is not vacuous where the density is near 1)."""
    total = values**places
    for size in range(1, total + 1):
        if comb(total, size) > 20_000:
            continue
        density = Fraction(-log2(size / total)).limit_denominator(10**6) + (Fraction(1, 10**6) if size < total else 0)
        assert union_size(values, places, density, members) <= _smallest_best_union(values, places, size, members)


def test_union_fact_on_adversarial_classes():
    """A class that avoids new values as well as it can (all vectors over a sub-alphabet) bounds what can be promised."""
    for values, places, alphabet in [(40, 10, 12), (60, 12, 20), (30, 20, 6)]:
        density = Fraction(places * log2(values / alphabet)).limit_denominator(10**9) + Fraction(1, 10**8)
        for members in (1, 2, 5):
            assert union_size(values, places, density, members) <= min(alphabet, members * places)


def test_union_grows_and_ends():
    sizes = [union_size(100, 10, 3, k) for k in range(1, 40)]
    assert sizes == sorted(sizes) and sizes[-1] <= 100 and sizes[0] >= 1
    assert union_size(100, 10, 10**6, 5) == 0
    assert union_size(100, 10, 0, 20) == 100


def test_some_coordinates_keep_their_share():
    """The step of E2' that uses Han's inequality: among 3 coordinates some s keep a projection of size >= |C|^(s/3)."""
    rng = np.random.default_rng(0)
    vectors = np.array(list(product(range(3), repeat=3)))
    for size in range(1, 28):
        for _ in range(40):
            chosen = vectors[rng.permutation(27)[:size]]
            for s in (1, 2, 3):
                largest = max(len({tuple(v) for v in chosen[:, list(A)]}) for A in combinations(range(3), s))
                assert largest**3 >= size**s


# the general statement ---------------------------------------------------------------------------------------------------


def test_what_the_general_statement_needs():
    assert (sufficient_length(2, 64), sufficient_length(3, 64), sufficient_length(2, 65536)) == (6144, 98304, 16384)
    assert sufficient_length(2, 8) == 3072
    assert largest_size(2, 1 << 20) == pytest.approx(2 ** (20 / 1024)) and 1 < largest_size(3, 1 << 20) < 1.00085
    two, three = composition_instance(2, 64), composition_instance(3, 64)
    assert (two.K, two.m, two.ns, two.domains[1]) == (80, 800, (320,), 1120)
    assert abs(three.K - 114.68) < 5e-3 and three.domains[2] == pytest.approx(110 * three.K)
    assert three.domains[2] == pytest.approx(12614.8, abs=0.05)


def test_the_instance_is_shorter_than_the_statement_needs_only_for_large_sizes():
    """L = 1 never: log2 n = 16 h + 12 > 16 h. L = 2 from Hdp = 9 on: 112 h + 448 < 256 h."""
    for size in range(1, 200):
        one, two = composition_instance(1, size), composition_instance(2, size)
        assert one.domains[0] == pytest.approx(16 * log2(size) + 12)
        assert (two.domains[1] < log2(size) * 2**8) == (size >= 9)
