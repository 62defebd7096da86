"""The door through which a figure reaches the page: with its finding, caption and alternative text, or not at all."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import asdict, dataclass

from matplotlib.figure import Figure

_NAME = re.compile(r"fig-[a-z0-9]+(?:-[a-z0-9]+)*")
_DPI = 160
_CSS_PIXELS_PER_INCH = 100


@dataclass(frozen=True)
class FigureRecord:
    """What a page needs to know about a figure besides its pixels.

    Attributes
    ----------
    name
        label for cross references, `fig-` and then lower case words joined by hyphens.
    finding
        what the figure shows, in one sentence. It opens the caption.
    caption
        how it was made: how many cases or seeds, what a band is, scope, profile.
    alt
        what a person would see, for readers who do not.
    """

    name: str
    finding: str
    caption: str
    alt: str

    def __post_init__(self):
        for field, text in asdict(self).items():
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"publish({field}={text!r}): {field} must be a text that is not empty; write it")
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"publish(name={self.name!r}): the name must be 'fig-' followed by lower case letters, digits and "
                "hyphens, for example 'fig-hard-selection'"
            )
        finding = self.finding.strip()
        if "\n" in finding or not finding.endswith((".", "!", "?")):
            raise ValueError(f"publish(finding={self.finding!r}): the finding must be one sentence with its full stop")
        if self.alt.strip() in (finding, self.caption.strip()):
            raise ValueError(
                f"publish(alt={self.alt!r}): the alternative text must say what a person sees, "
                "not repeat the finding or the caption"
            )


def _png(fig: Figure) -> tuple[bytes, int]:
    """PNG of the figure on opaque white, the same bytes for the same figure, and its width in CSS pixels."""
    buffer = io.BytesIO()
    fig.savefig(
        buffer, format="png", dpi=_DPI, facecolor="white", transparent=False, bbox_inches="tight", pad_inches=0.1,
        metadata={"Software": None},
    )
    data = buffer.getvalue()
    pixels = int.from_bytes(data[16:20], "big")  # width field of the PNG header
    return data, round(pixels * _CSS_PIXELS_PER_INCH / _DPI)


def publish(
    fig: Figure, name: str | None = None, finding: str | None = None, caption: str | None = None, alt: str | None = None
) -> None:
    """Show a finished figure, last in its cell, and close it.

    The picture is displayed as PNG; the texts travel in the output's metadata under `hybridseq.figure`, from which the
    builder makes a numbered figure that can be referred to by `name`.

    Parameters
    ----------
    fig
        a matplotlib figure with at least one set of axes.
    name, finding, caption, alt
        see `FigureRecord`; all are required, and one left out is answered like an empty one.

    Raises
    ------
    ValueError
        when one of them is missing, empty or malformed, or the figure has no axes.

    Example
    -------
    >>> from matplotlib.figure import Figure
    >>> publish(Figure(), name="fig-empty", finding="Nothing.", caption="No data.", alt="An empty page.")
    Traceback (most recent call last):
    ...
    ValueError: publish(fig): the figure has no axes; draw something before publishing it
    """
    from IPython.display import display
    from matplotlib import pyplot as plt

    record = FigureRecord(name, finding, caption, alt)
    if not isinstance(fig, Figure):
        given = type(fig).__name__
        raise ValueError(f"publish(fig={given}): fig must be a matplotlib Figure, as plt.subplots gives")
    if not fig.axes:
        raise ValueError("publish(fig): the figure has no axes; draw something before publishing it")
    data, width = _png(fig)
    plt.close(fig)  # else a notebook would show it a second time
    texts = {field: " ".join(text.split()) for field, text in asdict(record).items()}
    display(
        {"image/png": base64.b64encode(data).decode("ascii"), "text/plain": f"[{texts['name']}] {texts['alt']}"},
        metadata={"hybridseq": {"figure": texts | {"width": width}}, "image/png": {"width": width}},
        raw=True,
    )
