"""Names written beside lines, and lines that mark a bound or a chance level."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_hex, to_rgb

_LINE_HEIGHT = 1.25  # distance of two labels in units of the font size


def _last_point(line) -> tuple[float, float] | None:
    """Last point of a line with finite coordinates, in data coordinates."""
    x, y = (np.asarray(values, dtype=float) for values in line.get_data())
    finite = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    return (x[finite[-1]], y[finite[-1]]) if finite.size else None


def _spread(heights: list[float], gap: float, low: float, high: float) -> list[float]:
    """Move sorted heights apart until neighbours are `gap` from each other, staying near where they were.

    Neighbours that touch form a group, which is centred on the mean of where its members wanted to be.
    """
    groups: list[list[float]] = []  # [sum of wishes relative to the group's first slot, size]
    for height in heights:
        groups.append([height, 1])
        while len(groups) > 1 and _bottom(groups[-2], gap) + groups[-2][1] * gap > _bottom(groups[-1], gap):
            total, size = groups.pop()
            groups[-1][0] += total
            groups[-1][1] += size
    placed = [_bottom(group, gap) + slot * gap for group in groups for slot in range(int(group[1]))]
    if placed and placed[-1] > high:
        placed = [height - (placed[-1] - high) for height in placed]
    if placed and placed[0] < low:
        placed = [height + (low - placed[0]) for height in placed]
    return placed


def _bottom(group: list[float], gap: float) -> float:
    """Height of the lowest member of a group that is centred on the mean of its wishes."""
    total, size = group
    return total / size - gap * (size - 1) / 2


def contrast_on_white(color) -> float:
    """Contrast ratio of a colour against white, from 1 (white) to 21 (black), as WCAG 2 defines it."""
    channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return 1.05 / (0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2] + 0.05)


def text_colour(color) -> str:
    """The colour, darkened as far as needed to be read as text on white (contrast at least 4.5)."""
    rgb = np.array(to_rgb(color))
    while contrast_on_white(rgb) < 4.5:
        rgb = rgb * 0.95
    return to_hex(rgb)


def label_lines(ax, lines=None, fontsize: float = 11) -> list:
    """Write each line's label beside its last point, in the line's colour (darkened where needed), without overlap.

    Parameters
    ----------
    ax
        the axes; limits and scales should be final.
    lines
        the lines to label, by default all lines of `ax` whose label does not begin with an underscore.
    fontsize
        in points.

    Returns
    -------
    list of the annotations, from the lowest to the highest.

    Raises
    ------
    ValueError
        when there is no labelled line with a finite point.
    """
    chosen = [line for line in (ax.lines if lines is None else lines) if not str(line.get_label()).startswith("_")]
    ends = [(line, point) for line in chosen if (point := _last_point(line)) is not None]
    if not ends:
        raise ValueError("label_lines(ax): no line of these axes has a label; pass label=... to ax.plot")
    ax.figure.draw_without_rendering()  # settles the layout, so that heights on the page are known
    pixels = ax.figure.dpi / 72
    at = ax.transData.transform
    ends.sort(key=lambda end: at(end[1])[1])
    box = ax.get_window_extent()
    wanted = [float(at(point)[1]) for _, point in ends]
    placed = _spread(wanted, _LINE_HEIGHT * fontsize * pixels, box.y0, box.y1)
    notes = []
    for (line, point), want, place in zip(ends, wanted, placed, strict=True):
        notes.append(
            ax.annotate(
                line.get_label(), xy=point, xytext=(9, (place - want) / pixels), textcoords="offset points",
                color=text_colour(line.get_color()), fontsize=fontsize, fontweight="bold", va="center", annotation_clip=False,
            )
        )
    return notes


def reference_line(ax, value: float, label: str, axis: str = "y", where: float = 0.02) -> None:
    """Draw a bound or a chance level as a thin grey line with its name on it.

    Parameters
    ----------
    value
        where the line stands, in data units of `axis`.
    label
        its name, for example "chance" or "lower bound".
    axis
        "y" for a horizontal line, "x" for a vertical one.
    where
        position of the name along the line, as a fraction of the axes.

    Raises
    ------
    ValueError
        when `axis` is neither "x" nor "y", or the label is empty.
    """
    if axis not in ("x", "y"):
        raise ValueError(f"reference_line(axis={axis!r}): axis must be 'x' or 'y'")
    if not isinstance(label, str) or not label.strip():
        raise ValueError(f"reference_line(label={label!r}): a bound without a name cannot be read; pass its name")
    look = {"color": "#595959", "linewidth": 1.2, "linestyle": (0, (5, 3)), "zorder": 1.5}
    text = {"color": "#404040", "fontsize": 10.5, "textcoords": "offset points"}
    if axis == "y":
        ax.axhline(value, **look)
        ax.annotate(label, xy=(where, value), xycoords=("axes fraction", "data"), xytext=(0, 3), va="bottom", **text)
    else:
        ax.axvline(value, **look)
        ax.annotate(
            label, xy=(value, 1 - where), xycoords=("data", "axes fraction"), xytext=(4, 0), va="top", **text
        )
