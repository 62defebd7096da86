"""How a trained hybrid points: the last number as an angle in the rotary planes of its queries.

Rotary positions turn plane j of a query at position i by the angle f_j i, of a key likewise. Written as complex numbers before
turning, z for the query and w for the key, a score at distance D back is

    sum over j of  Re(conj(z_j) w_j exp(-i f_j D)) / sqrt(head width)  +  what the columns that are not turned add.

If queries depend on the last number n alone and keys on nothing, attention is a *pointer*: f_0 is 1 radian a token, so a plane is
a clock with one hand, and the angle of conj(z) w is the distance that it names. `pointer` measures hands, keys and how far both
are from constant; its `weights` are the attention that follows from these few numbers. A clock names distances up to whole turns
only: 6 tokens are 2 pi less 0.28, 19 are 6 pi plus 0.15. `turned_queries` moves the hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
import torch
from torch import Tensor

from hybridseq.learning.batches import Framed
from hybridseq.learning.mechanism import MASKED, last_numbers
from hybridseq.learning.modules import Decoder, Trace
from hybridseq.learning.stack import Stack
from hybridseq.tasks.selective_copying import COUNT_FROM

__all__ = ["Pointer", "labels_with", "pointer", "turned_queries", "unturned_planes", "wave_share"]


def frequencies(stack: Stack) -> np.ndarray:
    """Radians a token of each rotary plane (planes,).

    Raises:
        ValueError: no turned columns, or an odd number of them, which is no rotation.
    """
    n = stack.rotary_columns
    if n < 2 or n % 2:
        raise ValueError(f"stack: {stack.name} of width {stack.width} turns {n} columns; planes need an even number, 2 or more")
    return 10_000.0 ** (-np.arange(0, n, 2) / n)


def unturned_planes(stack: Stack, turned) -> np.ndarray:
    """Queries or keys of a trace, as they were before turning, one complex number a plane: (batch, heads, seq_len, planes).

    Args:
        turned: the values q or k of a layer (batch, heads, seq_len, head width).

    Raises:
        ValueError: see `frequencies`.
    """
    f = frequencies(stack)
    x = turned.detach().numpy() if isinstance(turned, Tensor) else np.asarray(turned)
    z = x[..., : len(f)] + 1j * x[..., len(f) : 2 * len(f)]
    return z * np.exp(-1j * np.arange(x.shape[-2])[:, None] * f)


@dataclass(frozen=True, eq=False)
class Pointer:
    """Hands and keys of one head, averaged, and what the averages leave out.

    Args:
        numbers: values of the number tokens (numbers,). hands: mean unturned query for each (numbers, planes). key: mean unturned
            key (planes,). frequencies: radians a token (planes,). head_dim: width of the head.
        hand_spread, key_spread: root mean square distance from those means, in units of their length (numbers,) and a number.
        rest: what the other columns add to a score, in nats: standard deviation over the keys in sight, mean over queries.
    """

    numbers: np.ndarray
    hands: np.ndarray
    key: np.ndarray
    frequencies: np.ndarray
    head_dim: int
    hand_spread: np.ndarray
    key_spread: float
    rest: float

    @property
    def strength(self) -> np.ndarray:
        """What a score gains at most when the fastest hand points at the key, in nats (numbers,)."""
        return np.abs(self.hands[:, 0]) * abs(self.key[0]) / sqrt(self.head_dim)

    @property
    def named(self) -> np.ndarray:
        """The distance that the fastest hand names, in tokens, up to whole turns: (numbers,) in [0, 2 pi / f_0)."""
        return np.angle(self.key[0] * self.hands[:, 0].conj()) % (2 * pi) / self.frequencies[0]

    def scores(self, number: int, sight: int) -> np.ndarray:
        """Scores of the keys 0, ..., sight - 1 tokens back, in nats, by the turned planes alone: (sight,).

        Raises ValueError for a number that has no hand, sight below 1.
        """
        if number not in self.numbers or sight < 1:
            raise ValueError(f"number={number}, sight={sight}: needs one of {self.numbers.tolist()}, and sight >= 1")
        hand = self.hands[list(self.numbers).index(number)]
        turns = np.exp(-1j * np.arange(sight)[:, None] * self.frequencies)
        return (hand.conj() * self.key * turns).real.sum(-1) / sqrt(self.head_dim)

    def weights(self, number: int, sight: int) -> np.ndarray:
        """Softmax of `scores`: the attention of a query with `sight` keys in its window, by distance."""
        scores = self.scores(number, sight)
        weights = np.exp(scores - scores.max())
        return weights / weights.sum()


def pointer(decoder: Decoder, framed: Framed, tokens, layer: int) -> Pointer:
    """Measure the pointer of the only head of an attention layer, over all positions of `tokens` that have a last number.

    Raises:
        ValueError: another task, more than one head, an odd number of turned columns, a number that does not occur.
    """
    stack = decoder.stack
    if stack.heads != 1:
        raise ValueError(f"decoder: {stack.heads} heads, a pointer is measured for one")
    f, numbers = frequencies(stack), last_numbers(framed, tokens)
    trace = decoder.trace(tokens, {f"{layer}.q", f"{layer}.k"})
    q, k = (trace[f"{layer}.{name}"].detach().numpy() for name in "qk")
    z, w = (unturned_planes(stack, x)[:, 0] for x in (q, k))
    values = np.arange(framed.task.first_number, framed.task.first_number + framed.task.num_numbers)
    if missing := set(values.tolist()) - set(numbers.ravel().tolist()):
        raise ValueError(f"tokens: the numbers {sorted(missing)} do not occur; use more rows")
    groups = [z[numbers == value] for value in values]
    hands, key = np.array([group.mean(axis=0) for group in groups]), w[:, framed.content].mean(axis=(0, 1))
    rest = _unturned_spread(stack, q[:, 0, :, 2 * len(f) :], k[:, 0, :, 2 * len(f) :], numbers > 0)
    spreads = np.array([_spread(group, hand) for group, hand in zip(groups, hands, strict=True)])
    return Pointer(values, hands, key, f, stack.head_dim, spreads, _spread(w[:, framed.content], key), rest)


def _spread(z: np.ndarray, mean: np.ndarray) -> float:
    """Root mean square distance of z (..., planes) from its mean, in units of the mean's length."""
    return float(np.sqrt((np.abs(z - mean) ** 2).sum(-1).mean() / (np.abs(mean) ** 2).sum()))


