"""One look for every figure of the book, and one door through which a figure reaches the page.

`style()` sets the look, `series(i)` gives the i-th way to draw a line, `label_lines` writes names beside lines,
`reference_line` draws a bound or a chance level, and `publish` shows the finished figure together with its finding,
caption and alternative text, none of which may be left out.

Example
-------
>>> from hybridseq.figures import series
>>> series(0)["color"], series(1)["marker"]
('#0072B2', 's')
"""

from hybridseq.figures.labels import label_lines, reference_line
from hybridseq.figures.look import COLOURS, DIVERGING, series, style
from hybridseq.figures.publication import FigureRecord, publish

__all__ = ["COLOURS", "DIVERGING", "FigureRecord", "label_lines", "publish", "reference_line", "series", "style"]
