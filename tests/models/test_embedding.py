"""Embedding tables over tokens and positions."""

from fractions import Fraction

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.models import Embedding, SumEmbedding, TypedEmbedding
from hybridseq.residual import Stream

STREAM = Stream({"x": 2})


def test_lookup_by_token_and_position():
    table = np.arange(3 * 4 * 2).reshape(3, 4, 2) - 9
    embedding = Embedding.from_table(STREAM, table)
    tokens = np.array([[0, 2, 1], [1, 1, 1]])
    expected = table[tokens, np.arange(3)]
    assert np.array_equal(embedding.apply(Float(), tokens), expected)
    assert np.array_equal(embedding.apply(FixedPoint(5), tokens), np.clip(expected * 32, -1023, 1023))
    assert (embedding.num_tokens, embedding.max_len) == (3, 4)
    assert embedding.index.dtype == np.uint8 and not embedding.index.flags.writeable


def test_numbers_are_rounded_once_and_positions_are_optional():
    embedding = Embedding.from_table(STREAM, np.array([[Fraction(1, 3), 0], [-1, Fraction(5, 8)]], dtype=object))
    assert embedding.max_len is None
    assert embedding.apply(FixedPoint(2), np.array([1, 0, 1])).tolist() == [[-4, 2], [1, 0], [-4, 2]]


def test_from_function():
    embedding = Embedding.from_function(STREAM, 2, 3, lambda token, position: (token, position * Fraction(1, 4)))
    assert embedding.apply(Float(), np.array([1, 0, 1])).tolist() == [[1, 0], [0, 0.25], [1, 0.5]]


def test_torch():
    torch = pytest.importorskip("torch")
    embedding = Embedding.from_table(STREAM, [[0, 1], [2, 3]])
    out = embedding.apply(Float("torch"), np.array([[1, 0]]))
    assert isinstance(out, torch.Tensor) and out.tolist() == [[[2, 3], [0, 1]]]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [([0, 3], "0..1"), ([-1], "0..1"), ([0, 0, 0], "max_len = 2"), ([], "seq_len >= 1"), ([0.5], "integers"), (1, "seq_len")],
)
def test_bad_tokens(tokens, message):
    with pytest.raises(ValueError, match=message):
        Embedding.from_table(STREAM, np.zeros((2, 2, 2), dtype=int)).apply(Float(), np.array(tokens))


def test_bad_tables():
    with pytest.raises(ValueError, match="shape"):
        Embedding.from_table(STREAM, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="unsigned"):
        Embedding(STREAM, (0,), np.zeros((2, 2), dtype=int))
    with pytest.raises(ValueError, match="1 levels"):
        Embedding(STREAM, (0,), np.ones((2, 2), dtype=np.uint8))


def test_a_sum_of_two_tables_is_the_table_of_all_sums():
    rng, stream = np.random.default_rng(0), Stream({"T": 2, "P": 1})
    token, position = rng.integers(-3, 4, (5, 3)), rng.integers(-3, 4, (7, 3))
    whole = Embedding.from_table(stream, token[:, None] + position)
    parts, tokens = SumEmbedding(stream, token, position), rng.integers(0, 5, (4, 7))
    assert (parts.apply(Float(), tokens) == whole.apply(Float(), tokens)).all()
    assert (parts.num_tokens, parts.max_len) == (whole.num_tokens, whole.max_len) == (5, 7)
    free = SumEmbedding(stream, token)
    assert free.max_len is None and (free.apply(Float(), tokens) == token[tokens]).all()


def test_a_sum_of_tables_refuses_what_does_not_fit():
    stream = Stream({"T": 2})
    with pytest.raises(ValueError, match="position"):
        SumEmbedding(stream, np.ones((2, 2)), np.ones((3, 1)))
    with pytest.raises(ValueError, match="max_len"):
        SumEmbedding(stream, np.ones((2, 2)), np.ones((3, 2))).check([0, 1, 0, 1])
    with pytest.raises(ValueError, match="tokens"):
        SumEmbedding(stream, np.ones((2, 2))).check([2])


def test_a_typed_embedding_is_the_table_of_its_kinds():
    rng, stream = np.random.default_rng(0), Stream({"T": 2, "P": 1})
    token, position = rng.integers(-3, 4, (2, 5, 3)), rng.integers(-3, 4, (7, 3))
    kind = np.array([0, 1, 0, 0, 1, 1, 0])
    whole = Embedding.from_table(stream, token[kind].swapaxes(0, 1) + position)
    parts, tokens = TypedEmbedding(stream, token, kind, position), rng.integers(0, 5, (4, 7))
    for ar in (Float(), FixedPoint(3)):
        assert (parts.apply(ar, tokens) == whole.apply(ar, tokens)).all()
    assert (parts.num_tokens, parts.max_len) == (5, 7)


@pytest.mark.parametrize(
    ("token", "kind", "position", "message"),
    [
        (np.ones((1, 2, 3)), [0], np.ones((1, 2)), "token must have shape"),
        (np.ones((1, 2, 2)), [0, 0], np.ones((2, 3)), "position must have shape"),
        (np.ones((1, 2, 2)), [[0]], np.ones((1, 2)), "kind must have shape"),
        (np.ones((1, 2, 2)), [0, 1], np.ones((2, 2)), "below the 1 token tables"),
        (np.ones((1, 2, 2)), [0, 0], np.ones((3, 2)), "2 positions"),
    ],
)
def test_a_typed_embedding_refuses_what_does_not_fit(token, kind, position, message):
    with pytest.raises(ValueError, match=message):
        TypedEmbedding(Stream({"T": 2}), token, kind, position)
