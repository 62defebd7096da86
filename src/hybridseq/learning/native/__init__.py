"""The native trainer: the whole training loop of one replica in one call of C.

    train(run)                                     batches, dropout, forward, backward, AdamW, schedule, evaluation
    evaluate(stack, flat, framed)                  (correct, valid) on the held-out sequences
    loss_and_gradient(stack, flat, tokens, labels) one batch of given rows
    logits(stack, flat, tokens)                    for rows of the caller
    batch, dropout_keep                            what the C code draws, to compare with `learning.batches`

The C source stands beside this file (`step.c` says how it is laid out). It is compiled when the package is installed and a C
compiler is there; `available()` tells, `why_not()` says why not. It trains stacks of TF and SSM layers on the two tasks of paper
B's Section 5, eight sequences a batch; `supports(run)` gives the reason where it does not. Everything is tested against
`learning.plain` in float64.

While C runs, other Python threads run too: replicas in threads scale with the cores, and each gives the same bits as alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from time import perf_counter

import numpy as np

from hybridseq.learning.batches import BATCH, DATA, EVALUATION, EVALUATION_BATCHES, EVALUATION_SEED, Framed
from hybridseq.learning.native.source import LIBRARIES, source_hash
from hybridseq.learning.recipe import Outcome, Recipe, Run
from hybridseq.learning.stack import Stack
from hybridseq.tasks.multi_key_recall import MultiKeyRecall
from hybridseq.tasks.selective_copying import SelectiveCopying

__all__ = [
    "available", "batch", "dropout_keep", "evaluate", "logits", "loss_and_gradient", "supports", "train", "why_not", "work_bytes",
]  # fmt: skip

BACKEND = "native"

REBUILD = "python setup.py build_ext --inplace (in the project's folder), or pip install -e . again"
"""What compiles the C source anew."""

_KINDS = {"TF": 0, "SSM": 1}
_UNLABELLED = -1.0  # what C returns as the loss of a batch without labels
_TOGETHER = 50  # steps in one call of C when somebody listens to the losses


class _Model(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in (
            "num_layers", "width", "vocab_size", "seq_len", "len", "window", "heads", "head_dim", "state_dim", "dt_rank",
            "convolution", "rotary_columns", "tied")),
        *((name, ctypes.c_void_p) for name in ("kinds", "cos", "sin")),
    ]  # fmt: skip


class _Task(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in (
            "kind", "num_numbers", "num_words", "current", "first_number", "key_len", "skip_first", "seq_len", "content_len",
            "marked")),
        ("density", ctypes.c_double),
    ]  # fmt: skip


class _Recipe(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_double) for name in ("learning_rate", "weight_decay", "beta1", "beta2", "eps", "clip", "dropout")),
        ("seed", ctypes.c_int64), ("total", ctypes.c_int32), ("warm_up", ctypes.c_int32),
    ]  # fmt: skip


_POINTER, _INT, _LONG, _REAL = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_double
_FUNCTIONS = {  # name without its prefix: (result, arguments)
    "source": (ctypes.c_char_p, []),
    "real_bytes": (_INT, []),
    "processor": (_INT, []),
    "work_bytes": (_LONG, [_POINTER]),
    "size": (_LONG, [_POINTER, _POINTER]),
    "gradient": (_REAL, [_POINTER] * 7),
    "logits": (None, [_POINTER] * 5),
    "train": (None, [_POINTER] * 3 + [_LONG] * 2 + [_POINTER] * 6),
    "evaluate": (None, [_POINTER] * 2 + [_LONG] * 3 + [_POINTER] * 3),
    "batch": (None, [_POINTER] + [_LONG] * 3 + [_POINTER] * 2),
    "dropout": (None, [_LONG] * 2 + [_REAL] + [_INT] * 2 + [_POINTER]),
}


# ---------------------------------------------------------------------------------------------------------------- the library


@cache
def _load(dtype: str) -> tuple[dict[str, Callable] | None, str]:
    """The functions of one precision, or the reason why there are none."""
    path = Path(__file__).with_name(LIBRARIES[dtype])
    if not path.exists():
        return None, f"the C code has not been compiled here ({path.name} is missing); with a C compiler: {REBUILD}"
    try:
        library = ctypes.CDLL(str(path))
        functions = {}
        for name, (result, arguments) in _FUNCTIONS.items():
            functions[name] = getattr(library, f"hybridseq_{name}")
            functions[name].restype, functions[name].argtypes = result, arguments
    except (OSError, AttributeError) as error:
        return None, f"{path.name} does not load ({error}); build it again: {REBUILD}"
    if functions["source"]().decode() != source_hash():
        return None, f"{path.name} was built from another version of the source; build it again: {REBUILD}"
    if functions["real_bytes"]() != np.dtype(dtype).itemsize:
        return None, f"{path.name} was built for another precision; build it again: {REBUILD}"
    if not functions["processor"]():
        return None, "this processor lacks AVX2 or fused multiply-adds, for which the C code was compiled"
    return functions, ""


def why_not(dtype: str = "float32") -> str:
    """Why the native trainer cannot be used here; empty if it can."""
    return _load(_check_dtype(dtype))[1]


def available(dtype: str = "float32") -> bool:
    """Whether the native trainer can be used here."""
    return not why_not(dtype)


def _functions(dtype: str) -> dict[str, Callable]:
    functions, reason = _load(_check_dtype(dtype))
    if functions is None:
        raise RuntimeError(f"the native trainer is not available: {reason}")
    return functions


# ------------------------------------------------------------------------------------------------------------ what it reaches


def supports(run: Run) -> str | None:
    """None if the native trainer can train this run, else the reason why not (in words that name the option)."""
    return _unsupported_stack(run.stack) or _unsupported_task(run.task) or _unsupported_recipe(run.recipe)


def _unsupported_stack(stack: Stack) -> str | None:
    others = sorted(set(stack.layers) - set(_KINDS))
    if others:
        return f"layers {stack.name}: the native trainer has no {', '.join(others)}, only {', '.join(_KINDS)}"
    return None


def _unsupported_task(framed: Framed) -> str | None:
    if type(framed.task) not in (SelectiveCopying, MultiKeyRecall):
        return f"task {type(framed.task).__name__}: the native trainer draws SelectiveCopying and MultiKeyRecall only"
    return None


def _unsupported_recipe(recipe: Recipe) -> str | None:
    if recipe.batch != BATCH:
        return f"batch={recipe.batch}: the native trainer has eight sequences a batch, one in each lane"
    return None


def _refuse(reason: str | None) -> None:
    if reason:
        raise ValueError(f"{reason}; use the ensemble or the plain trainer")


def _check_dtype(dtype: str) -> str:
    if dtype not in LIBRARIES:
        raise ValueError(f"dtype={dtype!r}: must be one of {', '.join(LIBRARIES)}")
    return dtype


# -------------------------------------------------------------------------------------------------------- Python's data for C


class _Prepared:
    """A stack as C sees it, with the work memory of one replica; the arrays live as long as this object."""

    def __init__(self, stack: Stack, seq_len: int, dtype: str):
        _refuse(_unsupported_stack(stack))
        self.functions = _functions(dtype)
        self.dtype = np.dtype(dtype)
        length = -(-seq_len // 4) * 4  # C rounds up to whole tiles; what is added is masked
        self.kinds = np.array([_KINDS[letters] for letters in stack.layers], dtype=np.int32)
        self.cos, self.sin = (np.ascontiguousarray(table, dtype=dtype) for table in stack.rotary_tables(length))
        self.model = _Model(
            len(stack.layers), stack.width, stack.vocab_size, seq_len, length, min(stack.window or length, length), stack.heads,
            stack.head_dim, stack.state_dim, stack.dt_rank, stack.convolution, stack.rotary_columns, stack.tied,
            _address(self.kinds), _address(self.cos), _address(self.sin),
        )  # fmt: skip
        self.model_address = ctypes.addressof(self.model)
        self.bytes = self.functions["work_bytes"](self.model_address)
        self._memory = np.zeros(self.bytes + 64, dtype=np.uint8)
        self.work = _address(self._memory) + -_address(self._memory) % 64
        size = self.functions["size"](self.model_address, self.work)
        if size != stack.size:
            raise RuntimeError(f"the C code counts {size} parameters for {stack.name}, the stack {stack.size}")

    def call(self, name: str, *arguments):
        """Runs a function of C on this model; arrays are handed over by address."""
        passed = [_address(a) if isinstance(a, np.ndarray) else a for a in arguments]
        return self.functions[name](self.model_address, *passed, self.work)


def _address(array: np.ndarray) -> int:
    return array.ctypes.data


def _task(framed: Framed) -> _Task:
    _refuse(_unsupported_task(framed))
    task, density = framed.task, -1.0 if framed.density is None else float(framed.density)
    if isinstance(task, MultiKeyRecall):
        return _Task(
            1, 0, task.num_words, 0, 0, task.key_len, task.skip_first, framed.seq_len, framed.content_len, framed.marked, -1.0
        )
    current = task.count_from == "current"
    return _Task(
        0, task.num_numbers, task.num_words, current, task.first_number, 0, 0, framed.seq_len, framed.content_len, framed.marked,
        density,
    )


def _check_flat(stack: Stack, flat) -> tuple[np.ndarray, str]:
    flat = np.ascontiguousarray(flat)
    if flat.shape != (stack.size,):
        raise ValueError(f"flat: shape {flat.shape}, but {stack.name} of width {stack.width} has {stack.size} parameters")
    if flat.dtype.name not in LIBRARIES:
        raise ValueError(f"flat: dtype {flat.dtype}, must be float32 or float64")
    return flat, flat.dtype.name


def _check_rows(name: str, rows, low: int, high: int, shape: tuple | None = None) -> np.ndarray:
    rows = np.asarray(rows)
    if rows.dtype.kind not in "iu" or rows.ndim != 2 or rows.shape[0] != BATCH or (shape and rows.shape != shape):
        wanted = shape or f"({BATCH}, seq_len)"
        raise ValueError(f"{name}: needs integers of shape {wanted}, got {rows.shape} {rows.dtype}")
    if not low <= rows.min() <= rows.max() <= high:
        raise ValueError(f"{name}: values must lie in {low}..{high}, got {rows.min()}..{rows.max()}")
    return np.ascontiguousarray(rows, dtype=np.int32)


def _check_fits(stack: Stack, framed: Framed) -> None:
    if stack.vocab_size != framed.vocab_size:
        raise ValueError(f"stack: vocab_size={stack.vocab_size}, but the framed task has {framed.vocab_size} tokens")


# ----------------------------------------------------------------------------------------------------------------- the trainer


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
        record: called as record(step, loss) for each update, a few dozen updates at a time.
        dtype: "float32" or "float64" (for tests: about four times slower).

    Raises:
        ValueError: a run that `supports` refuses, parameters of another length, steps out of range, another dtype,
            a batch without any label.
        RuntimeError: the native part is not available here.
    """
    started = perf_counter()
    stack, recipe = run.stack, run.recipe
    _refuse(supports(run))
    steps = recipe.steps if steps is None else steps
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or not 0 <= steps <= recipe.steps:
        raise ValueError(f"steps={steps!r}: must lie in 0..{recipe.steps}, the steps of the recipe")
    net = _Prepared(stack, run.task.seq_len, _check_dtype(dtype))
    flat = np.array(stack.initial(run.seed) if parameters is None else parameters, dtype=dtype)
    _check_flat(stack, flat)
    task = _task(run.task)
    numbers = _Recipe(
        run.learning_rate, recipe.weight_decay, *recipe.betas, recipe.eps, recipe.clip, recipe.dropout, run.seed, recipe.total,
        recipe.warm_up,
    )  # fmt: skip
    mean, square, gradient, losses = np.zeros_like(flat), np.zeros_like(flat), np.zeros_like(flat), np.zeros(steps)
    stride = max(steps, 1) if record is None else _TOGETHER
    for first in range(0, steps, stride):
        part = losses[first : first + stride]
        net.call(
            "train", ctypes.addressof(task), ctypes.addressof(numbers), first, len(part), flat, mean, square, gradient, part
        )
        if (empty := np.flatnonzero(part == _UNLABELLED)).size:
            raise ValueError(f"labels: all of step {first + empty[0]} are masked, so there is no mean loss; use longer sequences")
        for i, loss in enumerate(part if record is not None else ()):
            record(first + i, float(loss))
    correct, valid = _evaluate(net, flat, task, EVALUATION_BATCHES)
    accuracy = correct / valid if valid else 0.0
    return Outcome(flat, losses, correct, valid, accuracy, perf_counter() - started, BACKEND)


