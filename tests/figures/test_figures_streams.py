"""Pictures of residual streams."""

import pytest
from matplotlib.figure import Figure

from hybridseq.figures.streams import stream_grid

SPACES = (("g", 1), ("f", 1), ("A", 4), ("V", 1), ("PAR", 1), ("R", 4))


def drawn(values):
    ax = Figure().add_subplot()
    stream_grid(ax, values, SPACES)
    return ax


def test_signs_names_and_borders():
    ax = drawn([[1, 0, -1, 1, 0, 0, 1, 0, 0, 0, 0, 0], [0] * 12])
    texts = [text.get_text() for text in ax.texts]
    assert texts[:4] == ["+", "−", "+", "+"] and texts[4:] == [name for name, _ in SPACES]
    assert [line.get_xdata()[0] for line in ax.lines] == [0.5, 1.5, 5.5, 6.5, 7.5, 11.5]
    assert ax.get_images()[0].get_array().shape == (2, 12)


def test_narrow_neighbours_stand_on_two_levels():
    names = {text.get_text(): text.xyann[1] for text in drawn([[0] * 12]).texts}
    assert names["f"] > names["g"] and names["PAR"] > names["V"]
    assert names["A"] == names["g"] == names["R"]


@pytest.mark.parametrize("values", [[0] * 12, [[0] * 11], [[[0] * 12]]])
def test_wrong_shapes(values):
    with pytest.raises(ValueError, match="12"):
        drawn(values)
