"""Products of state space layers (paper B, Lemma 3.5), minimal machines, and what the order of reading costs."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.bounds.state_machines import (
    Machine,
    check_index_machine,
    check_minimal,
    check_product,
    count_delayed,
    count_down,
    examples,
    fewest_states,
    index_words,
    library_minimal_count,
    minimise,
    product_machine,
    reachable,
    remember_last,
    remember_prefix,
    run_stack,
)

# states of the product, reachable, minimal, words of length up to 8
TABLE = {"E1": (6, 6, 6, 511), "E2": (4, 2, 2, 511), "E3": (8, 8, 8, 511), "E4": (12, 5, 4, 9841), "E5": (30, 30, 30, 511)}


@st.composite
def machines(draw, letters=None, max_states=5, outputs=2):
    num_letters = letters or draw(st.integers(1, 3))
    num = draw(st.integers(1, max_states))
    row = st.lists(st.integers(0, num - 1), min_size=num_letters, max_size=num_letters)
    step = draw(st.lists(row, min_size=num, max_size=num))
    out = draw(st.lists(st.integers(0, outputs - 1), min_size=num, max_size=num))
    return Machine(step, out, draw(st.integers(0, num - 1)))


def residuals(machine: Machine, longest: int) -> int:
    """Distinct behaviours of reachable states on all words up to a length: the Myhill-Nerode count, by force."""
    words = [w for t in range(longest + 1) for w in product(range(machine.num_letters), repeat=t)]
    behaviour = set()
    for state in reachable(machine):
        started = replace(machine, start=state)
        behaviour.add(tuple(int(started.last([w])[0]) if w else int(machine.out[state]) for w in words))
    return len(behaviour)


@pytest.mark.parametrize("name", TABLE)
def test_the_table_of_the_five_examples(name):
    layers = examples()[name]
    machine = product_machine(layers)
    found = minimise(machine)
    states, reached, minimal, words = TABLE[name]
    assert (machine.num_states, len(reachable(machine)), found.quotient.num_states) == (states, reached, minimal)
    check = check_product(layers)
    assert check.passed
    assert check.cases == words
    assert check_minimal(found).passed
    assert library_minimal_count(machine) == minimal


def test_the_delayed_control_differs():
    assert count_delayed(examples()["E1"]) == (502, 510)


@given(st.data())
@settings(deadline=None, max_examples=30)
def test_the_product_does_what_a_random_stack_does(data):
    first = data.draw(machines(letters=2, outputs=3))
    second = data.draw(machines(letters=3, outputs=2))
    third = data.draw(machines(letters=2, outputs=4))
    layers = (first, second, third)
    machine = product_machine(layers)
    assert machine.num_states == first.num_states * second.num_states * third.num_states
    assert check_product(layers, 5).passed


@given(machines(max_states=6))
@settings(deadline=None, max_examples=40)
def test_minimal_counts_agree_with_the_library_and_with_brute_force(machine):
    found = minimise(machine)
    assert check_minimal(found).passed
    assert found.quotient.num_states == library_minimal_count(machine) == residuals(machine, 5)


def test_a_changed_transition_of_the_product_is_noticed():
    layers = examples()["E1"]
    machine = product_machine(layers)
    for state in range(machine.num_states):
        for letter in range(2):
            other = (machine.step[state, letter] + 1) % machine.num_states
            check = check_product(layers, 8, machine.with_step(state, letter, other))
            assert not check.passed
            word = [check.counterexample["word"]]
            assert run_stack(layers, word)[0, -1] == check.counterexample["stack"]


def test_too_coarse_and_too_fine_machines_are_refused():
    machine = product_machine(examples()["E4"])
    found = minimise(machine)
    coarse = replace(found, image={s: min(c, found.quotient.num_states - 2) for s, c in found.image.items()})
    assert not check_minimal(coarse).passed
    states = reachable(machine)
    place = {s: i for i, s in enumerate(states)}
    same = Machine([[place[t] for t in machine.step[s].tolist()] for s in states], machine.out[states], 0)
    fine = replace(found, quotient=same, image=place)
    assert not check_minimal(fine).passed
    assert not check_minimal(replace(found, separating={})).passed
    target = (found.quotient.step[0, 0] + 1) % found.quotient.num_states
    assert not check_minimal(replace(found, quotient=found.quotient.with_step(0, 0, target))).passed


def test_order_matters():
    assert (remember_prefix(3).num_states, remember_last(3).num_states, count_down(3).num_states) == (17, 8, 6)
    assert check_index_machine(remember_prefix(3), 3, True).passed
    assert check_index_machine(remember_last(3), 3, True).passed
    assert check_index_machine(count_down(3), 3, False).passed
    assert not check_index_machine(count_down(3), 3, True).passed
    assert not check_index_machine(remember_last(3), 3, False).passed
    for m in (1, 2, 4, 5):
        assert remember_prefix(m).num_states == 2 ** (m + 1) + 1
        assert check_index_machine(remember_prefix(m), m, True).passed
        assert check_index_machine(remember_last(m), m, True).passed
        assert check_index_machine(count_down(m), m, False).passed


def test_each_of_these_machines_is_minimal_as_a_total_machine():
    assert [minimise(m).quotient.num_states for m in (remember_prefix(3), remember_last(3), count_down(3))] == [17, 8, 6]


def test_a_lamed_index_machine_is_noticed():
    machine = count_down(3)
    assert not check_index_machine(machine.with_step(2, 0, 2), 3, False).passed
    machine = remember_last(3)
    assert not check_index_machine(machine.with_step(5, 2, 0), 3, True).passed


def test_the_fewest_states_that_answer_the_control_first_inputs():
    words, answers = index_words(3, payload_first=False)
    assert fewest_states(words, answers, 5, 3) is None
    machine = fewest_states(words, answers, 5, 4)
    assert check_index_machine(machine, 3, False).passed
    words, answers = index_words(2, payload_first=True)
    assert fewest_states(words, answers, 4, 3) is None
    assert check_index_machine(fewest_states(words, answers, 4, 4), 2, True).passed


def test_words_and_states():
    machine = examples()["E4"][0]
    assert machine.states([[2, 0, 2, 1]]).tolist() == [[0, 0, 1, 1, 2]]
    assert machine.outputs(np.zeros((2, 0), dtype=int)).shape == (2, 0)
    assert machine.last(np.zeros((1, 0), dtype=int)).tolist() == [0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: Machine([], []),
        lambda: Machine([[0]], [0, 1]),
        lambda: Machine([[1]], [0]),
        lambda: Machine([[0]], [-1]),
        lambda: Machine([[0]], [0], start=1),
        lambda: Machine([[0]], [0]).last([[1]]),
        lambda: Machine([[0]], [0]).last([0]),
        lambda: product_machine([]),
        lambda: run_stack([], [[0]]),
        lambda: product_machine([Machine([[0]], [1]), Machine([[0]], [0])]),
        lambda: remember_prefix(0),
        lambda: count_down(13),
        lambda: index_words(True, True),
        lambda: fewest_states(*index_words(2, True), 4, 0),
    ],
)
def test_bad_input_is_refused_with_its_name(call):
    with pytest.raises(ValueError, match=r".{15,}"):
        call()
