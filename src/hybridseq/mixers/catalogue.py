"""Every mixer of Lemma 2.2 of paper C in one table: how to make it, random inputs for it, the state it should carry.

The tests, the chapter and the comparisons with other people's code all walk through this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hybridseq.arithmetic import Rational
from hybridseq.evidence import Check
from hybridseq.mixers.attention import Attention
from hybridseq.mixers.block_sparse import BlockSparseAttention
from hybridseq.mixers.channel_delta import RWKV7, KimiDeltaAttention
from hybridseq.mixers.convolution import ShortConvolution
from hybridseq.mixers.delta_rule import DeltaRule
from hybridseq.mixers.linear_attention import GatedLinearAttention, LinearAttention
from hybridseq.mixers.mamba import EulerScan, GateScan, SelectiveScan, StateSpaceDual

Draw = Callable[[np.random.Generator, tuple[int, ...]], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Entry:
    """One mixer of the table.

    Attributes:
        name: as in the table.
        build: `build(ar)` makes the mixer with weights stored in that arithmetic.
        draw: `draw(rng, (..., seq_len))` gives its inputs as real arrays by name.
        weights: what `build` stores in the mixer, as real arrays by name.
        formula: what Lemma 2.2 counts for one head, as a formula in d (head_dim = value_dim = d), N (state_dim), n (seq_len).
        count: the same as a function of seq_len, by hand, for the dimensions that `build` uses.
    """

    name: str
    build: Callable[[Any], Any]
    draw: Draw
    formula: str
    count: Callable[[int], int]
    weights: dict[str, Any] = field(default_factory=dict)

    def arrays(self, rng: np.random.Generator, seq_len: int, batch: tuple[int, ...] = ()) -> dict[str, Any]:
        """Random inputs and the weights, as real arrays by name: what an independent implementation needs."""
        return self.draw(rng, (*batch, seq_len)) | self.weights

    def run(self, ar, arrays: dict[str, Any]) -> np.ndarray:
        """Outputs of the scan on such arrays, as real numbers (..., seq_len, value_dim)."""
        mixer = self.build(ar)
        return ar.values(mixer.scan(ar, self._stored(ar, mixer.input_type, arrays))[0])

    @staticmethod
    def _stored(ar, kind, arrays):
        return kind(**{name: ar.array(arrays[name]) if name in arrays else None for name in kind.names()})

    def inputs(self, ar, rng: np.random.Generator, seq_len: int, batch: tuple[int, ...] = ()):
        """Random inputs stored in the arithmetic `ar`."""
        return self._stored(ar, self.build(ar).input_type, self.draw(rng, (*batch, seq_len)))


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def _qkv(d: int) -> Draw:
    return lambda rng, shape: {name: rng.standard_normal((*shape, d)) for name in ("q", "k", "v")}


def _delta(d: int, gated: bool) -> Draw:
    def draw(rng, shape):
        arrays = _qkv(d)(rng, shape)
        arrays["k"] = _unit(arrays["k"])
        gates = {"beta": rng.uniform(0, 1, shape)}
        return arrays | gates | ({"alpha": rng.uniform(0.5, 1, shape)} if gated else {})

    return draw


def _channel_gate(d: int, delta: bool) -> Draw:
    def draw(rng, shape):
        arrays = _delta(d, False)(rng, shape) if delta else _qkv(d)(rng, shape)
        return arrays | {"alpha": rng.uniform(0.5, 1, (*shape, d))}

    return draw


def _rwkv(d: int) -> Draw:
    def draw(rng, shape):
        arrays = {name: rng.standard_normal((*shape, d)) for name in ("r", "k", "v")}
        arrays["kappa"] = _unit(rng.standard_normal((*shape, d)))
        return arrays | {"w": rng.uniform(0.5, 1, (*shape, d)), "a": rng.uniform(0, 1, (*shape, d))}

    return draw


def _selective(d: int, n: int) -> Draw:
    def draw(rng, shape):
        arrays = {"x": rng.standard_normal((*shape, d)), "delta": rng.uniform(0.1, 1, (*shape, d))}
        return arrays | {name: rng.standard_normal((*shape, n)) for name in ("b", "c")}

    return draw


def _dual(d: int, n: int) -> Draw:
    def draw(rng, shape):
        arrays = {"x": rng.standard_normal((*shape, d)), "a": rng.uniform(0.5, 1, shape)}
        return arrays | {name: rng.standard_normal((*shape, n)) for name in ("b", "c")}

    return draw


def _weights(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape) / np.sqrt(shape[-1])


def _contraction(n: int) -> np.ndarray:
    """A positive definite matrix of trace 1, so that I - Delta W_A shrinks nothing by more than Delta."""
    g = _weights(0, n, n)
    return g @ g.T / np.trace(g @ g.T)


RATIONAL = ("linear attention, plain", "retention", "GLA", "DeltaNet", "Gated DeltaNet", "KDA", "RWKV-7", "Mamba-2")
"""Entries of the table whose step uses only +, - and x, so that `check_identity` applies."""


def catalogue(d: int = 5, n: int = 4, window: int = 8) -> list[Entry]:
    """The table of Lemma 2.2, one head, with head_dim = value_dim = d, state_dim = n and the given window.

    Example:
        >>> [entry.name for entry in catalogue()][:3]
        ['attention, full', 'attention, window', 'linear attention, normalised']
    """
    a = -np.arange(1.0, n + 1) * np.ones((d, 1))
    square = d * d
    return [
        Entry("attention, full", lambda ar: Attention(d), _qkv(d), "2 n d", lambda t: 2 * t * d),
        Entry(
            "attention, window",
            lambda ar: Attention(d, window=window),
            _qkv(d),
            "2 min(n, W) d",
            lambda t: 2 * min(t, window) * d,
            {"window": window},
        ),
        Entry(
            "linear attention, normalised",
            lambda ar: LinearAttention(d, feature_map="elu1"),
            _qkv(d),
            "d^2 + d",
            lambda t: square + d,
        ),
        Entry(
            "linear attention, Taylor-2",
            lambda ar: LinearAttention(d, feature_map="taylor2"),
            _qkv(d),
            "r d + r, r = 1 + d + d^2",
            lambda t: (1 + d + square) * (d + 1),
        ),
        Entry("linear attention, plain", lambda ar: LinearAttention(d, normalise=False), _qkv(d), "d^2", lambda t: square),
        Entry("retention", lambda ar: LinearAttention(d, normalise=False, decay=1 - 2**-5), _qkv(d), "d^2", lambda t: square),
        Entry("GLA", lambda ar: GatedLinearAttention(d), _channel_gate(d, False), "d^2", lambda t: square),
        Entry("DeltaNet", lambda ar: DeltaRule(d, order="Q"), _delta(d, False), "d^2", lambda t: square),
        Entry("Gated DeltaNet", lambda ar: DeltaRule(d, order="Q"), _delta(d, True), "d^2", lambda t: square),
        Entry("KDA", lambda ar: KimiDeltaAttention(d), _channel_gate(d, True), "d^2", lambda t: square),
        Entry("RWKV-7", lambda ar: RWKV7(d), _rwkv(d), "d^2", lambda t: square),
        Entry(
            "Mamba",
            lambda ar: SelectiveScan(d, n, ar.array(a), ar.full((d,), 1)),
            _selective(d, n),
            "d N",
            lambda t: d * n,
            {"a": a, "skip": np.ones(d)},
        ),
        Entry("Mamba-2", lambda ar: StateSpaceDual(d, n), _dual(d, n), "d N", lambda t: d * n),
    ]


def companions(d: int = 5, n: int = 4, block_size: int = 4) -> list[Entry]:
    """Mixers of this room beside the table: paper B's two other forms of Mamba, block-sparse attention, the short convolution.

    Example:
        >>> [entry.name for entry in companions()]
        ['Mamba, P-form', 'Mamba, G-form', 'attention, block-sparse', 'short convolution']
    """
    kernel = {"weight": _weights(7, d, 4), "bias": _weights(8, d)}
    wide = lambda rng, shape: {"x": rng.standard_normal((*shape, d))}  # noqa: E731
    return [
        Entry(
            "Mamba, P-form",
            lambda ar: EulerScan(ar.array(_contraction(n)), ar.array(_weights(1, n, d)), ar.array(_weights(2, d, n))),
            lambda rng, shape: wide(rng, shape) | {"delta": rng.uniform(0, 1, shape)},
            "N",
            lambda t: n,
        ),
        Entry(
            "Mamba, G-form",
            lambda ar: GateScan(d),
            lambda rng, shape: wide(rng, shape) | {"gate": rng.uniform(0, 1, shape)},
            "N",
            lambda t: d,
        ),
        Entry(
            "attention, block-sparse",
            lambda ar: BlockSparseAttention(d, block_size=block_size, top_k=2),
            _qkv(d),
            "2 n d + floor(n/B) d",
            lambda t: 2 * t * d + t // block_size * d,
        ),
        Entry(
            "short convolution",
            lambda ar: ShortConvolution(ar.array(kernel["weight"]), ar.array(kernel["bias"])),
            wide,
            "(c - 1) d",
            lambda t: 3 * d,
            kernel,
        ),
    ]


def gap(ar, entry: Entry, seq_len: int, batch: tuple[int, ...] = (), seed: int = 0) -> float:
    """Largest difference between scan and parallel form on one random draw, in the units of the values."""
    inputs = entry.inputs(ar, np.random.default_rng(seed), seq_len, batch)
    mixer = entry.build(ar)
    stepped, whole = ar.values(mixer.scan(ar, inputs)[0]), ar.values(mixer.parallel(ar, inputs))
    return float(np.abs(stepped - whole).max())


def check_forms_agree(ar, entry: Entry, seq_lens=(1, 37, 63, 65), tolerance: float = 1e-12, seed: int = 0) -> Check:
    """Scan equals parallel on random inputs, largest difference at most `tolerance` (paper C, Lemma 2.2).

    The value of the check is the largest difference; the counter-example names the length at which it occurred.
    """
    gaps = {t: gap(ar, entry, t, (2,), seed) for t in seq_lens}
    worst = max(gaps, key=gaps.get)
    passed = bool(gaps[worst] <= tolerance)
    return Check(
        name=f"{entry.name}: step = parallel",
        passed=passed,
        scope=f"random inputs, seq_len {', '.join(map(str, seq_lens))}, {ar.name}, tolerance {tolerance:g}",
        cases=len(gaps),
        counterexample=None if passed else {"seq_len": worst, "difference": gaps[worst]},
        value={"difference": gaps[worst]},
    )


def check_identity(entry: Entry, seq_len: int = 7, draws: int = 3, seed: int = 0) -> Check:
    """Scan equals parallel exactly, over the rationals, at random integer points with coordinates below 2^40 in size.

    Both forms are polynomials in the inputs. One token raises the degree of the state by at most 4, the read by 1, so the
    degree is at most 4 seq_len; two different polynomials of that degree agree at such a point with probability at most
    4 seq_len / 2^41, by Schwartz and Zippel. Nothing is tolerated.

    Raises:
        ValueError: the mixer needs exp or a root, which leave the rationals.
    """
    ar, rng = Rational(), np.random.default_rng(seed)
    mixer, wrong = entry.build(ar), None
    for draw in range(draws):
        shapes = entry.draw(rng, (seq_len,))
        inputs = entry._stored(ar, mixer.input_type, {n: rng.integers(-(2**40), 2**40, a.shape) for n, a in shapes.items()})
        stepped, whole = mixer.scan(ar, inputs)[0], mixer.parallel(ar, inputs)
        if (stepped != whole).any() and wrong is None:
            wrong = {"draw": draw, "first wrong entry": tuple(int(i) for i in np.argwhere(stepped != whole)[0])}
    return Check(
        name=f"{entry.name}: step = parallel, exactly",
        passed=wrong is None,
        scope=f"{draws} random integer points, seq_len {seq_len}, rational arithmetic",
        cases=draws,
        counterexample=wrong,
    )


def check_state_count(ar, entry: Entry, seq_lens=(1, 7, 8, 9, 40)) -> Check:
    """`state_numbers` equals the hand count, and what a scan really carries, for each length (paper C, Lemma 2.2)."""
    wrong = []
    for t in seq_lens:
        mixer = entry.build(ar)
        state = mixer.scan(ar, entry.inputs(ar, np.random.default_rng(0), t))[1]
        claimed, by_hand = mixer.state_numbers(t), entry.count(t)
        if not claimed == by_hand == carried_numbers(mixer, state):
            wrong.append({"seq_len": t, "claimed": claimed, "formula": by_hand, "carried": carried_numbers(mixer, state)})
    return Check(
        name=f"{entry.name}: state is {entry.formula}",
        passed=not wrong,
        scope=f"seq_len {', '.join(map(str, seq_lens))}, one head",
        cases=len(seq_lens),
        counterexample=wrong[0] if wrong else None,
        value={"numbers": entry.count(seq_lens[-1]), "seq_len": seq_lens[-1]},
    )


def together(name: str, checks: list[Check], value: dict[str, Any] | None = None) -> Check:
    """One check that passes when all do, over the sum of their cases; it keeps the first counter-example.

    Raises:
        ValueError: no check, or checks of more than three different scopes.
    """
    scopes = list(dict.fromkeys(check.scope for check in checks))
    if not 1 <= len(scopes) <= 3:
        raise ValueError(f"checks: {len(checks)} checks with {len(scopes)} scopes; give one or more with up to 3 scopes")
    failed = next((check for check in checks if not check.passed), None)
    return Check(
        name=name,
        passed=failed is None,
        scope="; ".join(scopes),
        cases=sum(check.cases for check in checks),
        counterexample=None if failed is None else {"check": failed.name, "case": failed.counterexample},
        value=value or {},
    )


def carried_numbers(mixer, state) -> int:
    """Numbers in a state, by looking at its arrays."""
    if isinstance(mixer, ShortConvolution):
        return int(np.prod(tuple(state.shape))) // mixer.width * (mixer.width - 1)  # the next step drops the oldest
    arrays = [state] if hasattr(state, "shape") else [a for a in vars(state).values() if a is not None]
    numbers = sum(int(np.prod(tuple(a.shape))) for a in arrays)
    return numbers
