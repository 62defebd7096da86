"""The stacked trainer against the plain one in float64, and what holds for many replicas at once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.arithmetic import Float
from hybridseq.learning import ensemble, plain
from hybridseq.learning.batches import Framed
from hybridseq.learning.recipe import Recipe, Run
from hybridseq.learning.stack import Stack
from hybridseq.learning.stacked_scan import StackedScan
from hybridseq.learning.torch_settings import one_quiet_thread
from hybridseq.mixers import SelectiveInputs, SelectiveScan
from hybridseq.tasks.multi_key_recall import MultiKeyRecall
from hybridseq.tasks.selective_copying import SelectiveCopying

RECALL = Framed(MultiKeyRecall(3, 1, skip_first=True), seq_len=16)
COPYING = Framed(SelectiveCopying(3, 4, count_from="previous", first_number=3), seq_len=30)
TOLERANCE = 1e-12

ARCHITECTURES = {
    "SSM-TF": {},
    "TF-SSM": {"window": 5},
    "TF-TF": {"heads": 2},
    "SSM-SSM": {"state_dim": 3, "convolution": False},
    "TF-SSM-TF": {"heads": 3, "head_width": "split", "rotary": "none", "window": 3},
    "TF": {"tied": False, "heads": 3, "rotary": "rotation", "window": 1},
    "TF-TF-TF": {"rotary": "none"},
}


@pytest.fixture(autouse=True)
def _quiet():
    with one_quiet_thread():
        yield


def stack_of(name: str, width: int, framed: Framed = RECALL, **options) -> Stack:
    return Stack.parse(name, width=width, vocab_size=framed.vocab_size, **(ARCHITECTURES.get(name, {}) | options))


def far_from_start(stack: Stack, replicas: int, seed: int = 0) -> np.ndarray:
    """Parameters where every gradient is large: initial values plus noise of deviation .3."""
    noise = np.random.default_rng(seed).standard_normal((replicas, stack.size))
    return np.stack([stack.initial(e) for e in range(replicas)]) + 0.3 * noise


def batch_of(framed: Framed, stack: Stack, replicas: int, batch: int):
    """Tokens, labels (replicas, batch, seq_len) and dropout factors with one axis more."""
    drawn = [framed.training_batch(e, 0, batch) for e in range(replicas)]
    tokens, labels = (np.stack(part) for part in zip(*drawn, strict=True))
    keep = (np.random.default_rng(1).random((*tokens.shape, stack.width)) > 0.1) / 0.9
    return tokens, labels, keep


def largest_gap(stack: Stack, framed: Framed, replicas: int = 2, batch: int = 3) -> float:
    """Ensemble against plain: loss, and gradient relative to its largest entry."""
    flat = far_from_start(stack, replicas)
    tokens, labels, keep = batch_of(framed, stack, replicas, batch)
    losses, gradients = ensemble.loss_and_gradient(stack, flat, tokens, labels, keep)
    gaps = []
    for e in range(replicas):
        loss, gradient = plain.loss_and_gradient(stack, flat[e], tokens[e], labels[e], keep[e])
        gaps += [abs(loss - losses[e]), np.abs(gradient - gradients[e]).max() / np.abs(gradient).max()]
    return max(gaps)


# ------------------------------------------------------------------------------------------------------------- one step


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("width", [4, 12, 24])
def test_one_step_equals_the_plain_trainer(name, width):
    options = {"heads": 2} if (name, width) == ("TF-SSM-TF", 4) else {}
    assert largest_gap(stack_of(name, width, **options), RECALL) < TOLERANCE


@pytest.mark.parametrize("width", [5, 8, 16, 18, 20])
def test_any_width_that_the_rotary_takes(width):
    assert largest_gap(stack_of("SSM-TF", width), RECALL) < TOLERANCE


@pytest.mark.parametrize("window", [1, 7, 29, 30, 31, None])
def test_windows_up_to_the_whole_row(window):
    assert largest_gap(stack_of("TF", 8, COPYING, window=window, heads=1), COPYING) < TOLERANCE


@settings(max_examples=25, deadline=None)
@given(
    layers=st.lists(st.sampled_from(["TF", "SSM"]), min_size=1, max_size=3),
    width=st.integers(4, 9),
    heads=st.integers(1, 3),
    window=st.none() | st.integers(1, 20),
    state_dim=st.integers(1, 5),
    convolution=st.booleans(),
    batch=st.integers(1, 9),
    replicas=st.integers(1, 3),
)
def test_any_stack_and_batch_size(layers, width, heads, window, state_dim, convolution, batch, replicas):
    stack = Stack(
        tuple(layers), width, RECALL.vocab_size, window, heads, state_dim=state_dim, convolution=convolution
    )  # fmt: skip
    assert largest_gap(stack, RECALL, replicas, batch) < TOLERANCE


def test_the_comparison_sees_another_architecture():
    """Mutation: a window one token shorter is far outside the tolerance."""
    stack = stack_of("SSM-TF", 8, window=6)
    flat = far_from_start(stack, 1)[0]
    tokens, labels, _ = (part[0] for part in batch_of(RECALL, stack, 1, 3))
    loss, gradient = ensemble.loss_and_gradient(stack, flat, tokens, labels)
    other, other_gradient = plain.loss_and_gradient(replace(stack, window=5), flat, tokens, labels)
    assert abs(loss - other) > 1e-6 and np.abs(gradient - other_gradient).max() > 1e-6


def test_one_replica_without_its_axis():
    stack = stack_of("SSM-TF", 8)
    flat = far_from_start(stack, 2)
    tokens, labels, keep = batch_of(RECALL, stack, 2, 3)
    losses, gradients = ensemble.loss_and_gradient(stack, flat, tokens, labels, keep)
    loss, gradient = ensemble.loss_and_gradient(stack, flat[1], tokens[1], labels[1], keep[1])
    assert isinstance(loss, float) and abs(loss - losses[1]) < TOLERANCE
    assert np.abs(gradient - gradients[1]).max() < TOLERANCE


def test_float32_stays_near_float64():
    stack = stack_of("SSM-TF", 12)
    flat = far_from_start(stack, 2)
    batch = batch_of(RECALL, stack, 2, 8)
    loss, gradient = ensemble.loss_and_gradient(stack, flat, *batch)
    single, single_gradient = ensemble.loss_and_gradient(stack, flat.astype(np.float32), *batch)
    assert single_gradient.dtype == np.float32
    np.testing.assert_allclose(single, loss, rtol=1e-5)
    assert np.abs(single_gradient - gradient).max() < 1e-4 * np.abs(gradient).max()


# ------------------------------------------------------------------------------------------------------------- the scan


def scan_arguments(replicas=2, batch=3, seq_len=6, channels=4, state_dim=3) -> list[torch.Tensor]:
    rng = np.random.default_rng(0)
    rows, columns = (replicas, batch, seq_len, channels), (replicas, batch, seq_len, state_dim)
    delta, a = rng.random(rows), -4 * rng.random((replicas, state_dim, channels))
    return [torch.tensor(y) for y in (delta, rng.standard_normal(rows), a, *rng.standard_normal((2, *columns)))]


def test_scan_equals_its_definition():
    delta, u, a, b, c = scan_arguments()
    y = StackedScan.apply(delta, u, a, b, c)
    ar = Float("torch")
    for e in range(len(u)):
        core = SelectiveScan(u.shape[-1], b.shape[-1], a[e].mT, None)
        expected, _ = core.scan(ar, SelectiveInputs(u[e], delta[e], b[e], c[e]))
        torch.testing.assert_close(y[e], expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("seq_len", [1, 2, 5])
def test_gradient_of_the_scan(seq_len):
    arguments = [y.requires_grad_() for y in scan_arguments(2, 2, seq_len, 3, 2)]
    assert torch.autograd.gradcheck(StackedScan.apply, arguments)


# ------------------------------------------------------------------------------------------------------------- training


def runs_of(stack: Stack, framed: Framed, rates, **recipe) -> list[Run]:
    return [Run(stack, framed, Recipe(**recipe), seed, rate) for seed, rate in enumerate(rates)]


def key_biases(stack: Stack) -> np.ndarray:
    """Where the flat vector holds a bias of keys.

    Softmax does not see what every key of a row has in common, so in the columns that rotary positions leave alone this bias
    has gradient 0. Computed, that is a rounding error, which AdamW divides by an eps of 1e-8.
    """
    marked = {name: np.zeros(shape, bool) for name, shape in stack.shapes()}
    for name, mask in marked.items():
        if name.endswith("qkv.bias"):
            mask[len(mask) // 3 : 2 * len(mask) // 3] = True
    return np.concatenate([mask.ravel() for mask in marked.values()])


@pytest.mark.parametrize(
    ("name", "width", "framed"),
    [("SSM-TF", 12, RECALL), ("TF-TF", 12, COPYING), ("SSM-SSM", 4, RECALL)],
)
def test_120_steps_equal_the_plain_trainer(name, width, framed):
    stack = stack_of(name, width, framed)
    rates = (0.01, 0.003) if name == "SSM-TF" else (0.01,)
    runs = runs_of(stack, framed, rates, steps=400, warm_up=20, batch=4)
    together = ensemble.train_together(runs, steps=120, dtype="float64")
    for run, outcome in zip(runs, together, strict=True):
        expected = plain.train(run, steps=120, dtype="float64")
        assert np.abs(outcome.losses - expected.losses).max() < TOLERANCE
        gap = np.abs(outcome.parameters - expected.parameters)
        assert gap[~key_biases(stack)].max() < TOLERANCE and gap.max() < 1e-9
        assert (outcome.correct, outcome.valid) == (expected.correct, expected.valid)
        assert outcome.accuracy == outcome.correct / outcome.valid
        assert outcome.losses[-1] < outcome.losses[0]


def test_clipping_and_no_dropout_equal_the_plain_trainer():
    stack = stack_of("SSM-TF", 4)
    (run,) = runs_of(stack, RECALL, (0.01,), steps=10, warm_up=2, clip=0.01, dropout=0.0, batch=3, weight_decay=0.5)
    outcome, expected = (trainer.train(run, dtype="float64") for trainer in (ensemble, plain))
    assert np.abs(outcome.losses - expected.losses).max() < TOLERANCE
    assert np.abs(outcome.parameters - expected.parameters)[~key_biases(stack)].max() < TOLERANCE


def test_replicas_do_not_depend_on_their_company():
    runs = runs_of(stack_of("TF-SSM", 8), RECALL, (0.01, 0.003, 0.001), steps=20, warm_up=5)
    together = ensemble.train_together(runs, dtype="float64")
    alone = ensemble.train(runs[1], dtype="float64")
    assert np.abs(together[1].losses - alone.losses).max() < TOLERANCE


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_diverged_replica_leaves_the_others_bitwise_alone(poison):
    stack = stack_of("SSM-TF", 8)
    runs = runs_of(stack, RECALL, (0.01, 0.01, 0.01), steps=12, warm_up=2)
    start = np.stack([stack.initial(run.seed) for run in runs])
    healthy = ensemble.train_together(runs, start)
    start[1] = poison
    poisoned = ensemble.train_together(runs, start)
    for e in (0, 2):
        assert np.array_equal(healthy[e].parameters, poisoned[e].parameters)
        assert np.array_equal(healthy[e].losses, poisoned[e].losses)
        assert healthy[e].correct == poisoned[e].correct
    assert np.isnan(poisoned[1].losses).all() and poisoned[1].correct == 0 and poisoned[1].valid > 0


def test_record_and_early_stop():
    runs = runs_of(stack_of("TF", 4), RECALL, (0.01, 0.003), steps=30, warm_up=5)
    seen = []
    outcomes = ensemble.train_together(runs, steps=7, record=lambda step, losses: seen.append((step, losses)))
    assert [step for step, _ in seen] == list(range(7))
    assert np.array_equal(np.stack([losses for _, losses in seen], 1), np.stack([o.losses for o in outcomes]))
    single = []
    outcome = ensemble.train(runs[0], steps=2, record=lambda step, loss: single.append((step, loss)))
    assert single == list(enumerate(outcome.losses.tolist())) and outcome.backend == "ensemble"


# -------------------------------------------------------------------------------------------------------------- scoring


def test_evaluation_equals_the_plain_one():
    stack = stack_of("SSM-TF", 8)
    flat = far_from_start(stack, 3)
    correct, valid = ensemble.evaluate(stack, flat, RECALL, batches=5)
    expected = [plain.evaluate(stack, row, RECALL, batches=5) for row in flat]
    assert [(int(c), valid) for c in correct] == expected
    assert ensemble.evaluate(stack, flat[2], RECALL, batches=5) == expected[2]
    assert len({c for c, _ in expected}) > 1


@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_nan_and_ties_never_score(value):
    stack = stack_of("SSM-TF", 8)
    correct, valid = ensemble.evaluate(stack, np.full(stack.size, value), RECALL, batches=2)
    assert correct == 0 < valid


# ------------------------------------------------------------------------------------------------ what a step is made from


@pytest.mark.parametrize("framed", [RECALL, COPYING])
@pytest.mark.parametrize("batch", [1, 4, 5])
def test_data_and_dropout_are_those_of_the_plain_trainer(framed, batch):
    runs = runs_of(stack_of("TF", 6, framed), framed, (0.01, 0.003), steps=5, warm_up=1, batch=batch, dropout=0.3)
    tokens, labels = ensemble._training_batches(runs, 4)
    keep = ensemble._dropout_factors(runs, 4, torch.float64)
    for e, run in enumerate(runs):
        expected = framed.training_batch(run.seed, 4, batch)
        assert np.array_equal(tokens[e], expected[0]) and np.array_equal(labels[e], expected[1])
        assert np.array_equal(keep[e], plain.dropout_factors(run, 4))


def test_step_size_far_from_zero():
    """softplus is right on both sides of torch's usual switch to the identity at 20, and far below 0."""
    stack = stack_of("SSM", 4)
    for bias in (-40.0, 15.0, 25.0, 60.0):
        flat = far_from_start(stack, 1)
        stack.unpack(flat)["0.dt_proj.bias"][...] = bias
        tokens, labels, _ = batch_of(RECALL, stack, 1, 2)
        (loss,), (gradient,) = ensemble.loss_and_gradient(stack, flat, tokens, labels)
        expected, expected_gradient = plain.loss_and_gradient(stack, flat[0], tokens[0], labels[0])
        assert abs(loss - expected) < TOLERANCE
        assert np.abs(gradient - expected_gradient).max() < TOLERANCE * np.abs(expected_gradient).max()


