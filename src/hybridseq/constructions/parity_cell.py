"""A parity bit in one row of a Gated DeltaNet state (paper A, Lemma 5.2 and Appendix B), and its one-token variant.

The state is a 2 x 2 matrix whose second row stays zero; its first row x in F_s^2 holds the bit. In units of delta = 2^-s

    P_0 = (0, 1) for even parity,    P_1 = (1, 0) for odd parity,    read out by q = (1, 0).

Two schemes turn bits into updates of the delta rule:

    doubled (paper A):  0 -> Z Z,  1 -> G F     (two tokens a bit; G F exchanges P_0 and P_1)
    toggle:             0 -> Z,    1 -> T       (one token a bit; T exchanges (0, 1) and (-1, 0))

Source: paper A, Appendix B. deviates: kappa is [1/sqrt 2]_s (the root is missing from the text at hand); the tie rule, the order
of evaluation and the codes of P_0 and P_1 are reconstructed; chapter 4 gives the reasons. The toggle is an addition.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from hybridseq import rng
from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.arithmetic.rounding import TIE_RULES
from hybridseq.evidence import Check
from hybridseq.mixers.delta_rule import DeltaInputs, DeltaRule

QUARTER, HALF, THREE_QUARTERS = Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)
P0, P1, H0, H1 = (0, 1), (1, 0), (2, 3), (3, 2)
"""First rows of the state in units of delta: the two parities, and where G takes them."""
NINE = tuple(product((-1, 0, 1), repeat=2))
"""The rows that the hold macro Z Z leaves fixed."""


@dataclass(frozen=True)
class Update:
    """The parameters that one token gives to the delta rule: x' = alpha (x - beta <x,k> k) + beta v k.

    alpha, beta: gates in (0, 1). direction: the key before L2 normalisation. value: v in units of delta.
    """

    name: str
    alpha: Fraction
    beta: Fraction
    direction: tuple[int, ...]
    value: int = 0


Z = Update("Z", THREE_QUARTERS, QUARTER, (1, 0))
G = Update("G", THREE_QUARTERS, HALF, (1, 1), 6)
F = Update("F", QUARTER, THREE_QUARTERS, (-1, 1))
T = Update("T", THREE_QUARTERS, THREE_QUARTERS, (1, 1))
START_EVEN = Update("first 0", THREE_QUARTERS, HALF, (0, 1), 2)
START_ODD = Update("first 1", THREE_QUARTERS, HALF, (2, 3), 8)
"""Cold start: what token 1 does instead of Z or G when the state starts at zero; it writes P_0 or H_0."""

SCHEMES = {"doubled": ((Z, Z), (G, F)), "toggle": ((Z,), (T,))}
STATES = {"doubled": (P0, P1), "toggle": (P0, (-1, 0))}


def update_inputs(ar, updates, unit=None, kappa=None) -> DeltaInputs:
    """The delta rule's inputs for a sequence of updates: k, v, q of shape (len(updates), 2) and alpha, beta (len(updates),).

    Args:
        ar: an arithmetic. unit: the size of delta (default `ar.delta`).
        kappa: entry of a diagonal key instead of the normalised one (a real number), for experiments.
    """
    unit = ar.delta if unit is None else unit
    width = len(updates[0].direction)
    return DeltaInputs(
        q=ar.array([[1] + [0] * (width - 1)] * len(updates)),
        k=_keys(ar, updates, kappa),
        v=ar.array([[u.value * unit] + [0 * unit] * (width - 1) for u in updates]),
        alpha=ar.array([u.alpha for u in updates]),
        beta=ar.array([u.beta for u in updates]),
    )


@lru_cache(maxsize=4096)
def _one_token(ar, update, unit, kappa) -> DeltaInputs:
    """A string has many tokens of few kinds."""
    return update_inputs(ar, [update], unit, kappa).at(0)


def _keys(ar, updates, kappa):
    if kappa is None:
        return ar.l2_norm(ar.array([u.direction for u in updates]))
    diagonal = [all(abs(d) <= 1 for d in u.direction) and sum(map(abs, u.direction)) == 2 for u in updates]
    if not all(dia or sum(map(abs, u.direction)) == 1 for dia, u in zip(diagonal, updates, strict=True)):
        raise ValueError(f"kappa={kappa!r}: applies to keys of entries 0 and ±1 only; leave kappa out for {updates}")
    return ar.array([[d * kappa if dia else d for d in u.direction] for dia, u in zip(diagonal, updates, strict=True)])


@dataclass(frozen=True)
class ParityCell:
    """The head of Lemma 5.2: a delta rule with its updates, run on batches of bit strings.

    Args:
        arithmetic: where it runs: `FixedPoint(s)` with s >= 2, or a `Float` together with `unit`.
        scheme: "doubled" (Z Z and G F, as in the paper) or "toggle" (Z and T).
        order, products: evaluation order of the delta rule, see `hybridseq.mixers.delta_rule`.
        kappa: entry of the diagonal keys; None means the L2-normalised key, which is [1/sqrt 2]_s.
        unit: the size of delta; needed for floats only.
        start: first row at the start in units of delta; None means P_0.
        cold_start: the first token of the first bit gets parameters of its own, made for start = (0, 0).

    Raises:
        ValueError: s < 2 (the gates need quarters), an unknown scheme, a Float without unit, a cold start of the toggle.

    Cost: about a dozen array operations a token, whatever the batch.

    Example (parity of 1 1 0 1, after each bit):
        >>> ParityCell(FixedPoint(2)).parities([[1, 1, 0, 1]]).tolist()
        [[1, 0, 0, 1]]
    """

    arithmetic: Any
    scheme: str = "doubled"
    order: str = "A"
    products: str = "rounded"
    kappa: Any = None
    unit: Any = None
    start: tuple[int, int] | None = None
    cold_start: bool = False
    core: DeltaRule = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        if self.scheme not in SCHEMES:
            raise ValueError(f"scheme={self.scheme!r}: must be one of {', '.join(SCHEMES)}")
        if isinstance(self.arithmetic, FixedPoint):
            self.arithmetic.require(2, "the parity cell, whose gates are 1/4, 1/2 and 3/4,")
        elif self.unit is None and not hasattr(self.arithmetic, "delta"):
            raise ValueError(f"unit=None: {self.arithmetic.name} has no smallest step; give the size of delta as unit")
        if self.cold_start and self.scheme != "doubled":
            raise ValueError("cold_start=True: the cold start is made for scheme='doubled'")
        object.__setattr__(self, "core", DeltaRule(2, 2, order=self.order, products=self.products))

    @property
    def delta(self):
        """The size of delta as a real number."""
        return self.arithmetic.delta if self.unit is None else self.unit

    # one token, one bit -------------------------------------------------------------------------------------------------
    def state(self, rows):
        """Stored states (..., 2, 2) whose first rows are `rows` (integers, units of delta) and whose second rows are zero."""
        rows = np.asarray(rows)
        both = np.stack([rows, np.zeros_like(rows)], axis=-2)
        if isinstance(self.arithmetic, FixedPoint) and self.unit is None:
            return self.arithmetic.check(both)  # a multiple of delta is its own code
        return self.arithmetic.array(both.astype(object) * self.delta)

    def rows(self, state) -> np.ndarray:
        """First rows of stored states in units of delta: (..., 2), integers in F_s, float64 in floats."""
        first = state[..., 0, :]
        if self.arithmetic.exact:
            return np.asarray(first)
        return self.arithmetic.values(first) / float(self.delta)

    def inputs(self, update: Update) -> DeltaInputs:
        """The delta rule's inputs for one token of this kind."""
        return _one_token(self.arithmetic, update, self.unit, self.kappa)

    def step(self, state, update: Update):
        """One token: the delta rule's own step on states (..., 2, 2)."""
        return self.core.step(self.arithmetic, state, self.inputs(update))

    def apply(self, state, updates):
        """Several tokens, one after the other, the same for the whole batch."""
        for update in updates:
            state = self.step(state, update)
        return state

    def updates(self, bit: int, first: bool = False) -> tuple[Update, ...]:
        """The updates of one bit; `first` matters to a cold start."""
        chosen = SCHEMES[self.scheme][bit]
        if first and self.cold_start:
            return ((START_EVEN, START_ODD)[bit], *chosen[1:])
        return chosen

    def read_bit(self, state):
        """The bit that the readout q = (1, 0) sees: whether u_1 is not zero, (...,) of 0 and 1."""
        u = self.core.read(self.arithmetic, state, self.inputs(Z))[..., 0]
        return (self.arithmetic.values(u) != 0).astype(int)

    # strings ------------------------------------------------------------------------------------------------------------
    def start_state(self, batch_shape=()):
        """The state before the first token, (*batch_shape, 2, 2)."""
        row = P0 if self.start is None else self.start
        return self.state(np.broadcast_to(np.array(row), (*batch_shape, 2)))

    def block(self, state, bits, first: bool = False):
        """All tokens of one bit for a batch: state (..., 2, 2), bits (...,)."""
        bits = np.asarray(bits)
        if bits.ndim == 0:
            return self.apply(state, self.updates(int(bits), first))
        zero, one = (self.apply(state, self.updates(b, first)) for b in (0, 1))
        return self.arithmetic.where((bits == 1)[..., None, None], one, zero)

    def run(self, bits):
        """First rows after each bit, token by token: bits (..., n) -> (..., n, 2) in units of delta."""
        bits = _check_bits(bits)
        state, rows = self.start_state(bits.shape[:-1]), []
        for i in range(bits.shape[-1]):
            state = self.block(state, bits[..., i], first=i == 0)
            rows.append(self.rows(state))
        return np.stack(rows, axis=-2)

    def parities(self, bits):
        """What the readout says after each bit: (..., n) -> (..., n)."""
        bits = _check_bits(bits)
        state, read = self.start_state(bits.shape[:-1]), []
        for i in range(bits.shape[-1]):
            state = self.block(state, bits[..., i], first=i == 0)
            read.append(self.read_bit(state))
        return np.stack(read, axis=-1)

    def all_strings(self, max_length: int):
        """Rows after every bit string of length 1..max_length, each string run from its prefix: list of (2^n, 2) arrays.

        String number i of length n is i written in n binary digits, first bit first.
        """
        state, levels = self.start_state((1,)), []
        for n in range(1, max_length + 1):
            children = self.arithmetic.stack(
                [self.apply(state, self.updates(b, first=n == 1)) for b in (0, 1)], axis=1
            )
            state = children.reshape(1 << n, 2, 2)
            levels.append(self.rows(state))
        return levels

    def automaton(self, rows=None) -> dict[tuple, tuple[tuple, tuple]]:
        """The cell as a finite machine: every row reachable from `rows` (default: the start) -> rows after bit 0 and bit 1."""
        row = P0 if self.start is None else self.start
        waiting, table = [tuple(r) for r in (rows if rows is not None else [row])], {}
        while waiting:
            here = waiting.pop()
            if here in table:
                continue
            after = [self.rows(self.apply(self.state(here), self.updates(b))) for b in (0, 1)]
            table[here] = tuple(tuple(int(c) for c in x) for x in after)
            waiting.extend(table[here])
        return table

    def trace(self, bits) -> list[dict]:
        """Every token of one string with the intermediate codes of order A, for the trace by hand.

        Returns a list of dicts: update, before, t = <x,k>_s, c = beta t, erased = c k, kept = alpha (x - c k), written, after.
        """
        if self.order != "A" or self.products != "rounded":
            raise ValueError(f"order={self.order!r}, products={self.products!r}: the trace names the steps of order A, rounded")
        ar, state, records = self.arithmetic, self.start_state(), []
        for i, bit in enumerate(_check_bits(bits)):
            for update in self.updates(int(bit), first=i == 0):
                x, token = state[0], self.inputs(update)
                t = ar.dot(x, token.k)
                c = ar.mul(token.beta, t)
                kept = ar.mul(token.alpha, ar.sub(x, ar.mul(c, token.k)))
                written = ar.mul(ar.mul(token.beta, token.v[0]), token.k)
                state = self.step(state, update)
                row = {"update": update.name, "before": x, "t": t, "c": c, "erased": ar.mul(c, token.k)}
                records.append(row | {"kept": kept, "written": written, "after": state[0]})
        return [{key: v if isinstance(v, str) else np.asarray(v).tolist() for key, v in r.items()} for r in records]


