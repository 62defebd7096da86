"""Batches of framed sequences: which numbers a training run sees, fixed once for all trainers.

A row of `seq_len` tokens is

    content (content_len tokens of the task), NULL, NULL, ...                    marked=False
    BEGIN, content, END, NULL, NULL, ...                                         marked=True

and carries the task's labels at its content, -1 (masked) elsewhere. Label i belongs to the prediction *at* row position i; it is
no shifted copy of the tokens. The generator that was released for paper B's small models trains on 100 tokens of content without
markers, although its vocabulary has them (and so do the published parameter counts). The choice moves curves: it is an argument.

**The order of draws.** Everything random comes from `rng.Generator(seed)`, whose words are pure functions of a place:
word(a, b, ..., j) = mix(... mix(mix(mix(seed) + a) + b) ... + j) modulo 2^64. The places are

    initial values       (0, tensor number, j)        see `learning.stack`
    content of step t    (1, t, ...)                  t = 0, 1, 2, ...
    dropout of step t    (2, t, j)
    evaluation batch b   (3, b, ...)                  with seed 2^31, the same sequences for every run of a task

Below a content place, with j = row * content_len + position in the content, the tasks draw

    MultiKeyRecall       (j)        word mod M
    SelectiveCopying     (0, j)     word mod N           the number, if this position holds one
                         (1, j)     word mod M, plus N   the word, if it does not
                         (2, j)     (word >> 11) 2^-53 < density: the position holds a number

so row r of a batch is the same whatever the size of the batch. Dropout takes one word for two sequences, with
P = ceil(batch / 2), j = (position * width + channel) * P + pair: row 2 pair reads the low 32 bits, row 2 pair + 1 the high
ones, and an element is dropped when they are below floor(rate 2^32). Kept elements are then divided by 1 - rate.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, is_dataclass
from inspect import signature
from numbers import Real
from typing import Any

import numpy as np

from hybridseq.rng import Generator
from hybridseq.tasks.selective_copying import SelectiveCopying
from hybridseq.tasks.vocabulary import Vocabulary

__all__ = [
    "BATCH",
    "DATA",
    "DROPOUT",
    "EVALUATION",
    "EVALUATION_BATCHES",
    "EVALUATION_SEED",
    "INITIAL",
    "MASKED",
    "Framed",
    "dropout_keep",
    "dropout_words",
]

INITIAL, DATA, DROPOUT, EVALUATION = range(4)
"""First counter of each kind of draw."""

BATCH = 8
"""Sequences in a batch, unless a caller asks for another number."""

EVALUATION_SEED = 1 << 31
EVALUATION_BATCHES = 128
"""Held-out data: 128 batches of 8, 1,024 sequences. Training draws from another place even for this seed."""

MASKED = -1
"""The label of a position that is not counted."""

_DENSITY = {SelectiveCopying: 0.2}
"""Probability of a number token in the paper's experiments (Appendix E); other tasks default to their own sampling."""


