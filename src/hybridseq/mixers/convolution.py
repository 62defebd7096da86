"""The short causal convolution that Mamba and Gated DeltaNet put before their recurrences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from hybridseq.mixers.recurrence import Mixer, TokenInputs


@dataclass(frozen=True)
class ConvolutionInputs(TokenInputs):
    """x: (..., seq_len, channels)."""

    x: Any


@dataclass(frozen=True)
class ShortConvolution(Mixer):
    """Depthwise causal convolution: y_t = bias + sum_{j<width} weight[:, j] * x_{t-width+1+j}, with zeros before the start.

    The state after a step holds `width` inputs, the current one included. The next step drops the oldest, so that width - 1
    inputs are carried from token to token, and that is what `state_numbers` counts.

    Args:
        weight: stored numbers (channels, width), the last column for the current token. bias: (channels,) or None.

    Raises:
        ValueError: weight not of two axes, bias of another length.

    Example:
        >>> from hybridseq.arithmetic import Float
        >>> ar = Float()
        >>> x = ConvolutionInputs(ar.array([[1.0], [10.0], [100.0]]))
        >>> ShortConvolution(ar.array([[2.0, 1.0]])).scan(ar, x)[0][:, 0].tolist()
        [1.0, 12.0, 120.0]
    """

    input_type: ClassVar[type] = ConvolutionInputs

    weight: Any = field(compare=False)
    bias: Any = field(default=None, compare=False)

    def __post_init__(self):
        if self.weight.ndim != 2:
            raise ValueError(f"weight: needs shape (channels, width), got {tuple(self.weight.shape)}")
        if self.bias is not None and tuple(self.bias.shape) != (self.channels,):
            raise ValueError(f"bias: needs shape ({self.channels},), got {tuple(self.bias.shape)}")

    @property
    def channels(self) -> int:
        """Number of channels."""
        return self.weight.shape[0]

    @property
    def width(self) -> int:
        """Tokens that an output sees, the current one included."""
        return self.weight.shape[1]

    def check_inputs(self, inputs: ConvolutionInputs) -> None:
        inputs.check(x=self.channels)

    def init_state(self, ar, batch_shape: tuple[int, ...] = ()):
        """Zeros (..., width, channels), oldest first."""
        return ar.zeros((*batch_shape, self.width, self.channels))

    def step(self, ar, state, inputs_t: ConvolutionInputs):
        """Drop the oldest input, append the current one."""
        return ar.concat([state[..., 1:, :], inputs_t.x[..., None, :]], axis=-2)

    def read(self, ar, state, inputs_t: ConvolutionInputs):
        """The weighted sum over the held inputs: (..., channels)."""
        return self._biased(ar, ar.sum(ar.mul(state.swapaxes(-1, -2), self.weight)))

    def _biased(self, ar, y):
        return y if self.bias is None else ar.add(y, self.bias)

    def parallel(self, ar, inputs: ConvolutionInputs):
        """All outputs at once, by shifted copies of the input; the same ordered sums as the scan."""
        self.check_inputs(inputs)
        seq_len = inputs.seq_len
        padded = ar.concat([ar.zeros((*inputs.batch_shape, self.width - 1, self.channels)), inputs.x], axis=-2)
        copies = [padded[..., j : j + seq_len, :] for j in range(self.width)]
        return self._biased(ar, ar.sum(ar.mul(ar.stack(copies, axis=-1), self.weight)))

    def state_numbers(self, seq_len: int = 0) -> int:
        """(width - 1) * channels."""
        return (self.width - 1) * self.channels
