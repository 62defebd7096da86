"""The blocks of Qwen3-Next: forms, arithmetic, and the identities behind the table of differences."""

import numpy as np
import pytest

from hybridseq.arithmetic import FixedPoint, Float
from hybridseq.mixers.qwen3_next import blocks


@pytest.mark.parametrize("block", blocks(), ids=lambda b: b.name)
def test_numpy_and_torch_agree_and_the_future_is_hidden(block):
    arrays = block.arrays(np.random.default_rng(0), 19, (2,))
    out = block.run(Float(), arrays)
    assert out.shape == (2, 19, 8)
    np.testing.assert_allclose(block.run(Float("torch"), arrays), out, atol=1e-13)
    changed = arrays | {"x": np.array(arrays["x"])}
    changed["x"][:, 10:] = 3.0
    np.testing.assert_allclose(block.run(Float(), changed)[:, :10], out[:, :10], atol=1e-13)


@pytest.mark.parametrize("block", blocks(), ids=lambda b: b.name)
def test_exact_formats_are_refused(block):
    with pytest.raises(ValueError, match="Float"):
        block.run(FixedPoint(4), block.arrays(np.random.default_rng(0), 3))


def test_qwen_decay_is_a_sigmoid_for_unit_rate():
    """exp(-softplus(u)) = sigma(-u) (spec A 2.8)."""
    u = np.linspace(-30, 30, 241)
    np.testing.assert_allclose(np.exp(-np.logaddexp(0, u)), Float().sigmoid(-u), rtol=1e-13)
