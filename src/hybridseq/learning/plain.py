"""Training with the plain module: one replica, one Python loop, every number written out. The oracle of the faster trainers.

One update of the parameters theta with gradient g, in the order of the released code:

    g      <- g min(1, clip / (|g| + 1e-6))
    theta  <- theta - rate decay theta
    m      <- beta_1 m + (1 - beta_1) g,       v <- beta_2 v + (1 - beta_2) g^2
    theta  <- theta - rate (m / (1 - beta_1^k)) / (sqrt(v / (1 - beta_2^k)) + eps)        k = 1, 2, ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch

from hybridseq.learning.batches import EVALUATION_BATCHES, Framed, dropout_keep
from hybridseq.learning.modules import Decoder, loss, score
from hybridseq.learning.recipe import Outcome, Recipe, Run
from hybridseq.learning.stack import Stack

BACKEND = "plain"

_TOGETHER = 16  # evaluation batches in one forward pass; rows do not see each other


def clipped(gradient: np.ndarray, largest: float) -> np.ndarray:
    """The gradient, shortened to norm `largest` where it is longer (up to the 1e-6 that torch adds to the norm)."""
    return gradient * min(1.0, largest / (np.linalg.norm(gradient) + 1e-6))


@dataclass
class AdamW:
    """Adam with decoupled weight decay on one flat vector (Loshchilov and Hutter, 2019).

    Args:
        recipe: betas, eps, weight decay and clip. mean, square: both moments (size,). count: updates so far.
    """

    recipe: Recipe
    mean: np.ndarray
    square: np.ndarray
    count: int = 0

    @classmethod
    def start(cls, recipe: Recipe, flat: np.ndarray) -> AdamW:
        """Moments of zero, in the precision of `flat`."""
        return cls(recipe, np.zeros_like(flat), np.zeros_like(flat))

    def step(self, flat: np.ndarray, gradient: np.ndarray, rate: float) -> np.ndarray:
        """The parameters after one update; moves the moments."""
        b1, b2 = self.recipe.betas
        gradient = clipped(gradient, self.recipe.clip)
        self.count += 1
        self.mean = b1 * self.mean + (1 - b1) * gradient
        self.square = b2 * self.square + (1 - b2) * gradient**2
        mean, square = self.mean / (1 - b1**self.count), self.square / (1 - b2**self.count)
        decayed = flat * (1 - rate * self.recipe.weight_decay)
        return decayed - rate * mean / (np.sqrt(square) + self.recipe.eps)


def loss_and_gradient(stack: Stack, flat: np.ndarray, tokens, labels, keep=None) -> tuple[float, np.ndarray]:
    """Mean loss of a batch and its gradient (size,), in the precision of `flat` (float32 or float64).

    Args:
        tokens, labels: integers (batch, seq_len); labels below 0 are masked.
        keep: factors (batch, seq_len, width) under dropout, 0 or 1 / (1 - p); None is no dropout.

    Raises:
        ValueError: shapes or values that do not fit, keep as booleans (they do not say the rate), all labels masked.
    """
    decoder = Decoder(stack, flat, _precision(flat))
    value = loss(decoder(tokens, keep=_factors(keep, stack, tokens)), labels)
    value.backward()
    return value.item(), decoder.flat.grad.numpy()


def evaluate(stack: Stack, flat: np.ndarray, framed: Framed, batches: int = EVALUATION_BATCHES) -> tuple[int, int]:
    """(correct, valid) over the first `batches` held-out batches of 8 sequences, without dropout.

    Raises:
        ValueError: a vocabulary that differs from the task's, batches out of 1..128.
    """
    if stack.vocab_size != framed.vocab_size:
        raise ValueError(f"stack: vocab_size={stack.vocab_size}, but the framed task has {framed.vocab_size} tokens")
    if not 1 <= batches <= EVALUATION_BATCHES:
        raise ValueError(f"batches={batches}: must lie in 1..{EVALUATION_BATCHES}")
    decoder = Decoder(stack, flat, _precision(flat))
    total = np.zeros(2, dtype=int)
    for first in range(0, batches, _TOGETHER):
        drawn = [framed.evaluation_batch(b) for b in range(first, min(first + _TOGETHER, batches))]
        tokens, labels = (np.concatenate(part) for part in zip(*drawn, strict=True))
        with torch.no_grad():
            total += score(decoder(tokens), labels)
    return int(total[0]), int(total[1])


def train(
    run: Run,
    parameters: np.ndarray | None = None,
    steps: int | None = None,
    record: Callable[[int, float], None] | None = None,
    *,
    dtype: str = "float32",
) -> Outcome:
    """Train one replica and score it on the held-out sequences.

    Args:
        run: everything that decides the numbers.
        parameters: where to start, (size,); None means `stack.initial(seed)`.
        steps: how many updates, 0..recipe.steps; None means all. The schedule stays the recipe's.
        record: called as record(step, loss) after each update.
        dtype: "float32" or "float64".

    Raises:
        ValueError: parameters of another length, steps out of range, another dtype.
    """
    started = perf_counter()
    recipe, stack = run.recipe, run.stack
    steps = recipe.steps if steps is None else steps
    if not 0 <= steps <= recipe.steps:
        raise ValueError(f"steps={steps}: must lie in 0..{recipe.steps}, the steps of the recipe")
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype={dtype!r}: must be 'float32' or 'float64'")
    flat = np.array(stack.initial(run.seed) if parameters is None else parameters, dtype=dtype)
    optimiser, losses = AdamW.start(recipe, flat), np.zeros(steps)
    for i in range(steps):
        tokens, labels = run.task.training_batch(run.seed, i, recipe.batch)
        losses[i], gradient = loss_and_gradient(stack, flat, tokens, labels, dropout_factors(run, i))
        flat = optimiser.step(flat, gradient, recipe.learning_rate(run.learning_rate, i))
        if record is not None:
            record(i, float(losses[i]))
    correct, valid = evaluate(stack, flat, run.task)
    return Outcome(flat, losses, correct, valid, correct / valid, perf_counter() - started, BACKEND)


def dropout_factors(run: Run, step: int) -> np.ndarray | None:
    """What multiplies the embedded tokens of a step, (batch, seq_len, width): 0 or 1 / (1 - p); None without dropout."""
    rate, batch = run.recipe.dropout, run.recipe.batch
    if rate == 0:
        return None
    return dropout_keep(run.seed, step, run.task.seq_len, run.stack.width, rate, batch) / (1 - rate)


def _factors(keep, stack: Stack, tokens):
    if keep is None:
        return None
    if keep.dtype in (bool, torch.bool):
        raise ValueError("keep: booleans do not say the dropout rate; give factors, keep / (1 - rate)")
    shape = (*np.shape(tokens), stack.width)
    if tuple(keep.shape) != shape:
        raise ValueError(f"keep: needs shape {shape}, got {tuple(keep.shape)}")
    return keep


def _precision(flat: np.ndarray) -> str:
    name = str(flat.dtype).removeprefix("torch.")
    if name not in ("float32", "float64"):
        raise ValueError(f"flat: dtype {name}, must be float32 or float64")
    return name
