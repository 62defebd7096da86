"""What simple predictors score on multi-key recall with two words to a key: exactly where a formula reaches, else by sampling.

A model on a plateau predicts something. Which simple rule it has found can be read off its accuracy, once the rules' accuracies
are known. Sequences are independent uniform words x_0, x_1, ... of M letters; the key at i is (x_{i-1}, x_i).

**The return time.** Let D be the distance back to the latest earlier occurrence of the key at i. Read backwards, the letters are
fresh, so D is the waiting time until a word of two letters comes again. Let c_n count the words of n letters that avoid a given
pair of two different letters, and e_n those that avoid a given double letter:

    c_n = M c_{n-1} - c_{n-2},          e_n = (M - 1) (e_{n-1} + e_{n-2}),          c_0 = e_0 = 1, c_1 = e_1 = M.

For a key of two different letters P(D = d) = c_{d-2} / M^d, d >= 2. For a double letter P(D = 1) = 1 / M, P(D = 2) = 0,
P(D = 3) = (M - 1) / M^3 and P(D = d) = (M - 1)^2 e_{d-4} / M^d beyond.

**The previous word.** The answer stands at distance D - 1. For D = 1 it is x_i, and then x_i = x_{i-1}; for D = 2 it is x_{i-1}
itself. In a sequence without a beginning that gains nothing: given the key, the label is any word with probability 1 / M. In a
row with a beginning far occurrences are cut off and near ones are not. So a predictor that always says x_{i-1} is right more
often than 1 / M, although it looks nothing up, and for every key and position it is better than any other that has no more than
the key (`previous_word`, and the tests that compare both with enumeration).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hybridseq.evidence import Check
from hybridseq.tasks.multi_key_recall import MultiKeyRecall

__all__ = ["PREDICTORS", "Recall", "check_return_time", "contested", "earlier_matches", "scores"]


@dataclass(frozen=True)
class Recall:
    """Exact numbers of the task with keys of two words, over rows of `content_len` independent uniform words.

    Args:
        num_words: M >= 2. content_len: positions in a row, at least 3. skip_first: as in the task.

    Raises:
        ValueError: a number below its least value, `skip_first` other than True or False.

    Example:
        >>> Recall(8, 100, skip_first=False).defined(3), round(float(Recall(8, 100, skip_first=False).labels), 4)
        (Fraction(15, 512), 48.4519)
    """

    num_words: int
    content_len: int
    skip_first: bool

    def __post_init__(self):
        for name, least in (("num_words", 2), ("content_len", 3)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
        if not isinstance(self.skip_first, bool):
            raise ValueError(f"skip_first must be True or False, got {self.skip_first!r}")

    def returns(self, double: bool) -> list[Fraction]:
        """P(D = d) at index d, for d up to content_len, in a sequence without a beginning. double: the key is a double letter."""
        m, found = self.num_words, [Fraction(0)] * (self.content_len + 1)
        avoiding = _avoiding(m, self.content_len, double)
        if not double:
            for d in range(2, self.content_len + 1):
                found[d] = Fraction(avoiding[d - 2], m**d)
            return found
        found[1], found[3] = Fraction(1, m), Fraction(m - 1, m**3)
        for d in range(4, self.content_len + 1):
            found[d] = Fraction((m - 1) ** 2 * avoiding[d - 4], m**d)
        return found

    def return_time(self) -> list[Fraction]:
        """P(D = d) at index d, for a random key."""
        share = Fraction(1, self.num_words)
        pairs = zip(self.returns(True), self.returns(False), strict=True)
        return [share * double + (1 - share) * other for double, other in pairs]

    def farthest(self, position: int) -> int:
        """The largest D at content position `position` (from 0) that is not cut off by the beginning."""
        return max(0, position - (2 if self.skip_first else 1))

    def defined(self, position: int) -> Fraction:
        """Probability that content position `position` has a label."""
        return sum(self.return_time()[1 : self.farthest(position) + 1], Fraction(0))

    def _over_labels(self, part: list[Fraction]) -> Fraction:
        """Expected number of labels in a row, each with the share part[d] / P(D = d)."""
        counts = [0] * (self.content_len + 1)  # how many positions a distance fits into
        for position in range(self.content_len):
            for d in range(1, self.farthest(position) + 1):
                counts[d] += 1
        return sum((count * share for count, share in zip(counts, part, strict=True)), Fraction(0))

    @property
    def labels(self) -> Fraction:
        """Expected labels in a row."""
        return self._over_labels(self.return_time())

    @property
    def previous_word(self) -> Fraction:
        """Accuracy of always answering x_{i-1}, over all labels.

        Beyond D = 2 the answer is the last of d - 2 letters that avoid the key read backwards. Of c_n such words c_{n-1} end in
        any given letter, but c_{n-1} - c_{n-2} in the one that would complete the key, which is x_{i-1}.
        """
        m, double, other = self.num_words, self.returns(True), self.returns(False)
        avoiding, share = _avoiding(m, self.content_len, False), Fraction(1, m)
        right = [Fraction(0)] * (self.content_len + 1)
        right[1], right[2] = share * double[1], (1 - share) * other[2]
        for d in range(3, self.content_len + 1):
            n = d - 2
            ending = 1 if n == 1 else avoiding[n - 1] - avoiding[n - 2]
            right[d] = (1 - share) * other[d] * Fraction(ending, avoiding[n])
        return self._over_labels(right) / self.labels

    def within(self, span: int) -> Fraction:
        """Share of the labels whose earlier key lies wholly among the last `span` words: D <= span - 2."""
        near = [p if d <= span - 2 else Fraction(0) for d, p in enumerate(self.return_time())]
        return self._over_labels(near) / self.labels

    def short_memory(self, span: int) -> Fraction:
        """Accuracy of looking the key up among the last `span` words, and drawing a word at random where it is not there."""
        share = self.within(span)
        return share + (1 - share) / self.num_words


def _avoiding(num_words: int, longest: int, double: bool) -> list[int]:
    """Words of n letters, n = 0..longest, that avoid a given pair of letters: equal ones (double) or different ones."""
    counts = [1, num_words]
    while len(counts) <= longest:
        counts.append((num_words - 1) * (counts[-1] + counts[-2]) if double else num_words * counts[-1] - counts[-2])
    return counts


def check_return_time(num_words: int, seq_len: int) -> Check:
    """Compare the formula for D at the last position with every sequence of `seq_len` words.

    Raises ValueError beyond 2^24 sequences.
    """
    task, recall = MultiKeyRecall(num_words, 2, skip_first=False), Recall(num_words, seq_len, skip_first=False)
    counts = np.zeros(seq_len, dtype=np.int64)
    for block in task.every(seq_len):
        source = task.sources(block)[:, -1]
        counts += np.bincount((seq_len - source)[source >= 0], minlength=seq_len)[:seq_len]
    expected = [int(p * num_words**seq_len) for p in recall.return_time()[:seq_len]]
    expected = [n if d <= recall.farthest(seq_len - 1) else 0 for d, n in enumerate(expected)]
    return Check.equal(
        f"return time of the key, M = {num_words}", counts, expected, f"all {num_words**seq_len:,} sequences of {seq_len} words"
    )


# ------------------------------------------------------------------------------------------------- predictors, one row at a time


def earlier_matches(task: MultiKeyRecall, tokens) -> np.ndarray:
    """Which positions stand behind an earlier occurrence of the key at each position: bool (num, seq_len, seq_len).

    Entry [row, i, p] says that the key at i ended at p - 1 < i as well and is stored; the label of i is the token at the
    largest such p.
    """
    keys = task.keys(tokens)
    behind = np.full_like(keys, -2)
    behind[..., 1:] = np.where(keys[..., :-1] >= 0, keys[..., :-1], -2)
    if task.skip_first:
        behind[..., : task.key_len + 1] = -2
    causal = np.tril(np.ones((keys.shape[-1],) * 2, dtype=bool))
    return (keys[..., :, None] == behind[..., None, :]) & causal


def contested(task: MultiKeyRecall, tokens) -> np.ndarray:
    """Positions with a label where an older occurrence of the key was followed by another word: bool (num, seq_len)."""
    tokens, labels = task.check(tokens), task.labels(tokens)
    return (earlier_matches(task, tokens) & (tokens[..., None, :] != labels[..., :, None])).any(-1) & (labels >= 0)


@dataclass(frozen=True)
class _Place:
    """What a predictor may use at one position: the words so far, which word each key was followed by, all of them in order."""

    words: list[int]
    followers: dict[tuple[int, int], list[int]]
    num_words: int

    @property
    def key(self) -> tuple[int, int]:
        return self.words[-2], self.words[-1]


def _mode_share(answers: list[int], label: int, num_words: int) -> float:
    """Chance of the label when one of the most frequent answers is drawn."""
    counts = np.bincount(answers, minlength=num_words)
    return float(counts[label] == counts.max()) / int((counts == counts.max()).sum())


def _followed(place: _Place) -> list[int]:
    """The words that followed the current word, oldest first."""
    return [b for a, b in zip(place.words, place.words[1:], strict=False) if a == place.words[-1]]


def _unknown_word(place: _Place, keep: int) -> list[int]:
    """The answers of all stored keys that agree with the key at place `keep` (0: its first word, 1: its last)."""
    return [answers[-1] for key, answers in place.followers.items() if key[keep] == place.key[keep]]


PREDICTORS: dict[str, Callable[[_Place, int], float]] = {
    "a word at random": lambda p, y: 1 / p.num_words,
    "the previous word": lambda p, y: float(p.words[-2] == y),
    "most frequent word so far": lambda p, y: _mode_share(p.words, y, p.num_words),
    "what followed the last word, latest": lambda p, y: float(_followed(p)[-1] == y),
    "last word of the key only, most frequent answer": lambda p, y: _mode_share(_unknown_word(p, 1), y, p.num_words),
    "first word of the key only, most frequent answer": lambda p, y: _mode_share(_unknown_word(p, 0), y, p.num_words),
    "whole key, any occurrence": lambda p, y: p.followers[p.key].count(y) / len(p.followers[p.key]),
    "whole key, oldest occurrence": lambda p, y: float(p.followers[p.key][0] == y),
    "whole key, latest occurrence": lambda p, y: float(p.followers[p.key][-1] == y),
}
"""Probability that a rule gives the label, in the order of what it uses.

