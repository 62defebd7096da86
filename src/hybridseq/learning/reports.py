"""What the runs of a sweep say: a row a point, and which learning rate a rule would have chosen.

`rows` is a table with one row a run (`book/results/<sweep>/runs.csv`). Rows that share `POINT` are one point of a figure; they
differ in learning rate, seed and role. A seed either solves the task or stays on a plateau, so a mean alone hides what happens:
`summary` gives the share of runs that solve the task beside it.

Learning rates are chosen on runs of the role "select" and reported on runs of the role "report", which have other seeds:

    best = by_mean_accuracy(rows[rows.role == "select"])
    table = summary(at(rows[rows.role == "report"], best))

Nothing is dropped silently: rows of two versions of the code, a missing seed, a point without runs raise ValueError.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import sqrt
from statistics import NormalDist

import numpy as np
import pandas as pd

__all__ = [
    "CURVE_STEP",
    "POINT",
    "accuracies",
    "at",
    "by_mean_accuracy",
    "by_mean_loss",
    "by_smallest_loss",
    "check_rows",
    "curves",
    "smallest_loss_shares",
    "summary",
    "wilson",
]

POINT = ("task", "label", "layers", "width", "parameters", "window", "heads", "state_dim", "steps")
"""Columns that say which point of a figure a run belongs to."""

CURVE_STEP = 100
"""Steps behind one number of a stored loss curve, which is their mean."""


# rows ---------------------------------------------------------------------------------------------------------------------


def check_rows(rows: pd.DataFrame, columns: Iterable[str] = (), one_code: bool = True) -> pd.DataFrame:
    """`rows` itself, once it is fit to be read.

    Raises:
        ValueError: no table, no rows, a column of `POINT` or `columns` missing, several versions of a trainer's code, a run
            without an accuracy or a learning rate, a run that stands in it twice.
    """
    if not isinstance(rows, pd.DataFrame):
        raise ValueError(f"rows: needs a pandas table with one row a run, got {type(rows).__name__}")
    needed = (*POINT, "learning_rate", "seed", "accuracy", *columns)
    if missing := [name for name in dict.fromkeys(needed) if name not in rows.columns]:
        raise ValueError(f"rows: has no column {', '.join(missing)}; read it with the sweep's own loader")
    if rows.empty:
        raise ValueError("rows: no run is left; check the filter, or run the sweep first")
    if one_code and "code" in rows.columns:
        _check_one_code(rows)
    if len(bad := rows[rows["accuracy"].isna() | rows["learning_rate"].isna()]):
        raise ValueError(f"rows: {len(bad)} runs have no accuracy or no learning rate, the first is {_where(bad.iloc[0])}")
    if len(bad := rows[rows["seed"].isna()]):
        raise ValueError(f"rows: {len(bad)} runs have no seed, the first is {_where(bad.iloc[0])}")
    if len(bad := rows[[not _is_share(accuracy) for accuracy in rows["accuracy"]]]):
        raise ValueError(f"rows: accuracy={bad.iloc[0]['accuracy']!r} of {_where(bad.iloc[0])}; must be a number in [0, 1]")
    run = [*POINT, "learning_rate", "seed"]
    if len(again := rows[rows.duplicated(run)]):
        raise ValueError(f"rows: seed {again.iloc[0]['seed']} of {_where(again.iloc[0])} stands there more than once")
    return rows


def _is_share(value: object) -> bool:
    return isinstance(value, int | float | np.number) and 0 <= value <= 1


def _check_one_code(rows: pd.DataFrame) -> None:
    """A trainer's code has one hash for each task, so hashes are compared among runs that share both."""
    same = [name for name in ("task", "backend") if name in rows.columns]
    for place, group in rows.groupby(same, dropna=False):
        if group["code"].nunique(dropna=False) > 1:
            counts = ", ".join(f"{code}: {n}" for code, n in group["code"].value_counts(dropna=False).items())
            raise ValueError(
                f"rows: {' by '.join(map(str, place))} mixes versions of the code ({counts} runs); keep one, or run the stale "
                "cells again"
            )


