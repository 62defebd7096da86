"""Number systems with one set of operations (floor 0).

Four systems share the interface of :class:`~hybridseq.arithmetic.base.Arithmetic`, so that one definition of a mixer or a
construction runs in each of them:

* :class:`FixedPoint`: the finite format F_s of paper A (Section 3.2, Appendix A), exact on integer codes;
* :class:`Integer`: the saturating integers of paper C's protocol simulator, with power-of-two weights and exact accumulators;
* :class:`Float`: ordinary floating point over numpy or torch, for comparison, training and oracles;
* :class:`Rational`: the rational numbers, for identities that hold over every field.
"""

from hybridseq.arithmetic.base import Arithmetic
from hybridseq.arithmetic.fixed_point import FixedPoint
from hybridseq.arithmetic.floating import Float
from hybridseq.arithmetic.integer import Integer
from hybridseq.arithmetic.rational import Rational
from hybridseq.arithmetic.rounding import TIE_RULES

__all__ = ["TIE_RULES", "Arithmetic", "FixedPoint", "Float", "Integer", "Rational"]
