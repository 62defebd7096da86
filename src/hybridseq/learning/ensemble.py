"""Many replicas of one architecture, trained together in stacked torch tensors.

The replicas differ in seed and learning rate and share everything else. Their parameters are the rows of one buffer (E, P); every
matrix of the stack is a view (E, rows, columns) of it, so that a layer of all replicas is one batched product, the gradient is
one tensor (E, P), and clipping and AdamW are a few operations on (E, P) with learning rates (E, 1). A row never meets another
row: a replica that diverges to NaN leaves the others as they are.

Each replica computes what `hybridseq.learning.plain` computes, on the same batches and dropout masks, with one rearrangement.
Attention and MLP of a transformer layer normalise the same x, so x is normalised once and the norms' weights are folded into the
matrices behind them: W (w * n + b) + c = (W diag(w)) n + (W b + c). RMSNorm and the last norm likewise. The gradient is
autograd's, but for the scan (`stacked_scan`); writing it out for attention and convolution too gained less than 10 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hybridseq.learning.batches import DATA, EVALUATION_BATCHES, Framed, dropout_words
from hybridseq.learning.modules import NORM_EPS
from hybridseq.learning.recipe import Outcome, Recipe, Run
from hybridseq.learning.stack import Stack
from hybridseq.learning.stacked_scan import StackedScan
from hybridseq.learning.torch_settings import one_quiet_thread
from hybridseq.rng import Generator

BACKEND = "ensemble"
LAYERS = ("TF", "SSM")
"""Layers with a stacked form."""
DTYPES = {"float32": torch.float32, "float64": torch.float64}
SOFTPLUS_LINEAR = 50
"""Beyond it log(1 + exp x) equals x in both precisions; torch's own bound of 20 is 2e-9 off in float64."""

Parameters = dict[str, Tensor]


def supports(stack: Stack) -> str | None:
    """Why the ensemble cannot train this stack, in words; None if it can.

    Example:
        >>> supports(Stack.parse("GDN-TF", width=8, vocab_size=11))
        'the ensemble has no stacked form of GDN, only of TF and SSM'
    """
    missing = sorted(set(stack.layers) - set(LAYERS))
    return f"the ensemble has no stacked form of {', '.join(missing)}, only of {' and '.join(LAYERS)}" if missing else None


