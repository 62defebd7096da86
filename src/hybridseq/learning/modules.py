"""The decoders of paper B, Section 5, as a plain torch module: the definition that every faster trainer is tested against.

    x_0 = E[token]  (dropout here, and nowhere else)
    x_{i+1} = x_i + layer_i(x_i)
    logits = LayerNorm(x) E^T

A layer is a function of named weights and of the residual stream, and says what it adds to it. Attention, the short
convolution, the selective scan and the delta rule are those of `hybridseq.mixers`, in floats over torch, so this package has one
definition of each; the recurrences run token by token, in a Python loop.

Every layer shows its inner values to a *tap*, a function `tap(name, value, step=None) -> value`. The default hands the value
back. One that also keeps it is a trace; one that hands back another value is an intervention. So what a chapter says about the
inside of a model is read from the very computation that made its logits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hybridseq.arithmetic import Float
from hybridseq.learning.stack import Stack
from hybridseq.mixers import (
    Attention,
    AttentionInputs,
    ConvolutionInputs,
    DeltaInputs,
    DeltaRule,
    GatedLinearAttention,
    GatedLinearInputs,
    SelectiveInputs,
    SelectiveScan,
    ShortConvolution,
    softplus,
)

Tap = Callable[..., Tensor]
Weights = Mapping[str, Tensor]

NORM_EPS = 1e-5
"""Added to the variance, or to the mean square, in every norm of the stream."""
UNIT_EPS = 1e-6
"""Added to the sum of squares when Gated DeltaNet brings queries and keys to length 1."""
DECAY_ROOT = 16
"""Gated linear attention's decay is a sigmoid's 16th root, so that it starts near 1."""


def untouched(name: str, value: Tensor, step: int | None = None) -> Tensor:
    """The tap that does nothing."""
    return value


# norms and activations


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """weight (x - mean) / sqrt(variance + eps) + bias over the last axis."""
    return functional.layer_norm(x, x.shape[-1:], weight, bias, NORM_EPS)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """weight x / sqrt(mean square + eps) over the last axis."""
    return weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + NORM_EPS))


def unit(x: Tensor) -> Tensor:
    """x / sqrt(sum of squares + eps) over the last axis: length 1, or less for a very short vector."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + UNIT_EPS)


def silu(x: Tensor) -> Tensor:
    """x sigma(x)."""
    return functional.silu(x)


# heads, positions, recurrences


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, seq_len, heads * dim) to (batch, heads, seq_len, dim)."""
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)


def join_heads(x: Tensor) -> Tensor:
    """(batch, heads, seq_len, dim) to (batch, seq_len, heads * dim)."""
    return x.transpose(-2, -3).flatten(-2)


def turned(stack: Stack, ar: Float, x: Tensor) -> Tensor:
    """Queries or keys x (..., seq_len, head_dim) with the first n columns y turned by their position.

    y cos + (-y[h:], y[:h]) sin with h = n // 2. For even n columns j and j + h span a plane and this is a rotation of it. For
    odd n the halves overlap, as in the released models, and it is none: n = 1 multiplies the only column by cos - sin.
    """
    n, h = stack.rotary_columns, stack.rotary_columns // 2
    cos, sin = (ar.array(table) for table in stack.rotary_tables(x.shape[-2]))
    y, rest = x[..., :n], x[..., n:]
    swapped = torch.cat([-y[..., h:], y[..., :h]], dim=-1)
    return torch.cat([y * cos + swapped * sin, rest], dim=-1)


def scanned(core, ar: Float, inputs, tap: Tap) -> Tensor:
    """Outputs (..., seq_len, value_dim) of a mixer's step and read, token by token; the tap sees the state after each token."""
    state = core.init_state(ar, inputs.batch_shape)
    outputs = []
    for t in range(inputs.seq_len):
        token = inputs.at(t)
        state = tap("state", core.step(ar, state, token), t)
        outputs.append(core.read(ar, state, token))
    return ar.stack(outputs, axis=-2)


def short_convolution(stack: Stack, ar: Float, w: Weights, x: Tensor) -> Tensor:
    """silu(causal depthwise convolution of x), or x itself where the stack does without."""
    if not stack.convolution:
        return x
    return silu(ShortConvolution(w["conv.weight"], w["conv.bias"]).parallel(ar, ConvolutionInputs(x)))


# the layers: what each adds to the residual stream x (batch, seq_len, width)


