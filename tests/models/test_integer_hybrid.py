"""Integer hybrids against the printed formulas in plain Python integers, number by number."""

import json
from dataclasses import replace

import numpy as np
import pytest

from hybridseq.models.integer_hybrid import FullLayer, IntegerHybrid, RecurrentLayer, accumulator_bits
from hybridseq.tasks.sequential_composition import SequentialComposition

TASK = SequentialComposition(2, (2,))
WORDS = ("F", "RF", "FR", "RFR", "FF", "RFF", "R", "RRRR")
SIZES = ((1, 1, 2, 1), (1, 2, 3, 2), (2, 1, 3, 3), (2, 2, 4, 2))


def sat(x, bits):
    return max(-(2 ** (bits - 1)), min(2 ** (bits - 1) - 1, x))


def half_up(num, den):
    return (2 * num + den) // (2 * den) if den else 0


def times(matrix, x, bits):
    return [sat(sum(w * v for w, v in zip(row, x, strict=True)), bits) for row in matrix.tolist()]


def inner(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def full_head(layer, h, model, xs):
    q, k, v = ([times(getattr(layer, name)[h], x, model.p) for x in xs] for name in "qkv")
    offset = model.g // 2 if layer.offset is None else layer.offset
    outputs = []
    for i in range(len(xs)):
        a = [2 ** max(0, min(model.g, inner(q[i], k[j]) + offset)) for j in range(i + 1)]
        nums = [sum(a[j] * v[j][c] for j in range(i + 1)) for c in range(layer.value_dim)]
        assert all(-(2 ** (model.accumulator - 1)) <= num < 2 ** (model.accumulator - 1) for num in nums)
        assert sum(a) < 2 ** (model.accumulator - 1)
        outputs.append([half_up(num, sum(a)) for num in nums])
    return outputs


def recurrent_head(layer, h, model, xs):
    width, outputs = layer.state_bits, []
    s, z = [[0] * layer.head_dim for _ in range(layer.value_dim)], [0] * layer.head_dim
    for x in xs:
        q, k = (
            [max(0, min(2**layer.feature_bits - 1, y - layer.feature_low)) for y in times(getattr(layer, name)[h], x, model.p)]
            for name in "qk"
        )
        v = times(layer.v[h], x, model.p)
        s = [[sat(s[r][c] + sat(v[r] * k[c], width), width) for c in range(len(k))] for r in range(len(v))]
        z = [sat(z[c] + k[c], width) for c in range(len(k))]
        nums = [sat(inner(row, q), width) for row in s]
        if layer.normalise:
            den = sat(inner(z, q), width)
            nums = [sat(half_up(num, den), width) for num in nums]
        outputs.append([sat(num, model.p) for num in nums])
    return outputs


def by_hand(model, tokens):
    """The stream after the last layer of one prompt, from the formulas of the module's first lines."""
    xs = [model.embedding[i, t].tolist() for i, t in enumerate(tokens)]
    for layer in model.layers:
        head = full_head if layer.letter == "F" else recurrent_head
        heads = [head(layer, h, model, xs) for h in range(layer.heads)]
        after = []
        for i, x in enumerate(xs):
            z = times(layer.out, [u for one in heads for u in one[i]], model.p)
            x = [sat(a + b, model.p) for a, b in zip(x, z, strict=True)]
            hidden = [max(0, y) for y in times(layer.mlp_in, x, model.p)]
            after.append([sat(a + b, model.p) for a, b in zip(x, times(layer.mlp_out, hidden, model.p), strict=True)])
        xs = after
    return xs


def an_answer(model, xs):
    scores = [inner(row, xs[-1]) for row in model.readout.tolist()]
    return scores.index(max(scores))


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("size", SIZES)
def test_formulas_by_hand(word, size):
    model = IntegerHybrid.random(word, *size, TASK, seed=3)
    tokens = TASK.sample(np.arange(6))
    streams = [by_hand(model, row.tolist()) for row in tokens]
    assert model.forward(tokens).tolist() == streams
    assert model.answers(tokens).tolist() == [an_answer(model, xs) for xs in streams]
    assert model.answers(tokens[0]) == an_answer(model, streams[0])


def variants():
    base = IntegerHybrid.random("RF", 2, 1, 3, 4, TASK, seed=1)
    recurrent, full = base.layers
    yield base.with_layer(1, replace(full, offset=-3))
    yield base.with_layer(1, replace(full, offset=5))
    yield base.with_layer(0, replace(recurrent, normalise=False))
    yield base.with_layer(0, replace(recurrent, state_bits=2, feature_bits=1, feature_low=0))
    yield base.with_layer(0, replace(recurrent, state_bits=1, normalise=False))


@pytest.mark.parametrize("model", list(variants()))
def test_offsets_states_and_features_by_hand(model):
    tokens = TASK.sample(np.arange(8))
    assert model.forward(tokens).tolist() == [by_hand(model, row.tolist()) for row in tokens]


def test_a_changed_weight_changes_the_hash_and_a_copy_does_not():
    model = IntegerHybrid.random("FR", 1, 1, 3, 2, TASK, seed=0)
    copy = IntegerHybrid.from_data(json.loads(json.dumps(model.to_data())))
    tokens = TASK.sample(np.arange(50))
    assert copy.content_hash == model.content_hash and np.array_equal(copy.forward(tokens), model.forward(tokens))
    old = int(model.layers[0].out[0, 0])
    changed = model.with_layer(0, model.layers[0].with_weight("out", (0, 0), old - 1 if old else 1))
    assert changed.content_hash != model.content_hash
    assert (changed.forward(tokens) != model.forward(tokens)).any()
    assert not model.embedding.flags.writeable and not model.layers[0].q.flags.writeable


def test_the_same_seed_gives_the_same_model_and_another_does_not():
    one, two, other = (IntegerHybrid.random("F", 1, 1, 2, 1, TASK, seed=s) for s in (4, 4, 5))
    assert one.content_hash == two.content_hash != other.content_hash


def test_sizes_and_cutting_off():
    model = IntegerHybrid.random("R^2 F", 2, 3, 4, 2, TASK, seed=0)
    assert (model.word, model.seq_len, model.dim, model.accumulator, model.budget) == ("RRF", 8, 11, 10, 60)
    tokens = TASK.sample(np.arange(4))
    assert np.array_equal(model.first_layers(2).forward(tokens), model.trace(tokens)[2])
    assert accumulator_bits(2, 1, 8) == 7 and accumulator_bits(4, 2, 9) == 11 and accumulator_bits(1, 0, 1) == 2


def random_model(word="F", d=1, heads=1, p=2, g=1, **options):
    return IntegerHybrid.random(word, d, heads, p, g, TASK, seed=0, **options)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: random_model("FXR"), "letters F and R"),
        (lambda: random_model(""), "letters F and R"),
        (lambda: random_model(d=0), "d=0"),
        (lambda: random_model(heads=1.5), "heads=1.5"),
        (lambda: random_model(dim=0), "dim=0"),
        (lambda: random_model(p=0), "p=0"),
        (lambda: random_model(p=20, g=20), "44 bits exceed 30"),
        (lambda: replace(random_model(), word="FF"), "one layer a letter, got F"),
        (lambda: replace(random_model(), word="R"), "got F"),
        (lambda: replace(random_model(), accumulator=31), "accumulator=31"),
        (lambda: replace(random_model(), accumulator=1), "accumulator=1 "),
        (lambda: replace(random_model(), accumulator=7.5), "accumulator=7.5"),
        (lambda: replace(random_model().layers[0], offset=0.5), "offset=0.5"),
        (lambda: replace(random_model("R").layers[0], feature_low=0.5), "feature_low=0.5"),
        (lambda: random_model().layers[0].with_weight("q", (0, 0, 0), 0.5), "value=0.5"),
        (lambda: replace(random_model(), embedding=np.full((8, 4, 6), 2)), "embedding: 2..2 does not fit p = 2"),
        (lambda: replace(random_model(), embedding=np.zeros((8, 4, 5), int)), r"one stream width, got \[5, 6\]"),
        (lambda: replace(random_model(), readout=np.zeros(6, int)), "readout: needs 2 axes"),
        (lambda: replace(random_model(), readout=np.zeros((4, 6))), "readout: must hold integers"),
        (lambda: random_model().with_layer(0, random_model("R").layers[0]), "got R"),
        (lambda: random_model().layers[0].with_weight("w", (0,), 1), "name='w'"),
        (lambda: random_model().first_layers(2), "depth=2"),
        (lambda: random_model().embed(np.zeros((3, 7), int)), r"\(\.\.\., 8\)"),
        (lambda: random_model().embed(np.full((3, 8), 4)), "0..3, got 4..4"),
        (lambda: random_model().embed(np.zeros((3, 8))), "float64"),
        (lambda: replace(random_model("R").layers[0], state_bits=0), "state_bits=0"),
        (lambda: replace(random_model("R").layers[0], feature_bits=30), "feature_bits=30"),
        (lambda: replace(random_model().layers[0], out=np.zeros((6, 2), int)), "out: needs shape"),
        (lambda: replace(random_model().layers[0], q=np.zeros((1, 6), int)), "q and v: need shape"),
        (lambda: IntegerHybrid.from_data({"word": "F"}), "as written by to_data"),
        (lambda: accumulator_bits(2, 1, 0), "n=0"),
    ],
)
def test_bad_models(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_layers_have_one_letter():
    assert (FullLayer.letter, RecurrentLayer.letter) == ("F", "R")
