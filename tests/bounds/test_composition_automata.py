"""Exact state counts of pure recurrences on composition: closed form, smallest machines, a plain trie, wrong machines."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import log2

import numpy as np
import pytest

from hybridseq.bounds.composition_automata import (
    LayeredAutomaton,
    check_automaton,
    check_profile,
    minimal_automaton,
    stirling,
    two_function_peak,
    two_function_profile,
)
from hybridseq.bounds.composition_bounds import Budget, OneFullLayer, table_bits
from hybridseq.tasks.sequential_composition import SequentialComposition

PROFILES = {
    (2, (1,), "std"): [1, 2, 4, 6, 4, 2, 2],
    (3, (1,), "std"): [1, 3, 9, 27, 57, 129, 27, 3, 3],
    (4, (), "std"): [1, 4, 16, 64, 256, 4, 4],
    (4, (), "rev"): [1, 1, 4, 7, 6, 5, 4],
    (3, (1,), "rev"): [1, 1, 3, 5, 4, 3, 5, 4, 3],
}


@pytest.mark.parametrize("case", PROFILES)
def test_profiles(case):
    task = SequentialComposition(*case)
    assert minimal_automaton(task).profile == PROFILES[case]
    assert check_automaton(task).passed


def residuals(task):
    """Distinct residual functions at each depth by a dictionary of tuples, prefix by prefix."""
    answers = {tuple(p): int(a) for block in task.every() for p, a in zip(block.tolist(), task.answers(block), strict=True)}
    profile, level = [len(set(answers.values()))], answers
    for depth in range(task.seq_len - 1, -1, -1):
        rows: dict = {}
        for word, label in level.items():
            rows.setdefault(word[:depth], {})[word[depth]] = label
        numbers: dict = {}
        level = {w: numbers.setdefault(tuple(sorted(row.items())), len(numbers)) for w, row in rows.items()}
        profile.append(len(numbers))
    return profile[::-1]


@pytest.mark.parametrize("order", ["std", "rev", "wfirst"])
@pytest.mark.parametrize("sizes", [(2,), (3,), (2, (1,)), (2, (2,)), (2, (1, 1))])
def test_against_a_plain_trie(sizes, order):
    task = SequentialComposition(*sizes, order=order)
    assert minimal_automaton(task).profile == residuals(task)


def test_peaks():
    assert [two_function_peak(*s) for s in ((4, 1), (2, 3), (3, 2))] == [6100, 93096, 400716]
    assert minimal_automaton(SequentialComposition(5)).peak == 5**5
    assert minimal_automaton(SequentialComposition(2, (1, 1))).peak == 6
    assert minimal_automaton(SequentialComposition(4, (1,))).peak == 6100


@pytest.mark.parametrize("sizes", [(2, 1), (3, 1), (4, 1), (2, 2), (2, 3)])
def test_the_closed_form_is_the_count(sizes):
    m, n_1 = sizes
    check = check_profile(SequentialComposition(m, (n_1,)), two_function_profile(m, n_1))
    assert check.passed and max(two_function_profile(m, n_1)) == two_function_peak(m, n_1)


def test_a_wrong_closed_form_is_noticed():
    profile = two_function_profile(2, 2)
    assert not check_profile(SequentialComposition(2, (2,)), [*profile[:5], profile[5] - 1, *profile[6:]]).passed


def test_stirling_by_listing_maps_onto():
    for n, k in product(range(1, 6), range(1, 6)):
        onto = sum(len(set(f)) == k for f in product(range(k), repeat=n))
        assert onto == stirling(n, k) * np.prod(range(1, k + 1))
    assert stirling(0, 0) == 1 and stirling(3, 0) == 0


@pytest.mark.parametrize("sizes", [(4,), (3, (1,)), (2, (2,)), (2, (1, 1))])
def test_the_easy_order_needs_few_states(sizes):
    """2 N_{L-1} - 1: inside the last table, the value already found or the argument still to come."""
    task = SequentialComposition(*sizes)
    easy = minimal_automaton(task.with_order("rev"))
    assert easy.peak == 2 * task.sizes[-1] - 1 < minimal_automaton(task).peak
    assert check_automaton(task.with_order("rev"), easy).passed


def test_e1_is_the_peak_and_e2_does_not_refuse_the_machine():
    for m in range(2, 6):
        assert minimal_automaton(SequentialComposition(m)).bits == table_bits(m)
    for m, n_1 in product(range(2, 8), range(1, 8)):
        bits = (two_function_peak(m, n_1) - 1).bit_length()
        assert bits >= m * log2(m)
        assert not OneFullLayer(m, n_1, Budget(bits, 0, 0)).holds and not OneFullLayer(m, n_1, Budget(0, bits, 0)).holds


def test_wrong_machines_are_refused():
    task = SequentialComposition(2, (2,))
    right = minimal_automaton(task)
    assert check_automaton(task, right).passed
    step = right.steps[4].copy()
    step[3, 1] = (step[3, 1] + 1) % len(right.steps[5])
    wrong = replace(right, steps=(*right.steps[:4], step, *right.steps[5:]))
    assert "prompt" in check_automaton(task, wrong).counterexample
    # a machine that is right but keeps one state twice
    twice = np.concatenate([right.steps[5], right.steps[5][:1]])
    before = right.steps[4].copy()
    before[np.argwhere(before == 0)[0][0], np.argwhere(before == 0)[0][1]] = len(right.steps[5])
    idle = LayeredAutomaton((*right.steps[:4], before, twice, *right.steps[6:]), right.answers)
    check = check_automaton(task, idle)
    assert not check.passed and check.counterexample["depth"] == 5


def test_bad_input():
    with pytest.raises(ValueError, match="n_1=0"):
        two_function_profile(2, 0)
    with pytest.raises(ValueError, match="too many"):
        minimal_automaton(SequentialComposition(4, (4,)))
    with pytest.raises(ValueError, match="shape"):
        minimal_automaton(SequentialComposition(2)).run(np.zeros((3, 9), dtype=int))
    for letter in (-1, 2):
        with pytest.raises(ValueError, match="integers from 0"):
            minimal_automaton(SequentialComposition(2)).run([[letter, 0, 0, 0]])
    with pytest.raises(ValueError, match="n=-1"):
        stirling(-1, 2)
