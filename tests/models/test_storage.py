"""Content hash, save and load."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint
from hybridseq.mixers import Attention, DeltaRule, Head, Layer
from hybridseq.models import MLP, Block, Embedding, Model, content_hash, load, save
from hybridseq.residual import Affine, Stream
from hybridseq.tasks import Vocabulary

STREAM = Stream({"a": 2, "b": 1})
TOKENS = np.array([[0, 1, 1, 0], [1, 1, 0, 1]])


def build(weight=Fraction(1, 3), table=((0, 1, 2), (1, 0, -1)), start=((Fraction(1, 4), 0), (0, 0))) -> Model:
    def to(name, dim, **rows):
        return Affine.from_rows(STREAM, Stream({name: dim}), rows)

    delta = Head(
        DeltaRule(2, 2, initial_state=start),
        {
            "q": to("q", 2, q={"a": 1}),
            "k": to("k", 2, k={"a": weight}),
            "v": to("v", 2, v={"a": 0.5}),
            "alpha": to("alpha", 1, alpha={"b": 1}),
            "beta": to("beta", 1, beta={"1": 1}),
        },
        qk_norm="l2",
    )
    look = Head(Attention(2, 1), {"q": to("q", 2, q={"a": 1}), "k": to("k", 2, k={"a": 1}), "v": to("v", 1, v={"b": 1})})
    hidden = Stream({"h": 2})
    out = {
        name: Affine.from_rows(Stream({"u": d}), STREAM, {"b": {"u[0]": 1}})
        for name, d in (("delta", 2), ("look", 1), ("both", 3))
    }
    mlp = MLP(to("h", 2, h={"a": 1}), Affine.from_rows(hidden, STREAM, {"a": {"h": Fraction(-1, 7)}}))
    blocks = (
        Block(Layer((delta,), out["delta"]), mlp, "first"),
        Block(Layer((look,), out["look"])),
        Block(Layer((delta, look), out["both"])),
    )
    vocabulary = Vocabulary(("x", "y"), answers=("y",), scratch=("x",))
    return Model(STREAM, vocabulary, Embedding.from_table(STREAM, np.array(table, dtype=object)), blocks, to("t", 2, t={"a": 1}))


def test_round_trip(tmp_path):
    model = build()
    again = load(save(model, tmp_path / "m"))
    assert again.content_hash == model.content_hash == content_hash(model)
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["arrays.npz", "model.json"]
    for s in (2, 4):
        ar = FixedPoint(s)
        assert np.array_equal(again.forward(ar, TOKENS), model.forward(ar, TOKENS))
        assert np.array_equal(again.last_only(ar, TOKENS), model.last_only(ar, TOKENS))
    assert again.vocabulary == model.vocabulary and again.blocks[0].name == "first"
    assert again.blocks[0].layer.heads[0].maps["k"] == model.blocks[0].layer.heads[0].maps["k"]


def test_the_hash_sees_every_part():
    hashes = {
        build().content_hash,
        build(weight=Fraction(1, 3) + Fraction(1, 10**9)).content_hash,
        build(table=((0, 1, 2), (1, 0, -2))).content_hash,
        build(start=((Fraction(1, 2), 0), (0, 0))).content_hash,
        replace(build(), vocabulary=Vocabulary(("x", "y"), answers=("x",))).content_hash,
        replace(build(), blocks=build().blocks[:2]).content_hash,
    }
    assert len(hashes) == 6


def test_the_hash_sees_values_and_not_types():
    assert build(weight=1).content_hash == build(weight=1.0).content_hash == build(weight=Fraction(1)).content_hash


def test_a_used_model_keeps_its_hash():
    model = build()
    before = model.content_hash
    model.forward(FixedPoint(3), TOKENS)
    assert model.content_hash == before


def test_changed_files_are_refused(tmp_path):
    folder = save(build(), tmp_path)
    path = folder / "model.json"
    text = path.read_text()
    path.write_text(text.replace('"1/3"', '"1/4"'))
    with pytest.raises(ValueError, match="hash"):
        load(folder)
    path.write_text(text.replace('"DeltaRule"', '"Popen"'))
    with pytest.raises(ValueError, match="'Popen' is not a part of a model"):
        load(folder)
    path.write_text(json.dumps(json.loads(text) | {"format": 2}))
    with pytest.raises(ValueError, match="format 2"):
        load(folder)


def test_unknown_parts_are_refused(tmp_path):
    class Strange:
        writes = reads = frozenset()

        def apply(self, ar, x):
            return x

    with pytest.raises(ValueError, match="Strange cannot be stored"):
        save(replace(build(), blocks=(Block(Layer(build().blocks[0].layer.heads, Strange())),)), tmp_path)