def curves(rows: pd.DataFrame) -> np.ndarray:
    """The stored loss curves as reals (runs, numbers): number i is the mean training loss of steps 100 i to 100 i + 99.

    Shorter curves are padded with NaN. Raises ValueError for a curve that is missing or holds no numbers.

    >>> curves(pd.DataFrame({"curve": ["2.1 1.9", "2.0 nan"]})).tolist()
    [[2.1, 1.9], [2.0, nan]]
    """
    if not isinstance(rows, pd.DataFrame):
        raise ValueError(f"rows: needs a pandas table with one row a run, got {type(rows).__name__}")
    if "curve" not in rows.columns:
        raise ValueError("rows: has no column curve; the sweep stores the mean loss of every 100 steps there")
    try:
        read = [[float(number) for number in str(text).split()] for text in rows["curve"]]
    except ValueError as error:
        raise ValueError(f"rows: a curve must be numbers with spaces between them; {error}") from error
    if not all(read):
        raise ValueError("rows: a curve holds no numbers; run its cell again")
    table = np.full((len(read), max(map(len, read), default=0)), np.nan)
    for line, numbers in zip(table, read, strict=True):
        line[: len(numbers)] = numbers
    return table


def accuracies(rows: pd.DataFrame) -> pd.DataFrame:
    """One line a point and learning rate, one column a seed: accuracy, NaN where that seed was not run."""
    check_rows(rows)
    return rows.set_index([*POINT, "learning_rate", "seed"])["accuracy"].unstack("seed").sort_index()


# a row a point ------------------------------------------------------------------------------------------------------------


