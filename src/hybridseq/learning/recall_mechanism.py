"""How a trained model recalls by several keys: what it compares, how far back its first layer looks, which value it goes by.

The conjecture that all of this tests: the first layer writes the two words before each token into the stream beside the token
itself. A later token then asks with *its own last two words*, finds the places where the same two words stand one step earlier,
and copies the token there. In symbols, the attention score of position i for position p is large when

    x_i = x_{p-1}    and    x_{i-1} = x_{p-2},

a comparison shifted by one: an induction head for pairs. Everything is read from `Decoder.trace`, or from running the decoder
again with values exchanged between rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hybridseq.learning.batches import Framed
from hybridseq.learning.mechanism import run_with
from hybridseq.learning.modules import Decoder
from hybridseq.learning.recall_baselines import earlier_matches
from hybridseq.rng import Generator
from hybridseq.tasks.multi_key_recall import MASKED, MultiKeyRecall

__all__ = ["Coincidences", "Exchange", "ask_for_another", "coincidences", "forget_latest", "matches", "plant", "seen_through"]


# ------------------------------------------------------------------------------------------------------- what scores compare


@dataclass(frozen=True, eq=False)
class Coincidences:
    """What an attention score gains from each coincidence of two words.

    Args:
        gain: (back, back); entry [u, v] is what the score of p seen from i gains when x_{i-u} = x_{p-v}, all else equal.
        distance: what it gains for each token that p lies farther back. samples: how many scores were fitted.
    """

    gain: np.ndarray
    distance: float
    samples: int


def coincidences(decoder: Decoder, tokens, layer: int, back: int = 4, first: int = 20) -> Coincidences:
    """Fit q_i . k_p / sqrt(head width) by least squares on the indicators x_{i-u} = x_{p-v}, u, v < back, and on i - p.

    Softmax ignores what all keys of a query share, so scores and regressors are centred for each query. Only content takes
    part: queries from position `first` to the last but one of a row, keys from back + 1 to i - 1. The first head is read.

    Raises:
        ValueError: no attention in that layer, back < 1, rows too short.
    """
    tokens = np.asarray(tokens)
    if not 0 <= layer < len(decoder.stack.layers) or decoder.stack.layers[layer] != "TF":
        raise ValueError(f"layer={layer}: {decoder.stack.name} has no attention there")
    if back < 1 or tokens.shape[1] - 1 <= max(first, back + 3):
        raise ValueError(f"back={back}, first={first}: need back >= 1 and rows longer than {max(first, back + 3) + 1} tokens")
    trace = decoder.trace(tokens, {f"{layer}.q", f"{layer}.k"})
    q, k = (trace[f"{layer}.{name}"][:, 0].double().numpy() for name in "qk")
    size = back * back + 1
    gram, moment, samples = np.zeros((size, size)), np.zeros(size), 0
    for i in range(max(first, back + 3), tokens.shape[1] - 1):
        at = np.arange(back + 1, i)
        score = np.einsum("bd,bpd->bp", q[:, i], k[:, at]) / np.sqrt(q.shape[-1])
        columns = [tokens[:, [i - u]] == tokens[:, at - v] for u in range(back) for v in range(back)]
        columns.append(np.broadcast_to(i - at, score.shape))
        x = np.stack(columns, axis=-1).astype(float)
        x, score = x - x.mean(axis=1, keepdims=True), score - score.mean(axis=1, keepdims=True)
        gram += np.einsum("bpj,bpk->jk", x, x)
        moment += np.einsum("bpj,bp->j", x, score)
        samples += score.size
    fitted = np.linalg.lstsq(gram, moment, rcond=None)[0]
    return Coincidences(fitted[:-1].reshape(back, back), float(fitted[-1]), samples)


def matches(framed: Framed, tokens) -> np.ndarray:
    """`earlier_matches` at row positions: bool (batch, seq_len, seq_len), False outside the content."""
    tokens = _rows(framed, tokens)
    found = np.zeros((*tokens.shape, tokens.shape[1]), dtype=bool)
    found[:, framed.content, framed.content] = earlier_matches(framed.task, tokens[:, framed.content])
    return found


# ------------------------------------------------------------------------------------------- how far back the first layer looks


def seen_through(decoder: Decoder, tokens, name: str, span: int) -> Tensor:
    """What layer value `name`, such as "0.out", is when at each position only the last `span` tokens are read.

    With `run_with` it shows how much of the past the later layers get from there.

    Raises:
        ValueError: span < 1, a name that the decoder does not compute.
    """
    tokens = np.asarray(tokens)
    if span < 1:
        raise ValueError(f"span={span}: must be >= 1")
    span = min(span, tokens.shape[1])
    rows = []
    for row in tokens:  # all windows of a row at once; positions with less than `span` tokens before them see what there is
        windows = np.lib.stride_tricks.sliding_window_view(row, span).copy()
        ends = decoder.trace(windows, {name})[name]
        rows.append(torch.cat([ends[0, :-1], ends[:, -1]]))
    return torch.stack(rows)


# --------------------------------------------------------------------------------------------- exchanges, predicted before run


@dataclass(frozen=True, eq=False)
class Exchange:
    """Rows in which one vector of the stream was exchanged, with what was predicted from the tokens alone.

    Args:
        predicted: the answer that the conjecture gives, (rows,). label: what is right without the exchange, -1 for none.
        before, after: the model's answers without and with it. donors: (row, position) that each vector came from.
    """

    predicted: np.ndarray
    label: np.ndarray
    before: np.ndarray
    after: np.ndarray
    donors: np.ndarray

    @property
    def rows(self) -> int:
        """How many rows."""
        return len(self.predicted)

    @property
    def follows(self) -> float:
        """Share of the rows in which the model answers as predicted."""
        return float((self.after == self.predicted).mean())

    @property
    def keeps(self) -> float:
        """Share of the rows in which it still gives the label."""
        return float((self.after == self.label).mean())

    @property
    def followed_before(self) -> float:
        """Share of the rows in which it gave the predicted answer without the exchange: what chance would do."""
        return float((self.before == self.predicted).mean())


def ask_for_another(decoder: Decoder, framed: Framed, tokens, name: str, query: int, generator: Generator) -> Exchange:
    """Exchange `name` at the query for that of a place with the same last word and another word before it.

    Predicted: the model answers for that other key, from the row's own text.
    """
    return _exchange(decoder, _Rows(framed, tokens), name, query, _another_key, generator)


def forget_latest(decoder: Decoder, framed: Framed, tokens, name: str, query: int, generator: Generator) -> Exchange:
    """Exchange `name` where the answer stands for that of a place with the same token behind quite another key.

    Predicted: the model answers with the occurrence before, in rows where that one was followed by another word.
    """
    return _exchange(decoder, _Rows(framed, tokens), name, query, _other_past, generator)


def plant(decoder: Decoder, framed: Framed, tokens, name: str, query: int, generator: Generator) -> Exchange:
    """Exchange `name` at a place behind the answer, where another token follows another key, for the same token behind the key.

    Predicted: the model answers with the token at that place.
    """
    return _exchange(decoder, _Rows(framed, tokens), name, query, _planted, generator)


class _Rows:
    """Rows with, for every position, the key that ends there and the key that ended just before it."""

    def __init__(self, framed: Framed, tokens):
        self.framed, self.tokens = framed, _rows(framed, tokens)
        if framed.task.key_len != 2:
            raise ValueError(f"key_len={framed.task.key_len}: exchanges are written for keys of two words")
        content = self.tokens[:, framed.content]
        self.keys = np.full(self.tokens.shape, MASKED)
        self.keys[:, framed.content] = framed.task.keys(content)
        self.past = np.full_like(self.keys, MASKED)
        self.past[:, 1:] = self.keys[:, :-1]
        self.past[:, : framed.content.start] = self.past[:, framed.content.stop :] = MASKED
        self.matches = matches(framed, self.tokens)
        self.labels = framed.frame(content)[1]

    def answer(self, row: int, query: int, key: int) -> int:
        """The token behind the latest place before the query's own where `key` has just ended, -1 if there is none."""
        start = self.framed.content.start + 2 + self.framed.task.skip_first
        places = np.flatnonzero(self.past[row, start:query] == key)
        return int(self.tokens[row, start + places[-1]]) if len(places) else MASKED