def transformer(stack: Stack, ar: Float, w: Weights, x: Tensor, tap: Tap) -> Tensor:
    """TF, a GPT-NeoX layer: attention and MLP side by side, each on its own layer norm of the same x.

    Taps: q, k (turned) and v, attention (batch, heads, seq_len, seq_len), attended and mlp (what either adds to the stream).

    Deviates from paper B's text: in the released code a head has the full width d, and the heads' outputs are summed.
    """
    normed = layer_norm(x, w["norm1.weight"], w["norm1.bias"])
    projected = ar.affine(w["qkv.weight"], normed, w["qkv.bias"]).chunk(3, dim=-1)
    q, k, v = (split_heads(part, stack.heads) for part in projected)
    q, k = tap("q", turned(stack, ar, q)), tap("k", turned(stack, ar, k))
    inputs = AttentionInputs(q, k, tap("v", v))
    weights = tap("attention", Attention(stack.head_dim, window=stack.window).weights(ar, inputs))
    mixed = ar.mix(weights, inputs.v)
    mixed = mixed.sum(-3) if stack.head_width == "full" else join_heads(mixed)
    attended = tap("attended", ar.affine(w["dense.weight"], mixed, w["dense.bias"]))

    normed = layer_norm(x, w["norm2.weight"], w["norm2.bias"])
    hidden = silu(ar.affine(w["up.weight"], normed, w["up.bias"]))
    return attended + tap("mlp", ar.affine(w["down.weight"], hidden, w["down.bias"]))


def mamba(stack: Stack, ar: Float, w: Weights, x: Tensor, tap: Tap) -> Tensor:
    """SSM, a Mamba-1 block on an RMS norm of x.

    Taps: u (what enters the scan), z (the gate before its SiLU), dt, B, C, state (after each token, (batch, channels,
    state_dim)), y (what leaves the scan), out.
    """
    n, r = stack.state_dim, stack.dt_rank
    u, z = ar.affine(w["in_proj.weight"], rms_norm(x, w["norm.weight"])).chunk(2, dim=-1)
    u, z = tap("u", short_convolution(stack, ar, w, u)), tap("z", z)
    dt, b, c = ar.affine(w["x_proj.weight"], u).split([r, n, n], dim=-1)
    dt = tap("dt", softplus(ar, ar.affine(w["dt_proj.weight"], dt, w["dt_proj.bias"])))
    core = SelectiveScan(stack.channels, n, -torch.exp(w["A_log"]), w["D"])
    y = tap("y", scanned(core, ar, SelectiveInputs(u, dt, tap("B", b), tap("C", c)), tap))
    return tap("out", ar.affine(w["out_proj.weight"], y * silu(z)))


def gated_output(ar: Float, w: Weights, y: Tensor, normed: Tensor, tap: Tap) -> Tensor:
    """Heads y (batch, heads, seq_len, dim), RMS-normalised one by one, times SiLU of a gate, mapped to the stream."""
    gate = silu(tap("z", ar.affine(w["gate.weight"], normed)))
    return tap("out", ar.affine(w["out.weight"], join_heads(rms_norm(y, w["head_norm.weight"])) * gate))


def gated_deltanet(stack: Stack, ar: Float, w: Weights, x: Tensor, tap: Tap) -> Tensor:
    """GDN, a Gated DeltaNet block: S <- alpha S (I - beta k k^T) + beta v k^T, read with q, on an RMS norm of x.

    alpha = exp(-rate softplus(W x + b)), beta = sigma(W x), doubled where the stack allows negative eigenvalues: along a key of
    length 1, I - beta k k^T has the eigenvalue 1 - beta. The decay acts before the erasure, as released ("Q" of the delta
    rule's orders). Taps: q, k (of length 1), v, alpha, beta, state (after each token, (batch, heads, dim, dim)), z, out.
    """
    normed = rms_norm(x, w["norm.weight"])
    convolved = short_convolution(stack, ar, w, ar.affine(w["qkv.weight"], normed))
    q, k, v = (split_heads(part, stack.heads) for part in convolved.chunk(3, dim=-1))
    beta = ar.sigmoid(ar.affine(w["beta.weight"], normed)) * (2 if stack.negative_eigenvalues else 1)
    step = softplus(ar, ar.affine(w["decay.weight"], normed, w["decay.dt_bias"]))
    alpha = torch.exp(-torch.exp(w["decay.log_rate"]) * step)
    inputs = DeltaInputs(
        q=tap("q", unit(q) * stack.head_dim**-0.5),
        k=tap("k", unit(k)),
        v=tap("v", v),
        alpha=tap("alpha", alpha.transpose(-1, -2)),
        beta=tap("beta", beta.transpose(-1, -2)),
    )
    return gated_output(ar, w, scanned(DeltaRule(stack.head_dim, order="Q"), ar, inputs, tap), normed, tap)


