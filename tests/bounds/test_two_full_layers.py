"""E3a, E3a with trailing recurrence, E3b and the bits of a query: tables, certified minima, wrong inequalities."""

from __future__ import annotations

from itertools import combinations, product
from math import ceil, log2

import pytest

from hybridseq.bounds.composition_bounds import check_bounds, solving_budgets
from hybridseq.bounds.two_full_layers import (
    THREE_FUNCTIONS_TABLE,
    TRAILING_TABLE,
    TWO_LAYERS_TABLE,
    BitsAQuery,
    RecurrenceAfterTwo,
    ThreeFunctions,
    TwoFullLayers,
    covered_pairs,
    smallest_bits_a_query,
    smallest_two_full_layers,
)

LENGTHS = {4: 57, 8: 534, 10: 1692, 12: 2786, 16: 6267, 24: 20610, 32: 48782}


# E3a ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("b", LENGTHS)
def test_the_table_of_two_full_layers(b):
    bound = TwoFullLayers(*TWO_LAYERS_TABLE[b], accumulator=b)
    assert bound.length == LENGTHS[b] and bound.holds and bound.slack > 0


def test_the_row_of_twelve_bits():
    bound = TwoFullLayers(464, 5, 116, 4, 12)
    assert (bound.pairs, bound.queries) == (325, 5)
    assert bound.slack == pytest.approx(5 * 325 * log2(2320) - 12 * (464 + 464 + 5 + 580))


@pytest.mark.parametrize("b", [4, 8, 10, 12])
def test_minima_over_all_parameters(b):
    found = smallest_two_full_layers(b)
    assert found.proved_minimal and found.bound.length == LENGTHS[b] and found.bound.holds


