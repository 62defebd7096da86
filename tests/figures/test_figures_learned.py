"""Figures of trained models: what they hold, told apart without colour, and what is refused."""

from math import inf

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from hybridseq.figures import series, style
from hybridseq.figures.learned import (
    ARCHITECTURES,
    accuracy_curves,
    learning_rate_matrix,
    looks,
    loss_curves,
    ratio_curves,
    run_strips,
    solved_fractions,
)

SUMMARY = pd.DataFrame([
    {"layers": layers, "parameters": size, "mean": mean, "low": mean - 0.1, "high": mean + 0.1, "solved_fraction": mean,
     "solved_low": mean - 0.05, "solved_high": mean + 0.05}
    for layers, size, mean in (("SSM-TF", 2008, 0.5), ("SSM-TF", 780, 0.2), ("TF-TF", 396, 0.15), ("TF-TF", 1304, 0.3))
])  # fmt: skip
PAPER = pd.DataFrame({"layers": ["SSM-TF", "TF-SSM"], "parameters": [2000, 2000], "mean": [0.512, 0.183]})
RUNS = pd.DataFrame([
    {"layers": layers, "width": width, "parameters": 100 * width, "learning_rate": rate, "accuracy": 0.1 * seed + rate}
    for layers, width in (("SSM-TF", 4), ("SSM-TF", 8), ("TF-TF", 4)) for rate in (0.001, 0.01) for seed in range(5)
])  # fmt: skip


@pytest.fixture(autouse=True)
def clean_figures():
    style()
    yield
    plt.close("all")


@pytest.fixture
def ax():
    return Figure().add_subplot()


def line(ax, label):
    (found,) = [line for line in ax.lines if line.get_label() == label]
    return found


def points(drawn):
    return [tuple(map(float, point)) for point in zip(*drawn.get_data(), strict=True)]


# looks --------------------------------------------------------------------------------------------------------------------


def test_an_architecture_always_looks_the_same():
    for present in (["TF-TF"], ARCHITECTURES, ["TF-TF", "GDN-TF", "SSM-TF"]):
        assert looks(present)["TF-TF"] == series(1)


def test_all_looks_differ_in_marker_and_dash():
    for names in ([*ARCHITECTURES, "GDN-TF", "GLA-TF", "SSM-SSM-TF"], list("abcdefg"), ["TF-TF", *"abcdef"]):
        style = looks(names)
        assert set(style) == set(names)
        assert len({look["marker"] for look in style.values()}) == len({str(look["linestyle"]) for look in style.values()}) == 7


def test_eight_architectures_are_too_many():
    with pytest.raises(ValueError, match="8 architectures"):
        looks("abcdefgh")


# accuracy against size ----------------------------------------------------------------------------------------------------


def test_lines_bands_and_published_points(ax):
    accuracy_curves(ax, SUMMARY, {"paper": PAPER}, chance=0.125, threshold=0.6)
    assert points(line(ax, "SSM-TF")) == [(780, 0.2), (2008, 0.5)]  # in the order of size
    published = line(ax, "_paper: TF-SSM")
    assert points(published) == [(2000, 0.183)] and published.get_linestyle() == "None"
    assert published.get_fillstyle() != line(ax, "SSM-TF").get_fillstyle()
    assert published.get_marker() == series(3)["marker"]
    (band,) = [b for b in ax.collections if np.isclose(b.get_paths()[0].vertices[:, 0].max(), 2008)]
    assert np.isclose(band.get_paths()[0].vertices[:, 1].min(), 0.1) and np.isclose(band.get_paths()[0].vertices[:, 1].max(), 0.6)
    texts = [text.get_text() for text in ax.texts]
    assert {"SSM-TF", "TF-TF", "chance", "threshold 0.6"} <= set(texts)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["this book", "paper"]
    assert ax.get_xscale() == "log" and ax.get_xlabel() == "parameters" and ax.get_ylabel() == "accuracy"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["500", "1,000", "2,000"]


def test_three_sources_have_three_fills(ax):
    accuracy_curves(ax, SUMMARY, dict.fromkeys("pqr", PAPER))
    assert len({line(ax, f"_{name}: SSM-TF").get_fillstyle() for name in "pqr"} | {"full"}) == 4


def test_without_published_points_there_is_no_legend(ax):
    accuracy_curves(ax, SUMMARY)
    assert ax.get_legend() is None and len(ax.lines) == 2


def test_solved_fractions_and_their_bars(ax):
    solved_fractions(ax, SUMMARY)
    ssm, tf = line(ax, "SSM-TF"), line(ax, "TF-TF")
    assert ssm.get_ydata().tolist() == [0.2, 0.5] and tf.get_ydata().tolist() == [0.15, 0.3]
    bars = ax.containers[0].lines[2][0].get_segments()
    assert np.allclose([bar[:, 1] for bar in bars], [[0.15, 0.25], [0.45, 0.55]])
    assert np.allclose(ssm.get_xdata(), [780, 2008], rtol=0.05) and ssm.get_xdata()[0] != 780  # set aside, so bars do not hide
    assert {"SSM-TF", "TF-TF"} <= {text.get_text() for text in ax.texts}


# every run ----------------------------------------------------------------------------------------------------------------