def gated_linear_attention(stack: Stack, ar: Float, w: Weights, x: Tensor, tap: Tap) -> Tensor:
    """GLA, gated linear attention: S <- S diag(alpha) + v k^T, read with q, on an RMS norm of x.

    alpha = sigma(W_2 W_1 x + b)^(1/16), a decay for every column of the state. Taps: q, k, v, alpha, state, z, out.
    """
    normed = rms_norm(x, w["norm.weight"])
    q, k, v = (split_heads(part, stack.heads) for part in ar.affine(w["qkv.weight"], normed).chunk(3, dim=-1))
    logit = ar.affine(w["decay_out.weight"], ar.affine(w["decay_in.weight"], normed), w["decay_out.bias"])
    alpha = split_heads(torch.exp(functional.logsigmoid(logit) / DECAY_ROOT), stack.heads)
    inputs = GatedLinearInputs(tap("q", q * stack.head_dim**-0.5), tap("k", k), tap("v", v), tap("alpha", alpha))
    return gated_output(ar, w, scanned(GatedLinearAttention(stack.head_dim), ar, inputs, tap), normed, tap)


LAYERS = {"TF": transformer, "SSM": mamba, "GDN": gated_deltanet, "GLA": gated_linear_attention}


# the decoder


class Decoder(nn.Module):
    """A stack with its parameters: tokens (batch, seq_len) to logits (batch, seq_len, vocab_size).

    Args:
        stack: the architecture.
        parameters: flat vector (size,), real numbers in the stack's order; held as the module's one parameter, `flat`.
        dtype: "float32" or "float64".

    Raises:
        ValueError: a vector of another length, another dtype.

    Example:
        >>> stack = Stack.parse("SSM-TF", width=8, vocab_size=11)
        >>> decoder = Decoder(stack, stack.initial(0))
        >>> tuple(decoder(torch.tensor([[0, 3, 1]])).shape)
        (1, 3, 11)
    """

    def __init__(self, stack: Stack, parameters, dtype: str = "float64"):
        super().__init__()
        if dtype not in ("float32", "float64"):
            raise ValueError(f"dtype={dtype!r}: must be 'float32' or 'float64'")
        if tuple(np.shape(parameters)) != (stack.size,):
            raise ValueError(
                f"parameters: shape {tuple(np.shape(parameters))}, but {stack.name} of width {stack.width} needs ({stack.size},)"
            )
        self.stack, self.ar = stack, Float("torch", dtype)
        self.flat = nn.Parameter(self.ar.array(parameters).clone())

    @property
    def weights(self) -> dict[str, Tensor]:
        """The parameters by name: views of `flat`, through which gradients flow."""
        return self.stack.unpack(self.flat)

    def forward(self, tokens, keep=None, tap: Tap = untouched) -> Tensor:
        """Logits (batch, seq_len, vocab_size).

        Args:
            tokens: integers (batch, seq_len) in 0..vocab_size - 1.
            keep: what dropout multiplies the embedded tokens by, (batch, seq_len, width); None in evaluation.
            tap: sees, and may replace, "embedding", "I.NAME" for each value of layer I, "I.after" and "logits".

        Raises:
            ValueError: tokens of another shape, type or range.
        """
        w = self.weights
        x = w["embedding"][self._tokens(tokens)]
        x = tap("embedding", x if keep is None else x * self.ar.array(keep))
        for i, letters in enumerate(self.stack.layers):
            here = _inside(tap, i)
            layer = {name.removeprefix(f"{i}."): value for name, value in w.items() if name.startswith(f"{i}.")}
            x = here("after", x + LAYERS[letters](self.stack, self.ar, layer, x, here))
        return tap("logits", self.read_out(x))

    def read_out(self, x: Tensor) -> Tensor:
        """Logits (..., vocab_size) of a residual stream x (..., width). From an inner layer's stream: what it says by itself."""
        w = self.weights
        normed = layer_norm(x, w["norm.weight"], w["norm.bias"])
        return self.ar.affine(w["embedding" if self.stack.tied else "unembedding.weight"], normed)

    def _tokens(self, tokens) -> Tensor:
        tokens = torch.as_tensor(tokens)
        if tokens.ndim != 2 or 0 in tokens.shape or tokens.is_floating_point() or tokens.dtype == torch.bool:
            raise ValueError(f"tokens: needs integers (batch, seq_len), got {tokens.dtype} {tuple(tokens.shape)}")
        low, high = int(tokens.min()), int(tokens.max())
        if low < 0 or high >= self.stack.vocab_size:
            raise ValueError(f"tokens: found {low}..{high}, but this model knows 0..{self.stack.vocab_size - 1}")
        return tokens.long()

    @torch.no_grad()
    def trace(self, tokens, names: Collection[str] | None = None, tap: Tap = untouched) -> Trace:
        """Run the model and keep its inner values.

        Args:
            tokens: as in `forward`.
            names: which values to keep, such as {"0.state", "1.attention"}; None keeps all.
            tap: an intervention; the trace keeps what it hands back.

        Raises:
            ValueError: a name that no layer of this stack shows.
        """
        kept: dict[str, Any] = {}
        seen = set()

        def record(name: str, value: Tensor, step: int | None = None) -> Tensor:
            seen.add(name)
            value = tap(name, value, step)
            if names is None or name in names:
                if step is None:
                    kept[name] = value
                else:
                    kept.setdefault(name, []).append(value)
            return value

        self(tokens, tap=record)
        unknown = sorted(set(names or ()) - seen)
        if unknown:
            raise ValueError(f"names: {', '.join(unknown)} is not among {', '.join(sorted(seen))}")
        stacked = {n: torch.stack(v, dim=1) if isinstance(v, list) else v for n, v in kept.items()}
        return Trace(self.stack, torch.as_tensor(tokens), stacked)