def _check_bits(bits) -> np.ndarray:
    bits = np.asarray(bits)
    if bits.ndim < 1 or bits.shape[-1] < 1:
        raise ValueError(f"bits: needs shape (..., n) with n >= 1, got {bits.shape}")
    if not np.isin(bits, (0, 1)).all():
        raise ValueError(f"bits: entries must be 0 or 1, got {sorted(set(np.unique(bits).tolist()) - {0, 1})}")
    return bits


def all_bit_strings(length: int) -> np.ndarray:
    """All strings of one length, (2^length, length), in the order of `ParityCell.all_strings`."""
    return (np.arange(1 << length)[:, None] >> np.arange(length - 1, -1, -1)) & 1


def together(name: str, checks, scope: str) -> Check:
    """Several checks of one kind as one: all their cases, and the first counter-example with the check that found it."""
    checks = list(checks)
    failed = [check for check in checks if not check.passed]
    report = {"check": failed[0].name, "found": failed[0].counterexample} if failed else None
    return Check(name, not failed, scope, sum(check.cases for check in checks), report)


# checks -----------------------------------------------------------------------------------------------------------------
def check_transitions(cell: ParityCell) -> Check:
    """The four entries of the transition table: bit 0 keeps both states, bit 1 exchanges them."""
    states = STATES[cell.scheme]
    start = cell.state(np.array(states))
    got = [cell.rows(cell.apply(start, cell.updates(b))) for b in (0, 1)]
    names = [f"row {x}, bit {b}" for b in (0, 1) for x in states]
    expected = np.array([states, states[::-1]])
    return Check.equal(
        f"transition table, {cell.scheme}, {cell.arithmetic.name}, order {cell.order}",
        np.concatenate(got), np.concatenate(expected), "both states, both bits", inputs=names,
    )  # fmt: skip


