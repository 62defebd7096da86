"""Probes, attention on the right place, and interventions with a known outcome."""

import numpy as np
import pytest
import torch

from hybridseq.learning.batches import Framed
from hybridseq.learning.mechanism import (
    Patch,
    attention_by_distance,
    attention_on_target,
    averaged,
    labels_under,
    last_numbers,
    probe,
    recent_state,
    run_with,
    since_last_number,
    sources,
    state_swap,
    transplanted,
)
from hybridseq.learning.modules import Decoder, Trace
from hybridseq.learning.stack import Stack
from hybridseq.tasks.multi_key_recall import MultiKeyRecall
from hybridseq.tasks.recall_with_decoding import RecallWithDecoding
from hybridseq.tasks.selective_copying import SelectiveCopying

COPY = {
    count: Framed(SelectiveCopying(3, 4, count_from=count, first_number=2), seq_len=20, density=0.3, marked=True)
    for count in ("current", "previous")
}
RECALL = Framed(MultiKeyRecall(3, 2, skip_first=True), seq_len=20, marked=True)


# where the right answer stands


@pytest.mark.parametrize("framed", [*COPY.values(), RECALL], ids=lambda f: f.name)
def test_the_source_holds_the_label(framed):
    tokens, labels = framed.training_batch(0, 0, 32)
    source = sources(framed, tokens)
    assert ((source >= 0) == (labels >= 0)).all()
    assert (np.take_along_axis(tokens, np.maximum(source, 0), axis=1) == labels)[labels >= 0].all()
    assert (source <= np.arange(20)).all()


def test_last_numbers_by_walking():
    framed = COPY["previous"]
    tokens, _ = framed.training_batch(0, 1)
    for row, found, since in zip(tokens, last_numbers(framed, tokens), since_last_number(framed, tokens), strict=True):
        number, place = 0, None
        for i, token in enumerate(row):
            number, place = (int(token) + 2, i) if token < 3 else (number, place)
            assert found[i] == (number if 1 <= i <= 18 else 0)
            assert since[i] == (i - place if place is not None and 1 <= i <= 18 else -1)


@pytest.mark.parametrize("count", COPY)
def test_labels_under_a_believed_number(count):
    """They equal the labels of the row in which the token at the position is that number, wherever no copy reads that token."""
    framed = COPY[count]
    tokens, labels = framed.training_batch(0, 2, 16)
    position, number = 8, np.arange(16) % 3 + 2
    believed = labels_under(framed, tokens, number, position)
    for b in range(16):
        later = [i for i in range(position + 1, 19) if tokens[b, i] < 3]
        stop = later[0] if later else 19
        for i in range(20):
            source = i - number[b] + (count == "current")
            inside = position <= i < stop and source >= 1
            assert believed[b, i] == (tokens[b, source] if inside else -1)
    own = labels_under(framed, tokens, last_numbers(framed, tokens)[:, position], position)
    assert (own == labels)[own >= 0].all()


def test_targets_refuse_what_they_do_not_know():
    tokens, _ = RECALL.training_batch(0, 0)
    with pytest.raises(ValueError, match="only SelectiveCopying"):
        last_numbers(RECALL, tokens)
    with pytest.raises(ValueError, match="rows"):
        sources(RECALL, tokens[:, 1:])
    with pytest.raises(ValueError, match="position=19"):
        labels_under(COPY["current"], COPY["current"].training_batch(0, 0)[0], 2, 19)
    other = Framed(RecallWithDecoding(4), seq_len=20)
    with pytest.raises(ValueError, match="RecallWithDecoding"):
        sources(other, np.zeros((1, 20), int))


# probes


def test_a_probe_reads_what_is_there_and_nothing_else():
    generator = np.random.default_rng(0)
    labels, groups = generator.integers(4, size=600), np.repeat(np.arange(60), 10)
    features = generator.standard_normal((600, 3, 4))
    blind = probe(features, labels, groups=groups)
    assert blind.test_accuracy < 0.4
    features[:, 1, :] += 3 * np.eye(4)[labels]
    found = probe(torch.as_tensor(features), labels, groups=groups)
    assert found.test_accuracy > 0.9
    assert found.train_accuracy > 0.9
    assert 0.2 < found.baseline < 0.4
    np.testing.assert_array_equal(found.predict(features)[found.test] == labels[found.test], found_right(found, features, labels))
    moved = probe(1e4 * features + 1e6, labels, groups=groups)  # neither unit nor origin matters
    assert moved.test_accuracy == found.test_accuracy


