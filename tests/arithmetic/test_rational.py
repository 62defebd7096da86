"""The rationals: exact, and honest about what leaves them."""

from fractions import Fraction

import numpy as np
import pytest

from hybridseq.arithmetic import Rational

Q = Rational()


def test_a_sum_that_floats_get_wrong():
    tenth = Q.full((10,), Fraction(1, 10))
    assert Q.sum(tenth) == 1 and sum([0.1] * 10) != 1


def test_matrix_operations_are_exact():
    rng = np.random.default_rng(0)
    a, b = (Q.array(rng.integers(-9, 9, (3, 3))) for _ in range(2))
    third = Q.array(Fraction(1, 3))
    assert (Q.mix(Q.mul(a, third), b) * 3 == Q.mix(a, b)).all()
    assert (Q.scores(a, b, "dim") * 3 == Q.scores(a, b, "raw")).all()
    assert (Q.affine(a, b, a[0]) == Q.mix(b, a.T) + a[0]).all()
    assert Q.values(third) == pytest.approx(1 / 3)


@pytest.mark.parametrize("operation", ["exp", "sigmoid", "softmax", "rms_norm", "l2_norm"])
def test_what_leaves_the_rationals(operation):
    with pytest.raises(ValueError, match="leaves the rational numbers"):
        getattr(Q, operation)(Q.zeros((2, 2)))
    with pytest.raises(ValueError, match="square root"):
        Q.scores(Q.zeros((2, 2)), Q.zeros((2, 2)), "sqrt")
