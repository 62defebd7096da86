"""The integer construction: all inputs of small shapes, the numbers of the specification, one layer fewer, one weight changed."""

import numpy as np
import pytest

from hybridseq.constructions.integer_composition import composition_hybrid, least_ratio, sizes, table_register
from hybridseq.constructions.sequential_composition import ComposingTransformer, bits
from hybridseq.tasks.sequential_composition import SequentialComposition

SHAPES = [(2, ()), (3, ()), (4, ()), (2, (2,)), (3, (1,)), (2, (1, 2)), (2, (1, 1, 1))]


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("args", SHAPES)
def test_all_inputs(args, linear):
    task = SequentialComposition(*args)
    model = composition_hybrid(task, linear)
    assert model.word == ("R" if linear else "F") + "F" * task.L
    for tokens in task.every():
        assert np.array_equal(model.answers(tokens), task.answers(tokens))


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize(("args", "num"), [((8, (4,)), 100), ((5, (3,)), 100), ((3, (2, 2, 2)), 50), ((16, (4, 4)), 4)])
def test_samples_of_larger_shapes(args, num, linear):
    task = SequentialComposition(*args)
    tokens = task.sample(np.arange(num))
    assert np.array_equal(composition_hybrid(task, linear).answers(tokens), task.answers(tokens))


@pytest.mark.parametrize(("linear", "start"), [(False, "full"), (True, "linear")])
@pytest.mark.parametrize("args", [(3, ()), (2, (2,)), (4, (3,)), (3, (2, 2))])
def test_two_encodings_of_one_construction_keep_the_same_pointer(args, linear, start):
    task = SequentialComposition(*args)
    named = ComposingTransformer(task, start, numbers="integer")
    plain = composition_hybrid(task, linear)
    tokens = task.sample(np.arange(60))
    width = bits(task.num_answers)
    digits = np.arange(width)
    walked = named.walk(tokens).pointers[:, 1:]
    for depth, stream in enumerate(plain.trace(tokens)[1:]):
        pointer = stream[:, -1, -1 - 2 * width : -1 - width]  # ... | ptr | scr | one
        assert np.array_equal(((pointer > 0) << digits).sum(axis=-1), walked[:, depth])


def test_sizes_of_the_specification():
    small = composition_hybrid(SequentialComposition(2, (2,)))
    assert (small.layers[0].head_dim, small.accumulator, small.budget) == sizes(SequentialComposition(2, (2,))) == (5, 10, 50)
    long = SequentialComposition(64, (2,) * 5)
    assert long.seq_len == 4034 and sizes(long) == (15, 27, 405)
    with pytest.raises(ValueError, match="n = 4034 needs an embedding table"):
        composition_hybrid(long)


@pytest.mark.parametrize("linear", [False, True])
def test_one_layer_fewer_knows_the_answer_by_chance(linear):
    task = SequentialComposition(2, (2,))
    tokens = next(task.every())
    model = composition_hybrid(task, linear).first_layers(2)
    assert (model.answers(tokens) != task.answers(tokens)).sum() == 3072


def test_the_pointer_is_the_trace():
    task = SequentialComposition(2, (1, 2))
    tokens = task.sample(np.arange(200))
    model, trace = composition_hybrid(task, linear=True), task.trace(tokens)
    for hop, stream in enumerate(model.trace(tokens)[1:]):
        assert np.array_equal(model.read(stream[:, -1]), trace[:, hop])


def test_signs_are_safe():
    task = SequentialComposition(2, (2,))
    assert round(least_ratio(composition_hybrid(task), next(task.every())), 4) == 0.641
    wide = SequentialComposition(16, (8,))
    assert least_ratio(composition_hybrid(wide), wide.sample([0, 1])) > 0.6


def test_a_wrong_sign_in_a_query_gives_wrong_answers():
    task = SequentialComposition(2, (2,))
    tokens, model = next(task.every()), composition_hybrid(task)
    wrong = []
    for row in range(5):
        layer = model.layers[2]
        column = int(np.flatnonzero(layer.q[0, row])[0])
        changed = model.with_layer(2, layer.with_weight("q", (0, row, column), -int(layer.q[0, row, column])))
        wrong.append(int((changed.answers(tokens) != task.answers(tokens)).sum()))
    assert min(wrong) > 1000


def test_other_orders_are_refused():
    with pytest.raises(ValueError, match="order 'rev'"):
        composition_hybrid(SequentialComposition(2, (2,), "rev"))


@pytest.mark.parametrize(("args", "width"), [((2, ()), 2), ((2, (2,)), 8), ((3, (1,)), 6), ((2, (1, 2)), 8), ((5, ()), 12)])
def test_a_register_holds_a_table(args, width):
    task = SequentialComposition(*args)
    model, tables = table_register(task), task.functions(task.L)
    rest = np.tile(task.sample(0)[task.num_answers :], (len(tables), 1))
    layer = model.layers[0]
    state = layer.scan(model.ar, model.embed(np.concatenate([tables, rest], axis=1)))[1]
    places = task.num_answers ** np.arange(task.num_answers)
    assert layer.state_bits == width
    assert state.s[:, 0, 0, 0].tolist() == (tables @ places - task.num_answers // 2 * places[-1]).tolist()


def test_registers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="order 'wfirst'"):
        table_register(SequentialComposition(2, (2,), "wfirst"))
    with pytest.raises(ValueError, match="24 bits"):
        table_register(SequentialComposition(4, (2,)))
