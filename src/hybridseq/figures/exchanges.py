"""Who sends what to whom: players as vertical lines, messages as arrows, one band an epoch."""

from __future__ import annotations

from collections.abc import Sequence

from hybridseq.figures.labels import text_colour
from hybridseq.figures.look import COLOURS

_INK = "#4D4D4D"
_BAND = "#F2F2F2"
_COLOURS = {True: COLOURS["vermillion"], False: COLOURS["blue"]}


def exchange(
    ax, players: Sequence[tuple[str, str]], epochs: Sequence[tuple[str, bool, Sequence]], fontsize: float = 10.5
) -> None:
    """Draw a protocol as a sequence diagram, time running down.

    Parameters
    ----------
    ax
        empty axes.
    players
        pairs (name, what it owns), from left to right; both are written above the player's line.
    epochs
        triples (title, dashed, messages) from top to bottom; a message is (sender, receiver, label) with players counted
        from 0. Kinds of epoch differ by dash and colour.
    fontsize
        of labels, in points.

    Raises
    ------
    ValueError
        when there are fewer than two players, an epoch without messages, or a message of a player to itself or to none.

    Example
    -------
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().add_subplot()
    >>> exchange(ax, [("2", "a b"), ("1", "c")], [("R", True, [(0, 1, "7")])])
    >>> [text.get_text() for text in ax.texts if text.get_text()]
    ['2', 'a b', '1', 'c', 'R', '7']
    """
    if len(players) < 2:
        raise ValueError(f"exchange(players): {len(players)} of them; a message needs two")
    for column, (name, owns) in enumerate(players):
        place = {"xy": (column, 0), "textcoords": "offset points", "ha": "center"}
        ax.annotate(name, xytext=(0, 20), fontsize=1.15 * fontsize, weight="bold", **place)
        ax.annotate(owns, xytext=(0, 6), fontsize=0.95 * fontsize, color=_INK, **place)
    row = 0.0
    for number, (title, dashed, messages) in enumerate(epochs):
        if not messages:
            raise ValueError(f"exchange(epochs): epoch {number} ({title}) has no messages")
        height = len(messages) + 0.6
        if number % 2 == 0:
            ax.axhspan(-row, -row - height, color=_BAND, linewidth=0)
        ax.annotate(title, (-0.16, -row - height / 2), ha="right", va="center", fontsize=fontsize)
        for place, (sender, receiver, label) in enumerate(messages):
            if sender == receiver or not {sender, receiver} <= set(range(len(players))):
                raise ValueError(f"exchange(epochs): no message goes from {sender} to {receiver} among {len(players)} players")
            _arrow(ax, sender, receiver, -row - place - 0.85, label, dashed, fontsize)
        row += height
    ax.vlines(range(len(players)), -row, 0, color=_INK, linewidth=1.2, zorder=1)
    ax.set(xlim=(-0.75, len(players) - 0.8), ylim=(-row, 0), xticks=[], yticks=[])
    ax.grid(False)
    for side in ax.spines.values():
        side.set_visible(False)


def _arrow(ax, sender: int, receiver: int, height: float, label: str, dashed: bool, fontsize: float) -> None:
    colour = _COLOURS[dashed]
    style = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.6, "linestyle": (0, (4, 2)) if dashed else "solid"}
    ax.annotate("", (receiver, height), (sender, height), arrowprops=style | {"shrinkA": 0, "shrinkB": 1})
    at = (receiver + (0.5 if sender > receiver else -0.5), height)
    look = {"fontsize": 0.9 * fontsize, "color": text_colour(colour)}
    ax.annotate(label, at, xytext=(0, 3), textcoords="offset points", ha="center", **look)
