"""Pointers: measured on a clock whose hands are known, and on the queries and keys of a real decoder."""

import numpy as np
import pytest
import torch

from hybridseq.learning.batches import Framed
from hybridseq.learning.copying_mechanism import labels_with, pointer, turned_queries, unturned_planes, wave_share
from hybridseq.learning.mechanism import last_numbers, run_with
from hybridseq.learning.modules import Decoder, Trace, untouched
from hybridseq.learning.stack import Stack
from hybridseq.tasks.multi_key_recall import MultiKeyRecall
from hybridseq.tasks.selective_copying import COUNT_FROM, SelectiveCopying

FRAMED = {c: Framed(SelectiveCopying(3, 9, count_from=c, first_number=3), seq_len=40, density=0.3) for c in COUNT_FROM}
WINDOW = 12
STACK = Stack.parse("SSM-TF", width=8, vocab_size=FRAMED["previous"].vocab_size, window=WINDOW)


class Clock:
    """A head whose query names the reach of the last number by an angle, with the strength `nats`; keys are all alike."""

    stack = STACK

    def __init__(self, framed, nats=120.0):
        self.framed, self.nats = framed, nats

    def trace(self, tokens, names=None, tap=untouched):
        tokens = torch.as_tensor(np.asarray(tokens))
        position = np.arange(tokens.shape[1])
        reach = last_numbers(self.framed, tokens.numpy()) - COUNT_FROM[self.framed.task.count_from]
        hand = self.nats * np.sqrt(8) * np.exp(1j * (position - reach))
        key = np.broadcast_to(np.exp(1j * position), hand.shape)
        q, k = (torch.as_tensor(np.stack([z.real, z.imag], axis=-1)) for z in (hand, key))
        q, k = (torch.cat([x, torch.zeros(*x.shape[:-1], 6, dtype=x.dtype)], dim=-1)[:, None] for x in (q, k))
        q = tap("1.q", q)
        back = position[:, None] - position
        hidden = torch.as_tensor((back < 0) | (back >= WINDOW))
        weights = (q @ k.mT / np.sqrt(8)).masked_fill(hidden, -torch.inf).softmax(-1)
        logits = weights[:, 0] @ torch.nn.functional.one_hot(tokens, STACK.vocab_size).double()
        return Trace(STACK, tokens, {"1.q": q, "1.k": k, "1.attention": weights, "logits": logits})


@pytest.fixture(scope="module", params=list(COUNT_FROM))
def framed(request):
    return FRAMED[request.param]


def rows_of(framed):
    return np.concatenate([framed.evaluation_batch(b)[0] for b in range(8)])


def test_the_hands_of_a_clock(framed):
    rows, clock = rows_of(framed), Clock(framed)
    found = pointer(clock, framed, rows, 1)
    reaches = np.array([3, 4, 5]) - COUNT_FROM[framed.task.count_from]
    np.testing.assert_allclose(found.named, reaches, atol=1e-9)
    np.testing.assert_allclose(found.strength, 120, rtol=1e-9)
    assert found.hand_spread.max() < 1e-9 and found.key_spread < 1e-9 and found.rest < 1e-9
    assert found.numbers.tolist() == [3, 4, 5]
    attention, numbers = clock.trace(rows)["1.attention"].numpy()[:, 0], last_numbers(framed, rows)
    for row, i in ((0, 30), (3, 39), (5, 20)):
        seen = attention[row, i, i - WINDOW + 1 : i + 1][::-1]
        np.testing.assert_allclose(found.weights(int(numbers[row, i]), WINDOW), seen, atol=1e-9)


def test_a_whole_turn_is_nearly_the_same_place(framed):
    """The nearest wrong key within 12 tokens is 6 away, 2 pi less 0.283: it trails by 120 (1 - cos 0.283) nats."""
    weights = pointer(Clock(framed), framed, rows_of(framed), 1).weights(5, WINDOW)
    right = 5 - COUNT_FROM[framed.task.count_from]
    assert weights.argmax() == right
    assert np.log(weights[right] / weights[right + 6]) == pytest.approx(120 * (1 - np.cos(2 * np.pi - 6)))


