"""The architecture as data: published parameter counts, the order of the flat vector, initial values; the recipe and the run."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hybridseq import rng
from hybridseq.learning.recipe import Recipe, Run
from hybridseq.learning.stack import LAYERS, Stack
from hybridseq.tasks.multi_key_recall import MultiKeyRecall

WIDTHS = (4, 8, 12, 16, 20, 24)
PUBLISHED = [
    *(("SSM-TF", d, 11, count) for d, count in zip(WIDTHS, (780, 2008, 3684, 5808, 8460, 11496), strict=True)),
    *(("TF-TF", d, 11, count) for d, count in zip(WIDTHS, (396, 1304, 2724, 4656, 7100, 10056), strict=True)),
    *(("SSM-SSM", d, 11, count) for d, count in zip(WIDTHS, (1164, 2712, 4644, 6960, 9820, 12936), strict=True)),
    ("SSM-TF", 8, 34, 2192),
    ("TF-TF", 24, 34, 10608),
    ("TF-TF", 32, 34, 18240),
    ("SSM-SSM", 24, 34, 13488),
    ("SSM-SSM", 32, 34, 21056),
]


@pytest.mark.parametrize(("name", "width", "vocab_size", "count"), PUBLISHED)
def test_published_parameter_counts(name, width, vocab_size, count):
    assert Stack.parse(name, width=width, vocab_size=vocab_size).size == count
    if name == "SSM-TF":
        assert Stack.parse("TF-SSM", width=width, vocab_size=vocab_size).size == count


def test_state_of_one_number_gives_the_count_that_the_run_names_suggest():
    assert Stack.parse("SSM-TF", width=24, vocab_size=11, state_dim=1).size == 9336


@given(st.integers(4, 40), st.integers(1, 4), st.integers(1, 20), st.integers(1, 50))
def test_counts_follow_their_formulas(d, heads, n, v):
    r = -(-d // 16)
    mamba = 6 * d * d + d * (15 + 4 * r + 6 * n)
    attention = (5 + 3 * heads) * d * d + (8 + 3 * heads) * d
    stack = Stack.parse("SSM-TF-SSM", width=d, vocab_size=v, heads=heads, state_dim=n)
    assert stack.size == v * d + 2 * d + 2 * mamba + attention
    assert replace(stack, convolution=False).size == stack.size
    assert replace(stack, tied=False).size == stack.size + v * d
    if d % heads == 0 and d // heads >= 4:
        assert replace(stack, head_width="split").size == v * d + 2 * d + 2 * mamba + 8 * d * d + 11 * d


def every_layer(**options):
    return Stack.parse("TF-SSM-GDN-GLA", **({"width": 8, "vocab_size": 5, "heads": 2} | options))


@pytest.mark.parametrize("wrap", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_the_flat_vector_is_cut_in_order_into_views(wrap):
    stack = every_layer(tied=False)
    flat = wrap(np.arange(3.0 * stack.size).reshape(3, stack.size))
    parts = stack.unpack(flat)
    assert [name for name, _ in stack.shapes()] == list(parts)
    start = 0
    for name, shape in stack.shapes():
        assert stack.offsets[name] == start
        assert tuple(parts[name].shape) == (3, *shape)
        for row in range(3):
            first = np.asarray(parts[name])[row].ravel()
            np.testing.assert_array_equal(first, row * stack.size + start + np.arange(math.prod(shape)))
        start += math.prod(shape)
    assert start == stack.size
    parts["norm.weight"][1, 0] = -7
    assert float(flat[1, stack.offsets["norm.weight"]]) == -7


def test_the_order_of_the_names():
    names = [name for name, _ in Stack.parse("SSM-TF", width=4, vocab_size=3).shapes()]
    assert names[0] == "embedding"
    assert names[-2:] == ["norm.weight", "norm.bias"]
    ssm = "norm.weight in_proj.weight conv.weight conv.bias x_proj.weight dt_proj.weight dt_proj.bias A_log D out_proj.weight"
    tf = (
        "norm1.weight norm1.bias norm2.weight norm2.bias qkv.weight qkv.bias dense.weight dense.bias up.weight up.bias "
        "down.weight down.bias"
    )
    assert names[1:-2] == [f"0.{n}" for n in ssm.split()] + [f"1.{n}" for n in tf.split()]


def test_initial_values():
    stack = every_layer(width=48, vocab_size=40)
    flat = stack.initial(5)
    assert flat.dtype == np.float64
    assert flat.shape == (stack.size,)
    np.testing.assert_array_equal(flat, stack.initial(5))
    assert (flat != stack.initial(6)).any()
    w = stack.unpack(flat)
    for name in ("embedding", "0.qkv.weight", "0.down.weight", "1.x_proj.weight", "1.dt_proj.weight", "3.out.weight"):
        assert abs(w[name].std() - 0.02) < 0.002, name
        assert abs(w[name].mean()) < 0.002, name
    for name in ("0.qkv.bias", "0.norm1.bias", "0.up.bias", "1.dt_proj.bias", "norm.bias", "3.decay_out.bias"):
        assert not w[name].any(), name
    for name in ("0.norm1.weight", "0.norm2.weight", "1.norm.weight", "1.D", "2.head_norm.weight", "norm.weight"):
        assert (w[name] == 1).all(), name
    for name in ("1.conv.weight", "1.conv.bias", "2.conv.weight"):
        assert abs(w[name]).max() <= 0.5, name
        assert abs(w[name].std() - 12**-0.5) < 0.05, name
    np.testing.assert_allclose(np.exp(w["1.A_log"]), np.tile(np.arange(1, 17), (96, 1)))
    assert (w["2.decay.log_rate"] >= 0).all()
    assert (np.exp(w["2.decay.log_rate"]) <= 16).all()
    step = np.logaddexp(0, w["2.decay.dt_bias"])
    assert ((step >= 0.001) & (step <= 0.1)).all()


def test_initial_values_from_the_words_one_by_one():
    stack = Stack.parse("SSM", width=4, vocab_size=3)
    w = stack.unpack(stack.initial(9))
    first, second = (float(rng.uniform(9, 0, 0, i)) for i in (5, 12 + 5))  # tensor 0 has 12 entries: radii, then angles
    expected = 0.02 * math.sqrt(-2 * math.log(1 - first)) * math.cos(2 * math.pi * second)
    assert w["embedding"].flat[5] == pytest.approx(expected, rel=1e-15)
    assert w["0.conv.weight"].flat[7] == float(rng.uniform(9, 0, 3, 7)) - 0.5


def test_turned_columns_are_a_quarter_rounded_down():
    def columns(width, **options):
        return Stack.parse("TF", width=width, vocab_size=3, **options).rotary_columns

    assert [columns(d) for d in WIDTHS] == [1, 2, 3, 4, 5, 6]
    assert [columns(d, rotary="rotation") for d in WIDTHS] == [2, 2, 4, 4, 6, 6]
    assert columns(24, rotary="none") == 0
    assert columns(24, heads=3) == 6
    assert columns(24, heads=3, head_width="split") == 2


def test_rotary_tables():
    cos, sin = Stack.parse("TF", width=12, vocab_size=3).rotary_tables(50)
    assert cos.shape == sin.shape == (50, 3)
    for i in (0, 1, 49):
        for column, frequency in enumerate((1.0, 10_000 ** (-2 / 3), 1.0)):  # the fourth, a second 10000^(-2/3), is dropped
            assert cos[i, column] == pytest.approx(math.cos(i * frequency), abs=1e-14)
            assert sin[i, column] == pytest.approx(math.sin(i * frequency), abs=1e-14)
    assert Stack.parse("TF", width=12, vocab_size=3, rotary="none").rotary_tables(50)[0].shape == (50, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "SSM-XX"}, "SSM-XX.*TF, SSM, GDN, GLA"),
        ({"name": ""}, "layers"),
        ({"name": "ssm-tf"}, "ssm-tf"),
        ({"name": None}, "name"),
        ({"width": 0}, "width"),
        ({"width": 8.0}, "width"),
        ({"width": True}, "width"),
        ({"width": 3}, "rotary"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"window": 0}, "window"),
        ({"window": -1}, "window"),
        ({"heads": 0}, "heads"),
        ({"heads": 3, "head_width": "split"}, "heads=3"),
        ({"heads": 4, "head_width": "split"}, "rotary"),
        ({"head_width": "half"}, "head_width"),
        ({"state_dim": 0}, "state_dim"),
        ({"rotary": "some"}, "rotary"),
        ({"convolution": 1}, "convolution"),
        ({"tied": "yes"}, "tied"),
        ({"negative_eigenvalues": None}, "negative_eigenvalues"),
    ],
)
def test_stack_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        Stack.parse(**({"name": "SSM-TF", "width": 8, "vocab_size": 11} | change))


@pytest.mark.parametrize("layers", [None, 3, "SSM-TF", {"SSM"}])
def test_layers_are_a_sequence_of_letters(layers):
    with pytest.raises(ValueError, match="layers"):
        Stack(layers, 8, 11)


@pytest.mark.parametrize("seed", [-1, 2**64, True, 1.0, None, "0"])
def test_initial_values_refuse_what_is_no_seed(seed):
    with pytest.raises(ValueError, match="seed"):
        Stack.parse("TF", width=8, vocab_size=11).initial(seed)


def test_stacks_that_are_allowed_at_the_edge():
    assert Stack.parse("SSM", width=1, vocab_size=1).size == 1 + 2 + 6 + 115
    assert Stack.parse("TF", width=3, vocab_size=2, rotary="none").rotary_columns == 0
    assert Stack.parse("TF", width=np.int64(4), vocab_size=2).config["width"] == 4


def test_unpack_refuses_another_length():
    stack = Stack.parse("TF", width=4, vocab_size=3)
    for flat in (np.zeros(stack.size + 1), np.zeros(()), torch.zeros(2, stack.size - 1)):
        with pytest.raises(ValueError, match=str(stack.size)):
            stack.unpack(flat)


def test_config_names_every_option():
    stack = every_layer(window=7)
    assert stack.name == "TF-SSM-GDN-GLA"
    assert Stack.parse(stack.config["layers"], **{k: v for k, v in stack.config.items() if k != "layers"}) == stack
    assert set(LAYERS) == {"TF", "SSM", "GDN", "GLA"}


# the recipe


def test_schedule():
    recipe = Recipe()
    assert [recipe.learning_rate(0.01, i) for i in (0, 1, 50, 100)] == pytest.approx([0, 0.0001, 0.005, 0.01])
    assert recipe.learning_rate(0.01, 2050) == pytest.approx(0.005)
    assert recipe.learning_rate(1, 3999) == pytest.approx(1 / 3900)
    assert recipe.learning_rate(1, 4000) == recipe.learning_rate(1, 9000) == 0
    assert Recipe(steps=1000, total=4000).learning_rate(1, 999) == pytest.approx(3001 / 3900)
    assert Recipe(warm_up=0, steps=10).learning_rate(1, 0) == 1
    with pytest.raises(ValueError, match="step"):
        recipe.learning_rate(1, -1)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": -1}, {"steps": 1.5}, {"total": 3999}, {"warm_up": 4000}, {"warm_up": -1}, {"weight_decay": -0.1},
        {"weight_decay": float("nan")}, {"betas": (0.9,)}, {"betas": (0.9, 1.0)}, {"eps": 0}, {"clip": 0}, {"clip": float("inf")},
        {"betas": 0.9}, {"betas": None}, {"betas": "09"}, {"dropout": 1.0}, {"dropout": -0.1}, {"batch": 0}, {"batch": True},
    ],
)  # fmt: skip
def test_recipe_refuses(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        Recipe(**change)


# the run


def framed(vocab_size=11):
    return SimpleNamespace(vocab_size=vocab_size, config={"task": "named"}, training_batch=None)


def test_run_key_follows_the_content():
    run = Run(Stack.parse("SSM-TF", width=8, vocab_size=11), framed(), Recipe(), 3, 0.01)
    assert run.key == replace(run, seed=np.int64(3), recipe=Recipe(total=4000)).key
    others = [
        replace(run, seed=4), replace(run, learning_rate=0.02), replace(run, recipe=Recipe(dropout=0)),
        replace(run, stack=Stack.parse("SSM-TF", width=8, vocab_size=11, convolution=False)),
        replace(run, task=SimpleNamespace(vocab_size=11, config={"task": "other"}, training_batch=None)),
    ]  # fmt: skip
    assert len({r.key for r in [run, *others]}) == 6
    assert len(run.key) == 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "seed"),
        ({"seed": 2**31}, "2\\^31"),
        ({"seed": 1.0}, "seed"),
        ({"learning_rate": -0.1}, "learning_rate"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"task": framed(12)}, "vocab_size=11.*12"),
        ({"task": None}, "task"),
        ({"task": MultiKeyRecall(8, 2, skip_first=True)}, "Framed"),
        ({"stack": None}, "stack"),
        ({"stack": "SSM-TF"}, "stack"),
        ({"recipe": {}}, "recipe"),
    ],
)
def test_run_refuses(change, message):
    stack = Stack.parse("TF", width=8, vocab_size=11)
    good = {"stack": stack, "task": framed(), "recipe": Recipe(), "seed": 0, "learning_rate": 0.1}
    with pytest.raises(ValueError, match=message):
        Run(**(good | change))
