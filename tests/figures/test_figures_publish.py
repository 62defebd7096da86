"""A figure reaches the page with all its texts or not at all."""

import base64
import io

import matplotlib
import pytest
from IPython.utils.capture import capture_output
from matplotlib import pyplot as plt

from hybridseq.figures import FigureRecord, publish, style

TEXTS = {
    "name": "fig-two-lines",
    "finding": "The two lines meet.",
    "caption": "Two straight lines, no sampling.",
    "alt": "Two lines, one rising and one falling, that cross in the middle.",
}


@pytest.fixture
def figure():
    matplotlib.use("Agg")
    style()
    fig, ax = plt.subplots()
    ax.plot([0, 1], [0, 1])
    ax.plot([0, 1], [1, 0])
    yield fig
    plt.close("all")


def published(fig, monkeypatch):
    """What `publish` hands to the display, as (data, metadata)."""
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, metadata, raw: shown.append((data, metadata)))
    publish(fig, **TEXTS)
    return shown[0]


def test_texts_travel_in_the_metadata(figure, monkeypatch):
    data, metadata = published(figure, monkeypatch)
    record = metadata["hybridseq"]["figure"]
    assert {key: record[key] for key in TEXTS} == TEXTS
    assert TEXTS["alt"] in data["text/plain"]


def test_picture_is_an_opaque_png(figure, monkeypatch):
    data, metadata = published(figure, monkeypatch)
    pixels = plt.imread(io.BytesIO(base64.b64decode(data["image/png"])))
    assert pixels[0, 0, :3].min() == 1
    assert pixels.shape[2] == 3 or pixels[..., 3].min() == 1
    assert metadata["image/png"]["width"] == round(pixels.shape[1] * 100 / 160)


def test_same_figure_same_bytes(monkeypatch):
    matplotlib.use("Agg")
    shown = []
    for _ in range(2):
        style()
        fig, ax = plt.subplots()
        ax.plot([0, 1], [0, 1])
        shown.append(published(fig, monkeypatch)[0]["image/png"])
    assert shown[0] == shown[1]


def test_figure_is_closed(figure, monkeypatch):
    published(figure, monkeypatch)
    assert not plt.fignum_exists(figure.number)


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("value", ["", "  \n", None, 3])
def test_missing_text_is_answered_and_nothing_is_shown(figure, field, value):
    with capture_output() as shown, pytest.raises(ValueError, match=field):
        publish(figure, **(TEXTS | {field: value}))
    assert not shown.outputs


@pytest.mark.parametrize("field", TEXTS)
def test_left_out_text_is_answered(figure, field):
    texts = {key: value for key, value in TEXTS.items() if key != field}
    with pytest.raises(ValueError, match=field):
        publish(figure, **texts)


@pytest.mark.parametrize("name", ["two-lines", "fig-", "fig-Two", "fig two", "fig--x", "fig-a_b"])
def test_malformed_name_is_answered(name):
    with pytest.raises(ValueError, match="'fig-' followed by"):
        FigureRecord(**(TEXTS | {"name": name}))


@pytest.mark.parametrize("finding", ["no full stop", "Two\nlines."])
def test_finding_is_one_sentence(finding):
    with pytest.raises(ValueError, match="one sentence"):
        FigureRecord(**(TEXTS | {"finding": finding}))


def test_alt_text_may_not_repeat_the_caption():
    with pytest.raises(ValueError, match="what a person sees"):
        FigureRecord(**(TEXTS | {"alt": TEXTS["caption"]}))


def test_something_else_than_a_figure_is_answered(figure):
    with pytest.raises(ValueError, match="matplotlib Figure"):
        publish(figure.axes[0], **TEXTS)


def test_empty_figure_is_answered():
    with pytest.raises(ValueError, match="no axes"):
        publish(plt.figure(), **TEXTS)
