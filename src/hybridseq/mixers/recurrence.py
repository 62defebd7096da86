"""Recurrent layers: a state of fixed size, a step and a read (paper C, Definition 2.1).

The step is the definition of every mixer in this room. A parallel form is an optimisation. Over the reals it equals the
loop over steps, so in floats it must agree up to rounding error; in fixed point in general it does not agree at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from hybridseq.arithmetic import Integer


@dataclass(frozen=True)
class TokenInputs:
    """What a mixer reads: arrays (..., seq_len, features), or (..., seq_len) for the names in `scalars`.

    Leading axes are a batch. An array may leave out batch axes that the others have; they broadcast. The names in `optional`
    may be None.
    """

    scalars: ClassVar[frozenset[str]] = frozenset()
    optional: ClassVar[frozenset[str]] = frozenset()

    def items(self) -> list[tuple[str, Any]]:
        """The named arrays that are present, in the order of the fields."""
        return [(f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) is not None]

    def time_axis(self, name: str) -> int:
        """Axis of time of the array called `name`: the last for a scalar input, else the last but one."""
        return -1 if name in self.scalars else -2

    @property
    def seq_len(self) -> int:
        """Number of tokens."""
        name, array = self.items()[0]
        return int(array.shape[self.time_axis(name)])

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Common leading shape of all inputs, by broadcasting."""
        return np.broadcast_shapes(*(tuple(a.shape[: self.time_axis(name)]) for name, a in self.items()))

    def _map(self, pick) -> TokenInputs:
        present = dict(self.items())
        return type(self)(**{f.name: pick(f.name, present[f.name]) if f.name in present else None for f in fields(self)})

    def at(self, t: int) -> TokenInputs:
        """The inputs of token `t`, without a time axis."""
        return self._map(lambda name, a: a[..., t] if name in self.scalars else a[..., t, :])

    def between(self, start: int, stop: int) -> TokenInputs:
        """The inputs of the tokens start, ..., stop - 1."""
        return self._map(lambda name, a: a[..., start:stop] if name in self.scalars else a[..., start:stop, :])

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return tuple(f.name for f in fields(cls))

    def check(self, **features: int) -> None:
        """Compare lengths, and the feature dimensions given by name.

        Raises:
            ValueError: an array has too few axes, another length, another number of features, or there is no token at
            all.
        """
        length = None
        absent = [n for n in self.names() if getattr(self, n) is None and n not in self.optional]
        if absent:
            raise ValueError(f"inputs: {', '.join(absent)} must not be None")
        for name, array in self.items():
            need = 1 if name in self.scalars else 2
            if array.ndim < need:
                layout = "(..., seq_len)" if need == 1 else "(..., seq_len, features)"
                raise ValueError(f"{name}: needs shape {layout}, got {tuple(array.shape)}")
            here = array.shape[self.time_axis(name)]
            if length is not None and here != length:
                raise ValueError(f"{name}: seq_len {here} differs from the other inputs' {length}; all inputs need one length")
            length = here
            if name in features and name not in self.scalars and array.shape[-1] != features[name]:
                raise ValueError(f"{name}: {array.shape[-1]} features, but this mixer was made for {features[name]}")
        if not length:
            raise ValueError("inputs: at least one token is needed, seq_len was 0")


