"""Whole decoders as circuits: all contexts, depth, the scratchpad, damage, refusals."""

from dataclasses import replace

import pytest

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.bounds.circuits.checks import check_decoder, check_depth, check_scratchpad
from hybridseq.bounds.circuits.decoder import compile_decoder, compile_scratchpad
from hybridseq.bounds.circuits.small_decoder import random_attention_decoder
from hybridseq.mixers import Attention, DeltaRule, Head, Layer
from hybridseq.models import Embedding
from hybridseq.residual import Affine, Stream

AR = FixedPoint(1)
BITS = ("0", "1")


@pytest.mark.parametrize(("heads", "width", "seed"), [(1, 2, 2), (1, 2, 3), (2, 2, 0), (2, 2, 2), (1, 3, 0), (1, 3, 2)])
@pytest.mark.parametrize("seq_len", [1, 4, 6])
def test_two_layers_on_all_contexts(heads, width, seed, seq_len):
    model = random_attention_decoder(seed, heads=heads, width=width)
    compiled = compile_decoder(model, AR, seq_len, BITS)
    check = check_decoder(compiled, model, AR)
    assert check.passed and check.cases == 2**seq_len
    assert compiled.circuit.depth <= compiled.depth_limit == 14
    assert len(compiled.reachable) == 3


@pytest.mark.parametrize("layers", [1, 3])
def test_other_depths(layers):
    model = random_attention_decoder(5, layers=layers, max_len=5)
    compiled = compile_decoder(model, AR, 5, BITS)
    assert check_decoder(compiled, model, AR).passed
    assert compiled.depth_limit == 6 * layers + 2


@pytest.mark.parametrize(("heads", "width", "seed"), [(1, 3, 26), (2, 2, 14), (2, 2, 59)])
@pytest.mark.parametrize("budget", [0, 1, 2])
def test_scratchpad_on_all_prompts(heads, width, seed, budget):
    model = random_attention_decoder(seed, heads=heads, width=width)
    compiled = compile_scratchpad(model, AR, 4, BITS, budget)
    assert check_scratchpad(compiled, model, AR, budget).passed
    assert compiled.circuit.depth <= 16


def test_four_tokens_take_two_bits():
    model = random_attention_decoder(3, max_len=3)
    compiled = compile_decoder(model, AR, 3, model.vocabulary.tokens)
    assert compiled.bits == 2 and len(compiled.circuit.inputs) == 6
    assert check_decoder(compiled, model, AR).passed


def test_precision_two():
    model = random_attention_decoder(1, s=2, max_len=4)
    assert check_decoder(compile_decoder(model, FixedPoint(2), 4, BITS), model, FixedPoint(2)).passed


def test_damage_is_seen():
    model = random_attention_decoder(2)
    compiled = compile_decoder(model, AR, 6, BITS)
    assert check_decoder(compiled, model, AR).passed
    last = compiled.circuit.size - 1
    assert not check_decoder(replace(compiled, circuit=compiled.circuit.negated(last)), model, AR).passed
    caught = sum(
        not check_decoder(replace(compiled, circuit=compiled.circuit.without_gate(g)), model, AR).passed
        for g in range(0, compiled.circuit.size, 10)
    )
    assert caught >= 5  # a circuit over predicates has gates that no input needs; most are needed
    other = random_attention_decoder(3)
    assert not check_decoder(compiled, other, AR).passed
    assert not check_depth({"two layers": compiled.circuit}, compiled.circuit.depth - 1).passed


def test_scratchpad_with_another_budget_is_rejected():
    model = random_attention_decoder(14, heads=2)
    compiled = compile_scratchpad(model, AR, 4, BITS, 1)
    assert not check_scratchpad(compiled, model, AR, 2).passed


def test_refusals():
    model = random_attention_decoder(2)
    with pytest.raises(ValueError, match="finitely many"):
        compile_decoder(model, Float(), 3, BITS)
    with pytest.raises(ValueError, match="power of two"):
        compile_decoder(model, AR, 3, ("0", "1", "YES"))
    with pytest.raises(ValueError, match="not in the vocabulary"):
        compile_decoder(model, AR, 3, ("0", "2"))
    with pytest.raises(ValueError, match="distinct"):
        compile_decoder(model, AR, 3, ("0", "0"))
    with pytest.raises(ValueError, match="budget=-1"):
        compile_scratchpad(model, AR, 3, BITS, -1)
    with pytest.raises(ValueError, match="free token"):
        compile_decoder(model, AR, 0, BITS)
    with pytest.raises(ValueError, match="assignments"):
        compile_decoder(random_attention_decoder(5, heads=2), AR, 6, BITS, max_terms=20)
    with pytest.raises(ValueError, match="width"):
        random_attention_decoder(0, width=0)


def test_alphabets_that_do_not_fit_the_precision():
    model = random_attention_decoder(2)

    def with_table(table):
        return replace(model, embedding=Embedding.from_table(model.stream, table))

    with pytest.raises(ValueError, match=r"holds 2.0, outside F_1, whose largest number is 1.5"):
        compile_decoder(with_table([[0.0, 0.0], [2.0, 0.0], [0.0, 0.0], [0.0, 0.0]]), AR, 3, BITS)
    close = with_table([[0.5, 0.0], [0.6, 0.0], [0.0, 0.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match="'0' and '1' at position 1 have different"):
        compile_decoder(close, AR, 3, BITS)
    assert compile_decoder(close, FixedPoint(4), 3, BITS).circuit.inputs == ("x1", "x2", "x3")


@pytest.mark.parametrize("core", [DeltaRule(1, 1), Attention(1, 1, window=2)])
def test_wrong_layers_are_refused(core):
    model = random_attention_decoder(2)
    x = model.stream
    maps = {n: Affine.from_rows(x, Stream({n: 1}), {n: {"x": [[1, 0]]}}) for n in core.input_type.names()}
    layer = Layer((Head(core, maps),), model.blocks[0].layer.out)
    wrong = replace(model, blocks=(replace(model.blocks[0], layer=layer), model.blocks[1]))
    with pytest.raises(ValueError, match="full attention"):
        compile_decoder(wrong, AR, 3, BITS)
