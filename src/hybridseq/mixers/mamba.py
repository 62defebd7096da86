"""State space layers: Mamba's selective scan, its two other readings in paper B, and Mamba-2 (B, Section 2; C, Lemma 2.2).

The same layer appears in the literature in three forms, which are three functions, so each has its own name:

    S-form, `SelectiveScan`:  h_i = exp(Delta_i A) h_{i-1} + Delta_i B_i x_i      what the released code computes
    P-form, `EulerScan`:      h_i = (I - Delta_i W_A) h_{i-1} + Delta_i W_B x_i   what paper B's constructions use
    G-form, `GateScan`:       h_i = (1 - g_i) h_{i-1} + g_i x_i                   exact for A = -1, g = 1 - exp(-Delta)

The arrays that are fields (A, skip, W_A, W_B, W_C) are stored numbers of the arithmetic in which the mixer will run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from hybridseq.arithmetic import Float
from hybridseq.mixers.linear_attention import scalar_decay_chunk
from hybridseq.mixers.recurrence import (
    Recurrence,
    TokenInputs,
    check_dimension,
    decay_products,
    transition_products,
)


def softplus(ar, u):
    """log(1 + exp(u)) in floats: neither overflows nor loses small values, and its gradient is sigma(u) at 0 too.

    Raises:
        ValueError: an exact arithmetic, which has no logarithm.

    Example:
        >>> from hybridseq.arithmetic import Float
        >>> softplus(Float(), Float().array([-64.0, 0.0, 64.0])).tolist()
        [1.603810890548638e-28, 0.6931471805599453, 64.0]
    """
    if not isinstance(ar, Float):
        raise ValueError(f"ar={ar.name}: softplus needs a logarithm; use Float, or an indicator as in EulerScan")
    if isinstance(u, np.ndarray | np.generic):
        return np.maximum(u, 0) + np.log1p(np.exp(-np.abs(u)))
    return u.logaddexp(u.new_zeros(()))


def _check_shape(name: str, array, shape: tuple[int, ...]) -> None:
    if tuple(array.shape) != shape:
        raise ValueError(f"{name}: needs shape {shape}, got {tuple(array.shape)}")


@dataclass(frozen=True)
class SelectiveInputs(TokenInputs):
    """x, delta (step size > 0): (..., seq_len, channels); b, c: (..., seq_len, state_dim)."""

    x: Any
    delta: Any
    b: Any
    c: Any


@dataclass(frozen=True)
class SelectiveScan(Recurrence):
    """Mamba-1, S-form: h_t = exp(Delta_t A) * h_{t-1} + (Delta_t x_t) B_t^T, y_t = h_t C_t + D * x_t (C, Lemma 2.2).

    Args:
        channels, state_dim: rows and columns of the state h.
        a: stored numbers (channels, state_dim), negative for a decay. skip: D, stored numbers (channels,), or None for
        0.

    Raises:
        ValueError: a dimension < 1, a or skip of the wrong shape.

    Deviates: B is discretised by Euler's rule as in the released code, not exactly; softplus, convolution and gate are
    outside.

    Example:
        >>> from hybridseq.arithmetic import Float
        >>> ar = Float()
        >>> one = ar.full((2, 1), 1)
        >>> SelectiveScan(1, 1, ar.array([[-1.0]])).scan(ar, SelectiveInputs(one, one, one, one))[0].round(3).tolist()
        [[1.0], [1.368]]
    """

    input_type: ClassVar[type] = SelectiveInputs

    channels: int
    state_dim: int
    a: Any = field(compare=False)
    skip: Any = field(default=None, compare=False)

    def __post_init__(self):
        check_dimension("channels", self.channels)
        check_dimension("state_dim", self.state_dim)
        _check_shape("a", self.a, (self.channels, self.state_dim))
        if self.skip is not None:
            _check_shape("skip", self.skip, (self.channels,))

    def check_inputs(self, inputs: SelectiveInputs) -> None:
        inputs.check(x=self.channels, delta=self.channels, b=self.state_dim, c=self.state_dim)

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()):
        """Zeros (..., channels, state_dim)."""
        return ar.zeros((*batch_shape, self.channels, self.state_dim))

    def step(self, ar, state, inputs_t: SelectiveInputs):
        """h <- exp(Delta A) * h + (Delta x) B^T."""
        kept = ar.mul(ar.exp(ar.mul(inputs_t.delta[..., :, None], self.a)), state)
        return ar.add(kept, ar.mul(ar.mul(inputs_t.delta, inputs_t.x)[..., :, None], inputs_t.b[..., None, :]))

    def read(self, ar, state, inputs_t: SelectiveInputs):
        """y = h C + D * x: (..., channels)."""
        return self._skipped(ar, ar.dot(state, inputs_t.c[..., None, :]), inputs_t.x)

    def _skipped(self, ar, y, x):
        return y if self.skip is None else ar.add(y, ar.mul(self.skip, x))

    def chunk(self, ar, inputs: SelectiveInputs, state):
        """y_i = sum_{j<=i} (C_i * exp((c_i - c_j) A) B_j) Delta_j x_j with c_i = Delta_1 + ... + Delta_i, channel by channel."""
        total = _running_sum(ar, inputs.delta)
        gap = ar.relu(ar.sub(total[..., :, None, :], total[..., None, :, :]))  # (..., i, j, channel), 0 above the diagonal
        lower = np.tril(np.ones((inputs.seq_len, inputs.seq_len), bool))[:, :, None, None]
        decay = ar.exp(ar.mul(gap[..., None], self.a))
        decay = ar.where(np.broadcast_to(lower, tuple(decay.shape)).copy(), decay, ar.zeros(tuple(decay.shape)))
        written = ar.mul(inputs.delta, inputs.x)  # (..., j, channel)
        arrived = ar.mul(decay, inputs.b[..., None, :, None, :])  # (..., i, j, channel, state)
        weights = ar.dot(arrived, inputs.c[..., :, None, None, :])
        from_start = ar.exp(ar.mul(total[..., None], self.a))  # (..., i, channel, state)
        y = ar.add(
            ar.dot(ar.mul(from_start, state[..., None, :, :]), inputs.c[..., :, None, :]),
            ar.sum(ar.mul(weights, written[..., None, :, :]), axis=-2),
        )
        last = ar.sum(ar.mul(arrived[..., -1, :, :, :], written[..., None]), axis=-3)
        return self._skipped(ar, y, inputs.x), ar.add(ar.mul(from_start[..., -1, :, :], state), last)

    def state_numbers(self, seq_len: int = 0) -> int:
        """channels * state_dim; the short convolution before the scan is counted by itself."""
        return self.channels * self.state_dim


def _running_sum(ar, x):
    """Ordered prefix sums over the last axis but one."""
    sums = [x[..., 0, :]]
    for t in range(1, x.shape[-2]):
        sums.append(ar.add(sums[-1], x[..., t, :]))
    return ar.stack(sums, axis=-2)


@dataclass(frozen=True)
class EulerInputs(TokenInputs):
    """x: (..., seq_len, input_dim); delta: (..., seq_len), in paper B's constructions an indicator 0 or 1."""

    scalars: ClassVar[frozenset[str]] = frozenset({"delta"})

    x: Any
    delta: Any


