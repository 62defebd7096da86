"""What a trained model does inside: probes of its states, where its attention looks, and what happens when one value is swapped.

Everything here reads a `Trace` or runs the decoder again with a tap, so the numbers come from the computation that makes the
logits. A probe shows that something *can be read* from a value; an intervention shows that the rest of the model *uses* it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np
import torch
from torch import Tensor

from hybridseq.learning.batches import Framed
from hybridseq.learning.modules import Decoder, Trace
from hybridseq.mixers import SelectiveInputs, SelectiveScan
from hybridseq.rng import Generator
from hybridseq.tasks.multi_key_recall import MultiKeyRecall
from hybridseq.tasks.selective_copying import COUNT_FROM, MASKED, SelectiveCopying

# where the right answer stands


def sources(framed: Framed, tokens) -> np.ndarray:
    """Row position of the token that each position has to repeat, -1 where there is no label: int64 (batch, seq_len).

    Raises:
        ValueError: another task than selective copying or multi-key recall, rows of another length.

    Example:
        >>> framed = Framed(SelectiveCopying(2, 2, count_from="current"), seq_len=6, marked=True)
        >>> sources(framed, framed.frame([[2, 1, 3, 3]])[0]).tolist()
        [[-1, -1, 1, 2, 3, -1]]
    """
    tokens = _rows(framed, tokens)
    content, task = tokens[:, framed.content], framed.task
    if isinstance(task, MultiKeyRecall):
        found = task.sources(content)
    elif isinstance(task, SelectiveCopying):
        found = _copied_from(task, task.last_numbers(content))
    else:
        raise ValueError(f"task={type(task).__name__}: sources are known for SelectiveCopying and MultiKeyRecall")
    return _framed(framed, tokens, np.where(found >= 0, found + framed.content.start, MASKED))


def last_numbers(framed: Framed, tokens) -> np.ndarray:
    """The number that selective copying goes by at each position: value of the last number token, 0 outside the content.

    Raises:
        ValueError: another task, rows of another length.
    """
    tokens = _rows(framed, tokens)
    _copying(framed)
    result = np.zeros(tokens.shape, dtype=np.int64)
    result[:, framed.content] = framed.task.last_numbers(tokens[:, framed.content])
    return result


def since_last_number(framed: Framed, tokens) -> np.ndarray:
    """How many tokens ago the last number stood, 0 at a number itself, -1 where there is none: int64 (batch, seq_len).

    Raises:
        ValueError: another task than selective copying, rows of another length.
    """
    tokens, task = _rows(framed, tokens), _copying(framed)
    content = tokens[:, framed.content]
    position = np.arange(content.shape[1])
    latest = np.maximum.accumulate(np.where(content < task.num_numbers, position, MASKED), axis=1)
    return _framed(framed, tokens, np.where(latest >= 0, position - latest, MASKED))


def labels_under(framed: Framed, tokens, number, position: int) -> np.ndarray:
    """Labels of selective copying if `number` were the last number at `position`: what a model that believes it would answer.

    Args:
        tokens: rows (batch, seq_len). number: the value believed, an integer or one a row (batch,).
        position: row position, inside the content, from which it is believed.

    Returns:
        (batch, seq_len): labels from `position` up to the next number token behind it; -1 elsewhere.

    Raises:
        ValueError: another task, a position outside the content.
    """
    tokens, task = _rows(framed, tokens), _copying(framed)
    start, stop = framed.content.start, framed.content.stop
    if not start <= position < stop:
        raise ValueError(f"position={position}: must lie in the content, {start}..{stop - 1}")
    content, here = tokens[:, framed.content], position - start
    number = np.broadcast_to(np.asarray(number)[..., None], content.shape)
    source = _copied_from(task, number)
    answers = np.take_along_axis(content, np.maximum(source, 0), axis=1)
    later = np.arange(content.shape[1]) > here
    fresh = np.maximum.accumulate(later & (content < task.num_numbers), axis=1)
    believed = (np.arange(content.shape[1]) >= here) & ~fresh & (source >= 0)
    return _framed(framed, tokens, np.where(believed, answers, MASKED))


def _copied_from(task: SelectiveCopying, number) -> np.ndarray:
    """Content position that `number` (..., content_len) points at from each position; -1 where there is none."""
    source = np.arange(number.shape[-1]) + COUNT_FROM[task.count_from] - number
    return np.where((number > 0) & (source >= 0), source, MASKED)


def _rows(framed: Framed, tokens) -> np.ndarray:
    tokens = np.asarray(tokens)
    if tokens.ndim != 2 or tokens.shape[1] != framed.seq_len:
        raise ValueError(f"tokens: needs rows (batch, {framed.seq_len}), got shape {tokens.shape}")
    return tokens


def _copying(framed: Framed) -> SelectiveCopying:
    if not isinstance(framed.task, SelectiveCopying):
        raise ValueError(f"task={type(framed.task).__name__}: only SelectiveCopying goes by numbers")
    return framed.task


def _framed(framed: Framed, tokens: np.ndarray, content: np.ndarray) -> np.ndarray:
    result = np.full(tokens.shape, MASKED, dtype=np.int64)
    result[:, framed.content] = content
    return result


# what can be read


@dataclass(frozen=True, eq=False)
class Probe:
    """A linear map from a value inside a model to one of a few answers, and how well it does on sequences it was not fitted to.

    Args:
        classes: the answers (classes,). weights, bias: (features, classes), (classes,), for standardised features.
        centre, scale: (features,), of the fitted part. train_accuracy, test_accuracy: shares of right answers.
        baseline: share of right answers on the test part when always giving the fitted part's most frequent answer.
        test: bool (samples,), which samples were held out.
    """

    classes: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    centre: np.ndarray
    scale: np.ndarray
    train_accuracy: float
    test_accuracy: float
    baseline: float
    test: np.ndarray

    def scores(self, features) -> np.ndarray:
        """One number a class, (samples, classes)."""
        x = _matrix(features)
        if x.shape[1] != len(self.centre):
            raise ValueError(f"features: {x.shape[1]} a sample, but the probe was fitted to {len(self.centre)}")
        return (x - self.centre) / self.scale @ self.weights + self.bias

    def predict(self, features) -> np.ndarray:
        """The answer with the largest score, (samples,)."""
        return self.classes[self.scores(features).argmax(axis=1)]


def probe(features, labels, *, groups=None, test_share: float = 0.5, penalty: float = 1e-3, seed: int = 0) -> Probe:
    """Fit a linear probe by ridge regression on the answers, one against the rest, and test it on held-out groups.

    With X the standardised features of the fitted samples and Y their answers as indicators minus their means, the weights are
    W = (X^T X / n + penalty I)^-1 X^T Y / n.

    Args:
        features: (samples, ...), array or tensor; further axes are flattened, so a state needs no reshaping.
        labels: integers (samples,).
        groups: integers (samples,), samples of one group stay together (the row of a position, say); None: each by itself.
        test_share: share of the groups that is held out. penalty: > 0. seed: which groups are held out.

    Raises:
        ValueError: lengths that differ, fewer than two groups or answers, NaN or infinite features, numbers out of range.

    Example:
        >>> x = np.random.default_rng(0).standard_normal((200, 5))
        >>> probe(x, x[:, 2] > 0).test_accuracy > 0.9
        True
    """
    x, y = _matrix(features), np.asarray(labels)
    groups = np.arange(len(x)) if groups is None else np.asarray(groups)
    if y.shape != (len(x),) or groups.shape != (len(x),):
        raise ValueError(f"labels, groups: need shape ({len(x)},) like the features, got {y.shape} and {groups.shape}")
    if not np.isfinite(x).all():
        raise ValueError("features: NaN or infinite entries; did the model diverge?")
    if not penalty > 0:
        raise ValueError(f"penalty={penalty!r}: must be > 0")
    classes, answer = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"labels: needs two or more different answers, got {classes.tolist()}")
    test = _held_out(groups, test_share, seed)
    fitted, indicator = x[~test], np.eye(len(classes))[answer]
    centre, spread = fitted.mean(axis=0), fitted.std(axis=0)
    scale = np.where(spread > 1e-9 * np.abs(centre), spread, 1.0)
    z, share = (fitted - centre) / scale, indicator[~test].mean(axis=0)
    gram = z.T @ z / len(z) + penalty * np.eye(z.shape[1])
    weights = np.linalg.solve(gram, z.T @ (indicator[~test] - share) / len(z))
    right = ((x - centre) / scale @ weights + share).argmax(axis=1) == answer
    baseline = float((answer[test] == share.argmax()).mean())
    accuracies = float(right[~test].mean()), float(right[test].mean())
    return Probe(classes, weights, share, centre, scale, *accuracies, baseline, test)


def _matrix(features) -> np.ndarray:
    x = features.detach().numpy() if isinstance(features, Tensor) else np.asarray(features)
    if x.ndim < 2 or not len(x):
        raise ValueError(f"features: needs shape (samples, ...) with samples >= 1, got {x.shape}")
    return x.reshape(len(x), prod(x.shape[1:])).astype(np.float64)


def _held_out(groups: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Which samples belong to the held-out groups; at least one group on each side."""
    names = np.unique(groups)
    if not 0 < share < 1:
        raise ValueError(f"test_share={share!r}: must lie between 0 and 1")
    if len(names) < 2:
        raise ValueError("groups: needs two or more, since whole groups are held out")
    count = min(max(1, round(share * len(names))), len(names) - 1)
    return np.isin(groups, names[Generator(seed).permutation(len(names))[:count]])