# ---------------------------------------------------------------------------------------------------------------- errors


def test_supports_says_why_not():
    assert ensemble.supports(stack_of("SSM-TF", 8)) is None
    reason = ensemble.supports(stack_of("GLA-TF-GDN", 8))
    assert "GDN, GLA" in reason and "TF and SSM" in reason


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flat": np.zeros(3)}, "flat: needs shape"),
        ({"tokens": np.full((2, 5), 99)}, "tokens: found 99"),
        ({"tokens": np.full((2, 5), -1)}, "tokens: found -1"),
        ({"tokens": np.zeros((2, 5))}, "tokens: needs integers"),
        ({"labels": np.zeros((2, 4), int)}, "one shape"),
        ({"labels": np.full((2, 5), -1)}, "all of a replica are masked"),
        ({"keep": np.ones((2, 5, 8), bool)}, "booleans do not say"),
        ({"keep": np.ones((2, 5, 4))}, "keep: needs shape"),
    ],
)
def test_bad_batches(change, message):
    stack = stack_of("SSM-TF", 8)
    given = {"flat": stack.initial(0), "tokens": np.zeros((2, 5), int), "labels": np.zeros((2, 5), int)} | change
    with pytest.raises(ValueError, match=message):
        ensemble.loss_and_gradient(stack, **given)


def test_bad_runs():
    stack = stack_of("TF", 8)
    runs = runs_of(stack, RECALL, (0.01, 0.01), steps=3, warm_up=1)
    with pytest.raises(ValueError, match="needs one run or more"):
        ensemble.train_together([])
    with pytest.raises(ValueError, match="seed 1 differs from the first"):
        ensemble.train_together([runs[0], replace(runs[1], stack=stack_of("TF", 4))])
    with pytest.raises(ValueError, match=r"steps=4: must lie in 0\.\.3"):
        ensemble.train_together(runs, steps=4)
    with pytest.raises(ValueError, match="parameters: needs shape"):
        ensemble.train_together(runs, np.zeros((1, stack.size)))
    with pytest.raises(ValueError, match="dtype='float16'"):
        ensemble.train(runs[0], dtype="float16")
    with pytest.raises(ValueError, match="no stacked form of GDN"):
        ensemble.train(replace(runs[0], stack=stack_of("GDN", 8)))
    with pytest.raises(ValueError, match="vocab_size"):
        ensemble.evaluate(stack, stack.initial(0), COPYING)


def test_settings_come_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_quiet_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
