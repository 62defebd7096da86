"""The format F_s, checked against its definition (paper A, Section 3.2 and Appendix A).

``FixedPoint`` works on whole arrays of integer codes and takes short cuts. ``Definition`` works on one fraction at a time and
takes none. The checks here compare them: every pair of members where there are few, drawn vectors where there are many. Drawn
vectors mix three kinds of code, since errors live in different places: small ones, where products are ties; codes near the
ends, where sums saturate; and codes from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import pairwise

import numpy as np

from hybridseq.arithmetic import FixedPoint
from hybridseq.arithmetic.definition import Definition
from hybridseq.evidence import Check

WIDE_SCALES = ("raw", "sqrt", "dim")


def reals(codes, s: int) -> list:
    """Codes as exact values, nested like the input."""
    codes = np.asarray(codes)
    return Fraction(int(codes), 2**s) if codes.ndim == 0 else [reals(c, s) for c in codes]


def to_codes(values, s: int):
    """Exact values as codes, nested like the input."""
    return [to_codes(v, s) for v in values] if isinstance(values, list) else int(values * 2**s)


def draw(ar: FixedPoint, rng: np.random.Generator, count: int, length: int) -> np.ndarray:
    """``count`` vectors of codes: a third small, a third near the ends, a third from the whole format."""
    top, small = ar.max_code, min(ar.max_code, 2 * ar.one)
    near = top - rng.integers(0, 1 + top // 8, size=(count, length))
    kinds = [
        rng.integers(-small, small + 1, size=(count, length)),
        near * rng.choice([-1, 1], size=(count, length)),
        rng.integers(-top, top + 1, size=(count, length)),
    ]
    pick = rng.integers(0, 3, size=(count, 1))
    return np.select([pick == 0, pick == 1], kinds[:2], kinds[2]).astype(ar.dtype)


def check_size(formats: Iterable[FixedPoint]) -> Check:
    """|F_s| = 2^(2s+1) − 1 members between −B_s and B_s, B_s = 2ˢ − 2⁻ˢ, evenly spaced."""
    formats = list(formats)
    got, expected = [], []
    for ar in formats:
        members = Definition(ar.s).members()
        steps = {b - a for a, b in pairwise(members)}
        got.append([len(set(members)), ar.size, str(ar.max_value), str(max(members)), str(sorted(steps))])
        top = Fraction(2**ar.s) - Fraction(1, 2**ar.s)
        count = 2 ** (2 * ar.s + 1) - 1
        expected.append([count, count, str(top), str(top), str([Fraction(1, 2**ar.s)])])
    names = [ar.name for ar in formats]
    return Check.equal("the members, their number, their end and their spacing", got, expected, _span(formats), names)


def check_rounding(formats: Iterable[FixedPoint]) -> Check:
    """Every eighth of a spacing from below −B_s to above B_s, so all midpoints are among them."""
    formats, got, expected, inputs = list(formats), [], [], []
    for ar in formats:
        d, reach = Definition(ar.s, ar.ties), 8 * (ar.max_code + 4)
        points = [Fraction(k, 8 * ar.one) for k in range(-reach, reach + 1)]
        got += ar.array(points).tolist()
        expected += to_codes([d.round(x) for x in points], ar.s)
        inputs += [f"{ar.name}: {x}" for x in points]
    scope = f"{_span(formats)}, every eighth of a spacing, ends and midpoints included"
    return Check.equal("rounding: nearest member, ties, saturation", got, expected, scope, inputs)


def check_pairs(formats: Iterable[FixedPoint]) -> Check:
    """⊕, ⊖ and ⊗ on every pair of members."""
    formats, got, expected, inputs = list(formats), [], [], []
    for ar in formats:
        d, codes = Definition(ar.s, ar.ties), ar.codes()
        a, b = (grid.ravel() for grid in np.meshgrid(codes, codes, indexing="ij"))
        got += np.stack([ar.add(a, b), ar.sub(a, b), ar.mul(a, b)], axis=-1).tolist()
        for x, y in zip(reals(a, ar.s), reals(b, ar.s), strict=True):
            expected.append(to_codes([d.add(x, y), d.sub(x, y), d.mul(x, y)], ar.s))
            inputs.append(f"{ar.name}: {x}, {y}")
    scope = f"{_span(formats)}, every pair of members"
    return Check.equal("sum, difference and product, each rounded", got, expected, scope, inputs)


def check_functions(formats: Iterable[FixedPoint], rng: np.random.Generator, count: int = 512) -> Check:
    """exp and the logistic function: Arb's balls against enclosures by the exponential series.

    All codes where the functions are not constant, or ``count`` drawn ones where there are more; both ends always.
    """
    formats, got, expected, inputs = list(formats), [], [], []
    for ar in formats:
        reach = min(ar.max_code, (ar.s + 2) * ar.one)
        codes = np.arange(-reach, reach + 1)
        if len(codes) > count:
            codes = np.unique(np.concatenate([[-reach, 0, reach], rng.choice(codes, count - 3, replace=False)]))
        codes = np.unique(np.concatenate([[-ar.max_code], codes, [ar.max_code]])).astype(ar.dtype)
        d = Definition(ar.s, ar.ties)
        got += np.stack([ar.exp(codes), ar.sigmoid(codes)], axis=-1).tolist()
        expected += [to_codes([d.exp(x), d.sigmoid(x)], ar.s) for x in reals(codes, ar.s)]
        inputs += [f"{ar.name}: code {c}" for c in codes.tolist()]
    scope = f"{_span(formats)}, all codes between the saturated ends, or {count:,} drawn where there are more"
    return Check.equal("exp and the logistic function, correctly rounded", got, expected, scope, inputs)


def check_vectors(formats: Iterable[FixedPoint], rng: np.random.Generator, count: int = 20, length: int = 6) -> list[Check]:
    """Every reduction on drawn vectors: ordered sums, affine maps, wide products, norms, softmax and mixing."""
    formats = list(formats)
    cases = [(ar, draw(ar, rng, count, length), draw(ar, rng, count, length)) for ar in formats]
    scope = f"{_span(formats)}, {count} drawn vectors of length {length} each"
    checks = []
    for name, fast, slow in _reductions():
        got, expected, inputs = [], [], []
        for ar, x, y in cases:
            d = Definition(ar.s, ar.ties)
            got += fast(ar, x, y).tolist()
            expected += [to_codes(slow(d, a, b), ar.s) for a, b in zip(reals(x, ar.s), reals(y, ar.s), strict=True)]
            inputs += [f"{ar.name}: {a}, {b}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        checks.append(Check.equal(name, got, expected, scope, inputs))
    return checks


def _reductions() -> list[tuple[str, Callable, Callable]]:
    """(name, vectorised on codes, definition on fractions); the scores of a softmax are its vector over 2."""

    def halved(ar, x):
        return ar.mul(x, ar.one // 2)

    def scores(d, x):
        return [d.mul(a, Fraction(1, 2)) for a in x]

    wide = [
        (
            f"wide inner product, scale {scale}",
            lambda ar, x, y, scale=scale: ar.wide_dot(x, y, scale),
            lambda d, x, y, scale=scale: d.wide_dot(x, y, scale),
        )
        for scale in WIDE_SCALES
    ]
    return [
        ("rounded sum, left to right", lambda ar, x, y: ar.sum(x), lambda d, x, y: d.sum(x)),
        ("rounded inner product", lambda ar, x, y: ar.dot(x, y), lambda d, x, y: d.dot(x, y)),
        (
            "affine map",
            lambda ar, x, y: np.stack([ar.affine(b[None], a, b[:1])[0] for a, b in zip(x, y, strict=True)]),
            lambda d, x, y: d.affine([y], x, y[:1])[0],
        ),
        *wide,
        ("RMS norm", lambda ar, x, y: ar.rms_norm(x), lambda d, x, y: d.rms_norm(x)),
        ("L2 norm", lambda ar, x, y: ar.l2_norm(x), lambda d, x, y: d.l2_norm(x)),
        ("softmax", lambda ar, x, y: ar.softmax(halved(ar, x)), lambda d, x, y: d.softmax(scores(d, x))),
        (
            "mixing in position order",
            lambda ar, x, y: ar.mix(x[:, None], y[:, :, None])[:, 0, 0],
            lambda d, x, y: d.mix(x, [[v] for v in y])[0],
        ),
    ]


def _span(formats: list[FixedPoint]) -> str:
    return formats[0].name if len(formats) == 1 else f"{formats[0].name} to {formats[-1].name}"
