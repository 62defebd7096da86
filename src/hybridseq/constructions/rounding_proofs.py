"""Machine proofs, for every s >= 2 at once, of what rounding does to the delta rule (paper A, Lemma 5.2; chapter 4).

Why all s can be treated together. The state is a small multiple of delta = 2^-s, the gates and the key entries are real numbers
of order one, and every product of the update has exactly one factor of each kind. So [a x]_s, in units of delta, is the integer
nearest to a times an integer: s is gone. It is left in two places only, the largest code M = 2^(2s) - 1 >= 15, and
kappa = [1/sqrt 2]_s. Both become unknowns: M any integer >= 15, kappa any real number in an interval; a separate obligation
shows that kappa_s lies there.

`SymbolicCodes` is an arithmetic whose numbers are terms of the solver z3. The delta rule of `hybridseq.mixers` runs in it
unchanged, so what is proved is about the very code that the book runs. Each function below returns an `Obligation`: cases, each
with premises and a goal. A case is proved when the solver answers `unsat` to "the premises, and not the goal"; the questions
themselves are available as SMT-LIB text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import z3
from z3.z3util import get_vars

from hybridseq.arithmetic import FixedPoint
from hybridseq.arithmetic.rounding import check_tie_rule
from hybridseq.constructions.parity_cell import (
    NINE,
    P0,
    P1,
    SCHEMES,
    STATES,
    THREE_QUARTERS,
    ParityCell,
    Update,
    check_transitions,
    update_inputs,
)  # fmt: skip
from hybridseq.constructions.reflection import check_swaps, transposition
from hybridseq.evidence import Check
from hybridseq.mixers.delta_rule import DeltaInputs, DeltaRule

WINDOW = 4
"""A product of kappa and a code outside -WINDOW..WINDOW is left arbitrary, which can lose a proof but never fake one."""
SOLVER_SECONDS = 60
KAPPA, LARGEST = z3.Real("kappa"), z3.Int("M")
"""The two unknowns: the key entry, and the largest code."""


# solver terms as an arithmetic ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Plain:
    """A number of order one: `factor`, or `factor` times the unknown kappa."""

    factor: Fraction
    times_kappa: bool = False


@dataclass(frozen=True)
class Multiple:
    """`count` times delta, as it is written into a symbolic array; Fraction-like enough for `update.value * delta`."""

    count: int

    def __rmul__(self, n: int) -> Multiple:
        return Multiple(n * self.count)


class SymbolicCodes:
    """F_s for an unknown s: states are integer terms (codes), gates and keys are `Plain` numbers of order one.

    Args:
        ties: one of the six tie rules, or "any": every tie may go either way, each time anew. What is proved under "any" holds
            under all six rules.

    Offers what the delta rule asks of an arithmetic (array, l2_norm, add, sub, mul, dot), on object arrays. Every rounded product
    gets a name of its own; the equations that define the names are in `definitions`. A product needs one `Plain` factor and one
    code; two factors of a kind raise ValueError, since s would not drop out.
    """

    name = "F_s, s unknown"
    exact = True
    delta = Multiple(1)

    def __init__(self, ties: str = "zero"):
        self.ties = ties if ties == "any" else check_tie_rule(ties)
        self.definitions: list[z3.BoolRef] = []

    # numbers
    def array(self, values) -> np.ndarray:
        raw = np.asarray(values, dtype=object)
        out = np.empty(raw.shape, dtype=object)
        for index, value in np.ndenumerate(raw):
            out[index] = z3.IntVal(value.count) if isinstance(value, Multiple) else Plain(Fraction(value))
        return out

    def codes(self, terms) -> np.ndarray:
        """An array of integer terms or Python ints as stored codes."""
        raw = np.asarray(terms, dtype=object)
        out = np.empty(raw.shape, dtype=object)
        for index, value in np.ndenumerate(raw):
            out[index] = z3.IntVal(value) if isinstance(value, int | np.integer) else value
        return out

    def l2_norm(self, x):
        """Keys with one entry ±1 stay; with two, each becomes ±kappa. Other directions are not needed and are refused."""
        flat = x.reshape(-1, x.shape[-1])
        return np.stack([self._unit_key([p.factor for p in row]) for row in flat]).reshape(x.shape)

    def _unit_key(self, entries):
        nonzero = [e for e in entries if e]
        if len(nonzero) not in (1, 2) or any(abs(e) != 1 for e in nonzero):
            raise ValueError(f"direction {entries}: a symbolic key needs one or two entries ±1, the others 0")
        out = np.empty(len(entries), dtype=object)
        out[:] = [Plain(e, len(nonzero) == 2 and e != 0) for e in entries]
        return out

    # operations
    def _named(self, term=None) -> z3.ArithRef:
        name = z3.Int(f"r{len(self.definitions)}")
        self.definitions.append(name == term if term is not None else z3.BoolVal(True))
        return name

    def _saturate(self, n):
        return z3.If(n > LARGEST, LARGEST, z3.If(n < -LARGEST, -LARGEST, n))

    def _round(self, r):
        if self.ties != "any":
            return self._saturate(nearest(r, self.ties))
        n = self._named()
        self.definitions.append(z3.And(2 * r - 1 <= 2 * n, 2 * n <= 2 * r + 1))
        return self._saturate(n)

    def _product(self, a, b):
        if isinstance(a, Plain) == isinstance(b, Plain):
            kind = "plain numbers" if isinstance(a, Plain) else "codes"
            raise ValueError(f"a product of two {kind} depends on s: use an order of evaluation whose products have one of each")
        plain, n = (a, b) if isinstance(a, Plain) else (b, a)
        if plain.factor == 0:
            return z3.IntVal(0)
        if not plain.times_kappa:
            return self._named(self._round(_real(plain.factor) * z3.ToReal(n)))
        if z3.is_int_value(n):
            return self._named(self._round(_real(plain.factor * n.as_long()) * KAPPA))
        if self.ties == "any":
            return self._named(self._round(_exact_multiple(plain, n)))
        term = self._named()  # arbitrary outside the window
        for j in range(-WINDOW, WINDOW + 1):
            term = z3.If(n == j, self._round(_real(plain.factor * j) * KAPPA), term)
        return self._named(term)

    def mul(self, a, b):
        return _elementwise(self._product, a, b)

    def add(self, a, b):
        return _elementwise(lambda x, y: self._named(self._saturate(x + y)), a, b)

    def sub(self, a, b):
        return _elementwise(lambda x, y: self._named(self._saturate(x - y)), a, b)

    def dot(self, x, y):
        """Rounded products, summed from left to right starting at 0, saturating at every step."""
        terms = self.mul(x, y)
        total = self.codes(np.zeros(terms.shape[:-1], dtype=int))
        for i in range(terms.shape[-1]):
            total = self.add(total, terms[..., i])
        return total

    def wide_dot(self, x, y, scale="raw"):
        """Exact products, summed exactly, rounded once. x: codes, y: plain numbers."""
        terms = _elementwise(lambda n, plain: _exact_multiple(plain, n), x, y)
        return _elementwise(lambda r, _: self._named(self._round(r)), terms.sum(axis=-1), 0)


def _elementwise(operation: Callable, a, b) -> np.ndarray:
    a, b = np.broadcast_arrays(np.asarray(a, dtype=object), np.asarray(b, dtype=object))
    out = np.empty(a.shape, dtype=object)
    for index in np.ndindex(a.shape):
        out[index] = operation(a[index], b[index])
    return out


def _exact_multiple(plain: Plain, n) -> z3.ArithRef:
    """plain times the code n as a real term; with kappa in it, arbitrary outside the window."""
    if plain.factor == 0 or not plain.times_kappa:
        return _real(plain.factor) * z3.ToReal(n)
    if z3.is_int_value(n):
        return _real(plain.factor * n.as_long()) * KAPPA
    exact = z3.FreshReal("outside")
    for j in range(-WINDOW, WINDOW + 1):
        exact = z3.If(n == j, _real(plain.factor * j) * KAPPA, exact)
    return exact


def _real(value: Fraction) -> z3.RatNumRef:
    value = Fraction(value)
    return z3.Q(value.numerator, value.denominator)


def nearest(r, ties: str):
    """The integer nearest to the real term r; ties by rule. ToInt is the floor."""
    below = z3.ToInt(r + z3.Q(1, 2))  # halves go up
    above = -z3.ToInt(z3.Q(1, 2) - r)  # halves go down
    if ties in ("up", "down"):
        return below if ties == "up" else above
    if ties in ("zero", "away"):
        inner, outer = (above, below) if ties == "zero" else (below, above)
        return z3.If(r >= 0, inner, outer)
    keep = below % 2 == (0 if ties == "even" else 1)
    return z3.If(keep, below, above)


# obligations ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    """One question to the solver: in every model of the premises the goal holds."""

    label: str
    premises: tuple[z3.BoolRef, ...]
    goal: z3.BoolRef


@dataclass(frozen=True)
class Obligation:
    """Something to prove, case by case.

    statement: what it says, in words. scope: over which values. replay: runs a counter-model (s, kappa) in `FixedPoint(s)`.
    """

    name: str
    statement: str
    scope: str
    cases: tuple[Case, ...]
    replay: Callable[[int, Fraction], Check] | None = field(default=None, repr=False)

    def smtlib(self) -> str:
        """The questions put to the solver as SMT-LIB text, for any solver of that standard: proved when every answer is unsat."""
        head = f"; {self.name}\n; {self.statement}\n; {self.scope}\n; proved when every answer is unsat\n"
        return head + "\n(reset)\n".join(_script(case) for case in self.cases)

    def prove(self) -> Check:
        """Ask the solver. Passed when in every case the negated goal is unsatisfiable and the premises alone are not.

        The second half matters: from premises that contradict each other everything follows.
        """
        for case in self.cases:
            if _solver(case).check() != z3.sat:
                return self._check(False, "vacuous", {"case": case.label, "reason": "the premises cannot be met"})
            solver = _solver(case, z3.Not(case.goal))
            answer = str(solver.check())
            if answer == "unknown":
                return self._check(False, answer, {"case": case.label, "reason": f"gave up: {solver.reason_unknown()}"})
            if answer == "sat":
                return self._check(False, answer, self.counter_model() or {"case": case.label, **_readable(solver.model())})
        return self._check(True, "unsat", None)

    def _check(self, passed, answer, counterexample) -> Check:
        value = {"solver": f"z3 {z3.get_version_string()}", "answer": answer}
        return Check(self.name, passed, self.scope, len(self.cases), counterexample, value)

    def counter_model(self, largest_s: int = 6) -> dict[str, Any] | None:
        """A counter-model that a format has: kappa a multiple of 2^-s and M = 2^(2s) - 1, smallest s first; or None."""
        if self.replay is None:
            return None
        for s in range(2, largest_s + 1):
            for case in self.cases:
                format_s = z3.And(z3.IsInt(KAPPA * (1 << s)), (1 << 2 * s) - 1 == LARGEST)
                solver = _solver(case, z3.Not(case.goal), format_s)
                if solver.check() == z3.sat:
                    return {"case": case.label, "s": s, **_readable(solver.model())}
        return None

    def replayed(self) -> Check | None:
        """The counter-model run in `FixedPoint(s)`: a Check that fails too, or None when there is nothing to replay."""
        model = self.counter_model()
        return None if model is None else self.replay(model["s"], Fraction(model["kappa"]))


def _script(case: Case) -> str:
    """One case as a script: declarations, premises, the negated goal."""
    formulas = [*(p for p in case.premises if not z3.is_true(p)), z3.Not(case.goal)]
    unknowns = sorted({(str(v), str(v.sort())) for formula in formulas for v in get_vars(formula)})
    declared = [f"(declare-const {name} {sort})" for name, sort in unknowns]
    return "\n".join([f"; {case.label}", *declared, *(f"(assert {f.sexpr()})" for f in formulas), "(check-sat)"])


def _solver(case: Case, *extra) -> z3.Solver:
    solver = z3.Solver()
    solver.set("timeout", 1000 * SOLVER_SECONDS)
    solver.add(*case.premises, *extra)
    return solver


def _readable(model) -> dict[str, str]:
    """The model's named unknowns; names of rounded products (r0, r1, ...) are left out."""
    values = {str(d): str(model[d]) for d in model.decls()}
    return {name: value for name, value in sorted(values.items()) if not re.fullmatch(r"r\d+|outside!\d+", name)}


