"""L-sequential function composition (paper C, Definition 2.5); expected values from the specification."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridseq.tasks.sequential_composition import ORDERS, Instances, SequentialComposition

shapes = st.tuples(st.integers(2, 5), st.lists(st.integers(1, 3), max_size=4).map(tuple))
orders = st.sampled_from(sorted(ORDERS))


def test_seed_0_of_the_reference():
    task = SequentialComposition(4, (2,))
    instances, trace = task.parse(task.sample(0)), task.trace(task.sample(0))
    assert task.seq_len == 14 and instances.w.tolist() == [[1]] and trace.tolist() == [1, 0, 7]
    assert instances.tables[0].tolist() == [[1, 0, 0, 1]] and instances.tables[1][0, :4].tolist() == [7, 3, 6, 4]


def test_seed_3_of_the_long_reference():
    task = SequentialComposition(64, (2,) * 5)
    tokens = task.sample(3)
    assert task.name == "(64; 2,2,2,2,2)" and SequentialComposition(3).name == "(3)"
    assert task.seq_len == 4034 and task.parse(tokens).w.tolist() == [[1, 1, 0, 1, 1]]
    assert task.trace(tokens).tolist() == [19, 62, 46, 122, 201, 1018, 223]


@pytest.mark.parametrize(("m", "n_1", "total"), [(4, 2, 3411), (8, 4, 14914)])
def test_sum_of_a_thousand_answers(m, n_1, total):
    task = SequentialComposition(m, (n_1,))
    assert task.answers(task.sample(np.arange(1000))).sum() == total


@pytest.mark.parametrize(
    ("m", "ns", "count", "each"),
    [(2, (), 8, 4), (3, (), 81, 27), (4, (), 1024, 256), (2, (2,), 4096, 1024), (3, (1,), 2187, 729), (2, (1, 2), 16384, 4096)],
)
@pytest.mark.parametrize("order", ORDERS)
def test_every_answer_is_equally_frequent(m, ns, count, each, order):
    task = SequentialComposition(m, ns, order)
    tokens = np.concatenate(list(task.every(block=1000)))
    assert task.count == count == len(np.unique(tokens, axis=0)) == len(tokens)
    assert np.bincount(task.answers(tokens)).tolist() == [each] * task.num_answers


@given(shapes, orders, st.integers(0, 2**63))
def test_trace_is_the_definition_and_orders_agree(shape, order, seed):
    task = SequentialComposition(*shape, order)
    tokens = task.sample(seed)
    assert tuple(task.trace(tokens).tolist()) == task.solve(tokens) == SequentialComposition(*shape).solve(
        SequentialComposition(*shape).sample(seed)
    )
    assert (task.encode(task.parse(tokens))[0] == tokens).all()


@given(shapes, orders)
def test_what_a_position_says(shape, order):
    task = SequentialComposition(*shape, order)
    assert len(shape[1]) + 1 == task.L and len(task.levels) == task.seq_len == 2 + sum(task.sizes)
    for l in range(1, task.L + 1):
        at = task.segments[l]
        low = task.sizes[l - 2] if l >= 2 else task.m
        assert (task.levels[at] == l).all() and (task.alphabet[at] == task.sizes[l - 1]).all()
        assert (task.arg_w[at] * low + task.arg_i[at] == np.arange(task.sizes[l - 1])).all()
        assert task.arg_i[at].max() < low and task.position(l, 1) == at.start + 1
    assert task.levels[task.position(0)] == 0 and task.levels[task.position(task.L + 1)] == task.L + 1
    records = np.stack([task.levels, task.arg_w, task.arg_i], axis=1)
    assert len(np.unique(records, axis=0)) == task.seq_len


def test_the_three_orders_by_hand():
    one = Instances(np.array([1]), (np.array([[1, 0]]), np.array([[2, 0, 3, 1]])), np.array([[1]]))
    prompts = {order: SequentialComposition(2, (2,), order).encode(one)[0].tolist() for order in ORDERS}
    assert prompts == {
        "std": [2, 0, 3, 1, 1, 0, 1, 1],
        "rev": [1, 1, 1, 0, 2, 0, 3, 1],
        "wfirst": [1, 2, 0, 3, 1, 1, 0, 1],
    }
    assert SequentialComposition(2, (2,)).answers(prompts["std"]) == 3


def test_w_is_the_high_digit_and_w_1_the_lowest_of_its_token():
    task = SequentialComposition(2, (3, 2))
    assert task.sizes == (2, 6, 12) and task.digits(np.arange(6)).tolist() == [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]]
    identity = Instances(np.array([1]), (np.arange(2)[None], np.arange(6)[None], np.arange(12)[None]), np.array([[2, 1]]))
    assert task.trace(task.encode(identity)).tolist() == [[1, 1, 5, 11]]  # 2*2 + 1 = 5, then 1*6 + 5 = 11


def test_functions_lists_all_tables():
    task = SequentialComposition(2, (2,))
    assert task.functions(1).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert len(np.unique(task.functions(2), axis=0)) == 256


def zeros(sizes, w):
    return Instances(np.zeros(1, int), tuple(np.zeros((1, size), int) for size in sizes), np.array([w]))


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: SequentialComposition(1), "m=1"),
        (lambda: SequentialComposition(True), "m=True"),
        (lambda: SequentialComposition(2, (0,)), "n_1=0"),
        (lambda: SequentialComposition(2, 3), "ns=3"),
        (lambda: SequentialComposition(2, (2,), "forward"), "order='forward'"),
        (lambda: SequentialComposition.from_sizes((4, 6)), "6 is no multiple of 4"),
        (lambda: SequentialComposition.from_sizes(()), "sizes"),
        (lambda: SequentialComposition(64, (2,)).every(), "too many"),
        (lambda: SequentialComposition(2).every(0), "block"),
        (lambda: SequentialComposition(2).functions(2), "level=2"),
        (lambda: SequentialComposition(8).functions(1), "too many"),
        (lambda: SequentialComposition(2).position(3), "level=3"),
        (lambda: SequentialComposition(2).position(-1), "level=-1"),
        (lambda: SequentialComposition(2).position(1, 2), "argument=2"),
        (lambda: SequentialComposition(2).check([0, 1, 0]), "tokens"),
        (lambda: SequentialComposition(2).check([0, 2, 0, 0]), "position 1"),
        (lambda: SequentialComposition(2).check([0.0, 1, 0, 0]), "tokens"),
        (lambda: SequentialComposition(2).sample(0.5), "seed"),
        (lambda: SequentialComposition.from_sizes(4), "sizes=4"),
        (lambda: SequentialComposition(2).position(1, 0.5), "argument=0.5"),
        (lambda: SequentialComposition(2).position(True), "level=True"),
        (lambda: SequentialComposition(2).digits(0.5), "number"),
        (lambda: SequentialComposition(2).text(np.zeros((2, 4), int)), "one prompt"),
        (lambda: SequentialComposition(2).solve(np.zeros((2, 4), int)), "one prompt"),
        (lambda: SequentialComposition(2, (2, 2)).encode(zeros((2, 4, 8), [2, 0])), "each digit"),  # would alias w = 0, 1
        (lambda: SequentialComposition(2, (1,)).encode(zeros((3, 1), [0])), "instances: need shapes"),  # lengths add up to 4
    ],
)
def test_bad_input_is_named(make, word):
    with pytest.raises(ValueError, match=word.replace("(", r"\(")):
        make()
