"""A decoder of Gated DeltaNet layers alone that solves parity-conditioned retrieval, and what is left of it with less memory.

Theorem 7.1 of paper A asks for n - 1 bits of recurrent state (n bits for even n). This machine has them, one bit a number:

    L1, memory   a (rows x columns) head writes delta Y_l into the cell of bit l                (rows * columns numbers)
    L1, parity   the cell of Lemma 5.2 keeps p(Y)                                               (4 numbers)
                 at MARK the memory is read with q = e_column and an output gate open for one row:   BIT = Y_j
    L2           one number keeps BIT until the end of the prompt                               (1 number)
                 and the MLP forms                                                              ANS = PAR xor BIT

A memory cell holds delta because of the rounding alone: decay 3/4 would shrink it, but [3/4 delta] = delta, and erasing with
strength 1/2 would halve it, but [delta/2] = 0. With fewer cells than bits, bit l (from 0) goes to cell l mod (rows * columns):
the truncated machine mixes bits up, and a collision of states proves it wrong.

Source: an addition to paper A, which has the bound and no machine. Needs s >= 2 and ties toward zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isqrt, log

import numpy as np

from hybridseq.arithmetic import FixedPoint
from hybridseq.constructions.named_weights import NamedWeights
from hybridseq.constructions.parity_cell import P0, F, G, Z
from hybridseq.evidence import Check
from hybridseq.mixers import DeltaRule, Head, Layer
from hybridseq.mixers.delta_rule import DeltaInputs
from hybridseq.models import MLP, Block, Embedding, Model
from hybridseq.residual import Affine, Stream
from hybridseq.rng import Generator
from hybridseq.tasks import Vocabulary, pcr

WAIT = "WAIT"
PARITY_NUMBERS, LATCH_NUMBERS = 4, 1


def state_size(n: int) -> int:
    """D = ceil(sqrt n)^2 + 5, the numbers of recurrent state of the square machine.

    Example:
        >>> state_size(16), state_size(49)
        (21, 54)
    """
    return side(n) ** 2 + PARITY_NUMBERS + LATCH_NUMBERS


def side(n: int) -> int:
    """ceil(sqrt n). Raises ValueError for n < 1."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n must be an integer >= 1 (bits in the table), got {n!r}")
    return isqrt(int(n) - 1) + 1