def check_all_strings(cell: ParityCell, max_length: int) -> Check:
    """The row after every bit string of length 1..max_length is the state of its parity (so every readout is right)."""
    states = np.array(STATES[cell.scheme])
    rows = np.concatenate(cell.all_strings(max_length))
    parity = np.concatenate([all_bit_strings(n).sum(axis=1) % 2 for n in range(1, max_length + 1)])
    wrong = np.flatnonzero((rows != states[parity]).any(axis=1))
    strings = [f"{i:0{n}b}" for n in range(1, max_length + 1) for i in range(1 << n)] if len(wrong) else []
    report = {"string": strings[wrong[0]], "row": rows[wrong[0]].tolist(), "wrong": len(wrong)} if len(wrong) else None
    return Check.true(
        f"row = state of the parity, {cell.scheme}, {cell.arithmetic.name}", not len(wrong),
        f"every bit string of length 1 to {max_length}", cases=len(rows), counterexample=report,
    )  # fmt: skip


def check_random_string(cell: ParityCell, length: int, seed: int, stepwise: bool = False) -> Check:
    """Every prefix of one random bit string ends in the state of its parity.

    The step is a function of the row alone, so the string is read through the automaton of the cell, whose entries the step
    itself computes; `stepwise` runs every token instead (slow: length times about 0.2 ms).
    """
    bits = rng.Generator(seed).at(length).bits((length,))
    states = np.array(STATES[cell.scheme])
    if stepwise:
        rows = cell.run(bits)
    else:
        table, row, seen = cell.automaton(), P0 if cell.start is None else cell.start, []
        for bit in bits.tolist():
            row = table[row][bit]
            seen.append(row)
        rows = np.array(seen)
    return Check.equal(
        f"every prefix of a random string, {cell.arithmetic.name}", rows, states[np.cumsum(bits) % 2],
        f"length {length:,}, seed {seed}",
    )  # fmt: skip


