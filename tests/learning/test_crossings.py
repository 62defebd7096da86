"""Threshold crossings by hand, curves that never arrive, and bootstrap intervals against plain Python."""

from math import inf

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.learning.crossings import Crossing, Ratio, crossing, crossing_ratio, ratio_curve
from hybridseq.rng import Generator


def means(**curves):
    """A summary from layers="size mean, size mean, ...", underscores for hyphens."""
    lines = [(name.replace("_", "-"), *point.split()) for name, text in curves.items() for point in text.split(", ")]
    return pd.DataFrame([{"layers": a, "parameters": int(n), "mean": float(m)} for a, n, m in lines])


def runs(curves, **other):
    """Rows of runs from layers -> {size: accuracies by seed}."""
    point = {"task": "recall", "label": "", "width": 4, "window": None, "heads": 1, "state_dim": 16, "steps": 4000}
    return pd.DataFrame([
        point | {"layers": layers, "parameters": size, "learning_rate": 0.01, "seed": seed, "accuracy": a, "code": "c0de"} | other
        for layers, sizes in curves.items() for size, values in sizes.items() for seed, a in enumerate(values)
    ])  # fmt: skip


# crossings ----------------------------------------------------------------------------------------------------------------


def test_a_curve_by_hand():
    there = crossing(means(TF_TF="100 0.2, 400 0.8, 1600 0.9"), 0.5)["TF-TF"]
    assert (there.first, there.stays, there.smallest, there.largest) == (400, 400, 100, 1600)
    assert there.interpolated == pytest.approx(200)  # half way in the mean, half way in log parameters
    assert there.bounds() == (400, 400) and there.bounds(interpolated=True) == pytest.approx((200, 200))
    assert str(there) == "400"


def test_a_mean_at_the_threshold_has_reached_it():
    there = crossing(means(TF_TF="100 0.2, 400 0.5"), 0.5)["TF-TF"]
    assert there.first == 400 and there.interpolated == pytest.approx(400)


def test_the_order_of_the_rows_does_not_matter():
    assert crossing(means(A="400 0.8, 100 0.2"), 0.5) == crossing(means(A="100 0.2, 400 0.8"), 0.5)


def test_a_curve_that_never_arrives_is_kept():
    both = crossing(means(A="100 0.2, 400 0.4", B="100 0.2, 400 0.9"), 0.5)
    assert set(both) == {"A", "B"}
    lost = both["A"]
    assert not lost.reached and lost.interpolated is None and lost.stays is None
    assert lost.bounds() == lost.bounds(True) == (400, inf)
    assert str(lost) == "above 400: not reached"


def test_a_curve_that_starts_above_is_bounded_from_one_side():
    there = crossing(means(A="100 0.7, 400 0.9"), 0.5)["A"]
    assert there.first == 100 and there.interpolated is None
    assert there.bounds() == (100, 100) and there.bounds(interpolated=True) == (0, 100)


def test_a_curve_that_falls_back_says_so():
    there = crossing(means(A="100 0.2, 200 0.7, 400 0.5, 800 0.9"), 0.6)["A"]
    assert (there.first, there.stays) == (200, 800)
    assert crossing(means(A="100 0.2, 200 0.7, 400 0.5"), 0.6)["A"].stays is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.floats(0.01, 1))
def test_crossings_agree_with_a_walk(values, threshold):
    sizes = [100 * 2**i for i in range(len(values))]
    there = crossing(pd.DataFrame({"layers": "A", "parameters": sizes, "mean": values}), threshold)["A"]
    first = next((n for n, m in zip(sizes, values, strict=True) if m >= threshold), None)
    assert there.first == first
    if there.interpolated is not None:
        assert there.first / 2 <= there.interpolated * (1 + 1e-9) and there.interpolated <= there.first * (1 + 1e-9)


# ratios -------------------------------------------------------------------------------------------------------------------

CLEAR = runs({"TF-TF": {100: [0.1] * 4, 800: [0.9] * 4}, "SSM-TF": {100: [0.2] * 4, 400: [0.8] * 4}})


