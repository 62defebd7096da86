"""The architecture of a trained decoder as data: layers, shapes, and the one flat vector that holds all parameters.

The models of paper B (Section 5 and Appendix E) are stacks of two or three layers around one residual stream,

    tokens -> embedding -> dropout -> layer 0 -> layer 1 ... -> layer norm -> logits against the embedding (tied).

A `Stack` fixes the order of the parameters, so that a model is a vector: gradients and both moments of Adam are vectors of the
same length, a file holds one row of numbers, and a trainer in another language needs only the offsets. The order reproduces the
published parameter counts exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil, prod
from typing import Any

import numpy as np

from hybridseq.rng import Generator

Shapes = list[tuple[str, tuple[int, ...]]]

LAYERS = {
    "TF": "causal attention with rotary positions, beside an MLP (GPT-NeoX, parallel residual)",
    "SSM": "Mamba-1: short convolution, selective scan, output gate",
    "GDN": "Gated DeltaNet: short convolution, gated delta rule, output gate",
    "GLA": "gated linear attention: a decay a channel, output gate",
}
"""The layers by their letters."""

HEAD_WIDTHS = ("full", "split")
ROTARY = ("released", "rotation", "none")

CONV_WIDTH = 4
"""Tokens that the short convolution sees, the current one included."""
INITIAL_DEVIATION = 0.02
"""Standard deviation of the initial linear maps and of the embedding."""


@dataclass(frozen=True)
class Stack:
    """A decoder's architecture: what a parameter vector means.

    Args:
        layers: letters of `LAYERS`, from the embedding upwards. `Stack.parse` reads "SSM-TF".
        width: features of the residual stream, the paper's token dimension d.
        vocab_size: tokens V, the framing tokens (begin, end, null) included.
        window: how many tokens attention sees, the current one included; None sees all that came before.
        heads: heads of every layer but SSM, which has none.
        head_width: "full" gives each head width d and TF sums their outputs (the released code); "split" gives d / heads.
        state_dim: N, numbers that the Mamba layer keeps for each of its 2 d channels.
        convolution: False skips the short convolution and its SiLU; the parameters stay, so that counts do not change.
        rotary: which columns of q and k are turned. "released" the first int(head width / 4), where an odd number is not a
            rotation; "rotation" rounds that number up to an even one; "none" turns nothing.
        tied: the logits use the embedding; False adds a matrix of its own.
        negative_eigenvalues: Gated DeltaNet's beta reaches 2 instead of 1, so that a step can flip the sign along a key.

    Raises:
        ValueError: unknown letters or option, a number below 1, heads that do not divide the width when split, a head too
            narrow for rotary positions.

    Example (paper B's smallest hybrid on multi-key recall has 780 parameters):
        >>> Stack.parse("SSM-TF", width=4, vocab_size=11).size
        780
    """

    layers: tuple[str, ...]
    width: int
    vocab_size: int
    window: int | None = None
    heads: int = 1
    head_width: str = "full"
    state_dim: int = 16
    convolution: bool = True
    rotary: str = "released"
    tied: bool = True
    negative_eigenvalues: bool = False

    def __post_init__(self):
        if isinstance(self.layers, str) or not isinstance(self.layers, Sequence):
            raise ValueError(f"layers={self.layers!r}: needs a tuple such as ('SSM', 'TF'); Stack.parse reads 'SSM-TF'")
        object.__setattr__(self, "layers", tuple(self.layers))
        unknown = [letters for letters in self.layers if letters not in LAYERS]
        if unknown or not self.layers:
            given = "-".join(map(str, self.layers))
            raise ValueError(f"layers={given!r}: needs one or more of {', '.join(LAYERS)}, joined by '-' as in 'SSM-TF'")
        for name in ("width", "vocab_size", "heads", "state_dim"):
            object.__setattr__(self, name, _count(name, getattr(self, name)))
        if self.window is not None:
            object.__setattr__(self, "window", _count("window", self.window, "or None for all earlier tokens"))
        for name, allowed in (("head_width", HEAD_WIDTHS), ("rotary", ROTARY)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}: must be one of {', '.join(allowed)}")
        for name in ("convolution", "tied", "negative_eigenvalues"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name}={getattr(self, name)!r}: must be True or False")
        if self.head_width == "split" and self.width % self.heads:
            raise ValueError(f"heads={self.heads}: must divide width={self.width} when head_width='split'; or use 'full'")
        if "TF" in self.layers and self.rotary != "none" and self.head_dim < 4:
            raise ValueError(
                f"width={self.width}: a head of width {self.head_dim} leaves rotary positions no column, since they turn "
                "a quarter of them; use heads of width >= 4, or rotary='none'"
            )

    @classmethod
    def parse(cls, name: str, *, width: int, vocab_size: int, **options: Any) -> Stack:
        """The stack called `name`, for example "SSM-TF" or "TF-TF"; other options as in the class.

        Raises:
            ValueError: unknown letters, and what the class refuses.
        """
        if not isinstance(name, str):
            raise ValueError(f"name={name!r}: must be a string such as 'SSM-TF', of the letters {', '.join(LAYERS)}")
        return cls(tuple(name.split("-")), width, vocab_size, **options)

    @property
    def name(self) -> str:
        """The letters joined by hyphens."""
        return "-".join(self.layers)

    @property
    def config(self) -> dict[str, Any]:
        """Every option as plain data, for storing and for content keys."""
        return asdict(self) | {"layers": self.name}

    # widths that follow from the options

    @property
    def head_dim(self) -> int:
        """Features of one head."""
        return self.width if self.head_width == "full" else self.width // self.heads

    @property
    def channels(self) -> int:
        """Channels of the Mamba layer, 2 d."""
        return 2 * self.width

    @property
    def dt_rank(self) -> int:
        """Rank of the Mamba layer's step size, ceil(d / 16)."""
        return ceil(self.width / 16)

    @property
    def decay_rank(self) -> int:
        """Rank of gated linear attention's decay, at most 16."""
        return min(16, self.width)

    @property
    def rotary_columns(self) -> int:
        """How many leading columns of q and k are turned: int(head width / 4) in the released models."""
        released = self.head_dim // 4
        return {"released": released, "rotation": 2 * ceil(released / 2), "none": 0}[self.rotary]

    def rotary_tables(self, seq_len: int) -> tuple[np.ndarray, np.ndarray]:
        """cos and sin of the angle of every position and turned column, each (seq_len, rotary_columns), float64.

        With n columns, frequencies f_j = 10000^(-2 j / n) for j < n / 2 appear twice in a row; for odd n the last is dropped.
        """
        n = self.rotary_columns
        frequencies = 10_000.0 ** (-np.arange(0, n, 2) / max(n, 1))
        angles = np.arange(seq_len)[:, None] * np.concatenate([frequencies, frequencies])[None, :n]
        return np.cos(angles), np.sin(angles)

    # the flat vector

    def shapes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """(name, shape) of every parameter, in the order of the flat vector."""
        d = self.width
        found: Shapes = [("embedding", (self.vocab_size, d))]
        for i, letters in enumerate(self.layers):
            found += [(f"{i}.{name}", shape) for name, shape in _LAYER_SHAPES[letters](self)]
        found += [("norm.weight", (d,)), ("norm.bias", (d,))]
        return tuple(found if self.tied else [*found, ("unembedding.weight", (self.vocab_size, d))])

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(prod(shape) for _, shape in self.shapes())

    @property
    def offsets(self) -> dict[str, int]:
        """Where each parameter starts in the flat vector."""
        sizes = [prod(shape) for _, shape in self.shapes()]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        return {name: int(start) for (name, _), start in zip(self.shapes(), starts, strict=True)}

    def unpack(self, flat) -> dict[str, Any]:
        """The parameters by name, as views of `flat` (..., size): an ndarray or a tensor. Leading axes stay in front.

        Raises:
            ValueError: the last axis of `flat` is not `size`.
        """
        if flat.ndim == 0 or flat.shape[-1] != self.size:
            raise ValueError(f"flat: shape {tuple(flat.shape)}, but {self.name} of width {self.width} has {self.size} parameters")
        sizes = [prod(shape) for _, shape in self.shapes()]
        if isinstance(flat, np.ndarray):
            parts = np.split(flat, np.cumsum(sizes)[:-1], axis=-1)
        else:
            parts = flat.split(sizes, dim=-1)
        lead = tuple(flat.shape[:-1])
        return {name: part.reshape(lead + shape) for (name, shape), part in zip(self.shapes(), parts, strict=True)}

    def initial(self, seed: int) -> np.ndarray:
        """Initial parameters (size,), float64, a function of the seed alone.

        Linear maps and the embedding are normal with deviation .02, biases 0 (the step size's too, so that Mamba's steps start
        at softplus(0) = .69), norms 1, the convolution uniform in +-1/2, A = -1, ..., -N in every channel, D = 1. The decays of
        Gated DeltaNet start as released: A uniform in 1..16, step sizes log-uniform in .001 to .1.

        Raises:
            ValueError: `seed` is no integer in 0..2^64 - 1.
        """
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 1 << 64:
            raise ValueError(f"seed={seed!r}: must be an integer from 0 to 2^64 - 1")
        parts = []
        for number, (name, shape) in enumerate(self.shapes()):
            parts.append(np.broadcast_to(_initial(name, shape, Generator(seed).at(0, number)), shape).ravel())
        return np.concatenate(parts)


def _count(name: str, value: Any, alternative: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name}={value!r}: must be an integer >= 1 {alternative}".rstrip())
    return int(value)


def _transformer_shapes(stack: Stack) -> Shapes:
    d, rows = stack.width, 3 * stack.heads * stack.head_dim  # all heads' q, then k, then v
    return [
        ("norm1.weight", (d,)), ("norm1.bias", (d,)), ("norm2.weight", (d,)), ("norm2.bias", (d,)),
        ("qkv.weight", (rows, d)), ("qkv.bias", (rows,)), ("dense.weight", (d, d)), ("dense.bias", (d,)),
        ("up.weight", (2 * d, d)), ("up.bias", (2 * d,)), ("down.weight", (d, 2 * d)), ("down.bias", (d,)),
    ]  # fmt: skip


def _mamba_shapes(stack: Stack) -> Shapes:
    d, c, n, r = stack.width, stack.channels, stack.state_dim, stack.dt_rank
    return [
        ("norm.weight", (d,)), ("in_proj.weight", (2 * c, d)), ("conv.weight", (c, CONV_WIDTH)), ("conv.bias", (c,)),
        ("x_proj.weight", (r + 2 * n, c)), ("dt_proj.weight", (c, r)), ("dt_proj.bias", (c,)),
        ("A_log", (c, n)), ("D", (c,)), ("out_proj.weight", (d, c)),
    ]  # fmt: skip


def _deltanet_shapes(stack: Stack) -> Shapes:
    d, h, c = stack.width, stack.heads, stack.heads * stack.head_dim
    return [
        ("norm.weight", (d,)), ("qkv.weight", (3 * c, d)), ("conv.weight", (3 * c, CONV_WIDTH)), ("conv.bias", (3 * c,)),
        ("beta.weight", (h, d)), ("decay.weight", (h, d)), ("decay.dt_bias", (h,)), ("decay.log_rate", (h,)),
        ("gate.weight", (c, d)), ("head_norm.weight", (stack.head_dim,)), ("out.weight", (d, c)),
    ]  # fmt: skip


def _linear_attention_shapes(stack: Stack) -> Shapes:
    d, c, r = stack.width, stack.heads * stack.head_dim, stack.decay_rank
    return [
        ("norm.weight", (d,)), ("qkv.weight", (3 * c, d)), ("decay_in.weight", (r, d)), ("decay_out.weight", (c, r)),
        ("decay_out.bias", (c,)), ("gate.weight", (c, d)), ("head_norm.weight", (stack.head_dim,)), ("out.weight", (d, c)),
    ]  # fmt: skip


_LAYER_SHAPES = {"TF": _transformer_shapes, "SSM": _mamba_shapes, "GDN": _deltanet_shapes, "GLA": _linear_attention_shapes}


def _initial(name: str, shape: tuple[int, ...], generator: Generator) -> np.ndarray:
    """Initial values of one parameter; broadcasts to `shape`."""
    kind = name.split(".", 1)[1] if name[0].isdigit() else name
    if kind in ("conv.weight", "conv.bias"):
        return generator.uniform(shape) - 0.5
    if kind == "A_log":
        return np.log(np.arange(1, shape[-1] + 1))
    if kind == "decay.log_rate":
        return np.log(1 + 15 * generator.uniform(shape))
    if kind == "decay.dt_bias":
        step = 0.001 * 100 ** generator.uniform(shape)
        return np.log(np.expm1(step))
    if kind == "D" or kind.endswith(("norm.weight", "norm1.weight", "norm2.weight")):
        return np.ones(())
    if kind.endswith("bias"):
        return np.zeros(())
    return INITIAL_DEVIATION * _normal(generator, shape)


def _normal(generator: Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal draws by Box and Muller's transform; 1 - u lies in (0, 1], so its logarithm is finite."""
    radius, angle = generator.uniform((2, *shape))
    return np.sqrt(-2 * np.log(1 - radius)) * np.cos(2 * np.pi * angle)