def _another_key(rows: _Rows, row: int, query: int, draw: Generator):
    m, key = rows.framed.task.num_words, rows.keys[row, query]
    answers = {k: rows.answer(row, query, k) for k in range(key % m, m * m, m) if k != key}
    others = [k for k, answer in answers.items() if answer not in (MASKED, rows.labels[row, query])]
    if not others:
        return None
    wanted = others[draw.at(0).integers(len(others), (1,))[0]]
    return query, (rows.keys == wanted) & (rows.past != wanted), answers[wanted]  # else the query would match itself


def _other_past(rows: _Rows, row: int, query: int, draw: Generator):
    places = np.flatnonzero(rows.matches[row, query])
    if len(places) < 2 or places[-1] == query or rows.tokens[row, places[-1]] == rows.tokens[row, places[-2]]:
        return None
    m, key, at = rows.framed.task.num_words, rows.keys[row, query], places[-1]
    other = (rows.past >= 0) & (rows.past // m != key // m) & (rows.past % m != key % m)
    return at, other & (rows.tokens == rows.tokens[row, at]), int(rows.tokens[row, places[-2]])


def _planted(rows: _Rows, row: int, query: int, draw: Generator):
    key, places = rows.keys[row, query], np.flatnonzero(rows.matches[row, query])
    if not len(places):
        return None
    free = np.arange(places[-1] + 1, query - 2)
    free = free[rows.tokens[row, free] != rows.labels[row, query]]
    if not len(free):
        return None
    at = free[draw.at(0).integers(len(free), (1,))[0]]
    token = rows.tokens[row, at]
    return at, (rows.past == key) & (rows.tokens == token), int(token)


def _exchange(decoder: Decoder, rows: _Rows, name: str, query: int, plan, generator: Generator) -> Exchange:
    """Plan every row from the tokens alone, then run all rows once, each with its own exchange."""
    if not rows.framed.content.start + 5 <= query < rows.framed.content.stop:
        raise ValueError(f"query={query}: must lie in {rows.framed.content.start + 5}..{rows.framed.content.stop - 1}")
    plans = []
    for row in range(len(rows.tokens)):
        planned = plan(rows, row, query, generator.at(row))
        if planned is not None:
            at, donors, predicted = planned
            donors = np.argwhere(donors)
            donors = donors[donors[:, 0] != row]
            if len(donors):
                plans.append((row, at, *donors[generator.at(row, 1).integers(len(donors), (1,))[0]], predicted))
    if not plans:
        raise ValueError("tokens: no row allows this exchange; give more rows")
    row, at, donor_row, donor_at, predicted = np.array(plans).T
    tokens, plain = rows.tokens[row], decoder.trace(rows.tokens, {name, "logits"})
    values = plain[name].clone()[row]
    values[np.arange(len(row)), at] = plain[name][donor_row, donor_at]
    changed = run_with(decoder, tokens, {name: values})
    before, after = (np.argmax(t.logits.numpy()[:, query], axis=-1) for t in (plain, changed))
    return Exchange(predicted, rows.labels[row, query], before[row], after, np.stack([donor_row, donor_at], axis=1))


def _rows(framed: Framed, tokens) -> np.ndarray:
    tokens = np.asarray(tokens)
    if not isinstance(framed.task, MultiKeyRecall):
        raise ValueError(f"task={type(framed.task).__name__}: needs MultiKeyRecall")
    if tokens.ndim != 2 or tokens.shape[1] != framed.seq_len:
        raise ValueError(f"tokens: needs rows (batch, {framed.seq_len}), got shape {tokens.shape}")
    return tokens
