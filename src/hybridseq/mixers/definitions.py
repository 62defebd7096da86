"""Checks that the definitions of the three papers' layers are what this room computes (chapter 2)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.evidence import Check
from hybridseq.mixers.attention import Attention, AttentionInputs
from hybridseq.mixers.catalogue import Entry, carried_numbers
from hybridseq.mixers.delta_rule import ORDERS, DeltaInputs, DeltaRule
from hybridseq.mixers.hybrid_word import HybridStack, HybridWord
from hybridseq.mixers.layer import Head, Layer
from hybridseq.mixers.mamba import EulerInputs, EulerScan, GateInputs, GateScan


@dataclass(frozen=True)
class DenseMap:
    """x -> W x + b with dense real weights, rounded into the arithmetic in which it is applied."""

    weight: Any
    bias: Any

    def apply(self, ar, x):
        """(..., in) to (..., out)."""
        return ar.affine(ar.array(self.weight), x, ar.array(self.bias))

    @classmethod
    def random(cls, rng: np.random.Generator, out: int, width: int) -> DenseMap:
        """Entries of size about width^(-1/2)."""
        return cls(rng.standard_normal((out, width)) / np.sqrt(width), rng.standard_normal(out) / 4)


def random_layer(rng: np.random.Generator, letter: str, d_model: int = 6, dim: int = 4, gated: bool = True) -> Layer:
    """One head with random maps: Gated Attention for F, Gated DeltaNet for R (paper A, Section 3.1)."""
    maps = {name: DenseMap.random(rng, dim, d_model) for name in "qkv"}
    gate = DenseMap.random(rng, dim, d_model) if gated else None
    if letter == "F":
        head = Head(Attention(dim), maps, gate, qk_norm="rms")
    else:
        maps |= {name: DenseMap.random(rng, 1, d_model) for name in ("alpha", "beta")}
        head = Head(DeltaRule(dim), maps, gate, qk_norm="l2")
    return Layer((head,), DenseMap.random(rng, d_model, dim))


def random_stack(rng: np.random.Generator, word: str, d_model: int = 6, dim: int = 4) -> HybridStack:
    """A word with random layers, all different."""
    parsed = HybridWord.parse(word)
    return HybridStack(parsed, tuple(random_layer(rng, letter, d_model, dim) for letter in parsed.letters))


def check_state_suffices(ar, entry: Entry, seq_len: int = 24, seed: int = 0) -> Check:
    """What follows depends on the past through the state alone (paper C, Definition 2.1).

    The prefix is scanned and dropped at every cut; only the state goes on, and outputs must be equal to the last bit. All
    prefixes are scanned before the first rest, and each rest is read by a fresh mixer, so that memory kept anywhere but in the
    state is out of date.
    """
    mixer, inputs = entry.build(ar), entry.inputs(ar, np.random.default_rng(seed), seq_len, (3,))
    whole = ar.values(mixer.scan(ar, inputs)[0])
    states = {cut: mixer.scan(ar, inputs.between(0, cut))[1] for cut in range(1, seq_len)}
    wrong = None
    for cut, state in states.items():
        rest = ar.values(entry.build(ar).scan(ar, inputs.between(cut, seq_len), state)[0])
        if (rest != whole[..., cut:, :]).any() and wrong is None:
            wrong = {"cut": cut}
    return Check(
        name=f"{entry.name}: the state carries everything",
        passed=wrong is None,
        scope=f"random inputs, every cut of {seq_len} tokens, {ar.name}, to the last bit",
        cases=seq_len - 1,
        counterexample=wrong,
        value={"numbers": mixer.state_numbers(seq_len)},
    )


def words(max_layers: int) -> list[str]:
    """All words over F and R with 1 to max_layers letters."""
    return ["".join(w) for n in range(1, max_layers + 1) for w in product("FR", repeat=n)]


def check_words(ar, max_layers: int = 4, seq_lens: tuple[int, ...] = (1, 5, 12), seed: int = 0) -> Check:
    """Every short word: step by step equals layer by layer, and the numbers carried are those counted (C, Definition 2.3)."""
    rng, wrong = np.random.default_rng(seed), None
    names = words(max_layers)
    for word in names:
        stack = random_stack(rng, word)
        x = ar.array(rng.standard_normal((2, max(seq_lens), 6)))
        forward = ar.values(stack.forward(ar, x))
        stepped, _ = stack.scan(ar, x)
        same = (ar.values(stepped) == forward).all() if ar.exact else np.allclose(ar.values(stepped), forward, atol=1e-12)
        carried = [_carried(stack, stack.scan(ar, x[:1, :n])[1]) for n in seq_lens]
        counted = [stack.word.state_numbers(cache=8, state=16, seq_len=n) for n in seq_lens]
        if wrong is None and not (same and carried == counted):
            wrong = {"word": word, "equal": bool(same), "carried": carried, "counted": counted}
    return Check(
        name="words over F and R: two readings, one output, the state as counted",
        passed=wrong is None,
        scope=f"all {len(names)} words of up to {max_layers} layers, random weights, {ar.name}",
        cases=len(names),
        counterexample=wrong,
    )


def _carried(stack: HybridStack, states: tuple) -> int:
    heads = (stack.layers[i].heads for i in range(len(states)))
    return sum(
        carried_numbers(head.core, state)
        for layer_heads, layer_states in zip(heads, states, strict=True)
        for head, state in zip(layer_heads, layer_states, strict=True)
    )


def check_window(max_len: int = 20) -> Check:
    """A query at position i (from 1) sees positions max(1, i - W + 1), ..., i and no other (paper B, Section 2).

    Every value is the indicator of its own position and every score is equal, so a weight is positive exactly where the
    query looks. Step and matrix are both asked.
    """
    ar, cases, wrong = Float(), 0, None
    for n in range(1, max_len + 1):
        inputs = AttentionInputs(ar.zeros((n, 1)), ar.zeros((n, 1)), ar.array(np.eye(n)))
        position = np.arange(1, n + 1)
        for window in range(1, max_len + 1):
            mixer = Attention(1, n, window=window)
            low = np.maximum(1, position - window + 1)
            expected = (position[None, :] >= low[:, None]) & (position[None, :] <= position[:, None])
            for form in (mixer.parallel(ar, inputs), mixer.scan(ar, inputs)[0]):
                cases += n
                if wrong is None and ((form > 0) != expected).any():
                    wrong = {"n": n, "W": window}
    scope = f"all n and W from 1 to {max_len}, all positions, both readings"
    return Check("a window sees max(1, i-W+1), ..., i", wrong is None, scope, cases, wrong)


def hold_register(ar, width: int) -> EulerScan:
    """P-form with W_A = W_B = I, W_C = I: holds the latest token whose Delta is 1 and adds it to every token."""
    eye = ar.array(np.eye(width))
    return EulerScan(eye, eye, eye)


def shift_register(ar, length: int) -> EulerScan:
    """P-form with W_A = I - shift: keeps the last `length` marked tokens (one coordinate each), the newest first."""
    shift = np.eye(length, k=-1)
    first, read = np.zeros((length, 1)), np.zeros((1, length))
    first[0, 0] = read[0, -1] = 1
    return EulerScan(*(ar.array(w) for w in (np.eye(length) - shift, first, read)))


def check_registers(ar, length: int = 3, max_len: int = 8) -> Check:
    """The P-form is a register: all strings of blanks and marked signs, held and shifted without an error (paper B).

    A token is 0 (blank, Delta = 0), -1 or 1 (marked, Delta = 1). The hold register must contain the latest marked token, the
    shift register the last `length` of them, zeros where there were fewer.
    """
    strings = np.array(list(product((-1, 0, 1), repeat=max_len)))
    inputs = EulerInputs(ar.array(strings[..., None]), ar.array(np.abs(strings)))
    held = ar.values(hold_register(ar, 1).scan(ar, inputs)[1])
    shifted = ar.values(shift_register(ar, length).scan(ar, inputs)[1])
    marked = [[int(t) for t in row if t][::-1] + [0] * length for row in strings]
    expected = np.array([row[:length] for row in marked])
    got = np.concatenate([held, shifted], axis=-1)
    return Check.equal(
        name="P-form: Delta = 0 holds, Delta = 1 overwrites or shifts",
        got=got,
        expected=np.concatenate([expected[:, :1], expected], axis=-1),
        scope=f"all {len(strings):,} strings of length {max_len} over a blank and two signs, {ar.name}",
        inputs=strings.tolist(),
        value={"strings": len(strings)},
    )


def reachable_states(mixer: EulerScan, ar, letters: dict[str, tuple[list[float], float]]) -> list[int]:
    """Distinct register states after 0, 1, 2, ... tokens until nothing new appears: S of paper B, counted.

    Args:
        letters: token name to (x, Delta).
    """
    seen = {tuple(ar.values(mixer.init_state(ar)).tolist())}
    frontier, counts = [mixer.init_state(ar)], [1]
    while frontier:
        following = []
        for state in frontier:
            for x, delta in letters.values():
                after = mixer.step(ar, state, EulerInputs(ar.array(x), ar.array(delta)))
                key = tuple(ar.values(after).tolist())
                if key not in seen:
                    seen.add(key)
                    following.append(after)
        frontier = following
        if following:
            counts.append(len(seen))
    return counts


def check_gate_identity(points: int = 601) -> Check:
    """exp(-softplus(u)) = 1 - sigma(u): paper B's 0-1 step size is a saturated gate, in the G-form of the layer.

    The G-form is compared with the solution of h' = -h + x over a time softplus(u) from the same start.
    """
    ar, u = Float(), np.linspace(-40, 40, points)
    step = np.logaddexp(0, u)
    h0, x = 0.75, -2.5
    solution = x + (h0 - x) * np.exp(-step)
    inputs = GateInputs(np.full((points, 1, 1), x), ar.sigmoid(u)[:, None])
    got = GateScan(1).scan(ar, inputs, np.full((points, 1), h0))[0][:, 0, 0]
    return Check.close("G-form is the exact solution with g = sigma(u)", got, solution, f"{points} values of u, float64", 1e-14)


def check_delta_orders(seq_len: int = 20, seed: int = 0) -> Check:
    """All evaluation orders are S_t = alpha S (I - beta k k^T) + beta v k^T over the reals (paper A, Section 3.1)."""
    ar, rng = Float(), np.random.default_rng(seed)
    d, dv = 4, 3
    q, k, v = (rng.standard_normal((seq_len, w)) for w in (d, d, dv))
    alpha, beta = rng.uniform(0, 1, (2, seq_len))
    s, expected = np.zeros((dv, d)), []
    for t in range(seq_len):
        s = alpha[t] * s @ (np.eye(d) - beta[t] * np.outer(k[t], k[t])) + beta[t] * np.outer(v[t], k[t])
        expected.append(s @ q[t])
    inputs = DeltaInputs(q, k, v, alpha, beta)
    got = np.stack([DeltaRule(d, dv, order=order).scan(ar, inputs)[0] for order in ORDERS])
    size = np.abs(expected).max()
    return Check.close(
        name="Gated DeltaNet: every order is the printed update",
        got=got / size,
        expected=np.stack([expected] * len(ORDERS)) / size,
        scope=f"{len(ORDERS)} orders, {seq_len} random tokens, float64, relative to the largest output",
        tolerance=1e-12,
    )


def _head_by_formula(head: Head, x: np.ndarray) -> np.ndarray:
    """o = sigma(G x) u at the last token of x (seq_len, d_model), straight from the formulas; head of `random_layer`."""
    q, k, v = (x @ head.maps[name].weight.T + head.maps[name].bias for name in "qkv")
    gate = 1 / (1 + np.exp(-(head.gate.weight @ x[-1] + head.gate.bias)))
    if isinstance(head.core, Attention):
        q, k = (y / np.sqrt((y**2).mean(axis=-1, keepdims=True)) for y in (q, k))
        weights = np.exp(k @ q[-1] / np.sqrt(q.shape[-1]))
        return gate * (weights @ v / weights.sum())
    q, k = (y / np.sqrt((y**2).sum(axis=-1, keepdims=True)) for y in (q, k))
    alpha, beta = (1 / (1 + np.exp(-(x @ head.maps[name].weight[0] + head.maps[name].bias[0]))) for name in ("alpha", "beta"))
    s = np.zeros((v.shape[-1], k.shape[-1]))
    for t in range(len(x)):
        s = alpha[t] * s @ (np.eye(k.shape[-1]) - beta[t] * np.outer(k[t], k[t])) + beta[t] * np.outer(v[t], k[t])
    return gate * (s @ q[-1])


def check_heads(seq_len: int = 12, seed: int = 0) -> Check:
    """Both of paper A's heads, with norms and gates, against their formulas written out once more (Section 3.1).

    Gated Attention: RMS norm on q and k, causal softmax of <q, k>/sqrt(d_h), output gate. Gated DeltaNet: L2 norm on q and k,
    sigmoid decay and write strength, S_t = alpha S (I - beta k k^T) + beta v k^T from S_0 = 0, output gate.
    """
    rng, got, expected = np.random.default_rng(seed), [], []
    for letter in "FR":
        head = random_layer(rng, letter).heads[0]
        x = rng.standard_normal((seq_len, 6))
        got.append(head.forward(Float(), x))
        expected.append([_head_by_formula(head, x[: t + 1]) for t in range(seq_len)])
    return Check.close(
        name="GA and GDN heads: norms, gates and mixing as the formulas say",
        got=got,
        expected=expected,
        scope=f"random weights, {seq_len} random tokens each, float64",
        tolerance=1e-12,
    )


def check_layers(formats: tuple[int, ...] = (2, 4, 8), seq_len: int = 16, seed: int = 0) -> Check:
    """Gated Attention and Gated DeltaNet layers in F_s: forward, token by token and last position agree (paper A)."""
    rng, wrong, cases = np.random.default_rng(seed), None, 0
    for s in formats:
        ar = FixedPoint(s)
        x = ar.array(rng.standard_normal((3, seq_len, 6)))
        for letter in "FR":
            layer = random_layer(rng, letter)
            z = layer.forward(ar, x)
            same = (layer.scan(ar, x)[0] == z).all() and (layer.last_only(ar, x) == z[..., -1, :]).all()
            cases += z.size
            if wrong is None and not same:
                wrong = {"s": s, "layer": letter}
    scope = f"random weights and inputs, {seq_len} tokens, s = {', '.join(map(str, formats))}, to the last bit"
    return Check("GA and GDN layers: three ways of running, one output", wrong is None, scope, cases, wrong)


def check_output_gate(formats: range = range(2, 17)) -> Check:
    """sigma(B_s) = 1 and sigma(-B_s) = 0 in F_s, so an output gate can be exactly open or exactly shut (paper A)."""
    got = []
    for s in formats:
        ar = FixedPoint(s)
        ends = np.array([ar.max_code, -ar.max_code], dtype=ar.dtype)
        got.append([int(c) for c in ar.sigmoid(ends) // ar.one])
    scope = f"s = {formats.start} to {formats.stop - 1}"
    return Check.equal("a saturated output gate is 1 or 0", got, [[1, 0]] * len(got), scope)