def test_a_dot_for_every_run():
    axes = Figure().subplots(1, 2)
    run_strips(axes, RUNS, solved_at=0.35)
    for ax, name in zip(axes, ("SSM-TF", "TF-TF"), strict=True):
        here = RUNS[RUNS["layers"] == name]
        dots = [point for strip in ax.lines if strip.get_linestyle() == "None" for point in points(strip)]
        assert ax.get_title(loc="left") == name
        assert np.allclose(sorted(y for _, y in dots), np.sort(here["accuracy"]))
        assert len(set(dots)) == len(here)  # no dot on another
        assert "solved" in [text.get_text() for text in ax.texts]


def test_the_matrix_of_learning_rates():
    fig = Figure(figsize=(5, 4))
    chosen = pd.DataFrame({"layers": ["SSM-TF"], "width": [8], "learning_rate": [0.01]})
    axes = learning_rate_matrix(fig, RUNS, chosen)
    assert axes.shape == (2, 2)
    assert [ax.get_title(loc="left") for ax in axes[0]] == ["d = 4", "d = 8"]
    assert [ax.get_ylabel() for ax in axes[:, 0]] == ["SSM-TF", "TF-TF"]
    dots, means, *mark = axes[0, 1].lines
    assert len(points(dots)) == 10 and np.allclose(points(means), [(0.001, 0.201), (0.01, 0.21)])
    assert points(mark[0])[0][0] == 0.01 and len(axes[0, 0].lines) == 2
    assert [text.get_text() for text in axes[1, 1].texts] == ["not run"]


def test_losses_of_solved_and_unsolved_runs(ax):
    loss_curves(ax, [[2.0, 1.0], [2.0, 1.9], [2.1, 2.0]], [True, False, False], calibration=100)
    assert line(ax, "solves the task (1)").get_ydata().tolist() == [2.0, 1.0]
    assert line(ax, "solves the task (1)").get_xdata().tolist() == [50, 150]
    assert line(ax, "does not (2)").get_linestyle() != line(ax, "solves the task (1)").get_linestyle()
    assert "calibration" in [text.get_text() for text in ax.texts] and len(ax.lines) == 4


# ratios -------------------------------------------------------------------------------------------------------------------

RATIOS = pd.DataFrame({
    "threshold": [0.2, 0.4, 0.6, 0.8, 0.9], "low": [0, 2.0, 1.5, 1.2, 0], "high": [1.4, 2.0, 1.5, inf, inf],
    "interval_low": [0, 1.0, 1.2, 1.0, 0], "interval_high": [1.5, 3.0, inf, inf, inf],
})  # fmt: skip


def test_ratios_of_architectures_look_as_in_the_other_figures(ax):
    ratio_curves(ax, {"SSM-SSM": RATIOS, "TF-TF": RATIOS})
    for name, look in looks(["SSM-SSM", "TF-TF", "SSM-TF"]).items():
        if name != "SSM-TF":
            drawn = line(ax, name)
            assert (drawn.get_color(), drawn.get_marker()) == (look["color"], look["marker"])


def test_ratios_that_are_known_from_one_side_are_arrows(ax):
    ratio_curves(ax, {"best mean": RATIOS, "smallest loss": RATIOS[1:3]}, {"paper": (0.6, 6), "audit": (0.6, 1.93)})
    known = line(ax, "best mean").get_ydata()
    assert known[1:3].tolist() == [2.0, 1.5] and np.isnan(known[[0, 3, 4]]).all()
    above, below = (line(ax, f"_best mean {sign}").get_ydata() for sign in "^v")
    assert above[3] == 1.2 and np.isnan(above[[0, 1, 2, 4]]).all()
    assert below[0] == 1.4 and np.isnan(below[1:]).all()
    assert points(line(ax, "_paper")) == [(0.6, 6)] and "audit" in [text.get_text() for text in ax.texts]
    band = ax.collections[0].get_paths()[0].vertices
    assert np.isfinite(band).all() and band[:, 1].max() > ax.get_ylim()[1]  # open intervals leave the axes at the top
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["best mean", "smallest loss"]


# what is refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda ax: accuracy_curves(ax, SUMMARY.drop(columns=["low", "mean"])), "mean, low"),
        (lambda ax: accuracy_curves(ax, SUMMARY[:0]), "no rows"),
        (lambda ax: accuracy_curves(ax, pd.concat([SUMMARY, SUMMARY])), "more than once"),
        (lambda ax: accuracy_curves(ax, SUMMARY, {"paper": PAPER.drop(columns="mean")}), "paper: has no column mean"),
        (lambda ax: accuracy_curves(ax, SUMMARY, dict.fromkeys("pqrs", PAPER)), "4 sources"),
        (lambda ax: solved_fractions(ax, SUMMARY.drop(columns="solved_low")), "solved_low"),
        (lambda ax: run_strips(ax, RUNS), "axes"),
        (lambda ax: run_strips(ax, RUNS[:0]), "no rows"),
        (lambda ax: learning_rate_matrix(ax.figure, RUNS.drop(columns="width")), "width"),
        (lambda ax: learning_rate_matrix(ax.figure, RUNS, RUNS), "more than once"),
        (lambda ax: ratio_curves(ax, {}), "curves"),
        (lambda ax: ratio_curves(ax, {"best": RATIOS.drop(columns="low")}), "best: has no column low"),
        (lambda ax: loss_curves(ax, [[1.0]], [True, False]), "solved"),
        (lambda ax: loss_curves(ax, [], []), "curves"),
    ],
)
def test_what_cannot_be_drawn(call, named, ax):
    with pytest.raises(ValueError, match=named):
        call(ax)