def wilson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's interval for a probability after `successes` of `n` trials (E. B. Wilson, JASA 22, 1927).

        (p + z^2/2n ± z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n),    p = successes/n, z the normal quantile

    It stays inside [0, 1] and has a width above zero even when every run solved the task. Raises ValueError unless
    0 <= successes <= n, n >= 1 and 0 < confidence < 1.

    >>> [round(x, 3) for x in wilson(11, 11)]
    [0.741, 1.0]
    """
    if not (n >= 1 and 0 <= successes <= n):
        raise ValueError(f"successes={successes}: must lie in 0..n with n >= 1, n={n}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}")
    z2 = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    p = successes / n
    centre, half = p + z2 / (2 * n), sqrt(z2) * sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return max(0.0, (centre - half) / (1 + z2 / n)), min(1.0, (centre + half) / (1 + z2 / n))


def summary(rows: pd.DataFrame, solved_at: float = 0.9, confidence: float = 0.95) -> pd.DataFrame:
    """A row for every point, role and learning rate in `rows`.

    Args:
        rows: runs of one version of the code.
        solved_at: a run solves the task when its accuracy is at least this.
        confidence: of the interval for the solved fraction.

    Returns:
        `POINT`, role (where the runs have one), learning_rate, then n (runs), mean, low and high (10th and 90th percentile,
        linear between neighbours), minimum, maximum, solved (runs), solved_fraction, solved_low, solved_high (Wilson).

    Raises:
        ValueError: see `check_rows`; solved_at outside [0, 1].
    """
    check_rows(rows)
    if not 0 <= solved_at <= 1:
        raise ValueError(f"solved_at must lie in [0, 1], got {solved_at!r}")
    keys = [*POINT, *(["role"] if "role" in rows.columns else []), "learning_rate"]
    lines = [
        dict(zip(keys, place, strict=True)) | _statistics(group["accuracy"].to_numpy(float), solved_at, confidence)
        for place, group in rows.groupby(keys, dropna=False, sort=True)
    ]
    return pd.DataFrame(lines).sort_values(keys, ignore_index=True)


def _statistics(accuracy: np.ndarray, solved_at: float, confidence: float) -> dict:
    n, solved = len(accuracy), int((accuracy >= solved_at).sum())
    below, above = wilson(solved, n, confidence)
    return {
        "n": n,
        "mean": accuracy.mean(),
        "low": np.quantile(accuracy, 0.1),
        "high": np.quantile(accuracy, 0.9),
        "minimum": accuracy.min(),
        "maximum": accuracy.max(),
        "solved": solved,
        "solved_fraction": solved / n,
        "solved_low": below,
        "solved_high": above,
    }


# which learning rate ------------------------------------------------------------------------------------------------------


def by_mean_accuracy(rows: pd.DataFrame) -> pd.DataFrame:
    """The learning rate with the highest mean accuracy, for every point; of equal ones the smallest.

    rows: the runs to choose from, usually those of the role "select"; every rate of a point needs the same seeds.
    Returns `POINT`, learning_rate, and mean, n behind the choice. Raises ValueError: see `check_rows`, or unequal seeds.
    """
    return _best_mean(rows, "accuracy", ascending=False)


def by_mean_loss(rows: pd.DataFrame) -> pd.DataFrame:
    """The learning rate with the lowest mean final training loss, for every point; of equal ones the smallest.

    Held-out sequences have no say. A rate at which one run's loss is not a number never wins against one without.
    Returns `POINT`, learning_rate, mean, n. Raises ValueError as `by_mean_accuracy` does, or without a column final_loss.
    """
    return _best_mean(rows, "final_loss", ascending=True)


def _best_mean(rows: pd.DataFrame, column: str, ascending: bool) -> pd.DataFrame:
    _check_equal_seeds(rows, (column,))
    groups = rows.groupby([*POINT, "learning_rate"], dropna=False)[column]
    means = groups.agg(mean=lambda values: values.mean(skipna=False), n="size").reset_index()
    best = means.sort_values(["mean", "learning_rate"], ascending=[ascending, True], kind="stable", na_position="last")
    best = best.drop_duplicates(list(POINT)).sort_values(list(POINT), ignore_index=True)
    if len(lost := best[best["mean"].isna()]):
        raise ValueError(f"rows: {_where(lost.iloc[0], rate=False)} has no learning rate at which every run has a {column}")
    return best


def by_smallest_loss(rows: pd.DataFrame, seeds: tuple[int, ...] | None = None, steps: int = 1000) -> pd.DataFrame:
    """Paper B's rule: the rate of the one run with the smallest mean training loss over the first steps, for every point.

    A public copy of the authors' script trains two models for each rate, one epoch of 1,000 steps of the 4,000-step schedule, and
    takes the rate of the smallest among all their losses, each a mean over the epoch. Runs of the full schedule begin with those
    same steps, so the rule is read from their stored curves. Equal losses (curves hold four digits) go to the smaller rate; a
    loss that is not a number never wins.

    seeds: which runs; None takes the two smallest seeds. steps: a multiple of 100.
    Returns `POINT`, learning_rate, seed, loss. Raises ValueError: see `check_rows`; unequal or missing seeds; a curve too short.
    """
    early = _early_losses(rows, steps)
    seeds = tuple(sorted(rows["seed"].unique())[:2]) if seeds is None else tuple(seeds)
    if absent := set(seeds) - set(rows["seed"]):
        raise ValueError(f"seeds={seeds}: there are no runs of seed {sorted(absent)}")
    if not seeds:
        raise ValueError("seeds: needs one seed or more")
    chosen = early[early["seed"].isin(seeds)].sort_values(["loss", "learning_rate", "seed"], kind="stable", na_position="last")
    chosen = chosen.drop_duplicates(list(POINT)).sort_values(list(POINT), ignore_index=True)
    if len(lost := chosen[chosen["loss"].isna()]):
        raise ValueError(f"rows: no run of {_where(lost.iloc[0], rate=False)} has a finite loss over its first {steps} steps")
    return chosen[[*POINT, "learning_rate", "seed", "loss"]]


def smallest_loss_shares(rows: pd.DataFrame, steps: int = 1000, runs: int = 2) -> pd.DataFrame:
    """How often paper B's rule picks each learning rate, over all choices of `runs` seeds: the luck in the rule.

    Returns `POINT`, learning_rate, pairs (choices that pick this rate), share; a row for every rate, also at 0.
    Raises ValueError: see `by_smallest_loss`; fewer seeds than `runs`.
    """
    early = _early_losses(rows, steps)
    if runs < 1:
        raise ValueError(f"runs must be >= 1, got {runs!r}")
    tables = []
    for place, group in early.groupby(list(POINT), dropna=False, sort=True):
        table = group.pivot(index="seed", columns="learning_rate", values="loss")
        if len(table) < runs:
            raise ValueError(f"rows: {_where(group.iloc[0], rate=False)} has {len(table)} seeds, the rule needs {runs}")
        losses = table.fillna(np.inf).to_numpy()
        picks = [int(np.argmin(losses[list(pair)].min(axis=0))) for pair in combinations(range(len(table)), runs)]
        pairs = np.bincount(picks, minlength=table.shape[1])
        lines = {"learning_rate": table.columns, "pairs": pairs, "share": pairs / len(picks)}
        tables.append(pd.DataFrame(dict(zip(POINT, place, strict=True)) | lines))
    return pd.concat(tables, ignore_index=True)


def at(rows: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """The runs at the chosen learning rates, points of `chosen` only.

    Raises ValueError when `chosen` is no table of choices, a point has two of them, or no run at its chosen rate: a curve with a
    hole would look finished.
    """
    check_rows(rows)
    keys = [*POINT, "learning_rate"]
    if not isinstance(chosen, pd.DataFrame) or not set(keys) <= set(chosen.columns):
        raise ValueError(f"chosen: needs a table as `by_mean_accuracy` returns it, with the columns {', '.join(keys)}")
    if len(twice := chosen[chosen.duplicated(list(POINT))]):
        raise ValueError(f"chosen: {_where(twice.iloc[0], rate=False)} has more than one learning rate")
    index = pd.MultiIndex.from_frame(_comparable(rows[keys]))
    wanted = pd.MultiIndex.from_frame(_comparable(chosen[keys]))
    if len(absent := chosen[~wanted.isin(index)]):
        raise ValueError(f"rows: no run of {_where(absent.iloc[0])}, which was chosen; run the sweep to its end")
    return rows[index.isin(wanted)]


def _early_losses(rows: pd.DataFrame, steps: int) -> pd.DataFrame:
    _check_equal_seeds(rows, ("curve",))
    if steps < CURVE_STEP or steps % CURVE_STEP:
        raise ValueError(f"steps={steps!r}: must be a multiple of {CURVE_STEP}, at least {CURVE_STEP}")
    table = curves(rows)
    shortest = min(len(str(text).split()) for text in rows["curve"]) * CURVE_STEP
    if shortest < steps:
        raise ValueError(f"steps={steps}: a stored curve ends after {shortest} steps")
    return rows.assign(loss=table[:, : steps // CURVE_STEP].mean(axis=1))


def _check_equal_seeds(rows: pd.DataFrame, columns: Iterable[str] = ()) -> None:
    check_rows(rows, columns)
    for _, point in rows.groupby(list(POINT), dropna=False):
        seeds = point.groupby("learning_rate")["seed"].agg(frozenset)
        if seeds.nunique() > 1:
            short = seeds.index[seeds.map(len).argmin()]
            missing = sorted(set().union(*seeds) - seeds[short])
            raise ValueError(
                f"rows: {_where(point.iloc[0], rate=False)} has no run of seed {', '.join(map(str, missing))} at learning rate "
                f"{short:g}, but has one at another rate; finish the sweep, or keep the seeds that all rates have"
            )


def _comparable(keys: pd.DataFrame) -> pd.DataFrame:
    """Missing values as one value that equals itself, so that points without a window compare as equal."""
    return keys.astype(object).where(keys.notna(), "none")


def _where(row: pd.Series, rate: bool = True) -> str:
    place = f"{row['task']} {row['layers']} at {row['parameters']} parameters"
    return f"{place}, learning rate {row['learning_rate']:g}" if rate else place
