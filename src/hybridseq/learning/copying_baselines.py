"""What predictors with a part of the information score on selective copying, exactly.

Rows are independent tokens: a number with probability p, each of the N values alike, else one of M words. Let a be the age of the
last number at a position (0 at the number itself), n its value and d its reach, the distance back to the token to copy: d = n
counted from the previous token, n - 1 from the current one. What the label can be depends on where d points:

    d < a     behind the last number: a word, uniform over M
    d = a     at the last number itself: the label is #n, whatever the text
    d > a     before the last number: any token

The place of the last number tells nothing of its value. So a predictor that sees the whole text but not that value has N
candidates, all equally likely, and can do no better than the one that occurs most often among them: it is right with probability
E[most frequent candidate's count] / N. One that knows the value and not the text is right where d = a, and guesses elsewhere.
Between these and a perfect score lie predictors whose sight ends some tokens back (`near_number`, `near_words`). Scores of all
kinds are shares of the labelled positions of a row, and fractions, not samples; `check_scores` compares them with enumeration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from math import comb, factorial

import numpy as np

from hybridseq.evidence import Check
from hybridseq.learning.batches import Framed
from hybridseq.tasks.labelled_sequences import MASKED
from hybridseq.tasks.selective_copying import COUNT_FROM, SelectiveCopying

__all__ = ["Copying", "check_scores"]


@dataclass(frozen=True)
class Copying:
    """Exact scores on selective copying with rows of `content_len` independent tokens.

    Args:
        task: the vocabulary, and where counting starts. content_len: positions in a row, >= 1. density: probability of a number,
            strictly between 0 and 1; a float is read as the fraction that it abbreviates (0.2 as 1/5).

    Raises:
        ValueError: another task, a length or density out of range, no position that can have a label.

    Example:
        >>> two = Copying(SelectiveCopying(1, 1, count_from="previous"), 2, Fraction(1, 2))
        >>> two.labels, two.near_number(0), two.near_words(0)
        (Fraction(3, 4), Fraction(1, 1), Fraction(2, 3))
    """

    task: SelectiveCopying
    content_len: int
    density: Fraction

    def __post_init__(self):
        if not isinstance(self.task, SelectiveCopying):
            raise ValueError(f"task must be SelectiveCopying, got {type(self.task).__name__}")
        _check_least("content_len", self.content_len, 1)
        object.__setattr__(self, "density", Fraction(self.density).limit_denominator(10**6))
        if not 0 < self.density < 1:
            raise ValueError(f"density must lie strictly between 0 and 1, got {self.density}")
        if self.reaches[0] >= self.content_len:
            raise ValueError(
                f"content_len={self.content_len}: no position has a label, the nearest token to copy is {self.reaches[0]} back"
            )

    @classmethod
    def of(cls, framed: Framed) -> Copying:
        """The scores on the rows of `framed`."""
        return cls(framed.task, framed.content_len, framed.density)

    @property
    def reaches(self) -> range:
        """Distances back to the token to copy, one a number token."""
        first = self.task.first_number - COUNT_FROM[self.task.count_from]
        return range(first, first + self.task.num_numbers)

    # ---------------------------------------------------------------------------------------- where the last number stands

    def _age(self, a: int) -> Fraction:
        """Probability that the last number is `a` tokens old, at a position with a + 1 tokens or more."""
        return self.density * (1 - self.density) ** a

    def _over_labels(self, right: Callable[[int, int, tuple[int, ...]], Fraction]) -> Fraction:
        """Expected right answers in a row: right(a, candidates) is the probability, given the age and the reaches that fit."""
        total = Fraction(0)
        for fit, positions in self._fitting.items():
            for age in range(max(positions) + 1):
                count = sum(age <= position for position in positions)
                total += count * self._age(age) * Fraction(len(fit), len(self.reaches)) * right(age, fit)
        return total

    @cached_property
    def _fitting(self) -> dict[tuple[int, ...], list[int]]:
        """Positions (from 0) by the reaches that do not lead out of the row there."""
        positions = defaultdict(list)
        for position in range(self.content_len):
            if fit := tuple(d for d in self.reaches if d <= position):
                positions[fit].append(position)
        return dict(positions)

    @property
    def labels(self) -> Fraction:
        """Expected number of labelled positions in a row."""
        return self._over_labels(lambda age, fit: Fraction(1))

    @property
    def own_number(self) -> Fraction:
        """Share of the labels that are the last number itself."""
        return self._expected(_at, self.reaches) / self.labels

    def older_than(self, age: int) -> Fraction:
        """Share of the labels whose last number is at least `age` tokens old, so that a window of `age` tokens hides it.

        Raises ValueError for an age below 0.
        """
        _check_least("age", age, 0)
        return self._over_labels(lambda a, fit: Fraction(int(a >= age))) / self.labels

    # --------------------------------------------------------------------------------------------------------- the scores

    @property
    def any_token(self) -> Fraction:
        """A token drawn at random."""
        return Fraction(1, self.task.vocab_size)

    @property
    def constant(self) -> Fraction:
        """The best single answer for all positions."""
        p, n, m = self.density, self.task.num_numbers, self.task.num_words
        behind, free = (self._expected(side, self.reaches) for side in (_behind, _before))
        own = max(self._expected(_at, (d,)) for d in self.reaches)
        return max(behind / m + free * (1 - p) / m, own + free * p / n) / self.labels

    def _expected(self, side: Callable[[int, int], bool], reaches: Iterable[int]) -> Fraction:
        """Expected labels in a row that stand on that side of the last number, at one of these reaches."""
        return self._over_labels(lambda a, fit: Fraction(sum(side(d, a) for d in fit if d in reaches), len(fit)))

    def near_number(self, span: int) -> Fraction:
        """All words, and the value of the last number only while that is among the last `span` tokens.

        0: never, the text without the number. For spans above the largest reach this is also what a window of `span` tokens
        can do, since it shows all candidates.

        Raises ValueError for a span below 0.
        """
        _check_least("span", span, 0)
        return self._over_labels(lambda a, fit: Fraction(1) if a < span else self._most_frequent(a, fit)) / self.labels

    def near_words(self, span: int) -> Fraction:
        """Value and age of the last number at all times, and the last `span` tokens.

        0: the number without the text. Beyond its sight a predictor knows that the label is the last number (d = a) or a word
        (d < a), and takes the likeliest token otherwise.

        Raises ValueError for a span below 0.
        """
        _check_least("span", span, 0)
        p, n, m = self.density, self.task.num_numbers, self.task.num_words
        free = max(p / n, (1 - p) / m)

        def right(a: int, fit: tuple[int, ...]) -> Fraction:
            known = sum(d < span or d == a for d in fit)
            behind = sum(d >= span and d < a for d in fit)
            return (known + behind * Fraction(1, m) + (len(fit) - known - behind) * free) / len(fit)

        return self._over_labels(right) / self.labels

    def _most_frequent(self, age: int, fit: tuple[int, ...]) -> Fraction:
        """Probability that the most frequent candidate is the label: E[its count] / number of candidates."""
        kinds = tuple(sum(side(d, age) for d in fit) for side in (_behind, _at, _before))
        return _expected_top(*kinds, self.density, self.task.num_numbers, self.task.num_words) / len(fit)


def _behind(reach: int, age: int) -> bool:
    return reach < age


def _at(reach: int, age: int) -> bool:
    return reach == age


def _before(reach: int, age: int) -> bool:
    return reach > age


@cache
def _expected_top(behind: int, at: int, before: int, density: Fraction, num_numbers: int, num_words: int) -> Fraction:
    """Expected count of the most frequent token among: `behind` words, `at` (0 or 1) copies of one number, `before` of any kind.

    E[top] = sum over m >= 0 of P(top > m).
    """
    total = Fraction(0)
    for most in range(behind + at + before):
        at_most = Fraction(0)
        for words in range(before + 1):
            numbers = before - words
            share = comb(before, words) * (1 - density) ** words * density**numbers
            at_most += share * _at_most(behind + words, num_words, most, 0) * _at_most(numbers, num_numbers, most, at)
        total += 1 - at_most
    return total


@cache
def _at_most(draws: int, kinds: int, most: int, first: int) -> Fraction:
    """Probability that no kind is drawn more than `most` times, where `first` counts already for one of them.

    Exponential generating functions: the ways are draws! [x^draws] prod over kinds of sum_{j <= most} x^j / j!.
    """
    if most < first:
        return Fraction(0)
    ways = [Fraction(1)] + [Fraction(0)] * draws
    for kind in range(kinds):
        top = min(most - first if kind == 0 else most, draws)
        ways = [sum((ways[k - j] / factorial(j) for j in range(min(k, top) + 1)), Fraction(0)) for k in range(draws + 1)]
    return ways[draws] * factorial(draws) / kinds**draws


# ---------------------------------------------------------------------------------------------------------------- enumeration


def check_scores(copying: Copying, span: int) -> Check:
    """Compare labels and scores with every row: for each kind of information, the best answer that the rows themselves allow.

    A score is found by sorting all labelled positions of all rows by what the predictor may see there, and counting the most
    likely label of each class.

    Raises ValueError beyond 2^20 rows.
    """
    task, size = copying.task, copying.task.vocab_size**copying.content_len
    if size > 1 << 20:
        raise ValueError(f"content_len={copying.content_len}: {size:,} rows are too many to enumerate; keep to {1 << 20:,}")
    sights = {
        "constant": lambda row, i, n, a: None,
        "near_number(0)": lambda row, i, n, a: _text(row, i, a, 0),
        f"near_number({span})": lambda row, i, n, a: _text(row, i, a, span),
        "near_words(0)": lambda row, i, n, a: (n, a, i),
        f"near_words({span})": lambda row, i, n, a: (n, a, i, row[max(0, i + 1 - span) : i + 1]),
    }
    found, labels = _enumerated(copying, sights)
    scores = [score(s) for score in (copying.near_number, copying.near_words) for s in (0, span)]
    return Check.equal(
        f"scores, N = {task.num_numbers}, M = {task.num_words}, counted from the {task.count_from} token",
        [str(x) for x in (labels, *(found[name] / labels for name in sights))],
        [str(x) for x in (copying.labels, copying.constant, *scores)],
        f"all {size:,} rows of {copying.content_len} tokens",
    )  # fmt: skip


def _text(row: tuple[int, ...], position: int, age: int, span: int) -> Hashable:
    """The row so far, with the last number's value hidden once it is `span` tokens old."""
    if age < span:
        return row[: position + 1]
    return (*row[: position - age], None, *row[position - age + 1 : position + 1])