# where attention looks


@dataclass(frozen=True, eq=False)
class AttentionOnTarget:
    """How much of the attention of the queries that have a target falls on it.

    Args:
        mass: mean weight on the target, by head (heads,). first: share of queries whose largest weight is on it (heads,).
        uniform: mean weight that a query would give its target if it looked at all visible positions alike.
        queries: how many queries have a target that they can see; unseen: how many have one that the window hides.
        each: weight on the target (batch, heads, seq_len), NaN where there is none.
    """

    mass: np.ndarray
    first: np.ndarray
    uniform: float
    queries: int
    unseen: int
    each: np.ndarray


def attention_on_target(trace: Trace, targets, layer: int | None = None) -> AttentionOnTarget:
    """Attention weight of each query on the position it ought to look at.

    Args:
        trace: of a stack with a TF layer. targets: row positions (batch, seq_len), -1 for none, such as `sources`.
        layer: which TF layer; may be left out if there is only one.

    Raises:
        ValueError: no such layer, targets of another shape or beyond the query, no query with a target it can see.
    """
    attention = trace.attention(_attention_layer(trace, layer)).numpy()
    batch, _, seq_len, _ = attention.shape
    targets = np.asarray(targets)
    if targets.shape != (batch, seq_len):
        raise ValueError(f"targets: needs shape {(batch, seq_len)}, got {targets.shape}")
    position = np.arange(seq_len)
    if (targets > position).any() or (targets < MASKED).any():
        raise ValueError("targets: must lie in 0..query, or be -1 for none; attention cannot look ahead")
    window = trace.stack.window or seq_len
    seen = (targets >= 0) & (position - targets < window)
    if not seen.any():
        raise ValueError("targets: no query has a target that it can see")
    weights = np.take_along_axis(attention, np.maximum(targets, 0)[:, None, :, None], axis=-1)[..., 0]
    each = np.where(seen[:, None], weights, np.nan)
    top = attention.argmax(axis=-1) == targets[:, None]
    visible = np.broadcast_to(np.minimum(position + 1, window), seen.shape)[seen]
    return AttentionOnTarget(
        mass=np.nanmean(each, axis=(0, 2)),
        first=(top & seen[:, None]).sum(axis=(0, 2)) / seen.sum(),
        uniform=float((1 / visible).mean()),
        queries=int(seen.sum()),
        unseen=int((targets >= 0).sum() - seen.sum()),
        each=each,
    )