def hold_fixed_rows(cell: ParityCell, limit: int) -> set[tuple[int, int]]:
    """Rows with codes in -limit..limit that bit 0 leaves unchanged."""
    axis = np.arange(-limit, limit + 1)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    after = cell.rows(cell.apply(cell.state(grid), cell.updates(0)))
    return {tuple(int(c) for c in row) for row in grid[(after == grid).all(axis=1)]}


def check_basin(cell: ParityCell, limit: int) -> Check:
    """Z Z fixes exactly the nine rows with entries -1, 0, 1; under G F one pair exchanges and the other seven fall to zero."""
    fixed = hold_fixed_rows(cell, limit)
    table = {row: cell.automaton([row])[row][1] for row in NINE}
    expected = {row: {P0: P1, P1: P0}.get(row, (0, 0)) for row in NINE}
    wrong = sorted(fixed ^ set(NINE)) or [(r, table[r]) for r in NINE if table[r] != expected[r]]
    return Check.true(
        f"rows that the hold fixes, and where a one takes them, {cell.arithmetic.name}", not wrong,
        f"all rows with |code| <= {limit}", cases=(2 * limit + 1) ** 2 + len(NINE), counterexample=wrong,
    )  # fmt: skip


def check_zero_start(arithmetic, max_length: int) -> Check:
    """From the zero row the paper's cell never leaves zero: after every string the readout is 0, whatever the parity."""
    cell = ParityCell(arithmetic, start=(0, 0))
    rows = np.concatenate(cell.all_strings(max_length))
    return Check.equal(
        f"the zero row is absorbing, {arithmetic.name}", rows, np.zeros_like(rows),
        f"every bit string of length 1 to {max_length}",
    )  # fmt: skip


