"""Framed batches: draws bit for bit against plain Python, frame, labels, valid positions, dropout, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.learning.batches import (
    EVALUATION_BATCHES,
    EVALUATION_SEED,
    MASKED,
    Framed,
    dropout_keep,
    dropout_words,
)
from hybridseq.tasks.multi_key_recall import MultiKeyRecall
from hybridseq.tasks.recall_with_decoding import RecallWithDecoding
from hybridseq.tasks.selective_copying import SelectiveCopying

MASK = (1 << 64) - 1
RECALL = Framed(MultiKeyRecall(8, 2, skip_first=True), marked=True)
PREVIOUS = Framed(SelectiveCopying(5, 26, count_from="previous", first_number=5), marked=True)
CURRENT = Framed(SelectiveCopying(5, 26, count_from="current", first_number=5), marked=True)
TASKS = [RECALL, PREVIOUS, CURRENT]


def ident(value):
    return getattr(value, "name", None)


# an oracle in plain Python integers: the words, then the draws, each written from the documented order --------------------


def mixed(x: int) -> int:
    z = (x + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def word(seed: int, *place: int) -> int:
    h = mixed(seed)
    for counter in place:
        h = mixed((h + counter) & MASK)
    return h


def recall_content(seed: int, stream: int, step: int, row: int, length: int, words: int = 8) -> list[int]:
    return [word(seed, stream, step, row * length + i) % words for i in range(length)]


def copying_content(seed: int, stream: int, step: int, row: int, length: int) -> list[int]:
    content = []
    for j in range(row * length, (row + 1) * length):
        is_number = (word(seed, stream, step, 2, j) >> 11) / 2**53 < 0.2
        content.append(word(seed, stream, step, 0, j) % 5 if is_number else word(seed, stream, step, 1, j) % 26 + 5)
    return content


def test_the_oracle_knows_the_published_word():
    assert mixed(0) == 16294208416658607535


@pytest.mark.parametrize(("seed", "step"), [(0, 0), (0, 1), (7, 3999), (2**31, 0), (2**40, 12)])
def test_training_content_bit_for_bit(seed, step):
    recall, copying = RECALL.training_batch(seed, step)[0], PREVIOUS.training_batch(seed, step)[0]
    for row in range(8):
        assert recall[row].tolist() == [8, *recall_content(seed, 1, step, row, 98), 9]
        assert copying[row].tolist() == [31, *copying_content(seed, 1, step, row, 98), 32]


@pytest.mark.parametrize("index", [0, 1, 127])
def test_evaluation_content_bit_for_bit(index):
    recall, copying = RECALL.evaluation_batch(index)[0], CURRENT.evaluation_batch(index)[0]
    for row in (0, 7):
        assert recall[row].tolist() == [8, *recall_content(2**31, 3, index, row, 98), 9]
        assert copying[row].tolist() == [31, *copying_content(2**31, 3, index, row, 98), 32]


def test_unmarked_rows_are_content_from_end_to_end():
    """What the released generator trains on; the draws are keyed by row and position in the content, 100 of them."""
    tokens, labels = Framed(RECALL.task).training_batch(0, 3)
    for row in range(8):
        assert tokens[row].tolist() == recall_content(0, 1, 3, row, 100)
    assert np.array_equal(labels, RECALL.task.solve(tokens))
    short, masked = Framed(RECALL.task, content_len=97).evaluation_batch(5)
    assert (short[:, 97:] == 10).all() and (masked[:, 97:] == MASKED).all()
    assert short[3, :97].tolist() == recall_content(2**31, 3, 5, 3, 97)


def test_first_tokens_written_down():
    """Numbers that a generator in another language can be held against; from the oracle above, seed 0, step 0, row 0."""
    assert RECALL.training_batch(0, 0)[0][0, :9].tolist() == FIRST_RECALL
    assert PREVIOUS.training_batch(0, 0)[0][0, :9].tolist() == FIRST_COPYING
    assert RECALL.evaluation_batch(0)[0][7, -9:].tolist() == LAST_EVALUATION
    assert [int(w) for w in dropout_words(0, 0, 100, 12).ravel()[:2]] == FIRST_DROPOUT


FIRST_RECALL = [8, 5, 2, 0, 7, 5, 2, 7, 0]
FIRST_COPYING = [31, 24, 3, 5, 9, 18, 4, 13, 29]
LAST_EVALUATION = [2, 6, 1, 5, 6, 5, 4, 0, 9]
FIRST_DROPOUT = [8594556618396289319, 3248506767648729816]


@pytest.mark.parametrize("framed", TASKS, ids=ident)
def test_rows_do_not_depend_on_the_size_of_the_batch(framed):
    tokens, labels = framed.training_batch(3, 5, batch=11)
    eight, eight_labels = framed.training_batch(3, 5)
    assert np.array_equal(tokens[:8], eight) and np.array_equal(labels[:8], eight_labels)


@pytest.mark.parametrize("framed", TASKS, ids=ident)
def test_steps_seeds_and_streams_differ(framed):
    first = framed.training_batch(0, 0)[0]
    others = (framed.training_batch(0, 1), framed.training_batch(1, 0), framed.evaluation_batch(0))
    assert all((first != other[0]).any() for other in others)
    # Held-out sequences are not the training sequences of the seed that they are drawn with.
    assert (framed.training_batch(EVALUATION_SEED, 0)[0] != framed.evaluation_batch(0)[0]).any()


# frame and labels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framed", [*TASKS, Framed(RecallWithDecoding(32), marked=True)], ids=ident)
def test_labels_equal_the_slow_solver_label_by_label(framed):
    for step in range(12):
        tokens, labels = framed.training_batch(2, step)
        assert np.array_equal(labels[:, 1:-1], framed.task.solve(tokens[:, 1:-1]))
        assert (labels[:, [0, -1]] == MASKED).all() and tokens.dtype == labels.dtype == np.int64


@settings(deadline=None, max_examples=30)
@given(st.integers(3, 40), st.data())
def test_the_frame(seq_len, data):
    content_len = data.draw(st.integers(1, seq_len - 2))
    framed = Framed(RECALL.task, seq_len=seq_len, content_len=content_len, marked=True)
    tokens, labels = framed.training_batch(data.draw(st.integers(0, 2**32)), 0, batch=3)
    assert tokens.shape == labels.shape == (3, seq_len)
    assert (tokens[:, 0] == 8).all() and (tokens[:, content_len + 1] == 9).all() and (tokens[:, content_len + 2 :] == 10).all()
    assert (tokens[:, 1 : content_len + 1] < 8).all()
    assert (labels[:, content_len + 1 :] == MASKED).all()


@pytest.mark.parametrize("framed", TASKS, ids=ident)
def test_padding_and_later_tokens_change_no_label(framed):
    tokens, labels = framed.training_batch(0, 0)
    padded = Framed(framed.task, content_len=97, marked=True)
    shorter, fewer = padded.frame(tokens[:, 1:98])
    assert np.array_equal(fewer[:, :98], labels[:, :98]) and np.array_equal(shorter[:, :98], tokens[:, :98])
    assert (shorter[:, 98:] == [padded.end, padded.null]).all()


@pytest.mark.parametrize(("framed", "share"), [(RECALL, 0.47), (PREVIOUS, 0.92), (CURRENT, 0.93)], ids=ident)
def test_share_of_valid_positions_in_the_content(framed, share):
    """48 % and 92 % in the published audit, whose rows hold 100 tokens of content; see the next test for the difference."""
    valid = [framed.evaluation_batch(b)[1][:, framed.content] != MASKED for b in range(EVALUATION_BATCHES)]
    assert abs(np.mean(valid) - share) < 0.006


def test_share_of_valid_positions_follows_from_the_task():
    # Copying at content position i (from 1), "previous": a last number #n with n < i. Given a number at all it is any of
    # #5..#9, so the share is (1/98) sum_i (1 - 0.8^i) times the part of n = 5..9 that is below i.
    expected = sum((1 - 0.8**i) * np.mean([n < i for n in range(5, 10)]) for i in range(1, 99)) / 98
    valid = [PREVIOUS.evaluation_batch(b)[1][:, 1:99] != MASKED for b in range(EVALUATION_BATCHES)]
    assert abs(np.mean(valid) - expected) < 0.003
    unmarked = Framed(RECALL.task)
    assert abs(np.mean([unmarked.evaluation_batch(b)[1] >= 0 for b in range(EVALUATION_BATCHES)]) - 0.477) < 0.006


def test_a_fifth_of_the_copying_labels_are_numbers():
    labels = np.concatenate([PREVIOUS.evaluation_batch(b)[1] for b in range(EVALUATION_BATCHES)])
    assert abs((labels[labels >= 0] < 5).mean() - 0.2) < 0.01


def test_a_swapped_convention_would_be_noticed():
    tokens, labels = PREVIOUS.training_batch(0, 0)
    other = CURRENT.training_batch(0, 0)
    assert np.array_equal(tokens, other[0]) and (labels != other[1]).mean() > 0.8


# dropout ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "pairs"), [(8, 4), (5, 3), (1, 1)])
def test_dropout_bit_for_bit(batch, pairs):
    seed, step, seq_len, width = 9, 4, 5, 12
    keep = dropout_keep(seed, step, seq_len, width, 0.1, batch)
    assert keep.shape == (batch, seq_len, width) and keep.dtype == bool
    threshold = 429496729  # floor(0.1 * 2^32)
    for row in range(batch):
        for t in range(seq_len):
            for c in range(width):
                w = word(seed, 2, step, (t * width + c) * pairs + row // 2)
                half = w >> 32 if row % 2 else w & 0xFFFFFFFF
                assert keep[row, t, c] == (half >= threshold)


def test_dropout_rates():
    keep = dropout_keep(0, 0, 100, 24, 0.1)
    assert abs(keep.mean() - 0.9) < 0.01
    assert abs(keep.mean(axis=(1, 2)) - 0.9).max() < 0.03
    assert dropout_keep(0, 0, 100, 24, 0.0).all()
    assert (dropout_keep(0, 1, 100, 24, 0.1) != keep).any()
    # Rows that share a word are as good as independent.
    dropped = ~keep
    assert abs((dropped[0] & dropped[1]).mean() - 0.01) < 0.01


# names and what is refused ------------------------------------------------------------------------------------------------


def test_names_sizes_and_config():
    assert RECALL.vocab_size == 11 and PREVIOUS.vocab_size == 34  # as the published parameter counts require
    assert RECALL.name == "multi-key-recall-8-2-true-marked=true"
    assert Framed(RECALL.task).name == "multi-key-recall-8-2-true" and Framed(RECALL.task).content_len == 100
    assert Framed(PREVIOUS.task).name == "selective-copying-5-26-previous-5"
    assert Framed(PREVIOUS.task, content_len=97, density=0.5).name.endswith("-content_len=97-density=0.5")
    assert RECALL.config == {
        "task": "MultiKeyRecall", "num_words": 8, "key_len": 2, "skip_first": True,
        "seq_len": 100, "content_len": 98, "density": None, "marked": True,
    }  # fmt: skip
    assert PREVIOUS.config["density"] == 0.2 and PREVIOUS.config["count_from"] == "previous"
    assert Framed(MultiKeyRecall(np.int64(8), 2, skip_first=True), marked=True).config == RECALL.config
    assert Framed(PREVIOUS.task, density=0.2, content_len=98, marked=True) == PREVIOUS
    assert len({hash(framed) for framed in TASKS}) == 3
    assert RECALL.text([8, 0, 9, 10]) == "BEGIN a END NULL"


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Framed("mkar"), "task"),
        (lambda: Framed(MultiKeyRecall), "task"),
        (lambda: Framed(RECALL.task, seq_len=2), "seq_len"),
        (lambda: Framed(RECALL.task, seq_len=100.0), "seq_len"),
        (lambda: Framed(RECALL.task, content_len=99, marked=True), "content_len"),
        (lambda: Framed(RECALL.task, content_len=101), "content_len"),
        (lambda: Framed(RECALL.task, marked=1), "marked"),
        (lambda: Framed(RECALL.task, content_len=0), "content_len"),
        (lambda: Framed(RECALL.task, density=0.2), "density"),
        (lambda: Framed(PREVIOUS.task, density=1.2), "density"),
        (lambda: Framed(PREVIOUS.task, density=True), "density"),
        (lambda: Framed(PREVIOUS.task, density="a"), "density"),
        (lambda: Framed(PREVIOUS.task, density=1j), "density"),
        (lambda: RECALL.frame(np.zeros((2, 97), dtype=int)), "content"),
        (lambda: RECALL.frame(np.full((1, 98), 8)), "tokens"),
        (lambda: RECALL.training_batch(-1, 0), "seed"),
        (lambda: RECALL.training_batch(0, -1), "step"),
        (lambda: RECALL.training_batch(0, 0, batch=0), "batch"),
        (lambda: RECALL.evaluation_batch(128), "index"),
        (lambda: dropout_keep(0, 0, 4, 4, 1.0), "rate"),
        (lambda: dropout_keep(0, 0, 4, 4, -0.1), "rate"),
        (lambda: dropout_keep(0, 0, 0, 4, 0.1), "seq_len"),
        (lambda: dropout_words(0, 0, 4, 0), "width"),
        (lambda: dropout_words(0.5, 0, 4, 4), "seed"),
    ],
)
def test_bad_input_is_refused_by_name(make, named):
    with pytest.raises(ValueError, match=named):
        make()