@dataclass(frozen=True)
class MemoryMachine(NamedWeights):
    """Two Gated DeltaNet layers for tables of n bits at precision s.

    Args:
        n: bits in the table. s: bits behind the point, at least 2.
        shape: (rows, columns) of the memory; None means the square of side ceil(sqrt n). Fewer cells than n truncate.
        wait: scratch tokens that the machine writes before its answer; they change nothing, which is the point.
        changes: weights that differ from the construction, as (map, target, source, weight); see `with_weight`.

    Raises:
        ValueError: n < 1, s < 2, an empty memory, wait < 0.

    Example:
        >>> machine = MemoryMachine(n=3, s=2)
        >>> prompt = pcr.encode([1, 0, 1], 3)
        >>> machine.vocabulary.names(machine.answers(prompt.tokens)), machine.state_numbers
        (['YES'], 9)
    """

    n: int
    s: int
    shape: tuple[int, int] | None = None
    wait: int = 0
    changes: tuple[tuple[str, str, str, object], ...] = ()

    def __post_init__(self):
        square = side(self.n)
        self.ar.require(2, "the memory machine, whose gates are 1/4, 1/2 and 3/4,")
        shape = (square, square) if self.shape is None else tuple(self.shape)
        if len(shape) != 2 or any(isinstance(x, bool) or not isinstance(x, int | np.integer) or x < 1 for x in shape):
            raise ValueError(f"shape={self.shape!r}: the memory needs (rows, columns), both integers >= 1")
        if isinstance(self.wait, bool) or not isinstance(self.wait, int | np.integer) or self.wait < 0:
            raise ValueError(f"wait={self.wait!r}: the number of scratch tokens must be an integer >= 0")
        object.__setattr__(self, "shape", (int(shape[0]), int(shape[1])))

    @property
    def ar(self) -> FixedPoint:
        """The arithmetic of the construction, F_s with ties toward zero."""
        return FixedPoint(self.s)

    @property
    def slots(self) -> int:
        """Cells of the memory."""
        return self.shape[0] * self.shape[1]

    @property
    def state_numbers(self) -> int:
        """D: rows * columns + 5."""
        return self.slots + PARITY_NUMBERS + LATCH_NUMBERS

    @property
    def vocabulary(self) -> Vocabulary:
        """The alphabet of the task and one scratch token."""
        return Vocabulary((*pcr.VOCABULARY.tokens, WAIT), answers=("YES", "NO"), scratch=(WAIT,))

    def cell(self, bit: int) -> tuple[int, int]:
        """(row, column) of the cell that keeps bit number `bit`, counted from 0."""
        place = bit % self.slots
        return place % self.shape[0], place // self.shape[0]

    @cached_property
    def stream(self) -> Stream:
        """g, f: the two tokens of a one. KEY: the column asked for. WRITE: the row written to. OPEN: the row read, else -1."""
        rows, columns = self.shape
        return Stream(
            {"g": 1, "f": 1, "KEY": columns, "WRITE": rows, "OPEN": rows, "GOON": 1}
            | {"PAR": 1, "BIT": 1, "LATCH": 1, "ANS": 1}
        )

    # ------------------------------------------------------------------------------------------------- the weights

    def _maps(self) -> dict[str, Affine]:
        return self._memory_maps() | self._parity_maps() | self._latch_maps() | {"logits": self._logits()}

    @property
    def _ln3(self):
        return self.ar.fraction(self.ar.array(log(3)).item())

    def _read(self, name: str, dim: int, rows: Mapping) -> Affine:
        return Affine.from_rows(self.stream, Stream({name: dim}), rows)

    def _memory_maps(self) -> dict[str, Affine]:
        """Write with k = e_column, v = 2 delta e_row, beta 1/2; hold with beta 1/4; alpha 3/4 always."""
        rows, columns = self.shape
        ones = [[1] * rows]
        return {
            "memory.q": self._read("q", columns, {"q": {"KEY": 1}}),
            "memory.k": self._read("k", columns, {"k": {"KEY": 1}}),
            "memory.v": self._read("v", rows, {"v": {"WRITE": 2 * self.ar.delta}}),
            "memory.alpha": self._read("alpha", 1, {"alpha": {"1": self._ln3}}),
            "memory.beta": self._read("beta", 1, {"beta": {"1": -self._ln3, "WRITE": self._ln3 * np.array(ones)}}),
            "memory.gate": self._read("gate", rows, {"gate": {"OPEN": self.ar.max_value}}),
        }

    def _parity_maps(self) -> dict[str, Affine]:
        """The cell of Lemma 5.2: Z, and for the two tokens of a one the differences of G and F from Z."""
        kinds = {"g": G, "f": F}

        def row(quantity) -> dict:
            return {"1": quantity(Z)} | {name: quantity(update) - quantity(Z) for name, update in kinds.items()}

        delta, ln3 = self.ar.delta, self._ln3
        return {
            "parity.q": self._read("q", 2, {"q[0]": {"1": 1}}),
            "parity.k": self._read("k", 2, {f"k[{i}]": row(lambda u, i=i: u.direction[i]) for i in (0, 1)}),
            "parity.v": self._read("v", 2, {"v[0]": row(lambda u: u.value * delta)}),
            "parity.alpha": self._read("alpha", 1, {"alpha": row(lambda u: _preactivation(u.alpha, ln3))}),
            "parity.beta": self._read("beta", 1, {"beta": row(lambda u: _preactivation(u.beta, ln3))}),
            "L1.out": Affine.from_rows(
                Stream({"cells": self.shape[0], "parity": 2}), self.stream,
                {"BIT": {"cells": [[self.ar.max_value] * self.shape[0]]}, "PAR": {"parity[0]": self.ar.max_value}},
            ),
        }  # fmt: skip

    def _latch_maps(self) -> dict[str, Affine]:
        """One number: v = 2 delta BIT, k = q = 1, alpha 3/4, beta 1/2; then PAR xor LATCH in the MLP."""
        hidden, either = Stream({"any": 1, "both": 1}), {"PAR": 1, "LATCH": 1}
        return {
            "latch.q": self._read("q", 1, {"q": {"1": 1}}),
            "latch.k": self._read("k", 1, {"k": {"1": 1}}),
            "latch.v": self._read("v", 1, {"v": {"BIT": 2 * self.ar.delta}}),
            "latch.alpha": self._read("alpha", 1, {"alpha": {"1": self._ln3}}),
            "latch.beta": self._read("beta", 1, {}),
            "L2.out": Affine.from_rows(Stream({"u": 1}), self.stream, {"LATCH": {"u": self.ar.max_value}}),
            "L2.MLP in": Affine.from_rows(self.stream, hidden, {"any": either, "both": either | {"1": -1}}),
            "L2.MLP out": Affine.from_rows(hidden, self.stream, {"ANS": {"any": 1, "both": -2}}),
        }

    def _logits(self) -> Affine:
        """YES = ANS, NO = 1 - ANS, WAIT = -1 or 2, every other token -1."""
        names = self.vocabulary.tokens
        tokens = Stream({name if name.isidentifier() else f"token_{name}": 1 for name in names})
        silent = {name: {"1": -1} for name in tokens.names}
        return Affine.from_rows(
            self.stream, tokens,
            silent | {"YES": {"ANS": 1}, "NO": {"1": 1, "ANS": -1}, WAIT: {"1": -1, "GOON": 3}},
        )  # fmt: skip

    @cached_property
    def embedding(self) -> Embedding:
        """What each token at each position asks for; positions behind the prompt hold everything."""
        prompt, table_len = pcr.prompt_length(self.n), 2 * self.n
        table = np.zeros((len(self.vocabulary), prompt + self.wait, self.stream.dim), dtype=np.int8)

        def part(name):
            return table[..., self.stream.slice(name)]

        part("OPEN")[:] = -1
        part("g")[pcr.ONE, 0:table_len:2] = part("f")[pcr.ONE, 1:table_len:2] = 1
        for bit in range(self.n):
            row, column = self.cell(bit)
            part("KEY")[:, [2 * bit, table_len + bit], column] = 1
            part("WRITE")[pcr.ONE, 2 * bit, row] = 1
            part("OPEN")[pcr.MARK, table_len + bit, row] = 1
        part("GOON")[:, prompt - 1 : prompt - 1 + self.wait] = 1
        return Embedding.from_table(self.stream, table)

    @cached_property
    def model(self) -> Model:
        """The machine as a model: nothing but delta rules."""
        maps, (rows, columns) = self.maps, self.shape
        delta = self.ar.delta
        start = (tuple(code * delta for code in P0), (0, 0))

        def head(name, core, norm=None):
            inputs = {key: maps[f"{name}.{key}"] for key in DeltaInputs.names()}
            return Head(core, inputs, gate=maps.get(f"{name}.gate"), qk_norm=norm)

        memory, parity = head("memory", DeltaRule(columns, rows)), head("parity", DeltaRule(2, 2, initial_state=start), "l2")
        blocks = (
            Block(Layer((memory, parity), maps["L1.out"]), name="L1"),
            Block(Layer((head("latch", DeltaRule(1, 1)),), maps["L2.out"]), MLP(maps["L2.MLP in"], maps["L2.MLP out"]), "L2"),
        )
        return Model(self.stream, self.vocabulary, self.embedding, blocks, maps["logits"])

    # --------------------------------------------------------------------------------------------------- answers

    def answers(self, tokens) -> np.ndarray:
        """The token (num,) that the machine writes right after prompts (num, N)."""
        return self.model.greedy(self.ar, tokens)

    def describe(self) -> str:
        """The parameters in words."""
        words = f"s = {self.s}, memory of {self.shape[0]} x {self.shape[1]}, D = {self.state_numbers}"
        return self._with_changes(words)


