"""Softmax attention with rotary positions: queries and keys are turned by an angle that grows with their position.

With q and k made of pairs (a_f, b_f), position i turns pair f by 2 pi i / period_f, so that a score depends on positions only
through their difference. Both pairs' halves are laid out as (a_1, ..., a_F, b_1, ..., b_F).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hybridseq.mixers.attention import Attention, AttentionInputs, Cache
from hybridseq.mixers.recurrence import Mixer


@dataclass(frozen=True)
class RotaryCache:
    """The state of rotary attention: a cache of turned keys, and the number of tokens read."""

    cache: Cache
    position: int


@dataclass(frozen=True)
class RotaryAttention(Mixer):
    """Attention on turned queries and keys: u_i = sum_j softmax(<R_i q_i, R_j k_j> / scale)_j v_j.

    Args:
        periods: one positive number a pair, in tokens: the pair is back where it was after so many positions.
        value_dim: features of v. scale, window: as in `Attention`.

    Raises:
        ValueError: no period, or one that is not positive; what `Attention` refuses.

    Deviates: released models choose periods 2 pi b^(2 f / d) with b = 10,000; here they are an argument.

    Example (a query of no angle prefers the key at distance 0; with period 4 distance 2 is opposite):
        >>> from hybridseq.arithmetic import Float
        >>> ar = Float()
        >>> one = ar.array([[1.0, 0.0]] * 3)
        >>> core = RotaryAttention((4,), value_dim=1, scale="raw")
        >>> v = ar.array([[1.0], [0.0], [0.0]])
        >>> core.parallel(ar, AttentionInputs(one, one, v))[:, 0].round(3).tolist()
        [1.0, 0.269, 0.09]
    """

    input_type: ClassVar[type] = AttentionInputs

    periods: tuple[float, ...]
    value_dim: int
    scale: str = "sqrt"
    window: int | None = None

    def __post_init__(self):
        object.__setattr__(self, "periods", tuple(self.periods))
        if not self.periods or min(self.periods) <= 0:
            raise ValueError(f"periods={self.periods}: needs one or more positive numbers of tokens")
        self.plain  # noqa: B018  raises for a bad value_dim, scale or window

    @property
    def head_dim(self) -> int:
        """Two coordinates a pair."""
        return 2 * len(self.periods)

    @property
    def plain(self) -> Attention:
        """The attention that sees the turned queries and keys."""
        return Attention(self.head_dim, self.value_dim, scale=self.scale, window=self.window)

    def check_inputs(self, inputs: AttentionInputs) -> None:
        inputs.check(q=self.head_dim, k=self.head_dim, v=self.value_dim)

    def turned(self, ar, y, positions):
        """R_i y: (a, b) to (a cos - b sin, a sin + b cos) at integer positions; y (..., head_dim), positions broadcast."""
        # the remainder is exact for whole periods, so that far positions cost no precision
        share = np.remainder(np.asarray(positions)[..., None], self.periods) / np.array(self.periods)
        cos, sin = ar.array(np.cos(2 * np.pi * share)), ar.array(np.sin(2 * np.pi * share))
        half = len(self.periods)
        a, b = y[..., :half], y[..., half:]
        first = ar.sub(ar.mul(a, cos), ar.mul(b, sin))
        return ar.concat([first, ar.add(ar.mul(a, sin), ar.mul(b, cos))], axis=-1)

    def turned_inputs(self, ar, inputs: AttentionInputs) -> AttentionInputs:
        """All tokens turned, the first at position 0."""
        self.check_inputs(inputs)
        positions = np.arange(inputs.seq_len)
        return AttentionInputs(self.turned(ar, inputs.q, positions), self.turned(ar, inputs.k, positions), inputs.v)

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()) -> RotaryCache:
        return RotaryCache(self.plain.init_state(ar, batch_shape), 0)

    def step(self, ar, state: RotaryCache, inputs_t: AttentionInputs) -> RotaryCache:
        """Turn this token's key and append it."""
        k = self.turned(ar, inputs_t.k, state.position)
        cache = self.plain.step(ar, state.cache, AttentionInputs(inputs_t.q, k, inputs_t.v))
        return RotaryCache(cache, state.position + 1)

    def read(self, ar, state: RotaryCache, inputs_t: AttentionInputs):
        """Softmax over the cache, with the query turned by its own position."""
        q = self.turned(ar, inputs_t.q, state.position - 1)
        return self.plain.read(ar, state.cache, AttentionInputs(q, inputs_t.k, inputs_t.v))

    def weights(self, ar, inputs: AttentionInputs) -> Any:
        """The attention matrix (..., seq_len, seq_len)."""
        return self.plain.weights(ar, self.turned_inputs(ar, inputs))

    def parallel(self, ar, inputs: AttentionInputs):
        """All queries at once."""
        return self.plain.parallel(ar, self.turned_inputs(ar, inputs))

    def forward(self, ar, inputs: AttentionInputs):
        return self.parallel(ar, inputs)

    def state_numbers(self, seq_len: int) -> int:
        """The cache, and one position."""
        return self.plain.state_numbers(seq_len) + 1