@dataclass(frozen=True)
class StackedDecoder:
    """The forward pass of E replicas of `stack` on sequences of `seq_len` tokens, in one of `DTYPES`.

    Raises:
        ValueError: a stack that `supports` refuses, an unknown dtype.
    """

    stack: Stack
    seq_len: int
    dtype: str = "float32"

    def __post_init__(self):
        reason = supports(self.stack)
        if reason:
            raise ValueError(f"stack={self.stack.name}: {reason}; train it with backend='plain'")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype={self.dtype!r}: must be one of {', '.join(DTYPES)}")

    @property
    def torch_dtype(self) -> torch.dtype:
        """`dtype` as torch has it."""
        return DTYPES[self.dtype]

    # ------------------------------------------------------------------------------------------------- loss and logits

    def losses(self, flat: Tensor, tokens: Tensor, labels: Tensor, keep: Tensor | None = None) -> Tensor:
        """(E,): mean cross-entropy over the valid positions of each replica's batch, NaN if it has none."""
        logits = self.logits(flat, tokens, keep)
        valid = labels >= 0
        chosen = logits.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        cost = torch.where(valid, torch.logsumexp(logits, -1) - chosen, 0.0)
        return cost.sum((1, 2)) / valid.sum((1, 2))

    def logits(self, flat: Tensor, tokens: Tensor, keep: Tensor | None = None) -> Tensor:
        """(E, batch, seq_len, vocab_size) for parameters (E, size), tokens and factors `keep` (E, batch, seq_len[, width])."""
        p, replicas, d = self.stack.unpack(flat), len(flat), self.stack.width
        x = self._embed(p["embedding"], tokens, keep)
        for i, letters in enumerate(self.stack.layers):
            own = {name.split(".", 1)[1]: view for name, view in p.items() if name.startswith(f"{i}.")}
            x = (self._transformer if letters == "TF" else self._mamba)(own, x)
        out = p["embedding"] if self.stack.tied else p["unembedding.weight"]
        n = F.layer_norm(x, (d,), eps=NORM_EPS)
        flat_logits = _linear(n, out * p["norm.weight"].unsqueeze(1), _product(out, p["norm.bias"]))
        return flat_logits.view(replicas, *tokens.shape[1:], -1)

    def _embed(self, table: Tensor, tokens: Tensor, keep: Tensor | None) -> Tensor:
        replicas, vocab_size, d = table.shape
        rows = tokens + vocab_size * torch.arange(replicas).view(-1, 1, 1)
        x = F.embedding(rows, table.reshape(-1, d))
        return (x if keep is None else x * keep).view(replicas, -1, d)

    # ------------------------------------------------------------------------------------------------------ transformer

    def _transformer(self, p: Parameters, x: Tensor) -> Tensor:
        """x + dense(attention(norm1 x)) + down(silu(up(norm2 x))), x (E, batch seq_len, width)."""
        n = F.layer_norm(x, (self.stack.width,), eps=NORM_EPS)
        qkv_map = _behind_norm(p["qkv.weight"], p["qkv.bias"], p["norm1.weight"], p["norm1.bias"])
        up_map = _behind_norm(p["up.weight"], p["up.bias"], p["norm2.weight"], p["norm2.bias"])
        both = _linear(n, *(torch.cat(parts, 1) for parts in zip(qkv_map, up_map, strict=True)))
        qkv, up = both.split([p["qkv.bias"].shape[1], 2 * self.stack.width], dim=-1)
        x = x + (p["dense.bias"] + p["down.bias"]).unsqueeze(1)
        x = torch.baddbmm(x, self._attention(qkv), p["dense.weight"].mT)
        return torch.baddbmm(x, F.silu(up), p["down.weight"].mT)

    def _attention(self, qkv: Tensor) -> Tensor:
        """Head outputs (E, batch seq_len, features): summed over full-width heads, side by side for split ones."""
        replicas, heads, width = len(qkv), self.stack.heads, self.stack.head_dim
        parts = qkv.view(replicas, -1, self.seq_len, 3 * heads, width)
        turned, v = self._turn(parts[..., : 2 * heads, :]), parts[..., 2 * heads :, :]
        q, k, v = (_rows_of_heads(y) for y in (turned[..., :heads, :], turned[..., heads:, :], v))
        weights = torch.softmax(torch.baddbmm(self.mask, q, k.mT, alpha=width**-0.5), -1)
        out = torch.bmm(weights, v).view(replicas, -1, heads, self.seq_len, width)
        if self.stack.head_width == "full":
            return (out.sum(2) if heads > 1 else out).view(replicas, -1, width)
        return out.transpose(2, 3).reshape(replicas, -1, heads * width)

    def _turn(self, y: Tensor) -> Tensor:
        """Rotary positions on the leading columns of y (E, batch, seq_len, heads, head width)."""
        columns = self.stack.rotary_columns
        if not columns:
            return y
        cos, sin = self.rotary_tables
        a, half = y[..., :columns], columns // 2
        swapped = torch.cat([-a[..., half:], a[..., :half]], -1)
        return torch.cat([a * cos + swapped * sin, y[..., columns:]], -1)

    @cached_property
    def rotary_tables(self) -> tuple[Tensor, Tensor]:
        """cos and sin, each (seq_len, 1, turned columns)."""
        cos, sin = (torch.as_tensor(table, dtype=self.torch_dtype) for table in self.stack.rotary_tables(self.seq_len))
        return cos.unsqueeze(1), sin.unsqueeze(1)

    @cached_property
    def mask(self) -> Tensor:
        """(seq_len, seq_len): 0 where a query (row) sees a key (column), itself and the window before it; else -inf."""
        age = torch.arange(self.seq_len)[:, None] - torch.arange(self.seq_len)
        hidden = (age < 0) | (age >= (self.stack.window or self.seq_len))
        return torch.zeros(age.shape, dtype=self.torch_dtype).masked_fill(hidden, -torch.inf)

    # ------------------------------------------------------------------------------------------------------------ mamba

    def _mamba(self, p: Parameters, x: Tensor) -> Tensor:
        """x + out_proj(y silu(z)), y the gated selective scan; x (E, batch seq_len, width)."""
        channels, rank, n = self.stack.channels, self.stack.dt_rank, self.stack.state_dim
        normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + NORM_EPS)
        u, z = torch.bmm(normed, (p["in_proj.weight"] * p["norm.weight"].unsqueeze(1)).mT).split(channels, dim=-1)
        if self.stack.convolution:
            u = F.silu(_convolve(self._by_time(u), p["conv.weight"], p["conv.bias"])).flatten(1, 2)
        low, b, c = torch.bmm(u, p["x_proj.weight"].mT).split([rank, n, n], dim=-1)
        delta = F.softplus(_linear(low, p["dt_proj.weight"], p["dt_proj.bias"]), threshold=SOFTPLUS_LINEAR)
        a = -p["A_log"].exp().mT.contiguous()
        y = StackedScan.apply(self._by_time(delta), self._by_time(u), a, self._by_time(b), self._by_time(c)).flatten(1, 2)
        gated = torch.addcmul(y, u, p["D"].unsqueeze(1)) * F.silu(z)
        return torch.baddbmm(x, gated, p["out_proj.weight"].mT)

    def _by_time(self, y: Tensor) -> Tensor:
        """(E, batch seq_len, features) to (E, batch, seq_len, features)."""
        return y.unflatten(1, (-1, self.seq_len))


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W^T + b for x (E, rows, in), weight (E, out, in), bias (E, out)."""
    return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)


def _behind_norm(weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Weight and bias of W (scale * n + shift) + bias as a map of n, the normalised vector itself."""
    return weight * scale.unsqueeze(1), bias + _product(weight, shift)


