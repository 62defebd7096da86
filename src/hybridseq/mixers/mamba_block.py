"""The whole Mamba-1 block: projections, short convolution, SiLU, selective scan and output gate around one residual stream.

    x, z = W_x s, W_z s;   u = silu(conv(x));   Delta = softplus(W_dt (W_D u) + b_dt),   B = W_B u,   C = W_C u;
    y = scan(u; Delta, A = -exp(A_log), B, C) + D u;   out = W_O (y * silu(z)).

Written in floats, with every weight an array under its own name, so that upstream's own module can check it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from hybridseq.arithmetic import Float
from hybridseq.mixers.convolution import ConvolutionInputs, ShortConvolution
from hybridseq.mixers.mamba import SelectiveInputs, SelectiveScan, softplus

WEIGHTS = ("in_x", "in_z", "conv", "conv_bias", "x_dt", "x_b", "x_c", "dt", "dt_bias", "a_log", "skip", "out")
"""Names of the arrays, see `MambaBlock`."""


@dataclass(frozen=True, eq=False)
class MambaBlock:
    """Mamba-1 with the weights given, as a layer of a model: it adds no residual connection and no norm of its own.

    Args:
        ar: a `Float`; the weights are stored in it once.
        weights: real arrays by name. in_x, in_z: (channels, d_model); conv: (channels, width), the last column for the current
            token; conv_bias, dt_bias, skip: (channels,); x_dt: (dt_rank, channels); x_b, x_c: (state_dim, channels);
            dt: (channels, dt_rank); a_log: (channels, state_dim); out: (d_model, channels).

    Raises:
        ValueError: an exact arithmetic, missing or surplus weights, shapes that do not fit.
    """

    ar: Float
    weights: Mapping[str, np.ndarray]
    stored: Mapping[str, Any] = field(init=False, repr=False)

    def __post_init__(self):
        if not isinstance(self.ar, Float):
            raise ValueError(f"ar={self.ar.name}: the Mamba block is written for Float")
        if set(self.weights) != set(WEIGHTS):
            raise ValueError(f"weights: needs {', '.join(WEIGHTS)}, got {', '.join(sorted(self.weights))}")
        weights = {name: np.asarray(self.weights[name], dtype=np.float64) for name in WEIGHTS}
        channels, d_model = weights["in_x"].shape
        state_dim, dt_rank = weights["x_b"].shape[0], weights["x_dt"].shape[0]
        shapes = {
            "in_z": (channels, d_model), "conv": (channels, weights["conv"].shape[-1]), "conv_bias": (channels,),
            "x_dt": (dt_rank, channels), "x_b": (state_dim, channels), "x_c": (state_dim, channels), "dt": (channels, dt_rank),
            "dt_bias": (channels,), "a_log": (channels, state_dim), "skip": (channels,), "out": (d_model, channels),
        }  # fmt: skip
        for name, shape in shapes.items():
            if weights[name].shape != shape:
                raise ValueError(f"weights[{name!r}]: needs shape {shape}, got {weights[name].shape}")
        object.__setattr__(self, "weights", MappingProxyType(weights))
        object.__setattr__(self, "stored", MappingProxyType({name: self.ar.array(a) for name, a in weights.items()}))

    @property
    def convolution(self) -> ShortConvolution:
        """The depthwise convolution in front of the scan."""
        return ShortConvolution(self.stored["conv"], self.stored["conv_bias"])

    @property
    def scan_core(self) -> SelectiveScan:
        """The selective scan."""
        a = self.ar.neg(self.ar.exp(self.stored["a_log"]))
        return SelectiveScan(*a.shape, a, self.stored["skip"])

    def scan_inputs(self, ar, u) -> SelectiveInputs:
        """Delta, B and C from the activated convolution output u (..., channels)."""
        w = self.stored
        delta = softplus(ar, ar.affine(w["dt"], ar.affine(w["x_dt"], u), w["dt_bias"]))
        return SelectiveInputs(u, delta, ar.affine(w["x_b"], u), ar.affine(w["x_c"], u))

    def _out(self, ar, y, x):
        return ar.affine(self.stored["out"], ar.mul(y, _silu(ar, ar.affine(self.stored["in_z"], x))))

    def forward(self, ar, x):
        """z (..., seq_len, d_model) for x (..., seq_len, d_model)."""
        convolved = self.convolution.parallel(ar, ConvolutionInputs(ar.affine(self.stored["in_x"], x)))
        y, _ = self.scan_core.scan(ar, self.scan_inputs(ar, _silu(ar, convolved)))
        return self._out(ar, y, x)

    def last_only(self, ar, x):
        """z (..., d_model) at the last token."""
        return self.forward(ar, x)[..., -1, :]

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()) -> tuple:
        """Convolution and scan at the start."""
        return self.convolution.init_state(ar, batch_shape), self.scan_core.init_state(ar, batch_shape)

    def step(self, ar, state: tuple, x_t):
        """(state, z_t) after one token x_t (..., d_model)."""
        conv, core = self.convolution, self.scan_core
        inputs = ConvolutionInputs(ar.affine(self.stored["in_x"], x_t))
        window = conv.step(ar, state[0], inputs)
        token = self.scan_inputs(ar, _silu(ar, conv.read(ar, window, inputs)))
        h = core.step(ar, state[1], token)
        return (window, h), self._out(ar, core.read(ar, h, token), x_t)

    def state_numbers(self, seq_len: int = 0) -> int:
        """Scan and convolution together."""
        return self.scan_core.state_numbers(seq_len) + self.convolution.state_numbers(seq_len)

    def state_bits(self, bits_per_number: int, seq_len: int) -> int:
        """Numbers times precision."""
        return self.state_numbers(seq_len) * bits_per_number


def _silu(ar, x):
    return ar.mul(x, ar.sigmoid(x))


@dataclass(frozen=True)
class RandomMambaBlock:
    """The block with random weights, in the manner of the catalogue's entries: `arrays` to draw, `run` to compute.

    Example:
        >>> entry = RandomMambaBlock()
        >>> entry.run(Float(), entry.arrays(np.random.default_rng(0), 5, (2,))).shape
        (2, 5, 6)
    """

    name: str = "Mamba block"
    d_model: int = 6
    channels: int = 10
    state_dim: int = 3
    dt_rank: int = 2
    width: int = 4

    def arrays(self, rng: np.random.Generator, seq_len: int, batch: tuple[int, ...] = ()) -> dict[str, Any]:
        """Weights by name, and the input x (..., seq_len, d_model)."""
        c, d, n, r = self.channels, self.d_model, self.state_dim, self.dt_rank
        shapes = {
            "in_x": (c, d), "in_z": (c, d), "conv": (c, self.width), "conv_bias": (c,), "x_dt": (r, c), "x_b": (n, c),
            "x_c": (n, c), "dt": (c, r), "dt_bias": (c,), "a_log": (c, n), "skip": (c,), "out": (d, c),
        }  # fmt: skip
        weights = {name: rng.standard_normal(shape) / np.sqrt(shape[-1]) for name, shape in shapes.items()}
        return weights | {"x": rng.standard_normal((*batch, seq_len, d))}

    def run(self, ar, arrays: dict[str, Any]) -> np.ndarray:
        """Output (..., seq_len, d_model) as real numbers."""
        block = MambaBlock(ar, {name: arrays[name] for name in WEIGHTS})
        return ar.values(block.forward(ar, ar.array(arrays["x"])))