def check_dimension(name: str, value: int) -> None:
    """Raise ValueError unless `value` is an int >= 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name}={value!r}: must be an integer >= 1")


class Mixer(ABC):
    """What every token mixer offers: a state, a step, a read, and the scan that these three define.

    A subclass gives `input_type`, `init_state`, `step`, `read`, `check_inputs` and `state_numbers`; a parallel form has
    the name `parallel`.
    """

    input_type: ClassVar[type[TokenInputs]]

    @abstractmethod
    def init_state(self, ar, batch_shape: tuple[int, ...] = ()): ...

    @abstractmethod
    def step(self, ar, state, inputs_t): ...

    @abstractmethod
    def read(self, ar, state, inputs_t): ...

    @abstractmethod
    def check_inputs(self, inputs) -> None: ...

    @abstractmethod
    def state_numbers(self, seq_len: int) -> int: ...

    def state_bits(self, bits_per_number: int, seq_len: int) -> int:
        """Bits carried to the next token after `seq_len` tokens: numbers times precision (paper C, Lemma 2.2)."""
        check_dimension("bits_per_number", bits_per_number)
        return self.state_numbers(seq_len) * bits_per_number

    def scan(self, ar, inputs, state=None):
        """Loop of `step` and `read` over the tokens: the definition of the mixer.

        Args:
            ar: an arithmetic. inputs: arrays (..., seq_len, features).
            state: where to start; None means `init_state`.

        Returns:
            (u, state): outputs (..., seq_len, value_dim) and the state after the last token.
        """
        self.check_inputs(inputs)
        state = self.init_state(ar, inputs.batch_shape) if state is None else state
        outputs = []
        for t in range(inputs.seq_len):
            token = inputs.at(t)
            state = self.step(ar, state, token)
            outputs.append(self.read(ar, state, token))
        return ar.stack(outputs, axis=-2), state

    def forward(self, ar, inputs):
        """Outputs (..., seq_len, value_dim) in the form that layers use: the scan."""
        return self.scan(ar, inputs)[0]

    def last_only(self, ar, inputs):
        """Output (..., value_dim) at the last token; all steps, one read."""
        self.check_inputs(inputs)
        state = self.init_state(ar, inputs.batch_shape)
        for t in range(inputs.seq_len):
            token = inputs.at(t)
            state = self.step(ar, state, token)
        return self.read(ar, state, token)


class Recurrence(Mixer):
    """A recurrent layer whose steps are linear in the state, so that a chunk of tokens can be done at once.

    A subclass gives `chunk(ar, inputs, state) -> (u, state)`, the parallel form over the tokens it is handed.
    """

    @abstractmethod
    def chunk(self, ar, inputs, state): ...

    def chunked(self, ar, inputs, chunk_size: int = 64, state=None):
        """Parallel within a chunk, recurrent between chunks. Returns (u, state) as `scan` does.

        Raises:
            ValueError: chunk_size < 1, or inputs of the wrong shape.
        """
        self.check_inputs(inputs)
        check_dimension("chunk_size", chunk_size)
        if isinstance(ar, Integer):
            raise ValueError(f"chunked: not defined in {ar.name}, where a weighted sum is a mean; use scan")
        state = self.init_state(ar, inputs.batch_shape) if state is None else state
        outputs = []
        for start in range(0, inputs.seq_len, chunk_size):
            u, state = self.chunk(ar, inputs.between(start, min(start + chunk_size, inputs.seq_len)), state)
            outputs.append(u)
        return (outputs[0] if len(outputs) == 1 else ar.concat(outputs, axis=-2)), state

    def parallel(self, ar, inputs, state=None):
        """All tokens as one chunk: outputs (..., seq_len, value_dim) without a step."""
        return self.chunked(ar, inputs, inputs.seq_len or 1, state)[0]


def decay_products(ar, alpha):
    """Gamma[..., i, j] = alpha_{j+1} alpha_{j+2} ... alpha_i for j <= i, zero above the diagonal.

    Row i is row i-1 times alpha_i, with a one appended; no logarithm and no division, so alpha = 0 is allowed.

    Args:
        alpha: decays, (..., seq_len).

    Returns:
        (gamma, from_start): (..., seq_len, seq_len), and (..., seq_len) with alpha_1 ... alpha_i.
    """
    seq_len = alpha.shape[-1]
    batch = tuple(alpha.shape[:-1])
    rows, from_start = [], []
    for i in range(seq_len):
        a = alpha[..., i : i + 1]
        kept = [ar.mul(rows[-1][..., :i], a)] if i else []
        rows.append(ar.concat([*kept, ar.full((*batch, 1), 1), ar.zeros((*batch, seq_len - i - 1))], axis=-1))
        from_start.append(ar.mul(from_start[-1], a) if i else a)
    return ar.stack(rows, axis=-2), ar.concat(from_start, axis=-1)


def transition_products(ar, m):
    """P[i][..., j, :, :] = M_i M_{i-1} ... M_{j+1} for j = 0..i, by i; the last of them is the identity.

    Token i is counted from 0, so P[i][..., 0] applies to what token 0 wrote. For reference only: seq_len^2 matrix
    products.

    Args:
        m: transition matrices that act on column vectors, (..., seq_len, d, d).

    Returns:
        (products, from_start): a list of arrays (..., i + 1, d, d), and a list of M_i ... M_0, (..., d, d).
    """
    d = m.shape[-1]
    eye = ar.add(ar.zeros((*m.shape[:-3], 1, d, d)), ar.array(np.eye(d)))
    products, from_start = [], []
    for i in range(m.shape[-3]):
        step = m[..., i, :, :]
        moved = [ar.mix(step[..., None, :, :], products[-1])] if i else []
        products.append(ar.concat([*moved, eye], axis=-3))
        from_start.append(ar.mix(step, from_start[-1]) if i else step)
    return products, from_start
