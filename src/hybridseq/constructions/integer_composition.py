"""Composing L functions in saturating integers: F^(L+1), or one linear layer of 2-valued state and F^L (paper C, Theorem 1.1).

The construction of `constructions.sequential_composition` as an `IntegerHybrid`, so that the protocol of paper C can play it. The
slots are the same, with one more for constants:

    lev la | aw bw | ai bv | val bv | w (L-1) bw | ptr bv | scr bv | one 1      codes of +-1, least significant digit first

A full layer makes one hop at the last token. With c = ceil(kappa / 2) and the query c [code(l); w_{l-1}; ptr], the key that
agrees in all d = la + bw + bv signs has the exponent kappa and every other at most 0, so the weights are 2^kappa and 1, with
kappa = ceil(log2 4n). The digits of the value come back with |num| / den > 3/5 and are rounded to +-1; the MLP moves scr to ptr.
A numerator is at most n 2^kappa, so p_A = kappa + bitlen(n) + 1 bits hold it.

The linear layer has the single feature [level = 0] and no denominator, because one token alone has that feature. Its values are
0 and -2 for the digits -1 and +1, and in a state of one bit (0 or -1) the sum saturates: b_v bits of state, one a digit, and
ptr = -1 - 2 S.

Deviates: the specification's linear layer divides by a sum of features; this one has nothing to divide by.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from hybridseq.codes.binary import binary_words
from hybridseq.constructions.sequential_composition import bits
from hybridseq.models.integer_hybrid import FullLayer, IntegerHybrid, RecurrentLayer
from hybridseq.residual import Stream
from hybridseq.tasks.sequential_composition import SequentialComposition

__all__ = ["composition_hybrid", "least_ratio", "sizes", "table_register"]

MOST_ENTRIES = 1 << 25
"""The largest embedding table that is built: positions times tokens times width."""


def composition_hybrid(task: SequentialComposition, linear: bool = False) -> IntegerHybrid:
    """The hybrid F^(L+1), or R F^L with `linear`. Raises ValueError for another prompt order than std, or a task too long to
    tabulate its embedding.

    >>> model = composition_hybrid(SequentialComposition(2, (2,)))
    >>> model.word, model.accumulator, model.budget, model.layers[0].head_dim
    ('FFF', 10, 50, 5)
    """
    if task.order != "std":
        raise ValueError(f"task: order {task.order!r}, but the last token must be w: use order 'std'")
    weights = _Weights(task)
    entries = task.seq_len * task.vocab_size * weights.stream.dim
    if entries > MOST_ENTRIES:
        raise ValueError(
            f"task: n = {task.seq_len} needs an embedding table of {entries:,} numbers, at most {MOST_ENTRIES:,} are built; "
            "take the construction of `constructions.sequential_composition`, which has no table"
        )
    return weights.model(linear)


def sizes(task: SequentialComposition) -> tuple[int, int, int]:
    """(d, p_A, B): features of a key, bits of an accumulator, budget B = H d p_A of one head, for a task of any length.

    >>> sizes(SequentialComposition(64, (2, 2, 2, 2, 2)))
    (15, 27, 405)
    """
    weights = _Weights(task)
    return weights.d, weights.accumulator, weights.d * weights.accumulator


class _Weights:
    """Sizes, slots and matrices of one task."""

    def __init__(self, task: SequentialComposition):
        self.task = task
        self.la, self.bv, self.bw = bits(task.L + 2), bits(task.num_answers), max(map(bits, task.ns), default=0)
        self.d, self.kappa = self.la + self.bw + self.bv, bits(4 * task.seq_len)
        self.accumulator = self.kappa + task.seq_len.bit_length() + 1
        self.gain = ceil(self.kappa / 2)
        self.p = max(3, self.gain.bit_length() + 1, self.la.bit_length() + 1)
        slots = {"lev": self.la, "aw": self.bw, "ai": self.bv, "val": self.bv, "w": (task.L - 1) * self.bw}
        slots |= {"ptr": self.bv, "scr": self.bv, "one": 1}
        self.stream = Stream({name: size for name, size in slots.items() if size})

    def model(self, linear: bool) -> IntegerHybrid:
        first = self.fetch_start() if linear else self.hop(0)
        layers = (first, *(self.hop(l) for l in range(1, self.task.L + 1)))
        readout = np.zeros((self.task.num_answers, self.stream.dim), np.int64)
        readout[:, self.stream.slice("ptr")] = self.code(np.arange(self.task.num_answers), self.bv)
        word = ("R" if linear else "F") + "F" * self.task.L
        return IntegerHybrid(word, self.p, self.kappa, self.embedding(), layers, readout, self.accumulator)

    def code(self, numbers, width: int) -> np.ndarray:
        return binary_words(np.asarray(numbers), width, bit_order="lsb", one=+1)

    def embedding(self) -> np.ndarray:
        """(n, vocabulary, dim)."""
        task, at = self.task, self.stream.slice
        x = np.zeros((task.seq_len, task.vocab_size, self.stream.dim), np.int64)
        x[:, :, at("lev")] = self.code(task.levels, self.la)[:, None]
        x[:, :, at("ai")] = self.code(task.arg_i, self.bv)[:, None]
        x[:, :, at("val")] = self.code(np.arange(task.vocab_size), self.bv)
        x[-1, :, at("val")] = self.code(0, self.bv)
        x[:, :, at("ptr")], x[:, :, at("one")] = -1, 1
        if self.bw:
            x[:, :, at("aw")] = self.code(task.arg_w, self.bw)[:, None]
            words = np.arange(int(task.alphabet[-1]))
            x[-1, : len(words), at("w")] = self.code(task.digits(words), self.bw).reshape(len(words), -1)
        return x

    def rows(self, count: int, *entries: tuple[int, str | int, int]) -> np.ndarray:
        """A matrix (count, dim) from (first row, slot or column, weight): a multiple of the identity on a slot."""
        matrix = np.zeros((count, self.stream.dim), np.int64)
        for row, slot, weight in entries:
            columns = self.stream.coordinates(slot) if isinstance(slot, str) else [slot]
            for i, column in enumerate(columns):
                matrix[row + i, column] = weight
        return matrix

    def hop(self, l: int) -> FullLayer:
        """i_l = z_l at (w_{l-1}, i_{l-1}): level l, the digit and the pointer make the query."""
        s, c = self.stream, self.gain
        one = s.slice("one").start
        query = np.zeros((self.d, s.dim), np.int64)
        query[: self.la, one] = c * self.code(l, self.la)
        digits, argument = slice(self.la, self.la + self.bw), slice(self.la + self.bw, self.d)
        if l >= 2:
            query[digits] = self.rows(self.bw, *([(0, f"w[{(l - 2) * self.bw}:{(l - 1) * self.bw}]", c)] if self.bw else []))
        else:
            query[digits, one] = -c
        if l >= 1:
            query[argument] = self.rows(self.bv, (0, "ptr", c))
        else:
            query[argument, one] = -c
        record = [(0, "lev", 1), *([(self.la, "aw", 1)] if self.bw else []), (self.la + self.bw, "ai", 1)]
        hidden = self.rows(4 * self.bv, (0, "scr", 1), (self.bv, "scr", -1), (2 * self.bv, "ptr", 1), (3 * self.bv, "ptr", -1))
        eye = np.eye(self.bv, dtype=np.int64)
        out = np.zeros((s.dim, 4 * self.bv), np.int64)
        out[s.slice("ptr")] = np.concatenate([eye, -eye, -eye, eye], axis=1)
        out[s.slice("scr"), : 2 * self.bv] = np.concatenate([-eye, eye], axis=1)
        return FullLayer(
            q=query[None], k=self.rows(self.d, *record)[None], v=self.rows(self.bv, (0, "val", 1))[None],
            out=self.rows(self.bv, (0, "scr", 1)).T, mlp_in=hidden, mlp_out=out, offset=self.kappa - c * self.d,
        )  # fmt: skip

    def fetch_start(self) -> RecurrentLayer:
        """Hop 0 by a state of one bit a digit: S = -1 where the digit of z_0 is +1."""
        s = self.stream
        one = s.slice("one").start
        key = np.zeros((1, s.dim), np.int64)
        key[0, s.slice("lev")], key[0, one] = self.code(0, self.la), 1 - self.la
        value = self.rows(self.bv, (0, "val", -1))
        value[:, one] = -1
        nothing = np.zeros((0, s.dim), np.int64)
        return RecurrentLayer(
            q=self.rows(1, (0, "one", 1))[None], k=key[None], v=value[None], out=self.rows(self.bv, (0, "ptr", -2)).T,
            mlp_in=nothing, mlp_out=nothing.T, state_bits=1, normalise=False,
        )  # fmt: skip


def table_register(task: SequentialComposition) -> IntegerHybrid:
    """One recurrent layer that holds all of z_L in a single number of state; it answers nothing.

    S = sum_a N^a z_L(a) - c N^(N-1) with N = N_{L-1} and c = N div 2: the key of argument a is N^a, its value z_L(a), less c at
    the last; all other keys are 0. It solves no task: it shows how little it takes to tell all tables apart.

    Raises ValueError for another prompt order than std, or beyond 20 bits.

    >>> model = table_register(SequentialComposition(2, (2,)))
    >>> model.word, model.layers[0].state_bits
    ('R', 8)
    """
    size = task.num_answers
    shift = size // 2 * size ** (size - 1)
    width = 1 + max((shift - 1).bit_length(), (size**size - 1 - shift).bit_length())
    if task.order != "std" or width > 20:
        raise ValueError(f"task: order {task.order!r}, {width} bits; z_L must come first (order 'std') and fit 20 bits")
    key, value = 0, 1
    table = np.zeros((task.seq_len, task.vocab_size, 2), np.int64)
    table[:size, :, key] = size ** np.arange(size)[:, None]
    table[:size, :, value] = np.arange(task.vocab_size)
    table[size - 1, :, value] -= size // 2
    one, nothing = np.eye(2, dtype=np.int64), np.zeros((0, 2), np.int64)
    layer = RecurrentLayer(
        q=one[None, [key]], k=one[None, [key]], v=one[None, [value]], out=np.zeros((2, 1), np.int64),
        mlp_in=nothing, mlp_out=nothing.T, state_bits=width, feature_bits=width, normalise=False,
    )  # fmt: skip
    return IntegerHybrid("R", width + 1, 0, table, (layer,), np.zeros((size, 2), np.int64))


def least_ratio(model: IntegerHybrid, tokens) -> float:
    """The least |num| / den at the last token over prompts, full layers and value coordinates; above 3/5 signs are safe.

    >>> task = SequentialComposition(2, (2,))
    >>> round(least_ratio(composition_hybrid(task), next(task.every())), 4)
    0.641
    """
    found = []
    for layer, x in zip(model.layers, model.trace(tokens), strict=False):
        if isinstance(layer, FullLayer):
            inputs = layer.inputs(model.ar, x)
            part = layer.core.partial(model.ar, inputs.q[..., -1:, :], inputs.k, inputs.v)
            found.append(np.abs(part.num / part.den).min())
    return float(min(found))
