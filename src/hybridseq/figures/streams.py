"""Residual streams as pictures: one row a state of the stream, one column a coordinate, names above the columns."""

from __future__ import annotations

import numpy as np

from hybridseq.figures.look import DIVERGING

_INK = "#4D4D4D"
_LINE = 12  # points between two lines of names


def stream_grid(ax, values, spaces, fontsize: float = 10) -> None:
    """Draw rows of a residual stream whose entries are mostly -1, 0 and +1.

    Colour and sign both say what a cell holds, so the picture can be read in grey; white cells are 0.

    Parameters
    ----------
    ax
        empty axes.
    values
        array (rows, dim) of real numbers; colours saturate at 1.6 in size.
    spaces
        pairs (name, dimension) in the order of the columns, such as `Stream.spaces`. Names of neighbouring narrow subspaces
        are written on two levels.
    fontsize
        of the names, in points.

    Raises
    ------
    ValueError
        when `values` is not two-dimensional or the dimensions do not add up to its columns.

    Example
    -------
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().add_subplot()
    >>> stream_grid(ax, [[1, -1, 0]], [("g", 1), ("A", 2)])
    >>> [text.get_text() for text in ax.texts]
    ['+', '−', 'g', 'A']
    """
    values = np.asarray(values, dtype=float)
    spaces = [(name, int(dim)) for name, dim in spaces]
    total = sum(dim for _, dim in spaces)
    if values.ndim != 2 or values.shape[1] != total:
        raise ValueError(f"stream_grid(values): needs shape (rows, {total}) for the given spaces, got {values.shape}")
    ax.imshow(values, cmap=DIVERGING, vmin=-1.6, vmax=1.6, aspect="auto")
    for row, column in np.argwhere(values != 0):
        ax.text(column, row, "+" if values[row, column] > 0 else "−", ha="center", va="center", fontsize=0.85 * fontsize)
    _names(ax, spaces, fontsize)
    ax.grid(False)
    ax.set_xticks([])


def _names(ax, spaces, fontsize: float) -> None:
    """Names above the columns and lines between subspaces; a narrow subspace beside a low narrow name goes one level up."""
    start, crowded = 0, False
    for name, dim in spaces:
        raised = crowded and dim < 3
        at = (start + (dim - 1) / 2, -0.5)
        shift = (0, 4 + _LINE * raised)
        ax.annotate(name, at, xytext=shift, textcoords="offset points", ha="center", fontsize=fontsize)
        start += dim
        ax.axvline(start - 0.5, color=_INK, linewidth=0.8)
        crowded = dim < 3 and not raised
