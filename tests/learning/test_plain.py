"""Training with the plain module: AdamW and clipping against torch's, the loop, evaluation, and that every layer learns."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hybridseq.learning.batches import Framed
from hybridseq.learning.modules import Decoder
from hybridseq.learning.plain import AdamW, clipped, dropout_factors, evaluate, loss_and_gradient, train
from hybridseq.learning.recipe import Recipe, Run
from hybridseq.learning.stack import Stack
from hybridseq.tasks.multi_key_recall import MultiKeyRecall
from hybridseq.tasks.selective_copying import SelectiveCopying

RECALL = Framed(MultiKeyRecall(4, 1, skip_first=True), seq_len=16)
SHORT = Recipe(steps=12, total=400, warm_up=4)


def a_run(name="SSM-TF", recipe=SHORT, task=RECALL, seed=0, rate=0.01, **options):
    stack = Stack.parse(name, width=8, vocab_size=task.vocab_size, **options)
    return Run(stack, task, recipe, seed, rate)


def test_adamw_equals_torch():
    recipe, generator = Recipe(weight_decay=0.1, clip=1.0), np.random.default_rng(0)
    flat = generator.standard_normal(50)
    ours, optimiser = flat.copy(), AdamW.start(recipe, flat)
    theirs = torch.nn.Parameter(torch.as_tensor(flat.copy()))
    upstream = torch.optim.AdamW([theirs], lr=1.0, betas=recipe.betas, eps=recipe.eps, weight_decay=recipe.weight_decay)
    for i in range(30):
        gradient = generator.standard_normal(50) * (10.0 if i % 3 else 0.01)
        rate = recipe.learning_rate(0.05, 4 * i)
        theirs.grad = torch.as_tensor(gradient.copy())
        torch.nn.utils.clip_grad_norm_([theirs], recipe.clip)
        upstream.param_groups[0]["lr"] = rate
        upstream.step()
        ours = optimiser.step(ours, gradient, rate)
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-13, atol=1e-15)


def test_clipping_shortens_and_never_lengthens():
    long, short = np.array([3.0, 4.0]), np.array([0.03, 0.04])
    np.testing.assert_allclose(clipped(long, 1.0), long / 5, rtol=1e-6)
    np.testing.assert_array_equal(clipped(short, 1.0), short)
    np.testing.assert_array_equal(clipped(np.zeros(2), 1.0), np.zeros(2))


def test_a_step_of_training_is_gradient_and_adamw():
    run = a_run()
    outcome = train(run, steps=3, dtype="float64")
    flat = run.stack.initial(0)
    optimiser = AdamW.start(run.recipe, flat)
    for i in range(3):
        tokens, labels = RECALL.training_batch(0, i)
        keep = dropout_factors(run, i)
        value, gradient = loss_and_gradient(run.stack, flat, tokens, labels, keep)
        assert outcome.losses[i] == value
        decoder = Decoder(run.stack, flat)
        torch.nn.functional.cross_entropy(
            decoder(tokens, keep=keep).flatten(0, 1), torch.as_tensor(labels).flatten(), ignore_index=-1
        ).backward()
        np.testing.assert_allclose(gradient, decoder.flat.grad.numpy(), rtol=1e-9, atol=1e-15)
        flat = optimiser.step(flat, gradient, run.recipe.learning_rate(0.01, i))
    np.testing.assert_array_equal(outcome.parameters, flat)


def test_the_first_step_moves_nothing_since_its_rate_is_zero():
    run = a_run()
    np.testing.assert_array_equal(train(run, steps=1, dtype="float64").parameters, run.stack.initial(0))
    assert (train(run, steps=2, dtype="float64").parameters != run.stack.initial(0)).any()


def test_training_is_a_function_of_the_run():
    seen = []
    first, second = train(a_run(), record=lambda i, value: seen.append((i, value))), train(a_run())
    np.testing.assert_array_equal(first.parameters, second.parameters)
    np.testing.assert_array_equal(first.losses, second.losses)
    assert seen == list(enumerate(first.losses))
    assert (first.correct, first.valid, first.accuracy) == (second.correct, second.valid, first.correct / first.valid)
    assert first.parameters.dtype == np.float32
    assert first.backend == "plain"
    other = train(a_run(seed=1))
    assert (other.losses != first.losses).all()


def test_training_starts_where_it_is_told():
    run = a_run()
    start = run.stack.initial(7)
    outcome = train(run, start, steps=1, dtype="float64")
    assert outcome.losses[0] != train(run, steps=1, dtype="float64").losses[0]
    np.testing.assert_array_equal(outcome.parameters, start)
    assert train(run, start, steps=0).losses.shape == (0,)


def test_dropout_scales_what_it_keeps_and_is_absent_in_evaluation():
    run = a_run(recipe=replace(SHORT, dropout=0.25, batch=5))
    factors = dropout_factors(run, 3)
    assert factors.shape == (5, 16, 8)
    assert set(np.unique(factors)) == {0, 4 / 3}
    assert abs(factors.mean() - 1) < 0.1
    assert (factors != dropout_factors(run, 4)).any()
    assert dropout_factors(a_run(recipe=replace(SHORT, dropout=0.0)), 3) is None
    assert train(run).losses.shape == (12,)


def test_evaluation_equals_a_count_one_by_one():
    run = a_run()
    flat = train(run, dtype="float64").parameters
    correct = valid = 0
    for b in range(3):
        tokens, labels = RECALL.evaluation_batch(b)
        for row, wanted in zip(tokens, labels, strict=True):
            logits = Decoder(run.stack, flat)(row[None]).detach().numpy()[0]
            for z, y in zip(logits, wanted, strict=True):
                valid += y >= 0
                correct += y >= 0 and all(z[y] > other for t, other in enumerate(z) if t != y)
    assert evaluate(run.stack, flat, RECALL, batches=3) == (correct, valid)


def test_a_model_that_diverged_scores_nothing():
    run = a_run()
    flat = np.full(run.stack.size, np.nan)
    correct, valid = evaluate(run.stack, flat, RECALL, batches=2)
    assert correct == 0
    assert valid > 50


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("TF-TF", {}), ("SSM-TF", {"convolution": False}), ("TF-SSM", {"window": 5}), ("GDN-TF", {}),
        ("GDN-GDN", {"negative_eigenvalues": True}), ("GLA-TF", {"heads": 2, "head_width": "split"}), ("GLA", {}),
    ],
)  # fmt: skip
def test_every_layer_learns_a_short_recall(name, options):
    recipe = Recipe(steps=80, warm_up=10, dropout=0.0, batch=16)
    losses = train(a_run(name, recipe, rate=0.02, **options)).losses
    assert losses[-10:].mean() < losses[0] - 0.4, losses


def test_single_precision_follows_double():
    single, double = (train(a_run(), dtype=dtype).losses for dtype in ("float32", "float64"))
    np.testing.assert_allclose(single, double, rtol=1e-4)


def test_bad_input():
    run, flat = a_run(), a_run().stack.initial(0)
    tokens, labels = RECALL.training_batch(0, 0)
    with pytest.raises(ValueError, match="steps=13"):
        train(run, steps=13)
    with pytest.raises(ValueError, match="steps=-1"):
        train(run, steps=-1)
    with pytest.raises(ValueError, match="parameters"):
        train(run, flat[:-1])
    with pytest.raises(ValueError, match="float16"):
        train(run, dtype="float16")
    with pytest.raises(ValueError, match="int64"):
        loss_and_gradient(run.stack, flat.astype(int), tokens, labels)
    with pytest.raises(ValueError, match="rate"):
        loss_and_gradient(run.stack, flat, tokens, labels, np.ones((8, 16, 8), bool))
    with pytest.raises(ValueError, match="keep"):
        loss_and_gradient(run.stack, flat, tokens, labels, np.ones((8, 16, 7)))
    with pytest.raises(ValueError, match="vocab_size=7"):
        evaluate(run.stack, flat, Framed(SelectiveCopying(2, 3, count_from="current"), seq_len=16), 1)
    for batches in (0, 129):
        with pytest.raises(ValueError, match="batches"):
            evaluate(run.stack, flat, RECALL, batches)
