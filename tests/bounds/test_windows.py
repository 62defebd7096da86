"""Theorem 3.7: the light cone, fooling pairs on real models, certificates, and checkers that notice a change."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.bounds import windows as w
from hybridseq.constructions.random_decoder import SHAPES, random_decoder
from hybridseq.constructions.windowed_transformer import random_transformer, random_windows, rumour
from hybridseq.evidence import Certificate
from hybridseq.mixers import Attention, Head
from hybridseq.rng import Generator
from hybridseq.tasks.selective_copying import SelectiveCopying

BLIND = [(23,), (12, 12), (8, 8, 8), (23, 1), (6, 6, 6, 6)]
SEEING = [(24,), (12, 13), (9, 9, 8), (7, 7, 7, 6)]
PAIR = w.copying_pair(24)


def small(windows, seed=0):
    return random_transformer(windows, 4, 24, seed=seed, width=4)


def test_spec_values():
    assert PAIR.agreement == 23 and PAIR.targets == (2, 3)
    assert [w.reach(x) < 23 for x in BLIND + SEEING] == [True] * 5 + [False] * 4
    assert sum((12, 12)) >= 23  # the printed condition holds, and the model is blind


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_light_cone_is_an_interval(windows):
    cone = w.light_cone(windows, 30)
    assert cone.shape == (len(windows) + 1, 30)
    assert cone[0].sum() == min(30, sum(windows) - len(windows) + 1) and cone[0, -1]
    assert w.check_cone([windows], 30).passed


@pytest.mark.parametrize("ar", [Float(), FixedPoint(6), Float(dtype="float32")], ids=str)
def test_blind_and_seeing(ar):
    for windows in BLIND + SEEING:
        outputs = w.last_outputs(small(windows), ar, PAIR.tokens)
        if windows in BLIND or not ar.exact:  # rounding may blind a model that could see
            assert w.same_bits(*outputs) == (windows in BLIND), windows


def test_random_models_see_exactly_their_cone():
    lists = random_windows(24)
    found = w.sights([random_transformer(x, 4, 24, seed=i) for i, x in enumerate(lists)], Float(), 24)
    blind, sharp = w.check_blind(found, "24 models"), w.check_sharp(found, "24 models")
    assert blind.passed and sharp.passed
    assert blind.cases + sharp.cases == 24 * 23
    assert sharp.value["blind although sum W_i >= R"] == sum(min(23, sum(x)) - min(23, w.reach(x)) for x in lists)


def test_fixed_point_never_sees_further():
    models = [small(x, i) for i, x in enumerate(random_windows(8))]
    for s in (1, 2, 5):
        assert w.check_blind(w.sights(models, FixedPoint(s), 24), f"F_{s}").passed


def test_the_batch_of_a_sight_rounds_like_single_passes():
    model, base = small((5, 4, 6)), Generator(3).integers(4, (24,))
    changed = [base.copy() for _ in range(23)]
    for d, row in enumerate(changed, start=1):
        row[23 - d] = (row[23 - d] + 1) % 4
    outputs = w.last_outputs(model, Float(), [base, *changed])
    assert w.sight(model, Float(), base).seen.tolist() == [not w.same_bits(outputs[0], row) for row in outputs[1:]]


def test_an_unmasked_layer_is_caught():
    """A model that claims windows (4, 4) and has (4, 5) sees too far; one with (4, 3) not far enough."""
    for true, check in (((4, 5), w.check_blind), ((4, 3), w.check_sharp)):
        found = w.sights([small(true)], Float(), 24)
        lying = [replace(found[0], windows=(4, 4))]
        assert check(found, "as it is").passed
        verdict = check(lying, "as it claims")
        assert not verdict.passed and verdict.counterexample


def test_the_rumour_is_heard_exactly_in_the_cone():
    lists = [x for x in random_windows(20) if max(x) <= 7]
    for ar in (Float(), FixedPoint(2)):
        assert w.check_told([rumour(x) for x in lists], ar, 28).passed
    assert not w.check_told([rumour((9, 9))], FixedPoint(2), 28).passed  # nine equal keys are too many for F_2


def test_rumour_task_is_solved_from_the_bound_on():
    """R = 11: windows (7, 6) solve the task with certainty, windows (6, 6) are wrong on one of two."""
    pair = w.rumour_pair(24, 11)
    assert pair.agreement == 11
    said = [int(rumour((7, 6)).greedy(Float(), row[None])[0]) for row in pair.tokens]
    assert tuple(said) == pair.targets == (0, 1)
    assert w.certificate(rumour((7, 6)), Float(), pair) is None
    assert w.replay(w.certificate(rumour((6, 6)), Float(), pair)).passed


def test_plain_solvers_agree_with_the_tasks():
    task = SelectiveCopying(3, 2, count_from="current")
    for i in range(40):
        tokens = Generator(5).at(i).integers(5, (7,))
        label = task.labels(tokens)[-1]
        if label >= 0:
            assert w.copied(tokens.tolist(), 3) == label
        else:
            with pytest.raises(ValueError, match="no answer"):
                w.copied(tokens.tolist(), 3)
    # a word, its successor, and the code of the word; the last of two occurrences counts
    assert w.recalled([1, 2, 1, 3, 4, 5], 4) == 3
    assert w.recalled([4, 5, 1, 2, 1, 3, 0, 2], 4) == 3
    for tokens in ([1, 2, 4], [0, 2, 4, 5], [4, 5, 2, 1]):
        with pytest.raises(ValueError, match="no answer"):
            w.recalled(tokens, 4)


def test_recall_pairs():
    for words, blocks in ((4, 2), (8, 2), (16, 1)):
        pair = w.recall_pair(words, blocks, Generator(1))
        width = words.bit_length() - 1
        assert pair.tokens.shape[1] == width + words * blocks
        assert pair.agreement == words * blocks
        assert pair.targets[0] != pair.targets[1] and min(pair.targets) >= words // 2


# certificates


@pytest.fixture(scope="module")
def stored():
    return w.certificate(small((12, 12)), Float(), PAIR)


def test_certificates_exactly_where_blind():
    check = w.check_certificates([small(x) for x in BLIND[:2] + SEEING[:2]], Float(), PAIR)
    assert check.passed and check.value["certificates"] == 2


def test_certificates_in_fixed_point_and_for_recall():
    pair = w.recall_pair(8, 2, Generator(0))
    models = [random_transformer(x, 10, 19, width=4) for x in ((8, 9), (9, 9))]
    check = w.check_certificates(models, FixedPoint(6), pair, and_no_other=False)
    assert check.passed and check.value["certificates"] >= 1


def test_replay_from_text(stored):
    assert w.replay(stored.to_json(), small((12, 12))).passed


def changed(stored, **changes):
    return Certificate(stored.kind, {**stored.data, **changes})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"agreement": 22}, "agree"),
        ({"windows": [12, 13]}, "windows"),
        ({"targets": [3, 2]}, "stated"),
        ({"said": 9}, "output"),
        ({"model hash": "0"}, "hash"),
        ({"arithmetic": "F_x"}, "unreadable"),
        ({"task": "sorting"}, "unreadable"),
        ({"tokens": [[0] * 24, [0] * 24]}, "equal"),
        ({"tokens": [[1, *[2] * 23], [0, *[2] * 23]]}, "do not differ, so"),
        ({"tokens": [[0, *[2] * 19, 3, 2, 3, 2], [0, *[2] * 19, 2, 2, 3, 2]], "agreement": 3}, "outputs differ"),
    ],
)
def test_changed_certificates_are_refused(stored, changes, reason):
    check = w.replay(changed(stored, **changes))
    assert not check.passed and reason in str(check.counterexample)


def test_a_seeing_model_inside_is_refused(stored):
    other = small((12, 13))
    forged = changed(stored, model=w.pack(other), **{"model hash": other.content_hash}, windows=[12, 13])
    assert "the outputs differ" in w.replay(forged).counterexample
    assert "hashes differ" in str(w.replay(stored, other).counterexample)


def test_a_changed_file_is_refused(stored):
    text = stored.to_json().replace('"agreement": 23', '"agreement": 24')
    assert not w.replay(text).passed
    data = json.loads(stored.to_json())
    del data["hash"]
    assert not w.replay(json.dumps(data)).passed


def test_success_on_the_pair():
    check = w.check_success([small(x) for x in BLIND], Float(), PAIR)
    assert check.passed and check.value["most right answers of two"] <= 1


# bad input


def test_bad_input():
    for call, words in (
        (lambda: w.reach((3, 0)), "windows="),
        (lambda: w.reach(()), "windows="),
        (lambda: w.copying_pair(2), "seq_len"),
        (lambda: w.recall_pair(6, 1, Generator(0)), "power of two"),
        (lambda: w.recalled([5, 0, 1, 6, 6], 5), "power of two"),
        (lambda: w.recalled([1, 1, 1], 1), "num_words=1"),
        (lambda: w.recall_pair(8, 0, Generator(0)), "block"),
        (lambda: w.rumour_pair(5, 5), "distance=5"),
        (lambda: w.Pair(np.array([[1, 2], [1, 2]]), "rumour"), "must differ"),
        (lambda: w.Pair(np.array([[1, 2], [1, 3]]), "rumour"), "agree in the last"),
        (lambda: w.Pair(np.array([[1, 2], [0, 2]]), "sorting"), "task="),
        (lambda: w.windows_of(random_decoder(SHAPES[0])), "DeltaRule"),
        (lambda: w.certificate(small((2,)), Float(), w.Pair(np.array([[1, 0, 0], [1, 1, 0]]), "rumour")), "nobody"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_full_attention_is_refused():
    model = small((3, 3))
    head = model.blocks[1].layer.heads[0]
    full = Head(Attention(head.core.head_dim), dict(head.maps), qk_norm="rms")
    block = replace(model.blocks[1], layer=replace(model.blocks[1].layer, heads=(full, *model.blocks[1].layer.heads[1:])))
    with pytest.raises(ValueError, match="without a window"):
        w.windows_of(replace(model, blocks=(model.blocks[0], block)))