The two rules that match one word of the key give the most frequent of the latest answers of all stored keys that agree in that
word. They say what a look-up by half a key scores and bound nothing: the rest of the row tells more about the word that is not
matched, and a predictor that uses it can do better (a test enumerates one that does).
"""


def scores(task: MultiKeyRecall, tokens) -> dict[str, float]:
    """Accuracy of every rule of `PREDICTORS` over all labels of `tokens` (num, seq_len).

    Raises:
        ValueError: keys that are not two words long, no label at all.
    """
    if task.key_len != 2:
        raise ValueError(f"key_len={task.key_len}: the predictors are written for keys of two words")
    tokens = task.check(tokens)
    tokens = tokens.reshape(-1, tokens.shape[-1])
    totals, count = dict.fromkeys(PREDICTORS, 0.0), 0
    for row, answers in zip(tokens.tolist(), task.labels(tokens).tolist(), strict=True):
        followers: dict[tuple[int, int], list[int]] = {}
        for i in range(1, len(row)):
            if i >= (3 if task.skip_first else 2):
                followers.setdefault((row[i - 2], row[i - 1]), []).append(row[i])
            if answers[i] >= 0:
                place = _Place(row[: i + 1], followers, task.num_words)
                count += 1
                for name, rule in PREDICTORS.items():
                    totals[name] += rule(place, answers[i])
    if not count:
        raise ValueError("tokens: no position has a label; use longer sequences")
    return {name: total / count for name, total in totals.items()}