def truncated(n: int, s: int, slots: int, wait: int = 0) -> MemoryMachine:
    """The machine with one row of `slots` cells: complete for slots >= n, otherwise bit l shares cell l mod slots.

    >>> truncated(8, 2, 6).state_numbers
    11
    """
    return MemoryMachine(n, s, (1, slots), wait)


def _preactivation(gate, ln3):
    return {1: -ln3, 2: 0, 3: ln3}[int(4 * gate)]


# a number that fades -----------------------------------------------------------------------------------------------------


def fading_number(s: int) -> Model:
    """One recurrent number: a 1 pulls it halfway to one (alpha = beta = 1/2, v = 1), a 0 lets it fade (alpha 3/4, beta 1/4).

        x' = alpha (x) (x (-) (beta (x) x)) (+) (beta (x) v),   k = q = 1, start 0.

    The toy of chapter 6, made to be followed on paper: it stands for no published model and answers YES iff the number is
    positive. Raises ValueError for s < 2.
    """
    ar = FixedPoint(s)
    ar.require(2, "the fading number, whose gates are 1/4, 1/2 and 3/4,")
    ln3 = ar.fraction(ar.array(log(3)).item())
    stream = Stream({"one": 1, "u": 1})
    table = np.zeros((len(pcr.VOCABULARY), 2), dtype=np.int8)
    table[pcr.ONE, 0] = 1

    def read(name, terms):
        return Affine.from_rows(stream, Stream({name: 1}), {name: terms})

    maps = {
        "q": read("q", {"1": 1}), "k": read("k", {"1": 1}), "v": read("v", {"one": 1}),
        "alpha": read("alpha", {"1": ln3, "one": -ln3}), "beta": read("beta", {"1": -ln3, "one": ln3}),
    }  # fmt: skip
    out = Affine.from_rows(Stream({"o": 1}), stream, {"u": {"o": 1}})
    tokens = Stream({name if name.isidentifier() else f"token_{name}": 1 for name in pcr.VOCABULARY.tokens})
    rows = {name: {"1": -1} for name in tokens.names} | {"YES": {"u": 1}, "NO": {}}
    logits = Affine.from_rows(stream, tokens, rows)
    layer = Layer((Head(DeltaRule(1, 1), maps),), out)
    return Model(stream, pcr.VOCABULARY, Embedding.from_table(stream, table), (Block(layer, name="L1"),), logits)