def evaluate(stack: Stack, flat: np.ndarray, framed: Framed, batches: int = EVALUATION_BATCHES) -> tuple[int, int]:
    """(correct, valid) over the first `batches` held-out batches of 8 sequences, without dropout.

    A position is correct only if its label's logit is strictly larger than every other one.

    Raises:
        ValueError: a stack or task out of reach, a vocabulary that differs from the task's, batches out of 1..128.
    """
    _check_fits(stack, framed)
    if not 1 <= batches <= EVALUATION_BATCHES:
        raise ValueError(f"batches={batches}: must lie in 1..{EVALUATION_BATCHES}")
    flat, dtype = _check_flat(stack, flat)
    return _evaluate(_Prepared(stack, framed.seq_len, dtype), flat, _task(framed), batches)


def _evaluate(net: _Prepared, flat: np.ndarray, task: _Task, batches: int) -> tuple[int, int]:
    counts = np.zeros(2, dtype=np.int64)
    net.call("evaluate", ctypes.addressof(task), EVALUATION_SEED, 0, batches, flat, counts)
    return int(counts[0]), int(counts[1])


def loss_and_gradient(stack: Stack, flat: np.ndarray, tokens, labels, keep=None) -> tuple[float, np.ndarray]:
    """Mean loss of a batch of eight rows and its gradient (size,), in the precision of `flat` (float32 or float64).

    Args:
        tokens, labels: integers (8, seq_len); labels below 0 are masked.
        keep: factors (8, seq_len, width) under dropout, 0 or 1 / (1 - p); None is no dropout.

    Raises:
        ValueError: shapes or values that do not fit, keep as booleans (they do not say the rate), all labels masked.
    """
    flat, dtype = _check_flat(stack, flat)
    tokens = _check_rows("tokens", tokens, 0, stack.vocab_size - 1)
    labels = _check_rows("labels", np.maximum(labels, -1), -1, stack.vocab_size - 1, tokens.shape)
    if labels.max() < 0:
        raise ValueError("labels: all positions are masked, so there is no loss")
    net = _Prepared(stack, tokens.shape[1], dtype)
    gradient = np.zeros_like(flat)
    loss = net.call("gradient", flat, tokens, labels, _factors(keep, (*tokens.shape, stack.width), dtype), gradient)
    return loss, gradient