def _product(weight: Tensor, vector: Tensor) -> Tensor:
    """W b (E, out) for weight (E, out, in), vector (E, in)."""
    return torch.bmm(weight, vector.unsqueeze(2)).squeeze(2)


def _rows_of_heads(y: Tensor) -> Tensor:
    """(E, batch, seq_len, heads, width) to (E batch heads, seq_len, width)."""
    return y.transpose(2, 3).flatten(0, 2)


def _convolve(u: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Causal depthwise convolution of u (E, batch, seq_len, channels); weight (E, channels, 4), last column = current token."""
    width, seq_len = weight.shape[-1], u.shape[2]
    padded = F.pad(u, (0, 0, width - 1, 0))
    out = bias[:, None, None]
    for j in range(width):
        out = torch.addcmul(out, padded[:, :, j : j + seq_len], weight[:, None, None, :, j])
    return out


# ------------------------------------------------------------------------------------------------------------- functions


def loss_and_gradient(stack: Stack, flat: np.ndarray, tokens, labels, keep=None):
    """Mean loss of a batch and its gradient, of one replica or of many, in the precision of `flat` (float32 or float64).

    Args:
        flat: (size,), or (E, size). tokens, labels: integers (batch, seq_len), or (E, batch, seq_len); labels below 0 are
            masked. keep: dropout's factors (..., batch, seq_len, width), 0 or 1 / (1 - p); None is no dropout.

    Returns:
        (loss, gradient): a float and (size,), or (E,) and (E, size), ndarrays.

    Raises:
        ValueError: what `StackedDecoder` refuses, shapes or values that do not fit, all labels of a replica masked.
    """
    flat, tokens, labels = np.asarray(flat), np.asarray(tokens), np.asarray(labels)
    single = flat.ndim == 1
    if flat.ndim not in (1, 2) or flat.shape[-1] != stack.size:
        raise ValueError(f"flat: needs shape ({stack.size},) or (replicas, {stack.size}), got {flat.shape}")
    if single:
        flat, tokens, labels = flat[None], tokens[None], labels[None]
    _check_batch(stack, len(flat), tokens, labels)
    decoder = StackedDecoder(stack, tokens.shape[-1], str(flat.dtype))
    factors = None if keep is None else torch.as_tensor(_checked_factors(keep, single, (*tokens.shape, stack.width)))
    rows = torch.tensor(flat).requires_grad_()
    with one_quiet_thread():
        losses = decoder.losses(rows, *_integers(tokens, labels), None if factors is None else factors.to(rows.dtype))
        (gradient,) = torch.autograd.grad(losses.sum(), rows)
    loss, gradient = losses.detach().numpy(), gradient.numpy()
    return (float(loss[0]), gradient[0]) if single else (loss, gradient)


def _check_batch(stack: Stack, replicas: int, tokens: np.ndarray, labels: np.ndarray) -> None:
    """Raise ValueError unless tokens and labels are (replicas, batch, seq_len) of this vocabulary, each with a valid label."""
    if tokens.ndim != 3 or tokens.shape != labels.shape or len(tokens) != replicas or 0 in tokens.shape:
        raise ValueError(
            f"tokens, labels: need one shape (batch, seq_len), behind {replicas} replicas where flat has two axes; "
            f"got {tokens.shape} and {labels.shape}"
        )
    for name, array in (("tokens", tokens), ("labels", labels)):
        if array.dtype.kind not in "iu":
            raise ValueError(f"{name}: needs integers, got {array.dtype}")
        if array.max() >= stack.vocab_size:
            raise ValueError(f"{name}: found {array.max()}, but this model knows 0..{stack.vocab_size - 1}")
    if tokens.min() < 0:
        raise ValueError(f"tokens: found {tokens.min()}, but this model knows 0..{stack.vocab_size - 1}")
    if not (labels >= 0).any((1, 2)).all():
        raise ValueError("labels: all of a replica are masked (< 0), so there is no mean loss; use longer sequences")


def _checked_factors(keep, single: bool, shape: tuple[int, ...]) -> np.ndarray:
    keep = np.asarray(keep)[None] if single else np.asarray(keep)
    if keep.dtype == bool:
        raise ValueError("keep: booleans do not say the dropout rate; give factors, keep / (1 - rate)")
    if keep.shape != shape:
        raise ValueError(f"keep: needs shape {shape[1:] if single else shape}, got {keep.shape[1:] if single else keep.shape}")
    return keep


def _integers(*arrays: np.ndarray) -> list[Tensor]:
    return [torch.as_tensor(array, dtype=torch.int64) for array in arrays]


def evaluate(stack: Stack, flat: np.ndarray, framed: Framed, batches: int = EVALUATION_BATCHES):
    """(correct, valid) over the first `batches` held-out batches of 8 sequences, without dropout, in the precision of `flat`.

    A position is correct when its label's logit is larger than every other; a comparison with NaN is false, so NaN never scores.

    Args:
        flat: (size,) of one replica, or (E, size).

    Returns:
        Two integers; for many replicas `correct` is an array (E,), and `valid` is the same for all.

    Raises:
        ValueError: a vocabulary that differs from the task's, batches out of 1..128.
    """
    flat = np.asarray(flat)
    if stack.vocab_size != framed.vocab_size:
        raise ValueError(f"stack: vocab_size={stack.vocab_size}, but the framed task has {framed.vocab_size} tokens")
    if not 1 <= batches <= EVALUATION_BATCHES:
        raise ValueError(f"batches={batches}: must lie in 1..{EVALUATION_BATCHES}")
    rows = torch.tensor(np.atleast_2d(flat))
    decoder, valid = StackedDecoder(stack, framed.seq_len, str(flat.dtype)), 0
    correct = torch.zeros(len(rows), dtype=torch.int64)
    with one_quiet_thread(), torch.no_grad():
        for index in range(batches):
            tokens, labels = (y.expand(len(rows), -1, -1) for y in _integers(*framed.evaluation_batch(index)))
            correct += correct_positions(decoder.logits(rows, tokens), labels).sum((1, 2))
            valid += int((labels[0] >= 0).sum())
    return (int(correct[0]), valid) if flat.ndim == 1 else (correct.numpy(), valid)


def correct_positions(logits: Tensor, labels: Tensor) -> Tensor:
    """Where a label >= 0 has the strictly largest logit: bool, the shape of `labels`; logits have one axis more.

    Example:
        >>> logits = torch.tensor([[1.0, 0.0], [1.0, 1.0], [torch.nan, 0.0], [1.0, torch.nan]])
        >>> correct_positions(logits, torch.tensor([0, 0, 0, 0])).tolist()
        [True, False, False, False]
    """
    index = labels.clamp(min=0).unsqueeze(-1)
    others = logits.scatter(-1, index, -torch.inf).amax(-1)
    return (labels >= 0) & (logits.gather(-1, index).squeeze(-1) > others)


@dataclass
class AdamW:
    """AdamW on rows (E, P), after the gradient of each row is clipped to a norm; decay acts on every parameter.

    The update is written out in `hybridseq.learning.plain`.
    """

    recipe: Recipe
    rows: Tensor

    def __post_init__(self):
        self.mean, self.square, self.count = torch.zeros_like(self.rows), torch.zeros_like(self.rows), 0

    def step(self, gradient: Tensor, rates: Tensor) -> None:
        """One update of the rows in place, with learning rates (E, 1)."""
        recipe, (beta1, beta2) = self.recipe, self.recipe.betas
        self.count += 1
        norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
        gradient = gradient * (recipe.clip / (norm + 1e-6)).clamp(max=1.0)
        self.mean.lerp_(gradient, 1 - beta1)
        self.square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        deviation = (self.square / (1 - beta2**self.count)).sqrt_().add_(recipe.eps)
        self.rows.mul_(1 - rates * recipe.weight_decay)
        self.rows.sub_(self.mean / deviation * (rates / (1 - beta1**self.count)))


def train(
    run: Run,
    parameters: np.ndarray | None = None,
    steps: int | None = None,
    record: Callable[[int, float], None] | None = None,
    *,
    dtype: str = "float32",
) -> Outcome:
    """One run as an ensemble of one; arguments as in `hybridseq.learning.plain.train`."""
    start = None if parameters is None else np.asarray(parameters)[None]
    watch = None if record is None else lambda step, losses: record(step, float(losses[0]))
    return train_together([run], start, steps, watch, dtype=dtype)[0]


def train_together(
    runs: Sequence[Run],
    parameters: np.ndarray | None = None,
    steps: int | None = None,
    record: Callable[[int, np.ndarray], None] | None = None,
    *,
    dtype: str = "float32",
) -> list[Outcome]:
    """Runs that differ in seed and learning rate alone, side by side; each ends as it would alone.

    Args:
        runs: one or more. About 11 make good use of a core; more are no faster, and take 1 to 20 MiB each.
        parameters: (E, size) to start from; None for each run's initial values.
        steps: how many updates, 0..recipe.steps; None means all. The schedule stays the recipe's.
        record: called as record(step, losses (E,)) after each update. dtype: "float32" or "float64".

    Returns:
        Outcomes in the order of the runs; `seconds` is the wall time divided by the number of runs.

    Raises:
        ValueError: runs that differ in stack, task or recipe, what `StackedDecoder` refuses, parameters of the wrong shape,
            steps out of range.
    """
    started, runs = perf_counter(), list(runs)
    shared = _shared(runs)
    recipe, stack = shared.recipe, shared.stack
    decoder = StackedDecoder(stack, shared.task.seq_len, dtype)
    start = np.stack([stack.initial(run.seed) for run in runs]) if parameters is None else np.asarray(parameters)
    if start.shape != (len(runs), stack.size):
        raise ValueError(f"parameters: needs shape ({len(runs)}, {stack.size}), got {start.shape}")
    steps = recipe.steps if steps is None else steps
    if not 0 <= steps <= recipe.steps:
        raise ValueError(f"steps={steps}: must lie in 0..{recipe.steps}, the steps of the recipe")
    optimiser = AdamW(recipe, torch.tensor(start, dtype=decoder.torch_dtype))
    history = np.zeros((len(runs), steps))
    with one_quiet_thread():
        for i in range(steps):
            history[:, i] = train_step(decoder, optimiser, runs, i)
            if record is not None:
                record(i, history[:, i].copy())
        flat = optimiser.rows.numpy()
        correct, valid = evaluate(stack, flat, shared.task)
    seconds = (perf_counter() - started) / len(runs)
    return [
        Outcome(flat[e].copy(), history[e], int(correct[e]), valid, int(correct[e]) / valid, seconds, BACKEND)
        for e in range(len(runs))
    ]


def train_step(decoder: StackedDecoder, optimiser: AdamW, runs: Sequence[Run], step: int) -> np.ndarray:
    """Update number `step` of all replicas in place; their losses (E,)."""
    recipe, dtype = optimiser.recipe, decoder.torch_dtype
    tokens, labels = _training_batches(runs, step)
    _check_batch(decoder.stack, len(runs), tokens, labels)
    keep = _dropout_factors(runs, step, dtype) if recipe.dropout else None
    rows = optimiser.rows.detach().requires_grad_()
    losses = decoder.losses(rows, *_integers(tokens, labels), keep)
    (gradient,) = torch.autograd.grad(losses.sum(), rows)
    rates = torch.tensor([[recipe.learning_rate(run.learning_rate, step)] for run in runs], dtype=dtype)
    optimiser.step(gradient, rates)
    return losses.detach().numpy()


def _training_batches(runs: Sequence[Run], step: int) -> list[np.ndarray]:
    """Tokens and labels (E, batch, seq_len): each run's `training_batch`, framed and labelled in one call for all."""
    framed, batch = runs[0].task, runs[0].recipe.batch
    options = {} if framed.density is None else {"density": framed.density}
    places = [Generator(run.seed).at(DATA, step) for run in runs]
    content = [framed.task.sample(batch, framed.content_len, place, **options) for place in places]
    return [rows.reshape(len(runs), batch, -1) for rows in framed.frame(np.concatenate(content))]


def _dropout_factors(runs: Sequence[Run], step: int, dtype: torch.dtype) -> Tensor:
    """(E, batch, seq_len, width): each run's `dropout_factors`; the words' halves are read in place, as 32-bit integers."""
    rate, batch, width, seq_len = runs[0].recipe.dropout, runs[0].recipe.batch, runs[0].stack.width, runs[0].task.seq_len
    words = np.stack([dropout_words(run.seed, step, seq_len, width, batch) for run in runs])
    halves = words.astype("<u8", copy=False).view("<u4")[..., :batch]
    kept = torch.from_numpy(halves >= np.uint32(int(rate * 2**32)))
    return kept.movedim(-1, 1).contiguous().to(dtype).mul_(1 / (1 - rate))


def _shared(runs: list[Run]) -> Run:
    """The first run, after a check that all agree with it but for seed and learning rate."""
    if not runs:
        raise ValueError("runs: needs one run or more")
    first = runs[0]
    for run in runs:
        if replace(run, seed=first.seed, learning_rate=first.learning_rate).config != first.config:
            raise ValueError(f"runs: seed {run.seed} differs from the first in stack, task or recipe; train it apart")
    return first