@pytest.mark.parametrize("more", [-2, -1, 0, 1, 3])
def test_moving_the_hand_moves_the_answer(framed, more):
    rows, clock = rows_of(framed), Clock(framed, 500.0)
    answers = run_with(clock, rows, {"1.q": turned_queries(clock.trace(rows), 1, more)}).logits.argmax(-1).numpy()
    expected = labels_with(framed, rows, more)
    assert (expected >= 0).sum() > 1000
    assert (answers == expected)[expected >= 0].mean() > 0.999
    if more:
        own = labels_with(framed, rows, 0)
        assert (answers == own)[own >= 0].mean() < 0.5


def test_labels_with_none_added_are_the_labels(framed):
    tokens, labels = framed.training_batch(1, 2)
    assert (labels_with(framed, tokens, 0) == labels).all()


@pytest.mark.parametrize("width", [8, 16])
def test_planes_are_the_queries_without_rotary_positions(width):
    framed = FRAMED["previous"]
    stack = Stack.parse("SSM-TF", width=width, vocab_size=framed.vocab_size)
    flat, rows = stack.initial(3), rows_of(framed)[:4]
    turned = Decoder(stack, flat).trace(rows)
    still = Decoder(Stack.parse("SSM-TF", width=width, vocab_size=framed.vocab_size, rotary="none"), flat).trace(rows)
    half = stack.rotary_columns // 2
    for name in ("1.q", "1.k"):
        x = still[name].detach().numpy()
        np.testing.assert_allclose(unturned_planes(stack, turned[name]), x[..., :half] + 1j * x[..., half : 2 * half], atol=1e-12)


def test_scores_of_a_real_head_are_those_of_its_planes():
    """Turned planes by the formula, plus the other columns, give q . k of the trace."""
    framed = FRAMED["previous"]
    stack = Stack.parse("SSM-TF", width=16, vocab_size=framed.vocab_size)
    trace = Decoder(stack, stack.initial(3)).trace(rows_of(framed)[:1])
    q, k = (trace[name].detach().numpy()[0, 0] for name in ("1.q", "1.k"))
    z, w = (unturned_planes(stack, trace[name])[0, 0] for name in ("1.q", "1.k"))
    f, i, p = np.array([1, 0.01]), 31, 22
    by_planes = (z[i].conj() * w[p] * np.exp(-1j * f * (i - p))).real.sum()
    assert by_planes + q[i, 4:] @ k[p, 4:] == pytest.approx(q[i] @ k[p], rel=1e-9)


def test_waves_are_found_at_their_own_period():
    t = np.arange(19)
    turn = 0.5 + 0.02 * t + 0.3 * np.cos(t - 1.7)
    assert wave_share(turn, 2 * np.pi) == pytest.approx(1)
    assert max(wave_share(turn, period) for period in (3, 4, 10)) < 0.2
    noise = np.random.default_rng(0).standard_normal((200, 19))
    assert np.mean([wave_share(row, 2 * np.pi) for row in noise]) == pytest.approx(2 / 17, abs=0.02)
    for values, period, message in (
        (t[:5], 4, "six finite"),
        (turn * np.nan, 4, "six finite"),
        (turn, 2, "must be > 2"),
        (t, 4, "straight"),
    ):
        with pytest.raises(ValueError, match=message):
            wave_share(values, period)


def test_bad_input():
    framed, recall = FRAMED["previous"], Framed(MultiKeyRecall(3, 2, skip_first=True), seq_len=40)
    rows = rows_of(framed)
    odd = Stack.parse("SSM-TF", width=12, vocab_size=framed.vocab_size)
    with pytest.raises(ValueError, match="turns 3 columns"):
        pointer(Decoder(odd, odd.initial(0)), framed, rows, 1)
    with pytest.raises(ValueError, match="only SelectiveCopying goes by numbers"):
        pointer(Clock(framed), recall, rows, 1)
    two = Stack.parse("SSM-TF", width=8, vocab_size=framed.vocab_size, heads=2)
    with pytest.raises(ValueError, match="2 heads"):
        pointer(Decoder(two, two.initial(0)), framed, rows, 1)
    with pytest.raises(ValueError, match="do not occur"):
        pointer(Clock(framed), framed, np.full((1, 40), 5), 1)
    with pytest.raises(ValueError, match="number=9, sight=12"):
        pointer(Clock(framed), framed, rows, 1).scores(9, 12)
