"""Parity-conditioned retrieval: prompts, labels, the reference solver, and what is refused."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridseq.rng import Generator
from hybridseq.tasks import Vocabulary, pcr

TABLES = st.lists(st.integers(0, 1), min_size=1, max_size=12)


def test_the_prompt_of_the_docstring():
    prompts = pcr.encode([1, 0, 1], 3)
    assert prompts.text(0) == "1 1 0 0 1 1 BLANK BLANK MARK"
    assert prompts.labels.tolist() == [pcr.YES]
    assert prompts.mask.tolist() == [[False] * 8 + [True]]
    assert pcr.encode([1, 0, 1], 2, "one-token").text(0) == "1 0 1 BLANK MARK BLANK"


@pytest.mark.parametrize(
    ("table", "j", "bit"), [((0,), 1, 0), ((1,), 1, 0), ((1, 0), 1, 0), ((1, 0), 2, 1), ((1, 1), 1, 1), ((1, 1, 1), 2, 0)]
)
def test_answers_by_hand(table, j, bit):
    assert pcr.answers(table, j) == (pcr.YES if bit else pcr.NO)
    assert pcr.solve(pcr.encode(table, j).tokens[0]) == (pcr.YES if bit else pcr.NO)


def test_there_are_3586_prompts_up_to_n_8():
    blocks = [prompts for n in range(1, 9) for prompts in pcr.every(n)]
    assert sum(map(len, blocks)) == 3586 == sum(pcr.count(n) for n in range(1, 9))
    for prompts in blocks:
        assert prompts.tokens.shape == (len(prompts), 3 * prompts.n)
        assert len({tuple(row) for row in prompts.tokens.tolist()}) == len(prompts)


@pytest.mark.parametrize("encoding", pcr.ENCODINGS)
def test_the_reference_solver_agrees_on_every_prompt(encoding):
    for n in range(1, 8):
        for prompts in pcr.every(n, encoding, block=100):
            assert np.array_equal(pcr.solve(prompts.tokens, encoding), prompts.labels)
            back = pcr.parse(prompts.tokens, encoding)
            assert np.array_equal(back.table, prompts.table) and np.array_equal(back.address, prompts.address)


def test_counting_order():
    (prompts,) = pcr.every(2)
    expected = [(*bits, j) for bits in product((0, 1), repeat=2) for j in (1, 2)]
    assert [(*t, j) for t, j in zip(prompts.table.tolist(), prompts.address.tolist(), strict=True)] == expected


def test_numbers_of_distinct_answer_vectors():
    # T14: 2^n answer vectors for even n, 2^(n-1) for odd n.
    expected = [1, 4, 4, 16, 16, 64, 64, 256, 256, 1024]
    for n, number in enumerate(expected, start=1):
        rows = {tuple(block) for prompts in pcr.every(n, block=n * 2**n) for block in prompts.labels.reshape(-1, n).tolist()}
        assert len(rows) == number


@given(TABLES, st.data(), st.sampled_from(sorted(pcr.ENCODINGS)))
def test_round_trip(table, data, encoding):
    j = data.draw(st.integers(1, len(table)))
    prompts = pcr.encode(table, j, encoding)
    assert prompts.tokens.shape[1] == pcr.prompt_length(len(table), encoding)
    back = pcr.parse(prompts.tokens[0], encoding)
    assert back.table[0].tolist() == table and back.address[0] == j


@given(TABLES, st.data())
def test_flipping_a_bit_flips_the_other_answers(table, data):
    # R_j flips when a bit other than Y_j flips, and stays when Y_j itself does.
    n = len(table)
    j, flipped = data.draw(st.integers(1, n)), data.draw(st.integers(1, n))
    other = [bit ^ (i + 1 == flipped) for i, bit in enumerate(table)]
    assert (pcr.answers(table, j) == pcr.answers(other, j)) == (j == flipped)


def test_samples_are_reproducible_and_uniform():
    first, again = (pcr.sample(5, 4000, Generator(3)) for _ in range(2))
    assert np.array_equal(first.tokens, again.tokens)
    assert not np.array_equal(first.tokens, pcr.sample(5, 4000, Generator(4)).tokens)
    assert abs(first.table.mean() - 0.5) < 0.03
    assert np.bincount(first.address, minlength=6)[1:].min() > 700 and first.address.max() == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1 0 0 BLANK BLANK", "no MARK"),
        ("1 1 0 0 MARK MARK", "more than one MARK"),
        ("1 0 0 0 MARK BLANK", "written twice"),
        ("1 1 0 MARK BLANK", "3 n tokens"),
        ("1 1 0 BLANK MARK BLANK", "must be 0 or 1"),
        ("1 1 0 0 MARK 1", "must be MARK or BLANK"),
        ("1 1 YES YES MARK BLANK", "must be 0 or 1"),
        ("", "3 n tokens"),
    ],
)
def test_what_is_no_prompt(text, message):
    tokens = np.array([pcr.VOCABULARY.index(name) for name in text.split()], dtype=np.int64)
    for read in (pcr.parse, pcr.solve):
        with pytest.raises(ValueError, match=message):
            read(tokens)


@pytest.mark.parametrize(
    ("table", "address", "message"),
    [
        ([0, 2], 1, "bits"),
        ([0, 1], 0, "1 to n = 2"),
        ([0, 1], 3, "1 to n = 2"),
        ([[0, 1]], [1, 2], "one offset"),
        ([], 1, "n must"),
    ],
)
def test_what_cannot_be_encoded(table, address, message):
    with pytest.raises(ValueError, match=message):
        pcr.encode(table, address)


def test_other_bad_arguments():
    with pytest.raises(ValueError, match="encoding"):
        pcr.encode([1], 1, "tripled")
    with pytest.raises(ValueError, match="n must"):
        pcr.sample(0, 1, Generator(0))
    with pytest.raises(ValueError, match="num must"):
        pcr.sample(2, 0, Generator(0))
    with pytest.raises(ValueError, match=r"1\.\.24"):
        next(pcr.every(25))
    with pytest.raises(ValueError, match="offsets"):
        pcr.encode([1, 0], 1.5)


def test_vocabulary():
    v = Vocabulary(("a", "b", "YES"), answers=("YES",), scratch=("b",))
    assert len(v) == 3 and v.index("b") == 1 and v.names([2, 0]) == ["YES", "a"]
    for bad in ({"tokens": ("a", "a")}, {"tokens": ()}, {"tokens": ("a",), "answers": ("z",)}):
        with pytest.raises(ValueError):
            Vocabulary(**bad)
    with pytest.raises(ValueError, match="cannot be scratch"):
        Vocabulary(("a",), answers=("a",), scratch=("a",))
    with pytest.raises(ValueError, match="not in the vocabulary"):
        v.index("z")
