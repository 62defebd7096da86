"""Lower bounds for composing functions with two full layers: E3a, its corollary for trailing recurrence, E3b (beyond paper C).

Task and model as in `composition_bounds`. All logarithms are to base 2.

* `TwoFullLayers` (E3a): L = 2, the word FF, no recurrence.
* `RecurrenceAfterTwo` (E3a, trailing): L = 2, FF and any recurrent layers after it.
* `ThreeFunctions` (E3b): L = 3, two full layers, recurrent layers before, between and after them.
* `BitsAQuery`: any number of full layers, the simplest argument there is: a query brings b bits a layer. Where an accumulator
  is shorter than log2 N / f this is the strongest of all; a fair table shows it beside the others.

Each is an inequality `gain > cost` whose `holds` is exact. E3a's minima are searched over all of its parameters; the tables for
the others hold valid instances that nobody has proved minimal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, log2

import numpy as np

from hybridseq.bounds.composition_bounds import GUARD, Inequality, Smallest, TwoFunctions, at_least, new_values, union_size
from hybridseq.bounds.logarithms import ceil_scaled

# the simplest bound ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BitsAQuery(Inequality):
    """If  S + f b n_l < n_l log2 N_l,  l = L - 1,  the model errs: a query at w learns at most f b bits about z_L.

    m; ns = (n_1, ..., n_l): the sizes. full_layers: f. accumulator: b. state: S, all gaps together.

    Proof. Fix z_{L-1}, ..., z_0 and all of w but w_l. z_L reaches w through the states after z_0 (S bits) and, for each of the
    n_l values of w_l, through the accumulator of each full layer after z_0 for the query of w (b bits; the query of a layer is a
    function of what the layers below gave). So some |A_L| 2^-(S + f b n_l) functions z_L give the same n_l answers.

    Raises ValueError unless m >= 2 and there is one n_l >= 1 or more.

    >>> bound = BitsAQuery(2, (1, 32_785), full_layers=2, accumulator=8, state=24)
    >>> bound.length, bound.holds
    (65576, True)
    """

    m: int
    ns: tuple[int, ...]
    full_layers: int
    accumulator: int
    state: int

    def __post_init__(self):
        if not self.ns:
            raise ValueError("ns=(): the last function needs a factor n_l; for L = 1 see table_bits")
        at_least(m=(self.m, 2), full_layers=(self.full_layers, 0), accumulator=(self.accumulator, 0), state=(self.state, 0))
        at_least(**{f"n_{i + 1}": (n, 1) for i, n in enumerate(self.ns)})

    @property
    def domains(self) -> tuple[int, ...]:
        """N_0, ..., N_{L-1}."""
        sizes = [int(self.m)]
        for n in self.ns:
            sizes.append(sizes[-1] * int(n))
        return tuple(sizes)

    @property
    def length(self) -> int:
        return 2 + sum(self.domains)

    def terms(self) -> list[tuple[int, int]]:
        return [(self.ns[-1], self.domains[-1])]

    def constant(self) -> int:
        return self.state + self.full_layers * self.accumulator * self.ns[-1]


def smallest_bits_a_query(functions: int, full_layers: int, accumulator: int, state: int) -> BitsAQuery:
    """The shortest prompt with m = 2, all n_l = 1 but the last, at which `BitsAQuery` holds. Exact bisection.

    functions: L >= 2.

    >>> smallest_bits_a_query(functions=3, full_layers=2, accumulator=8, state=24).length
    65576
    """
    at_least(functions=(functions, 2))
    make = lambda n: BitsAQuery(2, (1,) * (functions - 2) + (n,), full_layers, accumulator, state)  # noqa: E731
    most = 1
    while not make(most).holds:
        most *= 2
    least = most // 2 + 1
    while least < most:  # n (log2 2n - f b) is convex in n and not above 0 at 0: it exceeds S >= 0 from some n on
        middle = (least + most) // 2
        least, most = (least, middle) if make(middle).holds else (middle + 1, most)
    return make(most)


# E3a ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TwoFullLayers(TwoFunctions):
    """Lemma E3a, an instance: L = 2, two full layers, no recurrence.

    Choose q <= n_1 values of w, s arguments of z_1 and for each of them r values, s r <= m. X = max(s, ceil(s r 2^(-b q/s))).

        If  b (m + s r + q + q s) < q X log2(m n_1),  the model errs on some input of (m; n_1).

    m, n_1: sizes. starts: s. values: r. accumulator: b. queries: q (default n_1).

    Raises ValueError unless m >= 2, n_1 >= 1, s, r >= 1, s r <= m, 1 <= q <= n_1 and b >= 1.

    >>> bound = TwoFullLayers(464, 5, starts=116, values=4, accumulator=12)
    >>> bound.length, bound.pairs, bound.holds
    (2786, 325, True)
    """

    m: int
    n_1: int
    starts: int
    values: int
    accumulator: int
    queries: int = 0
    pairs: int = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "queries", self.queries or self.n_1)
        _check_starts(self)
        share = Fraction(self.accumulator * self.queries, self.starts)
        object.__setattr__(self, "pairs", max(self.starts, ceil_scaled(self.starts * self.values, share)))

    @property
    def arguments(self) -> int:
        """q X."""
        return self.queries * self.pairs

    def constant(self) -> int:
        """Bits of z_2 that are fixed: F for the tokens of z_1, for z_0 and w; F' for w, once for each z_0."""
        s, r, q = self.starts, self.values, self.queries
        return self.accumulator * (self.m + s * r + q + q * s)


