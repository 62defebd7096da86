"""Small Gated Attention decoders with random weights, to be compiled end to end."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hybridseq.arithmetic import FixedPoint
from hybridseq.mixers import Attention, Head, Layer
from hybridseq.models import MLP, Block, Embedding, Model
from hybridseq.residual import Affine, Stream
from hybridseq.rng import Generator
from hybridseq.tasks import Vocabulary

TOKENS = ("0", "1", "YES", "NO")


@dataclass
class _Draw:
    """Matrices of random members of F_s, one after the other."""

    generator: Generator
    ar: FixedPoint
    count: int = 0

    def matrix(self, rows: int, columns: int, largest: int) -> list[list[Fraction]]:
        self.count += 1
        codes = self.generator.at(self.count).integers(2 * largest + 1, (rows, columns)) - largest
        return [[Fraction(code, self.ar.one) for code in row] for row in codes.tolist()]


def random_attention_decoder(seed: int, s: int = 1, layers: int = 2, heads: int = 1, width: int = 2, max_len: int = 6) -> Model:
    """Each layer: gated heads of width 1 and an MLP with two units; all numbers drawn from F_s. Prompt and scratch tokens 0, 1.

    The embedding depends on the position. Raises ValueError for layers, heads, width or max_len below 1.
    """
    for name, value in (("layers", layers), ("heads", heads), ("width", width), ("max_len", max_len)):
        if value < 1:
            raise ValueError(f"{name}={value!r}: must be an integer >= 1")
    ar = FixedPoint(s)
    draw = _Draw(Generator(seed).at(s, layers, heads, width), ar)
    stream = Stream({"x": width})
    table = draw.matrix(len(TOKENS) * max_len, width, ar.max_code)
    embedding = Embedding.from_table(stream, np.array(table, dtype=object).reshape(len(TOKENS), max_len, width))
    blocks = [Block(_layer(draw, stream, heads), _mlp(draw, stream), name=f"GA{number + 1}") for number in range(layers)]
    logits = Affine.from_rows(
        stream, Stream({f"t{token}": 1 for token in TOKENS}),
        {f"t{token}": {"x": draw.matrix(1, width, ar.max_code), "1": draw.matrix(1, 1, ar.one)[0]} for token in TOKENS},
    )  # fmt: skip
    vocabulary = Vocabulary(TOKENS, answers=("YES", "NO"), scratch=("0", "1"))
    return Model(stream, vocabulary, embedding, tuple(blocks), logits)


def _layer(draw: _Draw, stream: Stream, heads: int) -> Layer:
    made = []
    for _ in range(heads):
        q, k, v, gate = (
            Affine.from_rows(stream, Stream({name: 1}), {name: {"x": draw.matrix(1, stream.dim, draw.ar.max_code)}})
            for name in ("q", "k", "v", "gate")
        )
        made.append(Head(Attention(1, 1), {"q": q, "k": k, "v": v}, gate=gate))
    read = Stream({"u": heads})
    return Layer(tuple(made), Affine.from_rows(read, stream, {"x": {"u": draw.matrix(stream.dim, heads, draw.ar.max_code)}}))


def _mlp(draw: _Draw, stream: Stream) -> MLP:
    hidden = Stream({"h": 2})
    into = Affine.from_rows(stream, hidden, {"h": {"x": draw.matrix(2, stream.dim, draw.ar.one)}})
    return MLP(into, Affine.from_rows(hidden, stream, {"x": {"h": draw.matrix(stream.dim, 2, draw.ar.one)}}))
