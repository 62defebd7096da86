"""Function composition (paper B, Definition 3.1; Assumptions 3.2 and 3.6)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.rng import Generator
from hybridseq.tasks.function_composition import (
    check_injective,
    check_sensitive,
    equality,
    index,
    inner_product,
    label,
    sample,
    selective_copying,
    sensitivity,
    threshold,
)

INSTANCES = [index(1), index(3), index(2, 3), index(2, 4), inner_product(3), threshold(3), equality(3)]


@pytest.mark.parametrize("task", INSTANCES, ids=lambda t: t.name)
def test_the_reference_instances_are_injective(task):
    assert check_injective(task).passed


COUNTS = [(index(3), 3), (inner_product(3), 7), (threshold(3), 7), (equality(3), 7)]


@pytest.mark.parametrize(("task", "q"), COUNTS, ids=lambda x: getattr(x, "name", str(x)))
def test_number_of_controls(task, q):
    assert len(task.controls) == q
    assert task.table().shape == (8, q)


def test_the_smallest_sets_of_controls():
    assert inner_product(3).smallest_controls().controls == ((0, 0, 1), (0, 1, 0), (1, 0, 0))
    assert len(threshold(3).smallest_controls().controls) == 7
    assert len(equality(3).smallest_controls().controls) == 7


@pytest.mark.parametrize("task", [equality(3), threshold(3), index(3)], ids=lambda t: t.name)
def test_a_dropped_control_breaks_injectivity_and_is_noticed(task):
    check = check_injective(task.with_controls(task.controls[1:]))
    assert not check.passed
    first, second = check.counterexample["payloads"]
    assert first != second
    assert all(task.answer(first, v) == task.answer(second, v) for v in task.controls[1:])


@given(st.integers(1, 5), st.integers(2, 4), st.data())
@settings(deadline=None, max_examples=40)
def test_index_reads_the_named_symbol(m, vocab_size, data):
    task = index(m, vocab_size)
    u = data.draw(st.lists(st.integers(0, vocab_size - 1), min_size=m, max_size=m))
    place = data.draw(st.integers(0, m - 1))
    assert label(task, [*u, *task.controls[place]]) == u[place]


def test_a_control_that_points_nowhere_is_masked():
    assert label(index(3), [0, 1, 1, 1, 1]) is None  # position 4 of 3


def test_selective_copying_reads_the_last_number():
    task = selective_copying(2, 2)  # tokens: #1, #2, a, b
    assert label(task, [0, 2, 2, 3, 2]) == 2
    assert label(task, [1, 2, 2, 3, 2]) == 3
    assert label(task, [2, 1, 3, 0, 3]) == 3
    assert label(task, [2, 3, 1]) == 3  # one before the end
    assert label(task, [2, 3]) is None
    assert label(task, [1]) is None


def test_selective_copying_is_sensitive_to_its_first_token():
    task = selective_copying(2, 2)
    assert sensitivity(task, 6)[0] == 5
    x, other = [0] + [2] * 21 + [3, 2], [1] + [2] * 21 + [3, 2]
    assert check_sensitive(task, x, other, 23).passed


def test_a_pair_that_does_not_agree_or_does_not_differ_is_refused():
    task = selective_copying(2, 2)
    assert not check_sensitive(task, [0, 2, 3, 2], [1, 2, 3, 2], 4).passed
    assert not check_sensitive(task, [0, 2, 2, 2], [1, 2, 2, 2], 3).passed
    assert not check_sensitive(task, [0, 2, 3, 2], [2, 2, 3, 2], 3).passed  # the second has no answer


def test_samples_are_reproducible_and_labelled():
    for first in (True, False):
        x, y = sample(index(3), Generator(1), 50, payload_first=first)
        again, _ = sample(index(3), Generator(1), 50, payload_first=first)
        assert np.array_equal(x, again)
        u, v = (x[:, :3], x[:, 3:]) if first else (x[:, 2:], x[:, :2])
        assert [index(3).answer(a, b) for a, b in zip(u, v, strict=True)] == y.tolist()
    assert len(set(map(tuple, x.tolist()))) > 10


@pytest.mark.parametrize(
    "call",
    [
        lambda: index(0),
        lambda: index(3, 1),
        lambda: equality(True),
        lambda: label(index(3), [0, 1]),
        lambda: label(index(3), [0, 1, 7, 0, 1]),
        lambda: index(3).answer([0, 1, 2], [0, 0]),
        lambda: index(3).with_controls([]),
        lambda: index(3).with_controls([(0, 0), (0, 0)]),
        lambda: index(3).with_controls([(0, 2)]),
        lambda: index(3).with_controls([(1, 1)]).table(),
        lambda: index(3).with_controls([(0, 0)]).smallest_controls(),
        lambda: index(20).table(),
        lambda: sensitivity(index(3), 30),
        lambda: check_sensitive(selective_copying(2, 2), [0, 2, 3], [1, 2, 3], 4),
        lambda: check_sensitive(selective_copying(2, 2), [0, 2, 3], [1, 2], 1),
        lambda: sample(index(3), Generator(0), 0),
    ],
)
def test_bad_input_is_refused_with_its_name(call):
    with pytest.raises(ValueError, match=r".{15,}"):
        call()