def _enumerated(copying: Copying, sights: dict[str, Callable[..., Hashable]]) -> tuple[dict[str, Fraction], Fraction]:
    """Expected right answers in a row for each kind of sight, and expected labels, over all rows with their probabilities."""
    task, p = copying.task, copying.density
    word, number = (1 - p) / task.num_words, p / task.num_numbers
    weights = {name: defaultdict(lambda: defaultdict(Fraction)) for name in sights}
    total = Fraction(0)
    for block in task.every(copying.content_len):
        values, ages = task.last_numbers(block), _ages(task, block)
        seen = (array.tolist() for array in (task.labels(block), values, ages))
        for row, answers, n, age in zip(map(tuple, block.tolist()), *seen, strict=True):
            count = sum(token < task.num_numbers for token in row)
            chance = number**count * word ** (len(row) - count)
            for i, answer in enumerate(answers):
                if answer != MASKED:
                    total += chance
                    for name, sight in sights.items():
                        weights[name][sight(row, i, n[i], age[i])][answer] += chance
    return {name: sum(max(labels.values()) for labels in classes.values()) for name, classes in weights.items()}, total


def _ages(task: SelectiveCopying, tokens) -> np.ndarray:
    """How many tokens ago the last number stood; meaningless where there is none."""
    position = np.arange(tokens.shape[-1])
    return position - np.maximum.accumulate(np.where(tokens < task.num_numbers, position, -1), axis=-1)


def _check_least(name: str, value, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
