"""Statistics of runs by hand, the rules that choose a learning rate, and tables that are refused."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.learning.reports import (
    POINT,
    accuracies,
    at,
    by_mean_accuracy,
    by_mean_loss,
    by_smallest_loss,
    check_rows,
    curves,
    smallest_loss_shares,
    summary,
    wilson,
)
from hybridseq.learning.sweep import Row, choose


def run(seed=0, learning_rate=0.01, accuracy=0.5, losses=(2.0, 1.0), layers="SSM-TF", parameters=780, **other):
    """One row as a sweep stores it: `losses` are means of 100 steps."""
    point = {"task": "recall", "label": "", "layers": layers, "width": 4, "parameters": parameters, "window": None, "heads": 1}
    return point | {
        "state_dim": 16, "steps": 4000, "learning_rate": learning_rate, "seed": seed, "role": "report", "accuracy": accuracy,
        "curve": " ".join(f"{x:.4g}" for x in losses), "code": "c0de",
    } | other  # fmt: skip


def table(*rows):
    return pd.DataFrame(list(rows))


TEN = table(*(run(seed=i, accuracy=i / 10) for i in range(11)))  # accuracies 0, 0.1, ..., 1


# a row a point ------------------------------------------------------------------------------------------------------------


def test_statistics_by_hand():
    (row,) = summary(TEN, solved_at=0.8).to_dict("records")
    assert row["n"] == 11 and row["solved"] == 3
    expected = {"mean": 0.5, "low": 0.1, "high": 0.9, "minimum": 0, "maximum": 1, "solved_fraction": 3 / 11}
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert (row["solved_low"], row["solved_high"]) == wilson(3, 11)


def test_reaching_the_threshold_counts_as_solved():
    rows = table(run(seed=0, accuracy=0.9), run(seed=1, accuracy=np.nextafter(0.9, 0)))
    assert summary(rows, solved_at=0.9)["solved"].item() == 1


# Published examples: Brown, Cai and DasGupta (2001) and Newcombe (1998), 95 %.
@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718), (29, 29, 0.8830, 1.0)],
)
def test_wilson_intervals_of_the_literature(successes, n, low, high):
    assert wilson(successes, n) == pytest.approx((low, high), abs=6e-5)


@given(st.integers(1, 60), st.data())
def test_wilson_solves_its_equation(n, data):
    successes = data.draw(st.integers(0, n))
    z = 1.959963984540054
    for end in wilson(successes, n):
        assert (successes / n - end) ** 2 == pytest.approx(z * z * end * (1 - end) / n, abs=1e-12)


def test_points_roles_and_rates_stay_apart():
    rows = table(
        run(0, 0.01), run(1, 0.01), run(0, 0.001), run(0, parameters=396, layers="TF-TF"), run(2, role="select"),
        run(0, window=20), run(0, state_dim=1), run(0, task="copying"), run(0, label="no dropout"),
    )  # fmt: skip
    out = summary(rows)
    assert len(out) == 8 and out["n"].sum() == len(rows) and out["n"].max() == 2
    assert out["window"].isna().sum() == 7  # points without a window are not lost in grouping


def test_rows_come_back_from_csv_the_same(tmp_path):
    rows = table(run(0, window=20), run(1, window=None), run(0, window=None, accuracy=0.25))
    rows.to_csv(tmp_path / "runs.csv", index=False)
    assert_same(summary(rows), summary(pd.read_csv(tmp_path / "runs.csv", keep_default_na=True)))


def assert_same(first, second):
    numbers = [c for c in first.columns if c not in ("label", "window")]
    pd.testing.assert_frame_equal(first[numbers], second[numbers], check_dtype=False)


def test_accuracies_keep_holes_visible():
    got = accuracies(table(run(0, accuracy=0.1), run(1, accuracy=0.2), run(1, 0.001, accuracy=0.3)))
    assert got.columns.tolist() == [0, 1]
    assert got.to_numpy() == pytest.approx(np.array([[np.nan, 0.3], [0.1, 0.2]]), nan_ok=True)


# which learning rate ------------------------------------------------------------------------------------------------------


def grid(accuracy, losses=None, **other):
    """Runs for a mapping rate -> accuracies by seed; `losses` likewise, each one number for the first 100 steps."""
    losses = losses or {rate: [1.0] * len(values) for rate, values in accuracy.items()}
    return table(
        *(
            run(seed, rate, a, (losses[rate][seed], 0.5), **other)
            for rate, values in accuracy.items()
            for seed, a in enumerate(values)
        )
    )


def test_the_best_mean_accuracy_wins_for_each_point():
    rows = pd.concat([
        grid({0.001: [0.5, 0.6], 0.01: [0.1, 1.0], 0.1: [0.2, 0.2]}),
        grid({0.001: [0.9, 0.9], 0.01: [0.1, 1.0], 0.1: [0.2, 0.2]}, parameters=2008),
    ])  # fmt: skip
    best = by_mean_accuracy(rows).set_index("parameters")
    assert best["learning_rate"].to_dict() == {780: 0.001, 2008: 0.001}  # at 780 both means are .55: the smaller rate
    assert best["n"].tolist() == [2, 2] and best["mean"].tolist() == pytest.approx([0.55, 0.9])


def test_the_lowest_mean_loss_wins_and_a_diverged_run_loses():
    rows = pd.concat([
        grid({rate: [0.5, 0.5]}).assign(final_loss=losses)
        for rate, losses in ((0.001, [0.9, 0.7]), (0.01, [0.1, np.nan]), (0.1, [0.8, 0.8]), (1.0, [2.0, 1.0]))
    ])  # fmt: skip
    best = by_mean_loss(rows)
    assert best["learning_rate"].item() == 0.001 and best["mean"].item() == pytest.approx(0.8) and best["n"].item() == 2
    with pytest.raises(ValueError, match="final_loss"):
        by_mean_loss(rows[rows.learning_rate == 0.01])
    with pytest.raises(ValueError, match="no column final_loss"):
        by_mean_loss(TEN)


def test_the_single_smallest_loss_may_be_a_lucky_run():
    rows = grid(
        {0.001: [0.9, 0.9, 0.9], 0.01: [0.2, 0.2, 1.0]},
        losses={0.001: [1.5, 1.5, 1.5], 0.01: [1.9, 1.4, 1.9]},
    )
    two = by_smallest_loss(rows, steps=100)  # seeds 0 and 1
    assert two[["learning_rate", "seed", "loss"]].values.tolist() == [[0.01, 1, 1.4]]
    assert by_smallest_loss(rows, seeds=(0, 2), steps=100)["learning_rate"].item() == 0.001
    assert by_mean_accuracy(rows)["learning_rate"].item() == 0.001


def test_only_the_first_steps_count():
    rows = table(run(0, 0.001, losses=(1.0, 3.0, 0.1)), run(0, 0.01, losses=(2.0, 1.0, 9.0)))
    assert by_smallest_loss(rows, seeds=(0,), steps=100)["learning_rate"].item() == 0.001
    assert by_smallest_loss(rows, seeds=(0,), steps=200)["learning_rate"].item() == 0.01
    assert by_smallest_loss(rows, seeds=(0,), steps=200)["loss"].item() == 1.5
    assert by_smallest_loss(rows, seeds=(0,), steps=300)["learning_rate"].item() == 0.001


def test_a_run_that_diverged_never_wins():
    rows = table(run(0, 0.001, losses=(2.0,)), run(0, 1.0, losses=(np.nan,)))
    assert by_smallest_loss(rows, seeds=(0,), steps=100)["learning_rate"].item() == 0.001
    shares = smallest_loss_shares(rows, steps=100, runs=1).set_index("learning_rate")["share"]
    assert shares.to_dict() == {0.001: 1.0, 1.0: 0.0}
    with pytest.raises(ValueError, match="finite"):
        by_smallest_loss(rows[rows.learning_rate == 1.0], seeds=(0,), steps=100)


@settings(deadline=None, max_examples=6)
@given(st.lists(st.tuples(*[st.integers(1, 30)] * 3), min_size=2, max_size=4))
def test_shares_count_every_pair_of_seeds(losses):
    rates = (0.001, 0.01, 0.1)
    by_rate = {rate: [loss[i] for loss in losses] for i, rate in enumerate(rates)}
    rows = grid({rate: [0.5] * len(losses) for rate in rates}, by_rate)
    shares = smallest_loss_shares(rows, steps=100)
    assert shares["learning_rate"].tolist() == list(rates) and shares["share"].sum() == pytest.approx(1)
    pairs = list(combinations(range(len(losses)), 2))
    for rate, count in zip(shares["learning_rate"], shares["pairs"], strict=True):
        picks = [by_smallest_loss(rows, pair, 100)["learning_rate"].item() for pair in pairs]
        assert picks.count(rate) == count


def test_runs_at_the_chosen_rates():
    rows = pd.concat([grid({0.001: [0.9, 0.8], 0.01: [0.1, 0.2]}), grid({0.001: [0.1], 0.01: [0.3]}, parameters=2008, window=20)])
    here = at(rows, by_mean_accuracy(rows))
    assert sorted(here["accuracy"]) == [0.3, 0.8, 0.9]
    report = rows[~((rows.parameters == 2008) & (rows.learning_rate == 0.01))]
    with pytest.raises(ValueError, match=r"2008 parameters, learning rate 0\.01"):
        at(report, by_mean_accuracy(rows))


def test_curves():
    got = curves(table(run(losses=(2.0, 1.5)), run(losses=(1.0,))))
    assert got.tolist()[0] == [2.0, 1.5] and got[1, 0] == 1 and np.isnan(got[1, 1])


# what is refused ----------------------------------------------------------------------------------------------------------

UNEQUAL = table(run(0, 0.01), run(1, 0.01), run(0, 0.001))


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: check_rows([run()]), "table"),
        (lambda: check_rows(TEN[:0]), "no run is left"),
        (lambda: check_rows(TEN.drop(columns=["accuracy", "layers"])), "layers, accuracy"),
        (lambda: check_rows(table(run(0), run(1, code="other"))), "versions of the code"),
        (lambda: check_rows(table(run(0), run(1, code=None))), "versions of the code"),
        (lambda: check_rows(table(run(0), run(0))), "more than once"),
        (lambda: check_rows(table(run(0, accuracy=None))), "no accuracy"),
        (lambda: summary(TEN, solved_at=1.2), "solved_at"),
        (lambda: wilson(3, 2), "successes"),
        (lambda: wilson(0, 0), "successes"),
        (lambda: wilson(1, 2, confidence=1), "confidence"),
        (lambda: by_mean_accuracy(UNEQUAL), "seed 1 at learning rate 0.001"),
        (lambda: by_smallest_loss(UNEQUAL), "seed 1 at learning rate 0.001"),
        (lambda: by_smallest_loss(TEN, seeds=(0, 99), steps=100), "99"),
        (lambda: by_smallest_loss(TEN, seeds=(), steps=100), "seeds"),
        (lambda: by_smallest_loss(TEN, steps=1000), "ends after 200"),
        (lambda: by_smallest_loss(TEN, steps=150), "multiple of 100"),
        (lambda: by_smallest_loss(TEN.drop(columns="curve")), "curve"),
        (lambda: smallest_loss_shares(TEN[:1], steps=100), "1 seeds"),
        (lambda: smallest_loss_shares(TEN, steps=100, runs=0), "runs"),
        (lambda: curves(TEN.drop(columns="curve")), "curve"),
        (lambda: curves(table(run(curve="1.0 two"))), "two"),
        (lambda: curves(table(run(curve=""))), "no numbers"),
        (lambda: at(TEN, pd.concat([by_mean_accuracy(TEN)] * 2)), "more than one"),
        (lambda: at(TEN, None), "chosen: needs a table"),
        (lambda: at(TEN, by_mean_accuracy(TEN).drop(columns="learning_rate")), "learning_rate"),
    ],
)
def test_bad_tables_are_refused_by_name(call, named):
    with pytest.raises(ValueError, match=named):
        call()


def test_each_trainer_and_task_has_a_code_of_its_own():
    rows = table(run(0, backend="native"), run(1, backend="ensemble", code="other"), run(0, task="copying", code="third"))
    assert len(check_rows(rows)) == 3
    with pytest.raises(ValueError, match="recall by native mixes versions"):
        check_rows(pd.concat([rows, table(run(2, backend="native", code="older"))]))


def test_stale_rows_can_be_shown_on_purpose():
    mixed = table(run(0), run(1, code="other"))
    assert len(check_rows(mixed, one_code=False)) == 2


def test_a_changed_point_column_is_a_mutation_that_shows():
    """Each column of POINT keeps two runs apart: without it they would count as one point."""
    values = {"window": 20, "label": "x", "layers": "TF-TF", "task": "other"}
    for name in POINT:
        other = run(1, **{name: values.get(name, 99)})
        assert len(summary(table(run(0), other))) == 2


@pytest.mark.parametrize("seed", range(4))
def test_the_rules_agree_with_those_of_the_sweeps(seed):
    """Sweeps choose from rows in plain Python while they run; tables must come to the same rate, ties and NaN included."""
    draw = np.random.default_rng(seed)
    rows = table(*(
        run(s, rate, round(draw.uniform(), 1), draw.choice([1.0, 1.1, np.nan], 2, p=[0.5, 0.3, 0.2]),
            final_loss=draw.choice([1.0, 2.0, np.nan], p=[0.5, 0.4, 0.1]),
            key="", backend="native", correct=0, valid=1, seconds=0.0)
        for rate in (0.001, 0.01, 0.1) for s in range(3)
    ))  # fmt: skip
    stored = [Row(**line) for line in rows.to_dict("records")]
    assert by_mean_accuracy(rows)["learning_rate"].item() == choose(stored, "mean accuracy")
    assert by_smallest_loss(rows, (0, 1, 2), steps=200)["learning_rate"].item() == choose(stored, "smallest loss")
    if rows.groupby("learning_rate")["final_loss"].apply(lambda losses: losses.notna().all()).any():
        assert by_mean_loss(rows)["learning_rate"].item() == choose(stored, "mean loss")


@pytest.mark.parametrize("changes", [{"accuracy": 5.0}, {"accuracy": -1.0}, {"accuracy": "x"}, {"seed": float("nan")}])
def test_an_accuracy_outside_its_range_and_a_missing_seed_are_refused(changes):
    point = dict.fromkeys(POINT, 1) | {"learning_rate": 0.01, "seed": 0, "accuracy": 0.5}
    with pytest.raises(ValueError, match=r"rows: .*(accuracy|seed)"):
        check_rows(pd.DataFrame([point | {"seed": 1}, point | changes]))
