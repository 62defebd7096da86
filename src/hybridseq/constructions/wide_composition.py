"""Two full layers compose two functions if they may be wide: n_1 + 1 heads, and then n_1 (paper C's task, L = 2, order std).

    lev, aw, ai, val, w, ptr, scr   as in sequential_composition
    tab   n_1 bv   0; at the token z_1(a) layer 1 writes code(z_2(j N_0 + z_1(a))) for every j in [n_1]
    got   n_1 bv   0; layer 2 writes what the last token has read of a table `tab`

Layer 1 walks ahead for every digit that w might be: head j asks for [code(2); code(j); val]. One more head fetches z_0. In layer
2 the last token asks for the record (1, 0, i_0) and takes its n_1 codes, one a head; the MLP keeps the one that its digit names.

Deviates: not in paper C. It shows where the statement that L layers are not enough needs small H d p.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log

import numpy as np

from hybridseq.arithmetic import Float
from hybridseq.codes.binary import binary_words, width_for
from hybridseq.constructions.named_weights import NamedWeights
from hybridseq.constructions.sequential_composition import bits
from hybridseq.evidence import Check
from hybridseq.mixers import Attention, Head, Layer
from hybridseq.models import MLP, Block, Model, TypedEmbedding
from hybridseq.residual import Affine, Stream
from hybridseq.tasks import Vocabulary
from hybridseq.tasks.sequential_composition import SequentialComposition


@dataclass(frozen=True)
class WideComposition(NamedWeights):
    """The construction for a task with two tables, in float64.

    Args:
        task: L = 2, order std. changes: weights that differ, as (map, target, source, weight).

    Raises:
        ValueError: another number of tables or another order, an unknown map in changes.

    Example:
        >>> task = SequentialComposition(4, (2,))
        >>> model = WideComposition(task)
        >>> model.num_heads, int(model.answers(task.sample(0)))
        (3, 7)
    """

    task: SequentialComposition
    changes: tuple[tuple[str, str, str, object], ...] = ()

    def __post_init__(self):
        if self.task.L != 2 or self.task.order != "std":
            raise ValueError(f"task: needs two tables in the order 'std', got L = {self.task.L} in the order {self.task.order!r}")

    @property
    def digits(self) -> int:
        """n_1: the values of w."""
        return self.task.ns[0]

    @property
    def num_heads(self) -> int:
        """H = n_1 + 1 of the wider layer."""
        return self.digits + 1

    @property
    def ar(self) -> Float:
        """float64."""
        return Float()

    @property
    def gain(self) -> float:
        """beta = ln(8 n) / 2."""
        return log(8 * self.task.seq_len) / 2

    @cached_property
    def _widths(self) -> tuple[int, int, int]:
        """la, bw (at least 1) and bv."""
        return bits(self.task.L + 2), width_for(self.digits), bits(self.task.num_answers)

    @cached_property
    def stream(self) -> Stream:
        """lev, aw, ai, val, w, ptr, scr, tab, got."""
        la, bw, bv = self._widths
        wide = self.digits * bv
        return Stream({"lev": la, "aw": bw, "ai": bv, "val": bv, "w": bw, "ptr": bv, "scr": bv, "tab": wide, "got": wide})

    def _code(self, numbers, name: str) -> np.ndarray:
        la, bw, bv = self._widths
        return binary_words(np.asarray(numbers), {"lev": la, "aw": bw, "w": bw}.get(name, bv), bit_order="lsb", one=+1)

    @cached_property
    def embedding(self) -> TypedEmbedding:
        """Kinds of position: 0 an entry of a table or z_0, 1 the token w."""
        task, at, number = self.task, self.stream.slice, np.arange(self.task.vocab_size)
        token = np.zeros((2, task.vocab_size, self.stream.dim), np.int8)
        token[0, :, at("val")], token[1, :, at("val")] = self._code(number, "val"), -1
        token[1, :, at("w")] = self._code(number % self.digits, "w")
        position = np.zeros((task.seq_len, self.stream.dim), np.int8)
        for name, values in (("lev", task.levels), ("aw", task.arg_w), ("ai", task.arg_i)):
            position[:, at(name)] = self._code(values, name)
        position[:, at("ptr")] = -1
        return TypedEmbedding(self.stream, token, (task.levels == task.L + 1).astype(int), position)

    # ----------------------------------------------------------------------------------------------------- weights

    def _from_stream(self, name: str, dim: int, rows: Mapping) -> Affine:
        return Affine.from_rows(self.stream, Stream({name: dim}), rows)

    def _query(self, level: int, digit: int, pointer: str | None) -> Affine:
        """beta [code(level); code(digit); pointer], the code of 0 for no pointer."""
        (la, bw, bv), gain = self._widths, self.gain
        constants = [gain * int(c) for c in (*self._code(level, "lev"), *self._code(digit, "w"))]
        rows = {f"q[:{la + bw}]": {"1": constants}, f"q[{la + bw}:]": {pointer: gain} if pointer else {"1": -gain}}
        return self._from_stream("q", la + bw + bv, rows)

    def _maps(self) -> dict[str, Affine]:
        la, bw, bv = self._widths
        keys = {f"k[:{la}]": {"lev": 1}, f"k[{la}:{la + bw}]": {"aw": 1}, f"k[{la + bw}:]": {"ai": 1}}
        wide, codes = self.digits * bv, (2 * self._code(np.arange(self.task.vocab_size), "ptr").astype(int)).tolist()
        maps = {
            "K": self._from_stream("k", la + bw + bv, keys),
            "V": self._from_stream("v", bv, {"v": {"val": 1}}),
            "ahead.O": Affine.from_rows(
                Stream({"v": wide + bv}), self.stream, {"tab": {f"v[:{wide}]": 1}, "scr": {f"v[{wide}:]": 1}}
            ),
            "ahead.Q start": self._query(0, 0, None),
            "choose.Q": self._query(1, 0, "ptr"),
            "choose.O": Affine.from_rows(Stream({"v": wide}), self.stream, {"got": {"v": 1}}),
            "logits": self._from_stream("token", self.task.vocab_size, {"token": {"ptr": codes}}),
        }
        for j in range(self.digits):
            maps[f"ahead.Q {j}"] = self._query(2, j, "val")
            maps[f"choose.V {j}"] = self._from_stream("v", bv, {"v": {f"tab[{j * bv}:{(j + 1) * bv}]": 1}})
        maps["ahead.MLP hidden"], maps["ahead.MLP out"] = self._sharpen()
        maps["choose.MLP hidden"], maps["choose.MLP out"] = self._choose()
        return maps

    def _sharpen(self) -> tuple[Affine, Affine]:
        """tab <- sign(tab) and ptr <- sign(scr), ptr holding the code of 0 before."""
        wide, bv = self.digits * self._widths[2], self._widths[2]
        hidden = {
            "up": {"tab": 2, "1": 1},
            "down": {"tab": 2, "1": -1},
            "plus": {"tab": 1},
            "minus": {"tab": -1},
            "up_start": {"scr": 2, "1": 1},
            "down_start": {"scr": 2, "1": -1},
        }
        units = Stream({name: bv if name.endswith("start") else wide for name in hidden})
        out = {
            "tab": {"up": 1, "down": -1, "plus": -1, "minus": 1, "1": -1},
            "ptr": {"up_start": 1, "down_start": -1},  # -1 + (sign + 1)
        }
        return Affine.from_rows(self.stream, units, hidden), Affine.from_rows(units, self.stream, out)

    def _choose(self) -> tuple[Affine, Affine]:
        """ptr <- sign(got_j) for j = w: relu(2y + 1 - 2 (bw - <code(j), w>)) is closed by any digit that differs."""
        _, bw, bv = self._widths
        gate = [[2 * int(c) for c in self._code(j, "w")] for j in range(self.digits) for _ in range(bv)]
        gather = [[int(j % bv == row) for j in range(self.digits * bv)] for row in range(bv)]
        hidden = {
            "up": {"got": 2, "w": gate, "1": 1 - 2 * bw},
            "down": {"got": 2, "w": gate, "1": -1 - 2 * bw},
            "old": {"ptr": 1},
            "minus_old": {"ptr": -1},
        }
        units = Stream({name: bv if name.endswith("old") else self.digits * bv for name in hidden})
        less = [[-x for x in row] for row in gather]
        out = {"ptr": {"up": gather, "down": less, "old": -1, "minus_old": 1, "1": -1}}
        return Affine.from_rows(self.stream, units, hidden), Affine.from_rows(units, self.stream, out)

    def _head(self, query: str, value: str) -> Head:
        q, k, v = (self.maps[name] for name in (query, "K", value))
        return Head(Attention(q.target.dim, v.target.dim, scale="raw"), {"q": q, "k": k, "v": v})

    @cached_property
    def model(self) -> Model:
        """Two blocks, and the logits of the pointer."""
        ahead = [self._head(f"ahead.Q {j}", "V") for j in range(self.digits)] + [self._head("ahead.Q start", "V")]
        choose = [self._head("choose.Q", f"choose.V {j}") for j in range(self.digits)]
        blocks = tuple(
            Block(
                Layer(tuple(heads), self.maps[f"{name}.O"]),
                MLP(self.maps[f"{name}.MLP hidden"], self.maps[f"{name}.MLP out"]),
                name,
            )
            for name, heads in (("ahead", ahead), ("choose", choose))
        )
        vocabulary = Vocabulary(tuple(map(str, range(self.task.vocab_size))))
        return Model(self.stream, vocabulary, self.embedding, blocks, self.maps["logits"])

    def answers(self, tokens, ar=None) -> np.ndarray:
        """The token with the largest logit at the last position, for prompts (..., seq_len): (...)."""
        ar = self.ar if ar is None else ar
        return np.argmax(ar.values(self.model.last_only(ar, self.task.check(tokens))), axis=-1)

    def describe(self) -> str:
        """The task, the width, and what is not as it should be."""
        return self._with_changes(f"{self.task.name}, FF with {self.num_heads} heads")


# checks ---------------------------------------------------------------------------------------------------------------


def _check(model: WideComposition, batches: Iterable[np.ndarray], scope: str, ar) -> Check:
    got, wanted = [], []
    for tokens in batches:
        got.append(model.answers(tokens, ar))
        wanted.append(model.task.answers(tokens))
    got, wanted = np.concatenate(got), np.concatenate(wanted)
    return Check.equal(f"two wide layers are enough ({model.describe()})", got, wanted, scope.format(num=len(got)))


def check_every(model: WideComposition, ar=None) -> Check:
    """All instances are answered rightly."""
    return _check(model, model.task.every(1 << 11), "all {num:,} instances", ar)


def check_seeds(model: WideComposition, seeds: Sequence[int], ar=None) -> Check:
    """The instances of given seeds are answered rightly."""
    scope = f"{{num}} random instances of n = {model.task.seq_len} tokens"
    return _check(model, [model.task.sample(np.asarray(seeds))], scope, ar)
