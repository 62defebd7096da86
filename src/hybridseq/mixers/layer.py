"""A layer of heads: maps into each mixer, an output gate, and a map back (paper A, Section 3.1).

    o_i = gate_i * u_i with gate_i = sigma(G x_i),        z_i = W_O (o_i^1; ...; o_i^H) + b_O.

The layer adds no residual connection and no normalisation of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from hybridseq.mixers.attention import Attention, AttentionInputs
from hybridseq.mixers.convolution import ConvolutionInputs
from hybridseq.mixers.mamba import EulerInputs, GateInputs, SelectiveInputs, softplus
from hybridseq.mixers.recurrence import Mixer

_GATES = ("alpha", "beta")  # their maps give the pre-activation of a sigmoid
_NAMES = ("q", "k", "v", "selector", "content", *_GATES)
_STATE_SPACE = {
    ConvolutionInputs: {"x": None},
    EulerInputs: {"x": None, "delta": None},
    GateInputs: {"x": None, "gate": "sigmoid"},
    SelectiveInputs: {"x": None, "delta": "softplus", "b": None, "c": None},
}
_ACTIVATIONS = {"sigmoid": lambda ar, y: ar.sigmoid(y), "softplus": softplus, None: lambda ar, y: y}
_NORMS = {"rms": lambda ar, x: ar.rms_norm(x), "l2": lambda ar, x: ar.l2_norm(x)}


@dataclass(frozen=True)
class Head:
    """One head: q, k, v (and alpha, beta) as maps of x, a token mixer, an output gate.

    Args:
        core: a mixer of this room.
        maps: objects with `.apply(ar, x) -> (..., out)` by input name. Those of alpha and beta give pre-activations of
            a sigmoid (out = 1 where the mixer takes one gate a token); a delta rule without an alpha map is DeltaNet. State
            space cores have maps x and delta (`EulerScan`: the indicator itself), x and gate (`GateScan`: pre-activation of a
            sigmoid), or x, delta, b and c (`SelectiveScan`: delta is the pre-activation of a softplus).
        gate: map of x to value_dim pre-activations of the output gate, or None for no gate (gate 1).
        qk_norm: "rms", "l2" or None: normalises q and k before the core sees them.

    Raises:
        ValueError: missing or surplus maps, unknown norm, a core without a known input type.
    """

    core: Any
    maps: Mapping[str, Any]
    gate: Any = None
    qk_norm: str | None = None

    def __post_init__(self):
        if not isinstance(self.core, Mixer) or not self._known(self.core.input_type):
            raise ValueError(
                f"core: a Head needs a mixer with inputs among {', '.join(_NAMES)}, or those of a convolution or a scan "
                f"({', '.join(kind.__name__ for kind in _STATE_SPACE)}), got {self.core!r}"
            )
        object.__setattr__(self, "maps", MappingProxyType(dict(self.maps)))
        kind = self.core.input_type
        names = kind.names()
        missing = [n for n in names if n not in self.maps and n not in kind.optional]
        surplus = [n for n in self.maps if n not in names]
        if missing or surplus:
            raise ValueError(f"maps: {type(self.core).__name__} needs {', '.join(names)}; missing {missing}, surplus {surplus}")
        if self.qk_norm is not None and self.qk_norm not in _NORMS:
            raise ValueError(f"qk_norm={self.qk_norm!r}: must be 'rms', 'l2' or None")

    @staticmethod
    def _known(kind) -> bool:
        return kind in _STATE_SPACE or set(kind.names()) <= set(_NAMES)

    def _activation(self, name: str) -> str | None:
        return _STATE_SPACE.get(self.core.input_type, dict.fromkeys(_GATES, "sigmoid")).get(name)

    def input(self, ar, x, name: str):
        """One input of the core for the residual stream x (..., d_model); None where there is no map."""
        if name not in self.maps:
            return None
        y = self.maps[name].apply(ar, x)
        y = _ACTIVATIONS[self._activation(name)](ar, y)
        if name in self.core.input_type.scalars:
            return y[..., 0]
        return _NORMS[self.qk_norm](ar, y) if self.qk_norm and name in ("q", "k") else y

    def inputs(self, ar, x):
        """All inputs of the core, for x (..., seq_len, d_model) or for one token (..., d_model)."""
        return self.core.input_type(**{name: self.input(ar, x, name) for name in self.core.input_type.names()})

    def gated(self, ar, u, x):
        """o = sigma(G x) u, or u without a gate."""
        return u if self.gate is None else ar.mul(ar.sigmoid(self.gate.apply(ar, x)), u)

    def forward(self, ar, x):
        """o (..., seq_len, value_dim)."""
        return self.gated(ar, self.core.forward(ar, self.inputs(ar, x)), x)

    def last_only(self, ar, x):
        """o (..., value_dim) at the last token; an attention head forms one query and no other."""
        last = x[..., -1:, :]
        if isinstance(self.core, Attention):
            inputs = AttentionInputs(self.input(ar, last, "q"), self.input(ar, x, "k"), self.input(ar, x, "v"))
        else:
            inputs = self.inputs(ar, x)
        return self.gated(ar, self.core.last_only(ar, inputs), x[..., -1, :])

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()):
        return self.core.init_state(ar, batch_shape)

    def step(self, ar, state, x_t):
        """(state, o_t) after one token x_t (..., d_model)."""
        inputs = self.inputs(ar, x_t)
        state = self.core.step(ar, state, inputs)
        return state, self.gated(ar, self.core.read(ar, state, inputs), x_t)


@dataclass(frozen=True)
class Layer:
    """Heads side by side, their outputs concatenated and mapped back to d_model.

    Args:
        heads: a tuple of `Head`.
        out: map with `.apply(ar, o) -> (..., d_model)` from the concatenated head outputs.

    Raises:
        ValueError: no head.
    """

    heads: tuple[Head, ...]
    out: Any

    def __post_init__(self):
        object.__setattr__(self, "heads", tuple(self.heads))
        if not self.heads:
            raise ValueError("heads: a layer needs at least one head")

    def _join(self, ar, outputs):
        return self.out.apply(ar, outputs[0] if len(outputs) == 1 else ar.concat(outputs, axis=-1))

    def forward(self, ar, x):
        """z (..., seq_len, d_model) for x (..., seq_len, d_model)."""
        return self._join(ar, [head.forward(ar, x) for head in self.heads])

    def last_only(self, ar, x):
        """z (..., d_model) at the last token."""
        return self._join(ar, [head.last_only(ar, x) for head in self.heads])

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()) -> tuple:
        """One state a head."""
        return tuple(head.init_state(ar, batch_shape) for head in self.heads)

    def step(self, ar, states: tuple, x_t):
        """(states, z_t) after one token x_t (..., d_model)."""
        stepped = [head.step(ar, state, x_t) for head, state in zip(self.heads, states, strict=True)]
        return tuple(state for state, _ in stepped), self._join(ar, [o for _, o in stepped])

    def scan(self, ar, x, states: tuple | None = None):
        """(z, states): the loop of `step` over the tokens."""
        states = self.init_state(ar, tuple(x.shape[:-2])) if states is None else states
        outputs = []
        for t in range(x.shape[-2]):
            states, z = self.step(ar, states, x[..., t, :])
            outputs.append(z)
        return ar.stack(outputs, axis=-2), states

    def state_numbers(self, seq_len: int) -> int:
        """Numbers carried between tokens after `seq_len` tokens, over all heads."""
        return sum(head.core.state_numbers(seq_len) for head in self.heads)

    def state_bits(self, bits_per_number: int, seq_len: int) -> int:
        """Bits carried between tokens after `seq_len` tokens, over all heads."""
        return sum(head.core.state_bits(bits_per_number, seq_len) for head in self.heads)
