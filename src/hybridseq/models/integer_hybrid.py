"""Hybrids in saturating integers, over any word of full (F) and recurrent (R) layers (paper C, Section 3).

With x the residual stream of a token, all numbers p-bit two's complement, saturated after every matrix product:

    q, k, v = sat(W x)
    F:  u_i = [ sum_{j<=i} a_ij v_j / sum_{j<=i} a_ij ],        a_ij = 2^clip(<q_i, k_j> + offset, 0, g)
    R:  S <- sat'(S + v phi(k)^T),  z <- sat'(z + phi(k)),      u = [ S phi(q) / <z, phi(q)> ],
        phi(x) = clip(x - low, 0, 2^f - 1),  sat' to the width of the layer's state
    x <- sat(x + sat(W_O u)),     x <- sat(x + sat(M_2 relu(sat(M_1 x)))),     answer: argmax_y <r_y, x_last>

[.] rounds half up. Numerators and denominators of F are exact integers, so those of disjoint ranges of keys add up to the whole
bit for bit, in any order. The cores are `Attention` and `LinearAttention` of the mixers, run in `Integer`.

Source: reconstructed from paper C, Section 3, which fixes the precision p only. Deviates: there are no biases (a model that needs
one keeps a coordinate at 1); a recurrent layer's state saturates, as a register does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from hybridseq.arithmetic import Integer
from hybridseq.evidence.provenance import content_hash as hash_of_data
from hybridseq.mixers import Attention, AttentionInputs, LinearAttention, LinearInputs
from hybridseq.mixers.hybrid_word import HybridWord
from hybridseq.rng import Generator
from hybridseq.tasks.sequential_composition import SequentialComposition

__all__ = ["FullLayer", "IntegerHybrid", "IntegerLayer", "RecurrentLayer", "accumulator_bits"]

MOST_BITS = 30
"""The widest accumulator: `Integer` holds no more."""


def accumulator_bits(p: int, g: int, n: int) -> int:
    """p_A = g + p + ceil(log2 n) + 1: no numerator or denominator over n keys of p-bit values can leave this many bits.

    >>> accumulator_bits(2, 1, 8)
    7
    """
    for name, value, least in (("p", p, 1), ("g", g, 0), ("n", n, 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name}={value!r}: must be an integer >= {least}")
    return int(g + p + (int(n) - 1).bit_length() + 1)


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegerLayer:
    """One layer: integer matrices q, k (heads, head_dim, dim), v (heads, value_dim, dim), out (dim, heads * value_dim),
    mlp_in (hidden, dim) and mlp_out (dim, hidden); hidden may be 0.

    Raises ValueError for entries that are no integers, or shapes that do not meet.
    """

    letter: ClassVar[str]
    MATRICES: ClassVar[tuple[str, ...]] = ("q", "k", "v", "out", "mlp_in", "mlp_out")

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    out: np.ndarray
    mlp_in: np.ndarray
    mlp_out: np.ndarray

    def __post_init__(self):
        for name in self.MATRICES:
            object.__setattr__(self, name, _integers(name, getattr(self, name)))
        if self.q.ndim != 3 or self.v.ndim != 3 or 0 in self.q.shape + self.v.shape:
            raise ValueError(f"q and v: need shape (heads, features, dim), got {self.q.shape} and {self.v.shape}")
        heads, head_dim, dim = self.q.shape
        value_dim, hidden = self.v.shape[1], len(self.mlp_in)
        expected = {
            "k": (heads, head_dim, dim), "v": (heads, value_dim, dim), "out": (dim, heads * value_dim),
            "mlp_in": (hidden, dim), "mlp_out": (dim, hidden),
        }  # fmt: skip
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name}: needs shape {shape} beside q of shape {self.q.shape}, got {getattr(self, name).shape}")

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.q.shape[0]

    @property
    def head_dim(self) -> int:
        """d: features of a query and of a key."""
        return self.q.shape[1]

    @property
    def value_dim(self) -> int:
        """Features of a value; at most d where the budget 2B is to hold."""
        return self.v.shape[1]

    @property
    def dim(self) -> int:
        """Width of the residual stream."""
        return self.q.shape[2]

    def project(self, ar: Integer, x, name: str):
        """sat(W x) for the map called `name`: x (..., T, dim) -> (..., heads, T, features)."""
        weight = getattr(self, name)
        y = ar.affine(weight.reshape(-1, self.dim), x)
        return y.reshape(*y.shape[:-1], self.heads, weight.shape[1]).swapaxes(-2, -3)

    def after(self, ar: Integer, x, u):
        """The stream (..., T, dim) after head outputs u (..., heads, T, value_dim) and the MLP are added to x, token by token."""
        joined = u.swapaxes(-2, -3).reshape(*x.shape[:-1], self.heads * self.value_dim)
        x = ar.add(x, ar.affine(self.out, joined))
        return ar.add(x, ar.affine(self.mlp_out, ar.relu(ar.affine(self.mlp_in, x)))) if len(self.mlp_in) else x

    def with_weight(self, name: str, index: tuple[int, ...], value: int):
        """A copy with one entry of one matrix changed."""
        if name not in self.MATRICES:
            raise ValueError(f"name={name!r}: must be one of {', '.join(self.MATRICES)}")
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise ValueError(f"value={value!r}: must be an integer")
        matrix = getattr(self, name).copy()
        matrix[tuple(index)] = value
        return replace(self, **{name: matrix})


@dataclass(frozen=True, eq=False, kw_only=True)
class FullLayer(IntegerLayer):
    """Full causal attention with the weights 2^clip(<q, k> + offset, 0, g); offset None means floor(g/2)."""

    letter: ClassVar[str] = "F"

    offset: int | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.offset is not None and (isinstance(self.offset, bool) or not isinstance(self.offset, int | np.integer)):
            raise ValueError(f"offset={self.offset!r}: must be an integer, or None for floor(g/2)")

    @cached_property
    def core(self) -> Attention:
        """The mixer. An offset other than floor(g/2) is one more, constant, coordinate of q and k."""
        return Attention(self.head_dim + (self.offset is not None), self.value_dim, scale="raw")

    def inputs(self, ar: Integer, x) -> AttentionInputs:
        """q, k, v of x (..., T, dim), each (..., heads, T, features)."""
        q, k, v = (self.project(ar, x, name) for name in "qkv")
        if self.offset is not None:
            q = _append(q, self.offset - ar.g // 2)
            k = _append(k, 1)
        return AttentionInputs(q, k, v)

    def forward(self, ar: Integer, x):
        """The stream after the layer: x (..., n, dim) -> (..., n, dim)."""
        return self.after(ar, x, self.core.parallel(ar, self.inputs(ar, x)))


@dataclass(frozen=True, eq=False, kw_only=True)
class RecurrentLayer(IntegerLayer):
    """Linear attention with clipped features; its state is kept in `state_bits` bits a number.

    feature_low, feature_bits: phi(x) = clip(x - feature_low, 0, 2^feature_bits - 1). normalise: divide by <z, phi(q)>.
    """

    letter: ClassVar[str] = "R"

    state_bits: int
    feature_low: int = 0
    feature_bits: int = 1
    normalise: bool = True

    def __post_init__(self):
        super().__post_init__()
        for name, most in (("state_bits", MOST_BITS), ("feature_bits", MOST_BITS - 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
                raise ValueError(f"{name}={value!r}: must be an integer from 1 to {most}")
        if isinstance(self.feature_low, bool) or not isinstance(self.feature_low, int | np.integer):
            raise ValueError(f"feature_low={self.feature_low!r}: must be an integer")

    @cached_property
    def core(self) -> LinearAttention:
        """The mixer; relu cuts the features at 0, saturation at 2^feature_bits - 1."""
        return LinearAttention(self.head_dim, self.value_dim, feature_map="relu", normalise=self.normalise)

    def register(self, ar: Integer) -> Integer:
        """The arithmetic of the state."""
        return Integer(self.state_bits, ar.g)

    def inputs(self, ar: Integer, x) -> LinearInputs:
        """q and k shifted and clipped from above, and v, of x (..., T, dim): each (..., heads, T, features)."""
        feature = Integer(self.feature_bits + 1)
        q, k = (feature.sub(self.project(ar, x, name), self.feature_low) for name in "qk")
        return LinearInputs(q, k, self.project(ar, x, "v"))

    def scan(self, ar: Integer, x, state=None):
        """(stream after the layer, state) for x (..., T, dim), from a state handed over or from zero."""
        u, state = self.core.scan(self.register(ar), self.inputs(ar, x), state)
        return self.after(ar, x, ar.saturate(u)), state

    def forward(self, ar: Integer, x):
        """The stream after the layer: x (..., n, dim) -> (..., n, dim)."""
        return self.scan(ar, x)[0]


LAYERS = {layer.letter: layer for layer in (FullLayer, RecurrentLayer)}


@dataclass(frozen=True, eq=False)
class IntegerHybrid:
    """A causal decoder over a word of F and R layers, in saturating integers; plain data.

    word: letters, bottom layer first, such as "RFR". p, g: see `Integer`. embedding: integers (seq_len, vocab_size, dim), one
    vector a position and token. layers: one a letter. readout: (num_answers, dim). accumulator: p_A, bits of a partial sum of a
    full layer; None means `accumulator_bits(p, g, seq_len)`, which always fits.

    Raises ValueError for a word with other letters, layers of another word, shapes that do not meet, or entries beyond p bits.

    >>> from hybridseq.tasks.sequential_composition import SequentialComposition
    >>> task = SequentialComposition(2, (2,))
    >>> model = IntegerHybrid.random("RFR", d=1, heads=1, p=2, g=1, task=task, seed=0)
    >>> tokens = next(task.every())
    >>> model.answers(tokens).shape, model.forward(tokens[:3]).shape
    ((4096,), (3, 8, 6))
    """

    word: str
    p: int
    g: int
    embedding: np.ndarray
    layers: tuple[IntegerLayer, ...]
    readout: np.ndarray
    accumulator: int | None = None

    def __post_init__(self):
        letters = HybridWord.parse(str(self.word)).letters
        object.__setattr__(self, "word", letters)
        object.__setattr__(self, "layers", tuple(self.layers))
        found = "".join(layer.letter for layer in self.layers)
        if found != letters:
            raise ValueError(f"layers: the word {letters} needs one layer a letter, got {found or 'none'}")
        for name, axes in (("embedding", 3), ("readout", 2)):
            array = _integers(name, getattr(self, name))
            if array.ndim != axes or 0 in array.shape:
                raise ValueError(f"{name}: needs {axes} axes, none of them empty, got shape {array.shape}")
            object.__setattr__(self, name, array)
        widths = {self.embedding.shape[-1], self.readout.shape[-1], *(layer.dim for layer in self.layers)}
        if len(widths) > 1:
            raise ValueError(f"embedding, layers and readout must share one stream width, got {sorted(widths)}")
        if self.accumulator is None:
            object.__setattr__(self, "accumulator", accumulator_bits(self.p, self.g, self.seq_len))
        whole = not isinstance(self.accumulator, bool) and isinstance(self.accumulator, int | np.integer)
        if not whole or not 2 <= self.accumulator <= MOST_BITS:
            allowed = f"must be an integer in 2..{MOST_BITS}; lower p, g or the length"
            raise ValueError(f"accumulator={self.accumulator!r} bits: {allowed}")
        self._check_range()

    def _check_range(self) -> None:
        """Every stored number must be one of the format."""
        arrays = {"embedding": self.embedding, "readout": self.readout}
        arrays |= {f"layers[{i}].{name}": getattr(a, name) for i, a in enumerate(self.layers) for name in a.MATRICES}
        for name, array in arrays.items():
            if array.size and not self.ar.low <= array.min() <= array.max() <= self.ar.high:
                span = f"{array.min()}..{array.max()}"
                raise ValueError(f"{name}: {span} does not fit p = {self.p} bits, {self.ar.low}..{self.ar.high}")

    # ------------------------------------------------------------------------------------------------------- sizes

    @cached_property
    def ar(self) -> Integer:
        """The arithmetic of the stream."""
        return Integer(self.p, self.g)

    @property
    def seq_len(self) -> int:
        """n: the model reads prompts of exactly this length."""
        return self.embedding.shape[0]

    @property
    def dim(self) -> int:
        """Width of the residual stream."""
        return self.embedding.shape[-1]

    @property
    def budget(self) -> int:
        """B = H d p_A, with H and d of the widest layer."""
        return max(layer.heads * layer.head_dim for layer in self.layers) * self.accumulator

    # ------------------------------------------------------------------------------------------------------ passes

    def embed(self, tokens):
        """The stream (..., n, dim) of tokens (..., n). Raises ValueError for another length or a token beyond the alphabet."""
        tokens = np.asarray(tokens)
        if tokens.dtype.kind not in "iu" or tokens.ndim < 1 or tokens.shape[-1] != self.seq_len:
            raise ValueError(f"tokens: must be integers (..., {self.seq_len}), got {tokens.dtype} of shape {tokens.shape}")
        if tokens.size and not 0 <= tokens.min() <= tokens.max() < self.embedding.shape[1]:
            raise ValueError(f"tokens: must lie in 0..{self.embedding.shape[1] - 1}, got {tokens.min()}..{tokens.max()}")
        return self.embedding[np.arange(self.seq_len), tokens]

    def trace(self, tokens) -> list[np.ndarray]:
        """The stream (..., n, dim) after the embedding and after every layer."""
        steps = [self.embed(tokens)]
        for layer in self.layers:
            steps.append(layer.forward(self.ar, steps[-1]))
        return steps

    def forward(self, tokens):
        """The stream (..., n, dim) after the last layer, for tokens (..., n)."""
        return self.trace(tokens)[-1]

    def read(self, x):
        """argmax_y <r_y, x> for streams (..., dim) of the last token: (...); the lowest y wins a tie."""
        return np.argmax(self.ar.scores(np.asarray(x)[..., None, :], self.readout)[..., 0, :], axis=-1)

    def answers(self, tokens):
        """The model's answers (...) to prompts (..., n)."""
        return self.read(self.forward(tokens)[..., -1, :])

    # ---------------------------------------------------------------------------------------------------- variants

    @classmethod
    def random(
        cls, word, d: int, heads: int, p: int, g: int, task: SequentialComposition, seed: int, dim: int | None = None
    ) -> IntegerHybrid:
        """Random weights for a task: the embedding is uniform in the format, matrices in -1, 0, 1 (in the format where p = 1).

        d, heads: of every layer, values as wide as keys. dim: width of the stream, heads * d + 5 by default; the MLP has as many
        hidden units. A recurrent layer has features x - low in p bits and a state in p_A bits.
        """
        for name, value in (("d", d), ("heads", heads), *((("dim", dim),) if dim is not None else ())):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name}={value!r}: must be an integer >= 1")
        ar, letters = Integer(p, g), HybridWord.parse(str(word)).letters
        dim, width = heads * d + 5 if dim is None else dim, accumulator_bits(p, g, task.seq_len)
        if width > MOST_BITS:
            raise ValueError(f"p={p}, g={g}, n={task.seq_len}: accumulators of {width} bits exceed {MOST_BITS}; lower p or g")
        weights = Generator(seed, (1,))

        def matrix(place: int, name: int, *shape: int):
            return ar.saturate(weights.at(place, name).integers(3, shape) - 1)

        shapes = ((heads, d, dim),) * 3 + ((dim, heads * d), (dim, dim), (dim, dim))
        options = {"F": {}, "R": {"state_bits": width, "feature_low": ar.low, "feature_bits": p}}
        layers = []
        for i, letter in enumerate(letters):
            named = zip(IntegerLayer.MATRICES, shapes, strict=True)
            arrays = {name: matrix(i, j, *shape) for j, (name, shape) in enumerate(named)}
            layers.append(LAYERS[letter](**arrays, **options[letter]))
        table = Generator(seed, (0,)).integers(1 << p, (task.seq_len, task.vocab_size, dim)) + ar.low
        readout = matrix(len(letters), 0, task.num_answers, dim)
        return cls(letters, p, g, table, tuple(layers), readout)

    def with_layer(self, i: int, layer: IntegerLayer) -> IntegerHybrid:
        """A copy with layer number i (from 0) replaced by one with the same letter."""
        return replace(self, layers=(*self.layers[:i], layer, *self.layers[i:][1:]))

    def first_layers(self, depth: int) -> IntegerHybrid:
        """The model cut off after `depth` layers, with the same read-out."""
        if not 1 <= depth <= len(self.layers):
            raise ValueError(f"depth={depth}: must lie in 1..{len(self.layers)}")
        return replace(self, word=self.word[:depth], layers=self.layers[:depth])

    # --------------------------------------------------------------------------------------------------- plain data

    def to_data(self) -> dict[str, Any]:
        """Numbers, strings, lists and dictionaries alone: what a certificate holds."""
        layers = [{"letter": a.letter, **{f.name: _plain(getattr(a, f.name)) for f in fields(a)}} for a in self.layers]
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self) if f.name != "layers"} | {"layers": layers}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> IntegerHybrid:
        """The model of `to_data`. Raises ValueError for data of another form."""
        try:
            layers = [LAYERS[a["letter"]](**{k: _array(v) for k, v in a.items() if k != "letter"}) for a in data["layers"]]
            return cls(**{k: _array(v) for k, v in data.items() if k != "layers"}, layers=tuple(layers))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"data: not an integer hybrid as written by to_data ({error})") from error

    @property
    def content_hash(self) -> str:
        """SHA-256 of the plain data."""
        return hash_of_data(self.to_data())


def _integers(name: str, values) -> np.ndarray:
    array = np.array(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name}: must hold integers, got {array.dtype}")
    array = array.astype(np.int64)
    array.setflags(write=False)
    return array


def _append(x, value: int):
    """One more, constant, coordinate."""
    return np.concatenate([x, np.full((*x.shape[:-1], 1), value, dtype=np.int64)], axis=-1)


def _plain(value):
    return {"shape": list(value.shape), "entries": value.reshape(-1).tolist()} if isinstance(value, np.ndarray) else value


def _array(value):
    return np.array(value["entries"], dtype=np.int64).reshape(value["shape"]) if isinstance(value, Mapping) else value
