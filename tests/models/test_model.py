"""Decoders: passes, what the last position needs, greedy decoding, memory."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.mixers import Attention, DeltaRule, Head, Layer
from hybridseq.models import MLP, Block, Embedding, Model
from hybridseq.models.names import everywhere
from hybridseq.residual import Affine, Stream
from hybridseq.rng import Generator
from hybridseq.tasks import Vocabulary

STREAM = Stream({"a": 2, "b": 2, "c": 2})
VOCABULARY = Vocabulary(("x", "y", "S", "YES", "NO"), answers=("YES", "NO"), scratch=("S",))
NUM_TOKENS, MAX_LEN = len(VOCABULARY), 9


def random_affine(generator: Generator, source: Stream, target: Stream, density: float) -> Affine:
    """A sparse map with weights and biases in quarters between -2 and 2."""
    shape = (target.dim, source.dim)
    keep = generator.at(0).uniform(shape) < density
    weights = (generator.at(1).integers(17, shape) - 8) / 4
    bias = (generator.at(2).integers(9, (target.dim,)) - 4) / 4
    return Affine(
        source,
        target,
        tuple((r, c, float(weights[r, c])) for r, c in np.argwhere(keep).tolist()),
        tuple((r, float(bias[r])) for r in range(target.dim) if r % 2),
    )


def random_head(generator: Generator, kind: str, density: float) -> Head:
    def to(name, dim):
        return random_affine(generator.at(sum(map(ord, name))), STREAM, Stream({name: dim}), density)

    qkv = {"q": to("q", 2), "k": to("k", 2), "v": to("v", 3)}
    if kind == "delta":
        return Head(DeltaRule(2, 3), qkv | {"alpha": to("alpha", 1), "beta": to("beta", 1)}, gate=to("gate", 3), qk_norm="l2")
    window = 3 if kind == "window" else None
    return Head(Attention(2, 3, window=window, qk_norm=kind == "normed"), qkv, gate=to("gate", 3) if kind == "window" else None)


def random_model(seed: int, kinds: list[str], density: float = 0.3) -> Model:
    """A model whose maps are sparse enough that some blocks matter at the last position only."""
    generator, blocks = Generator(seed), []
    for number, kind in enumerate(kinds):
        here = generator.at(number)
        heads = tuple(random_head(here.at(i), part, density) for i, part in enumerate(kind.split("+")))
        out = random_affine(here.at(90), Stream({"u": 3 * len(heads)}), STREAM, density / 2)
        hidden = Stream({"h": 3})
        mlp = MLP(random_affine(here.at(91), STREAM, hidden, density), random_affine(here.at(92), hidden, STREAM, density / 2))
        blocks.append(Block(Layer(heads, out), mlp if number % 2 == 0 else None))
    table = (generator.at(93).integers(9, (NUM_TOKENS, MAX_LEN, STREAM.dim)) - 4) / 4
    logits = random_affine(generator.at(94), STREAM, Stream({"token": NUM_TOKENS}), 0.5)
    return Model(STREAM, VOCABULARY, Embedding.from_table(STREAM, table), tuple(blocks), logits)


KINDS = st.lists(st.sampled_from(["attention", "window", "normed", "delta", "attention+delta", "delta+window"]), max_size=3)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**6), KINDS, st.sampled_from([0.05, 0.15, 0.5]), st.integers(1, MAX_LEN), st.sampled_from([2, 4]))
def test_last_only_equals_the_full_pass(seed, kinds, density, seq_len, s):
    model, ar = random_model(seed, kinds, density), FixedPoint(s)
    tokens = Generator(seed).at(1).integers(NUM_TOKENS, (4, seq_len))
    full = model.forward(ar, tokens)
    assert full.shape == (4, seq_len, NUM_TOKENS)
    assert np.array_equal(model.last_only(ar, tokens), full[:, -1])
    needed = everywhere(model.blocks, STREAM)
    state, trace = model.last_state(ar, tokens), model.trace(ar, tokens)
    assert np.array_equal(state, trace[-1][1][:, -1])
    assert len(trace) == 1 + len(kinds) + (len(kinds) + 1) // 2 and (not needed or needed[-1] is False)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), KINDS)
def test_float_and_other_batch_shapes(seed, kinds):
    model, ar = random_model(seed, kinds), Float()
    tokens = Generator(seed).at(1).integers(NUM_TOKENS, (2, 3, 5))
    full = model.forward(ar, tokens)
    assert np.allclose(model.last_only(ar, tokens), full[..., -1, :], atol=1e-9)
    assert np.allclose(model.forward(ar, tokens[1, 2]), full[1, 2], atol=1e-9)


def test_both_answers_of_the_name_analysis_occur():
    seen = {tuple(everywhere(random_model(seed, ["attention", "delta"], 0.1).blocks, STREAM)) for seed in range(40)}
    assert seen == {(True, False), (False, False)}


def test_a_map_without_names_counts_as_reading_and_writing_everything():
    class Plain:
        def __init__(self, affine):
            self.affine = affine

        def apply(self, ar, x):
            return self.affine.apply(ar, x)

    model = random_model(5, ["attention", "attention"], 0.1)
    layer = model.blocks[1].layer
    head = replace(layer.heads[0], maps={name: Plain(m) for name, m in layer.heads[0].maps.items()})
    opaque = replace(model, blocks=(model.blocks[0], Block(Layer((head,), Plain(layer.out)))))
    assert everywhere(opaque.blocks, STREAM) == [True, False]
    ar, tokens = FixedPoint(3), Generator(0).integers(NUM_TOKENS, (3, 6))
    assert np.array_equal(opaque.last_only(ar, tokens), model.last_only(ar, tokens))


def test_forward_is_the_sum_of_its_parts():
    model, ar = random_model(3, ["delta", "attention"]), FixedPoint(3)
    tokens = Generator(9).integers(NUM_TOKENS, (2, 7))
    x = model.embedding.apply(ar, tokens)
    for block in model.blocks:
        x = ar.add(x, block.layer.scan(ar, x)[0])
        x = x if block.mlp is None else ar.add(x, block.mlp.apply(ar, x))
    assert np.array_equal(model.forward(ar, tokens), model.logits.apply(ar, x))


def test_gradients_flow_in_torch():
    torch = pytest.importorskip("torch")
    model, ar = random_model(2, ["delta", "attention"], 0.6), Float("torch")
    tokens = Generator(4).integers(NUM_TOKENS, (2, 5))
    x = model.embedding.apply(ar, tokens).requires_grad_()
    z = x
    for block in model.blocks:
        z = ar.add(z, block.layer.forward(ar, z))
    z.sum().backward()
    assert torch.isfinite(x.grad).all() and x.grad.abs().sum() > 0
    assert np.allclose(model.forward(ar, tokens).numpy(), model.forward(Float(), tokens), atol=1e-9)


def scripted(following: list[str]) -> Model:
    """A model without blocks that writes `following[i]` after position i."""
    table = np.zeros((NUM_TOKENS, MAX_LEN, NUM_TOKENS), dtype=int)
    for position, token in enumerate(following):
        table[:, position, VOCABULARY.index(token)] = 1
    stream = Stream({"next": NUM_TOKENS})
    logits = Affine.from_rows(stream, Stream({"token": NUM_TOKENS}), {"token": {"next": 1}})
    return Model(stream, VOCABULARY, Embedding.from_table(stream, table), (), logits)


def test_generate_stops_at_the_first_answer():
    model, ar = scripted(["x", "S", "S", "NO", "YES"]), FixedPoint(2)
    prompt = np.array([[0, 1], [1, 1]])
    done = model.generate(ar, prompt, budget=2)
    assert done.answer == (VOCABULARY.index("NO"),) * 2 and done.scratch == ((2, 2), (2, 2))
    assert model.generate(ar, prompt, budget=5) == done
    short = model.generate(ar, prompt, budget=1)
    assert short.answer == (None, None) and short.scratch == ((2,), (2,))
    assert model.generate(ar, np.zeros((1, 4), dtype=int)).answer == (VOCABULARY.index("NO"),)


def test_generate_refuses_tokens_outside_the_scratch_alphabet():
    done = scripted(["S", "x", "YES"]).generate(FixedPoint(2), np.array([[0]]), budget=5)
    assert done.answer == (None,) and done.scratch == ((2,),)


def test_ties_go_to_the_first_token():
    assert scripted([]).greedy(FixedPoint(2), np.array([[0]])).tolist() == [0]


def test_prompts_that_end_at_different_steps():
    stream = Stream({"next": NUM_TOKENS})
    table = np.zeros((NUM_TOKENS, MAX_LEN, NUM_TOKENS), dtype=int)
    table[0, :, 3] = table[1, :, 2] = table[2, :, 4] = 1  # x -> YES, y -> S, S -> NO
    logits = Affine.from_rows(stream, Stream({"token": NUM_TOKENS}), {"token": {"next": 1}})
    model = Model(stream, VOCABULARY, Embedding.from_table(stream, table), (), logits)
    done = model.generate(FixedPoint(2), np.array([[0, 0], [0, 1], [1, 0]]), budget=3)
    assert done.answer == (3, 4, 3) and done.scratch == ((), (2,), ())


def test_memory():
    model = random_model(1, ["delta", "attention", "window"])
    assert model.state_numbers(7) == 2 * 3 + 7 * 5 + 3 * 5
    assert model.state_bits(9, 7) == 9 * model.state_numbers(7)


def test_parts_must_fit():
    model = random_model(1, ["delta"])
    with pytest.raises(ValueError, match="stream of the model"):
        replace(model, stream=Stream({"z": 6}))
    with pytest.raises(ValueError, match="tokens of the vocabulary"):
        replace(model, vocabulary=Vocabulary(("x",)))
    with pytest.raises(ValueError, match="read the units"):
        MLP(Affine(STREAM, Stream({"h": 2})), Affine(Stream({"g": 2}), STREAM))
    for budget in (-1, 1.5, True):
        with pytest.raises(ValueError, match="budget"):
            model.generate(FixedPoint(2), np.array([[0]]), budget=budget)
    with pytest.raises(ValueError, match="num, seq_len"):
        model.generate(FixedPoint(2), np.array([0]))
