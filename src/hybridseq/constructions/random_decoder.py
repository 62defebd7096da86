"""Decoders of Gated DeltaNet layers with random weights: material for the collision search of paper A, Section 7."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hybridseq.arithmetic import FixedPoint
from hybridseq.mixers import DeltaRule, Head, Layer
from hybridseq.models import Block, Embedding, Model
from hybridseq.residual import Affine, Stream
from hybridseq.rng import Generator
from hybridseq.tasks import Vocabulary, pcr

SCRATCH = ("S0", "S1")


@dataclass(frozen=True)
class Shape:
    """s bits behind the point, layers, heads a layer, and square heads of head_dim x head_dim numbers."""

    s: int
    layers: int
    heads: int
    head_dim: int

    @property
    def state_numbers(self) -> int:
        """D, all recurrent numbers."""
        return self.layers * self.heads * self.head_dim**2


SHAPES = (
    Shape(1, 1, 1, 1), Shape(1, 1, 1, 2), Shape(2, 1, 1, 2),
    Shape(2, 2, 2, 1), Shape(2, 2, 1, 2), Shape(3, 2, 2, 2),
)  # fmt: skip
"""Six shapes from D = 1 to D = 16."""


def random_decoder(shape: Shape, seed: int = 0, width: int = 4, scratch: bool = False) -> Model:
    """A model whose weights are uniform multiples of delta: maps and logits in [-1, 1], embeddings in [-2, 2] (clipped to F_s).

    Keys and queries are L2-normalised. Gates read coordinates of their own, drawn so that alpha and beta lie in
    [delta, 1 - delta]: nothing is frozen and nothing is wiped out by decree. Tokens have no positions. With `scratch` the
    alphabet has two scratch tokens; only answer and scratch tokens can win the logits.
    """
    draw, ar = _Draw(Generator(seed).at(shape.s, shape.layers, shape.heads, shape.head_dim)), FixedPoint(shape.s)
    extra = SCRATCH if scratch else ()
    vocabulary = Vocabulary((*pcr.VOCABULARY.tokens, *extra), answers=pcr.VOCABULARY.answers, scratch=extra)
    stream = Stream({"x": width, "gates": 2 * shape.layers * shape.heads})
    blocks = tuple(
        Block(_layer(shape, stream, width, draw, number), name=f"L{number + 1}") for number in range(shape.layers)
    )
    features = draw.matrix(len(vocabulary), width, min(2 * ar.one, ar.max_code), ar)
    gates = draw.matrix(len(vocabulary), stream.dim - width, _widest_gate(ar), ar)
    embedding = Embedding.from_table(stream, np.array([a + b for a, b in zip(features, gates, strict=True)], dtype=object))
    return Model(stream, vocabulary, embedding, blocks, _logits(stream, vocabulary, width, draw, ar))


def random_decoders(shapes=SHAPES, seeds: int = 5, scratch: bool = False) -> list[tuple[Shape, int, Model]]:
    """(shape, seed, model) for every shape and seed 0 .. seeds - 1: the thirty decoders of chapter 6."""
    return [(shape, seed, random_decoder(shape, seed, scratch=scratch)) for shape in shapes for seed in range(seeds)]


class _Draw:
    """Matrices of random multiples of delta, one after the other."""

    def __init__(self, generator: Generator):
        self.generator, self.count = generator, 0

    def matrix(self, rows: int, columns: int, largest: int, ar: FixedPoint) -> list[list[Fraction]]:
        """Codes uniform in -largest .. largest, as real numbers."""
        self.count += 1
        codes = self.generator.at(self.count).integers(2 * largest + 1, (rows, columns)) - largest
        return [[Fraction(code, ar.one) for code in row] for row in codes.tolist()]


def _widest_gate(ar: FixedPoint) -> int:
    """The largest code whose rounded sigmoid is at most 1 - delta (and, by symmetry, at least delta for its negative)."""
    codes = np.arange(ar.max_code + 1).astype(ar.dtype)
    return int(np.flatnonzero(ar.sigmoid(codes) < ar.one)[-1])


def _layer(shape: Shape, stream: Stream, width: int, draw: _Draw, number: int) -> Layer:
    ar, dim, heads = FixedPoint(shape.s), shape.head_dim, []
    for h in range(shape.heads):
        maps = {
            name: Affine.from_rows(stream, Stream({name: dim}), {name: {"x": draw.matrix(dim, width, ar.one, ar)}})
            for name in ("q", "k", "v")
        }
        first = 2 * (number * shape.heads + h)
        for place, name in enumerate(("alpha", "beta")):
            maps[name] = Affine.from_rows(stream, Stream({name: 1}), {name: {f"gates[{first + place}]": 1}})
        heads.append(Head(DeltaRule(dim, dim), maps, qk_norm="l2"))
    read = Stream({"u": dim * shape.heads})
    out = Affine.from_rows(read, stream, {"x": {"u": draw.matrix(width, read.dim, ar.one, ar)}})
    return Layer(tuple(heads), out)


def _logits(stream: Stream, vocabulary: Vocabulary, width: int, draw: _Draw, ar: FixedPoint) -> Affine:
    names = [name if name.isidentifier() else f"token_{name}" for name in vocabulary.tokens]
    rows = {}
    for name, token in zip(names, vocabulary.tokens, strict=True):
        can_win = token in vocabulary.answers or token in vocabulary.scratch
        rows[name] = {"x": draw.matrix(1, width, ar.one, ar)} if can_win else {"1": -ar.max_value}
    return Affine.from_rows(stream, Stream(dict.fromkeys(names, 1)), rows)
