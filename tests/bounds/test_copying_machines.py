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


def test_the_printed_constant_is_too_large_for_many_words():
    check = cm.check_eraser_sampled(10, 1000, 60, 20)
    assert check.passed
    assert check.value["bits"] == pytest.approx(log2(10 * 11 * 1010**9))
    assert 10 * 11 * 1010**9 < 1000**10  # in integers
    assert not cm.check_eraser_sampled(10, 100, 60, 5).passed


def test_first_refuted_in_integers():
    for numbers in (10, 16, 20, 64):
        first = cm.first_refuted(numbers)
        states = [10 * (numbers + 1) * (numbers + m) ** (numbers - numbers // 10) for m in (first - 1, first)]
        assert states[0] >= (first - 1) ** numbers and states[1] < first**numbers
    assert cm.first_refuted(9) is None


def test_regions():
    expected = {(8, 2): "proved", (1000, 100): "proved", (4, 4): "open", (10, 150): "open"}
    expected |= {(10, 1000): "refuted", (10, 180): "refuted"}
    assert cm.check_regions(expected).passed
    assert not cm.check_regions(expected | {(4, 4): "refuted"}).passed
    assert cm.regions([8, 10], [2, 1000]).tolist() == [[1, 1], [0, -1]]


def test_bad_input():
    for call, words in (
        (lambda: cm.buffer(4, 4, -1), "kept=-1"),
        (lambda: cm.eraser(4, 1, 0), "period=1"),
        (lambda: cm.eraser(4, 3, 3), "phase=3"),
        (lambda: cm.reachable(cm.eraser(6, 9, 0), 12, limit=1000), "more than 1000"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
