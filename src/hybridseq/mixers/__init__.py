"""Token mixers, one file a family. The step is the definition; a parallel form must equal it."""

from hybridseq.mixers.attention import Attention, AttentionInputs, Cache, Partial, causal_mask
from hybridseq.mixers.delta_rule import ORDERS, DeltaInputs, DeltaRule
from hybridseq.mixers.layer import Head, Layer
from hybridseq.mixers.recurrence import Mixer, Recurrence, TokenInputs

__all__ = [
    "ORDERS",
    "Attention",
    "AttentionInputs",
    "Cache",
    "DeltaInputs",
    "DeltaRule",
    "Head",
    "Layer",
    "Mixer",
    "Partial",
    "Recurrence",
    "TokenInputs",
    "causal_mask",
]