def test_equal_seeds_leave_no_uncertainty():
    ratio = crossing_ratio(CLEAR, 0.5, "TF-TF", "SSM-TF", Generator(0))
    assert ratio == Ratio(0.5, 2, 2, 2, 2, 0, 0) and str(ratio) == "2.00 (2.00 to 2.00)"


def test_the_interpolated_ratio_by_hand():
    # TF-TF: half way from 100 to 800, SSM-TF: half way from 100 to 400, in logarithms.
    ratio = crossing_ratio(CLEAR, 0.5, "TF-TF", "SSM-TF", Generator(0), interpolated=True)
    assert ratio.low == pytest.approx((100 * 800) ** 0.5 / 200)


def test_censored_ratios_are_one_sided():
    above = crossing_ratio(CLEAR, 0.85, "SSM-TF", "TF-TF", Generator(0))  # SSM-TF ends at .8
    assert (above.low, above.high) == (0.5, inf) == (above.interval_low, above.interval_high)
    assert (above.numerator_missing, above.denominator_missing) == (1, 0) and str(above) == "above 0.50 (0.50 or more)"
    below = crossing_ratio(CLEAR, 0.85, "TF-TF", "SSM-TF", Generator(0))
    assert (below.low, below.high) == (0, 2) and str(below) == "below 2.00 (0.00 to 2.00)"
    neither = crossing_ratio(CLEAR, 0.95, "TF-TF", "SSM-TF", Generator(0))
    assert (neither.low, neither.high) == (0, inf) and str(neither) == "unknown (0.00 or more)"


def test_a_start_above_the_threshold_bounds_the_interpolated_ratio():
    rows = runs({"A": {100: [0.1], 800: [0.9]}, "B": {100: [0.6], 400: [0.8]}})
    plain = crossing_ratio(rows, 0.5, "A", "B", Generator(0))
    assert (plain.low, plain.high) == (8, 8)
    between = crossing_ratio(rows, 0.5, "A", "B", Generator(0), interpolated=True)
    assert between.low == pytest.approx(80000**0.5 / 100) and between.high == inf


BIMODAL = runs({
    "TF-TF": {100: [0.1, 0.1, 0.2, 0.1, 0.1], 400: [0.2, 0.9, 0.2, 0.9, 0.9], 800: [0.9, 0.9, 0.9, 0.3, 0.9]},
    "SSM-TF": {100: [0.2, 1.0, 0.2, 0.3, 1.0], 400: [1.0, 1.0, 0.3, 1.0, 1.0]},
})  # fmt: skip


def walked(picked, layers, threshold):
    """The range of the crossing for one resample, in plain Python."""
    sizes = BIMODAL[BIMODAL.layers == layers].groupby("parameters")["accuracy"].apply(list)
    for size, values in sizes.items():
        if sum(values[i] for i in picked) / len(picked) >= threshold:
            return size, size
    return sizes.index[-1], inf


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 2**32), st.sampled_from([0.3, 0.55, 0.65, 0.85]))
def test_the_bootstrap_agrees_with_a_slow_one(seed, threshold):
    ratio = crossing_ratio(BIMODAL, threshold, "TF-TF", "SSM-TF", Generator(seed), resamples=41)
    lows, highs, lost = [], [], 0
    for picked in Generator(seed).integers(5, (41, 5)).tolist():
        top, bottom = walked(picked, "TF-TF", threshold), walked(picked, "SSM-TF", threshold)
        lows.append(top[0] / bottom[1])
        highs.append(top[1] / bottom[0])
        lost += top[1] == inf
    # 41 values: the 2.5 % quantile lies at index 1 of 0..40, the 97.5 % one at index 39.
    assert (ratio.interval_low, ratio.interval_high) == pytest.approx((sorted(lows)[1], sorted(highs)[39]))
    assert ratio.numerator_missing == pytest.approx(lost / 41)


def test_dropping_the_censored_resamples_would_shorten_the_interval():
    """At .7 the TF-TF curve (means .62, .78) fails in some resamples: their ratios must keep the interval open."""
    ratio = crossing_ratio(BIMODAL, 0.7, "TF-TF", "SSM-TF", Generator(1))
    assert 0.025 < ratio.numerator_missing < 1 and ratio.interval_high == inf and ratio.high < inf


