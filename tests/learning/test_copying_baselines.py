"""Exact scores on selective copying: against enumeration, against counting by hand, and monotone in what is seen."""

from fractions import Fraction

import numpy as np
import pytest

from hybridseq.learning import copying_baselines
from hybridseq.learning.batches import Framed
from hybridseq.learning.copying_baselines import Copying, check_scores
from hybridseq.rng import Generator
from hybridseq.tasks.multi_key_recall import MultiKeyRecall
from hybridseq.tasks.selective_copying import SelectiveCopying


def copying(n, m, count, first, length, density=Fraction(1, 5)):
    return Copying(SelectiveCopying(n, m, count_from=count, first_number=first), length, density)


CASES = [
    (2, 2, "previous", 1, 5),
    (2, 2, "current", 2, 5),
    (3, 1, "previous", 1, 5),
    (1, 2, "current", 1, 6),
    (2, 3, "previous", 2, 5),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("span", [1, 3])
def test_scores_are_exact(case, span):
    assert check_scores(copying(*case), span).passed
    assert check_scores(copying(*case, density=Fraction(3, 4)), span).passed


@pytest.mark.parametrize("name", ["_behind", "_at", "_before"])
def test_a_wrong_case_is_noticed(monkeypatch, name):
    monkeypatch.setattr(copying_baselines, name, lambda reach, age: reach == age + 1)
    copying_baselines._expected_top.cache_clear()
    assert not check_scores(copying(2, 2, "previous", 1, 5), 2).passed
    copying_baselines._expected_top.cache_clear()


def test_one_number_and_one_word_by_hand():
    """Rows # #, # w, w #, w w, a quarter each, #1 counted from the previous token: labels at 2 in the first three rows.

    They are #, # and w. The label's place is known, so the text alone tells it; the number alone tells that it is itself where it
    is one token old, and leaves # or w where it is new: two rows of three.
    """
    two = copying(1, 1, "previous", 1, 2, Fraction(1, 2))
    assert (two.labels, two.own_number, two.constant) == (Fraction(3, 4), Fraction(1, 3), Fraction(2, 3))
    assert (two.near_number(0), two.near_words(0)) == (1, Fraction(2, 3))


@pytest.mark.parametrize("count", ["previous", "current"])
def test_the_ladder_of_the_published_task(count):
    exact = Copying.of(Framed(SelectiveCopying(5, 26, count_from=count, first_number=5), density=0.2))
    numbers, words = ([f(s) for s in range(0, 101, 5)] for f in (exact.near_number, exact.near_words))
    assert exact.any_token == Fraction(1, 31) < exact.constant < words[0] < numbers[0]
    assert numbers == sorted(numbers) and words == sorted(words)
    assert numbers[-1] == words[-1] == 1
    assert exact.near_words(max(exact.reaches) + 1) == 1 > exact.near_words(max(exact.reaches))
    assert exact.older_than(0) == 1 and exact.near_number(20) > 1 - exact.older_than(20)


@pytest.mark.parametrize("case", [(2, 2, "previous", 1, 6), (2, 2, "current", 2, 6), (2, 1, "previous", 2, 6)])
def test_a_window_that_shows_all_candidates_does_as_well_as_all_the_text(case):
    """One who knows the position and sees the last `span` tokens, nothing else; at the largest reach a candidate is hidden."""
    exact = copying(*case)
    enough = max(exact.reaches) + 1
    for span, equal in ((enough, True), (enough + 1, True), (enough - 1, False)):
        sight = {"window": lambda row, i, n, a, span=span: (i, row[max(0, i + 1 - span) : i + 1])}
        found, labels = copying_baselines._enumerated(exact, sight)
        assert (found["window"] / labels == exact.near_number(span)) == equal


def test_labels_and_ages_against_a_large_sample():
    framed = Framed(SelectiveCopying(5, 26, count_from="previous", first_number=5), density=0.2)
    exact = Copying.of(framed)
    rows = framed.task.sample(4000, 100, Generator(5), density=0.2)
    labels, numbers = framed.task.labels(rows), framed.task.last_numbers(rows)
    valid = labels >= 0
    assert valid.sum() / 4000 == pytest.approx(float(exact.labels), abs=0.1)
    assert (labels + 5 == numbers)[valid & (labels < 5)].sum() / valid.sum() >= float(exact.own_number) - 0.003
    counts = np.bincount(labels[valid])
    assert counts.max() / valid.sum() == pytest.approx(float(exact.constant), abs=0.002)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((MultiKeyRecall(2, 2, skip_first=True), 9, Fraction(1, 5)), "must be SelectiveCopying"),
        ((SelectiveCopying(2, 2, count_from="previous"), 0, Fraction(1, 5)), "content_len must be an integer >= 1"),
        ((SelectiveCopying(2, 2, count_from="previous"), 5, Fraction(1)), "density must lie strictly between 0 and 1"),
        ((SelectiveCopying(2, 2, count_from="previous", first_number=9), 5, Fraction(1, 5)), "to copy is 9 back"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        Copying(*arguments)


def test_bad_spans_and_sizes():
    exact = copying(2, 2, "previous", 1, 5)
    for ask in (exact.near_number, exact.near_words, exact.older_than):
        with pytest.raises(ValueError, match="must be an integer >= 0, got -1"):
            ask(-1)
    with pytest.raises(ValueError, match="too many to enumerate"):
        check_scores(copying(2, 2, "previous", 1, 11), 2)
