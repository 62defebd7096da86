"""Published numbers: every table loads, keeps its source, and says what the sources say."""

from pathlib import Path

import pytest

from hybridseq.learning.crossings import crossing, crossing_ratio
from hybridseq.learning.published import PUBLISHED, PUBLISHED_RUNS, published, published_runs
from hybridseq.learning.reports import summary
from hybridseq.rng import Generator


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_table_loads_with_its_source(name):
    table = published(name)
    assert list(table.columns) == ["layers", "parameters", "mean", "exact"]
    assert table["mean"].between(0, 1).all() and not table.duplicated(["layers", "parameters"]).any()
    assert "Figure" in table.attrs["source"] and not table.attrs["source"].startswith("#")


def test_the_printed_rows_of_figure_6():
    table = published("paper-figure-6").pivot(index="parameters", columns="layers", values="mean")
    assert table.loc[12000].to_dict() == {"SSM-SSM": 0.517, "SSM-TF": 0.989, "TF-SSM": 0.524, "TF-TF": 0.668}
    assert list(table.index) == [1000, 2000, 6000, 12000]
    assert not published("paper-figure-6")["exact"].any()


def test_the_crossings_that_the_sources_state():
    audit = crossing(published("audit-figure-6"), 0.6)
    assert (audit["SSM-TF"].first, audit["TF-TF"].first) == (3684, 7100)
    assert round(7100 / 3684, 2) == 1.93
    copying = crossing(published("audit-figure-4"), 0.9)
    assert copying["SSM-TF"].first == 2192
    assert not copying["TF-TF"].reached  # the audit names a crossing at 18,240, but lists no mean there
    paper = crossing(published("paper-figure-6"), 0.6)
    assert (paper["SSM-TF"].first, paper["TF-TF"].first) == (6000, 12000)  # the printed rows alone give a ratio of 2


@pytest.mark.parametrize("name", PUBLISHED_RUNS)
def test_published_runs_have_the_published_means(name):
    runs, table = published_runs(name), published(name)
    means = summary(runs).set_index(["layers", "parameters"])["mean"]
    assert len(means) == len(table) and (summary(runs)["n"] == 11).all()
    for row in table.itertuples():
        assert means[row.layers, row.parameters] == pytest.approx(row.mean, abs=6e-6)
    assert runs.attrs["source"] and set(runs["learning_rate"]) == {0.001, 0.00316227766, 0.01}


def test_the_audits_ratio_and_how_far_its_seeds_carry_it():
    ratio = crossing_ratio(published_runs("audit-figure-6"), 0.6, "TF-TF", "SSM-TF", Generator(0))
    assert ratio.low == ratio.high == 7100 / 3684
    assert ratio.interval_low < 1 < ratio.low < ratio.interval_high  # with other seeds the hybrid crosses elsewhere, both ways


def test_the_folder_is_found_from_elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert len(published("audit-figure-6")) == 24


def test_what_is_refused(tmp_path):
    with pytest.raises(ValueError, match="audit-figure-6"):
        published_runs("paper-figure-6")
    Path(tmp_path / "audit_figure6_runs.csv").write_text("# a source\nsize,accuracy\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="hidden_dim"):
        published_runs("audit-figure-6", folder=tmp_path)
    with pytest.raises(ValueError, match="paper-figure-4"):
        published("figure-4")
    with pytest.raises(ValueError, match="no file"):
        published("paper-figure-4", folder=tmp_path)
    Path(tmp_path / PUBLISHED["paper-figure-4"]).write_text("# a source\nsize,accuracy\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="columns"):
        published("paper-figure-4", folder=tmp_path)