def test_a_ratio_as_a_function_of_the_threshold():
    thresholds = [0.3, 0.5, 0.7, 0.95]
    curve = ratio_curve(BIMODAL, thresholds, "TF-TF", "SSM-TF", Generator(2), resamples=200)
    assert curve["threshold"].tolist() == thresholds and len(curve) == 4
    one = crossing_ratio(BIMODAL, 0.5, "TF-TF", "SSM-TF", Generator(2), resamples=200)
    assert curve.iloc[1].to_dict() == vars(one)
    again = ratio_curve(BIMODAL, thresholds, "TF-TF", "SSM-TF", Generator(2), resamples=200)
    pd.testing.assert_frame_equal(curve, again)


def test_a_wider_confidence_gives_a_wider_interval():
    wide, narrow = (crossing_ratio(BIMODAL, 0.55, "TF-TF", "SSM-TF", Generator(0), confidence=c) for c in (0.99, 0.5))
    assert wide.interval_low <= narrow.interval_low and wide.interval_high >= narrow.interval_high


# what is refused ----------------------------------------------------------------------------------------------------------

TWO_RATES = pd.concat([CLEAR, CLEAR.assign(learning_rate=0.001)])
UNEQUAL = CLEAR[CLEAR.seed.lt(3) | CLEAR.layers.eq("TF-TF")]
ROLES = pd.concat([CLEAR.assign(role="report"), CLEAR.assign(role="select", seed=CLEAR.seed + 10)])


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: crossing(means(A="100 0.2"), 0), "threshold"),
        (lambda: crossing(means(A="100 0.2"), 60), "threshold"),
        (lambda: crossing(means(A="100 0.2, 100 0.3"), 0.5), "more than once"),
        (lambda: crossing(means(A="100 0.2").drop(columns="mean"), 0.5), "mean"),
        (lambda: crossing(means(A="100 0.2")[:0], 0.5), "summary"),
        (lambda: crossing(means(A="100 nan"), 0.5), "mean"),
        (lambda: crossing(means(A="0 0.2, 100 0.8"), 0.5), "parameters=0"),
        (lambda: crossing_ratio(CLEAR, 0.5, "TF-TF", "GDN", Generator(0)), "GDN"),
        (lambda: crossing_ratio(TWO_RATES, 0.5, "TF-TF", "SSM-TF", Generator(0)), "several learning rates"),
        (lambda: crossing_ratio(ROLES, 0.5, "TF-TF", "SSM-TF", Generator(0)), "one role"),
        (lambda: crossing_ratio(CLEAR[1:], 0.5, "TF-TF", "SSM-TF", Generator(0)), "lacks a seed"),
        (lambda: crossing_ratio(UNEQUAL, 0.5, "TF-TF", "SSM-TF", Generator(0)), "different seeds"),
        (lambda: crossing_ratio(CLEAR.assign(code=range(len(CLEAR))), 0.5, "TF-TF", "SSM-TF", Generator(0)), "code"),
        (lambda: crossing_ratio(CLEAR, 0.5, "TF-TF", "SSM-TF", Generator(0), resamples=0), "resamples"),
        (lambda: crossing_ratio(CLEAR, 0.5, "TF-TF", "SSM-TF", Generator(0), confidence=95), "confidence"),
        (lambda: ratio_curve(CLEAR, [], "TF-TF", "SSM-TF", Generator(0)), "thresholds"),
        (lambda: ratio_curve(CLEAR, [0.5, 1.5], "TF-TF", "SSM-TF", Generator(0)), "threshold"),
    ],
)
def test_bad_input_is_refused_by_name(call, named):
    with pytest.raises(ValueError, match=named):
        call()


def test_crossings_are_values():
    assert Crossing(0.5, 100, 400, None, None, None) == Crossing(0.5, 100, 400, None, None, None)
    assert np.isinf(Crossing(0.5, 100, 400, None, None, None).bounds()[1])


@pytest.mark.parametrize("threshold", ["a", None, True, float("nan"), 0, 1.1])
def test_a_threshold_that_is_no_share_is_refused(threshold):
    with pytest.raises(ValueError, match="threshold must lie in"):
        crossing(pd.DataFrame({"layers": "TF", "parameters": [1, 2], "mean": [0.1, 0.9]}), threshold)