def check_cold_start(arithmetic, max_length: int) -> Check:
    """With its own parameters for the first token the cell reaches the state of the parity from a zero state."""
    return replace(check_all_strings(ParityCell(arithmetic, start=(0, 0), cold_start=True), max_length),
                   name=f"from the zero row with a first token of its own, {arithmetic.name}")  # fmt: skip


def check_negative_eigenvalue(arithmetic, max_length: int) -> Check:
    """With alpha = 1, beta = 2 and k = (1, 0) one token negates x_1: parity is the sign (the remark's other half).

    The transition I - 2 k k^T has the eigenvalue -1. Every number that occurs is 0, 1, -1 or 2, so floats are exact here.
    """
    one, two = arithmetic.array([1])[0], arithmetic.array([2])[0]
    key, zero = arithmetic.array([1, 0]), arithmetic.array([0, 0])
    flip, core = DeltaInputs(q=key, k=key, v=zero, alpha=one, beta=two), DeltaRule(2, 2)
    bits = all_bit_strings(max_length)
    state = arithmetic.array(np.broadcast_to(np.array([[1, 0], [0, 0]]), (len(bits), 2, 2)))
    got = []
    for i in range(max_length):
        state = arithmetic.where(bits[:, i, None, None] == 1, core.step(arithmetic, state, flip), state)
        got.append(arithmetic.values(state[:, 0, 0]))
    expected = 1 - 2 * (np.cumsum(bits, axis=1) % 2)
    return Check.equal(
        f"sign of x_1 = parity with eigenvalue -1, {arithmetic.name}", np.stack(got, axis=1), expected,
        f"every prefix of all strings of length {max_length}",
    )  # fmt: skip


def ideal_transition(update: Update) -> np.ndarray:
    """alpha (I - beta k k^T) in real arithmetic with the exactly normalised key, as Fractions (the square root drops out)."""
    d = np.array([Fraction(x) for x in update.direction], dtype=object)
    eye = np.eye(len(d), dtype=int).astype(object)
    return update.alpha * (eye - update.beta * np.outer(d, d) / (d @ d))


def eigenvalues(matrix) -> dict[tuple[int, int], Fraction]:
    """Exact eigenvalues of a symmetric 2 x 2 matrix whose eigenvectors are (1, 1) and (1, -1).

    Raises:
        ValueError: the matrix has other eigenvectors.
    """
    found = {}
    for v in ((1, 1), (1, -1)):
        image = np.asarray(matrix) @ np.array(v)
        if image[0] * v[1] != image[1] * v[0]:
            raise ValueError(f"{v} is no eigenvector of {np.asarray(matrix).tolist()}")
        found[v] = Fraction(image[0]) / v[0]
    return found