def found_right(found, features, labels):
    right = (found.predict(features) == labels)[found.test]
    assert right.mean() == pytest.approx(found.test_accuracy)
    return right


def test_held_out_groups_stay_whole_and_are_not_fitted():
    generator = np.random.default_rng(1)
    groups = np.repeat(np.arange(20), 5)
    features = generator.standard_normal((20, 40))[groups]  # a group is recognised at sight
    labels = generator.integers(2, size=20)[groups]
    found = probe(features, labels, groups=groups, penalty=1e-6)
    assert {len(set(found.test[groups == g])) for g in range(20)} == {1}
    assert found.test.sum() == 50
    assert found.train_accuracy == 1.0
    assert found.test_accuracy < 0.9
    again, other = (probe(features, labels, groups=groups, seed=seed).test for seed in (0, 1))
    np.testing.assert_array_equal(again, found.test)
    assert (other != found.test).any()


def test_a_probe_solves_its_ridge_problem():
    generator = np.random.default_rng(2)
    x, y = generator.standard_normal((80, 6)), generator.integers(3, size=80)
    found = probe(x, y, penalty=0.3)
    z = (x[~found.test] - found.centre) / found.scale
    np.testing.assert_allclose(z.std(axis=0), 1)
    target = np.eye(3)[y[~found.test]]

    def cost(w):
        return ((z @ w + found.bias - target) ** 2).sum() / len(z) + 0.3 * (w**2).sum()

    for _ in range(10):
        assert cost(found.weights) < cost(found.weights + 1e-3 * generator.standard_normal((6, 3)))


def test_a_constant_feature_is_harmless():
    x = np.random.default_rng(3).standard_normal((50, 3))
    y = x[:, 0] > 0
    assert probe(np.c_[x, np.full(50, 7.0)], y).test_accuracy == probe(x, y).test_accuracy


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.zeros(19)}, "labels"), ({"labels": np.zeros(20)}, "two or more different"),
        ({"groups": np.zeros(20)}, "groups"), ({"groups": np.zeros(3)}, "groups"), ({"test_share": 1.0}, "test_share"),
        ({"penalty": 0}, "penalty"),
        ({"features": np.full((20, 2), np.nan)}, "diverge"), ({"features": np.ones(20)}, "features"),
    ],
)  # fmt: skip
def test_probe_refuses(change, message):
    good = {"features": np.random.default_rng(0).standard_normal((20, 2)), "labels": np.arange(20) % 2}
    with pytest.raises(ValueError, match=message):
        probe(**(good | change))


def test_a_fitted_probe_refuses_other_features():
    found = probe(np.random.default_rng(0).standard_normal((20, 2)), np.arange(20) % 2)
    with pytest.raises(ValueError, match="fitted to 2"):
        found.predict(np.ones((4, 3)))


# attention


def trace_of(attention, window=None):
    stack = Stack.parse("SSM-TF", width=4, vocab_size=3, window=window)
    return Trace(stack, torch.zeros(1, 4, dtype=torch.int64), {"1.attention": torch.as_tensor(attention)})


ATTENTION = np.array([[[[1, 0, 0, 0], [0.75, 0.25, 0, 0], [0.5, 0.25, 0.25, 0], [0.1, 0.2, 0.3, 0.4]]]])


def test_attention_on_target():
    found = attention_on_target(trace_of(ATTENTION), [[-1, 0, 1, 3]])
    assert found.mass.tolist() == pytest.approx([(0.75 + 0.25 + 0.4) / 3])
    assert found.first.tolist() == pytest.approx([2 / 3])
    assert found.uniform == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 3)
    assert (found.queries, found.unseen) == (3, 0)
    np.testing.assert_allclose(found.each, [[[np.nan, 0.75, 0.25, 0.4]]])
    windowed = attention_on_target(trace_of(ATTENTION, window=2), [[-1, 0, 0, 3]])
    assert (windowed.queries, windowed.unseen) == (2, 1)
    assert windowed.uniform == 1 / 2


def test_attention_by_distance():
    found = attention_by_distance(trace_of(ATTENTION), [[-1, 5, 5, 2]])
    assert list(found) == [2, 5]
    np.testing.assert_allclose(found[2], [[0.4, 0.3, 0.2, 0.1]])
    np.testing.assert_allclose(found[5], [[0.25, 0.5, 0.25, 0]])


