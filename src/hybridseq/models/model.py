"""A decoder in the sense of paper A, Section 3.1, run in any arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hybridseq.mixers import Layer
from hybridseq.models.embedding import Embedding
from hybridseq.models.mlp import MLP
from hybridseq.models.names import everywhere
from hybridseq.models.prefix import Prefix
from hybridseq.residual import Affine, Stream
from hybridseq.tasks import Vocabulary

__all__ = ["Block", "Generation", "Model"]


@dataclass(frozen=True)
class Block:
    """One layer of token mixing and an optional MLP; both add to the residual stream, x <- x (+) z."""

    layer: Layer
    mlp: MLP | None = None
    name: str = ""


@dataclass(frozen=True)
class Generation:
    """The outcome of greedy decoding, one entry a prompt.

    answer: the first answer token, or None where none came within the budget or a token outside the scratch alphabet came
    first. scratch: the tokens written before it.
    """

    answer: tuple[int | None, ...]
    scratch: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Model:
    """Embedding, a stack of blocks, logits; no normalisation of the stream between them.

    stream: the residual stream. vocabulary: tokens in the order that breaks ties. embedding: tokens to the stream.
    blocks: token mixing and MLP, in order. logits: Affine from the stream to one coordinate a token.

    Raises ValueError when the parts do not fit together.

    Deviates: paper A does not print residual or normalisation formulas; residual additions are rounded, pre-norm is absent.
    """

    stream: Stream
    vocabulary: Vocabulary
    embedding: Embedding
    blocks: tuple[Block, ...]
    logits: Affine

    def __post_init__(self):
        object.__setattr__(self, "blocks", tuple(self.blocks))
        if self.embedding.stream != self.stream or self.logits.source != self.stream:
            raise ValueError("embedding and logits must use the stream of the model")
        if self.embedding.num_tokens != len(self.vocabulary) or self.logits.target.dim != len(self.vocabulary):
            raise ValueError(f"embedding and logits must cover the {len(self.vocabulary)} tokens of the vocabulary")

    # ------------------------------------------------------------------------------------------------------ passes

    def forward(self, ar, tokens):
        """Logits (..., seq_len, |Sigma|) at every position, for tokens (..., seq_len)."""
        return self.logits.apply(ar, self.trace(ar, tokens)[-1][1])

    def trace(self, ar, tokens) -> list[tuple[str, object]]:
        """The residual stream (..., seq_len, dim) by name: after the embedding and after every sum into it."""
        x = self.embedding.apply(ar, tokens)
        steps = [("embedding", x)]
        for number, block in enumerate(self.blocks, start=1):
            name = block.name or f"block {number}"
            x = ar.add(x, block.layer.forward(ar, x))
            steps.append((name, x))
            if block.mlp is not None:
                x = ar.add(x, block.mlp.apply(ar, x))
                steps.append((f"{name} MLP", x))
        return steps

    def last_only(self, ar, tokens):
        """Logits (..., |Sigma|) at the last position: equal to `forward(ar, tokens)[..., -1, :]`, with less work.

        Which coordinates a block reads and writes is known by name. A block whose results no later block reads at earlier
        positions is evaluated at the last position alone; and inputs that no block has changed are evaluated once for each
        distinct (token, position) pair of the batch.
        """
        return self.logits.apply(ar, self.last_state(ar, tokens))

    def last_state(self, ar, tokens):
        """The residual stream (..., dim) at the last position after all blocks."""
        tokens = self.embedding.check(tokens)
        prefix = Prefix(ar, self.embedding, tokens.reshape(-1, tokens.shape[-1]))
        for block, all_positions in zip(self.blocks, everywhere(self.blocks, self.stream), strict=True):
            prefix.advance(block, all_positions)
        return prefix.last.reshape((*tokens.shape[:-1], self.stream.dim))

    # ---------------------------------------------------------------------------------------------------- decoding

    def greedy(self, ar, tokens) -> np.ndarray:
        """The next token (...,): the largest logit; ties go to the token that comes first in the vocabulary."""
        return np.argmax(ar.values(self.last_only(ar, tokens)), axis=-1)

    def generate(self, ar, tokens, budget: int = 0) -> Generation:
        """Greedy decoding of prompts (num, seq_len): at most `budget` scratch tokens, then an answer token.

        Raises ValueError for a negative budget or prompts that are not two-dimensional.
        """
        if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 0:
            raise ValueError(f"budget must be an integer >= 0 (scratch tokens before the answer), got {budget!r}")
        tokens = self.embedding.check(tokens)
        if tokens.ndim != 2:
            raise ValueError(f"tokens must have shape (num, seq_len) to generate, got {tokens.shape}")
        answer: list[int | None] = [None] * len(tokens)
        scratch: list[tuple[int, ...]] = [()] * len(tokens)
        answers, allowed = (
            [self.vocabulary.index(t) for t in names] for names in (self.vocabulary.answers, self.vocabulary.scratch)
        )
        open_rows, context = np.arange(len(tokens)), tokens
        for written in range(budget + 1):
            following = self.greedy(ar, context)
            for row, token in zip(open_rows, following.tolist(), strict=True):
                if token in answers:
                    answer[row] = token
                elif token in allowed and written < budget:
                    scratch[row] += (token,)
            goes_on = np.isin(following, allowed)
            open_rows, context = open_rows[goes_on], np.concatenate([context, following[:, None]], axis=1)[goes_on]
            if not len(open_rows):
                break
        return Generation(tuple(answer), tuple(scratch))

    # ------------------------------------------------------------------------------------------------------ memory

    def state_numbers(self, seq_len: int) -> int:
        """Numbers carried from one token to the next after `seq_len` tokens, over all layers."""
        return sum(block.layer.state_numbers(seq_len) for block in self.blocks)

    def state_bits(self, bits_per_number: int, seq_len: int) -> int:
        """Bits carried from one token to the next after `seq_len` tokens, over all layers."""
        return sum(block.layer.state_bits(bits_per_number, seq_len) for block in self.blocks)

    @property
    def content_hash(self) -> str:
        """SHA-256 of the model's content: equal weights give equal hashes, whatever types hold them."""
        from hybridseq.models.storage import content_hash

        return content_hash(self)
