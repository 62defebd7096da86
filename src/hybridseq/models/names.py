"""What blocks read and write, by coordinate, and which of them must run at every position."""

from __future__ import annotations

from collections.abc import Iterable

from hybridseq.mixers import Attention, Head, Layer, Recurrence
from hybridseq.residual import Stream

__all__ = ["block_writes", "everywhere", "knows_last", "reads_before_last"]


def _reads(part, stream: Stream) -> frozenset[int]:
    """Coordinates that a map depends on; a map that cannot tell may depend on all."""
    return getattr(part, "reads", frozenset(range(stream.dim)))


def _writes(part, stream: Stream) -> frozenset[int]:
    return getattr(part, "writes", frozenset(range(stream.dim)))


def knows_last(layer) -> bool:
    """Whether a layer's heads are of kinds whose query matters at the position it is asked for only."""
    return isinstance(layer, Layer) and all(
        isinstance(head, Head) and isinstance(head.core, Attention | Recurrence) and "q" in head.core.input_type.names()
        for head in layer.heads
    )


def reads_before_last(layer, stream: Stream) -> frozenset[int]:
    """Coordinates that a layer reads at positions before the one whose output is wanted: all its maps but queries and gates."""
    if not knows_last(layer):
        return frozenset(range(stream.dim))
    return _union(_reads(m, stream) for head in layer.heads for name, m in head.maps.items() if name != "q")


def block_writes(block, stream: Stream) -> frozenset[int]:
    """Coordinates that a block may change."""
    return _union(_writes(part, stream) for part in (_out(block.layer), block.mlp) if part is not None)


def everywhere(blocks, stream: Stream) -> list[bool]:
    """For each block, whether its results are needed at every position to know the last one.

    Walking from the last block to the first: a block is needed everywhere iff it writes a coordinate that a later block
    reads before the last position. A block that runs everywhere needs all that it reads everywhere.
    """
    needed: frozenset[int] = frozenset()
    result = []
    for block in reversed(blocks):
        all_positions = bool(block_writes(block, stream) & needed)
        result.append(all_positions)
        needed |= _reads_of_block(block, stream) if all_positions else reads_before_last(block.layer, stream)
    return result[::-1]


def _reads_of_block(block, stream: Stream) -> frozenset[int]:
    reads = _reads(block.mlp, stream) if block.mlp is not None else frozenset()
    if not isinstance(block.layer, Layer):
        return frozenset(range(stream.dim))
    for head in block.layer.heads:
        reads |= _union(_reads(m, stream) for m in (*head.maps.values(), head.gate) if m is not None)
    return reads


def _out(layer):
    return getattr(layer, "out", layer)


def _union(sets: Iterable[frozenset[int]]) -> frozenset[int]:
    return frozenset().union(*sets)
