"""Exact baselines of multi-key recall against enumeration, and the sampled rules against slow readings."""

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from hybridseq.learning.recall_baselines import Recall, check_return_time, contested, earlier_matches, scores
from hybridseq.rng import Generator
from hybridseq.tasks.multi_key_recall import MultiKeyRecall


@pytest.mark.parametrize(("num_words", "seq_len"), [(2, 10), (3, 8), (4, 6)])
def test_return_time_is_exact(num_words, seq_len):
    assert check_return_time(num_words, seq_len).passed


def test_a_wrong_recurrence_is_noticed(monkeypatch):
    from hybridseq.learning import recall_baselines

    right = recall_baselines._avoiding
    monkeypatch.setattr(recall_baselines, "_avoiding", lambda m, n, double: right(m, n, not double))
    assert not check_return_time(3, 7).passed


def test_published_numbers():
    recall = Recall(8, 100, skip_first=False)
    assert recall.defined(2) == Fraction(1, 64)
    assert recall.defined(3) == Fraction(15, 512)
    assert abs(float(recall.defined(99)) - 0.786648) < 5e-7
    assert abs(float(recall.labels) - 48.4519) < 5e-5


@pytest.mark.parametrize("skip_first", [False, True])
@pytest.mark.parametrize(("num_words", "content_len"), [(2, 9), (3, 7)])
def test_labels_and_previous_word_by_enumeration(num_words, content_len, skip_first):
    task, recall = MultiKeyRecall(num_words, 2, skip_first=skip_first), Recall(num_words, content_len, skip_first=skip_first)
    rows = np.array(list(product(range(num_words), repeat=content_len)))
    labels = task.labels(rows)
    valid = labels >= 0
    before = np.roll(rows, 1, axis=1)
    assert recall.labels == Fraction(int(valid.sum()), len(rows))
    assert recall.previous_word == Fraction(int((valid & (labels == before)).sum()), int(valid.sum()))
    distance = np.arange(content_len) - task.sources(rows) + 1
    for span in range(2, content_len + 1):
        assert recall.within(span) == Fraction(int((valid & (distance <= span - 2)).sum()), int(valid.sum()))


def test_nothing_beats_the_previous_word_on_the_key_alone():
    """Given the key, the most frequent answer is its first word: counted over all sequences of 8 words of 4 letters."""
    task = MultiKeyRecall(4, 2, skip_first=False)
    counts = np.zeros((16, 4), dtype=np.int64)
    for block in task.every(8):
        labels, keys = task.labels(block), task.keys(block)
        np.add.at(counts, (keys[labels >= 0], labels[labels >= 0]), 1)
    assert (counts.argmax(axis=1) == np.arange(16) // 4).all()
    assert Recall(4, 8, skip_first=False).previous_word == Fraction(int(counts.max(axis=1).sum()), int(counts.sum()))


@pytest.mark.parametrize("skip_first", [False, True])
def test_the_lead_is_strict_at_every_position_of_a_row(skip_first):
    """At each position and for each key that can have a label there, its first word is more frequent than any other word."""
    task = MultiKeyRecall(3, 2, skip_first=skip_first)
    counts = np.zeros((8, 9, 3), dtype=np.int64)  # position, key, label
    for block in task.every(8):
        labels, keys = task.labels(block), task.keys(block)
        row, at = np.nonzero(labels >= 0)
        np.add.at(counts, (at, keys[row, at], labels[row, at]), 1)
    first, total = np.arange(9) // 3, counts.sum(axis=-1)
    mine = np.take_along_axis(counts, np.broadcast_to(first[None, :, None], (8, 9, 1)), axis=-1)
    rest = np.where(np.arange(3) == first[:, None], -1, counts).max(axis=-1)
    assert (total > 0).sum() >= 9 * 4
    assert (mine[..., 0] > rest)[total > 0].all()
    assert (3 * mine[..., 0] > total)[total > 0].all()


def test_the_lead_fades_where_the_beginning_is_far():
    """Two letters: 1/2 and a little more, and less and less as rows grow; a sequence without a beginning gives 1/2."""
    lead = [float(Recall(2, n, skip_first=False).previous_word) - 0.5 for n in (10, 40, 160, 640)]
    assert all(x > 0 for x in lead)
    assert all(4 * later < 1.1 * earlier for earlier, later in pairwise(lead[1:]))


def test_half_a_key_is_no_bound():
    """All rows of 8 words of 2 letters: the words before the last one alone, used in the best way, beat the rule."""
    task = MultiKeyRecall(2, 2, skip_first=False)
    rows = np.array(list(product(range(2), repeat=8)))
    labels, seen = task.labels(rows), defaultdict(lambda: [0, 0])
    for row, answers in zip(rows.tolist(), labels.tolist(), strict=True):
        for i, answer in enumerate(answers):
            if answer >= 0:
                seen[tuple(row[:i])][answer] += 1
    best = Fraction(sum(map(max, seen.values())), sum(map(sum, seen.values())))
    rule = scores(task, rows)["first word of the key only, most frequent answer"]
    assert rule < 0.84
    assert best > Fraction(86, 100)


def test_matches_agree_with_the_task():
    task = MultiKeyRecall(3, 2, skip_first=True)
    rows = task.sample(50, 20, Generator(1))
    match, sources = earlier_matches(task, rows), task.sources(rows)
    latest = np.where(match.any(-1), 19 - match[..., ::-1].argmax(-1), -1)
    assert (latest == sources).all()


def test_contested_by_hand():
    task = MultiKeyRecall(3, 2, skip_first=False)
    #                 a  b  c  a  b  a  b    the key ab was followed by c, then by a
    row = np.array([[0, 1, 2, 0, 1, 0, 1]])
    assert contested(task, row)[0].tolist() == [False] * 6 + [True]


def test_scores_in_their_order():
    task = MultiKeyRecall(8, 2, skip_first=True)
    found = scores(task, task.sample(100, 98, Generator(5)))
    assert found["whole key, latest occurrence"] == 1
    assert found["a word at random"] == pytest.approx(1 / 8)
    assert abs(found["the previous word"] - float(Recall(8, 98, skip_first=True).previous_word)) < 0.02
    half = "last word of the key only, most frequent answer"
    order = ["a word at random", "the previous word", "most frequent word so far", half]
    assert sorted(order, key=found.get) == order
    assert found["what followed the last word, latest"] < found[half]
    assert found["whole key, oldest occurrence"] < found["whole key, any occurrence"] < 1


@pytest.mark.parametrize(
    ("arguments", "name"), [((1, 9, True), "num_words"), ((8, 2, True), "content_len"), ((8, 9, 1), "skip_first")]
)
def test_bad_input(arguments, name):
    with pytest.raises(ValueError, match=name):
        Recall(*arguments)


def test_longer_keys_are_refused():
    with pytest.raises(ValueError, match="key_len"):
        scores(MultiKeyRecall(2, 3, skip_first=False), [[0, 1, 0, 1]])
