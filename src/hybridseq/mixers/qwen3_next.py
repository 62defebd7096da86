"""The two blocks of Qwen3-Next, assembled from the mixers of this room: what paper A's layers leave out of the real ones.

Paper A's Gated DeltaNet and Gated Attention (its Section 3.1) are idealisations of these blocks. Here the blocks are written
out in floats, so that each difference is a line one can point at, and so that upstream's own modules can check them.
`DIFFERENCES` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybridseq.arithmetic import Float
from hybridseq.mixers.attention import Attention, AttentionInputs
from hybridseq.mixers.convolution import ConvolutionInputs, ShortConvolution
from hybridseq.mixers.delta_rule import DeltaInputs, DeltaRule

DIFFERENCES = (
    ("short convolution and SiLU on q, k, v", "none", "width 4"),
    ("state at the start", "P_0, not zero", "zero"),
    ("order of the update", "A: erase, then decay", "Q: decay, then erase"),
    ("L2 norm of q and k (Gated DeltaNet)", "exact, zero stays zero", "epsilon under the root"),
    ("scale of q (Gated DeltaNet)", "none", "1 / sqrt(head_dim)"),
    ("decay alpha", "sigma(u)", "exp(-exp(A_log) softplus(u + dt_bias))"),
    ("output gate (Gated DeltaNet)", "sigma(G x)", "RMS norm with gain, times SiLU"),
    ("RMS norm of q and k (Gated Attention)", "unit gain", "gain 1 + w, epsilon under the root"),
    ("positions (Gated Attention)", "in the embedding", "rotary, on part of the coordinates"),
    ("norm before each block", "none", "RMS norm"),
)
"""(feature, paper A, Qwen3-Next), one row a difference; read in transformers 5.24.0."""


def _silu(ar, x):
    return ar.mul(x, ar.sigmoid(x))


def _softplus(x):
    if isinstance(x, np.ndarray):
        return np.logaddexp(0, x)
    return x.clamp(min=0) + (-x.abs()).exp().log1p()


def _scaled_norm(ar, x, gain, eps: float, mean: bool):
    """gain * x / sqrt(mean or sum of squares + eps)."""
    total = (x * x).sum(-1)[..., None]
    return gain * x * ((total / x.shape[-1] if mean else total) + eps) ** -0.5


def _floats_only(ar) -> None:
    if not isinstance(ar, Float):
        raise ValueError(f"ar={ar.name}: the blocks of Qwen3-Next are written for Float; use Head and Layer for exact formats")


def gated_deltanet(ar, w: dict[str, Any], x):
    """Qwen3-Next's Gated DeltaNet block on x (..., seq_len, d_model), with as many value heads as key heads.

    Args:
        w: stored arrays. wq, wk: (heads, key_dim, d_model); wv, wz: (heads, value_dim, d_model); wa, wb: (heads, d_model);
            conv_q, conv_k, conv_v: (heads, dim, width); a_log, dt_bias: (heads,); norm: (value_dim,); out:
            (d_model, heads * value_dim); eps: float.

    Returns:
        (..., seq_len, d_model).

    Raises:
        ValueError: an exact arithmetic.
    """
    _floats_only(ar)
    return ar.affine(w["out"], ar.concat([_delta_head(ar, w, x, h) for h in range(w["wq"].shape[0])], axis=-1))


def _delta_head(ar, w, x, h: int):
    def convolved(name):
        conv = ShortConvolution(w[f"conv_{name}"][h])
        return _silu(ar, conv.parallel(ar, ConvolutionInputs(ar.affine(w[f"w{name}"][h], x))))

    q, k, v = (convolved(name) for name in "qkv")
    q, k = (_scaled_norm(ar, y, 1.0, 1e-6, mean=False) for y in (q, k))
    rate = _softplus(ar.dot(x, w["wa"][h]) + w["dt_bias"][h])
    alpha, beta = ar.exp(-ar.exp(w["a_log"][h]) * rate), ar.sigmoid(ar.dot(x, w["wb"][h]))
    core = DeltaRule(q.shape[-1], v.shape[-1], order="Q")
    u, _ = core.scan(ar, DeltaInputs(q * q.shape[-1] ** -0.5, k, v, alpha, beta))
    return _scaled_norm(ar, u, w["norm"], w["eps"], mean=True) * _silu(ar, ar.affine(w["wz"][h], x))


def gated_attention(ar, w: dict[str, Any], x):
    """Qwen3-Next's Gated Attention block on x (..., seq_len, d_model), with as many key heads as query heads.

    Args:
        w: stored arrays. wq, wk, wv, wgate: (heads, head_dim, d_model); q_norm, k_norm: (head_dim,), gains minus one; cos, sin:
            rotary tables (seq_len, rotated), the two halves of the rotated coordinates forming pairs; out:
            (d_model, heads * head_dim); eps: float.

    Returns:
        (..., seq_len, d_model).

    Raises:
        ValueError: an exact arithmetic.
    """
    _floats_only(ar)
    return ar.affine(w["out"], ar.concat([_attention_head(ar, w, x, h) for h in range(w["wq"].shape[0])], axis=-1))


def _attention_head(ar, w, x, h: int):
    q, k = (
        _rotated(ar, _scaled_norm(ar, ar.affine(w[f"w{n}"][h], x), 1.0 + w[f"{n}_norm"], w["eps"], mean=True), w)
        for n in ("q", "k")
    )
    v, gate = (ar.affine(w[n][h], x) for n in ("wv", "wgate"))
    u = Attention(q.shape[-1], v.shape[-1]).parallel(ar, AttentionInputs(q, k, v))
    return ar.mul(u, ar.sigmoid(gate))


def _rotated(ar, y, w):
    """Rotary embedding of the leading coordinates: (a, b) to (a cos - b sin, b cos + a sin) with a, b the two halves."""
    width = w["cos"].shape[-1]
    a, b, rest = y[..., : width // 2], y[..., width // 2 : width], y[..., width:]
    turned = ar.concat([a, b], axis=-1) * w["cos"] + ar.concat([-b, a], axis=-1) * w["sin"]
    return ar.concat([turned, rest], axis=-1)


@dataclass(frozen=True)
class Block:
    """A block with random weights, in the manner of the catalogue's entries: `arrays` to draw, `run` to compute."""

    name: str
    draw: Callable[[np.random.Generator, int], dict[str, Any]]
    forward: Callable[[Any, dict[str, Any], Any], Any]

    def arrays(self, rng: np.random.Generator, seq_len: int, batch: tuple[int, ...] = ()) -> dict[str, Any]:
        """Weights by name, and the input x (..., seq_len, d_model)."""
        weights = self.draw(rng, seq_len)
        return weights | {"x": rng.standard_normal((*batch, seq_len, weights["wq"].shape[-1]))}

    def run(self, ar, arrays: dict[str, Any]) -> np.ndarray:
        """Output (..., seq_len, d_model) as real numbers."""
        stored = {name: a if name == "eps" else ar.array(a) for name, a in arrays.items() if name != "x"}
        return ar.values(self.forward(ar, stored, ar.array(arrays["x"])))