def test_attention_refuses():
    trace = trace_of(ATTENTION)
    for targets in ([[0, 0, 0]], [[1, 0, 0, 0]], [[-2, 0, 0, 0]], [[-1, -1, -1, -1]]):
        with pytest.raises(ValueError, match="targets"):
            attention_on_target(trace, targets)
    with pytest.raises(ValueError, match="layer=0"):
        attention_on_target(trace, [[-1, 0, 0, 0]], layer=0)
    with pytest.raises(ValueError, match="groups"):
        attention_by_distance(trace, [[0, 0]])
    decoder = Decoder(Stack.parse("SSM", width=4, vocab_size=3), Stack.parse("SSM", width=4, vocab_size=3).initial(0))
    with pytest.raises(ValueError, match="no layer"):
        attention_on_target(decoder.trace([[0, 1]]), [[-1, 0]])


# interventions


def decoder_of(name="SSM-TF", **options):
    stack = Stack.parse(name, width=8, vocab_size=7, **options)
    return Decoder(stack, stack.initial(0) + 0.3 * np.random.default_rng(0).standard_normal(stack.size))


def two_prompts():
    return np.random.default_rng(4).integers(7, size=(2, 3, 12))


@pytest.mark.parametrize("name", ["embedding", "0.after", "1.after"])
def test_a_whole_stream_from_another_prompt_is_the_other_prompt(name):
    decoder, (tokens, donor) = decoder_of(), two_prompts()
    got = transplanted(decoder, tokens, donor, {name}).logits
    torch.testing.assert_close(got, decoder.trace(donor).logits)


@pytest.mark.parametrize("name", ["SSM-TF", "GDN-TF", "GLA-TF"])
def test_the_state_is_all_that_a_recurrent_layer_carries(name):
    """Prompts that agree from a token on: with the other's state before it, the layer goes on exactly as in the other."""
    decoder, (tokens, donor) = decoder_of(name, convolution=False), two_prompts()
    tokens[:, 6:] = donor[:, 6:]
    got, other = transplanted(decoder, tokens, donor, {"0.state"}, {5}), decoder.trace(donor)
    torch.testing.assert_close(got.state(0)[:, 5:], other.state(0)[:, 5:])
    torch.testing.assert_close(got["0.out"][:, 6:], other["0.out"][:, 6:])
    own = decoder.trace(tokens)
    torch.testing.assert_close(got.state(0)[:, :5], own.state(0)[:, :5])
    assert (own["0.out"] - other["0.out"])[:, 6:].abs().amax() > 1e-3


def test_own_values_change_nothing():
    decoder, (tokens, _) = decoder_of("GDN-TF-SSM", heads=2), two_prompts()
    trace = decoder.trace(tokens)
    for positions in (None, {1, 7}):
        torch.testing.assert_close(run_with(decoder, tokens, trace.values, positions).logits, trace.logits)


@pytest.mark.parametrize("name", ["0.out", "0.alpha", "1.q", "1.attention", "1.mlp", "2.dt", "2.state"])
def test_values_are_replaced_at_the_named_positions_only(name):
    decoder, (tokens, donor) = decoder_of("GDN-TF-SSM", heads=2), two_prompts()
    own, other = decoder.trace(tokens), decoder.trace(donor)
    got = transplanted(decoder, tokens, donor, {name}, {3, 9})
    axis = 2 if name.split(".")[1] in ("alpha", "q", "attention") else 1
    at = torch.tensor([3, 9])
    torch.testing.assert_close(got[name].index_select(axis, at), other[name].index_select(axis, at))
    before = torch.arange(3)
    torch.testing.assert_close(got[name].index_select(axis, before), own[name].index_select(axis, before))
    if not name.endswith("state"):
        between = torch.arange(4, 9)
        torch.testing.assert_close(got[name].index_select(axis, between), own[name].index_select(axis, between))
    torch.testing.assert_close(got.logits[:, :3], own.logits[:, :3])
    assert (got.logits - own.logits)[:, 3].abs().amax() > 1e-6


def test_a_part_is_silenced_by_its_mean():
    decoder, (tokens, _) = decoder_of(), two_prompts()
    trace = decoder.trace(tokens)
    values = averaged(trace, {"0.out", "0.state"})
    torch.testing.assert_close(values["0.out"][0, 5], trace["0.out"].mean((0, 1)))
    got = run_with(decoder, tokens, {"0.out": values["0.out"]})
    torch.testing.assert_close(got["0.out"][2, 7], trace["0.out"].mean((0, 1)))
    assert tuple(values["0.state"].shape) == (1, 12, 16, 16)
    torch.testing.assert_close(run_with(decoder, tokens, values, {4}).state(0)[1, 4], trace.state(0).mean((0, 1)))
    q = averaged(decoder.trace(tokens), {"1.q"})["1.q"]
    torch.testing.assert_close(q[0, :, 3], trace["1.q"].mean((0, 2)))


