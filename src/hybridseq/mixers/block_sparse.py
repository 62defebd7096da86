"""(B, k)-sparse attention: a query reads its own block and the k earlier blocks that it ranks first (paper C, Theorem 1.2).

Reconstructed: the text of the paper that we have names block size and sparse capacity, but shows no formula of the layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hybridseq.mixers.attention import Attention, AttentionInputs, Cache, causal_mask
from hybridseq.mixers.recurrence import Mixer, check_dimension


@dataclass(frozen=True)
class BlockSparseAttention(Mixer):
    """Softmax attention over the query's own block, the `top_k` best earlier blocks, and optionally a window.

    Block t is the tokens tB, ..., tB + B - 1. Its summary is the exact mean of its keys, rounded once. A query in block b
    ranks the blocks before b by <q, summary>, ties to the lowest index, and attends to the tokens of the first top_k.

    Args:
        head_dim, value_dim, scale, qk_norm: as in `Attention`.
        block_size: B. top_k: number of earlier blocks. window: tokens that are seen in any case, the current one included,
            or None.

    Raises:
        ValueError: block_size < 1, top_k < 0, window < 1, or what `Attention` refuses.

    Example (top_k at least the number of blocks is full attention):
        >>> from hybridseq.arithmetic import Float
        >>> ar = Float()
        >>> x = ar.array(np.arange(12.0).reshape(6, 2) / 10)
        >>> inputs = AttentionInputs(x, x, x)
        >>> full = Attention(2).parallel(ar, inputs)
        >>> bool(np.allclose(BlockSparseAttention(2, block_size=2, top_k=3).parallel(ar, inputs), full))
        True
    """

    input_type: ClassVar[type] = AttentionInputs

    head_dim: int
    value_dim: int | None = None
    block_size: int = 1
    top_k: int = 1
    window: int | None = None
    scale: str = "sqrt"
    qk_norm: bool = False

    def __post_init__(self):
        object.__setattr__(self, "value_dim", self.attention.value_dim)
        check_dimension("block_size", self.block_size)
        if isinstance(self.top_k, bool) or not isinstance(self.top_k, (int, np.integer)) or self.top_k < 0:
            raise ValueError(f"top_k={self.top_k!r}: must be an integer >= 0")
        if self.window is not None:
            check_dimension("window", self.window)

    @property
    def attention(self) -> Attention:
        """The dense head whose `partial` and `finish` this mixer uses."""
        return Attention(self.head_dim, self.value_dim, self.scale, self.qk_norm)

    def check_inputs(self, inputs: AttentionInputs) -> None:
        self.attention.check_inputs(inputs)

    def summaries(self, ar, k):
        """Mean key of every complete block: (..., seq_len // block_size, head_dim)."""
        blocks = k.shape[-2] // self.block_size
        kept = k[..., : blocks * self.block_size, :].reshape((*k.shape[:-2], blocks, self.block_size, self.head_dim))
        return ar.wide_dot(kept.swapaxes(-1, -2), ar.full((self.block_size,), 1), "dim")

    def mask(self, ar, q, k, queries: np.ndarray) -> np.ndarray:
        """Which keys each query may see, bool (..., Tq, Tk), for q (..., Tq, head_dim) at the positions `queries`."""
        keys = np.arange(k.shape[-2])
        own = queries // self.block_size
        seen = keys[None, :] // self.block_size == own[:, None]
        if self.window is not None:
            seen = seen | causal_mask(queries, keys, self.window)
        summaries = self.summaries(ar, k)
        blocks = summaries.shape[-2]
        if self.top_k and blocks:
            rank = np.asarray(ar.values(ar.scores(q, summaries, "raw")))
            rank = np.where(np.arange(blocks)[None, :] < own[:, None], rank, -np.inf)
            chosen = np.argsort(-rank, axis=-1, kind="stable")[..., : self.top_k]
            picked = np.zeros(rank.shape, bool)
            np.put_along_axis(picked, chosen, True, axis=-1)
            picked &= rank > -np.inf
            tokens = np.repeat(picked, self.block_size, axis=-1)
            padding = np.zeros((*tokens.shape[:-1], len(keys) - tokens.shape[-1]), bool)
            seen = seen | np.concatenate([tokens, padding], axis=-1)
        return seen & causal_mask(queries, keys)

    def _outputs(self, ar, q, k, v, queries: np.ndarray):
        dense = Attention(self.head_dim, self.value_dim, self.scale)  # q and k are normalised already
        return dense.finish(ar, dense.partial(ar, q, k, v, self.mask(ar, q, k, queries)))

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()) -> Cache:
        """An empty cache."""
        return self.attention.init_state(ar, batch_shape)

    def step(self, ar, state: Cache, inputs_t: AttentionInputs) -> Cache:
        """Append the token's key and value; selection may need any of them later."""
        return self.attention.step(ar, state, inputs_t)

    def read(self, ar, state: Cache, inputs_t: AttentionInputs):
        """Select blocks for this token's query and attend: (..., value_dim)."""
        q = ar.rms_norm(inputs_t.q) if self.qk_norm else inputs_t.q
        position = np.array([state.k.shape[-2] - 1])
        return self._outputs(ar, q[..., None, :], state.k, state.v, position)[..., 0, :]

    def parallel(self, ar, inputs: AttentionInputs):
        """All queries at once: (..., seq_len, value_dim)."""
        self.check_inputs(inputs)
        q, k = (ar.rms_norm(x) if self.qk_norm else x for x in (inputs.q, inputs.k))
        return self._outputs(ar, q, k, inputs.v, np.arange(inputs.seq_len))

    def forward(self, ar, inputs: AttentionInputs):
        """The parallel form."""
        return self.parallel(ar, inputs)

    def state_numbers(self, seq_len: int) -> int:
        """The whole cache, and a summary for each complete block: sparsity saves reading, not storage."""
        return self.attention.state_numbers(seq_len) + seq_len // self.block_size * self.head_dim