def attention_by_distance(trace: Trace, groups, layer: int | None = None) -> dict[int, np.ndarray]:
    """Mean attention weight by distance back, for each group of queries: {group: (heads, seq_len)}.

    Args:
        groups: integers (batch, seq_len); queries with the same number are averaged, those below 0 left out. With
            `last_numbers` the rows of a model that copies are peaked at the number itself.

    Raises:
        ValueError: no such layer, groups of another shape.
    """
    attention = trace.attention(_attention_layer(trace, layer)).numpy()
    batch, _, seq_len, _ = attention.shape
    groups = np.asarray(groups)
    if groups.shape != (batch, seq_len):
        raise ValueError(f"groups: needs shape {(batch, seq_len)}, got {groups.shape}")
    query, back = np.indices((seq_len, seq_len))
    key = query - back
    moved = np.where(key >= 0, np.take_along_axis(attention, np.maximum(key, 0)[None, None], axis=-1), 0.0)
    return {int(g): moved.transpose(0, 2, 1, 3)[groups == g].mean(axis=0) for g in np.unique(groups[groups >= 0])}


def _attention_layer(trace: Trace, layer: int | None) -> int:
    found = [i for i, letters in enumerate(trace.stack.layers) if letters == "TF"]
    if layer is None and len(found) == 1:
        return found[0]
    if layer not in found:
        raise ValueError(f"layer={layer}: {trace.stack.name} has attention in {', '.join(map(str, found)) or 'no layer'}")
    return layer


