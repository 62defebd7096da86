"""(B, k)-sparse attention: a query reads its own block and the k earlier blocks that it ranks first (paper C, Theorem 1.2).

Reconstructed: the text of the paper that we have names block size and sparse capacity, but shows no formula of the layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hybridseq.mixers.attention import Attention, AttentionInputs, causal_mask
from hybridseq.mixers.recurrence import Mixer, check_dimension
from hybridseq.mixers.summaries import MeanSummary, Summary


@dataclass(frozen=True)
class BlockSparseInputs(AttentionInputs):
    """As for attention, and two that may be absent: selector (..., seq_len, select_dim), which ranks the blocks in place of q,
    and content (..., seq_len, features), which is summarised in place of k.
    """

    optional: ClassVar[frozenset[str]] = frozenset({"selector", "content"})

    selector: Any = None
    content: Any = None


@dataclass(frozen=True)
class BlockCache:
    """The state: all keys and values, the summaries of the complete blocks, and the content of the block that is open.

    keys (..., blocks, select_dim); values (..., blocks, width) or None without a value summary; content (..., open, features)
    or None where keys are summarised.
    """

    k: Any
    v: Any
    keys: Any
    values: Any = None
    content: Any = None


@dataclass(frozen=True)
class BlockSparseAttention(Mixer):
    """Softmax attention over the query's own block, the `top_k` best earlier blocks, and optionally a window.

    Block t is the tokens tB, ..., tB + B - 1. It has a summary; by default the exact mean of its keys, rounded once. A query in
    block b ranks the blocks before b by <selector, summary>, ties to the lowest index, and attends to the tokens of the first
    top_k.

    Args:
        head_dim, value_dim, scale, qk_norm: as in `Attention`.
        block_size: B. top_k: number of earlier blocks. window: tokens that are seen in any case, the current one included,
            or None.
        summary: what a block's key is made of, see `hybridseq.mixers.summaries`; None is the exact mean.
        value_summary: adds a branch that attends to all earlier blocks by their summaries alone: softmax of the scores
            <selector, summary> / scale mixes these summaries of the values. Its output follows the tokens' own.
        content_dim: features of `content` where it is given; None says that keys are summarised.

    Raises:
        ValueError: block_size < 1, top_k < 0, window < 1, content_dim < 1, or what `Attention` and the summaries refuse.

    Example (top_k at least the number of blocks is full attention):
        >>> from hybridseq.arithmetic import Float
        >>> ar = Float()
        >>> x = ar.array(np.arange(12.0).reshape(6, 2) / 10)
        >>> inputs = AttentionInputs(x, x, x)
        >>> full = Attention(2).parallel(ar, inputs)
        >>> bool(np.allclose(BlockSparseAttention(2, block_size=2, top_k=3).parallel(ar, inputs), full))
        True
    """

    input_type: ClassVar[type] = BlockSparseInputs

    head_dim: int
    value_dim: int | None = None
    block_size: int = 1
    top_k: int = 1
    window: int | None = None
    scale: str = "sqrt"
    qk_norm: bool = False
    summary: Summary | None = None
    value_summary: Summary | None = None
    content_dim: int | None = None

    def __post_init__(self):
        object.__setattr__(self, "value_dim", self.attention.value_dim)
        check_dimension("block_size", self.block_size)
        if isinstance(self.top_k, bool) or not isinstance(self.top_k, (int, np.integer)) or self.top_k < 0:
            raise ValueError(f"top_k={self.top_k!r}: must be an integer >= 0")
        for name in ("window", "content_dim"):
            if getattr(self, name) is not None:
                check_dimension(name, getattr(self, name))
        self.select_dim, self.compressed_dim  # noqa: B018 (a summary refuses blocks that it was not made for)

    @property
    def attention(self) -> Attention:
        """The dense head whose `partial` and `finish` this mixer uses."""
        return Attention(self.head_dim, self.value_dim, self.scale, self.qk_norm)

    @property
    def key_summary(self) -> Summary:
        """phi: what ranks a block."""
        return MeanSummary() if self.summary is None else self.summary

    @property
    def select_dim(self) -> int:
        """Numbers in the key of a block, and in a selector."""
        return self.key_summary.width(self.head_dim if self.content_dim is None else self.content_dim, self.block_size)

    @property
    def compressed_dim(self) -> int:
        """Numbers in the value summary of a block; 0 without."""
        return 0 if self.value_summary is None else self.value_summary.width(self.value_dim, self.block_size)

    @property
    def output_dim(self) -> int:
        """Features of the output: those of the tokens read, then those of the branch of summaries."""
        return self.value_dim + self.compressed_dim

    def check_inputs(self, inputs: AttentionInputs) -> None:
        self.attention.check_inputs(inputs)
        given = {name: getattr(inputs, name, None) for name in ("selector", "content")}
        for name, dim in (("selector", self.select_dim), ("content", self.content_dim)):
            if given[name] is not None and given[name].shape[-1] != dim:
                raise ValueError(f"{name}: {given[name].shape[-1]} features, but this mixer was made for {dim}")
        if (given["content"] is None) != (self.content_dim is None):
            raise ValueError(f"content: must be given exactly if content_dim is, which is {self.content_dim}")
        if given["selector"] is None and self.select_dim != self.head_dim:
            raise ValueError(f"selector: must be given where blocks have {self.select_dim} numbers and queries {self.head_dim}")

    # what is known of blocks

    def summaries(self, ar, content, first: int = 0, value: bool = False):
        """Summary of every complete block of content (or keys, or values) (..., seq_len, features): (..., blocks, width).

        first: the number of the first of these blocks. value: by the value summary.
        """
        blocks, features = content.shape[-2] // self.block_size, content.shape[-1]
        kept = content[..., : blocks * self.block_size, :].reshape((*content.shape[:-2], blocks, self.block_size, features))
        summary = self.value_summary if value else self.key_summary
        return summary.apply(ar, kept, np.arange(first, first + blocks))

    def selected(self, ar, selector, summaries, own: np.ndarray) -> np.ndarray:
        """Which blocks each query reads besides its own: bool (..., Tq, blocks).

        selector: (..., Tq, select_dim). summaries: (..., blocks, select_dim). own: the queries' own blocks (Tq,).
        """
        blocks = summaries.shape[-2]
        if not self.top_k or not blocks:
            shape = np.broadcast_shapes(tuple(selector.shape[:-2]), tuple(summaries.shape[:-2]))
            return np.zeros((*shape, len(own), blocks), bool)
        rank = _order(ar, ar.scores(selector, summaries, "raw"))
        rank = np.where(np.arange(blocks)[None, :] < own[:, None], rank, -1)
        chosen = np.argsort(-rank, axis=-1, kind="stable")[..., : self.top_k]
        picked = np.zeros(rank.shape, bool)
        np.put_along_axis(picked, chosen, True, axis=-1)
        return picked & (rank >= 0)

    def _seen(self, picked: np.ndarray, queries: np.ndarray, num_keys: int) -> np.ndarray:
        """Which of the keys 0, ..., num_keys - 1 the queries see, bool (..., Tq, num_keys), for the blocks picked."""
        keys = np.arange(num_keys)
        seen = keys[None, :] // self.block_size == (queries // self.block_size)[:, None]
        if self.window is not None:
            seen = seen | causal_mask(queries, keys, self.window)
        tokens = np.repeat(picked, self.block_size, axis=-1)
        padding = np.zeros((*tokens.shape[:-1], num_keys - tokens.shape[-1]), bool)
        return (seen | np.concatenate([tokens, padding], axis=-1)) & causal_mask(queries, keys)

    def mask(self, ar, selector, content, queries: np.ndarray) -> np.ndarray:
        """Which keys each query may see, bool (..., Tq, Tk): selector (..., Tq, select_dim) at the positions `queries`, and the
        content (the keys, where there is none) of all tokens (..., Tk, features).
        """
        queries = np.asarray(queries)
        picked = self.selected(ar, selector, self.summaries(ar, content), queries // self.block_size)
        return self._seen(picked, queries, content.shape[-2])

    def _outputs(self, ar, q, k, v, selector, keys, values, queries: np.ndarray):
        """Outputs (..., Tq, output_dim) of the queries at given positions; q and k are normalised already."""
        dense = Attention(self.head_dim, self.value_dim, self.scale)
        own = queries // self.block_size
        picked = self.selected(ar, selector, keys, own)
        tokens = dense.finish(ar, dense.partial(ar, q, k, v, self._seen(picked, queries, k.shape[-2])))
        if values is None:
            return tokens
        return ar.concat([tokens, self._compressed(ar, selector, keys, values, own)], axis=-1)

    def _compressed(self, ar, selector, keys, values, own: np.ndarray):
        """The branch of summaries (..., Tq, compressed_dim); zeros where there is no earlier block."""
        if not keys.shape[-2]:
            return ar.zeros((*selector.shape[:-1], self.compressed_dim))
        branch = Attention(self.select_dim, self.compressed_dim, self.scale)
        known = np.arange(keys.shape[-2])[None, :] < own[:, None]
        return branch.finish(ar, branch.partial(ar, selector, keys, values, known))

    # the recurrent reading

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()) -> BlockCache:
        """Empty caches."""
        dims = (self.head_dim, self.value_dim, self.select_dim, self.compressed_dim, self.content_dim)
        return BlockCache(*(ar.zeros((*batch_shape, 0, dim)) if dim else None for dim in dims))

    def step(self, ar, state: BlockCache, inputs_t: AttentionInputs) -> BlockCache:
        """Append the token's key and value; selection may need any of them later. A block that is full is summarised."""
        k = ar.rms_norm(inputs_t.k) if self.qk_norm else inputs_t.k
        k, v = (ar.concat([old, new[..., None, :]], axis=-2) for old, new in ((state.k, k), (state.v, inputs_t.v)))
        content = None
        if state.content is not None:
            content = ar.concat([state.content, inputs_t.content[..., None, :]], axis=-2)
        if k.shape[-2] % self.block_size:
            return BlockCache(k, v, state.keys, state.values, content)
        number, last = k.shape[-2] // self.block_size - 1, slice(-self.block_size, None)
        own = self.summaries(ar, k[..., last, :] if content is None else content, number)
        keys, values = ar.concat([state.keys, own], axis=-2), state.values
        if values is not None:
            values = ar.concat([values, self.summaries(ar, v[..., last, :], number, value=True)], axis=-2)
        return BlockCache(k, v, keys, values, None if content is None else content[..., :0, :])

    def read(self, ar, state: BlockCache, inputs_t: AttentionInputs):
        """Select blocks for this token's query and attend: (..., output_dim)."""
        q = ar.rms_norm(inputs_t.q) if self.qk_norm else inputs_t.q
        selector = getattr(inputs_t, "selector", None)
        selector = q if selector is None else selector
        position = np.array([state.k.shape[-2] - 1])
        keys, values = state.keys, state.values
        return self._outputs(ar, q[..., None, :], state.k, state.v, selector[..., None, :], keys, values, position)[..., 0, :]

    # the parallel reading

    def _from(self, ar, inputs: AttentionInputs, first: int):
        """Outputs of the queries first, first + 1, ..., to the last."""
        self.check_inputs(inputs)
        q, k = (ar.rms_norm(x) if self.qk_norm else x for x in (inputs.q, inputs.k))
        selector, content = (getattr(inputs, name, None) for name in ("selector", "content"))
        keys = self.summaries(ar, k if content is None else content)
        values = self.summaries(ar, inputs.v, value=True) if self.value_summary is not None else None
        selector = (q if selector is None else selector)[..., first:, :]
        return self._outputs(ar, q[..., first:, :], k, inputs.v, selector, keys, values, np.arange(first, inputs.seq_len))

    def parallel(self, ar, inputs: AttentionInputs):
        """All queries at once: (..., seq_len, output_dim)."""
        return self._from(ar, inputs, 0)

    def forward(self, ar, inputs: AttentionInputs):
        """The parallel form."""
        return self.parallel(ar, inputs)

    def last_only(self, ar, inputs: AttentionInputs):
        """Output (..., output_dim) of the last query alone."""
        return self._from(ar, inputs, inputs.seq_len - 1)[..., 0, :]

    # memory

    def state_numbers(self, seq_len: int) -> int:
        """The whole cache, summaries of complete blocks, content of the open one: sparsity saves reading, not storage."""
        summaries = seq_len // self.block_size * (self.select_dim + self.compressed_dim)
        return self.attention.state_numbers(seq_len) + summaries + seq_len % self.block_size * (self.content_dim or 0)


def _order(ar, z) -> np.ndarray:
    """Scores as small integers of the same order, 0 for the least: exact where scores are integers of any length."""
    z = np.asarray(ar.values(z)) if hasattr(z, "detach") or not ar.exact else np.asarray(z)
    return np.unique(z, return_inverse=True)[1].reshape(z.shape)