@dataclass(frozen=True)
class Framed:
    """A task in rows of one length, with two markers and padding.

    Args:
        task: a frozen dataclass with `vocab_size`, `vocabulary`, `sample(num, seq_len, generator)` and `labels(tokens)`.
        seq_len: tokens in a row, markers counted; at least 3.
        content_len: tokens of the task in a row, 1 to seq_len (seq_len - 2 between markers); None fills the row.
        density: handed to `task.sample`, where that takes one. None: 0.2 for selective copying, else the task's own default.
        marked: BEGIN opens a row and END closes its content. The vocabulary has both tokens either way.

    Raises:
        ValueError: lengths out of range, a density for a task without one or outside [0, 1], an object that is no task.

    Example:
        >>> from hybridseq.tasks.selective_copying import SelectiveCopying
        >>> framed = Framed(SelectiveCopying(2, 2, count_from="current"), seq_len=7, content_len=4, marked=True)
        >>> tokens, labels = framed.frame([[2, 1, 3, 3]])
        >>> framed.text(tokens[0]), labels.tolist()
        ('BEGIN a #2 b b END NULL', [[-1, -1, 2, 1, 3, -1, -1]])
    """

    task: Any
    seq_len: int = 100
    content_len: int | None = None
    density: float | None = None
    marked: bool = False

    def __post_init__(self):
        _check_task(self.task)
        _check_integer("seq_len", self.seq_len, 3)
        if not isinstance(self.marked, bool):
            raise ValueError(f"marked must be True or False, got {self.marked!r}")
        if self.content_len is None:
            object.__setattr__(self, "content_len", self._longest)
        _check_integer("content_len", self.content_len, 1, self._longest)
        if self.density is None:
            object.__setattr__(self, "density", _DENSITY.get(type(self.task)))
        elif "density" not in signature(self.task.sample).parameters:
            raise ValueError(f"density={self.density!r}: {type(self.task).__name__} draws without one; leave it out")
        elif isinstance(self.density, bool) or not isinstance(self.density, Real) or not 0 <= self.density <= 1:
            raise ValueError(f"density must lie in [0, 1], got {self.density!r}")

    @property
    def _longest(self) -> int:
        return self.seq_len - 2 * self.marked

    @property
    def vocab_size(self) -> int:
        """The task's tokens, the two markers and the padding."""
        return self.task.vocab_size + 3

    @property
    def begin(self) -> int:
        """Id of the token that opens a marked row."""
        return self.task.vocab_size

    @property
    def end(self) -> int:
        """Id of the token behind the content of a marked row."""
        return self.task.vocab_size + 1

    @property
    def null(self) -> int:
        """Id of the padding."""
        return self.task.vocab_size + 2

    @property
    def vocabulary(self) -> Vocabulary:
        """The task's names, then BEGIN, END, NULL."""
        return Vocabulary((*self.task.vocabulary.tokens, "BEGIN", "END", "NULL"))

    @property
    def content(self) -> slice:
        """Where the content stands in a row."""
        return slice(int(self.marked), int(self.marked) + self.content_len)

    def text(self, tokens) -> str:
        """One row as token names."""
        return " ".join(self.vocabulary.names(tokens))

    @property
    def name(self) -> str:
        """Task and numbers in one word, for tables and file names; what differs from the defaults is spelled out.

        >>> from hybridseq.tasks.multi_key_recall import MultiKeyRecall
        >>> Framed(MultiKeyRecall(8, 2, skip_first=True), seq_len=50).name
        'multi-key-recall-8-2-true-seq_len=50'
        """
        kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(self.task).__name__)
        parts = [kind, *map(str, asdict(self.task).values())]
        usual = {"seq_len": 100, "content_len": self._longest, "density": _DENSITY.get(type(self.task)), "marked": False}
        parts += [f"{key}={getattr(self, key)}" for key, value in usual.items() if getattr(self, key) != value]
        return "-".join(parts).lower()

    @property
    def config(self) -> dict:
        """Everything that decides the rows, as plain values: task, its numbers, lengths, density, markers."""
        numbers = {key: _plain(value) for key, value in asdict(self.task).items()}
        return {
            "task": type(self.task).__name__,
            **numbers,
            "seq_len": int(self.seq_len),
            "content_len": int(self.content_len),
            "density": None if self.density is None else float(self.density),
            "marked": self.marked,
        }

    # ---------------------------------------------------------------------------------------------------------- batches

    def frame(self, content) -> tuple[np.ndarray, np.ndarray]:
        """Rows and labels, both (num, seq_len) int64, around the content (num, content_len)."""
        content = np.asarray(content)
        if content.ndim != 2 or content.shape[1] != self.content_len:
            raise ValueError(f"content: needs shape (num, {self.content_len}), got {content.shape}")
        tokens = np.full((len(content), self.seq_len), self.null, dtype=np.int64)
        tokens[:, self.content] = content
        if self.marked:
            tokens[:, 0], tokens[:, self.content.stop] = self.begin, self.end
        labels = np.full(tokens.shape, MASKED, dtype=np.int64)
        labels[:, self.content] = self.task.labels(content)
        return tokens, labels

    def training_batch(self, seed: int, step: int, batch: int = BATCH) -> tuple[np.ndarray, np.ndarray]:
        """Rows and labels of one step (counted from 0): (batch, seq_len) int64 each; content from the place (1, step)."""
        _check_integer("seed", seed, 0)
        _check_integer("step", step, 0)
        return self.frame(self._draw(Generator(seed).at(DATA, step), batch))

    def evaluation_batch(self, index: int, batch: int = BATCH) -> tuple[np.ndarray, np.ndarray]:
        """Held-out rows and labels number 0 to 127: (batch, seq_len) int64 each; content from the place (3, index)."""
        _check_integer("index", index, 0, EVALUATION_BATCHES - 1)
        return self.frame(self._draw(Generator(EVALUATION_SEED).at(EVALUATION, index), batch))

    def _draw(self, generator: Generator, batch: int) -> np.ndarray:
        _check_integer("batch", batch, 1)
        options = {} if self.density is None else {"density": self.density}
        return self.task.sample(batch, self.content_len, generator, **options)


def dropout_words(seed: int, step: int, seq_len: int, width: int, batch: int = BATCH) -> np.ndarray:
    """The words behind one step's dropout: uint64 (seq_len, width, ceil(batch / 2)), from the place (2, step)."""
    _check_integer("seed", seed, 0)
    _check_integer("step", step, 0)
    for name, value in (("seq_len", seq_len), ("width", width), ("batch", batch)):
        _check_integer(name, value, 1)
    return Generator(seed).at(DROPOUT, step).words((seq_len, width, -(-batch // 2)))


def dropout_keep(seed: int, step: int, seq_len: int, width: int, rate: float, batch: int = BATCH) -> np.ndarray:
    """Which embedding entries survive one step: bool (batch, seq_len, width); divide those by 1 - rate.

    Raises ValueError unless 0 <= rate < 1.

    >>> dropout_keep(0, 0, 100, 12, 0.1).mean().round(2).item()
    0.9
    """
    if isinstance(rate, bool) or not 0 <= rate < 1:
        raise ValueError(f"rate must lie in [0, 1), got {rate!r}")
    words = dropout_words(seed, step, seq_len, width, batch)
    halves = np.stack((words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)), axis=-1)  # (seq_len, width, pair, low or high)
    rows = halves.reshape(seq_len, width, -1)[..., :batch]
    return np.moveaxis(rows >= np.uint64(int(rate * 2**32)), -1, 0)


def _check_task(task) -> None:
    missing = [name for name in ("vocab_size", "vocabulary", "sample", "labels") if not hasattr(task, name)]
    if missing or not is_dataclass(task) or isinstance(task, type):
        why = f"has no {', '.join(missing)}" if missing else "is no dataclass instance"
        raise ValueError(f"task={task!r} {why}; give a task object such as MultiKeyRecall(8, 2, skip_first=True)")


def _check_integer(name: str, value, low: int, high: int | None = None) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        raise ValueError(f"{name} must be an integer {f'>= {low}' if high is None else f'in {low}..{high}'}, got {value!r}")


def _plain(value):
    return value.item() if isinstance(value, np.generic) else value