# what is used


@dataclass(frozen=True, eq=False)
class Patch:
    """A tap that hands back other values at some positions in time.

    Args:
        values: by name, laid out as in a `Trace`; a batch of one serves every row.
        positions: at which positions (of the queries, for attention); None means all. A recurrent state is replaced *after* the
            token at that position, so the read of that token already sees the new one.
    """

    values: Mapping[str, Tensor]
    positions: Collection[int] | None = None
    used: set[str] = field(default_factory=set, repr=False)

    def __call__(self, name: str, value: Tensor, step: int | None = None) -> Tensor:
        if name not in self.values:
            return value
        self.used.add(name)
        new = self.values[name].to(value.dtype)
        if step is not None:
            return new[:, step].expand_as(value) if self.positions is None or step in self.positions else value
        if self.positions is None:
            return new.expand_as(value)
        axis = time_axis(name)
        at = torch.zeros(value.shape[axis], dtype=torch.bool)
        at[list(self.positions)] = True
        return torch.where(at.reshape([-1] + [1] * (value.ndim - axis - 1)), new, value)


def time_axis(name: str) -> int:
    """Axis of time of a traced value: 2 inside heads (batch, heads, seq_len, ...), 1 elsewhere."""
    return 2 if name.split(".")[-1] in ("q", "k", "v", "attention", "alpha", "beta") else 1


def run_with(decoder: Decoder, tokens, values: Mapping[str, Tensor], positions: Collection[int] | None = None) -> Trace:
    """Trace of the decoder on `tokens` with some inner values replaced.

    Raises:
        ValueError: a name that the decoder does not compute, positions beyond the rows.
    """
    seq_len = np.shape(tokens)[-1]
    if positions is not None and not all(0 <= p < seq_len for p in positions):
        raise ValueError(f"positions={sorted(positions)}: must lie in 0..{seq_len - 1}")
    patch = Patch(values, positions)
    trace = decoder.trace(tokens, tap=patch)
    if patch.used != set(values):
        raise ValueError(f"values: {', '.join(sorted(set(values) - patch.used))} is not computed by {decoder.stack.name}")
    return trace


def transplanted(
    decoder: Decoder, tokens, donor_tokens, names: Collection[str], positions: Collection[int] | None = None
) -> Trace:
    """Run `tokens`, with inner values taken from a run on `donor_tokens` at the same positions.

    Example (the recurrent state of layer 0 after position 9 comes from the other prompt; everything else is the model's own):

        transplanted(decoder, tokens, donor_tokens, {"0.state"}, {9}).logits

    Args:
        tokens, donor_tokens: integers (batch, seq_len), of one shape; row b receives from row b.
        names, positions: what is replaced, and where; None means everywhere.

    Raises:
        ValueError: shapes that differ, a name that the decoder does not compute, positions beyond the rows.
    """
    if np.shape(tokens) != np.shape(donor_tokens):
        raise ValueError(f"donor_tokens: needs shape {np.shape(tokens)}, got {np.shape(donor_tokens)}")
    return run_with(decoder, tokens, decoder.trace(donor_tokens, names=names).values, positions)


@dataclass(frozen=True, eq=False)
class StateSwap:
    """What rows answer after their recurrent state was exchanged for another prompt's (selective copying).

    Every array has a row for each pair whose two numbers differ and a column for each delay.

    Args:
        delays: positions behind the exchange (delays,); 0 is the position of the exchange itself.
        counted: bool, where the donor's number defines an answer that differs from the row's label, and no new number has come.
        follows: bool, the model answers what the donor's number points at *in the row's own text*. keeps: it gives the row's
            label.
        age, donor_age: tokens since the last number in the row and in the donor, at the exchange (rows,).
    """

    delays: np.ndarray
    counted: np.ndarray
    follows: np.ndarray
    keeps: np.ndarray
    age: np.ndarray
    donor_age: np.ndarray

    def share(self, answers: np.ndarray, rows=True) -> np.ndarray:
        """Share of `answers` (follows or keeps) among those counted, by delay, in the chosen rows; NaN where none is counted."""
        counted = self.counted & np.broadcast_to(rows, self.age.shape)[:, None]
        total = counted.sum(axis=0)
        return np.where(total, (answers & counted).sum(axis=0) / np.maximum(total, 1), np.nan)


