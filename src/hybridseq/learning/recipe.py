"""How a model is trained: the schedule, AdamW's numbers, and what one run takes and returns (paper B, Appendix E).

Every trainer offers the same three functions, and each is tested in float64 against `hybridseq.learning.plain`:

    train(run, parameters=None, steps=None, record=None) -> Outcome
    evaluate(stack, flat, framed) -> (correct, valid)
    loss_and_gradient(stack, flat, tokens, labels, keep=None) -> (loss, gradient)

`parameters` is where to start (None: `stack.initial(seed)`), `steps` stops early while the schedule stays as the recipe has it,
`record(step, loss)` is called after each step. `keep` holds what the embedding is multiplied by under dropout: real factors
(batch, seq_len, width), 0 or 1 / (1 - p), that is `batches.dropout_keep(...) / (1 - p)`; None is no dropout. Labels below 0 are
masked.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridseq.learning.stack import Stack

if TYPE_CHECKING:
    from hybridseq.learning.batches import Framed

MAX_SEED = 1 << 31
"""Seeds of runs lie below this number, which is itself the seed of the held-out sequences."""


@dataclass(frozen=True)
class Recipe:
    """Steps, schedule and AdamW's numbers.

    Args:
        steps: updates of a run.
        total: length of the schedule, in steps; None means `steps`. A calibration of 1,000 steps under the schedule of a
            full run has steps=1000, total=4000.
        warm_up: steps over which the learning rate rises from 0 to its peak; the first step has rate 0.
        weight_decay: decoupled, on every parameter (norms, biases and A_log included, as in the released code).
        betas, eps: as in Adam. clip: largest norm of the whole gradient. dropout: probability, after the embedding only.
        batch: sequences a step.

    Raises:
        ValueError: a number out of its range.

    Example:
        >>> Recipe().learning_rate(0.01, 50)
        0.005
    """

    steps: int = 4000
    total: int | None = None
    warm_up: int = 100
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    clip: float = 1.0
    dropout: float = 0.1
    batch: int = 8

    def __post_init__(self):
        if not isinstance(self.betas, (tuple, list)) or len(self.betas) != 2:
            raise ValueError(f"betas={self.betas!r}: needs two numbers in [0, 1)")
        object.__setattr__(self, "betas", tuple(self.betas))
        for name, least in (("steps", 0), ("warm_up", 0), ("batch", 1)):
            object.__setattr__(self, name, _integer(name, getattr(self, name), least))
        total = self.steps if self.total is None else self.total
        object.__setattr__(self, "total", _integer("total", total, self.steps))
        if self.steps and self.warm_up >= self.total:
            raise ValueError(f"warm_up={self.warm_up}: must be < total={self.total}; lower it, or give the full schedule's total")
        _check_real("weight_decay", self.weight_decay, 0)
        for beta in self.betas:
            _check_real("betas", beta, 0, 1)
        _check_real("dropout", self.dropout, 0, 1)
        for name in ("eps", "clip"):
            _check_real(name, getattr(self, name), 0)
            if getattr(self, name) == 0:
                raise ValueError(f"{name}=0: must be > 0")

    def learning_rate(self, peak: float, step: int) -> float:
        """Rate of update `step` (0-based): peak * step / warm_up at first, then linearly down to 0 at step `total`.

        Raises:
            ValueError: step < 0.
        """
        if step < 0:
            raise ValueError(f"step={step}: must be >= 0")
        if step < self.warm_up:
            return peak * step / self.warm_up
        return peak * max(0, self.total - step) / (self.total - self.warm_up)

    @property
    def config(self) -> dict[str, Any]:
        """Every number as plain data."""
        return asdict(self) | {"betas": list(self.betas)}


@dataclass(frozen=True)
class Run:
    """One training run, from which everything that happens follows.

    Args:
        stack: the architecture. task: the framed task; it has `vocab_size`, `config`, `training_batch`, `evaluation_batch`.
        recipe: the schedule. seed: of initial values, data and dropout, in 0..2^31 - 1. learning_rate: the peak.

    Raises:
        ValueError: a learning rate that is not positive, a seed out of range, a vocabulary that differs from the task's.
    """

    stack: Stack
    task: Framed
    recipe: Recipe
    seed: int
    learning_rate: float

    def __post_init__(self):
        object.__setattr__(self, "seed", _integer("seed", self.seed, 0))
        if self.seed >= MAX_SEED:
            raise ValueError(f"seed={self.seed}: must be < 2^31, which is the seed of the held-out sequences")
        _check_real("learning_rate", self.learning_rate, 0)
        if self.learning_rate == 0:
            raise ValueError("learning_rate=0: must be > 0")
        for name, kind in (("stack", Stack), ("recipe", Recipe)):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name}={getattr(self, name)!r}: must be a {kind.__name__}")
        if not hasattr(self.task, "training_batch"):
            raise ValueError(f"task={self.task!r}: must be a framed task; wrap it as Framed(task)")
        if self.stack.vocab_size != self.task.vocab_size:
            raise ValueError(
                f"stack: vocab_size={self.stack.vocab_size}, but the framed task has {self.task.vocab_size} tokens; "
                "make the stack with vocab_size=task.vocab_size"
            )

    @property
    def config(self) -> dict[str, Any]:
        """The run as plain data."""
        return {
            "stack": self.stack.config,
            "task": self.task.config,
            "recipe": self.recipe.config,
            "seed": self.seed,
            "learning_rate": float(self.learning_rate),
        }

    @property
    def key(self) -> str:
        """Content hash of `config`: 16 hexadecimal digits."""
        text = json.dumps(self.config, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run returns.

    Args:
        parameters: flat vector (size,) after the last step. losses: training loss of each step (steps,).
        correct, valid: scored positions of the held-out sequences; accuracy: their ratio.
        seconds: wall time of training and evaluation. backend: which trainer ran.
    """

    parameters: np.ndarray
    losses: np.ndarray
    correct: int
    valid: int
    accuracy: float
    seconds: float
    backend: str


def _integer(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name}={value!r}: must be an integer >= {least}")
    return int(value)


def _check_real(name: str, value: Any, least: float, below: float | None = None) -> None:
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not real or not isfinite(value) or value < least or (below is not None and value >= below):
        allowed = f">= {least}" if below is None else f"in [{least}, {below})"
        raise ValueError(f"{name}={value!r}: must be a finite number {allowed}")
