"""Pointer doubling: logarithmic depth where every token may know w early (paper C's task in other orders or other models).

After k rounds the token z_l(a) holds the pointer that leaves level r = min(L, l + 2^k - 1) when a is looked up at level l. In
the next round it looks up the token of level r + 1 whose argument is (w_r, pointer) and takes over that token's pointer. z_0
counts as level 0, so ceil(log2(L + 1)) rounds lead from z_0 to the answer.

    lev, aw, ai   the record of the position, as in sequential_composition; bw is at least 1 here
    ptr           code(the token), the pointer; code(0) at w
    w, got        digits of w at w; what layer 1 reads of them elsewhere
    next_k, need_k, go_k     by position, for round k: code(l + 2^k); which digit w_r is wanted, one-hot; 1 if l + 2^k <= L
    dig_k         code(w_r), written by the MLP of layer 1
    scr           0; what a layer has read

A causal decoder can do this if w comes first and levels descend (order `wfirst`), because a lookup goes to a higher level, which
stands further left; the answer is at z_0, which stands last: ceil(log2(L + 1)) + 1 layers. An encoder without a mask can do it in
any order and needs a last layer in which the last token reads z_0's pointer: ceil(log2(L + 1)) + 2.

Deviates: paper C has no such construction at hand; it is here to show what makes its order hard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log

import numpy as np

from hybridseq.arithmetic import Float
from hybridseq.codes.binary import binary_words, width_for
from hybridseq.constructions.named_weights import NamedWeights
from hybridseq.constructions.sequential_composition import UNIT, CoarseHeads, bits
from hybridseq.evidence import Check
from hybridseq.mixers import Attention, AttentionInputs, Head, Layer
from hybridseq.models import MLP, Block, Model, TypedEmbedding
from hybridseq.residual import Affine, Stream
from hybridseq.tasks import Vocabulary
from hybridseq.tasks.sequential_composition import SequentialComposition

FORMS = {
    "decoder": "causal attention, order wfirst, answer at z_0",
    "encoder": "attention without a mask, any order, answer at the last token",
}


@dataclass(frozen=True)
class UnmaskedAttention(Attention):
    """Attention in which every token sees every token, as in an encoder."""

    def forward(self, ar, inputs: AttentionInputs):
        """All queries against all keys, (..., seq_len, value_dim)."""
        self.check_inputs(inputs)
        return self.finish(ar, self.partial(ar, inputs.q, inputs.k, inputs.v))


def depth(L: int, form: str = "decoder") -> int:
    """ceil(log2(L + 1)) + 1 layers for a decoder in the order wfirst, one more for an encoder.

    >>> [depth(L) for L in range(1, 8)], [depth(L, "encoder") for L in range(1, 8)]
    ([2, 3, 3, 4, 4, 4, 4], [3, 4, 4, 5, 5, 5, 5])
    """
    if form not in FORMS:
        raise ValueError(f"form={form!r}: must be one of {', '.join(map(repr, FORMS))}")
    if isinstance(L, bool) or not isinstance(L, int | np.integer) or L < 1:
        raise ValueError(f"L={L!r}: must be an integer >= 1")
    return bits(L + 1) + (1 if form == "decoder" else 2)


def digit_selection(stream: Stream, slots: int, wanted: Mapping[str, str]) -> tuple[Affine, Affine]:
    """The two maps of an MLP that writes the digit that a one-hot mark picks out of `got`, as an exact sign.

    stream: with `got` of `slots` digits. wanted: mark (slots coordinates of 0 and 1) -> where the digit goes. Without a mark it
    writes code(0) = -1. relu(2y + 1 - 4(1 - e)) - relu(2y - 1 - 4(1 - e)) is sign(y) + 1 for the mark e = 1 and 0 for e = 0.
    """
    width = len(stream.coordinates("got")) // slots
    spread = [[int(slot == other) for other in range(slots)] for slot in range(slots) for _ in range(width)]
    gather = [[int(j == i % width) for i in range(slots * width)] for j in range(width)]
    hidden, out = {}, {}
    for mark, place in wanted.items():
        gate = [[4 * e for e in row] for row in spread]
        hidden |= {f"up_{mark}": {"got": 2, mark: gate, "1": -3}, f"down_{mark}": {"got": 2, mark: gate, "1": -5}}
        out[place] = {f"up_{mark}": gather, f"down_{mark}": [[-x for x in row] for row in gather], "1": -1}
    units = Stream(dict.fromkeys(hidden, slots * width))
    return Affine.from_rows(stream, units, hidden), Affine.from_rows(units, stream, out)


@dataclass(frozen=True)
class PointerDoubling(NamedWeights):
    """The construction for one task, in float64.

    Args:
        task: in the order wfirst for a decoder, in any order for an encoder. form: see `FORMS`.
        rounds: how many doublings to make, None for ceil(log2(L + 1)); fewer are a control.
        changes: weights that differ, as (map, target, source, weight).

    Raises:
        ValueError: an unknown form, a decoder in another order, more rounds than there are, an unknown map in changes.

    Example:
        >>> task = SequentialComposition(4, (2,), "wfirst")
        >>> model = PointerDoubling(task)
        >>> model.depth, int(model.answers(task.sample(0)))
        (3, 7)
    """

    task: SequentialComposition
    form: str = "decoder"
    rounds: int | None = None
    changes: tuple[tuple[str, str, str, object], ...] = ()

    def __post_init__(self):
        depth(self.task.L, self.form)
        if self.form == "decoder" and self.task.order != "wfirst":
            raise ValueError(f"task: a causal decoder needs the order 'wfirst', got {self.task.order!r}; use form='encoder'")
        if self.rounds is not None:
            whole = not isinstance(self.rounds, bool) and isinstance(self.rounds, int | np.integer)
            if not whole or not 0 <= self.rounds <= bits(self.task.L + 1):
                raise ValueError(f"rounds={self.rounds!r}: must be an integer from 0 to {bits(self.task.L + 1)}")

    @property
    def num_rounds(self) -> int:
        """Doublings that are made."""
        return bits(self.task.L + 1) if self.rounds is None else self.rounds

    @property
    def depth(self) -> int:
        """Attention layers, the one that reads w included."""
        return self.num_rounds + (1 if self.form == "decoder" else 2)

    @property
    def gain(self) -> float:
        """beta = ln(8 n) / 2."""
        return log(8 * self.task.seq_len) / 2

    @property
    def ar(self) -> Float:
        """float64."""
        return Float()

    # ------------------------------------------------------------------------------------------- stream, embedding

    @cached_property
    def _widths(self) -> tuple[int, int, int, int]:
        """la, bw, bv and the number of digits of w, each at least 1."""
        task = self.task
        return bits(task.L + 2), width_for(max(task.ns, default=1)), bits(task.num_answers), max(1, task.L - 1)

    @cached_property
    def stream(self) -> Stream:
        """lev, aw, ai, ptr, w, got, scr, and for each round next, need, go, dig."""
        la, bw, bv, slots = self._widths
        parts = {"lev": la, "aw": bw, "ai": bv, "ptr": bv, "w": slots * bw, "got": slots * bw, "scr": bv}
        for k in range(self.num_rounds):
            parts |= {f"next_{k}": la, f"need_{k}": slots, f"go_{k}": 1, f"dig_{k}": bw}
        return Stream(parts)

    def _code(self, numbers, name: str) -> np.ndarray:
        la, bw, bv, _ = self._widths
        width = {"lev": la, "aw": bw, "w": bw}.get(name, bv)
        return binary_words(np.asarray(numbers), width, bit_order="lsb", one=+1)

    @cached_property
    def embedding(self) -> TypedEmbedding:
        """Kinds of position: 0 an entry of a table or z_0, 1 the token w."""
        task, at, number = self.task, self.stream.slice, np.arange(self.task.vocab_size)
        token = np.zeros((2, task.vocab_size, self.stream.dim), np.int8)
        token[0, :, at("ptr")] = self._code(number, "ptr")
        token[1, :, at("ptr")] = token[1, :, at("w")] = -1
        if task.L > 1:
            token[1, :, at("w")] = self._code(task.digits(number), "w").reshape(len(number), -1)
        position = np.zeros((task.seq_len, self.stream.dim), np.int8)
        for name, values in (("lev", task.levels), ("aw", task.arg_w), ("ai", task.arg_i)):
            position[:, at(name)] = self._code(values, name)
        for k in range(self.num_rounds):
            target = task.levels + 2**k
            go = target <= task.L  # w has level L + 1 and never goes
            position[:, at(f"go_{k}")] = go[:, None]
            position[:, at(f"next_{k}")] = self._code(np.where(go, target, 0), "lev")
            wanted = target[:, None] - 2 == np.arange(self._widths[3])  # digit w_r, r = target - 1, stands in slot r - 1
            position[:, at(f"need_{k}")] = wanted & go[:, None]
        return TypedEmbedding(self.stream, token, (task.levels == task.L + 1).astype(int), position)

    # ----------------------------------------------------------------------------------------------------- weights

    def _from_stream(self, name: str, dim: int, rows: Mapping) -> Affine:
        return Affine.from_rows(self.stream, Stream({name: dim}), rows)

    def _query(self, level: Mapping, digit: Mapping, pointer: Mapping) -> Affine:
        la, bw, bv, _ = self._widths
        rows = {f"q[:{la}]": level, f"q[{la}:{la + bw}]": digit, f"q[{la + bw}:]": pointer}
        return self._from_stream("q", la + bw + bv, rows)

    def _constant(self, level: int) -> Affine:
        """The query for the record (level, 0, 0)."""
        gain = self.gain
        return self._query({"1": [gain * int(c) for c in self._code(level, "lev")]}, {"1": -gain}, {"1": -gain})

    def _maps(self) -> dict[str, Affine]:
        la, bw, bv, slots = self._widths
        keys = {f"k[:{la}]": {"lev": 1}, f"k[{la}:{la + bw}]": {"aw": 1}, f"k[{la + bw}:]": {"ai": 1}}
        codes = (2 * self._code(np.arange(self.task.vocab_size), "ptr").astype(int)).tolist()
        maps = {
            "K": self._from_stream("k", la + bw + bv, keys),
            "read w.Q": self._constant(self.task.L + 1),
            "read w.V": self._from_stream("v", slots * bw, {"v": {"w": 1}}),
            "read w.O": Affine.from_rows(Stream({"v": slots * bw}), self.stream, {"got": {"v": 1}}),
            "V": self._from_stream("v", bv, {"v": {"ptr": 1}}),
            "O": Affine.from_rows(Stream({"v": bv}), self.stream, {"scr": {"v": 1}}),
            "logits": self._from_stream("token", self.task.vocab_size, {"token": {"ptr": codes}}),
        }
        wanted = {f"need_{k}": f"dig_{k}" for k in range(self.num_rounds)}
        if wanted:
            maps["read w.MLP hidden"], maps["read w.MLP out"] = digit_selection(self.stream, slots, wanted)
        gain = self.gain
        for k in range(self.num_rounds):
            maps[f"round {k}.Q"] = self._query({f"next_{k}": gain}, {f"dig_{k}": gain}, {"ptr": gain})
            maps[f"round {k}.MLP hidden"], maps[f"round {k}.MLP out"] = self._pointer_maps(f"go_{k}")
        if self.form == "encoder":
            maps["collect.Q"] = self._constant(0)
            maps["collect.MLP hidden"], maps["collect.MLP out"] = self._pointer_maps(None)
        return maps

    def _pointer_maps(self, go: str | None) -> tuple[Affine, Affine]:
        """ptr <- sign(scr) where go = 1 (everywhere for None), scr <- 0: with p = +-1, relu(p - 1 + 2 go) is p + 1 or 0."""
        bv, size = self._widths[2], {"up": (2, 1, 4), "down": (2, -1, 4), "old": (1, 1, 2)}
        hidden = {}
        for unit, (weight, bias, gate) in size.items():
            source = "ptr" if unit == "old" else "scr"
            closed = {"1": bias} if go is None else {"1": bias - gate, go: [[gate]] * bv}
            hidden[unit] = {source: weight} | closed
        hidden |= {"read": {"scr": 1}, "minus_read": {"scr": -1}}
        units = Stream(dict.fromkeys(hidden, bv))
        out = {"ptr": {"up": 1, "down": -1, "old": -1}, "scr": {"read": -1, "minus_read": 1}}
        return Affine.from_rows(self.stream, units, hidden), Affine.from_rows(units, self.stream, out)

    def _layers(self) -> Iterator[tuple[str, str, str]]:
        """(name, value map, output map) in order."""
        yield "read w", "read w.V", "read w.O"
        for k in range(self.num_rounds):
            yield f"round {k}", "V", "O"
        if self.form == "encoder":
            yield "collect", "V", "O"

    @cached_property
    def model(self) -> Model:
        """All layers, their MLPs, and the logits of the pointer."""
        kind, blocks = Attention if self.form == "decoder" else UnmaskedAttention, []
        for name, v, o in self._layers():
            q, k, v, out = (self.maps[part] for part in (f"{name}.Q", "K", v, o))
            head = Head(kind(q.target.dim, v.target.dim, scale="raw"), {"q": q, "k": k, "v": v})
            has_mlp = f"{name}.MLP hidden" in self.maps
            mlp = MLP(self.maps[f"{name}.MLP hidden"], self.maps[f"{name}.MLP out"]) if has_mlp else None
            blocks.append(Block(Layer((head,), out), mlp, name))
        vocabulary = Vocabulary(tuple(map(str, range(self.task.vocab_size))))
        return Model(self.stream, vocabulary, self.embedding, tuple(blocks), self.maps["logits"])

    def answers(self, tokens, ar=None) -> np.ndarray:
        """The token with the largest logit at the last position, for prompts (..., seq_len): (...)."""
        ar = self.ar if ar is None else ar
        return np.argmax(ar.values(self.model.forward(ar, self.task.check(tokens)))[..., -1, :], axis=-1)

    def pointers(self, tokens, ar=None) -> tuple[np.ndarray, np.ndarray]:
        """z_0's pointer before and after each round, for prompts (num, seq_len).

        Returns (numbers, signs): integers (num, rounds + 1) and coordinates (num, rounds + 1, bv).
        """
        ar = self.ar if ar is None else ar
        at, steps = self.task.position(0), dict(self.model.trace(ar, self.task.check(tokens)))
        after = ["embedding", *(f"round {k} MLP" for k in range(self.num_rounds))]
        signs = np.stack([ar.values(self.stream.read(steps[name][:, at], "ptr")) for name in after], axis=1)
        return (signs > 0) @ (1 << np.arange(signs.shape[-1])), signs

    def describe(self) -> str:
        """The task, the form, and what is not as it should be."""
        words = f"{self.task.name}, {self.task.order}, {self.form} of {self.depth} layers"
        return self._with_changes(words)


# checks ---------------------------------------------------------------------------------------------------------------


def _check(model: PointerDoubling, batches: Iterable[np.ndarray], scope: str, ar) -> Check:
    num = right = 0
    error, example = 0.0, None
    L, reach = model.task.L, [min(model.task.L, 2**k - 1) for k in range(model.num_rounds + 1)]
    for tokens in batches:
        numbers, signs = model.pointers(tokens, ar)
        trace, answers = model.task.trace(tokens), model.answers(tokens, ar)
        good = (numbers == trace[:, reach]).all(axis=1) & (answers == trace[:, L])
        num, right = num + len(tokens), right + int(good.sum())
        error = max(error, float(np.abs(np.abs(signs) - 1).max()))
        if not good.all() and example is None:
            row = int(np.argmin(good))
            example = {"trace": trace[row].tolist(), "pointers at z_0": numbers[row].tolist(), "answer": int(answers[row])}
    numbers = {"right": right, "pointer error": error, "depth": model.depth}
    slack = 0.0 if isinstance(ar, CoarseHeads) else 4 * UNIT
    return Check.true(
        f"pointer doubling is right, round by round ({model.describe()})",
        right == num and error <= slack,
        scope.format(num=num),
        cases=num,
        counterexample=example or numbers,
        value=numbers,
    )


def check_every(model: PointerDoubling, ar=None) -> Check:
    """All instances: z_0's pointer after k rounds is i_min(L, 2^k - 1), and the answer is i_L."""
    return _check(model, model.task.every(1 << 11), "all {num:,} instances", ar)


def check_seeds(model: PointerDoubling, seeds: Sequence[int], ar=None) -> Check:
    """The instances of given seeds, under the conditions of `check_every`."""
    scope = f"{{num}} random instances of n = {model.task.seq_len} tokens"
    return _check(model, [model.task.sample(np.asarray(seeds))], scope, ar)


def share_right(model: PointerDoubling) -> tuple[int, int]:
    """(right answers, instances) over all instances; for the control with one round fewer."""
    right = num = 0
    for tokens in model.task.every(1 << 11):
        right, num = right + int((model.answers(tokens) == model.task.answers(tokens)).sum()), num + len(tokens)
    return right, num
