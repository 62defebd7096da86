"""Comparisons and exchanges on an exact induction head for pairs, whose every value is known, and on small real decoders."""

import numpy as np
import pytest
import torch

from hybridseq.learning.batches import Framed
from hybridseq.learning.modules import Decoder, Trace, untouched
from hybridseq.learning.recall_mechanism import ask_for_another, coincidences, forget_latest, matches, plant, seen_through
from hybridseq.learning.stack import Stack
from hybridseq.rng import Generator
from hybridseq.tasks.multi_key_recall import MultiKeyRecall

FRAMED = Framed(MultiKeyRecall(4, 2, skip_first=True), seq_len=40)
STACK = Stack.parse("SSM-TF", width=8, vocab_size=FRAMED.vocab_size)


class PairInduction:
    """"0.out" holds the two words before each token; the head finds the latest place where they are the query's last two."""

    stack = STACK

    def __init__(self, gain=3.0, copies="latest"):
        self.gain, self.copies = gain, copies

    def trace(self, tokens, names=None, tap=untouched):
        tokens = torch.as_tensor(tokens)
        one = torch.nn.functional.one_hot(tokens, FRAMED.vocab_size).double()
        before = torch.cat([torch.zeros_like(one[:, :1]), one[:, :-1]], dim=1)
        before2 = torch.cat([torch.zeros_like(one[:, :2]), one[:, :-2]], dim=1)
        out = tap("0.out", torch.cat([before, before2], dim=-1))
        first, second = out.chunk(2, dim=-1)
        q, k = torch.cat([one, first], dim=-1), torch.cat([first, second], dim=-1)
        match = (torch.einsum("bqd,bkd->bqk", q, k) > 1.5).numpy() & np.tril(np.ones((tokens.shape[1],) * 2, dtype=bool))
        match[:, :, : FRAMED.content.start + 3] = False
        length = tokens.shape[1]
        places = match.argmax(-1) if self.copies == "oldest" else length - 1 - match[..., ::-1].argmax(-1)
        answer = np.where(match.any(-1), np.take_along_axis(tokens.numpy(), places, axis=1), FRAMED.end)
        logits = torch.nn.functional.one_hot(torch.as_tensor(answer), FRAMED.vocab_size).double()
        scale = self.gain * np.sqrt(q.shape[-1])
        return Trace(STACK, tokens, {"0.out": out, "1.q": scale * q[:, None], "1.k": k[:, None], "logits": logits})


@pytest.fixture(scope="module")
def rows():
    return np.concatenate([FRAMED.evaluation_batch(b)[0] for b in range(6)])


def test_the_head_solves_the_task(rows):
    labels = FRAMED.frame(rows[:, FRAMED.content])[1]
    answers = PairInduction().trace(rows).logits.argmax(-1).numpy()
    assert (answers == labels)[labels >= 0].all()


def test_coincidences_find_the_shift_by_one(rows):
    found = coincidences(PairInduction(gain=3.0), rows, 1, back=3, first=10)
    expected = np.zeros((3, 3))
    expected[0, 1] = expected[1, 2] = 3.0
    np.testing.assert_allclose(found.gain, expected, atol=1e-9)
    assert abs(found.distance) < 1e-9


@pytest.mark.parametrize("exchange", [ask_for_another, forget_latest, plant])
def test_the_head_does_as_predicted(rows, exchange):
    found = exchange(PairInduction(), FRAMED, rows, "0.out", 30, Generator(2))
    assert found.rows >= 5
    assert found.follows == 1
    assert found.followed_before < 0.5
    assert (found.donors[:, 1] >= 1).all()


def test_another_head_is_found_out(rows):
    """A head that copies the oldest occurrence does not do what is predicted of one that copies the latest."""
    assert plant(PairInduction(copies="oldest"), FRAMED, rows, "0.out", 30, Generator(2)).follows < 0.5
    assert forget_latest(PairInduction(copies="oldest"), FRAMED, rows, "0.out", 30, Generator(2)).follows < 0.9


def test_an_untrained_decoder_does_not_follow(rows):
    decoder = Decoder(STACK, STACK.initial(0))
    assert ask_for_another(decoder, FRAMED, rows, "0.out", 30, Generator(2)).follows < 0.6


def test_matches_end_at_the_source(rows):
    from hybridseq.learning.mechanism import sources

    found, source = matches(FRAMED, rows), sources(FRAMED, rows)
    latest = np.where(found.any(-1), rows.shape[1] - 1 - found[..., ::-1].argmax(-1), -1)
    assert (latest == source).all()


def test_seen_through_everything_is_the_trace(rows):
    decoder = Decoder(STACK, STACK.initial(1))
    tokens = rows[:2, :12]
    whole = decoder.trace(tokens, {"0.out"})["0.out"]
    torch.testing.assert_close(seen_through(decoder, tokens, "0.out", 12), whole)
    alone = decoder.trace(tokens[:, 5:6], {"0.out"})["0.out"][:, 0]
    torch.testing.assert_close(seen_through(decoder, tokens, "0.out", 1)[:, 5], alone)


@pytest.mark.parametrize("name", ["SSM-TF", "TF-TF"])
def test_seen_through_a_window_is_the_trace_of_those_tokens(rows, name):
    """Position by position, each with nothing but its own last three tokens."""
    stack = Stack.parse(name, width=8, vocab_size=FRAMED.vocab_size)
    decoder, value = Decoder(stack, stack.initial(2)), "0.out" if name == "SSM-TF" else "0.attended"
    tokens = rows[:2, :9]
    found = seen_through(decoder, tokens, value, 3)
    for p in range(9):
        alone = decoder.trace(tokens[:, max(0, p - 2) : p + 1], {value})[value][:, -1]
        torch.testing.assert_close(found[:, p], alone)
    assert not torch.allclose(found, decoder.trace(tokens, {value})[value])


def test_bad_input(rows):
    decoder = Decoder(STACK, STACK.initial(0))
    with pytest.raises(ValueError, match="no attention"):
        coincidences(decoder, rows, 0)
    with pytest.raises(ValueError, match="back=0"):
        coincidences(decoder, rows, 1, back=0)
    with pytest.raises(ValueError, match="span=0"):
        seen_through(decoder, rows, "0.out", 0)
    with pytest.raises(ValueError, match="query=99"):
        plant(decoder, FRAMED, rows, "0.out", 99, Generator(0))
    with pytest.raises(ValueError, match="tokens"):
        matches(FRAMED, rows[:, :10])
    with pytest.raises(ValueError, match="key_len"):
        plant(decoder, Framed(MultiKeyRecall(4, 3, skip_first=True), seq_len=40), rows, "0.out", 30, Generator(0))