@dataclass(frozen=True)
class EulerScan(Recurrence):
    """Mamba as paper B writes it, P-form: h_i = (I - Delta_i W_A) h_{i-1} + Delta_i W_B x_i, y_i = x_i + W_C h_i.

    With W_A = I and an indicator Delta it holds or overwrites; with W_A = I - shift it is a shift register. The displayed
    equation is missing in the text we have; this is the reading under which the paper's parameters do what it says.

    Args:
        w_a, w_b, w_c: stored numbers (state_dim, state_dim), (state_dim, input_dim), (input_dim, state_dim).

    Raises:
        ValueError: the three shapes do not fit.

    Example (hold the latest marked token, and add it to every token):
        >>> from hybridseq.arithmetic import Float
        >>> ar = Float()
        >>> eye = ar.array([[1.0]])
        >>> tokens = EulerInputs(ar.array([[3.0], [5.0], [7.0]]), ar.array([1.0, 0.0, 1.0]))
        >>> EulerScan(eye, eye, eye).scan(ar, tokens)[0][:, 0].tolist()
        [6.0, 8.0, 14.0]
    """

    input_type: ClassVar[type] = EulerInputs

    w_a: Any = field(compare=False)
    w_b: Any = field(compare=False)
    w_c: Any = field(compare=False)

    def __post_init__(self):
        n, d = tuple(self.w_b.shape)
        _check_shape("w_a", self.w_a, (n, n))
        _check_shape("w_c", self.w_c, (d, n))

    @property
    def state_dim(self) -> int:
        """Coordinates of h."""
        return self.w_b.shape[0]

    def check_inputs(self, inputs: EulerInputs) -> None:
        inputs.check(x=self.w_b.shape[1])

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()):
        """Zeros (..., state_dim)."""
        return ar.zeros((*batch_shape, self.state_dim))

    def step(self, ar, state, inputs_t: EulerInputs):
        """h <- (h - Delta (W_A h)) + Delta (W_B x)."""
        delta = inputs_t.delta[..., None]
        kept = ar.sub(state, ar.mul(delta, ar.affine(self.w_a, state)))
        return ar.add(kept, ar.mul(delta, ar.affine(self.w_b, inputs_t.x)))

    def read(self, ar, state, inputs_t: EulerInputs):
        """y = x + W_C h: (..., input_dim)."""
        return ar.add(inputs_t.x, ar.affine(self.w_c, state))

    def chunk(self, ar, inputs: EulerInputs, state):
        """Explicit transition products of I - Delta_i W_A."""
        m = ar.sub(ar.array(np.eye(self.state_dim)), ar.mul(inputs.delta[..., None, None], self.w_a))
        products, from_start = transition_products(ar, m)
        written = ar.mul(inputs.delta[..., None], ar.affine(self.w_b, inputs.x))
        outputs = []
        for i, moved in enumerate(products):
            arrived = ar.sum(ar.mix(moved, written[..., : i + 1, :, None])[..., 0], axis=-2)
            h = ar.add(ar.mix(from_start[i], state[..., :, None])[..., 0], arrived)
            outputs.append(ar.add(inputs.x[..., i, :], ar.affine(self.w_c, h)))
        return ar.stack(outputs, axis=-2), h

    def state_numbers(self, seq_len: int = 0) -> int:
        """state_dim."""
        return self.state_dim