@dataclass(frozen=True)
class Interval:
    """A premise about kappa. The default is the interval that all kappa_s share."""

    low: Fraction = Fraction(1, 2)
    high: Fraction = Fraction(3, 4)
    closed_below: bool = False

    def premise(self, kappa) -> z3.BoolRef:
        low, high = _real(self.low), _real(self.high)
        return z3.And(kappa >= low if self.closed_below else kappa > low, kappa <= high)

    def __str__(self) -> str:
        return f"{'[' if self.closed_below else '('}{self.low}, {self.high}]"


SHARED = Interval()
ABOVE_TWO_THIRDS = Interval(Fraction(2, 3), Fraction(3, 4))


def _scope(interval, ties) -> str:
    return f"every real kappa in {interval}, every largest code M >= 15, {_rule(ties)}"


def _rule(ties) -> str:
    return "ties either way" if ties == "any" else f"ties {ties}"


def _case(label, ar: SymbolicCodes, interval: Interval, got, expected) -> Case:
    same = z3.And([a == b for a, b in zip(np.ravel(got), np.ravel(ar.codes(expected)), strict=True)])
    return Case(label, (interval.premise(KAPPA), LARGEST >= 15, *ar.definitions), same)


def _run(ar: SymbolicCodes, core: DeltaRule, rows, updates):
    """The delta rule's own steps on symbolic rows (value_dim, head_dim)."""
    state = ar.codes(rows)
    for update in updates:
        token = update_inputs(ar, [update]).at(0)
        value = token.v[: core.value_dim]
        state = core.step(ar, state, DeltaInputs(token.q, token.k, value, token.alpha, token.beta))
    return state