def test_the_search_agrees_with_every_parameter_tried():
    """b = 2, 3: all (m, n_1, q, s, r) with n below the minimum, in integers."""
    for b in (2, 3):
        least = smallest_two_full_layers(b).bound.length
        shortest = None
        for m in range(2, least):
            for n_1 in range(1, (least - 2) // m):
                for q, s in product(range(1, n_1 + 1), range(1, m + 1)):
                    for r in range(1, m // s + 1):
                        X = max(s, ceil(s * r * 2 ** (-b * q / s) - 1e-9))
                        if (m * n_1) ** (q * X) > 2 ** (b * (m + s * r + q + q * s)):
                            shortest = min(shortest or least, 2 + m * (1 + n_1))
        assert shortest == least


def test_equality_is_no_proof():
    """(m, n_1) = (16, 32), b = 8, s = 16, r = 1: gain and cost are both 4608."""
    bound = TwoFullLayers(16, 32, 16, 1, 8)
    assert bound.slack == 0 and not bound.holds


def solvers_of_two_functions(m, n_1):
    """(b, S_post) with which FF R* solves (m; n_1), each layer's accumulator no longer than b.

    (1) w collects all of z_1 and z_0, then fetches z_2(w, i_1). (2) One layer: w collects the row z_2(w, .), then composes.
    (3) The token a of z_1 collects z_2(., z_1(a)), w fetches z_0; then w reads what the token z_0 holds.
    """
    value, start = (m * n_1 - 1).bit_length(), (m - 1).bit_length()
    return [(max(m * start + start, value + 1), 0), (2 * m * value + start, 0), (max(n_1 * value + 1, start), 0)]


def refused(bound):
    """A solver's budget that an instance of `bound` refuses, or None."""
    for m, n_1 in [*product(range(2, 9), range(1, 30)), *product((32, 64), (1, 2))]:
        for b, after in solvers_of_two_functions(m, n_1):
            for s in range(1, m + 1):
                for r in range(1, m // s + 1):
                    if bound(m, n_1, s, r, b, after).holds:
                        return m, n_1, s, r, b
    return None


def test_no_solver_is_refused():
    assert refused(lambda m, n_1, s, r, b, after: TwoFullLayers(m, n_1, s, r, b)) is None
    assert refused(lambda m, n_1, s, r, b, after: RecurrenceAfterTwo(m, n_1, s, r, 2, b, after)) is None


@pytest.mark.parametrize("part", ["tokens of z_1", "queries of the second layer"])
def test_wrong_inequalities_are_noticed(part):
    class Wrong(TwoFullLayers):
        def constant(self):
            b, s, q = self.accumulator, self.starts, self.queries
            missing = self.m + self.starts * self.values if part == "tokens of z_1" else q * s
            return super().constant() - b * missing

    assert refused(lambda m, n_1, s, r, b, after: Wrong(m, n_1, s, r, b)) is not None


# recurrence after the last full layer -------------------------------------------------------------------------------------


def test_the_table_of_trailing_recurrence():
    bounds = [RecurrenceAfterTwo(*row) for row in TRAILING_TABLE]
    assert check_bounds(bounds, "E3a with recurrence after it").passed
    assert [(b.accumulator, b.after, b.length) for b in bounds] == [
        (8, 8, 602),
        (16, 16, 28842),
        (16, 64, 29052),
        (32, 160, 262748),
    ]


def test_recurrence_costs_no_less_than_none():
    """With one state and as many functions as pairs, the corollary is never stronger than E3a with the pairs it covers."""
    for s, r, k in product((2, 5, 9), (1, 2, 3), (1, 2, 4)):
        trailing = RecurrenceAfterTwo(s * r, 6, s, r, k, 3, 0)
        assert trailing.pairs <= s * r and trailing.pairs >= s


@pytest.mark.parametrize(("s", "r"), [(2, 2), (3, 2), (2, 3), (1, 5)])
@pytest.mark.parametrize("members", [1, 2])
def test_covered_pairs_exhaustively(s, r, members):
    """Every class of up to all r^s functions: the promised pairs are covered by some members."""
    vectors = [frozenset(enumerate(v)) for v in product(range(r), repeat=s)]
    for size in range(1, len(vectors) + 1):
        bits = next(d for d in range(20) if size * 2**d >= len(vectors))  # density >= 2^-bits
        promised = covered_pairs(s, r, bits, members)
        for chosen in combinations(vectors, size):
            if max(len(frozenset().union(*pick)) for pick in combinations(chosen, min(members, size))) < promised:
                raise AssertionError((size, bits, promised, chosen))


# E3b ---------------------------------------------------------------------------------------------------------------------


def test_the_table_of_three_functions():
    bounds = [ThreeFunctions(*row) for row in THREE_FUNCTIONS_TABLE]
    assert check_bounds(bounds, "E3b").passed
    lengths = [1.19e11, 3.87e11, 2.63e12, 3.99e14, 1.79e16]
    assert [b.length for b in bounds[:5]] == pytest.approx(lengths, rel=3e-3)
    assert bounds[0].x_1 == 1164


def test_each_term_of_three_functions_by_hand():
    bound = ThreeFunctions(5, 4, 3, first_functions=2, starts=1, second_functions=2, accumulator=7, gaps=(1, 2, 4))
    Q = 2 * 5 + 1 + 1 * 12
    assert bound.first_queries == Q and bound.length == 2 + 5 + 20 + 60
    assert bound.constant() == 1 + 2 + 7 * (Q + 2 * 20 + 2 * 1 + 2 * 1 * 12) + 2 * 2 * 4
    assert bound.terms() == [(3 * bound.x_2, 60), (-2 * 4 * bound.x_1, 20)]


def test_three_functions_refuse_no_solver():
    """z_3 held by the state before everything; z_2 and z_1 held by it, then one value fetched."""
    for m, n_1, n_2 in product((2, 3, 5), (1, 2, 6), (1, 4, 20)):
        N_1, N_2 = m * n_1, m * n_1 * n_2
        value = (N_2 - 1).bit_length()
        lower = N_1 * (N_1 - 1).bit_length() + m * (m - 1).bit_length() + value
        for gaps, b in (((N_2 * value + lower, 0, 0), 0), ((lower, 0, 0), value + 1)):
            for k_1, k_2 in product((1, 2), (1, 3)):
                assert not ThreeFunctions(m, n_1, n_2, k_1, 1, k_2, b, gaps).holds


# bits of a query ----------------------------------------------------------------------------------------------------------


def test_a_query_brings_few_bits():
    lengths = {b: smallest_bits_a_query(3, 2, b, 3 * b).length for b in (8, 12, 16, 20, 24)}
    assert lengths[8] == pytest.approx(6.6e4, rel=0.01) and lengths[12] == pytest.approx(1.7e7, rel=0.02)
    assert lengths[16] == pytest.approx(4.4e9, rel=0.03) and lengths[20] == pytest.approx(1.1e12, rel=0.01)
    assert lengths[24] == pytest.approx(2.9e14, rel=0.03)


def test_the_bits_of_a_query_refuse_no_solver():
    for m, n_1 in product(range(2, 12), range(1, 40)):
        for budget in solving_budgets(m, n_1).values():
            assert not BitsAQuery(m, (n_1,), 1, budget.accumulator, budget.before + budget.after).holds


def test_which_bound_for_three_functions_is_shorter():
    """From b of about 18 on E3b; for 2^31 bits of state and 16 bits of accumulator the bits of a query, by far."""
    first, last = (ThreeFunctions(*THREE_FUNCTIONS_TABLE[i]) for i in (0, 4))
    assert first.length < smallest_bits_a_query(3, 2, 20, 60).length
    simple = smallest_bits_a_query(3, 2, 16, 3 * 2**31)
    assert simple.holds and simple.length == 10258200762 < last.length / 10**6


def test_the_least_is_the_least():
    for functions, f, b, S in [(2, 1, 1, 0), (2, 1, 3, 10), (3, 2, 2, 5), (3, 1, 4, 0), (2, 0, 0, 7)]:
        least = smallest_bits_a_query(functions, f, b, S)
        assert least.holds
        assert not any(BitsAQuery(2, (*least.ns[:-1], n), f, b, S).holds for n in range(1, least.ns[-1]))


# bad input ---------------------------------------------------------------------------------------------------------------


def test_bad_instances():
    for make in (
        lambda: TwoFullLayers(10, 3, 6, 2, 4),
        lambda: TwoFullLayers(10, 3, 5, 2, 4, queries=4),
        lambda: TwoFullLayers(10, 3, 5, 2, 0),
        lambda: RecurrenceAfterTwo(10, 3, 5, 2, 0, 4, 4),
        lambda: RecurrenceAfterTwo(10, 3, 5, 2, 1, 4, -1),
        lambda: ThreeFunctions(5, 4, 3, 1, 6, 1, 4, (1, 1, 1)),
        lambda: ThreeFunctions(5, 4, 3, 1, 1, 1, 4, (1, 1)),
        lambda: BitsAQuery(2, (), 1, 1, 1),
        lambda: smallest_bits_a_query(1, 1, 1, 1),
        lambda: smallest_two_full_layers(0),
        lambda: covered_pairs(0, 1, 1, 1),
    ):
        with pytest.raises(ValueError, match="="):
            make()