def test_state_swap_pair_by_pair():
    framed = COPY["previous"]
    stack = Stack.parse("SSM-TF", width=8, vocab_size=framed.vocab_size)
    decoder = Decoder(stack, stack.initial(0) + 0.5 * np.random.default_rng(1).standard_normal(stack.size))
    tokens, labels = framed.training_batch(0, 0, 24)
    donor = np.roll(tokens, 1, axis=0)
    found = state_swap(decoder, framed, tokens, donor, 9, delays=(0, 2))
    number, row = last_numbers(framed, tokens), 0
    for b in range(24):
        mine, other = number[b, 9], number[b - 1, 9]
        if mine == other or not mine or not other:
            continue
        got = transplanted(decoder, tokens[b : b + 1], donor[b : b + 1], {"0.state"}, {9}).logits.argmax(-1).numpy()[0]
        for column, i in enumerate((9, 11)):
            fresh = (tokens[b, 10 : i + 1] < 3).any()
            wanted = -1 if fresh or i - other < 1 else tokens[b, i - other]
            assert found.counted[row, column] == (wanted >= 0 and wanted != labels[b, i])
            assert found.follows[row, column] == (got[i] == wanted)
            assert found.keeps[row, column] == (got[i] == labels[b, i])
        assert (found.age[row], found.donor_age[row]) == tuple(since_last_number(framed, x)[b, 9] for x in (tokens, donor))
        row += 1
    assert row == len(found.age) > 5
    old = found.age >= 1
    expected = found.follows[old][found.counted[old][:, 1], 1].mean()
    assert found.share(found.follows, old)[1] == pytest.approx(expected)
    assert np.isnan(found.share(found.follows, found.age > 99)).all()


def test_recent_state():
    decoder, (tokens, _) = decoder_of("TF-SSM", state_dim=3), two_prompts()
    trace = decoder.trace(tokens)
    torch.testing.assert_close(recent_state(decoder, trace, 1, 12), trace.state(1))
    torch.testing.assert_close(recent_state(decoder, trace, 1, 99), trace.state(1))
    written = (trace["1.dt"] * trace["1.u"])[..., None] * trace["1.B"][:, :, None]
    torch.testing.assert_close(recent_state(decoder, trace, 1, 1), written)
    decay = torch.exp(-torch.exp(decoder.weights["1.A_log"].detach()) * trace["1.dt"][..., None])
    three = written[:, 5] + decay[:, 5] * (written[:, 4] + decay[:, 4] * written[:, 3])
    torch.testing.assert_close(recent_state(decoder, trace, 1, 3)[:, 5], three)
    forgetful = run_with(decoder, tokens, {"1.state": recent_state(decoder, trace, 1, 2)})
    torch.testing.assert_close(forgetful.logits[:, :2], trace.logits[:, :2])
    assert (forgetful.logits - trace.logits)[:, 2].abs().amax() > 1e-9


def test_interventions_refuse():
    decoder, (tokens, donor) = decoder_of(), two_prompts()
    with pytest.raises(ValueError, match="donor_tokens"):
        transplanted(decoder, tokens, donor[:, 1:], {"0.state"})
    with pytest.raises(ValueError, match=r"1\.state"):
        transplanted(decoder, tokens, donor, {"1.state"})
    with pytest.raises(ValueError, match="positions"):
        transplanted(decoder, tokens, donor, {"0.state"}, {12})
    with pytest.raises(ValueError, match=r"1\.state"):
        run_with(decoder, tokens, {"1.state": torch.zeros(1)})
    assert Patch({}).used == set()
    trace = decoder.trace(tokens)
    for layer, kept in ((1, 2), (5, 2), (0, 0)):
        with pytest.raises(ValueError, match=r"layer|kept"):
            recent_state(decoder, trace, layer, kept)
    framed = COPY["current"]
    stack = Stack.parse("SSM-TF", width=8, vocab_size=framed.vocab_size)
    copier, rows = Decoder(stack, stack.initial(0)), framed.training_batch(0, 0)[0]
    with pytest.raises(ValueError, match="no row"):
        state_swap(copier, framed, rows, rows, 9)
    for delays in ((), (-1,), (11,)):
        with pytest.raises(ValueError, match="delays"):
            state_swap(copier, framed, rows, rows[::-1], 9, delays=delays)
