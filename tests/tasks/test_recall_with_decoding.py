"""Recall with decoding: labels by hand, the reference solver on all short sequences, counts, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridseq.rng import Generator
from hybridseq.tasks.recall_with_decoding import MASKED, RecallWithDecoding


def test_the_sequence_of_the_module():
    task = RecallWithDecoding(4)
    tokens = [2, 0, 5, 4, 3, 2, 1, 5]
    assert task.text(tokens) == "c a 1 0 d c b 1"
    assert task.queries(tokens).tolist() == [-1, -1, -1, 2, 2, 2, 2, 1]
    assert task.sources(tokens).tolist() == [-1, -1, -1, 1, 1, 1, 6, 7]
    assert task.labels(tokens).tolist() == task.solve(tokens).tolist() == [-1, -1, -1, 0, 0, 0, 1, 5]


@pytest.mark.parametrize(
    ("words", "tokens", "labels"),
    [
        (2, [2, 0, 1], [-1, -1, 1]),  # the word 0 has a successor only once the 1 is read
        (2, [0, 2], [-1, 2]),  # the label is the bit that has just been read
        (2, [0, 1, 2, 0], [-1, -1, 1, 1]),  # the last position cannot be its own occurrence
        (2, [0, 0, 2], [-1, -1, 2]),
        (2, [1, 1, 1], [-1, -1, -1]),  # no bit
        (2, [0, 0, 3], [-1, -1, -1]),  # the word 1 never occurs
        (4, [0, 1, 4], [-1, -1, -1]),  # one bit is too few for four words
        (4, [5, 5, 0, 1, 4, 4], [-1, -1, -1, -1, -1, 1]),  # only the last two bits count
    ],
)
def test_labels_by_hand(words, tokens, labels):
    task = RecallWithDecoding(words)
    assert task.labels(tokens).tolist() == labels == task.solve(tokens).tolist()
    assert task.answers(tokens) == labels[-1]


# Spec of paper B, section 8: numbers of defined labels over all sequences.
@pytest.mark.parametrize(
    ("words", "seq_len", "defined"),
    [(2, 3, 30), (2, 4, 254), (2, 5, 1686), (2, 6, 9806), (2, 7, 52566), (4, 4, 204), (4, 5, 3016), (4, 6, 34316)],
)
def test_defined_labels_of_all_sequences(words, seq_len, defined):
    task = RecallWithDecoding(words)
    assert sum(int((task.labels(tokens) != MASKED).sum()) for tokens in task.every(seq_len)) == defined


@pytest.mark.parametrize(("words", "seq_len"), [(2, 6), (4, 4)])
def test_the_reader_agrees_on_all_sequences(words, seq_len):
    task = RecallWithDecoding(words)
    tokens = np.concatenate(list(task.every(seq_len, block=1000)))
    assert len(np.unique(tokens, axis=0)) == len(tokens) == task.count(seq_len)
    assert np.array_equal(task.labels(tokens), task.solve(tokens))


@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 2**32))
def test_the_reader_agrees_on_random_sequences(b, seq_len, seed):
    task = RecallWithDecoding(2**b)
    tokens = task.sample(3, seq_len, Generator(seed), density=0.5)
    assert np.array_equal(task.labels(tokens), task.solve(tokens))


def test_a_prefix_keeps_its_labels():
    task = RecallWithDecoding(4)
    tokens = task.sample(20, 30, Generator(1), density=0.3)
    assert np.array_equal(task.labels(tokens)[:, :17], task.labels(tokens[:, :17]))


def test_queries_are_spelled_and_placed():
    task = RecallWithDecoding(8)
    assert task.spell(6).tolist() == [9, 9, 8]
    after = task.sample_query(5, 12, Generator(2))
    before = task.sample_query(5, 12, Generator(2), bits="before")
    assert np.array_equal(after[:, -3:], before[:, :3]) and np.array_equal(after[:, :12], before[:, 3:])
    assert (task.queries(before)[:, 2] == task.queries(after)[:, -1]).all()
    assert (after[:, :12] < 8).all() and (after[:, 12:] >= 8).all()


def test_densities():
    task = RecallWithDecoding(4)
    assert (task.sample(4, 50, Generator(0), density=1) >= 4).all()
    assert (task.sample(4, 50, Generator(0), density=0) < 4).all()


@pytest.mark.parametrize("words", [0, 1, 3, 6, -2, 2.0, True, "4"])
def test_other_numbers_of_words_are_refused(words):
    with pytest.raises(ValueError, match="num_words"):
        RecallWithDecoding(words)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.labels([0, 6]), "0..5"),
        (lambda t: t.labels([]), "tokens"),
        (lambda t: t.labels([0.5]), "tokens"),
        (lambda t: t.spell(4), "0..3"),
        (lambda t: list(t.every(12)), "too many"),
        (lambda t: list(t.every(2, block=0)), "block"),
        (lambda t: t.sample(0, 4, Generator(0)), "num"),
        (lambda t: t.sample(1, 4, Generator(0), density=2), "density"),
        (lambda t: t.sample_query(1, 4, Generator(0), bits="between"), "bits"),
        (lambda t: t.sample_query(1, 0, Generator(0)), "context"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(RecallWithDecoding(4))