@dataclass(frozen=True)
class GateInputs(TokenInputs):
    """x: what to write, (..., seq_len, state_dim); gate: g in [0, 1], (..., seq_len)."""

    scalars: ClassVar[frozenset[str]] = frozenset({"gate"})

    x: Any
    gate: Any


@dataclass(frozen=True)
class GateScan(Recurrence):
    """Exact discretisation of h' = -h + x with step Delta, G-form: h_i = (1 - g_i) h_{i-1} + g_i x_i.

    g = 1 - exp(-Delta). With Delta = softplus(u) it is sigma(u), because exp(-softplus(u)) = 1 - sigma(u): paper B's indicator
    Delta in {0, 1} is this gate, saturated. The output is the state.

    Args:
        state_dim: coordinates of h.

    Raises:
        ValueError: state_dim < 1.

    Example:
        >>> from hybridseq.arithmetic import Float
        >>> ar = Float()
        >>> GateScan(1).scan(ar, GateInputs(ar.array([[8.0], [4.0]]), ar.array([1.0, 0.25])))[0][:, 0].tolist()
        [8.0, 7.0]
    """

    input_type: ClassVar[type] = GateInputs

    state_dim: int

    def __post_init__(self):
        check_dimension("state_dim", self.state_dim)

    def check_inputs(self, inputs: GateInputs) -> None:
        inputs.check(x=self.state_dim)

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()):
        """Zeros (..., state_dim)."""
        return ar.zeros((*batch_shape, self.state_dim))

    def step(self, ar, state, inputs_t: GateInputs):
        """h <- (1 - g) h + g x."""
        gate = inputs_t.gate[..., None]
        return ar.add(ar.mul(ar.sub(ar.full((), 1), gate), state), ar.mul(gate, inputs_t.x))

    def read(self, ar, state, inputs_t: GateInputs):
        """h: (..., state_dim)."""
        return state

    def chunk(self, ar, inputs: GateInputs, state):
        """h_i = Gamma_i0 h_0 + sum_j Gamma_ij g_j x_j."""
        gamma, from_start = decay_products(ar, ar.sub(ar.full((), 1), inputs.gate))
        written = ar.mul(inputs.gate[..., None], inputs.x)
        h = ar.add(ar.mul(from_start[..., None], state[..., None, :]), ar.mix(gamma, written))
        return h, h[..., -1, :]

    def state_numbers(self, seq_len: int = 0) -> int:
        """state_dim."""
        return self.state_dim


