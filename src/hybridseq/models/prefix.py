"""One pass over a batch of prompts that knows the residual stream at the last position, and elsewhere only where needed."""

from __future__ import annotations

import numpy as np

from hybridseq.mixers import Attention
from hybridseq.models.automaton import final_state
from hybridseq.models.names import block_writes, knows_last, reads_before_last

__all__ = ["Prefix"]


class Prefix:
    """The residual stream of prompts (num, seq_len) while blocks are applied one after the other.

    `last` (num, dim) is always up to date. The stream at all positions is formed only when a block has to run everywhere.
    Until then a coordinate is a function of token and position, so maps are applied to the distinct pairs alone:
    `pairs` (num_pairs, dim) with `place` (num, seq_len) saying which pair stands where.
    """

    def __init__(self, ar, embedding, tokens: np.ndarray):
        self.ar, self.embedding, self.tokens = ar, embedding, tokens
        self.seq_len = tokens.shape[1]
        numbers = tokens.astype(np.int64) * self.seq_len + np.arange(self.seq_len)
        distinct, place = np.unique(numbers, return_inverse=True)
        self.place = place.reshape(tokens.shape)
        self.pairs = embedding.rows(ar, distinct // self.seq_len, distinct % self.seq_len)
        self.last = self.pairs[self.place[:, -1]]
        self.stream_at_all = None
        self.changed: frozenset[int] = frozenset()

    def advance(self, block, all_positions: bool) -> None:
        """Apply one block: at every position, or at the last one alone."""
        if all_positions:
            self._everywhere(block)
        else:
            self.last = self._with_mlp(block, self.last, self._mixed(block.layer))

    def _everywhere(self, block) -> None:
        x = self._all()
        self.stream_at_all = self._with_mlp(block, x, block.layer.forward(self.ar, x))
        self.last = self.stream_at_all[:, -1]
        self.changed |= block_writes(block, self.embedding.stream)

    def _with_mlp(self, block, x, z):
        x = self.ar.add(x, z)
        return x if block.mlp is None else self.ar.add(x, block.mlp.apply(self.ar, x))

    def _all(self):
        """The stream at all positions (num, seq_len, dim), with the last position up to date."""
        x = self.pairs[self.place] if self.stream_at_all is None else self.stream_at_all
        return self.ar.concat([x[:, :-1], self.last[:, None]], axis=-2)

    def _mixed(self, layer):
        """What the layer adds at the last position, (num, dim)."""
        stream = self.embedding.stream
        if not knows_last(layer) or reads_before_last(layer, stream) & self.changed:
            return layer.last_only(self.ar, self._all())
        outputs = [self._head(head) for head in layer.heads]
        return layer.out.apply(self.ar, outputs[0] if len(outputs) == 1 else self.ar.concat(outputs, axis=-1))

    def _head(self, head):
        """A head's output (num, value_dim) at the last position, from inputs formed once a pair.

        A pair's inputs do not depend on the prompt, because no block has changed the coordinates that they read.
        """
        u = self._attention(head) if isinstance(head.core, Attention) else self._recurrence(head)
        return head.gated(self.ar, u, self.last)

    def _recurrence(self, head):
        ar, core = self.ar, head.core
        names = [name for name in core.input_type.names() if name != "q"]
        by_pair = {name: head.input(ar, self.pairs, name) for name in names}
        query = head.input(ar, self.last, "q")
        state = final_state(ar, core, by_pair | {"q": None}, self.place)
        if state is not None:
            return core.read(ar, state, core.input_type(**dict.fromkeys(names), q=query))
        inputs = {name: None if table is None else table[self.place] for name, table in by_pair.items()}
        # Only the last query is read, so the others may hold anything.
        inputs["q"] = ar.add(ar.zeros((len(self.tokens), self.seq_len, query.shape[-1])), query[:, None])
        return core.last_only(ar, core.input_type(**inputs))

    def _attention(self, head):
        ar, core = self.ar, head.core
        q, k, v = head.input(ar, self.last, "q"), head.input(ar, self.pairs, "k"), head.input(ar, self.pairs, "v")
        if core.qk_norm:
            q, k = ar.rms_norm(q), ar.rms_norm(k)
        place = self.place if core.window is None else self.place[:, -core.window :]
        rows = np.arange(len(place))[:, None]
        weights = ar.softmax(ar.scores(q, k, core.scale)[rows, place])
        if ar.exact:  # a weight of zero adds nothing: keep each row's live keys, in the order of the positions
            live = np.asarray(weights != 0)
            kept = np.argsort(~live, axis=1, kind="stable")[:, : max(1, int(live.sum(axis=1).max()))]
            weights, place = weights[rows, kept], place[rows, kept]
        return ar.mix(weights[:, None], v[place])[:, 0]
