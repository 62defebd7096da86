"""Delta rules with a decay a channel: Kimi Delta Attention and RWKV-7 (paper C, Lemma 2.2).

Their transition matrices are diagonal plus rank one and do not commute, so the parallel form here multiplies them out. It
is a reference to test the step against, not a fast algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hybridseq.mixers.recurrence import Recurrence, TokenInputs, check_dimension, transition_products


@dataclass(frozen=True)
class ChannelDeltaInputs(TokenInputs):
    """q, k, alpha: (..., seq_len, head_dim); v: (..., seq_len, value_dim); beta: (..., seq_len)."""

    scalars: ClassVar[frozenset[str]] = frozenset({"beta"})

    q: Any
    k: Any
    v: Any
    alpha: Any
    beta: Any


@dataclass(frozen=True)
class RWKV7Inputs(TokenInputs):
    """r (query), w (decay), k, kappa (removal key), a (rate): (..., seq_len, head_dim); v: (..., seq_len, value_dim)."""

    r: Any
    w: Any
    k: Any
    v: Any
    kappa: Any
    a: Any


class _MatrixState(Recurrence):
    """A state that a transition matrix multiplies from the right: S_t = S_{t-1} M_t + w_t x_t^T."""

    head_dim: int
    value_dim: int

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()):
        """Zeros (..., value_dim, head_dim)."""
        return ar.zeros((*batch_shape, self.value_dim, self.head_dim))

    def _products_chunk(self, ar, m, left, right, query, state):
        """u_i = (S_0 M_1 ... M_i + sum_j left_j right_j^T M_{j+1} ... M_i) q_i; every M_i as it acts on a column, M_i^T."""
        products, from_start = transition_products(ar, m)
        outputs = []
        for i, moved in enumerate(products):
            rights = ar.mix(moved, right[..., : i + 1, :, None])[..., 0]
            s = ar.add(ar.mix(state, from_start[i].swapaxes(-1, -2)), ar.mix(left[..., : i + 1, :].swapaxes(-1, -2), rights))
            outputs.append(ar.dot(s, query[..., i, None, :]))
        return ar.stack(outputs, axis=-2), s

    def state_numbers(self, seq_len: int = 0) -> int:
        """value_dim * head_dim."""
        return self.value_dim * self.head_dim


def _diagonal(ar, x):
    """diag(x): (..., d) to (..., d, d)."""
    return ar.mul(x[..., :, None], ar.array(np.eye(x.shape[-1])))


@dataclass(frozen=True)
class KimiDeltaAttention(_MatrixState):
    """KDA: decay each channel, then a delta step: S_t = S_{t-1} diag(alpha_t)(I - beta_t k_t k_t^T) + beta_t v_t k_t^T.

    Args:
        head_dim, value_dim: columns and rows of the state (value_dim defaults to head_dim).

    Raises:
        ValueError: a dimension < 1.

    Example (alpha = 1, beta = 1: the second write replaces the first):
        >>> from hybridseq.arithmetic import Float
        >>> ar = Float()
        >>> one = ar.full((2, 1), 1)
        >>> token = ChannelDeltaInputs(one, one, ar.array([[3.0], [5.0]]), one, ar.full((2,), 1))
        >>> KimiDeltaAttention(1).scan(ar, token)[0][:, 0].tolist()
        [3.0, 5.0]
    """

    input_type: ClassVar[type] = ChannelDeltaInputs

    head_dim: int
    value_dim: int | None = None

    def __post_init__(self):
        check_dimension("head_dim", self.head_dim)
        if self.value_dim is None:
            object.__setattr__(self, "value_dim", self.head_dim)
        check_dimension("value_dim", self.value_dim)

    def check_inputs(self, inputs: ChannelDeltaInputs) -> None:
        inputs.check(q=self.head_dim, k=self.head_dim, v=self.value_dim, alpha=self.head_dim)

    def step(self, ar, state, inputs_t: ChannelDeltaInputs):
        """Y = S diag(alpha), then Y + (beta (v - Y k)) k^T."""
        y = ar.mul(state, inputs_t.alpha[..., None, :])
        k = inputs_t.k[..., None, :]
        error = ar.sub(inputs_t.v, ar.dot(y, k))
        return ar.add(y, ar.mul(ar.mul(inputs_t.beta[..., None], error)[..., :, None], k))

    def read(self, ar, state, inputs_t: ChannelDeltaInputs):
        """S q: (..., value_dim)."""
        return ar.dot(state, inputs_t.q[..., None, :])

    def chunk(self, ar, inputs: ChannelDeltaInputs, state):
        """Explicit transition products, M_t^T = (I - beta k k^T) diag(alpha)."""
        k, beta = inputs.k, inputs.beta[..., None]
        outer = ar.mul(ar.mul(beta, k)[..., :, None], k[..., None, :])
        m = ar.mul(ar.sub(ar.array(np.eye(self.head_dim)), outer), inputs.alpha[..., None, :])
        return self._products_chunk(ar, m, ar.mul(beta, inputs.v), k, inputs.q, state)


@dataclass(frozen=True)
class RWKV7(_MatrixState):
    """RWKV-7: S_t = S_{t-1} (diag(w_t) - kappa_t (a_t * kappa_t)^T) + v_t k_t^T, u_t = S_t r_t.

    Args:
        head_dim, value_dim: columns and rows of the state (value_dim defaults to head_dim).

    Raises:
        ValueError: a dimension < 1.

    Example (kappa = k, a = 1, w = 1: the removal key clears what the key is about to write):
        >>> from hybridseq.arithmetic import Float
        >>> ar = Float()
        >>> one = ar.full((2, 1), 1)
        >>> tokens = RWKV7Inputs(r=one, w=one, k=one, v=ar.array([[3.0], [5.0]]), kappa=one, a=one)
        >>> RWKV7(1).scan(ar, tokens)[0][:, 0].tolist()
        [3.0, 5.0]
    """

    input_type: ClassVar[type] = RWKV7Inputs

    head_dim: int
    value_dim: int | None = None

    def __post_init__(self):
        check_dimension("head_dim", self.head_dim)
        if self.value_dim is None:
            object.__setattr__(self, "value_dim", self.head_dim)
        check_dimension("value_dim", self.value_dim)

    def check_inputs(self, inputs: RWKV7Inputs) -> None:
        d = self.head_dim
        inputs.check(r=d, w=d, k=d, v=self.value_dim, kappa=d, a=d)

    def step(self, ar, state, inputs_t: RWKV7Inputs):
        """S * w - (S kappa)(a * kappa)^T + v k^T."""
        removed = ar.mul(ar.dot(state, inputs_t.kappa[..., None, :])[..., :, None], self._removal(ar, inputs_t)[..., None, :])
        kept = ar.sub(ar.mul(state, inputs_t.w[..., None, :]), removed)
        return ar.add(kept, ar.mul(inputs_t.v[..., :, None], inputs_t.k[..., None, :]))

    @staticmethod
    def _removal(ar, inputs: RWKV7Inputs):
        return ar.mul(inputs.a, inputs.kappa)

    def read(self, ar, state, inputs_t: RWKV7Inputs):
        """S r: (..., value_dim)."""
        return ar.dot(state, inputs_t.r[..., None, :])

    def chunk(self, ar, inputs: RWKV7Inputs, state):
        """Explicit transition products, M_t^T = diag(w) - (a * kappa) kappa^T."""
        outer = ar.mul(self._removal(ar, inputs)[..., :, None], inputs.kappa[..., None, :])
        m = ar.sub(_diagonal(ar, inputs.w), outer)
        return self._products_chunk(ar, m, inputs.v, inputs.k, inputs.r, state)