@dataclass(frozen=True)
class DualInputs(TokenInputs):
    """x: (..., seq_len, channels); a: decay in [0, 1], (..., seq_len); b, c: (..., seq_len, state_dim)."""

    scalars: ClassVar[frozenset[str]] = frozenset({"a"})

    x: Any
    a: Any
    b: Any
    c: Any


@dataclass(frozen=True)
class StateSpaceDual(Recurrence):
    """Mamba-2 (SSD): h_t = a_t h_{t-1} + x_t B_t^T, y_t = h_t C_t; parallel (L * C B^T) X (C, Lemma 2.2).

    With x = v, b = k, c = q it is linear attention under a scalar decay that depends on the token.

    Args:
        channels, state_dim: rows and columns of the state of one head.

    Raises:
        ValueError: a dimension < 1.

    Example:
        >>> from hybridseq.arithmetic import Float
        >>> ar = Float()
        >>> one = ar.full((3, 1), 1)
        >>> StateSpaceDual(1, 1).scan(ar, DualInputs(one, ar.full((3,), 0.5), one, one))[0][:, 0].tolist()
        [1.0, 1.5, 1.75]
    """

    input_type: ClassVar[type] = DualInputs

    channels: int
    state_dim: int

    def __post_init__(self):
        check_dimension("channels", self.channels)
        check_dimension("state_dim", self.state_dim)

    def check_inputs(self, inputs: DualInputs) -> None:
        inputs.check(x=self.channels, b=self.state_dim, c=self.state_dim)

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()):
        """Zeros (..., channels, state_dim)."""
        return ar.zeros((*batch_shape, self.channels, self.state_dim))

    def step(self, ar, state, inputs_t: DualInputs):
        """h <- a h + x B^T."""
        written = ar.mul(inputs_t.x[..., :, None], inputs_t.b[..., None, :])
        return ar.add(ar.mul(inputs_t.a[..., None, None], state), written)

    def read(self, ar, state, inputs_t: DualInputs):
        """y = h C: (..., channels)."""
        return ar.dot(state, inputs_t.c[..., None, :])

    def chunk(self, ar, inputs: DualInputs, state):
        """(L * C B^T) X with L_ij = a_{j+1} ... a_i, plus the decayed start."""
        return scalar_decay_chunk(ar, inputs.c, inputs.b, inputs.x, inputs.a, state)

    def state_numbers(self, seq_len: int = 0) -> int:
        """channels * state_dim."""
        return self.channels * self.state_dim