def cell_table(
    scheme: str = "doubled",
    order: str = "A",
    ties: str | None = None,
    interval: Interval = SHARED,
    programs=None,
    products: str = "rounded",
) -> Obligation:
    """The transition table of the parity cell for all s >= 2: bit 0 keeps both states, bit 1 exchanges them (Lemma 5.2).

    Args:
        scheme: "doubled" or "toggle". order: A, B, D or Q.
        ties: default "zero" for the doubled cell, "any" for the toggle. interval: the premise about kappa.
        programs: (updates of bit 0, updates of bit 1) instead of the scheme's own, to see what else the solver rejects.
        products: "rounded", or "wide" for an inner product that is exact and rounded once.

    Raises:
        ValueError: an order in which s does not drop out (C, W, M), an unknown tie rule.
    """
    ties = ties or ("zero" if scheme == "doubled" else "any")
    core, cases = DeltaRule(2, 2, order=order, products=products), []
    for bit, program in enumerate(programs or SCHEMES[scheme]):
        for here, there in zip(STATES[scheme], STATES[scheme][:: -1 if bit else 1], strict=True):
            ar = SymbolicCodes(ties)
            after = _run(ar, core, [list(here), [0, 0]], program)
            cases.append(_case(f"row {here}, bit {bit}", ar, interval, after, [list(there), [0, 0]]))

    def replay(s, kappa):
        rule = "zero" if ties == "any" else ties
        return check_transitions(ParityCell(FixedPoint(s, rule), scheme, order=order, products=products, kappa=kappa))

    return Obligation(
        f"transition table, {scheme}, order {order}{', wide <x,k>' if products == 'wide' else ''}, all s",
        "bit 0 keeps both states, bit 1 exchanges them, the second row stays 0",
        _scope(interval, ties), tuple(cases), None if programs else replay,
    )  # fmt: skip


