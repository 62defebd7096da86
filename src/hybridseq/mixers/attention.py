"""Softmax attention with a causal mask: full or through a sliding window (papers A and B, Section 3.1 and Section 2).

Its step appends to a cache, so the state grows until the window is full. In fixed point the step and the parallel form
agree bit for bit: the softmax denominator is exact and the values are added in the order of the positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hybridseq.arithmetic import FixedPoint, Integer
from hybridseq.mixers.recurrence import Mixer, TokenInputs, check_dimension

SCALES = ("raw", "sqrt", "dim")
_BLOCK_BYTES = 1 << 26  # scores of one block of queries


@dataclass(frozen=True)
class AttentionInputs(TokenInputs):
    """Queries and keys (..., seq_len, head_dim), values (..., seq_len, value_dim)."""

    q: Any
    k: Any
    v: Any


@dataclass(frozen=True)
class Cache:
    """The state of attention: keys (..., kept, head_dim) and values (..., kept, value_dim), oldest first."""

    k: Any
    v: Any


@dataclass(frozen=True)
class Partial:
    """What a range of keys contributes to a query, so that disjoint ranges can be merged.

    In floats a range is summarised by `top` (largest score, (..., Tq, 1)), `den` (sum of exp(score - top)) and `num`
    (those weights times values, (..., Tq, value_dim)). In saturating integers `num` and `den` are exact and `top` is
    absent. In fixed point a weight is rounded only after the whole denominator is known, so nothing shorter than the
    scores and the values themselves is enough: `scores` (..., Tq, Tk), `mask` and `v`.
    """

    top: Any = None
    den: Any = None
    num: Any = None
    scores: Any = None
    mask: Any = None
    v: Any = None


def causal_mask(queries: np.ndarray, keys: np.ndarray, window: int | None = None) -> np.ndarray:
    """Which key positions a query position may see: j <= i, and i - j < window. `window` counts the current token.

    Args:
        queries, keys: absolute positions, integer arrays (Tq,) and (Tk,).

    Returns:
        bool (Tq, Tk).
    """
    distance = np.asarray(queries)[:, None] - np.asarray(keys)[None, :]
    return (distance >= 0) if window is None else (distance >= 0) & (distance < window)


@dataclass(frozen=True)
class Attention(Mixer):
    """u_i = sum over visible j of softmax(<q_i, k_j> / scale)_j v_j (paper A, Section 3.1; paper B, Section 2).

    Args:
        head_dim, value_dim: features of q and k, and of v (value_dim defaults to head_dim).
        scale: divide the exact score by 1 ("raw"), sqrt(head_dim) ("sqrt") or head_dim ("dim") before it is rounded.
        qk_norm: RMS-normalise q and k with unit gain first (paper A's Gated Attention).
        window: how many tokens a query sees, itself included; None sees all that came before.

    Raises:
        ValueError: a dimension or window < 1, or an unknown scale.

    Deviates: the text of paper A that we have shows the denominator of the score as d_h, a lost root sign; "sqrt" is
    what its lemma can use (see the chapter on hard selection).

    Example:
        >>> from hybridseq.arithmetic import Float
        >>> ar = Float()
        >>> x = ar.array([[1.0, 0.0], [0.0, 1.0]])
        >>> Attention(2, scale="raw").parallel(ar, AttentionInputs(x, x, x)).round(3).tolist()
        [[1.0, 0.0], [0.269, 0.731]]
    """

    input_type: ClassVar[type] = AttentionInputs

    head_dim: int
    value_dim: int | None = None
    scale: str = "sqrt"
    qk_norm: bool = False
    window: int | None = None

    def __post_init__(self):
        check_dimension("head_dim", self.head_dim)
        if self.value_dim is None:
            object.__setattr__(self, "value_dim", self.head_dim)
        check_dimension("value_dim", self.value_dim)
        if self.window is not None:
            check_dimension("window", self.window)
        if self.scale not in SCALES:
            raise ValueError(f"scale={self.scale!r}: must be one of {', '.join(SCALES)}")

    def check_inputs(self, inputs: AttentionInputs) -> None:
        inputs.check(q=self.head_dim, k=self.head_dim, v=self.value_dim)

    def _normed(self, ar, x):
        return ar.rms_norm(x) if self.qk_norm else x

    # the recurrent reading: a cache that is appended to

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()) -> Cache:
        """An empty cache."""
        return Cache(ar.zeros((*batch_shape, 0, self.head_dim)), ar.zeros((*batch_shape, 0, self.value_dim)))

    def step(self, ar, state: Cache, inputs_t: AttentionInputs) -> Cache:
        """Append this token's (normalised) key and value; with a window, drop what no later query can see."""
        k = ar.concat([state.k, self._normed(ar, inputs_t.k)[..., None, :]], axis=-2)
        v = ar.concat([state.v, inputs_t.v[..., None, :]], axis=-2)
        return Cache(k, v) if self.window is None else Cache(k[..., -self.window :, :], v[..., -self.window :, :])

    def read(self, ar, state: Cache, inputs_t: AttentionInputs):
        """Softmax over the cache, (..., value_dim)."""
        q = self._normed(ar, inputs_t.q)[..., None, :]
        weights = ar.softmax(ar.scores(q, state.k, self.scale))
        return ar.mix(weights, state.v)[..., 0, :]

    # the parallel reading: a matrix of scores with a mask

    def weights(self, ar, inputs: AttentionInputs, queries: tuple[int, int] | None = None):
        """The attention matrix (..., Tq, seq_len) of the queries start, ..., stop - 1; hidden keys get weight zero."""
        self.check_inputs(inputs)
        start, stop = (0, inputs.seq_len) if queries is None else queries
        q, k = self._normed(ar, inputs.q[..., start:stop, :]), self._normed(ar, inputs.k)
        mask = causal_mask(np.arange(start, stop), np.arange(inputs.seq_len), self.window)
        return ar.softmax(ar.scores(q, k, self.scale), mask)

    def _block(self, ar, q, k, v, start: int, stop: int):
        """Outputs of the queries start, ..., stop - 1 from the keys that any of them can see."""
        first = 0 if self.window is None else max(0, start - self.window + 1)
        mask = causal_mask(np.arange(start, stop), np.arange(first, stop), self.window)
        p = ar.softmax(ar.scores(q[..., start:stop, :], k[..., first:stop, :], self.scale), mask)
        return ar.mix(p, v[..., first:stop, :])

    def parallel(self, ar, inputs: AttentionInputs):
        """All queries at once, (..., seq_len, value_dim); in blocks of queries, so that memory stays bounded."""
        self.check_inputs(inputs)
        q, k = self._normed(ar, inputs.q), self._normed(ar, inputs.k)
        seq_len = inputs.seq_len
        a_row = 8 * seq_len * max(1, int(np.prod(inputs.batch_shape)))
        rows = max(16, _BLOCK_BYTES // a_row)
        blocks = [self._block(ar, q, k, inputs.v, i, min(i + rows, seq_len)) for i in range(0, seq_len, rows)]
        return blocks[0] if len(blocks) == 1 else ar.concat(blocks, axis=-2)

    def forward(self, ar, inputs: AttentionInputs):
        """The parallel form; it equals the scan in every arithmetic of this package."""
        return self.parallel(ar, inputs)

    def last_only(self, ar, inputs: AttentionInputs):
        """Output (..., value_dim) of the last query alone. `inputs.q` may hold that one query only."""
        v = inputs.v if self.window is None else inputs.v[..., -self.window :, :]
        k = inputs.k if self.window is None else inputs.k[..., -self.window :, :]
        q = self._normed(ar, inputs.q[..., -1:, :])
        return ar.mix(ar.softmax(ar.scores(q, self._normed(ar, k), self.scale)), v)[..., 0, :]

    # the contribution of a range of keys

    def partial(self, ar, q, k, v, mask=None) -> Partial:
        """What the keys of one range contribute to each query.

        Args:
            q: (..., Tq, head_dim); k and v: (..., Tk, .); mask: bool (Tq, Tk) or (..., Tq, Tk), None if all is seen.

        In floats a range of which a query sees nothing contributes top = -inf, den = num = 0.
        """
        z = ar.scores(self._normed(ar, q), self._normed(ar, k), self.scale)
        seen = np.ones(tuple(z.shape), bool) if mask is None else np.array(np.broadcast_to(mask, tuple(z.shape)))
        if isinstance(ar, FixedPoint):
            return Partial(scores=z, mask=seen, v=v)
        if isinstance(ar, Integer):
            weights = ar.softmax(z, seen)
            return Partial(den=weights.sum(axis=-1, keepdims=True), num=np.matmul(weights, v))
        visible = ar.where(seen, z, ar.full(tuple(z.shape), -np.inf))
        top = _row_max(visible)
        weights = ar.where(seen, ar.exp(ar.sub(visible, _finite(ar, top))), ar.zeros(tuple(z.shape)))
        return Partial(top=top, den=ar.sum(weights)[..., None], num=ar.mix(weights, v))

    def merge(self, ar, a: Partial, b: Partial) -> Partial:
        """Contribution of two disjoint ranges, `a` before `b` in the order of the positions."""
        if a.scores is not None:
            return Partial(
                scores=ar.concat([a.scores, b.scores], axis=-1),
                mask=np.concatenate([a.mask, b.mask], axis=-1),
                v=ar.concat([a.v, b.v], axis=-2),
            )
        if a.top is None:
            return Partial(den=a.den + b.den, num=a.num + b.num)
        top = ar.where(np.asarray(ar.values(a.top) >= ar.values(b.top)), a.top, b.top)
        wa, wb = (ar.exp(ar.sub(x.top, _finite(ar, top))) for x in (a, b))
        return Partial(
            top=top,
            den=ar.add(ar.mul(wa, a.den), ar.mul(wb, b.den)),
            num=ar.add(ar.mul(wa, a.num), ar.mul(wb, b.num)),
        )

    def finish(self, ar, part: Partial):
        """Output (..., Tq, value_dim) once every visible range is merged; a query that saw nothing outputs 0."""
        if part.scores is not None:
            return ar.mix(ar.softmax(part.scores, part.mask), part.v)
        if part.top is None:
            return ar.fraction(part.num, part.den)
        empty = np.asarray(ar.values(part.den) == 0)
        return part.num / ar.where(empty, ar.full(tuple(part.den.shape), 1), part.den)

    # memory

    def state_numbers(self, seq_len: int) -> int:
        """Numbers in the cache after `seq_len` tokens: min(seq_len, window) keys and values (paper B, Section 2)."""
        if seq_len < 0:
            raise ValueError(f"seq_len={seq_len}: must be >= 0")
        kept = seq_len if self.window is None else min(seq_len, self.window)
        return kept * (self.head_dim + self.value_dim)


def _row_max(z):
    """Maximum over the last axis, kept as an axis of length one; ndarray or tensor."""
    return z.amax(dim=-1, keepdim=True) if hasattr(z, "amax") else z.max(axis=-1, keepdims=True)


def _finite(ar, top):
    """`top` with -inf replaced by 0, so that exp(-inf - top) is 0 and not a NaN."""
    hidden = np.asarray(ar.values(top) == -np.inf)
    return ar.where(hidden, ar.zeros(tuple(top.shape)), top)
