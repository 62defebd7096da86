"""The palette, the line styles and the settings that make all figures look alike.

Colours are those of Okabe and Ito, which stay apart for every common form of colour blindness. Two series never differ
by colour alone: marker and dash differ too, so a grey print can be read. The background is opaque white, so a figure
stays legible on a dark page.
"""

from __future__ import annotations

import matplotlib
from matplotlib.colors import LinearSegmentedColormap

#: Okabe-Ito colours by name. Yellow is for filled areas: as a line on white its contrast is too low.
COLOURS = {
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "black": "#000000",
    "yellow": "#F0E442",
}

#: Blue for -1, white for 0, vermillion for +1: the map for signed codes.
DIVERGING = LinearSegmentedColormap.from_list(
    "hybridseq_diverging", [COLOURS["blue"], "#FFFFFF", COLOURS["vermillion"]]
)

_DASHES = ("solid", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)), (0, (4, 1, 1, 1, 1, 1)), (0, (9, 3)), (0, (1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_SERIES_COLOURS = ("blue", "vermillion", "green", "purple", "orange", "sky", "black")

_INK = "#1A1A1A"
_SETTINGS = {
    "figure.figsize": (6.4, 4.0),
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "savefig.dpi": 160,
    "savefig.facecolor": "white",
    "savefig.edgecolor": "white",
    "savefig.transparent": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib: the same picture on every machine
    "mathtext.fontset": "dejavusans",
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 12,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "legend.fontsize": 11,
    "axes.facecolor": "white",
    "axes.edgecolor": "#4D4D4D",
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.linewidth": 0.9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "lines.linewidth": 2.0,
    "lines.markersize": 6.5,
    "lines.markeredgecolor": "white",
    "lines.markeredgewidth": 0.5,
    "legend.frameon": False,
    "image.cmap": "cividis",
    "image.interpolation": "nearest",
    "axes.prop_cycle": matplotlib.cycler(color=[COLOURS[name] for name in _SERIES_COLOURS]),
}


def style() -> None:
    """Set the one look of the book for all figures made afterwards in this process.

    Starts from matplotlib's own defaults, so a reader's private settings do not leak into the book.
    """
    backend = matplotlib.rcParams["backend"]
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(_SETTINGS)
    matplotlib.rcParams["backend"] = backend  # resetting defaults must not change where figures are drawn


def series(i: int) -> dict:
    """Colour, marker and dash of series number `i`, as keywords for `Axes.plot`.

    Parameters
    ----------
    i
        0 to 6. Seven series are what one set of axes can carry; more belong into small multiples.

    Raises
    ------
    ValueError
        when `i` is not an integer from 0 to 6.

    Example
    -------
    >>> sorted(series(2))
    ['color', 'linestyle', 'marker']
    """
    if isinstance(i, bool) or not hasattr(i, "__index__") or not 0 <= i.__index__() < len(_SERIES_COLOURS):
        raise ValueError(
            f"series(i={i!r}): i must be an integer from 0 to {len(_SERIES_COLOURS) - 1}; "
            "split a figure with more series into small multiples"
        )
    i = i.__index__()
    return {"color": COLOURS[_SERIES_COLOURS[i]], "marker": _MARKERS[i], "linestyle": _DASHES[i]}
