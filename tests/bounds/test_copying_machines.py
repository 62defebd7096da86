"""Machines against the printed constant: counts, exact success, and machines with a fault."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import log2

import pytest

from hybridseq.bounds import copying_machines as cm
from hybridseq.bounds.task_bounds import Copying
from hybridseq.bounds.windows import copied

F = Fraction
FOUR = Copying(4, 4, 16)


def test_two_hundred_and_ten_states():
    check = cm.check_guesser(FOUR, 210)
    assert check.passed
    assert check.value["success on D_S"] == 1 and check.value["success on D_T, given a number"] == F(13, 16)
    assert float(check.value["success on D"]) == pytest.approx(0.904663, abs=1e-6)
    assert check.value["bits"] == pytest.approx(7.714, abs=1e-3)
    assert not cm.check_guesser(Copying(4, 4, 12), 210).passed  # a shorter sequence has a number too rarely


def test_exact_success_by_listing():
    task = Copying(2, 3, 4)
    for make in (lambda: cm.guesser(2, 3), lambda: cm.buffer(2, 3, 1), lambda: cm.eraser(2, 3, 1)):
        machine = make()
        for inputs, phases in ((task.state_inputs(), cm.state_phases(task)), (task.window_inputs(), cm.window_phases(task))):
            inputs = list(inputs)
            right = 0
            for x in inputs:
                try:
                    right += machine.run(x) == copied(x, 2)
                except ValueError:
                    continue
            assert cm.exact_success(machine, 2, phases) == F(right, len(inputs))


def test_a_faulty_guesser_is_rejected():
    good = cm.guesser(4, 4)
    forgetful = replace(good, step=lambda s, a: good.step(s, 4 if a == 5 else a))  # reads one word as another
    assert not cm.check_guesser(FOUR, 210, forgetful).passed
    silent = replace(good, output=lambda s: None if s[0] == "after" else good.output(s))
    assert "on D" in str(cm.check_guesser(FOUR, 210, silent).counterexample)


def test_buffers():
    check = cm.check_buffers(Copying(4, 4, 8))
    assert check.passed and check.value["success on D_S"] == [F(1, 4), F(1, 2), F(3, 4), F(1)]
    states_before_the_question = {0: 1, 1: 3, 2: 9, 3: 27}
    for kept, count in states_before_the_question.items():
        machine, seen = cm.buffer(4, 3, kept), set()
        for x in product(range(4, 7), repeat=4):
            state = machine.start
            for token in x:
                state = machine.step(state, token)
            seen.add(state)
        assert len(seen) == count


ERASERS = [(2, 4, 2, 5), (2, 2, 2, 5), (3, 2, 3, 5), (2, 3, 3, 5), (4, 1, 2, 5)]


@pytest.mark.parametrize(("numbers", "words", "period", "length"), ERASERS)
def test_eraser_on_every_input(numbers, words, period, length):
    check = cm.check_eraser_exhaustive(numbers, words, period, length)
    assert check.passed
    cases = sum(_has_answer(x, numbers) for x in product(range(numbers + words), repeat=length))
    assert check.cases == cases


def _has_answer(x, numbers):
    try:
        copied(x, numbers)
    except ValueError:
        return False
    return True


def test_a_faulty_eraser_is_rejected():
    def late(numbers, period, phase):
        good = cm.eraser(numbers, period, phase)
        return replace(good, output=lambda s: s[2][-s[1] - 1] if 0 < s[1] < numbers else good.output(s))

    assert not cm.check_eraser_exhaustive(3, 2, 3, 4, late).passed


def test_erasers_at_full_size():
    check = cm.check_eraser_sampled(10, 1000, 60, 20)
    assert check.passed
    assert check.value["bits"] == pytest.approx(log2(10 * 11 * 1010**9))
    assert 10 * 11 * 1010**9 < 1000**10  # in integers
    assert not cm.check_eraser_sampled(10, 100, 60, 5).passed


@pytest.mark.parametrize(("numbers", "words", "merged"), [(2, 3, 2), (3, 2, 1), (4, 2, 3), (2, 9, None), (3, 3, 0)])
def test_merger_on_every_input(numbers, words, merged):
    check = cm.check_merger(numbers, words, merged)
    assert check.passed and check.value["machines"] == numbers + words
    machines = [cm.merger(numbers, words, j, merged) for j in range(numbers + words)]
    wrong = (numbers + words) // 10 if merged is None else merged
    for length in range(1, 5):
        for x in product(range(numbers + words), repeat=length):
            if _has_answer(x, numbers):
                assert sum(m.run(x) != copied(x, numbers) for m in machines) == wrong


def test_thirty_mergers_refute_the_printed_constant():
    check = cm.check_merger(2, 28)
    assert check.passed and (check.value["machines"], check.value["right"]) == (30, 27)
    assert check.value["most states"] == 783 < 28**2
    assert max(cm.reachable(cm.merger(2, 28, j), 30) for j in (0, 1, 2, 15, 29)) <= 783


def test_a_faulty_merger_is_rejected():
    def wider(numbers, words, shift, merged):
        return cm.merger(numbers, words, shift, merged + 1)

    def lopsided(numbers, words, shift, merged):
        return cm.merger(numbers, words, 0, merged)

    def hoarder(numbers, words, shift, merged):
        return cm.merger(numbers, words, shift, 0)

    for make in (wider, lopsided, hoarder):
        assert not cm.check_merger(2, 4, 1, make).passed


def test_nine_n_plus_ten():
    assert cm.check_nine_n_plus_ten(40).passed
    assert not cm.check_nine_n_plus_ten(5, lambda n, m: cm.merger_states(n, m, (n + m) // 9)).passed
    assert not cm.check_nine_n_plus_ten(5, lambda n, m: cm.merger_states(n, m, (n + m) // 11)).passed


def test_one_token_fewer_than_words_is_always_below_the_print():
    assert all(cm.merger_states(n, m, n + 1) < m**n for n in range(2, 40) for m in range(2, 200))
    check = cm.check_merger(2, 6, 3)
    assert check.passed and check.value["most states"] <= 35 < 6**2 and check.value["right"] == 5


def test_first_refuted_in_integers():
    for numbers in (2, 3, 9, 10, 16, 20, 64):
        first = cm.first_refuted(numbers)
        assert all(_fewer(numbers, m) for m in (first, first + 1, first + 50)) and not _fewer(numbers, first - 1)
    assert [cm.first_refuted(n) for n in (2, 9, 10, 64)] == [28, 91, 100, 133]


def _fewer(numbers, words):
    size = numbers + words
    erasers, stored = 10 * (numbers + 1) * size ** (numbers - numbers // 10), size - size // 10
    return min(erasers, stored**numbers + numbers * stored ** (numbers - 1)) < words**numbers


def test_regions():
    expected = {(4, 2): "proved", (8, 2): "proved", (1000, 100): "proved", (4, 4): "open", (10, 99): "open"}
    expected |= {(2, 28): "refuted", (10, 100): "refuted", (64, 133): "refuted"}
    assert cm.check_regions(expected).passed
    assert not cm.check_regions(expected | {(4, 4): "refuted"}).passed
    assert cm.regions([8, 10], [2, 1000]).tolist() == [[1, 1], [-1, -1]]


def test_bad_input():
    for call, words in (
        (lambda: cm.buffer(4, 4, -1), "kept=-1"),
        (lambda: cm.eraser(4, 1, 0), "period=1"),
        (lambda: cm.eraser(4, 3, 3), "phase=3"),
        (lambda: cm.merger(4, 3, 7), "shift=7"),
        (lambda: cm.merger(1, 3, 0), "numbers=1"),
        (lambda: cm.eraser(1, 10, 0), "numbers=1"),
        (lambda: cm.buffer(0, 3, 0), "numbers=0"),
        (lambda: cm.guesser(1, 3), "numbers=1"),
        (lambda: cm.merger(4, 3, 0, 7), "merged=7"),
        (lambda: cm.reachable(cm.eraser(6, 9, 0), 12, limit=1000), "more than 1000"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
