"""Hashed hybrids: who depends on what, widths, and Lemma E2 on both sides of its threshold."""

import numpy as np
import pytest

from hybridseq.bounds import decompositions as dc
from hybridseq.bounds.composition_bounds import Budget, OneFullLayer
from hybridseq.bounds.hashed_protocols import HashedHybrid
from hybridseq.tasks.sequential_composition import SequentialComposition

TWO = SequentialComposition(2, (2,))
THREE = SequentialComposition(3, (2,))


def test_widths():
    tokens = next(TWO.every())
    protocol = HashedHybrid(TWO, Budget(2, 3, 4), seed=1)
    for level, width in ((2, 6), (1, 4), (0, 3)):
        sent = protocol.transcript(tokens, level)
        assert sent.shape == (4096, width)
        assert sent[:, 0].max() == 3 and sent[:, 1].max() == 7 and sent[:, 2:].max() == 15 and sent.min() == 0
    assert sorted(set(protocol.outputs(tokens).tolist())) == [0, 1, 2, 3]


def test_equal_messages_mean_equal_outputs():
    """The last player computes from its token and what it received; an early player's tokens do not change what was sent."""
    protocol = HashedHybrid(TWO, Budget(1, 1, 2), seed=2)
    tokens = next(TWO.every())
    for level in (0, 1, 2):
        first = next(place.start for player, place in TWO.segments.items() if player < level)
        view = np.concatenate([protocol.transcript(tokens, level), tokens[:, first:]], axis=1)
        labels, said = dc.classes(view), protocol.outputs(tokens)
        assert np.array_equal(dc.classes(said[:, None], labels).max(), labels.max())


def test_the_state_before_the_full_layer_is_a_chain():
    protocol = HashedHybrid(THREE, Budget(3, 0, 0), seed=3)
    tokens = THREE.sample(np.arange(500))
    assert np.array_equal(protocol.state(tokens[:, :6], 2), protocol.state(tokens, 2))
    pairs = np.concatenate([protocol.state(tokens, 2), tokens[:, 6:9]], axis=1)
    after = protocol.state(tokens, 1)
    assert dc.classes(np.concatenate([pairs, after], axis=1)).max() == dc.classes(pairs).max()


@pytest.mark.parametrize("bits", [(1, 1, 1), (1, 1, 2), (1, 1, 3), (1, 2, 2), (1, 3, 1)])
def test_below_the_threshold_every_protocol_errs(bits):
    budget = Budget(*bits)
    assert OneFullLayer(3, 2, budget).holds
    for seed in range(2):
        protocol = HashedHybrid(THREE, budget, seed)
        found = dc.proof_shaped(protocol)
        x = len(found.seconds)
        assert found.left >= 6**6 / 2 ** (bits[0] + x * bits[1] + 3 * bits[2])
        assert dc.check_lemma(protocol, *found.decompositions).passed and found.pair is not None


@pytest.mark.parametrize("bits", [(1, 1, 1), (0, 0, 2), (1, 0, 2), (0, 1, 1)])
def test_below_the_threshold_on_the_smallest_task(bits):
    assert OneFullLayer(2, 2, Budget(*bits)).holds
    for seed in range(12):
        protocol = HashedHybrid(TWO, Budget(*bits), seed)
        found = dc.proof_shaped(protocol)
        assert found.pair is not None and dc.check_decomposition(protocol, *found.decompositions).passed


def test_beyond_the_threshold_the_rate_falls():
    def rate(bits, seeds=4):
        return sum(dc.proof_shaped(HashedHybrid(THREE, Budget(*bits), s)).pair is not None for s in range(seeds)) / seeds

    assert not OneFullLayer(3, 2, Budget(2, 2, 4)).holds
    assert rate((4, 5, 9)) == 0 < rate((2, 2, 4))


def test_bad_input():
    for make in (
        lambda: HashedHybrid(SequentialComposition(2, (1, 2)), Budget(1, 1, 1), 0),
        lambda: HashedHybrid(TWO.with_order("rev"), Budget(1, 1, 1), 0),
        lambda: HashedHybrid(TWO, Budget(33, 1, 1), 0),
    ):
        with pytest.raises(ValueError, match="="):
            make()
