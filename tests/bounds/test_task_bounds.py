"""Theorems 4.2 and 4.5 with constants: values of the specification, brute force, and arguments that break."""

from fractions import Fraction
from itertools import product
from math import log2

import pytest

from hybridseq.bounds import task_bounds as tb
from hybridseq.bounds.payload_information import binary_entropy
from hybridseq.bounds.task_bounds import Copying, Recall

F = Fraction


def test_state_bits_of_the_specification():
    copying = {(4, 4): 2.8832, (26, 5): 12.199, (26, 10): 27.448}
    for (words, numbers), bits in copying.items():
        assert Copying(numbers, words, 2 * numbers).state_bits() == pytest.approx(bits, abs=6e-4)
    recall = {8: 3.844, 16: 13.733, 32: 39.947, 64: 105.191}
    for words, bits in recall.items():
        assert Recall(words).state_bits() == pytest.approx(bits, abs=6e-4)
    assert Copying(4, 4, 8).state_bits(0) == 6.0
    assert [round(tb.fano_bits(1, 3, e), 4) for e in (0.5, 0.2, 0.125, 0.1)] == [0.0850, 0.6630, 0.9164, 1.0160]


def test_ceilings_of_the_specification():
    copying = {(2, 2): F(3, 4), (2, 3): F(3, 4), (2, 4): F(11, 16), (3, 3): F(17, 27), (4, 4): F(17, 32)}
    copying |= {(26, 5): F(123371, 456976)}
    for (words, numbers), value in copying.items():
        assert tb.blind_ceiling(numbers, words) == value
    assert [Recall(w).ceiling for w in (4, 8, 16)] == [F(3, 4), F(17, 32), F(680849, 2097152)]
    assert float(Recall(32).ceiling) == pytest.approx(0.19239, abs=1e-5)
    assert max(tb.blind_ceiling(n, m) for m in range(2, 9) for n in range(2, 13)) == F(3, 4)


@pytest.mark.parametrize(("balls", "bins"), [(1, 3), (2, 5), (3, 2), (4, 3), (5, 2)])
def test_expected_largest_by_listing(balls, bins):
    words = list(product(range(bins), repeat=balls))
    assert tb.expected_largest(balls, bins) == F(sum(max(map(x.count, x)) for x in words), len(words))


def test_coverage_of_the_specification():
    assert [tb.coverage(h) for h in (2, 4, 8, 16, 32)] == [8, 21, 51, 115, 255]
    assert tb.covered(2, 1) == 0 and tb.covered(2, 2) == F(1, 2)


def test_blind_success_by_listing():
    tasks = [Copying(2, 2, 4), Copying(2, 2, 6), Copying(3, 2, 6), Recall(4), Recall(4, 2)]
    assert tb.check_blind_success(tasks).passed
    assert not tb.check_blind_success(tasks, formula=lambda t: t.ceiling).passed  # forgets that a number may be absent


def test_one_token_more_and_the_question_is_in_sight():
    copying, recall = Copying(2, 2, 4), Recall(4)
    assert tb.best_blind(copying) == F(3, 4) * F(3, 4)
    assert tb.best_blind(copying, reach=2) > tb.best_blind(copying)
    assert tb.best_blind(copying, reach=3) == F(3, 4)  # all that has an answer
    assert tb.best_blind(recall) == F(3, 4)
    assert tb.best_blind(recall, reach=recall.hidden) == 1


def test_payloads_are_uniform():
    """In D_S of recall the successors are uniform and independent; in D_S of copying all words are."""
    task = Recall(4, 2)
    seen = {}
    for context in task.contexts():
        u = tuple(task.answer(list(context + task.code(a))) for a in range(task.half))
        seen[u] = seen.get(u, 0) + 1
    assert len(seen) == 4 and len(set(seen.values())) == 1
    assert {task.code(a)[0] for a in range(task.half)} == {task.words}  # the first bit is always 0


def test_three_quarters():
    check = tb.check_three_quarters(12, 8)
    assert check.passed and check.value["largest"] == F(3, 4)


def test_three_quarters_notices_a_wrong_count(monkeypatch):
    right = tb.expected_largest
    monkeypatch.setattr(tb, "expected_largest", lambda balls, bins: right(balls, bins) + F(1, 10**6))
    assert not tb.check_three_quarters(4, 3).passed


def test_arguments():
    for task in (Copying(4, 4, 16), Copying(10, 26, 100), Copying(2, 2, 4), Recall(4), Recall(32)):
        check = tb.check_argument(task)
        assert check.passed and check.value["bits of state"] == task.state_bits()
    assert tb.check_argument(Copying(10, 26, 100)).value["sum(W_i - 1) at least"] == 50
    assert tb.check_argument(Recall(8, 2)).value["sum(W_i - 1) at least"] == 16


@pytest.mark.parametrize(
    "change",
    [{"success": F(7, 8)}, {"share": F(1, 4)}, {"share": F(9, 10)}, {"success": F(1, 2)}],
)
def test_arguments_break_without_their_premises(change):
    """Success that a blind model has, too little weight on D_T, too little on D_S."""
    assert not tb.check_argument(Copying(2, 2, 4), **change).passed


def test_constant():
    check = tb.check_constant(300)
    assert check.passed and check.value["least share"] == pytest.approx(1 - binary_entropy(0.2))
    assert not tb.check_constant(300, constant=0.3).passed


def test_mixed_payload_is_the_larger_bound():
    task = Copying(8, 2, 16)
    assert task.mixed_state_bits() == pytest.approx(7 * (log2(10) - binary_entropy(0.2) - 0.2 * log2(9)))
    assert task.mixed_state_bits() > task.printed_bits > task.state_bits()


def test_bad_input():
    for call, words in (
        (lambda: Copying(1, 4, 8), "numbers=1"),
        (lambda: Copying(4, 1, 8), "words=1"),
        (lambda: Copying(4, 4, 6), "length=6"),
        (lambda: Copying(4, 4, 9), "length=9"),
        (lambda: Recall(6), "power of two"),
        (lambda: Recall(2), "words=2"),
        (lambda: Recall(4, 0), "blocks=0"),
        (lambda: tb.fano_bits(3, 4, 0.8), "error"),
        (lambda: tb.fano_bits(3, 1, 0.0), "alphabet"),
        (lambda: tb.expected_largest(0, 2), "balls=0"),
        (lambda: tb.coverage(4, 1), "level"),
        (lambda: tb.best_blind(Copying(4, 4, 16)), "smaller task"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