def state_swap(
    decoder: Decoder, framed: Framed, tokens, donor_tokens, position: int, *, layer: int = 0, delays: Collection[int] = range(5)
) -> StateSwap:
    """Exchange a recurrent layer's state after `position` for a donor's and see whose number the model goes by.

    If the state carries the last number, and the rest of the model uses it, the answers are those of `labels_under` with the
    donor's number: tokens of the row itself, at another distance.

    Raises:
        ValueError: another task, a layer without a state, a position or delays outside the content, no row to compare.
    """
    tokens, donor_tokens = _rows(framed, tokens), _rows(framed, donor_tokens)
    delays = np.array(sorted(delays))
    at = position + delays
    if not len(at) or delays[0] < 0 or at[-1] >= framed.content.stop:
        raise ValueError(f"delays={delays.tolist()}: must be >= 0 and stay below position {framed.content.stop}")
    number, donor_number = (last_numbers(framed, rows)[:, position] for rows in (tokens, donor_tokens))
    rows = (number > 0) & (donor_number > 0) & (number != donor_number)
    if not rows.any():
        raise ValueError(f"donor_tokens: no row has another last number than `tokens` at position {position}")
    tokens, donor_tokens = tokens[rows], donor_tokens[rows]
    trace = transplanted(decoder, tokens, donor_tokens, {f"{layer}.state"}, {position})
    answers = trace.logits.argmax(-1).numpy()[:, at]
    expected = labels_under(framed, tokens, donor_number[rows], position)[:, at]
    own = framed.frame(tokens[:, framed.content])[1][:, at]
    age, donor_age = (since_last_number(framed, r)[:, position] for r in (tokens, donor_tokens))
    counted = (expected >= 0) & (expected != own)
    return StateSwap(delays, counted, answers == expected, answers == own, age, donor_age)


def recent_state(decoder: Decoder, trace: Trace, layer: int, kept: int) -> Tensor:
    """State of an SSM layer after each token, had it begun at zero `kept` tokens before: (batch, seq_len, channels, state_dim).

    With `run_with` it shows how far back the recurrence is needed: kept=1 leaves what the current token writes, which holds the
    last four tokens through the convolution; kept=seq_len changes nothing.

    Raises:
        ValueError: another layer than SSM, kept < 1.
    """
    stack = decoder.stack
    if not 0 <= layer < len(stack.layers) or stack.layers[layer] != "SSM":
        raise ValueError(f"layer={layer}: must be an SSM layer of {stack.name}")
    if kept < 1:
        raise ValueError(f"kept={kept}: must be >= 1")
    a = -torch.exp(decoder.weights[f"{layer}.A_log"].detach())
    core = SelectiveScan(stack.channels, stack.state_dim, a)
    u, dt, b, c = (trace[f"{layer}.{name}"] for name in ("u", "dt", "B", "C"))
    state = core.init_state(decoder.ar, tuple(u.shape[:2]))
    for back in reversed(range(min(kept, u.shape[1]))):
        # every position takes its step of `back` tokens ago; before the start there is nothing to decay and nothing to write
        state = core.step(decoder.ar, state, SelectiveInputs(*(_delayed(x, back) for x in (u, dt, b, c))))
    return state


def _delayed(x: Tensor, back: int) -> Tensor:
    """x (batch, seq_len, features) moved `back` positions later, zeros in front."""
    return torch.cat([torch.zeros_like(x[:, :back]), x[:, : x.shape[1] - back]], dim=1)


def averaged(trace: Trace, names: Collection[str]) -> dict[str, Tensor]:
    """Each value's mean over rows and positions, repeated over the positions: what `run_with` needs to silence a part.

    Raises:
        ValueError: a name that the trace does not keep.
    """
    result = {}
    for name in names:
        value, axis = trace[name], time_axis(name)
        result[name] = value.mean(dim=(0, axis), keepdim=True).expand(1, *value.shape[1:])
    return result
