"""Sequence diagrams: every message an arrow with its label, kinds told apart by dash, bad input refused."""

import pytest
from matplotlib.figure import Figure

from hybridseq.figures.exchanges import exchange

PLAYERS = [("2", "3 1 0 2"), ("1", "0 1"), ("0", "1")]
EPOCHS = [("R, a chain", True, [(0, 1, "14 bits"), (1, 2, "14 bits")]), ("F, a round", False, [(0, 1, "26"), (0, 2, "13")])]


def draw(players=PLAYERS, epochs=EPOCHS):
    ax = Figure().add_subplot()
    exchange(ax, players, epochs)
    ax.figure.draw_without_rendering()
    return ax


def test_every_message_is_an_arrow_with_its_label():
    ax = draw()
    texts = [t.get_text() for t in ax.texts]
    assert [t for t in texts if t] == [
        "2", "3 1 0 2", "1", "0 1", "0", "1", "R, a chain", "14 bits", "14 bits", "F, a round", "26", "13",
    ]  # fmt: skip
    arrows = [t for t in ax.texts if getattr(t, "arrow_patch", None) is not None]
    assert [(a.xyann[0], a.xy[0]) for a in arrows] == [(0, 1), (1, 2), (0, 1), (0, 2)]
    heights = [a.xy[1] for a in arrows]
    assert heights == sorted(heights, reverse=True) and all(h < 0 for h in heights)
    looks = [(a.arrow_patch.get_linestyle() != "solid", a.arrow_patch.get_edgecolor()) for a in arrows]
    assert looks[0] == looks[1] != looks[2] == looks[3]


@pytest.mark.parametrize(
    ("players", "epochs", "message"),
    [
        (PLAYERS[:1], EPOCHS, "1 of them"),
        (PLAYERS, [("R", True, [])], "epoch 0"),
        (PLAYERS, [("R", True, [(1, 1, "x")])], "from 1 to 1 among 3"),
        (PLAYERS, [("R", True, [(0, 3, "x")])], "from 0 to 3"),
    ],
)
def test_bad_diagrams(players, epochs, message):
    with pytest.raises(ValueError, match=message):
        draw(players, epochs)
