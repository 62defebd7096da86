"""Linear attention: kernel feature maps, retention, gated linear attention (paper C, Lemma 2.2).

S_t = S_{t-1} diag(alpha_t) + v_t phi(k_t)^T,    z_t = z_{t-1} + phi(k_t),    S_t (value_dim, rank), z_t (rank,)
u_t = S_t phi(q_t) / <z_t, phi(q_t)>   (normalised)      or      u_t = S_t phi(q_t).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from hybridseq.arithmetic import FixedPoint, Integer
from hybridseq.mixers.recurrence import Recurrence, TokenInputs, check_dimension, decay_products


@dataclass(frozen=True)
class FeatureMap:
    """phi: `apply(ar, x)` maps (..., d) to (..., rank(d)). For a normalised head the features must not be negative."""

    name: str
    rank: Callable[[int], int]
    apply: Callable[[Any, Any], Any]


def _elu1(ar, x):
    """elu(x) + 1 = relu(x) + exp(-relu(-x)): positive, without a branch."""
    return ar.add(ar.relu(x), ar.exp(ar.neg(ar.relu(ar.neg(x)))))


def _taylor2(ar, x):
    """(1, x, x (x) x / sqrt 2), so that <phi(q), phi(k)> = 1 + <q,k> + <q,k>^2 / 2, the Taylor polynomial of exp."""
    d = x.shape[-1]
    squares = ar.mul(ar.mul(x[..., :, None], x[..., None, :]), ar.array(0.5**0.5))
    return ar.concat([ar.full((*x.shape[:-1], 1), 1), x, squares.reshape((*x.shape[:-1], d * d))], axis=-1)


FEATURE_MAPS = {
    m.name: m
    for m in (
        FeatureMap("identity", lambda d: d, lambda ar, x: x),
        FeatureMap("relu", lambda d: d, lambda ar, x: ar.relu(x)),
        FeatureMap("elu1", lambda d: d, _elu1),
        FeatureMap("taylor2", lambda d: 1 + d + d * d, _taylor2),
    )
}


@dataclass(frozen=True)
class LinearInputs(TokenInputs):
    """q, k: (..., seq_len, head_dim); v: (..., seq_len, value_dim)."""

    q: Any
    k: Any
    v: Any


@dataclass(frozen=True)
class GatedLinearInputs(TokenInputs):
    """As LinearInputs, with a decay a channel: alpha (..., seq_len, head_dim) in [0, 1]."""

    q: Any
    k: Any
    v: Any
    alpha: Any


@dataclass(frozen=True)
class LinearState:
    """S (..., value_dim, rank) and, for a normalised head, z (..., rank); else z is None."""

    s: Any
    z: Any


def ratio(ar, num, den):
    """num / den in the arithmetic, rounded once; 0 where den = 0."""
    if isinstance(ar, Integer):
        return ar.fraction(num, den)
    if isinstance(ar, FixedPoint):
        safe = ar.where(den == 0, ar.full((), 1), den)
        signed = ar.where(safe < 0, -num, num)
        return ar.where(den == 0, ar.zeros(()), ar.round_ratio(signed * ar.one, abs(safe)))
    empty = ar.values(den) == 0
    return ar.where(empty, ar.zeros(tuple(den.shape)), num / ar.where(empty, ar.full(tuple(den.shape), 1), den))


def scalar_decay_chunk(ar, q, k, v, alpha, state):
    """A chunk of S_t = alpha_t S_{t-1} + v_t k_t^T, u_t = S_t q_t: (tril(Q K^T) * Gamma) V, and what the start adds.

    Args:
        q, k: (..., T, rank); v: (..., T, value_dim); alpha: (..., T); state: (..., value_dim, rank).

    Returns:
        (u, state): (..., T, value_dim) and the state after the chunk.
    """
    gamma, from_start = decay_products(ar, alpha)
    from_state = ar.mul(from_start[..., None], ar.dot(state[..., None, :, :], q[..., :, None, :]))
    u = ar.add(from_state, ar.mix(ar.mul(gamma, ar.scores(q, k, "raw")), v))
    written = ar.mix(ar.mul(gamma[..., -1, :, None], v).swapaxes(-1, -2), k)
    return u, ar.add(ar.mul(from_start[..., -1, None, None], state), written)


@dataclass(frozen=True)
class LinearAttention(Recurrence):
    """Linear attention with a feature map, normalised or plain, with an optional constant decay (paper C, Lemma 2.2).

    Args:
        head_dim, value_dim: features of q and k, and of v (value_dim defaults to head_dim).
        feature_map: a key of `FEATURE_MAPS`. "taylor2" has rank 1 + d + d^2, so it exceeds Lemma 2.2's d^2 + d numbers.
        normalise: divide by <z, phi(q)>; then the features must be non-negative, or the denominator may vanish.
        decay: constant factor gamma on the state before each write (retention), or None.

    Raises:
        ValueError: unknown feature map, a dimension < 1, decay outside [0, 1].

    Example (the plain head adds up values whose keys agree with the query):
        >>> from hybridseq.arithmetic import Float
        >>> ar = Float()
        >>> x = ar.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> LinearAttention(2, normalise=False).scan(ar, LinearInputs(x, x, x))[0].tolist()
        [[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]
    """

    input_type: ClassVar[type] = LinearInputs

    head_dim: int
    value_dim: int | None = None
    feature_map: str = "identity"
    normalise: bool = True
    decay: float | None = None

    def __post_init__(self):
        check_dimension("head_dim", self.head_dim)
        if self.value_dim is None:
            object.__setattr__(self, "value_dim", self.head_dim)
        check_dimension("value_dim", self.value_dim)
        if self.feature_map not in FEATURE_MAPS:
            raise ValueError(f"feature_map={self.feature_map!r}: must be one of {', '.join(FEATURE_MAPS)}")
        if self.decay is not None and not 0 <= self.decay <= 1:
            raise ValueError(f"decay={self.decay!r}: must lie in [0, 1]")

    @property
    def rank(self) -> int:
        """Number of features."""
        return FEATURE_MAPS[self.feature_map].rank(self.head_dim)

    def features(self, ar, x):
        """phi(x)."""
        return FEATURE_MAPS[self.feature_map].apply(ar, x)

    def check_inputs(self, inputs: LinearInputs) -> None:
        inputs.check(q=self.head_dim, k=self.head_dim, v=self.value_dim)

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()) -> LinearState:
        """Zeros."""
        z = ar.zeros((*batch_shape, self.rank)) if self.normalise else None
        return LinearState(ar.zeros((*batch_shape, self.value_dim, self.rank)), z)

    def step(self, ar, state: LinearState, inputs_t: LinearInputs) -> LinearState:
        """S <- decay S + v phi(k)^T, z <- decay z + phi(k)."""
        k = self.features(ar, inputs_t.k)
        s, z = state.s, state.z
        if self.decay is not None:
            factor = ar.array(self.decay)
            s, z = ar.mul(factor, s), z if z is None else ar.mul(factor, z)
        s = ar.add(s, ar.mul(inputs_t.v[..., :, None], k[..., None, :]))
        return LinearState(s, None if z is None else ar.add(z, k))

    def read(self, ar, state: LinearState, inputs_t: LinearInputs):
        """S phi(q), over <z, phi(q)> if normalised: (..., value_dim)."""
        q = self.features(ar, inputs_t.q)
        u = ar.dot(state.s, q[..., None, :])
        return u if state.z is None else ratio(ar, u, ar.dot(state.z, q)[..., None])

    def chunk(self, ar, inputs: LinearInputs, state: LinearState):
        """tril(phi(Q) phi(K)^T) V, the denominator computed as one more value that is always 1."""
        q, k = self.features(ar, inputs.q), self.features(ar, inputs.k)
        batch, seq_len = inputs.batch_shape, inputs.seq_len
        alpha = ar.full((*batch, seq_len), 1 if self.decay is None else self.decay)
        if state.z is None:
            u, s = scalar_decay_chunk(ar, q, k, inputs.v, alpha, state.s)
            return u, LinearState(s, None)
        v = ar.concat([inputs.v, ar.full((*inputs.v.shape[:-1], 1), 1)], axis=-1)
        joint = ar.concat([state.s, state.z[..., None, :]], axis=-2)
        u, joint = scalar_decay_chunk(ar, q, k, v, alpha, joint)
        return ratio(ar, u[..., :-1], u[..., -1:]), LinearState(joint[..., :-1, :], joint[..., -1, :])

    def state_numbers(self, seq_len: int = 0) -> int:
        """rank * value_dim, plus rank for the normaliser."""
        return self.rank * self.value_dim + (self.rank if self.normalise else 0)


@dataclass(frozen=True)
class GatedLinearAttention(Recurrence):
    """Gated linear attention: S_t = S_{t-1} diag(alpha_t) + v_t k_t^T, u_t = S_t q_t (paper C, Lemma 2.2).

    Args:
        head_dim, value_dim: columns and rows of the state (value_dim defaults to head_dim).

    Raises:
        ValueError: a dimension < 1.

    Example:
        >>> from hybridseq.arithmetic import Float
        >>> ar = Float()
        >>> one, half = ar.full((3, 1), 1), ar.full((3, 1), 0.5)
        >>> GatedLinearAttention(1).scan(ar, GatedLinearInputs(one, one, one, half))[0][:, 0].tolist()
        [1.0, 1.5, 1.75]
    """

    input_type: ClassVar[type] = GatedLinearInputs

    head_dim: int
    value_dim: int | None = None

    def __post_init__(self):
        check_dimension("head_dim", self.head_dim)
        if self.value_dim is None:
            object.__setattr__(self, "value_dim", self.head_dim)
        check_dimension("value_dim", self.value_dim)

    def check_inputs(self, inputs: GatedLinearInputs) -> None:
        inputs.check(q=self.head_dim, k=self.head_dim, v=self.value_dim, alpha=self.head_dim)

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()):
        """Zeros (..., value_dim, head_dim)."""
        return ar.zeros((*batch_shape, self.value_dim, self.head_dim))

    def step(self, ar, state, inputs_t: GatedLinearInputs):
        """S <- S diag(alpha) + v k^T."""
        written = ar.mul(inputs_t.v[..., :, None], inputs_t.k[..., None, :])
        return ar.add(ar.mul(inputs_t.alpha[..., None, :], state), written)

    def read(self, ar, state, inputs_t: GatedLinearInputs):
        """S q: (..., value_dim)."""
        return ar.dot(state, inputs_t.q[..., None, :])

    def chunk(self, ar, inputs: GatedLinearInputs, state):
        """u_i = sum_{j<=i} <q_i * Gamma_ij, k_j> v_j with Gamma_ij the product of the decays after j, channel by channel."""
        q, k, v = inputs.q, inputs.k, inputs.v
        gamma, from_start = decay_products(ar, inputs.alpha.swapaxes(-1, -2))
        gamma = gamma.swapaxes(-3, -1).swapaxes(-3, -2)  # (..., i, j, channel)
        from_start = from_start.swapaxes(-1, -2)
        weights = ar.sum(ar.mul(ar.mul(q[..., :, None, :], gamma), k[..., None, :, :]))
        from_state = ar.dot(state[..., None, :, :], ar.mul(q, from_start)[..., :, None, :])
        u = ar.add(from_state, ar.mix(weights, v))
        written = ar.mix(v.swapaxes(-1, -2), ar.mul(gamma[..., -1, :, :], k))
        return u, ar.add(ar.mul(from_start[..., -1, None, :], state), written)

    def state_numbers(self, seq_len: int = 0) -> int:
        """value_dim * head_dim."""
        return self.value_dim * self.head_dim
