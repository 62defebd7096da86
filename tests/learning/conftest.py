"""A small sweep whose runs take no time: their numbers are a formula of width, learning rate and seed."""

from __future__ import annotations

import pytest

from hybridseq.learning.batches import Framed
from hybridseq.learning.recipe import Recipe
from hybridseq.learning.stack import Stack
from hybridseq.learning.sweep import Point, Sweep
from hybridseq.tasks.multi_key_recall import MultiKeyRecall


def code_of_formula(backend: str, task: object) -> str:
    """The code behind `formula_train`; other backends are unknown."""
    if backend != "formula":
        raise ValueError(f"backend={backend!r}")
    return "c0de00000001"


@pytest.fixture
def code_of():
    return code_of_formula


@pytest.fixture
def formula_train():
    """train(run) -> Outcome: accuracy 1 - 8 |rate - .01| - seed / 1000, so the rate .01 is best. Workers get a copy of it."""

    def train(run):
        import numpy as np

        from hybridseq.learning.recipe import Outcome

        accuracy = max(0.0, 1 - 8 * abs(run.learning_rate - 0.01) - run.seed / 1000)
        losses = np.linspace(2.0, 1 - accuracy, run.recipe.steps)
        correct = round(accuracy * 1000)
        return Outcome(run.stack.initial(run.seed), losses, correct, 1000, correct / 1000, run.stack.width / 100, "formula")

    return train


def make_sweep(**changes) -> Sweep:
    task = Framed(MultiKeyRecall(3, 1, skip_first=True), seq_len=12)
    points = tuple(
        Point(f"{name}-{width}", Stack.parse(name, width=width, vocab_size=task.vocab_size), task)
        for name in ("SSM-TF", "TF-TF") for width in (4, 8)
    )  # fmt: skip
    settings = {
        "name": "small", "title": "A small sweep", "points": points, "learning_rates": (0.001, 0.01, 0.1),
        "select_seeds": (0, 1), "report_seeds": (100, 101, 102), "recipe": Recipe(steps=200, warm_up=10),
        "rule": "mean accuracy", "representative": "TF-TF-4",
    }  # fmt: skip
    return Sweep(**settings | changes)


@pytest.fixture
def small_sweep():
    """Call it with what should differ; 4 points x (3 rates x 2 seeds + 3 seeds) = 36 runs."""
    return make_sweep