# checks ------------------------------------------------------------------------------------------------------------------


def check_answers(machines: Iterable[MemoryMachine], num: int | None = None, seed: int = 0) -> Check:
    """Each machine answers all n 2^n prompts of its n (or `num` random ones) at once, without scratch."""
    machines = tuple(machines)
    total, wrong, example = 0, 0, None
    for machine in machines:
        batches = pcr.every(machine.n) if num is None else [pcr.sample(machine.n, num, Generator(seed).at(machine.n, machine.s))]
        for prompts in batches:
            bad = np.flatnonzero(machine.answers(prompts.tokens) != prompts.labels)
            total, wrong = total + len(prompts), wrong + len(bad)
            if len(bad) and example is None:
                example = {"n": machine.n, "machine": machine.describe(), "prompt": prompts.text(bad[0])}
    names = ", ".join(dict.fromkeys(f"n = {m.n} (D = {m.state_numbers})" for m in machines))
    precisions = ", ".join(map(str, sorted({m.s for m in machines})))
    scope = f"{'all' if num is None else f'{num} random'} prompts, {names}, s = {precisions}"
    name = "delta rules alone answer every prompt"
    return Check.true(name, wrong == 0, scope, cases=total, counterexample=example, value={"wrong answers": wrong})


def check_sizes(expected: Mapping[int, int]) -> Check:
    """D by the formula, by the machine and as the built model counts it, for each n."""
    got = []
    for n in expected:
        machine = MemoryMachine(n, 2)
        got.append([state_size(n), machine.state_numbers, machine.model.state_numbers(machine.n * 3)])
    wanted = [[size] * 3 for size in expected.values()]
    return Check.equal("D = ceil(sqrt n)^2 + 5: formula, machine, model", got, wanted, f"n in {list(expected)}", list(expected))


def packed_number(s: int, bits) -> np.ndarray:
    """The code of one recurrent number after s - 1 bits (..., s - 1) were added to it, bit i with weight 2^i delta.

    Gates alpha = 1 - delta and beta = delta, key 1: x' = alpha (x) (x (-) beta (x) x) (+) beta (x) v. Codes below 2^(s-1)
    are kept, for delta x is less than half a step, and v = 2^i adds 2^i delta.

    >>> packed_number(4, [[1, 0, 1]]).tolist()
    [5]
    """
    ar, bits = FixedPoint(s), np.asarray(bits)
    ar.require(2, "packing bits into one number")
    if bits.shape[-1] != s - 1 or not np.isin(bits, (0, 1)).all():
        raise ValueError(f"bits: one number of s = {s} keeps s - 1 = {s - 1} bits 0 or 1, got shape {bits.shape}")
    core, state = DeltaRule(1, 1), ar.zeros((*bits.shape[:-1], 1, 1))
    for i in range(s - 1):
        state = core.step(ar, state, _packing_token(ar, bits[..., i, None] << (i + s)))
    return state[..., 0, 0]


def _packing_token(ar: FixedPoint, v) -> DeltaInputs:
    one = ar.array([1])
    return DeltaInputs(q=one, k=one, v=v, alpha=ar.array(1 - ar.delta), beta=ar.array(ar.delta))


def check_packing(s_values: Iterable[int], hold: int = 64) -> Check:
    """Every s - 1 bits in one number: the code is their binary value, and `hold` further tokens with v = 0 leave it alone."""
    got, expected, inputs = [], [], []
    for s in s_values:
        ar, core = FixedPoint(s), DeltaRule(1, 1)
        values = np.arange(2 ** (s - 1))
        code = packed_number(s, values[:, None] >> np.arange(s - 1) & 1)
        state = code[:, None, None]
        for _ in range(hold):
            state = core.step(ar, state, _packing_token(ar, ar.zeros((1,))))
        got += np.stack([code, state[:, 0, 0]], axis=1).tolist()
        expected += np.stack([values, values], axis=1).tolist()
        inputs += [f"s = {s}, bits {value:b}" for value in values]
    scope = f"all strings of s - 1 bits, s in {tuple(s_values)}, held for {hold} tokens"
    return Check.equal("one number accumulates and keeps s - 1 bits", got, expected, scope, inputs)


def packed_ratio(s: int) -> float:
    """log2 of the alphabet, about 2 s + 1 bits a number, over the s - 1 bits that the packed number uses.

    >>> packed_ratio(4), round(packed_ratio(8), 2)
    (3.0, 2.43)
    """
    if s < 2:
        raise ValueError(f"s={s!r}: one number keeps s - 1 bits, so s must be at least 2")
    return (2 * s + 1) / (s - 1)
