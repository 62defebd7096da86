"""Multi-key recall: labels by hand, the reference solver on all short sequences, counts, skip_first, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.rng import Generator
from hybridseq.tasks.multi_key_recall import MASKED, MultiKeyRecall


def test_the_sequence_of_the_module():
    tokens = [0, 1, 0, 0, 1, 0, 1]
    task = MultiKeyRecall(2, 2, skip_first=False)
    assert task.text(tokens) == "a b a a b a b"
    assert task.keys(tokens).tolist() == [-1, 1, 2, 0, 1, 2, 1]
    assert task.sources(tokens).tolist() == [-1, -1, -1, -1, 2, 3, 5]
    assert task.labels(tokens).tolist() == task.solve(tokens).tolist() == [-1, -1, -1, -1, 0, 0, 0]
    late = MultiKeyRecall(2, 2, skip_first=True)
    assert late.labels(tokens).tolist() == late.solve(tokens).tolist() == [-1, -1, -1, -1, -1, 0, 0]


@pytest.mark.parametrize(
    ("k", "skip", "tokens", "labels"),
    [
        (2, False, [0, 0, 0], [-1, -1, 0]),  # occurrences overlap; the label is the token just read
        (2, True, [0, 0, 0, 0], [-1, -1, -1, 0]),
        (1, False, [2, 1, 2, 2], [-1, -1, 1, 2]),  # the latest of two occurrences
        (1, True, [2, 1, 2, 2], [-1, -1, -1, 2]),  # the 2 at the start is forgotten
        (1, True, [2, 1, 2, 1], [-1, -1, -1, 2]),
        (3, False, [0, 1, 2, 0, 1, 2], [-1, -1, -1, -1, -1, 0]),
        (3, False, [0, 1], [-1, -1]),  # shorter than the key
        (9, True, [0, 1, 2, 0, 1], [-1, -1, -1, -1, -1]),
        (2, False, [1], [-1]),
    ],
)
def test_labels_by_hand(k, skip, tokens, labels):
    task = MultiKeyRecall(3, k, skip_first=skip)
    assert task.labels(tokens).tolist() == labels == task.solve(tokens).tolist()
    assert task.answers(tokens) == labels[-1]


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize(("words", "k", "seq_len"), [(2, 1, 8), (2, 2, 10), (2, 3, 9), (3, 2, 7), (1, 2, 5)])
def test_labels_equal_the_reference_solver_on_all_short_sequences(words, k, seq_len, skip):
    task = MultiKeyRecall(words, k, skip_first=skip)
    tokens = np.concatenate(list(task.every(seq_len, block=500)))
    assert len(np.unique(tokens, axis=0)) == len(tokens) == task.count(seq_len)
    assert np.array_equal(task.labels(tokens), task.solve(tokens))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 4), st.integers(1, 3), st.booleans(), st.data())
def test_labels_equal_the_definition(words, k, skip, data):
    x = data.draw(st.lists(st.integers(0, words - 1), min_size=1, max_size=14))
    for i, label in enumerate(MultiKeyRecall(words, k, skip_first=skip).labels(x).tolist()):
        ends = [j for j in range(k - 1 + skip, i) if i >= k - 1 and x[j - k + 1 : j + 1] == x[i - k + 1 : i + 1]]
        assert label == (x[max(ends) + 1] if ends else MASKED)


def test_keys_of_length_one_have_a_label_unless_the_word_is_new():
    """For k = 1 position i lacks a label exactly when its word is new: words M, length L leave out M (1 - (1 - 1/M)^L)."""
    task = MultiKeyRecall(3, 1, skip_first=False)
    tokens = np.concatenate(list(task.every(6)))
    masked = (task.labels(tokens) == MASKED).sum()
    assert masked == 3 * (3**6 - 2**6)
    # Without the first token: it is masked itself, and so is the next occurrence of its word, if there is one.
    late = MultiKeyRecall(3, 1, skip_first=True)
    assert (late.labels(tokens) == MASKED).sum() - masked == 3**6 - 3 * 2**5


def test_skip_first_changes_only_keys_that_stood_first_and_nowhere_since():
    defined, late = (MultiKeyRecall(3, 2, skip_first=skip) for skip in (False, True))
    tokens = defined.sample(200, 40, Generator(0))
    full, skipped = defined.labels(tokens), late.labels(tokens)
    changed = full != skipped
    assert changed.any() and (skipped[changed] == MASKED).all()
    assert (defined.sources(tokens)[changed] == 2).all()  # the forgotten key ends at index 1, its label stands at 2
    assert (changed.sum(axis=1) <= 1).all()


def test_a_later_token_changes_no_earlier_label():
    task = MultiKeyRecall(8, 2, skip_first=True)
    tokens = task.sample(50, 60, Generator(4))
    assert np.array_equal(task.labels(tokens)[:, :37], task.labels(tokens[:, :37]))


def test_renaming_the_words_renames_the_labels():
    task = MultiKeyRecall(6, 2, skip_first=True)
    tokens, names = task.sample(20, 50, Generator(5)), Generator(6).permutation(6)
    labels = task.labels(tokens)
    assert np.array_equal(task.labels(names[tokens]), np.where(labels >= 0, names[labels], MASKED))


def test_shares_and_shapes():
    task = MultiKeyRecall(8, 2, skip_first=True)
    tokens = task.sample(400, 98, Generator(0))
    # Were the keys independent, a key out of 64 would be missing from m stored ones with probability (63/64)^m.
    share = sum(1 - (63 / 64) ** max(i - 2, 0) for i in range(98)) / 98
    assert abs((task.labels(tokens) != MASKED).mean() - share) < 0.01
    assert abs((task.labels(task.sample(400, 100, Generator(1))) != MASKED).mean() - 0.48) < 0.01
    assert np.bincount(tokens.ravel(), minlength=8).min() > 0.118 * tokens.size
    cube = tokens.reshape(4, 100, 98)
    assert np.array_equal(task.labels(cube).reshape(400, 98), task.labels(tokens))
    assert np.array_equal(task.solve(tokens), task.labels(tokens))


def test_the_generator_is_a_function_of_its_place():
    task = MultiKeyRecall(8, 2, skip_first=True)
    a, b = (task.sample(3, 50, Generator(1)) for _ in range(2))
    assert np.array_equal(a, b) and not np.array_equal(a, task.sample(3, 50, Generator(2)))
    assert np.array_equal(a, Generator(1).integers(8, (3, 50)))


def test_names():
    assert MultiKeyRecall(2, 1, skip_first=True).vocabulary.tokens == ("a", "b")
    assert MultiKeyRecall(27, 1, skip_first=True).vocabulary.tokens[-1] == "w26"
    assert MultiKeyRecall(8, 2, skip_first=True).vocab_size == 8


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: MultiKeyRecall(0, 2, skip_first=True), "num_words"),
        (lambda: MultiKeyRecall(True, 2, skip_first=True), "num_words"),
        (lambda: MultiKeyRecall(8, 0, skip_first=True), "key_len"),
        (lambda: MultiKeyRecall(8, 2.0, skip_first=True), "key_len"),
        (lambda: MultiKeyRecall(8, 21, skip_first=True), "key_len"),
        (lambda: MultiKeyRecall(8, 2, skip_first=1), "skip_first"),
        (lambda: MultiKeyRecall(3, 2, skip_first=True).labels([3]), "tokens"),
        (lambda: MultiKeyRecall(3, 2, skip_first=True).labels([-1]), "tokens"),
        (lambda: MultiKeyRecall(3, 2, skip_first=True).labels([]), "tokens"),
        (lambda: MultiKeyRecall(3, 2, skip_first=True).labels([0.5]), "tokens"),
        (lambda: MultiKeyRecall(3, 2, skip_first=True).sample(0, 4, Generator(0)), "num"),
        (lambda: MultiKeyRecall(3, 2, skip_first=True).sample(4, 0, Generator(0)), "seq_len"),
        (lambda: MultiKeyRecall(3, 2, skip_first=True).every(40), "seq_len"),
        (lambda: MultiKeyRecall(3, 2, skip_first=True).count(0), "seq_len"),
    ],
)
def test_bad_input_is_refused_by_name(make, named):
    with pytest.raises(ValueError, match=named):
        rows = make()
        next(rows)


def test_the_way_of_storing_has_no_default():
    with pytest.raises(TypeError, match="skip_first"):
        MultiKeyRecall(8, 2)
