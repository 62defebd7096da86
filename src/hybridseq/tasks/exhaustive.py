"""All sequences over a vocabulary, for tasks whose every input can be listed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

MOST_EXHAUSTIVE = 1 << 24


def every_sequence(vocab_size: int, seq_len: int, block: int = 1 << 14) -> Iterator[np.ndarray]:
    """All sequences of token ids 0..vocab_size-1 in counting order, in blocks (num, seq_len) of at most `block` rows.

    Raises ValueError beyond 2^24 sequences, or for a block below 1.

    >>> np.concatenate(list(every_sequence(2, 2))).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    count = vocab_size**seq_len
    if count > MOST_EXHAUSTIVE:
        raise ValueError(f"seq_len={seq_len}: {count} sequences are too many to list; use sample instead")
    if block < 1:
        raise ValueError(f"block must be >= 1, got {block}")
    powers = vocab_size ** np.arange(seq_len - 1, -1, -1, dtype=np.int64)
    for start in range(0, count, block):
        number = np.arange(start, min(start + block, count))
        yield number[:, None] // powers % vocab_size
