"""The delta rule: DeltaNet and Gated DeltaNet (paper A, Section 3.1 and Appendix B), every evaluation order named.

    S_t = alpha_t S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T,    u_t = S_t q_t,    S_t (value_dim, head_dim).

Row by row: x' = alpha (x - beta <x, k> k) + beta v k, with v the row's coordinate of the value. In real arithmetic the
order of evaluation is immaterial; in fixed point each order is another function, so the order is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hybridseq.arithmetic import FixedPoint
from hybridseq.mixers.recurrence import Recurrence, TokenInputs, check_dimension, decay_products

ORDERS = {
    "A": "alpha (x - (beta <x,k>) k) + (beta v) k",
    "B": "alpha (x - beta (<x,k> k)) + beta (v k)",
    "C": "alpha (x - <x,k> (beta k)) + v (beta k)",
    "D": "alpha x - alpha ((beta <x,k>) k) + (beta v) k",
    "Q": "y = alpha x;  y + (beta (v - <y,k>)) k, as Qwen3-Next and flash-linear-attention evaluate it",
    "W": "the whole update exactly, rounded once",
    "M": "M = alpha (I - beta k k^T) rounded entry by entry, then x M + (beta v) k",
}
PRODUCTS = ("rounded", "wide")


@dataclass(frozen=True)
class DeltaInputs(TokenInputs):
    """q, k: (..., seq_len, head_dim); v: (..., seq_len, value_dim); alpha (decay), beta (write strength): (..., seq_len).

    alpha None stands for 1: DeltaNet without a gate.
    """

    scalars: ClassVar[frozenset[str]] = frozenset({"alpha", "beta"})
    optional: ClassVar[frozenset[str]] = frozenset({"alpha"})

    q: Any
    k: Any
    v: Any
    alpha: Any
    beta: Any


def _dot(ar, x, y, products: str):
    return ar.dot(x, y) if products == "rounded" else ar.wide_dot(x, y, "raw")


def _order_a(ar, s, k, v, alpha, beta, products):
    c = ar.mul(beta, _dot(ar, s, k, products)[..., None])
    return ar.add(_decay(ar, alpha, ar.sub(s, ar.mul(c, k))), ar.mul(ar.mul(beta, v), k))


def _order_b(ar, s, k, v, alpha, beta, products):
    along = ar.mul(_dot(ar, s, k, products)[..., None], k)
    return ar.add(_decay(ar, alpha, ar.sub(s, ar.mul(beta, along))), ar.mul(beta, ar.mul(v, k)))


def _order_c(ar, s, k, v, alpha, beta, products):
    bk = ar.mul(beta, k)
    erased = ar.mul(_dot(ar, s, k, products)[..., None], bk)
    return ar.add(_decay(ar, alpha, ar.sub(s, erased)), ar.mul(v, bk))


def _order_d(ar, s, k, v, alpha, beta, products):
    c = ar.mul(beta, _dot(ar, s, k, products)[..., None])
    kept = ar.sub(_decay(ar, alpha, s), _decay(ar, alpha, ar.mul(c, k)))
    return ar.add(kept, ar.mul(ar.mul(beta, v), k))


def _order_q(ar, s, k, v, alpha, beta, products):
    y = _decay(ar, alpha, s)
    error = ar.sub(v, _dot(ar, y, k, products)[..., None])
    return ar.add(y, ar.mul(ar.mul(beta, error), k))


def _order_w(ar, s, k, v, alpha, beta, products):
    if not isinstance(ar, FixedPoint):
        return _order_a(ar, s, k, v, alpha, beta, products)
    # five factors of up to 2^(2s) each: Python integers, so that nothing wraps
    one = ar.one
    s, k, v, beta = (np.asarray(x).astype(object) for x in (s, k, v, beta))
    a = one if alpha is None else np.asarray(alpha).astype(object)
    t = (s * k).sum(axis=-1, keepdims=True)
    numerator = a * (s * one**3 - beta * t * k) + beta * v * k * one**2
    return ar.round_ratio(numerator, one**4)


def _order_m(ar, s, k, v, alpha, beta, products):
    m = _transition(ar, k, alpha, beta)
    moved = ar.stack([_dot(ar, s, m[..., i], products) for i in range(k.shape[-1])], axis=-1)
    return ar.add(moved, ar.mul(ar.mul(beta, v), k))


def _transition(ar, k, alpha, beta):
    """alpha (I - beta k k^T) with every entry rounded once, (..., 1, head_dim, head_dim)."""
    eye = np.eye(k.shape[-1], dtype=int)
    if not isinstance(ar, FixedPoint):
        b = beta[..., None]
        m = ar.sub(ar.array(eye), ar.mul(b, ar.mul(k[..., :, None], k[..., None, :])))
        return m if alpha is None else ar.mul(alpha[..., None], m)
    one = ar.one
    k, b = np.asarray(k).astype(object), np.asarray(beta).astype(object)[..., None]
    a = one if alpha is None else np.asarray(alpha).astype(object)[..., None]
    numerator = a * (eye.astype(object) * one**3 - b * k[..., :, None] * k[..., None, :])
    return ar.round_ratio(numerator, one**3)


def _decay(ar, alpha, x):
    return x if alpha is None else ar.mul(alpha, x)


_UPDATES = {"A": _order_a, "B": _order_b, "C": _order_c, "D": _order_d, "Q": _order_q, "W": _order_w, "M": _order_m}


@dataclass(frozen=True)
class DeltaRule(Recurrence):
    """Gated DeltaNet; with inputs whose alpha is None, DeltaNet (paper A, Section 3.1; paper C, Lemma 2.2).

    Args:
        head_dim, value_dim: columns and rows of the state (value_dim defaults to head_dim).
        order: evaluation order of the update, a key of `ORDERS`. Real arithmetic does not see it.
        initial_state: value_dim rows of head_dim real numbers, or None for zeros.
        normalise_keys: L2-normalise every key first.
        products: "rounded" sums rounded products in <x, k>; "wide" forms <x, k> exactly and rounds once.

    Raises:
        ValueError: unknown order or products, a dimension < 1, an initial state of the wrong shape.

    Example (one bit of memory in F_2: a key of length 1 is written, then read):
        >>> from hybridseq.arithmetic import FixedPoint
        >>> ar = FixedPoint(2)
        >>> e1, half = ar.array([[1, 0]]), ar.array([[0.5]])
        >>> token = DeltaInputs(q=e1, k=e1, v=half, alpha=None, beta=ar.array([1]))
        >>> DeltaRule(2, 1).scan(ar, token)[0].tolist()
        [[2]]
    """

    input_type: ClassVar[type] = DeltaInputs

    head_dim: int
    value_dim: int | None = None
    order: str = "A"
    initial_state: Any = None
    normalise_keys: bool = False
    products: str = "rounded"

    def __post_init__(self):
        check_dimension("head_dim", self.head_dim)
        if self.value_dim is None:
            object.__setattr__(self, "value_dim", self.head_dim)
        check_dimension("value_dim", self.value_dim)
        if self.order not in ORDERS:
            raise ValueError(f"order={self.order!r}: must be one of {', '.join(ORDERS)}")
        if self.products not in PRODUCTS:
            raise ValueError(f"products={self.products!r}: must be one of {', '.join(PRODUCTS)}")
        if self.initial_state is not None:
            rows = tuple(tuple(row) for row in self.initial_state)
            if len(rows) != self.value_dim or any(len(row) != self.head_dim for row in rows):
                raise ValueError(f"initial_state: needs {self.value_dim} rows of {self.head_dim} numbers, got {rows!r}")
            object.__setattr__(self, "initial_state", rows)

    def check_inputs(self, inputs: DeltaInputs) -> None:
        inputs.check(q=self.head_dim, k=self.head_dim, v=self.value_dim)

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()):
        """Zeros, or the initial state rounded to the arithmetic: (..., value_dim, head_dim)."""
        zero = ar.zeros((*batch_shape, self.value_dim, self.head_dim))
        return zero if self.initial_state is None else ar.add(zero, ar.array(self.initial_state))

    def key(self, ar, k):
        """The key that the update uses."""
        return ar.l2_norm(k) if self.normalise_keys else k

    def step(self, ar, state, inputs_t: DeltaInputs):
        """One update of every row, in the named order: (..., value_dim, head_dim)."""
        k = self.key(ar, inputs_t.k)[..., None, :]
        v = inputs_t.v[..., :, None]
        alpha = None if inputs_t.alpha is None else inputs_t.alpha[..., None, None]
        return _UPDATES[self.order](ar, state, k, v, alpha, inputs_t.beta[..., None, None], self.products)

    def read(self, ar, state, inputs_t: DeltaInputs):
        """u = S q, each row's products rounded and summed left to right: (..., value_dim)."""
        return ar.dot(state, inputs_t.q[..., None, :])

    def chunk(self, ar, inputs: DeltaInputs, state):
        """The tokens of a chunk at once (paper C, Lemma 2.2's parallel form, with a state to start from).

        With Gamma_ij = alpha_{j+1} ... alpha_i the writes w_i solve a unit lower triangular system,
            w_i = beta_i (v_i - Gamma_i0 S_0 k_i - sum_{j<i} Gamma_ij <k_i, k_j> w_j),
        and u_i = Gamma_i0 S_0 q_i + sum_{j<=i} Gamma_ij <q_i, k_j> w_j. Solved by forward substitution.
        """
        k = self.key(ar, inputs.k)
        batch, seq_len = inputs.batch_shape, inputs.seq_len
        alpha = ar.full((*batch, seq_len), 1) if inputs.alpha is None else inputs.alpha
        gamma, from_start = decay_products(ar, alpha)
        lower = ar.mul(gamma, ar.scores(k, k, "raw"))
        read = ar.mul(gamma, ar.scores(inputs.q, k, "raw"))
        writes = []
        for i in range(seq_len):
            start = ar.mul(from_start[..., i, None], ar.dot(state, k[..., i, None, :]))
            error = ar.sub(inputs.v[..., i, :], start)
            if i:
                error = ar.sub(error, ar.mix(lower[..., i : i + 1, :i], ar.stack(writes, axis=-2))[..., 0, :])
            writes.append(ar.mul(inputs.beta[..., i, None], error))
        writes = ar.stack(writes, axis=-2)
        from_state = ar.mul(from_start[..., None], ar.dot(state[..., None, :, :], inputs.q[..., :, None, :]))
        u = ar.add(from_state, ar.mix(read, writes))
        return u, self._after(ar, state, k, writes, gamma, from_start)

    def _after(self, ar, state, k, writes, gamma, from_start):
        """Gamma_T0 S_0 + sum_j Gamma_Tj w_j k_j^T."""
        decayed = ar.mul(gamma[..., -1, :, None], writes)
        added = ar.mix(decayed.swapaxes(-1, -2), k)
        return ar.add(ar.mul(from_start[..., -1, None, None], state), added)

    def state_numbers(self, seq_len: int = 0) -> int:
        """value_dim * head_dim, whatever the length."""
        return self.value_dim * self.head_dim
