"""Token mixers, one file a family. The step is the definition; a parallel form must equal it."""

from hybridseq.mixers.attention import Attention, AttentionInputs, Cache, Partial, causal_mask
from hybridseq.mixers.block_sparse import BlockCache, BlockSparseAttention, BlockSparseInputs
from hybridseq.mixers.channel_delta import RWKV7, ChannelDeltaInputs, KimiDeltaAttention, RWKV7Inputs
from hybridseq.mixers.convolution import ConvolutionInputs, ShortConvolution
from hybridseq.mixers.delta_rule import ORDERS, DeltaInputs, DeltaRule
from hybridseq.mixers.layer import Head, Layer
from hybridseq.mixers.linear_attention import (
    FEATURE_MAPS,
    GatedLinearAttention,
    GatedLinearInputs,
    LinearAttention,
    LinearInputs,
)
from hybridseq.mixers.mamba import (
    DualInputs,
    EulerInputs,
    EulerScan,
    GateInputs,
    GateScan,
    SelectiveInputs,
    SelectiveScan,
    StateSpaceDual,
    softplus,
)
from hybridseq.mixers.mamba_block import MambaBlock
from hybridseq.mixers.recurrence import Mixer, Recurrence, TokenInputs
from hybridseq.mixers.rotary import RotaryAttention
from hybridseq.mixers.summaries import MaxSummary, MeanSummary, MLPSummary, PositionedSummary, Summary, SummaryFormat

__all__ = [
    "FEATURE_MAPS",
    "ORDERS",
    "RWKV7",
    "Attention",
    "AttentionInputs",
    "BlockCache",
    "BlockSparseAttention",
    "BlockSparseInputs",
    "Cache",
    "ChannelDeltaInputs",
    "ConvolutionInputs",
    "DeltaInputs",
    "DeltaRule",
    "DualInputs",
    "EulerInputs",
    "EulerScan",
    "GateInputs",
    "GateScan",
    "GatedLinearAttention",
    "GatedLinearInputs",
    "Head",
    "KimiDeltaAttention",
    "Layer",
    "LinearAttention",
    "LinearInputs",
    "MLPSummary",
    "MambaBlock",
    "MaxSummary",
    "MeanSummary",
    "Mixer",
    "Partial",
    "PositionedSummary",
    "RWKV7Inputs",
    "Recurrence",
    "RotaryAttention",
    "SelectiveInputs",
    "SelectiveScan",
    "ShortConvolution",
    "StateSpaceDual",
    "Summary",
    "SummaryFormat",
    "TokenInputs",
    "causal_mask",
    "softplus",
]
