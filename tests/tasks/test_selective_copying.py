"""Selective copying: labels against the definition, both ways of counting, edge cases, generators."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.rng import Generator
from hybridseq.tasks.selective_copying import MASKED, SelectiveCopying


def task(n=3, m=2, count_from="current", **options):
    return SelectiveCopying(n, m, count_from=count_from, **options)


@pytest.mark.parametrize(
    ("count_from", "labels"), [("current", [-1, 3, 1, 4, 4, 3]), ("previous", [-1, -1, 3, 1, 1, 4])]
)
def test_the_sequence_of_the_docstring(count_from, labels):
    """a #2 b a #3 b, worked out by hand."""
    assert task(count_from=count_from).labels([3, 1, 4, 3, 2, 4]).tolist() == labels


def test_number_one_copies_itself_when_it_has_just_been_read():
    assert task().labels([0]).tolist() == [0]
    assert task(count_from="previous").labels([0]).tolist() == [MASKED]


def test_no_number_and_a_distance_beyond_the_sequence_are_masked():
    assert task().labels([3, 4, 3]).tolist() == [-1, -1, -1]
    assert task().labels([2, 3, 4]).tolist() == [-1, -1, 2]
    assert task().answers([[3, 4], [1, 3]]).tolist() == [-1, 1]


def test_the_last_number_counts_not_the_largest():
    assert task().labels([3, 4, 2, 0]).tolist()[-1] == 0


@pytest.mark.parametrize("count_from", ["current", "previous"])
@pytest.mark.parametrize("first", [1, 2, 5])
def test_labels_equal_the_reference_solver_on_all_short_sequences(count_from, first):
    for block in task(count_from=count_from, first_number=first).every(5, block=1000):
        here = task(count_from=count_from, first_number=first)
        assert (here.labels(block) == here.solve(block)).all()


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4), st.sampled_from(["current", "previous"]), st.data())
def test_labels_equal_the_definition(n, m, first, count_from, data):
    here = task(n, m, count_from, first_number=first)
    x = data.draw(st.lists(st.integers(0, n + m - 1), min_size=1, max_size=12))
    for i, label in enumerate(here.labels(x), start=1):
        numbers = [token for token in x[:i] if token < n]
        source = i - (numbers[-1] + first) + (count_from == "current") if numbers else 0
        assert label == (x[source - 1] if numbers and source >= 1 else MASKED)


@pytest.mark.parametrize(
    ("n", "m", "length", "defined"),
    [(1, 2, 4, 65), (2, 2, 6, 4032), (2, 3, 5, 2882), (3, 2, 5, 3093), (3, 3, 5, 7533), (4, 1, 5, 3124), (5, 2, 5, 16775)],
)
def test_defined_answers_of_the_specification(n, m, length, defined):
    here = task(n, m)
    assert sum(int((here.answers(block) != MASKED).sum()) for block in here.every(length)) == defined


def test_every_lists_each_sequence_once():
    rows = np.concatenate(list(task(2, 1).every(4, block=7)))
    assert len(rows) == 81 == len({tuple(row) for row in rows.tolist()})


def test_the_generator_is_a_function_of_its_place():
    a, b = (task(5, 26).sample(3, 50, Generator(1), density=0.2) for _ in range(2))
    assert (a == b).all()
    assert (a != task(5, 26).sample(3, 50, Generator(2), density=0.2)).any()


def test_density_is_the_share_of_numbers():
    x = task(5, 26).sample(200, 500, Generator(0), density=0.2)
    assert abs((x < 5).mean() - 0.2) < 0.005
    assert (task(5, 26).sample(9, 9, Generator(0), density=0.0) >= 5).all()


def test_one_number_stands_early():
    x = task(4, 3).sample_one_number(50, 40, Generator(0), before=4)
    assert ((x < 4).sum(axis=1) == 1).all() and (np.argmax(x < 4, axis=1) < 4).all()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: task(0), "num_numbers"),
        (lambda: task(3, 0), "num_words"),
        (lambda: task(first_number=0), "first_number"),
        (lambda: task(count_from="last"), "count_from"),
        (lambda: task().labels([5]), "tokens"),
        (lambda: task().labels([-1]), "tokens"),
        (lambda: task().labels([]), "tokens"),
        (lambda: task().labels([0.5]), "tokens"),
        (lambda: task().sample(0, 4, Generator(0)), "num"),
        (lambda: task().sample(4, 0, Generator(0)), "seq_len"),
        (lambda: task().sample(4, 4, Generator(0), density=1.5), "density"),
        (lambda: task().sample_one_number(4, 4, Generator(0), before=5), "before"),
        (lambda: next(task().every(40)), "seq_len"),
        (lambda: next(task().every(3, block=0)), "block"),
    ],
)
def test_bad_input_is_refused_by_name(make, named):
    with pytest.raises(ValueError, match=named):
        make()


def test_the_way_of_counting_has_no_default():
    with pytest.raises(TypeError, match="count_from"):
        SelectiveCopying(3, 2)
