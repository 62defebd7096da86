"""Transformers with sliding windows: random ones, and the rumour, which sees as far as a window lets it (paper B, Theorem 3.7).

Every layer has attention with its own window, an MLP, and residual sums. A window of W counts the current token.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from hybridseq.mixers import Attention, Head, Layer
from hybridseq.models import MLP, Block, Embedding, Model
from hybridseq.residual import Affine, Stream
from hybridseq.rng import Generator
from hybridseq.tasks import Vocabulary

GRID = 64
"""Random weights are multiples of 1/64."""

AMPLIFIER = 8
"""A rumour that arrives faintly is told loudly: the MLP adds this many times the coordinate."""


def random_transformer(
    windows: Sequence[int], vocab_size: int, max_len: int, seed: int = 0, width: int = 8, heads: int = 2
) -> Model:
    """A decoder with random weights and random absolute positions, one layer for each window.

    windows: W_1, .., W_k, each >= 1. vocab_size: tokens, all of which may be answers. max_len: longest context.
    Weights are uniform multiples of 1/64: embeddings in [-2, 2], attention maps and logits in [-1, 1], MLPs in [-1/2, 1/2].
    Queries and keys are RMS-normalised, which keeps scores within sqrt(head_dim): no key of a window loses all weight in floats.

    Raises ValueError for an empty list of windows, a window below 1 or a width that `heads` does not divide.

    Deviates: the stream is not normalised, and the MLP has ReLU where a deployed one is smooth; neither moves information between
    positions, which is all that matters here.

    >>> from hybridseq.arithmetic import Float
    >>> random_transformer((3, 5), vocab_size=4, max_len=10).forward(Float(), np.array([0, 1, 2])).shape
    (3, 4)
    """
    windows = _windows(windows)
    if width % heads:
        raise ValueError(f"width={width}: must be a multiple of heads={heads}")
    draw = _Draw(Generator(seed).at(vocab_size, max_len, width, *windows))
    stream = Stream({"x": width})
    blocks = tuple(_random_block(stream, window, heads, draw, f"W={window}") for window in windows)
    table = [[[float(w) for w in row] for row in draw.matrix(max_len, width, 2)] for _ in range(vocab_size)]
    return _decoder(stream, Embedding.from_table(stream, np.array(table)), blocks, draw.matrix(vocab_size, width, 1))


def random_windows(num: int, layers: Sequence[int] = (1, 2, 3, 4), largest: int = 7, seed: int = 0) -> list[tuple[int, ...]]:
    """`num` lists of windows, their lengths going round `layers`, each window uniform on 1..largest."""
    draws = Generator(seed).at(7)
    return [
        tuple(int(w) + 1 for w in draws.at(i).integers(largest, (layers[i % len(layers)],))) for i in range(num)
    ]


def rumour(windows: Sequence[int]) -> Model:
    """The decoder that says 1 exactly if a token 1 stands among the sum(W_i - 1) + 1 last ones, and 0 otherwise.

    One coordinate, `heard`: 1 at a token 1, 0 at a token 0. A layer adds to it the mean over its window (all scores are 0), and
    the MLP makes it large again. So after layer i a position has heard of it exactly if a position in its window had. No
    weights but these three, no positions, any arithmetic that keeps a mean of W numbers away from 0: floats, or F_s with
    every W <= 2^(s+1) - 1.

    >>> from hybridseq.arithmetic import Float
    >>> rumour((3, 2)).greedy(Float(), np.array([[0, 1, 0, 0, 0], [1, 0, 0, 0, 0]])).tolist()
    [1, 0]
    """
    windows = _windows(windows)
    stream = Stream({"heard": 1})
    told = Affine.from_rows(stream, Stream({"h": 1}), {"h": {"heard": AMPLIFIER}})
    louder = MLP(told, Affine.from_rows(told.target, stream, {"heard": {"h": 1}}))
    blocks = []
    for window in windows:
        maps = {name: Affine(stream, Stream({name: 1})) for name in ("q", "k")}
        maps["v"] = Affine.from_rows(stream, Stream({"v": 1}), {"v": {"heard": 1}})
        out = Affine.from_rows(Stream({"u": 1}), stream, {"heard": {"u": 1}})
        blocks.append(Block(Layer((Head(Attention(1, window=window), maps),), out), louder, f"W={window}"))
    return _decoder(stream, Embedding.from_table(stream, [[0], [1]]), tuple(blocks), [[0], [1]])


def _windows(windows: Sequence[int]) -> tuple[int, ...]:
    windows = tuple(windows)
    if not windows or any(isinstance(w, bool) or not isinstance(w, int | np.integer) or w < 1 for w in windows):
        raise ValueError(f"windows={windows!r}: needs one integer >= 1 for each layer (the current token counts)")
    return tuple(int(w) for w in windows)


class _Draw:
    """Matrices of random multiples of 1/64, one after the other."""

    def __init__(self, generator: Generator):
        self.generator, self.count = generator, 0

    def matrix(self, rows: int, columns: int, largest: Fraction | int) -> list[list[Fraction]]:
        self.count += 1
        most = int(largest * GRID)
        codes = self.generator.at(self.count).integers(2 * most + 1, (rows, columns)) - most
        return [[Fraction(code, GRID) for code in row] for row in codes.tolist()]


def _random_block(stream: Stream, window: int, heads: int, draw: _Draw, name: str) -> Block:
    width, dim = stream.dim, stream.dim // heads
    made = []
    for _ in range(heads):
        maps = {
            n: Affine.from_rows(stream, Stream({n: dim}), {n: {"x": draw.matrix(dim, width, 1)}}) for n in ("q", "k", "v")
        }
        made.append(Head(Attention(dim, window=window), maps, qk_norm="rms"))
    read, hidden = Stream({"u": dim * heads}), Stream({"h": 2 * width})
    out = Affine.from_rows(read, stream, {"x": {"u": draw.matrix(width, read.dim, 1)}})
    half = Fraction(1, 2)
    mlp = MLP(
        Affine.from_rows(stream, hidden, {"h": {"x": draw.matrix(hidden.dim, width, half)}}),
        Affine.from_rows(hidden, stream, {"x": {"h": draw.matrix(width, hidden.dim, half)}}),
    )
    return Block(Layer(tuple(made), out), mlp, name)


def _decoder(stream: Stream, embedding: Embedding, blocks: tuple[Block, ...], logits) -> Model:
    names = tuple(f"t{i}" for i in range(len(logits)))
    rows = {name: {stream.names[0]: [row]} for name, row in zip(names, logits, strict=True)}
    vocabulary = Vocabulary(tuple(name[1:] for name in names), answers=tuple(name[1:] for name in names))
    return Model(stream, vocabulary, embedding, blocks, Affine.from_rows(stream, Stream(dict.fromkeys(names, 1)), rows))
