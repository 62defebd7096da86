"""Which trainer trains what, that the three agree, and that what is asked for and cannot be had is an error."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from hybridseq.learning import backends, native
from hybridseq.learning.backends import BACKENDS, Choice, available, choose, train, train_many, unavailable, why_not
from hybridseq.learning.batches import Framed
from hybridseq.learning.recipe import Recipe, Run
from hybridseq.learning.stack import Stack
from hybridseq.tasks.multi_key_recall import MultiKeyRecall
from hybridseq.tasks.selective_copying import SelectiveCopying

RECALL = Framed(MultiKeyRecall(3, 1, skip_first=True), seq_len=16)
COPYING = Framed(SelectiveCopying(3, 4, count_from="previous", first_number=3), seq_len=28)
NATIVE = pytest.mark.skipif(bool(native.why_not()), reason=f"no native trainer: {native.why_not()}")


def run_of(name: str, framed: Framed = RECALL, *, seed=0, rate=0.01, width=8, batch=8, **options) -> Run:
    stack = Stack.parse(name, width=width, vocab_size=framed.vocab_size, **options)
    return Run(stack, framed, Recipe(steps=400, warm_up=20, batch=batch), seed, rate)


@pytest.fixture
def without_native(monkeypatch):
    monkeypatch.setattr(native, "why_not", lambda dtype="float32": "no compiler was found at install")


# ------------------------------------------------------------------------------------------------------------- the choice


@NATIVE
@pytest.mark.parametrize("framed", [RECALL, COPYING])
def test_native_where_it_reaches(framed):
    assert choose(run_of("SSM-TF", framed)).backend == "native"
    assert available() == BACKENDS


def test_ensemble_for_other_batches():
    choice = choose(run_of("SSM-TF", batch=3))
    assert choice.backend == "ensemble" and choice.reason.startswith("not native: ")


def test_plain_for_the_other_layers():
    choice = choose(run_of("GDN-TF"))
    assert choice.backend == "plain"
    assert "not native: " in choice.reason and "not ensemble: the ensemble has no stacked form of GDN" in choice.reason


def test_without_native_everything_still_trains(without_native):
    assert available() == ("ensemble", "plain")
    assert unavailable("native") == "no compiler was found at install" and unavailable("plain") == ""
    assert choose(run_of("SSM-TF")) == Choice("ensemble", "not native: no compiler was found at install")
    outcome = train(run_of("SSM-TF"), steps=2)
    assert outcome.backend == "ensemble" and outcome.losses.shape == (2,)


def test_asked_for_but_not_to_be_had(without_native):
    with pytest.raises(ValueError, match="backend='native': no compiler was found at install; backend='auto' takes what can"):
        train(run_of("SSM-TF"), backend="native")
    with pytest.raises(ValueError, match="backend='ensemble': the ensemble has no stacked form of GLA"):
        list(train_many([run_of("SSM-TF"), run_of("GLA")], "ensemble"))
    assert choose(run_of("GLA"), "plain") == Choice("plain", "asked for")


ASK = {
    "choose": lambda run, name: choose(run, name),
    "train": lambda run, name: train(run, backend=name),
    "train_many": lambda run, name: train_many([run], name),
    "why_not": lambda run, name: why_not(name, run),
    "unavailable": lambda run, name: unavailable(name),
}


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
def test_unknown_backend(ask):
    with pytest.raises(ValueError, match=r"backend='ensembel': must be one of .*; did you mean 'ensemble'\?"):
        ask(run_of("TF"), "ensembel")


def test_errors_come_before_the_first_run(without_native):
    with pytest.raises(ValueError, match="no stacked form of GDN"):
        train_many([run_of("TF"), run_of("GDN")], "ensemble")


def test_choosing_native_needs_no_torch():
    """The import of torch takes longer than many runs."""
    code = (
        "import sys; from hybridseq.learning import backends; backends.available();"
        "sys.exit('torch' in sys.modules)"
    )  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# ---------------------------------------------------------------------------------------------------------------- training


def test_many_runs_are_grouped(without_native):
    runs = [run_of("TF", seed=seed, rate=rate) for seed in range(7) for rate in (0.01, 0.003)]
    mixed = [*runs[:5], run_of("SSM"), *runs[5:]]
    groups = backends._groups(mixed, "auto")
    assert [(name, len(group)) for name, group in groups] == [("ensemble", 11), ("ensemble", 1), ("ensemble", 3)]
    assert sorted(run.key for _, group in groups for run in group) == sorted(run.key for run in mixed)
    assert backends._groups(mixed[4:7], "plain") == [("plain", [run]) for run in mixed[4:7]]


@pytest.mark.parametrize("backend", ["auto", "ensemble", "plain"])
def test_many_runs_give_what_each_gives_alone(backend):
    runs = [run_of("TF", seed=1), run_of("GLA" if backend != "ensemble" else "SSM", width=4), run_of("TF", rate=0.003)]
    found = {run.key: outcome for run, outcome in train_many(runs, backend, steps=3, dtype="float64")}
    assert len(found) == 3
    for run in runs:
        alone = train(run, steps=3, backend=backend, dtype="float64")
        assert found[run.key].backend == alone.backend == choose(run, backend).backend
        np.testing.assert_allclose(found[run.key].losses, alone.losses, rtol=0, atol=1e-12)


def test_no_runs():
    assert list(train_many([])) == []


def key_biases(stack: Stack) -> np.ndarray:
    """Where the flat vector holds biases of keys, whose gradient is 0 where keys are not turned: rounding moves them."""
    marked = {name: np.zeros(shape, bool) for name, shape in stack.shapes()}
    for name, mask in marked.items():
        if name.endswith("qkv.bias"):
            mask[len(mask) // 3 : 2 * len(mask) // 3] = True
    return np.concatenate([mask.ravel() for mask in marked.values()])


CASES = {
    "SSM-TF, multi-key recall": run_of("SSM-TF", seed=3),
    "TF-SSM, window 5, without convolution": run_of("TF-SSM", COPYING, window=5, convolution=False, width=4),
    "TF-TF, two split heads, selective copying": run_of("TF-TF", COPYING, rate=0.003, heads=2, head_width="split"),
}


@pytest.fixture(scope="module", params=CASES)
def plain_training(request):
    run = CASES[request.param]
    return run, train(run, steps=120, backend="plain", dtype="float64")


@pytest.mark.parametrize("backend", [pytest.param("native", marks=NATIVE), "ensemble"])
def test_120_steps_equal_the_plain_trainer(plain_training, backend):
    run, expected = plain_training
    outcome = train(run, steps=120, backend=backend, dtype="float64")
    assert np.abs(outcome.losses - expected.losses).max() < 1e-12
    gap = np.abs(outcome.parameters - expected.parameters)
    assert gap[~key_biases(run.stack)].max() < 1e-12 and gap.max() < 1e-9
    assert (outcome.correct, outcome.valid, outcome.backend) == (expected.correct, expected.valid, backend)


def test_the_comparison_sees_another_rate(plain_training):
    """Mutation: a learning rate changed in its seventh digit is far outside the tolerance."""
    run, expected = plain_training
    outcome = train(replace(run, learning_rate=run.learning_rate * (1 + 1e-7)), steps=120, backend="ensemble", dtype="float64")
    assert np.abs(outcome.losses - expected.losses).max() > 1e-10


@pytest.mark.parametrize("backend", ["auto", "ensemble", "plain"])
@pytest.mark.parametrize("steps", [1.0, True, -1, 10**6])
def test_steps_that_are_no_number_of_updates_are_refused_by_every_trainer(backend, steps):
    task = Framed(MultiKeyRecall(8, 2, skip_first=True), seq_len=8)
    run = Run(Stack.parse("SSM", width=4, vocab_size=task.vocab_size), task, Recipe(steps=2, warm_up=1), 0, 0.01)
    with pytest.raises(ValueError, match="steps="):
        backends.train(run, steps=steps, backend=backend)