def smallest_two_full_layers(accumulator: int, limit: int = 1 << 16) -> Smallest | None:
    """The shortest prompt at which E3a holds, over all (m, n_1, q, s, r) with n <= limit; None if there is none.

    For given (q, s, r, m) more n_1 than needed only lengthens the prompt. First the family n_1 = q, m = s r gives an upper bound;
    then every (q, m, s) below it is tested with the best r relaxed to a real number and X to s r 2^(-bq/s) + 1, and what survives
    is tried in full. Cost: about n^2 / q_0^2 with q_0 = b / log2 n (b = 12: 3 seconds; b = 24: 15 seconds).

    >>> smallest_two_full_layers(4).bound.length
    57
    """
    at_least(accumulator=(accumulator, 1), limit=(limit, 5))
    best = _shortest_in_family(accumulator, limit)
    top = limit if best is None else best.length
    for q in range(1, (top - 2) // 2):
        for bound in _survivors(accumulator, q, top):
            if bound.holds and (best is None or bound.length < best.length):
                best, top = bound, bound.length
    return None if best is None else Smallest(best, True)


def _shortest_in_family(b: int, limit: int) -> TwoFullLayers | None:
    """The shortest instance with n_1 = q and m = s r, or None."""
    best = None
    for q in range(1, (limit - 2) // 2):
        for r in range(1, (limit - 2) // (1 + q) + 1):
            s = np.arange(max(1, ceil(2 / r)), (limit - 2) // (1 + q) // r + 1, dtype=np.float64)
            if len(s) == 0 or q * log2(limit) <= b:  # X <= m, so q log2 N_1 > b is needed
                break
            X = np.maximum(s, np.ceil(s * r * np.exp2(-b * q / s) * (1 + 1e-12)))
            gain, cost = q * X * np.log2(s * r * q), b * (2 * s * r + q + q * s)
            for i in np.flatnonzero(gain - cost > -GUARD * cost):
                bound = TwoFullLayers(int(s[i]) * r, q, int(s[i]), r, b)
                if bound.holds:
                    best, limit = bound, bound.length - 1
                    break
    return best


def _survivors(b: int, q: int, top: int):
    """Instances with q queries and n < top that floats do not rule out."""
    most_m = (top - 3) // (1 + q)
    if most_m < 2 or q * log2(top) * (1 + GUARD) < b:  # X <= m, so q log2 N_1 > b is needed
        return
    rows = max(1, (1 << 20) // most_m)
    ms = np.arange(2, most_m + 1, dtype=np.float64)
    logs = np.log2(ms * np.maximum(1, np.floor((top - 3) / ms) - 1))
    for first in range(1, most_m + 1, rows):
        s = np.arange(first, min(first + rows, most_m + 1), dtype=np.float64)[:, None]
        density = np.exp2(-b * q / s)
        may = np.zeros((len(s), len(ms)), dtype=bool)
        for r in (np.ones_like(ms)[None, :], ms[None, :] / s):  # gain - cost is linear in r, so an end is best
            X = np.minimum(np.maximum(s, s * r * density + 1), ms)
            may |= q * X * logs - b * (ms + s * r + q + q * s) > -GUARD * b * ms
        for i, j in zip(*np.nonzero(may & (ms[None, :] >= s)), strict=True):
            yield from _with_some_values(b, q, int(s[i, 0]), int(ms[j]), top)


def _with_some_values(b: int, q: int, s: int, m: int, top: int):
    """All r that may work for these q, s, m, each with the least n_1 that does."""
    r = np.arange(1, m // s + 1, dtype=np.float64)
    X = np.maximum(s, np.ceil(s * r * 2.0 ** (-b * q / s) * (1 + 1e-12)))
    exponent = b * (m + s * r + q + q * s) / (q * X)
    for i in np.flatnonzero(exponent < log2(top) + 1):
        n_1 = max(q, ceil(2.0 ** exponent[i] / m * (1 - GUARD)))
        while 2 + m * (1 + n_1) < top:
            bound = TwoFullLayers(m, n_1, s, int(r[i]), b, q)
            if bound.holds:
                yield bound
                break
            if bound.slack < -GUARD * bound.constant():
                break
            n_1 += 1


# E3a with recurrence after it ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecurrenceAfterTwo(TwoFunctions):
    """E3a with recurrent layers after the last full layer, an instance: L = 2, the word FFR*.

    Only k functions z_1 are used; they cover X_k pairs (a, z_1(a)). If

        b (m - s + min(s r, k s) + s + q + q s + k s) + k S_post < q X_k log2(m n_1),  the model errs on (m; n_1).

    functions: k. after: S_post. The others as in `TwoFullLayers`.

    >>> bound = RecurrenceAfterTwo(2060, 13, starts=412, values=5, functions=9, accumulator=16, after=16)
    >>> bound.length, bound.pairs, bound.holds
    (28842, 1106, True)
    """

    m: int
    n_1: int
    starts: int
    values: int
    functions: int
    accumulator: int
    after: int
    queries: int = 0
    pairs: int = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "queries", self.queries or self.n_1)
        _check_starts(self)
        at_least(functions=(self.functions, 1), after=(self.after, 0))
        bits = self.accumulator * self.queries
        object.__setattr__(self, "pairs", covered_pairs(self.starts, self.values, bits, self.functions))

    @property
    def arguments(self) -> int:
        """q X."""
        return self.queries * self.pairs

    def constant(self) -> int:
        """Bits of z_2: F at z_1's tokens, z_0 and w; F' at w (once for each z_0) and at z_0; the state after each z_1."""
        m, s, r, k, q = self.m, self.starts, self.values, self.functions, self.queries
        tokens = m - s + min(s * r, k * s) + s + q
        return self.accumulator * (tokens + q * s + k * s) + k * self.after


def covered_pairs(starts: int, values: int, bits: int, members: int) -> int:
    """X_k: pairs (a, z(a)) that k members of any class of density 2^-bits in V_1 x ... x V_s can cover; V_a disjoint, |V_a| = r.

    With u pairs covered a uniform random member has at argument a a new pair with probability 1 - u_a / r, independently, on
    average 1 - u / (s r) = rho. At most j new ones then have probability <= 2^(-s KL(j/s || rho)), for j/s < rho (Chernoff and
    Hoeffding: unequal probabilities are no worse than their mean). The first member always covers s.

    >>> covered_pairs(10, 4, 8, 1), covered_pairs(10, 1, 8, 3), covered_pairs(100, 4, 60, 3)
    (10, 10, 155)
    """
    at_least(starts=(starts, 1), values=(values, 1), bits=(bits, 0), members=(members, 1))
    covered, pairs = 0, starts * values
    for _ in range(members):
        new = new_values(pairs - covered, pairs, starts, Fraction(bits)) if covered < pairs else 0
        if new == 0:
            break
        covered += new
    return covered


# E3b ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ThreeFunctions(Inequality):
    """Lemma E3b, an instance: L = 3, two full layers, recurrent layers in all three gaps (S_0, S_1, S_2 bits).

    With N_1 = m n_1, N_2 = N_1 n_2, q_i = n_i,

        X_1 = U(m, s, S_0 s/m, k_1),   t = q_1 X_1,   Q = k_1 m + s + s q_1 q_2,   x_2 = U(N_1, t, S_0 + S_1 + b Q, k_2).

        If  S_0 + S_1 + k_2 t log2 N_1 + b (Q + k_2 N_1 + k_1 s + k_1 s q_1 q_2) + k_1 k_2 S_2 < q_2 x_2 log2 N_2,

    the model errs on some input of (m; n_1, n_2).

    The state of the middle gap after z_2 is not paid for: once the first layer's accumulators after z_3 are fixed for the tokens
    of the chosen functions z_2, this state is a function of z_2, and the choice made it the same for all of them.

    first_functions: k_1 functions z_1. starts: s arguments for z_0. second_functions: k_2 functions z_2. gaps: (S_0, S_1, S_2).

    >>> bound = ThreeFunctions(6843, 645120, 26, 1164, 1, 5, accumulator=20, gaps=(20, 20, 20))
    >>> f"{bound.length:.3g}", bound.holds
    ('1.19e+11', True)
    """

    m: int
    n_1: int
    n_2: int
    first_functions: int
    starts: int
    second_functions: int
    accumulator: int
    gaps: tuple[int, int, int]
    x_1: int = field(init=False)
    x_2: int = field(init=False)

    def __post_init__(self):
        at_least(m=(self.m, 2), n_1=(self.n_1, 1), n_2=(self.n_2, 1), starts=(self.starts, 1), accumulator=(self.accumulator, 0))
        at_least(first_functions=(self.first_functions, 1), second_functions=(self.second_functions, 1))
        at_least(**{f"gaps[{i}]": (bits, 0) for i, bits in enumerate(self.gaps)})
        if len(self.gaps) != 3 or self.starts > self.m:
            raise ValueError(f"gaps={self.gaps}, starts={self.starts}: needs three gaps and at most m = {self.m} starts")
        x_1 = union_size(self.m, self.starts, Fraction(self.gaps[0] * self.starts, self.m), self.first_functions)
        object.__setattr__(self, "x_1", x_1)
        bits = self.gaps[0] + self.gaps[1] + self.accumulator * self.first_queries
        x_2 = union_size(self.m * self.n_1, self.n_1 * x_1, bits, self.second_functions) if x_1 else 0
        object.__setattr__(self, "x_2", x_2)

    @property
    def first_queries(self) -> int:
        """Q: queries of the first full layer at tokens of z_1, at z_0 and at w."""
        return self.first_functions * self.m + self.starts + self.starts * self.n_1 * self.n_2

    @property
    def length(self) -> int:
        """n = 2 + m + N_1 + N_2, tokens in the prompt."""
        return 2 + self.m * (1 + self.n_1 * (1 + self.n_2))

    def terms(self) -> list[tuple[int, int]]:
        N_1 = self.m * self.n_1
        chosen = self.second_functions * self.n_1 * self.x_1
        return [(self.n_2 * self.x_2, N_1 * self.n_2), (-chosen, N_1)]

    def constant(self) -> int:
        """Bits of z_3 that are fixed, without the k_2 t log2 N_1 of the choice of the functions z_2."""
        k_1, k_2, s, w = self.first_functions, self.second_functions, self.starts, self.n_1 * self.n_2
        queries = self.first_queries + k_2 * self.m * self.n_1 + k_1 * s + k_1 * s * w
        return self.gaps[0] + self.gaps[1] + self.accumulator * queries + k_1 * k_2 * self.gaps[2]


# tables ------------------------------------------------------------------------------------------------------------------

TWO_LAYERS_TABLE = {
    4: (5, 10, 5, 1),
    8: (14, 37, 14, 1),
    10: (26, 64, 26, 1),
    12: (464, 5, 116, 4),
    16: (895, 6, 179, 5),
    24: (2576, 7, 368, 7),
    32: (4878, 9, 542, 9),
}
"""E3a, b -> (m, n_1, s, r) with q = n_1: the shortest prompts."""

TRAILING_TABLE = (
    (15, 39, 15, 1, 1, 8, 8),
    (2060, 13, 412, 5, 9, 16, 16),
    (2075, 13, 415, 5, 9, 16, 64),
    (11943, 21, 1327, 9, 18, 32, 160),
)
"""E3a with trailing recurrence, arguments of `RecurrenceAfterTwo`: valid, the shortest with q = n_1, m = s r on a grid."""

THREE_FUNCTIONS_TABLE = (
    (6843, 645120, 26, 1164, 1, 5, 20, (20, 20, 20)),
    (10235, 1218560, 30, 1689, 1, 5, 24, (24, 24, 24)),
    (20075, 3121152, 41, 3137, 1, 6, 32, (64, 64, 64)),
    (115439, 42663936, 80, 14284, 1, 9, 64, (64, 64, 64)),
    (2889553538, 309449, 19, 988, 491100, 5, 16, (2**31, 2**31, 2**31)),
)
"""E3b, arguments of `ThreeFunctions`: valid, not proved minimal. For the last one `BitsAQuery` needs 1.03e10 tokens only."""


def _check_starts(bound: TwoFullLayers | RecurrenceAfterTwo) -> None:
    at_least(m=(bound.m, 2), n_1=(bound.n_1, 1), starts=(bound.starts, 1), values=(bound.values, 1))
    at_least(accumulator=(bound.accumulator, 1), queries=(bound.queries, 1))
    if bound.queries > bound.n_1 or bound.starts * bound.values > bound.m:
        raise ValueError(
            f"queries={bound.queries}, starts * values={bound.starts * bound.values}: at most n_1 = {bound.n_1} values of w and "
            f"m = {bound.m} values of z_1 exist"
        )
