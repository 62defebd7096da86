"""Figures of trained models: accuracy against size, every run, the learning rates, solved fractions, ratios of sizes.

An architecture has the same colour, marker and dash in every figure (`looks`). Tables are those of `hybridseq.learning.reports`
and `hybridseq.learning.crossings`; here they are only drawn. Filled markers are our runs, open and half-filled ones what others
published, so the two differ without colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from hybridseq.figures.labels import label_lines, reference_line
from hybridseq.figures.look import series

__all__ = [
    "accuracy_curves",
    "learning_rate_matrix",
    "looks",
    "loss_curves",
    "ratio_curves",
    "run_strips",
    "solved_fractions",
]

ARCHITECTURES = ("SSM-TF", "TF-TF", "SSM-SSM", "TF-SSM")
"""The two-layer models of paper B, in the order of their series."""

_MOST = 7
_GREY = "#595959"
_FILLS = ("none", "left", "top")
_GOLDEN = (5**0.5 - 1) / 2
_DODGE = 1.03  # factor in parameters between neighbouring architectures that share a size


def looks(layers: Iterable[str]) -> dict[str, dict]:
    """Colour, marker and dash of each architecture; those of paper B always have the same, others get the next ones free.

    Raises ValueError for more than seven architectures.

    >>> looks(["TF-TF"]) == {"TF-TF": series(1)}
    True
    """
    layers = set(layers)
    known = [name for name in ARCHITECTURES if name in layers]
    others = sorted(layers.difference(known))
    places = [ARCHITECTURES.index(name) for name in known]
    free = (i for i in (*range(len(ARCHITECTURES), _MOST), *range(len(ARCHITECTURES))) if i not in places)
    if len(layers) > _MOST:
        raise ValueError(f"layers: {len(layers)} architectures; one figure tells at most {_MOST} apart")
    return {name: series(i) for name, i in zip((*known, *others), (*places, *free), strict=False)}


def accuracy_curves(
    ax,
    summary: pd.DataFrame,
    published: Mapping[str, pd.DataFrame] | None = None,
    chance: float | None = None,
    threshold: float | None = None,
) -> None:
    """Mean accuracy against parameters, a line an architecture, its band, and published points.

    Parameters
    ----------
    ax
        empty axes.
    summary
        a row a point, with the columns layers, parameters, mean, low, high; low and high bound the band.
    published
        up to three tables (layers, parameters, mean) by the name of their source, drawn as open and half-filled markers.
    chance, threshold
        accuracies to mark by a line.

    Raises
    ------
    ValueError
        for missing columns, no rows, or two rows for one size of an architecture.
    """
    published = dict(published or {})
    _need(summary, "summary", ("layers", "parameters", "mean", "low", "high"), unique=("layers", "parameters"))
    for source, table in published.items():
        _need(table, source, ("layers", "parameters", "mean"))
    if len(published) > len(_FILLS):
        raise ValueError(f"published: {len(published)} sources; markers tell at most {len(_FILLS)} apart")
    style = looks([*summary["layers"], *(name for table in published.values() for name in table["layers"])])
    for name, look in style.items():
        curve = summary[summary["layers"] == name].sort_values("parameters")
        if len(curve):
            ax.fill_between(curve["parameters"], curve["low"], curve["high"], color=look["color"], alpha=0.15, linewidth=0)
            ax.plot(curve["parameters"], curve["mean"], label=name, **look)
    for fill, (source, table) in zip(_FILLS, published.items(), strict=False):
        for name, points in table.groupby("layers"):
            mark = {"marker": style[name]["marker"], "markersize": 8, "fillstyle": fill, "markeredgewidth": 1.3}
            colour = style[name]["color"]
            ax.plot(
                points["parameters"], points["mean"], linestyle="none", color=colour, markeredgecolor=colour,
                markerfacecoloralt="white", label=f"_{source}: {name}", zorder=3, **mark,
            )  # fmt: skip
    _accuracy_axis(ax)
    _size_axis(ax)
    for value, label in ((chance, "chance"), (threshold, f"threshold {threshold}")):
        if value is not None:
            reference_line(ax, value, label)
    if published:
        _source_legend(ax, published)
    label_lines(ax)


def _source_legend(ax, published: Mapping[str, pd.DataFrame]) -> None:
    dot = {"linestyle": "none", "marker": "o", "color": _GREY, "markeredgecolor": _GREY, "markerfacecoloralt": "white"}
    handles = [Line2D([], [], label="this book", **dot)]
    for fill, source in zip(_FILLS, published, strict=False):
        handles.append(Line2D([], [], label=source, fillstyle=fill, markeredgewidth=1.3, markersize=8, **dot))
    ax.legend(handles=handles, loc="upper left")


def run_strips(axes, rows: pd.DataFrame, solved_at: float | None = None) -> None:
    """Every run as a dot: accuracy against parameters, one axes an architecture; nothing is left out or averaged.

    Runs that share a point are spread sideways, so that none hides another; `solved_at` marks the line between solved and not.
    Raises ValueError for missing columns, no rows, or another number of axes than architectures.
    """
    _need(rows, "rows", ("layers", "parameters", "accuracy"))
    style, axes = looks(rows["layers"]), np.atleast_1d(axes).ravel()
    if len(axes) != len(style):
        raise ValueError(f"axes: needs one for each of {', '.join(style)}, got {len(axes)}")
    for ax, (name, look) in zip(axes, style.items(), strict=True):
        for parameters, point in rows[rows["layers"] == name].groupby("parameters"):
            accuracy = np.sort(point["accuracy"])
            spread = 2 * (np.arange(len(accuracy)) * _GOLDEN % 1) - 1  # neighbours in accuracy stand apart
            mark = {"marker": look["marker"], "color": look["color"], "markersize": 4.5, "markeredgewidth": 0}
            ax.plot(parameters * 1.07**spread, accuracy, linestyle="none", alpha=0.8, **mark)
        if solved_at is not None:
            reference_line(ax, solved_at, "solved")
        ax.set_title(name)
        _accuracy_axis(ax)
        _size_axis(ax)


def solved_fractions(ax, summary: pd.DataFrame) -> None:
    """Share of runs that solve the task against parameters, with Wilson intervals as bars.

    Architectures of one size are set a little apart, so that no bar hides another. Columns: layers, parameters,
    solved_fraction, solved_low, solved_high. Raises ValueError as `accuracy_curves` does.
    """
    columns = ("layers", "parameters", "solved_fraction", "solved_low", "solved_high")
    _need(summary, "summary", columns, unique=("layers", "parameters"))
    style = looks(summary["layers"])
    for place, (name, look) in enumerate(style.items()):
        curve = summary[summary["layers"] == name].sort_values("parameters")
        share = curve["solved_fraction"].to_numpy()
        bars = np.array([share - curve["solved_low"], curve["solved_high"] - share]).clip(0)
        x = curve["parameters"] * _DODGE ** (place - (len(style) - 1) / 2)
        ax.errorbar(x, share, yerr=bars, label=name, capsize=3, elinewidth=1.2, **look)
    _accuracy_axis(ax, "runs that solve the task")
    _size_axis(ax)
    label_lines(ax, [bar.lines[0] for bar in _named(ax)])


def _named(ax) -> list:
    """The error bar containers, their data lines carrying the label that the container was given."""
    for bar in ax.containers:
        bar.lines[0].set_label(bar.get_label())
    return list(ax.containers)


def learning_rate_matrix(fig, rows: pd.DataFrame, chosen: pd.DataFrame | None = None):
    """Accuracy against learning rate for every point: rows of axes are architectures, columns are widths.

    A dot is a run, the line joins the means, a triangle above the axes marks the chosen rate.

    Parameters
    ----------
    fig
        an empty figure, wide enough for the grid (about 1.6 inches an axes).
    rows
        layers, width, learning_rate, accuracy, a row a run.
    chosen
        layers, width, learning_rate, at most a row a point.

    Returns
    -------
    array of axes (architectures, widths); a pair that was not run is left blank.

    Raises
    ------
    ValueError
        for missing columns or no rows.
    """
    _need(rows, "rows", ("layers", "width", "learning_rate", "accuracy"))
    if chosen is not None:
        _need(chosen, "chosen", ("layers", "width", "learning_rate"), unique=("layers", "width"))
    style, widths = looks(rows["layers"]), sorted(rows["width"].unique())
    axes = fig.subplots(len(style), len(widths), sharex=True, sharey=True, squeeze=False)
    for line, (name, look) in zip(axes, style.items(), strict=True):
        for ax, width in zip(line, widths, strict=True):
            point = rows[(rows["layers"] == name) & (rows["width"] == width)]
            rate = None if chosen is None else chosen[(chosen["layers"] == name) & (chosen["width"] == width)]["learning_rate"]
            _rate_panel(ax, point, look, None if rate is None or rate.empty else rate.item())
    for ax, width in zip(axes[0], widths, strict=True):
        ax.set_title(f"d = {width}", pad=12)
    for line, name in zip(axes, style, strict=True):
        line[0].set_ylabel(name)
    fig.supxlabel("peak learning rate", fontsize=12)
    fig.supylabel("accuracy of each run, and their mean", fontsize=12)
    return axes


def _rate_panel(ax, point: pd.DataFrame, look: dict, chosen: float | None) -> None:
    if point.empty:
        ax.text(0.5, 0.5, "not run", ha="center", va="center", transform=ax.transAxes, color=_GREY)
        return
    means = point.groupby("learning_rate")["accuracy"].mean()
    dots = {"linestyle": "none", "marker": look["marker"], "markersize": 3.5, "alpha": 0.55}
    ax.plot(point["learning_rate"], point["accuracy"], color=look["color"], **dots)
    ax.plot(means.index, means, color=look["color"], linestyle=look["linestyle"], linewidth=1.5)
    if chosen is not None:
        above = {"transform": ax.get_xaxis_transform(), "clip_on": False}
        ax.plot([chosen], [1.07], marker="v", color="#1A1A1A", linestyle="none", **above)
    ax.set_xscale("log")
    ax.set_ylim(-0.03, 1.03)


def ratio_curves(
    ax, curves: Mapping[str, pd.DataFrame], points: Mapping[str, tuple[float, float]] | None = None, top: float = 8
) -> None:
    """Ratio of parameters against the accuracy asked for, a line for each way to choose, with its bootstrap interval.

    Parameters
    ----------
    curves
        tables of `ratio_curve` by name: threshold, low, high, interval_low, interval_high. Architectures look as they do in
        the other figures (`looks`). Where high is infinite the ratio is
        known from below only: an open triangle that points up from `low`. Where low is 0 it is known from above: one that
        points down from `high`. Where nothing is known there is no mark.
    points
        published (threshold, ratio) by name.
    top
        upper end of the axis; intervals without an upper end run up to it.

    Raises
    ------
    ValueError
        for no curves, missing columns or no rows.
    """
    if not curves:
        raise ValueError("curves: needs one or more")
    own = looks(curves) if set(curves) <= set(ARCHITECTURES) else {}
    for i, (name, curve) in enumerate(curves.items()):
        _need(curve, name, ("threshold", "low", "high", "interval_low", "interval_high"))
        look, curve = own.get(name, series(i)), curve.sort_values("threshold")
        ax.fill_between(
            curve["threshold"], curve["interval_low"], curve["interval_high"].clip(upper=2 * top),
            color=look["color"], alpha=0.15, linewidth=0, step="mid",
        )  # fmt: skip
        value = curve["low"].where(curve["low"] == curve["high"])
        ax.plot(curve["threshold"], value, label=name, **look)
        above = curve["low"].where((curve["high"] == inf) & (curve["low"] > 0))
        below = curve["high"].where((curve["low"] == 0) & (curve["high"] < inf))
        for sign, ends in (("^", above), ("v", below)):
            mark = {"marker": sign, "markersize": 8, "markeredgewidth": 1.3, "markerfacecolor": "white"}
            colour = {"color": look["color"], "markeredgecolor": look["color"]}
            ax.plot(curve["threshold"], ends, linestyle="none", label=f"_{name} {sign}", **mark, **colour)
    for name, (threshold, ratio) in (points or {}).items():
        ax.plot([threshold], [ratio], marker="*", markersize=13, color="#1A1A1A", linestyle="none", label=f"_{name}")
        ax.annotate(name, (threshold, ratio), xytext=(7, 7), textcoords="offset points", fontsize=10.5)
    ax.axhline(1, color=_GREY, linewidth=1.0, linestyle=(0, (5, 3)), zorder=1.5, label="_equal")
    ax.set_ylim(0, top)
    ax.set_xlabel("mean accuracy asked for")
    ax.set_ylabel("ratio of parameters")
    ax.legend(loc="upper left")


def loss_curves(ax, curves: np.ndarray, solved, step: int = 100, calibration: int | None = None) -> None:
    """Training loss of every run: those that solve the task as solid lines, the others dashed.

    Parameters
    ----------
    curves
        (runs, numbers), number i the mean loss of `step` steps, see `hybridseq.learning.reports.curves`.
    solved
        bool (runs,).
    calibration
        number of steps to mark by a line, for example those that a choice of the learning rate saw.

    Raises
    ------
    ValueError
        when shapes do not fit, or there are no runs.
    """
    curves, solved = np.asarray(curves, dtype=float), np.asarray(solved, dtype=bool)
    if curves.ndim != 2 or not curves.size or solved.shape != curves.shape[:1]:
        raise ValueError(f"curves: needs (runs, numbers) and solved (runs,), got {curves.shape} and {solved.shape}")
    steps = step * (np.arange(curves.shape[1]) + 0.5)
    for which, i, name in ((solved, 0, "solves the task"), (~solved, 1, "does not")):
        look = {key: value for key, value in series(i).items() if key != "marker"}
        for number, losses in enumerate(curves[which]):
            label = f"{name} ({which.sum()})" if number == 0 else f"_{name}"
            ax.plot(steps, losses, linewidth=1.2, alpha=0.8, label=label, **look)
    if calibration is not None:
        reference_line(ax, calibration, "calibration", axis="x")
    ax.set_xlabel("step")
    ax.set_ylabel("training loss (nats a label)")
    ax.legend()


# axes ---------------------------------------------------------------------------------------------------------------------


def _need(table: pd.DataFrame, name: str, columns: Iterable[str], unique: tuple[str, ...] = ()) -> None:
    if missing := [column for column in columns if column not in table.columns]:
        raise ValueError(f"{name}: has no column {', '.join(missing)}")
    if table.empty:
        raise ValueError(f"{name}: has no rows, there is nothing to draw")
    if unique and table.duplicated(list(unique)).any():
        where = table[table.duplicated(list(unique))].iloc[0]
        raise ValueError(f"{name}: {', '.join(str(where[u]) for u in unique)} stands there more than once; keep one setting")


def _accuracy_axis(ax, label: str = "accuracy") -> None:
    ax.set_ylim(-0.02, 1.03)
    ax.set_ylabel(label)


def _size_axis(ax) -> None:
    """Parameters on a logarithmic axis with plain numbers."""
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    ticks = [m * 10**e for e in range(1, 10) for m in (1, 2, 5) if low <= m * 10**e <= high]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.set_xlabel("parameters")
