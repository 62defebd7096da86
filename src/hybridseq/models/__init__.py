"""Decoders: embedding, a stack of token mixers and pointwise MLPs on one residual stream, logits."""

from hybridseq.models.embedding import Embedding, SumEmbedding, TypedEmbedding
from hybridseq.models.mlp import MLP
from hybridseq.models.model import Block, Generation, Model
from hybridseq.models.storage import content_hash, load, save

__all__ = [
    "MLP",
    "Block",
    "Embedding",
    "Generation",
    "Model",
    "SumEmbedding",
    "TypedEmbedding",
    "content_hash",
    "load",
    "save",
]