# rounding orders and tie rules --------------------------------------------------------------------------------------------
VARIANTS = (
    ("A", "rounded"), ("A", "wide"), ("B", "rounded"), ("B", "wide"), ("C", "rounded"), ("D", "rounded"), ("Q", "rounded"),
    ("W", "rounded"), ("M", "rounded"),
)  # fmt: skip
"""Evaluation orders of the delta rule, with <x,k> as a sum of rounded products or exact and rounded once."""


def rounding_table(s_values, scheme: str = "doubled", variants=VARIANTS, ties=TIE_RULES) -> dict[tuple, tuple[int, ...]]:
    """Where the cell lives: (order, products, tie rule) -> the s in `s_values` at which its transition table is right."""
    def lives(order, products, rule, s):
        return check_transitions(ParityCell(FixedPoint(s, rule), scheme, order=order, products=products)).passed

    return {
        (order, products, rule): tuple(s for s in s_values if lives(order, products, rule, s))
        for order, products in variants
        for rule in ties
    }


def other_cells(cell: ParityCell, limit: int) -> list[tuple[tuple, tuple]]:
    """All pairs of rows with |code| <= limit that bit 0 keeps and bit 1 exchanges: every way this cell could hold a bit."""
    fixed = sorted(hold_fixed_rows(cell, limit))
    after = cell.rows(cell.apply(cell.state(np.array(fixed)), cell.updates(1)))
    partner = dict(zip(fixed, (tuple(int(c) for c in row) for row in after), strict=True))
    return [(x, y) for x, y in partner.items() if x < y and partner.get(y) == x]


def compact(numbers) -> str:
    """Integers as runs: (2, 3, 4, 7) -> "2-4, 7"; nothing -> "none"."""
    numbers, runs = sorted(numbers), []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs) or "none"


# floats -----------------------------------------------------------------------------------------------------------------
SMALLEST_SUBNORMAL = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}
"""The spacing of each float format near zero: the delta of a cell that lives among the subnormal numbers."""
FLUSH_BELOW = {"float16": 2.0**-126, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": 2.0**-1022}
"""Results smaller than this become zero when the arithmetic unit flushes. float16 and bfloat16 are computed in 32 bits."""


@dataclass(frozen=True)
class FlushingFloat(Float):
    """A model of torch floats on a unit that flushes subnormal results to zero (16-bit formats use the unit of 32 bits)."""

    def _flush(self, x):
        return x * (abs(x) >= FLUSH_BELOW[self.dtype])

    def add(self, a, b):
        return self._flush(a + b)

    def sub(self, a, b):
        return self._flush(a - b)

    def mul(self, a, b):
        return self._flush(a * b)

    def sum(self, x, axis=-1):
        return self._flush(x.sum(axis))


def float_cell(dtype: str, flush: bool = False, **options) -> ParityCell:
    """The one-token cell among the subnormal numbers of a float format, delta = its smallest positive number."""
    if dtype not in SMALLEST_SUBNORMAL:
        raise ValueError(f"dtype={dtype!r}: must be one of {', '.join(SMALLEST_SUBNORMAL)}")
    kind = FlushingFloat if flush else Float
    return ParityCell(kind("torch", dtype), unit=SMALLEST_SUBNORMAL[dtype], **{"scheme": "toggle"} | options)


def tokens_right(cell: ParityCell, length: int, seed: int = 0) -> int:
    """For how many bits of one random string, from its start, the row is the state of the parity (`length`: for all)."""
    bits = rng.Generator(seed).at(length).bits((length,))
    state, expected = cell.start_state(), np.array(STATES[cell.scheme])[np.cumsum(bits) % 2]
    for i in range(length):
        state = cell.block(state, bits[i], first=i == 0)
        if (cell.rows(state) != expected[i]).any():
            return i
    return length