def zero_absorbs(interval: Interval = SHARED) -> Obligation:
    """The zero row is a fixed point of Z Z and of G F for all s >= 2 (and so the cell cannot start there)."""
    cases = []
    for bit, program in enumerate(SCHEMES["doubled"]):
        ar = SymbolicCodes("zero")
        after = _run(ar, DeltaRule(2, 2), [[0, 0], [0, 0]], program)
        cases.append(_case(f"bit {bit}", ar, interval, after, [[0, 0], [0, 0]]))
    return Obligation("zero row absorbs, all s", "Z Z and G F keep the zero row", _scope(interval, "zero"), tuple(cases))


def seven_fall(interval: Interval = SHARED) -> Obligation:
    """Of the nine rows with entries -1, 0, 1, G F exchanges P_0 and P_1 and sends the other seven to zero, for all s >= 2."""
    cases = []
    for row in NINE:
        ar, there = SymbolicCodes("zero"), {P0: P1, P1: P0}.get(row, (0, 0))
        after = _run(ar, DeltaRule(2, 1), [list(row)], SCHEMES["doubled"][1])
        cases.append(_case(f"row {row}", ar, interval, after, [list(there)]))
    return Obligation(
        "G F on the nine rows, all s", "G F exchanges (0,1) and (1,0) and sends the other seven rows to (0,0)",
        _scope(interval, "zero"), tuple(cases),
    )  # fmt: skip