def _inside(tap: Tap, layer: int) -> Tap:
    """The tap that one layer sees: names gain the layer's number."""
    return lambda name, value, step=None: tap(f"{layer}.{name}", value, step)


@dataclass(frozen=True, eq=False)
class Trace:
    """The inner values of one forward pass, by name: (batch, seq_len, ...), or (batch, heads, seq_len, ...) inside heads.

    Args:
        stack: the architecture. tokens: (batch, seq_len). values: tensors by name, see `Decoder.forward` and the layers.

    Example:
        >>> stack = Stack.parse("SSM-TF", width=8, vocab_size=11)
        >>> trace = Decoder(stack, stack.initial(0)).trace(torch.tensor([[0, 3, 1]]))
        >>> tuple(trace.state(0).shape), tuple(trace.attention(1).shape)
        ((1, 3, 16, 16), (1, 1, 3, 3))
    """

    stack: Stack
    tokens: Tensor
    values: Mapping[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.values:
            raise ValueError(f"name={name!r}: this trace keeps {', '.join(self.values)}")
        return self.values[name]

    def residual(self, layer: int) -> Tensor:
        """The stream (batch, seq_len, width) before layer 0, 1, ..., and behind the last one at `len(layers)`."""
        return self["embedding" if layer == 0 else f"{layer - 1}.after"]

    def attention(self, layer: int) -> Tensor:
        """Attention weights (batch, heads, query, key) of a TF layer."""
        return self[f"{layer}.attention"]

    def state(self, layer: int) -> Tensor:
        """State after every token, (batch, seq_len, ...): channels x state_dim in SSM, heads x value x key in GDN and GLA."""
        return self[f"{layer}.state"]

    def gates(self, layer: int) -> dict[str, Tensor]:
        """What decides how a recurrent layer's state moves: dt, B and C in SSM, alpha and beta in GDN, alpha in GLA."""
        gates = {name: f"{layer}.{name}" for name in ("dt", "B", "C", "alpha", "beta")}
        return {name: self.values[full] for name, full in gates.items() if full in self.values}

    @property
    def logits(self) -> Tensor:
        """(batch, seq_len, vocab_size)."""
        return self["logits"]


# loss and score


def loss(logits: Tensor, labels) -> Tensor:
    """Mean cross entropy over the positions whose label is not masked (>= 0), natural logarithm.

    Raises:
        ValueError: labels of another shape or beyond the vocabulary, or all masked.
    """
    labels = _labels(logits, labels)
    valid = labels >= 0
    if not valid.any():
        raise ValueError("labels: all are masked (< 0), so there is no mean loss; use longer sequences")
    return functional.cross_entropy(logits[valid], labels[valid])


def score(logits: Tensor, labels) -> tuple[int, int]:
    """(correct, valid): positions whose label's logit is strictly above every other, and positions with a label.

    NaN is above nothing and nothing is above NaN, so a model that diverged scores 0.

    Raises:
        ValueError: labels of another shape or beyond the vocabulary.
    """
    labels = _labels(logits, labels)
    valid = labels >= 0
    chosen = labels[valid][:, None]
    own = logits[valid].gather(1, chosen)[:, 0]
    others = logits[valid].scatter(1, chosen, -torch.inf)
    return int((own[:, None] > others).all(-1).sum()), int(valid.sum())


def _labels(logits: Tensor, labels) -> Tensor:
    labels = torch.as_tensor(labels)
    if labels.shape != logits.shape[:-1] or labels.is_floating_point():
        raise ValueError(f"labels: needs integers {tuple(logits.shape[:-1])}, got {labels.dtype} {tuple(labels.shape)}")
    if labels.numel() and int(labels.max()) >= logits.shape[-1]:
        raise ValueError(f"labels: found {int(labels.max())}, but this model knows 0..{logits.shape[-1] - 1}")
    return labels.long()
