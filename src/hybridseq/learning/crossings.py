"""How many parameters an architecture needs for an accuracy, and how that compares with another one.

Paper B reads "six times fewer parameters" off its figures: the ratio of the parameter counts at which two mean curves first reach
60 % (or 90 %). Such a ratio depends on the threshold, on the grid of sizes and on the seeds, and it is known from one side only
when a curve ends below the threshold. Here a crossing is a range: both ends equal where the curve reaches the threshold,
(largest size tried, infinity) where it does not. Ratios and their intervals carry these ranges along.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

import numpy as np
import pandas as pd

from hybridseq.learning.reports import accuracies, check_rows
from hybridseq.rng import Generator

__all__ = ["Crossing", "Ratio", "crossing", "crossing_ratio", "ratio_curve"]


@dataclass(frozen=True)
class Crossing:
    """Where a curve of mean accuracy against parameters first reaches a threshold.

    Args:
        threshold: the accuracy asked for. smallest, largest: the ends of the sizes that were tried.
        first: smallest size tried whose mean reaches it; None when none does.
        interpolated: the crossing between that size and the one before, on a straight line in (log parameters, mean); None when
            none reaches it, or already the smallest does.
        stays: smallest size from which on every mean reaches it; None when the largest does not.

    >>> print(Crossing(0.6, 396, 10056, None, None, None))
    above 10,056: not reached
    """

    threshold: float
    smallest: int
    largest: int
    first: int | None
    interpolated: float | None
    stays: int | None

    @property
    def reached(self) -> bool:
        """Whether some size reaches the threshold."""
        return self.first is not None

    def bounds(self, interpolated: bool = False) -> tuple[float, float]:
        """What is known of the crossing: (x, x), or (largest, inf); interpolated also (0, smallest)."""
        if not self.reached:
            return float(self.largest), inf
        if not interpolated:
            return float(self.first), float(self.first)
        return (0.0, float(self.smallest)) if self.interpolated is None else (self.interpolated, self.interpolated)

    def __str__(self) -> str:
        return f"{self.first:,}" if self.reached else f"above {self.largest:,}: not reached"


@dataclass(frozen=True)
class Ratio:
    """Parameters that one architecture needs, in units of what another one needs.

    Args:
        threshold: the accuracy asked for.
        low, high: what all runs together say; equal when both curves reach the threshold, high = inf when the numerator's does
            not, low = 0 when the denominator's does not.
        interval_low, interval_high: bootstrap interval over seeds.
        numerator_missing, denominator_missing: share of the resamples in which that curve does not reach the threshold.

    >>> print(Ratio(0.6, 1.93, 1.93, 1.41, 2.73, 0.0, 0.0))
    1.93 (1.41 to 2.73)
    >>> print(Ratio(0.95, 2.1, float("inf"), 1.7, float("inf"), 1.0, 0.0))
    above 2.10 (1.70 or more)
    """

    threshold: float
    low: float
    high: float
    interval_low: float
    interval_high: float
    numerator_missing: float
    denominator_missing: float

    def __str__(self) -> str:
        if self.low == self.high:
            value = f"{self.low:.2f}"
        elif self.high == inf:
            value = "unknown" if self.low == 0 else f"above {self.low:.2f}"
        else:
            value = f"below {self.high:.2f}" if self.low == 0 else f"{self.low:.2f} to {self.high:.2f}"
        if self.interval_high == inf:
            return f"{value} ({self.interval_low:.2f} or more)"
        return f"{value} ({self.interval_low:.2f} to {self.interval_high:.2f})"


def crossing(summary: pd.DataFrame, threshold: float) -> dict[str, Crossing]:
    """For every architecture of `summary` (columns layers, parameters, mean), where its means first reach `threshold`.

    A published table will do too. Raises ValueError for missing columns, no rows, two rows for one size of an architecture
    (several learning rates, roles or windows: choose first), a threshold outside (0, 1].

    >>> table = pd.DataFrame({"layers": "TF-TF", "parameters": [100, 400], "mean": [0.2, 0.8]})
    >>> there = crossing(table, 0.5)["TF-TF"]
    >>> there.first, round(there.interpolated)
    (400, 200)
    """
    _check_threshold(threshold)
    if missing := [name for name in ("layers", "parameters", "mean") if name not in summary.columns]:
        raise ValueError(f"summary: has no column {', '.join(missing)}")
    if summary.empty or summary["mean"].isna().any():
        raise ValueError("summary: needs one row or more, and a mean in each")
    if len(none := summary[~(summary["parameters"] > 0)]):
        raise ValueError(f"summary: parameters={none.iloc[0]['parameters']} of {none.iloc[0]['layers']}; must be > 0")
    if len(twice := summary[summary.duplicated(["layers", "parameters"])]):
        row = twice.iloc[0]
        raise ValueError(
            f"summary: {row['layers']} at {row['parameters']} parameters stands there more than once; "
            "keep one learning rate, one role and one setting"
        )
    return {layers: _cross(group.sort_values("parameters"), threshold) for layers, group in summary.groupby("layers")}


def _cross(curve: pd.DataFrame, threshold: float) -> Crossing:
    sizes, means = curve["parameters"].to_numpy(float), curve["mean"].to_numpy(float)
    first, between = _reach(sizes, means[:, None], threshold)
    below = np.flatnonzero(means < threshold)
    after = 0 if below.size == 0 else int(below[-1]) + 1
    return Crossing(
        threshold=float(threshold),
        smallest=int(sizes[0]),
        largest=int(sizes[-1]),
        first=int(sizes[first[0]]) if first[0] < len(sizes) else None,
        interpolated=None if np.isnan(between[0]) else float(between[0]),
        stays=int(sizes[after]) if after < len(sizes) else None,
    )


def _reach(sizes: np.ndarray, means: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """For curves in the columns of `means` (sizes, curves): index of the first size that reaches the threshold, len(sizes) where
    none does; and the crossing between it and the size before, NaN where there is none.
    """
    reached = means >= threshold
    first = np.where(reached.any(axis=0), reached.argmax(axis=0), len(sizes))
    i, curve = np.clip(first, min(1, len(sizes) - 1), len(sizes) - 1), np.arange(means.shape[1])
    inside = (first > 0) & (first < len(sizes))
    rise = np.where(inside, means[i, curve] - means[i - 1, curve], 1.0)  # above 0 inside: below the threshold, then not
    part = np.where(inside, (threshold - means[i - 1, curve]) / rise, 0.0)
    return first, np.where(inside, sizes[i - 1] * (sizes[i] / sizes[i - 1]) ** part, np.nan)


def crossing_ratio(
    rows: pd.DataFrame,
    threshold: float,
    numerator: str,
    denominator: str,
    generator: Generator,
    interpolated: bool = False,
    resamples: int = 2000,
    confidence: float = 0.95,
) -> Ratio:
    """Parameters at which `numerator` first reaches `threshold`, over those of `denominator`, with a bootstrap interval.

    Every resample draws the seeds with replacement, the same ones for all points, since the runs of a seed share their data.
    Where a resample does not reach the threshold its ratio is a range; the interval runs from a quantile of the lower ends to a
    quantile of the upper ends, so a curve that often stays below the threshold opens the interval upwards and never shortens it.
    Quantiles are values that occurred, the ends to the outside.

    Args:
        rows: runs at one learning rate a point, one role, one code; every point with the same seeds.
        numerator, denominator: architectures such as "TF-TF", "SSM-TF".
        generator: where the draws come from. resamples: at least 1. confidence: in (0, 1).

    Raises:
        ValueError: see `check_rows`; an unknown architecture, several rates or roles, points with different seeds.
    """
    return _ratios(rows, [threshold], numerator, denominator, generator, interpolated, resamples, confidence)[0]


def ratio_curve(
    rows: pd.DataFrame,
    thresholds: Iterable[float],
    numerator: str,
    denominator: str,
    generator: Generator,
    interpolated: bool = False,
    resamples: int = 2000,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """`crossing_ratio` at many thresholds, with the same resamples: a row a threshold, the fields of `Ratio` as columns."""
    ratios = _ratios(rows, list(thresholds), numerator, denominator, generator, interpolated, resamples, confidence)
    return pd.DataFrame([vars(ratio) for ratio in ratios])


def _ratios(rows, thresholds, numerator, denominator, generator, interpolated, resamples, confidence) -> list[Ratio]:
    if not isinstance(resamples, int | np.integer) or resamples < 1 or not 0 < confidence < 1:
        raise ValueError(f"resamples={resamples!r}, confidence={confidence!r}: needs resamples >= 1 and 0 < confidence < 1")
    if not thresholds:
        raise ValueError("thresholds: needs one or more")
    for threshold in thresholds:
        _check_threshold(threshold)
    above, below = (_runs_by_size(rows, layers) for layers in (numerator, denominator))
    if not above.columns.equals(below.columns):
        raise ValueError(f"rows: {numerator} and {denominator} were run with different seeds; keep those that both have")
    seeds = above.shape[1]
    everyone, draws = np.arange(seeds)[None], generator.integers(seeds, (resamples, seeds))
    ratios = []
    for threshold in thresholds:
        low, high, *_ = _divided(above, below, everyone, threshold, interpolated)
        lows, highs, *missing = _divided(above, below, draws, threshold, interpolated)
        outside = (1 - confidence) / 2
        ends = _quantile(lows, outside, np.floor), _quantile(highs, 1 - outside, np.ceil)
        ratios.append(Ratio(float(threshold), float(low[0]), float(high[0]), *ends, *missing))
    return ratios


def _runs_by_size(rows: pd.DataFrame, layers: str) -> pd.DataFrame:
    """Accuracies (sizes, seeds) of one architecture, smallest first, without holes."""
    check_rows(rows)
    here = rows[rows["layers"] == layers]
    if here.empty:
        raise ValueError(f"layers={layers!r}: has no runs; there are {', '.join(sorted(rows['layers'].unique()))}")
    if "role" in here.columns and here["role"].nunique() > 1:
        raise ValueError(f"rows: {layers} mixes runs that chose a learning rate with runs to report; keep one role")
    table = accuracies(here)
    sizes = table.index.get_level_values("parameters")
    if sizes.has_duplicates:
        size = sizes[sizes.duplicated()][0]
        raise ValueError(f"rows: {layers} at {size} parameters has several learning rates or settings; keep one")
    if table.isna().any(axis=None):
        hole = table.isna().any(axis=1).to_numpy().argmax()
        raise ValueError(f"rows: {layers} at {sizes[hole]} parameters lacks a seed that other sizes have; keep common seeds")
    return table.set_axis(sizes).sort_index()


def _bounds(curve: pd.DataFrame, picked: np.ndarray, threshold: float, interpolated: bool) -> tuple[np.ndarray, np.ndarray]:
    """What is known of the crossing of each resample of the seeds (resamples, seeds): lower ends and upper ends."""
    sizes = curve.index.to_numpy(float)
    first, between = _reach(sizes, curve.to_numpy(float)[:, picked].mean(axis=-1), threshold)
    low = high = sizes[np.minimum(first, len(sizes) - 1)]
    if interpolated:  # where the smallest size is already there, the crossing lies at or below it
        low, high = np.where(first == 0, 0.0, between), np.where(first == 0, sizes[0], between)
    never = first == len(sizes)
    return np.where(never, sizes[-1], low), np.where(never, inf, high)


def _divided(above, below, picked, threshold, interpolated) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Lower and upper ends of the ratio in each resample, and the shares in which either curve does not reach the threshold."""
    top, bottom = (_bounds(curve, picked, threshold, interpolated) for curve in (above, below))
    with np.errstate(divide="ignore"):
        low = top[0] / bottom[1]  # 0 where the denominator is not reached
        high = top[1] / bottom[0]  # infinite where the numerator is not reached
    return low, high, float(np.isinf(top[1]).mean()), float(np.isinf(bottom[1]).mean())


def _quantile(values: np.ndarray, part: float, towards) -> float:
    """The quantile among the values themselves, rounded outwards; infinities are allowed."""
    return float(np.sort(values)[int(towards(part * (len(values) - 1)))])


def _check_threshold(threshold: float) -> None:
    number = isinstance(threshold, int | float | np.number) and not isinstance(threshold, bool)
    if not number or not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie in (0, 1], got {threshold!r}")