def _normal(rng, *shape):
    return rng.standard_normal(shape) / np.sqrt(shape[-1])


def _deltanet_weights(rng, seq_len: int, heads: int = 2, key_dim: int = 4, value_dim: int = 6, d_model: int = 8, width: int = 4):
    dims = {"q": key_dim, "k": key_dim, "v": value_dim}
    maps = {f"w{n}": _normal(rng, heads, dim, d_model) for n, dim in (dims | {"z": value_dim}).items()}
    convs = {f"conv_{n}": _normal(rng, heads, dim, width) for n, dim in dims.items()}
    gates = {"wa": _normal(rng, heads, d_model), "wb": _normal(rng, heads, d_model)}
    scalars = {"a_log": rng.standard_normal(heads), "dt_bias": rng.standard_normal(heads), "eps": 1e-6}
    ends = {"norm": rng.uniform(0.5, 1.5, value_dim), "out": _normal(rng, d_model, heads * value_dim)}
    return maps | convs | gates | scalars | ends


def _attention_weights(rng, seq_len: int, heads: int = 2, head_dim: int = 8, d_model: int = 8, rotated: int = 4):
    maps = {f"w{n}": _normal(rng, heads, head_dim, d_model) for n in ("q", "k", "v", "gate")}
    angle = np.arange(seq_len)[:, None] * 10000.0 ** (-np.arange(0, rotated, 2) / rotated)
    tables = {name: f(np.concatenate([angle, angle], axis=-1)) for name, f in (("cos", np.cos), ("sin", np.sin))}
    gains = {"q_norm": rng.standard_normal(head_dim) / 4, "k_norm": rng.standard_normal(head_dim) / 4}
    return maps | tables | gains | {"out": _normal(rng, d_model, heads * head_dim), "eps": 1e-6}


def blocks() -> list[Block]:
    """The two blocks, with random weights.

    Example:
        >>> [block.name for block in blocks()]
        ['Gated DeltaNet block', 'Gated Attention block']
    """
    return [
        Block("Gated DeltaNet block", _deltanet_weights, gated_deltanet),
        Block("Gated Attention block", _attention_weights, gated_attention),
    ]
