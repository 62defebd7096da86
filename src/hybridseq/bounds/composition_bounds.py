"""Elementary lower bounds for composing functions with at most one full layer: E1, E1', E2, E2' (beyond paper C).

The task: z_l maps [N_{l-1}] to itself, N_l = m n_1 ... n_l. The prompt  z_L | ... | z_1 | z_0 | w  has  n = 2 + sum N_l  tokens;
the answer is i_L, with  i_1 = z_1(z_0), i_{l+1} = z_{l+1}(w_l N_{l-1} + i_l).

The model: a word over F and R. The recurrent layers of a *gap* (before, between, after the full layers) are one machine with S
bits. In a full layer every position forms a query from its own input, and one accumulator of b bits (all heads together) runs
over the positions 1..i, updated by any function of itself, the input there and the query; the output depends on the input at i
and the accumulator. Exact sums are of this form, and so is online softmax with any rounding.

Each lemma is an inequality `gain > cost` between integers and logarithms of integers. An instance (`OneFullLayer`,
`SeveralStarts`) knows its numbers and says with `holds`, exactly, whether every model with these budgets errs on some input of
that size. Searches propose in floats and accept only what `holds` confirms.

Also here: what the paper's general statement needs (`sufficient_length`, `composition_instance`), as logarithms.

Source: E1 to E2' are of this project. The sizes of `composition_instance` are those of Chen, Peng and Wu (2024); the inequality
behind `sufficient_length` is Theorem 1.1 of paper C.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, log2

import numpy as np

from hybridseq.bounds.logarithms import as_float, ceil_scaled, exceeds, log_sum
from hybridseq.evidence import Check

GUARD = 1e-9
"""Relative slack that a float may be wrong by before a candidate is dropped; exact arithmetic decides on the rest."""


class Inequality(ABC):
    """gain > cost, decided exactly. Subclasses give the terms c log2 b of the difference and its constant part."""

    @abstractmethod
    def terms(self) -> list[tuple[int, int]]:
        """(c_i, b_i): the logarithms in gain - cost."""

    @abstractmethod
    def constant(self) -> int | Fraction:
        """The rational part of the cost."""

    @property
    def holds(self) -> bool:
        """Whether gain > cost, so that every model with these budgets errs. Exact."""
        return exceeds(self.terms(), self.constant())

    @property
    def slack(self) -> float:
        """gain - cost in bits, as a float."""
        return as_float(self.terms(), self.constant())


class TwoFunctions(Inequality):
    """L = 2 on (m; n_1): correctness would fix so many arguments of z_2, each worth log2(m n_1) bits. Needs m and n_1."""

    @property
    @abstractmethod
    def arguments(self) -> int:
        """How many arguments of z_2 a model that never errs would have to agree on."""

    @property
    def length(self) -> int:
        """n = 2 + m + m n_1, tokens in the prompt."""
        return 2 + self.m * (1 + self.n_1)

    def terms(self) -> list[tuple[int, int]]:
        return [(self.arguments, self.m * self.n_1)]


# one function: E1, E1' ---------------------------------------------------------------------------------------------------


def table_bits(m: int) -> int:
    """E1: bits of state that tell all m^m functions [m] -> [m] apart, ceil(m log2 m). A table has as many, so this is tight.

    Also E1': with one full layer and no recurrence the query at w is the same on all inputs, so its accumulator after z_1 must
    tell all m^m functions apart.

    >>> table_bits(3), table_bits(4)
    (5, 8)
    """
    at_least(m=(m, 1))
    return (m**m - 1).bit_length()


def smallest_table(bits: int) -> int:
    """The smallest m with m log2 m > bits: E1 then refuses any model with so many bits of state. Exact.

    >>> [smallest_table(S) for S in (100, 1000, 10_000, 100_000)]
    [23, 141, 1003, 7741]
    """
    at_least(bits=(bits, 0))
    least, most = 1, 2 + bits
    while least < most:
        middle = (least + most) // 2
        if exceeds([(middle, middle)], bits):
            most = middle
        else:
            least = middle + 1
    return least


# budgets -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Budget:
    """What a model may carry: bits of recurrent state before and after its full layer, bits of one query's accumulator.

    Raises ValueError for negative or fractional numbers of bits.
    """

    before: int
    after: int
    accumulator: int

    def __post_init__(self):
        at_least(before=(self.before, 0), after=(self.after, 0), accumulator=(self.accumulator, 0))

    @classmethod
    def of_layers(cls, bits: int, heads: int = 1, dim: int = 1, layers_before: int = 0, layers_after: int = 0) -> Budget:
        """H (d^2 + d) p bits a recurrent layer and H (d + 1) p bits an accumulator, every number of p = `bits` bits.

        >>> Budget.of_layers(8, dim=8, layers_before=4096, layers_after=4096)
        Budget(before=2359296, after=2359296, accumulator=72)
        """
        at_least(bits=(bits, 1), heads=(heads, 1), dim=(dim, 1))
        at_least(layers_before=(layers_before, 0), layers_after=(layers_after, 0))
        layer = heads * (dim**2 + dim) * bits
        return cls(layers_before * layer, layers_after * layer, heads * (dim + 1) * bits)

    def at(self, length: int) -> Budget:
        """Itself: these budgets do not depend on the length of the prompt."""
        return self


@dataclass(frozen=True)
class IntegerBudget:
    """The budget of an integer model (paper C's accounting): accumulators grow with the logarithm of the prompt.

    pA = g + p + ceil(log2 n) + 1 bits an accumulator number; a full layer hands over  b = H (d pA + pA - 1)  bits a query, a
    recurrent layer  H (d^2 + d) pA  bits. p: bits of a stored number; g: range of the exponent; layers_before, layers_after:
    recurrent layers on either side of the full layer.

    >>> IntegerBudget(p=1, g=0).at(20)
    Budget(before=0, after=0, accumulator=13)
    """

    p: int
    g: int
    heads: int = 1
    dim: int = 1
    layers_before: int = 0
    layers_after: int = 0

    def __post_init__(self):
        at_least(p=(self.p, 1), g=(self.g, 0), heads=(self.heads, 1), dim=(self.dim, 1))
        at_least(layers_before=(self.layers_before, 0), layers_after=(self.layers_after, 0))

    def at(self, length: int) -> Budget:
        """The bits at a prompt of `length` tokens."""
        width = self.g + self.p + (length - 1).bit_length() + 1
        layer = self.heads * (self.dim**2 + self.dim) * width
        return Budget(self.layers_before * layer, self.layers_after * layer, self.heads * (self.dim * width + width - 1))


# E2 ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneFullLayer(TwoFunctions):
    """Lemma E2, an instance: L = 2, one full layer, recurrent layers before and after it.

    If  S_pre + x_1 S_post + b (1 + n_1) < n_1 x_1 log2 N_1,  N_1 = m n_1, for some 1 <= x_1 <= ceil(m 2^(-S_pre/m)),  then every
    model with these budgets errs on some input of (m; n_1).

    x_1: None takes whichever end of the range has more slack (the inequality is linear in x_1).

    Raises ValueError unless m >= 2, n_1 >= 1 and x_1 lies in its range.

    >>> bound = OneFullLayer(m=10, n_1=3, budget=Budget(8, 8, 8))
    >>> bound.length, bound.x_1, bound.holds, round(bound.slack, 3)
    (42, 6, True, 0.324)
    """

    m: int
    n_1: int
    budget: Budget
    x_1: int | None = None

    def __post_init__(self):
        at_least(m=(self.m, 2), n_1=(self.n_1, 1))
        most = self.most_values
        if self.x_1 is None:
            worth = exceeds([(self.n_1, self.m * self.n_1)], self.budget.after)
            object.__setattr__(self, "x_1", most if worth else 1)
        if not 1 <= self.x_1 <= most:
            raise ValueError(f"x_1={self.x_1}: must be from 1 to ceil(m 2^(-S_pre/m)) = {most}")

    @property
    def most_values(self) -> int:
        """ceil(m 2^(-S_pre/m)): so many values z_1(a) occur at some argument a among the functions z_1 with one pre-state."""
        return ceil_scaled(self.m, Fraction(self.budget.before, self.m))

    @property
    def arguments(self) -> int:
        """n_1 x_1."""
        return self.n_1 * self.x_1

    def constant(self) -> int:
        """S_pre + x_1 S_post + b (1 + n_1): bits of z_2 that are fixed."""
        return self.budget.before + self.x_1 * self.budget.after + self.budget.accumulator * (1 + self.n_1)


@dataclass(frozen=True)
class Smallest:
    """The outcome of a search: the instance, and whether no shorter prompt satisfies the inequality (False on a grid)."""

    bound: Inequality
    proved_minimal: bool

    @property
    def row(self) -> tuple[int, ...]:
        """(n, m, n_1, x_1)."""
        return self.bound.length, self.bound.m, self.bound.n_1, self.bound.x_1


def smallest_one_full_layer(budget: Budget | IntegerBudget, limit: int = 1 << 22, grid: float | None = None) -> Smallest | None:
    """The shortest prompt at which Lemma E2 holds, over all (m, n_1) with n <= limit; None if there is none.

    For given m and x_1 the slack is a convex function of n_1 that is negative at 0, so it is positive exactly from some n_1 on:
    bisection finds it for all m at once (numpy). What floats propose, exact arithmetic confirms in order of n. An `IntegerBudget`
    is searched for each value of ceil(log2 n) by itself: budget and length then belong together.

    grid: None looks at every m; otherwise m runs over all integers up to 512 and over steps of the relative size `grid` above
    (valid, not proved minimal). Among equal n, the one with the smaller m. Cost without a grid: one pass over n / 2 numbers.

    Raises ValueError unless limit >= 4 (and at most 2^26 without a grid) and 0 < grid < 1.

    >>> smallest_one_full_layer(Budget(8, 8, 8)).row
    (42, 10, 3, 6)
    """
    at_least(limit=(limit, 4))
    if grid is None and limit > 1 << 26:
        raise ValueError(f"limit={limit}: above 2^26 pass grid=0.01 (m in steps of 1 %), which is valid but not proved minimal")
    if grid is not None and not 0 < grid < 1:
        raise ValueError(f"grid={grid!r}: a relative step between 0 and 1, or None")
    if isinstance(budget, Budget):
        ranges = [(4, limit)]
    else:  # lengths in (2^(e-1), 2^e] share ceil(log2 n)
        ranges = [(2 ** (e - 1) + 1, min(2**e, limit)) for e in range(2, (limit - 1).bit_length() + 1)]
    for low, high in ranges:
        found = _shortest_in(budget, low, high, grid or 0.01)
        if grid is None:  # what the grid found bounds the lengths that are still of interest
            found = _shortest_in(budget, low, high if found is None else found.length, None)
        if found is not None:
            return Smallest(found, grid is None)
    return None


def _shortest_in(budget: Budget | IntegerBudget, low: int, high: int, grid: float | None) -> OneFullLayer | None:
    """The shortest instance with low <= n <= high, or None; the bits of the budget must be the same in the whole range."""
    ms, bits = _lengths_of_z1((high - 2) // 2, grid), budget.at(high)
    cap = np.ceil(ms * np.exp2(-bits.before / ms) * (1 + 1e-12))
    queue: list[tuple[int, int, int]] = []
    for x in (np.ones_like(cap), cap):
        most = np.floor((high - 2) / ms) - 1
        worth = np.flatnonzero((most >= 1) & _may_hold(ms, most, x, bits))
        m, low_n1 = ms[worth], np.maximum(1, np.ceil((low - 2) / ms[worth]) - 1)
        least = np.maximum(_least_n1(m, most[worth], x[worth], bits), low_n1)
        length = 2 + m * (1 + least)
        keep = length <= high
        queue += zip(*(a[keep].astype(np.int64).tolist() for a in (length, m, least)), strict=True)
    heapq.heapify(queue)  # exact arithmetic decides, in order of n; what floats got wrong by one is put back
    while queue:
        length, m, n_1 = heapq.heappop(queue)
        bound = OneFullLayer(m, n_1, budget.at(length))
        if bound.holds:
            return bound
        if length + m <= high:
            heapq.heappush(queue, (length + m, m, n_1 + 1))
    return None


def _lengths_of_z1(most: int, grid: float | None) -> np.ndarray:
    """The m to look at, as floats."""
    if grid is None or most <= 512:
        return np.arange(2, most + 1, dtype=np.float64)
    steps = ceil(log2(most / 512) / log2(1 + grid))
    above = np.unique(np.round(512 * (1 + grid) ** np.arange(1, steps + 1)))
    return np.concatenate([np.arange(2, 513, dtype=np.float64), above[(above > 512) & (above <= most)]])


def _may_hold(m: np.ndarray, n_1: np.ndarray, x: np.ndarray, bits: Budget) -> np.ndarray:
    """Whether the slack is positive or so close to 0 that floats cannot tell."""
    gain = n_1 * x * np.log2(m * n_1)
    cost = bits.before + x * bits.after + bits.accumulator * (1 + n_1)
    return gain - cost > -GUARD * (gain + cost)


def _least_n1(m: np.ndarray, most: np.ndarray, x: np.ndarray, bits: Budget) -> np.ndarray:
    """For each m the least n_1 in 1..most that may hold, given that `most` does: bisection on an up-closed set."""
    low, high = np.ones_like(m), most
    while np.any(low < high):
        middle = np.floor((low + high) / 2)
        fine = _may_hold(m, middle, x, bits)
        low, high = np.where(fine, low, np.minimum(middle + 1, high)), np.where(fine, middle, high)
    return high


# E2': several z_0 --------------------------------------------------------------------------------------------------------


def union_size(values: int, places: int, bits: int | Fraction, members: int) -> int:
    """U(N, t, D, k): k members of any class of density 2^-D in [N]^t can be chosen whose values have a union of this size.

    One step. Let C be u of the values covered so far. Read a uniform random vector from left to right: whatever came before, the
    next value is neither in C nor a repetition with probability >= rho = (N - u - t) / N. So the probability of at most j such
    values is <= 2^(-t KL(j/t || rho)), for j/t < rho (Chernoff). Where this is below 2^-D, some member of the class has j + 1 of
    them or more; together with C these are u + j + 1 covered values. For t = 1 the class has ceil(N 2^-D) values itself.

    Every step is confirmed with ball arithmetic; the j is the largest that floats find. D = 0 is the whole of [N]^t.

    Raises ValueError unless N, t, k >= 1 and D >= 0.

    >>> union_size(10, 1, Fraction(8, 10), 20), union_size(1000, 10, 0, 3), union_size(1514, 97, Fraction(97000, 1514), 11)
    (6, 30, 394)
    """
    at_least(values=(values, 1), places=(places, 1), members=(members, 1))
    bits = Fraction(bits)
    if bits < 0:
        raise ValueError(f"bits={bits}: a density 2^-D needs D >= 0")
    if places == 1:
        return min(members, ceil_scaled(values, bits))
    covered = 0
    for _ in range(members):
        new = min(places, values - covered) if bits == 0 else new_values(values - covered - places, values, places, bits)
        if new == 0:
            break
        covered += new
    return covered


def new_values(good: int, values: int, places: int, bits: Fraction) -> int:
    """The largest j + 1 with places * KL(j / places || good / values) > bits and j / places < good / values; 0 if none."""
    if good <= 0:
        return 0
    rho, target = good / values, float(bits) / places
    low, high = -1, min(places - 1, ceil(places * good / values) - 1)
    if good >= values:
        return places
    while low < high:  # the divergence falls as j grows towards rho
        middle = (low + high + 1) // 2
        if _divergence(middle / places, rho) > target:
            low = middle
        else:
            high = middle - 1
    while low >= 0 and not _beats(low, good, values, places, bits):
        low -= 1
    return low + 1


def _divergence(a: float, rho: float) -> float:
    """KL(a || rho) in bits, 0 <= a < 1, 0 < rho < 1."""
    return (a * log2(a / rho) if a > 0 else 0.0) + (1 - a) * log2((1 - a) / (1 - rho))


def _beats(j: int, good: int, values: int, places: int, bits: Fraction) -> bool:
    """places * KL(j / places || good / values) > bits, in ball arithmetic of 192 bits; False where the ball contains zero."""
    if j * values >= good * places:
        return False
    rest = places - j
    terms = [(rest, rest), (places, values), (-places, places), (-rest, values - good)]
    if j:
        terms += [(j, j), (-j, good)]
    return bool(log_sum(terms, bits, 192) > 0)


@dataclass(frozen=True)
class SeveralStarts(TwoFunctions):
    """Lemma E2', an instance: as E2, with s arguments for z_0 and k functions for z_1. E2 is s = 1.

    With x = U(m, s, S_pre s / m, k):  if  S_pre + k S_post + s b (1 + n_1) < n_1 x log2(m n_1),  the model errs on (m; n_1).

    Raises ValueError unless m >= 2, n_1 >= 1, 1 <= s <= m and k >= 1.

    >>> bound = SeveralStarts(1514, 4, starts=97, functions=11, budget=Budget(1000, 1000, 16))
    >>> bound.length, bound.values, bound.holds
    (7572, 394, True)
    """

    m: int
    n_1: int
    starts: int
    functions: int
    budget: Budget
    values: int = field(init=False)

    def __post_init__(self):
        at_least(m=(self.m, 2), n_1=(self.n_1, 1), starts=(self.starts, 1), functions=(self.functions, 1))
        if self.starts > self.m:
            raise ValueError(f"starts={self.starts}: z_0 has m = {self.m} values")
        share = Fraction(self.budget.before * self.starts, self.m)
        object.__setattr__(self, "values", union_size(self.m, self.starts, share, self.functions))

    @property
    def arguments(self) -> int:
        """n_1 x."""
        return self.n_1 * self.values

    def constant(self) -> int:
        """S_pre + k S_post + s b (1 + n_1): bits of z_2 that are fixed."""
        b = self.budget
        return b.before + self.functions * b.after + self.starts * b.accumulator * (1 + self.n_1)


# the general statement ---------------------------------------------------------------------------------------------------


def sufficient_length(layers: int, size: int) -> float:
    """log2 of the length from which Theorem 1.1 of paper C speaks: Hdp <= n^(2^-(4L+2)) means log2 n >= 2^(4L+2) log2 Hdp.

    layers: L >= 1; size: Hdp >= 1.

    >>> sufficient_length(2, 64), sufficient_length(3, 64), sufficient_length(2, 65536)
    (6144.0, 98304.0, 16384.0)
    """
    at_least(layers=(layers, 1), size=(size, 1))
    return log2(size) * 2 ** (4 * layers + 2)


def largest_size(layers: int, length: int) -> float:
    """n^(2^-(4L+2)): the largest Hdp of which Theorem 1.1 speaks at length n (below 1 head dimension and bit it says nothing).

    >>> round(largest_size(2, 1 << 20), 4), round(largest_size(3, 1 << 20), 4)
    (1.0136, 1.0008)
    """
    at_least(layers=(layers, 1), length=(length, 1))
    return 2 ** (log2(length) / 2 ** (4 * layers + 2))


@dataclass(frozen=True)
class CompositionInstance:
    """log2 of the sizes in the lower bound for L full layers (Chen, Peng and Wu 2024, as read through notes on it).

    K = (HdpL)^8 8^(2 L^2),  m = K^(sum_{l<L} 8^l + 1),  n_l = K^(4 8^(L-l-1)).  domains[l] = log2 N_l.
    """

    K: float
    m: float
    ns: tuple[float, ...]
    domains: tuple[float, ...]


def composition_instance(layers: int, size: int) -> CompositionInstance:
    """The instance for L layers and Hdp = size, in logarithms.

    >>> composition_instance(2, 64)
    CompositionInstance(K=80.0, m=800.0, ns=(320.0,), domains=(800.0, 1120.0))
    """
    at_least(layers=(layers, 1), size=(size, 1))
    K = 8 * log2(size * layers) + 6 * layers**2
    m = K * (sum(8**l for l in range(layers)) + 1)
    ns = tuple(K * 4 * 8 ** (layers - l - 1) for l in range(1, layers))
    return CompositionInstance(K, m, ns, tuple(m + sum(ns[:l]) for l in range(layers)))


# checks ------------------------------------------------------------------------------------------------------------------


def check_bounds(bounds, name: str) -> Check:
    """Every listed instance holds, exactly; the value is the smallest slack in bits."""
    bounds = list(bounds)
    failed = next((b for b in bounds if not b.holds), None)
    return Check.true(
        name,
        failed is None,
        f"{len(bounds)} instances, each inequality decided exactly",
        cases=len(bounds),
        counterexample=None if failed is None else {"instance": str(failed), "slack": failed.slack},
        value={"smallest slack in bits": min(b.slack for b in bounds)},
    )


def solving_budgets(m: int, n_1: int) -> dict[str, Budget]:
    """Budgets with which some model solves (m; n_1), word by word: no bound may refuse them.

    R: a state that holds z_2, z_1 and z_0, before or after a full layer that does nothing. RF: the state holds z_1 and then i_1,
    which w reads; its query fetches one value and a flag. F: the query at w collects the m values z_2(w, .), then composes.
    """
    at_least(m=(m, 2), n_1=(n_1, 1))
    value, start = (m * n_1 - 1).bit_length(), (m - 1).bit_length()
    both = table_bits(m * n_1) + table_bits(m) + start
    return {
        "R, before": Budget(both, 0, 0),
        "R, after": Budget(0, both, 0),
        "RF": Budget(table_bits(m) + start, 0, value + 1),
        "F": Budget(0, 0, 2 * m * value + start),
    }


def check_against_upper_side(most_m: int = 24, most_n1: int = 24, bound=OneFullLayer) -> Check:
    """E2 refuses no budget of `solving_budgets`. bound: (m, n_1, budget) -> Inequality, so that a wrong one can be tried."""
    found, cases = None, 0
    for m in range(2, most_m + 1):
        for n_1 in range(1, most_n1 + 1):
            for word, budget in solving_budgets(m, n_1).items():
                cases += 1
                if found is None and bound(m, n_1, budget).holds:
                    found = {"m": m, "n_1": n_1, "word": word, "budget": str(budget)}
    return Check.true(
        "no budget of a model that solves the task is refused",
        found is None,
        f"four solvers, 2 <= m <= {most_m}, 1 <= n_1 <= {most_n1}",
        cases=cases,
        counterexample=found,
    )


def at_least(**numbers) -> None:
    for name, (value, least) in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name}={value!r}: must be an integer >= {least}")
