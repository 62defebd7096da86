"""Maps by name with single weights changed, removal of every weight, and paper B's layer on a stream."""

from dataclasses import dataclass

import numpy as np
import pytest

from hybridseq.arithmetic import Float
from hybridseq.constructions.euler_layer import euler_layer
from hybridseq.constructions.named_weights import NamedWeights, Removal, remove_each
from hybridseq.residual import Affine, Stream

X, H = Stream({"I": 1, "C": 2, "O": 1}), Stream({"h": 2})


@dataclass(frozen=True)
class Small(NamedWeights):
    changes: tuple = ()

    def _maps(self):
        return {"in": Affine.from_rows(X, H, {"h[0]": {"I": 2, "1": 5}}), "out": Affine.from_rows(H, X, {"C": {"h": 1}})}


def test_changes_add_up_and_the_original_stays():
    changed = Small().with_weight("in", "h[0]", "I", 3).with_weight("in", "h[1]", "1", -1)
    assert (changed.maps["in"].weight("h[0]", "I"), changed.maps["in"].weight("h[1]", "1")) == (3, -1)
    assert Small().maps["in"].weight("h[0]", "I") == 2
    assert changed._with_changes("small") == "small, changed: in: h[0] <- I is 3; in: h[1] <- 1 is -1"
    assert Small()._with_changes("small") == "small"


def test_an_unknown_map_is_refused():
    with pytest.raises(ValueError, match="changes: 'up' is no map of this construction; they are in, out"):
        _ = Small().with_weight("up", "h[0]", "I", 3).maps


def test_every_weight_and_bias_is_removed_once():
    asked = []

    def notices(model):
        asked.append(model.changes)
        return model.maps["in"].weight("h[0]", "1") == 0

    found = remove_each(Small(), notices)
    assert found == [
        Removal("in", "h[0]", "I", 2, False),
        Removal("in", "h[0]", "1", 5, True),
        Removal("out", "C[0]", "h[0]", 1, False),
        Removal("out", "C[1]", "h[1]", 1, False),
    ]
    assert asked == [((r.name, r.target, r.source, 0),) for r in found]
    assert [r.name for r in remove_each(Small(), notices, apart=("in",))] == ["out", "out"]


@pytest.mark.parametrize("filled", [{"C": {"h": 1}}, {"C[1]": {"h[0]": -2}, "O": {"h[1]": 3}}])
def test_the_layer_adds_what_w_c_writes_and_nothing_else(filled):
    """h <- (I - Delta W_A) h + Delta W_B x and then W_C h, worked out with dense matrices."""
    rng, ar = np.random.default_rng(0), Float()
    w_a, w_b = ([[0.5, -1.0], [0.25, 1.0]], [[1.0, 0, 0, -2.0], [0.5, 3.0, 0, 0]])
    spelled = [
        {f"h[{i}]": {s.label(c): row[c] for c in range(s.dim) if row[c]} for i, row in enumerate(matrix)}
        for s, matrix in ((H, w_a), (X, w_b))
    ]
    w_c = Affine.from_rows(H, X, filled)
    delta = Affine.from_rows(X, Stream({"delta": 1}), {"delta": {"I": 1}})
    layer = euler_layer(ar, Affine.from_rows(H, H, spelled[0]), Affine.from_rows(X, H, spelled[1]), w_c, delta)
    x = rng.standard_normal((7, X.dim)) * (np.array([1, 0, 0, 0]) if "O" in filled else np.array([1, 0, 0, 1]))
    h, expected = np.zeros(2), []
    for row in x:
        h = h - row[0] * (np.array(w_a) @ h) + row[0] * (np.array(w_b) @ row)
        expected.append(w_c.dense()[0].astype(float) @ h)
    assert np.allclose(layer.forward(ar, ar.array(x)), expected, rtol=0, atol=1e-12)