def kappa_interval(interval: Interval = SHARED, smallest_s: int = 2) -> Obligation:
    """kappa_s = [1/sqrt 2]_s lies in the interval for every s >= smallest_s, which is 2, 3 or 4.

    With D = 2^s the code n of kappa_s is the integer nearest to D / sqrt 2, that is (2n - 1)^2 <= 2 D^2 <= (2n + 1)^2 with n >= 1
    (no tie: the squares are odd). Every D = 2^s with s >= 2 is 4, 8 or a multiple of 16, and that is all the proof uses.

    Raises:
        ValueError: another smallest_s.
    """
    if smallest_s not in (2, 3, 4):
        raise ValueError(f"smallest_s={smallest_s!r}: must be 2, 3 or 4")
    n, u, d = z3.Ints("n u D")
    small = [2**s for s in range(smallest_s, 4)]
    powers = (u >= 1, z3.Or([d == power for power in small] + [d == 16 * u]))
    nearest_code = (n >= 1, (2 * n - 1) * (2 * n - 1) <= 2 * d * d, 2 * d * d <= (2 * n + 1) * (2 * n + 1))
    low, high = interval.low, interval.high
    above = n * low.denominator >= d * low.numerator if interval.closed_below else n * low.denominator > d * low.numerator
    case = Case("n / D", powers + nearest_code, z3.And(above, n * high.denominator <= d * high.numerator))
    return Obligation(
        f"kappa_s in {interval}, all s" + (f" >= {smallest_s}" if smallest_s > 2 else ""),
        f"the code n nearest to D/sqrt 2 has n/D in {interval}",
        f"every D that is {''.join(f'{power}, ' for power in small)}or a positive multiple of 16".replace("is or", "is"), (case,),
    )  # fmt: skip


def saturation_is_far() -> Obligation:
    """The largest code 2^(2s) - 1 is at least 15 for every s >= 2: the premise on M that the other obligations use."""
    d = z3.Int("D")
    case = Case("M", (d >= 4, d * d - 1 == LARGEST), LARGEST >= 15)
    return Obligation("M >= 15, all s", "M = D^2 - 1 is at least 15", "every integer D >= 4", (case,))


def rounded_once(scheme: str = "doubled", interval: Interval = ABOVE_TWO_THIRDS) -> Obligation:
    """Order W: exact update, one rounding. A single one sends both states to the same row, for all s >= 2 and any tie rule.

    doubled: P_0 and P_1 both go to (1, 1) through G F. toggle: (0, 1) and (-1, 0) both go to (0, 0) through T.
    """
    target, cases = {"doubled": (1, 1), "toggle": (0, 0)}[scheme], []
    for start in STATES[scheme]:
        row, premises = [z3.RealVal(c) for c in start], [interval.premise(KAPPA)]
        for step, update in enumerate(SCHEMES[scheme][1]):
            after = z3.Ints(f"x{step}_1 x{step}_2")
            exact = _exact_update(row, update)
            premises += [z3.And(2 * x - 1 <= 2 * n, 2 * n <= 2 * x + 1) for x, n in zip(exact, after, strict=True)]
            row = [z3.ToReal(n) for n in after]
        goal = z3.And([n == c for n, c in zip(after, target, strict=True)])
        cases.append(Case(f"row {start}, bit 1", tuple(premises), goal))
    return Obligation(
        f"one rounding an update, {scheme}, all s", f"both states go to {target} after a single one",
        f"every real kappa in {interval}, ties either way", tuple(cases),
    )  # fmt: skip


