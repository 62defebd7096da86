"""P*(S): the best success that S states allow, by listing, by dynamic programming and by a solver."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction as F
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.bounds.best_success import (
    Code,
    by_codes,
    by_partitions,
    check_codes,
    check_curve,
    check_meets_bound,
    check_solver,
    covering_number,
    hamming_code,
    machine_success,
    optimum,
    solve,
)
from hybridseq.bounds.payload_information import sphere_bound
from hybridseq.tasks.function_composition import equality, index, inner_product, threshold


def fractions(text: str) -> list[F]:
    return [F(word) for word in text.split()]


# first values, then (a + S) / b
GRIDS = {
    (2, 2): ("1/2 3/4 7/8 1", None),
    (3, 2): ("1/2 3/4 19/24 5/6 7/8 11/12 23/24 1", None),
    (4, 2): ("1/2 11/16 3/4 13/16", (48, 64)),
    (2, 3): ("1/3 5/9 2/3", (9, 18)),
    (3, 3): ("1/3 14/27 17/27 2/3 59/81", (54, 81)),
    (2, 4): ("1/4 7/16 9/16 5/8", (16, 32)),
    (5, 2): ("1/2 11/16 29/40 31/40 127/160 33/40 27/32", (128, 160)),
}
COVERING = {(2, 2): 2, (3, 2): 2, (4, 2): 4, (5, 2): 7, (2, 3): 3, (3, 3): 5, (2, 4): 4}


@pytest.fixture(scope="module")
def grids():
    return {grid: optimum(*grid) for grid in GRIDS}


@pytest.mark.parametrize("grid", GRIDS)
def test_the_seven_grids(grids, grid):
    first, line = GRIDS[grid]
    expected = fractions(first)
    if line:
        expected += [F(line[0] + S, line[1]) for S in range(len(expected) + 1, grid[1] ** grid[0] + 1)]
    assert [code.success for code in grids[grid]] == expected
    assert covering_number(grids[grid]) == COVERING[grid]
    assert check_codes(grids[grid]).passed


@pytest.mark.parametrize(
    ("grid", "fewest"),
    [
        ((3, 2), (1, 2, 4, 6, 7, 8, 8)),
        ((4, 2), (1, 3, 4, 10, 13, 16, 16)),
        ((5, 2), (1, 4, 6, 16, 24, 31, 32)),
        ((3, 3), (2, 7, 11, 19, 23, 27, 27)),
    ],
)
def test_fewest_states_for_a_success(grids, grid, fewest):
    targets = fractions("1/2 3/4 4/5 9/10 19/20 99/100 1")
    assert tuple(next(S for S, c in enumerate(grids[grid], 1) if c.success >= t) for t in targets) == fewest


CURVES = {
    inner_product(3): "1/2 37/56 5/7 11/14 23/28 25/28 13/14 1",
    threshold(3): "5/7 6/7 51/56 13/14 53/56 27/28 55/56 1",
    equality(3): "7/8 25/28 51/56 13/14 53/56 27/28 55/56 1",
    index(3): "1/2 3/4 19/24 5/6 7/8 11/12 23/24 1",
}


@pytest.mark.parametrize("task", CURVES, ids=lambda t: t.name)
def test_curves_of_other_tasks(task):
    expected = fractions(CURVES[task])
    assert check_curve(task, expected).passed
    assert not check_curve(task, [expected[0] + F(1, 56), *expected[1:]]).passed
    assert not check_curve(task, expected[:-1]).passed


def test_below_the_covering_number_the_sphere_bound_may_be_met():
    assert by_codes(4, 2, 3).success == F(3, 4) < sphere_bound(4, 2, 3) == F(25, 32)
    for m in (4, 5):
        assert by_codes(m, 2, 2).success == sphere_bound(m, 2, 2)


@given(st.integers(1, 5), st.integers(1, 3), st.integers(2, 3), st.data())
@settings(deadline=None, max_examples=30)
def test_dynamic_programming_agrees_with_all_encoders(num, q, answers, data):
    table = np.array(
        data.draw(st.lists(st.lists(st.integers(0, answers - 1), min_size=q, max_size=q), min_size=num, max_size=num))
    )
    for S, best in enumerate(by_partitions(table), 1):
        assert best == max(machine_success(table, state) for state in product(range(S), repeat=num))


def test_the_two_ways_of_counting_agree():
    for m, v in ((2, 2), (3, 2), (2, 3)):
        assert [c.success for c in optimum(m, v)] == list(by_partitions(index(m, v).table()))


def test_the_solver_agrees_with_the_lists():
    assert check_solver(optimum(4, 2)[:5]).passed
    assert check_solver(optimum(2, 3)[:4]).passed


def test_a_worse_code_is_refused_by_the_solver():
    worse = Code.of(3, 2, [0, 1, 2])
    assert not check_solver([worse]).passed
    better = replace(by_codes(3, 2, 3), distance=4)
    assert not check_solver([better]).passed


def test_changed_codes_are_refused(grids):
    codes = list(grids[3, 2])
    assert not check_codes([codes[0], replace(codes[1], distance=5), *codes[2:]]).passed
    assert (
        check_codes([codes[0], Code.of(3, 2, [0, 1]), *codes[2:]]).value["covering number"] == 3
    )  # a worse code, a later number
    assert not check_codes([codes[0], codes[1], Code.of(3, 2, [0, 1, 2]), *codes[3:]]).passed
    assert not check_codes([codes[0], codes[1], codes[1], *codes[3:]]).passed


def test_hamming_code_is_perfect():
    code = hamming_code()
    assert (len(code.words), code.radius, code.success) == (16, 1, F(7, 8))
    assert check_meets_bound(code).passed
    assert not check_meets_bound(Code.of(7, 2, [*code.words[:-1], 1])).passed
    assert not check_meets_bound(None).passed


@pytest.mark.parametrize(
    "call",
    [
        lambda: by_codes(6, 2, 7),
        lambda: by_codes(3, 2, 0),
        lambda: by_codes(3, 2, 9),
        lambda: by_partitions(np.zeros((11, 2), dtype=int)),
        lambda: Code.of(3, 2, [0, 0]),
        lambda: Code.of(3, 2, [8]),
        lambda: solve(3, 2, 0, 5),
    ],
)
def test_bad_input_is_refused_with_its_name(call):
    with pytest.raises(ValueError, match=r".{15,}"):
        call()
