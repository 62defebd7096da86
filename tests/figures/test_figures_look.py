"""The one look: series differ by more than colour, text can be read, the background is opaque white."""

import subprocess
import sys
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt

from hybridseq.figures import COLOURS, label_lines, reference_line, series, style
from hybridseq.figures.labels import _spread, contrast_on_white, text_colour


@pytest.fixture(autouse=True)
def _fresh_figures():
    matplotlib.use("Agg")
    style()
    yield
    plt.close("all")


def test_series_differ_in_colour_marker_and_dash():
    looks = [series(i) for i in range(7)]
    for key in ("color", "marker", "linestyle"):
        assert len({str(look[key]) for look in looks}) == 7


@pytest.mark.parametrize("bad", [-1, 7, 1.5, True, "0", None])
def test_series_out_of_range_is_answered(bad):
    with pytest.raises(ValueError, match="0 to 6"):
        series(bad)


def test_series_accepts_numpy_integers():
    assert series(np.int64(3)) == series(3)


def test_style_is_opaque_white_and_keeps_the_backend():
    before = matplotlib.rcParams["backend"]
    matplotlib.rcParams["figure.facecolor"] = "none"
    style()
    assert matplotlib.rcParams["figure.facecolor"] == "white"
    assert matplotlib.rcParams["savefig.facecolor"] == "white"
    assert not matplotlib.rcParams["savefig.transparent"]
    assert matplotlib.rcParams["backend"] == before


def test_text_is_readable_at_phone_width():
    inches = matplotlib.rcParams["figure.figsize"][0]
    smallest = min(matplotlib.rcParams[key] for key in ("font.size", "xtick.labelsize", "legend.fontsize"))
    assert smallest / 72 / inches * 358 >= 8  # CSS pixels of a letter in a column of 358 pixels


@pytest.mark.parametrize("name", COLOURS)
def test_label_colours_can_be_read_on_white(name):
    assert contrast_on_white(text_colour(COLOURS[name])) >= 4.5


def test_contrast_ends_of_the_scale():
    assert contrast_on_white("white") == pytest.approx(1)
    assert contrast_on_white("black") == pytest.approx(21)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8), st.floats(0.5, 10))
def test_spread_keeps_order_and_distance(wishes, gap):
    placed = _spread(sorted(wishes), gap, 0, 100)
    assert len(placed) == len(wishes)
    assert all(b - a >= gap - 1e-6 for a, b in pairwise(placed))
    assert min(placed) >= -1e-6


def test_spread_leaves_labels_that_do_not_touch():
    assert _spread([0.0, 20.0, 40.0], 10, 0, 100) == [0.0, 20.0, 40.0]


def test_labels_do_not_overlap():
    fig, ax = plt.subplots()
    for i in range(5):
        ax.plot([0, 1, 2], [0, 1, 1 + i / 100], label=f"line {i}", **series(i))
    notes = label_lines(ax)
    fig.draw_without_rendering()
    boxes = sorted((note.get_window_extent() for note in notes), key=lambda box: box.y0)
    assert len(boxes) == 5
    assert all(lower.y1 <= upper.y0 + 1 for lower, upper in pairwise(boxes))


def test_labels_follow_the_last_finite_point():
    _, ax = plt.subplots()
    ax.plot([0, 1, 2], [1.0, 2.0, np.nan], label="a")
    assert label_lines(ax)[0].xy == (1.0, 2.0)


def test_axes_without_labels_are_answered():
    _, ax = plt.subplots()
    ax.plot([0, 1], [0, 1])
    with pytest.raises(ValueError, match="label="):
        label_lines(ax)


@pytest.mark.parametrize("axis", ["x", "y"])
def test_reference_line_carries_its_name(axis):
    _, ax = plt.subplots()
    reference_line(ax, 0.5, "chance", axis=axis)
    assert [text.get_text() for text in ax.texts] == ["chance"]


def test_reference_line_bad_arguments():
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match="'x' or 'y'"):
        reference_line(ax, 0.5, "chance", axis="z")
    with pytest.raises(ValueError, match="name"):
        reference_line(ax, 0.5, " ")


def test_figures_import_no_torch():
    code = "import sys, hybridseq.figures; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