def _exact_update(row, update: Update):
    """alpha (x - beta <x,k> k) + beta v k in real arithmetic, in units of delta."""
    diagonal = sum(map(abs, update.direction)) == 2
    key = [d * KAPPA if diagonal else z3.RealVal(d) for d in update.direction]
    inner = sum(x * k for x, k in zip(row, key, strict=True))
    a, b = _real(update.alpha), _real(update.beta)
    return [a * (x - b * inner * k) + b * update.value * k for x, k in zip(row, key, strict=True)]


# permutations -----------------------------------------------------------------------------------------------------------
def transposition_update(order: str = "A", ties: str = "any", interval: Interval = SHARED) -> Obligation:
    """One token (alpha = beta = 3/4, k = kappa (e_i + e_j), v = 0) maps a row x to x - (x_i + x_j)(e_i + e_j), for all s >= 2.

    Shown for a head of width 3 and each of its three pairs, for rows of a signed permutation matrix: entries -1, 0, 1, of which
    the two touched ones are not both nonzero. The third, untouched entry is symbolic. `untouched` carries this to every width.
    """
    core, entry, cases = DeltaRule(3, 1, order=order), z3.Int("untouched"), []
    touched = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
    for (i, j), (a, b) in product(((0, 1), (0, 2), (1, 2)), touched):
        ar, row, there = SymbolicCodes(ties), [entry] * 3, [entry] * 3
        row[i], row[j], there[i], there[j] = a, b, -b, -a
        after = _run(ar, core, [row], [transposition(3, i, j)])
        case = _case(f"(x_{i + 1}, x_{j + 1}) = ({a}, {b})", ar, interval, after, [there])
        cases.append(Case(case.label, (entry >= -1, entry <= 1, *case.premises), case.goal))

    def replay(s, kappa):
        return check_swaps(3, FixedPoint(s, "zero" if ties == "any" else ties), order, kappa)

    return Obligation(
        f"one token reflects, order {order}, all s", "x_i and x_j exchange places and change sign; the third entry stays",
        _scope(interval, ties), tuple(cases), replay,
    )  # fmt: skip


def untouched(order: str = "A", ties: str = "any") -> Obligation:
    """Coordinates with key entry 0, for all s >= 2: they leave every partial sum of <x,k> alone, and an entry -1, 0, 1 stays.

    With this, the update of a head of width n is that of width 3: adding a coordinate changes neither <x,k> nor the touched pair.
    """
    ar = SymbolicCodes(ties)
    partial, entry, c = z3.Ints("partial entry c")
    nothing, alpha, x, coefficient = ar.array(0), ar.array(THREE_QUARTERS), ar.codes(entry), ar.codes(c)
    total = ar.add(ar.codes(partial), ar.mul(x, nothing))
    if order == "Q":
        after = ar.add(ar.mul(alpha, x), ar.mul(coefficient, nothing))
    else:
        erased = ar.sub(x, ar.mul(coefficient, nothing))
        after = ar.add(ar.mul(alpha, erased), ar.mul(ar.codes(0), nothing))
    premises = (partial >= -LARGEST, partial <= LARGEST, entry >= -1, entry <= 1, LARGEST >= 15, *ar.definitions)
    case = Case("one more coordinate", premises, z3.And(total[()] == partial, after[()] == entry))
    return Obligation(
        f"untouched coordinates, order {order}, all s", "a zero key entry adds nothing to <x,k>, and the entry above it stays",
        f"every coefficient c, every partial sum in -M..M, every M >= 15, {_rule(ties)}", (case,),
    )  # fmt: skip


def lemma_5_2_obligations() -> tuple[Obligation, ...]:
    """What together proves the doubled cell for every s >= 2."""
    return saturation_is_far(), kappa_interval(), cell_table()


def reflection_obligations(order: str) -> tuple[Obligation, ...]:
    """What together proves, for every s >= 2 and every width, that one token is one transposition."""
    return saturation_is_far(), kappa_interval(), transposition_update(order), untouched(order)