def _unturned_spread(stack: Stack, q: np.ndarray, k: np.ndarray, counted: np.ndarray) -> float:
    """Standard deviation over the keys in sight of q . k / sqrt(head width), averaged over the counted queries."""
    seq_len = q.shape[1]
    back = np.arange(seq_len)[:, None] - np.arange(seq_len)
    sight = (back >= 0) & (back < (stack.window or seq_len))
    scores = np.where(sight, q @ np.swapaxes(k, 1, 2) / sqrt(stack.head_dim), np.nan)
    return float(np.nanstd(scores, axis=-1)[counted].mean())


def turned_queries(trace: Trace, layer: int, more: float) -> Tensor:
    """The queries of a layer with every hand moved on, as though it named a place `more` tokens farther back.

    For `run_with`, as the value of "<layer>.q".

    Raises:
        ValueError: see `frequencies`; a trace without these queries.
    """
    f, q = frequencies(trace.stack), trace[f"{layer}.q"].clone()
    cos, sin = (torch.as_tensor(table, dtype=q.dtype) for table in (np.cos(f * more), np.sin(f * more)))
    real, imaginary = q[..., : len(f)].clone(), q[..., len(f) : 2 * len(f)].clone()
    q[..., : len(f)] = real * cos + imaginary * sin
    q[..., len(f) : 2 * len(f)] = imaginary * cos - real * sin
    return q


def labels_with(framed: Framed, tokens, more: int) -> np.ndarray:
    """Labels of selective copying if every number were larger by `more`: (batch, seq_len), -1 where none or where it leads ahead.

    Raises:
        ValueError: another task, rows of another length.
    """
    numbers, tokens = last_numbers(framed, tokens), np.asarray(tokens)
    position = np.arange(tokens.shape[1])
    source = position + COUNT_FROM[framed.task.count_from] - numbers - more
    found = (numbers > 0) & (source >= framed.content.start) & (source <= position)
    return np.where(found, np.take_along_axis(tokens, np.clip(source, 0, tokens.shape[1] - 1), axis=1), MASKED)


def wave_share(values, period: float) -> float:
    """Share of what a straight line leaves of equally spaced values that a wave of this period explains, by least squares.

    A head that finds its place by a hand of one radian a token confuses places a turn apart, so that its accuracy by distance
    comes in waves of 2 pi.

    Args:
        values: (n,) finite, n >= 6, at steps of 1. period: in steps, > 2.

    Raises:
        ValueError: too few values, NaN or infinite ones, a period of 2 or less, values on a straight line.

    Example:
        >>> round(wave_share(np.cos(np.arange(19)) + 0.1 * np.arange(19), 2 * pi), 6)
        1.0
    """
    y = np.asarray(values, dtype=float)
    if y.ndim != 1 or len(y) < 6 or not np.isfinite(y).all():
        raise ValueError(f"values: needs six finite numbers or more in a row, got shape {y.shape}")
    if not period > 2:
        raise ValueError(f"period={period!r}: must be > 2 steps")
    t = np.arange(len(y))
    line = np.stack([np.ones(len(y)), t], axis=1)
    both = np.column_stack([line, np.cos(2 * pi * t / period), np.sin(2 * pi * t / period)])
    rest, less = (float(((y - x @ np.linalg.lstsq(x, y, rcond=None)[0]) ** 2).sum()) for x in (line, both))
    if rest <= 1e-20 * (y**2).sum():
        raise ValueError("values: lie on a straight line, nothing is left to explain")
    return 1 - less / rest