def _factors(keep, shape: tuple, dtype: str) -> np.ndarray | None:
    if keep is None:
        return None
    keep = np.asarray(keep)
    if keep.dtype == bool:
        raise ValueError("keep: booleans do not say the dropout rate; give factors, keep / (1 - rate)")
    if keep.shape != shape:
        raise ValueError(f"keep: needs shape {shape}, got {keep.shape}")
    return np.ascontiguousarray(keep, dtype=dtype)


def logits(stack: Stack, flat: np.ndarray, tokens) -> np.ndarray:
    """Logits (8, seq_len, vocab_size) of eight rows (8, seq_len), in the precision of `flat`."""
    flat, dtype = _check_flat(stack, flat)
    tokens = _check_rows("tokens", tokens, 0, stack.vocab_size - 1)
    net = _Prepared(stack, tokens.shape[1], dtype)
    found = np.zeros((*tokens.shape, stack.vocab_size), dtype=dtype)
    net.call("logits", flat, tokens, found)
    return found


# ------------------------------------------------------------------------------------------------------- what the C code draws


def batch(framed: Framed, seed: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels of a training step as the C code draws them, (8, seq_len) int64 each; equal to `framed.training_batch`."""
    return _drawn(framed, seed, DATA, step)


def evaluation_batch(framed: Framed, index: int) -> tuple[np.ndarray, np.ndarray]:
    """The held-out rows and labels as the C code draws them: `framed.evaluation_batch(index)`."""
    return _drawn(framed, EVALUATION_SEED, EVALUATION, index)


def _drawn(framed: Framed, seed: int, stream: int, counter: int) -> tuple[np.ndarray, np.ndarray]:
    task = _task(framed)
    tokens, labels = np.zeros((2, BATCH, framed.seq_len), dtype=np.int32)
    address = ctypes.addressof(task)
    _functions("float32")["batch"](address, seed, stream, counter, _address(tokens), _address(labels))
    return tokens.astype(np.int64), labels.astype(np.int64)


def dropout_keep(seed: int, step: int, seq_len: int, width: int, rate: float) -> np.ndarray:
    """Which embedding entries survive a step as the C code draws them: bool (8, seq_len, width)."""
    if not 0 <= rate < 1:
        raise ValueError(f"rate={rate!r}: must lie in [0, 1)")
    factors = np.zeros((width, seq_len, BATCH))
    aligned = np.zeros(factors.size + 8)
    place = -_address(aligned) % 64 // 8
    _functions("float64")["dropout"](seed, step, rate, seq_len, width, _address(aligned) + 8 * place)
    factors = aligned[place : place + factors.size].reshape(factors.shape)
    return np.moveaxis(factors != 0, 0, 1).transpose(2, 0, 1)


def work_bytes(stack: Stack, seq_len: int, dtype: str = "float32") -> int:
    """Bytes that one running replica takes: work memory, parameters, gradient and Adam's two moments."""
    return _Prepared(stack, seq_len, dtype).bytes + 4 * stack.size * np.dtype(dtype).itemsize
