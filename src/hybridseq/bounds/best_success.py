"""The best success that S states allow: P*(S), exactly (around Theorem 3.3 of paper B).

u is uniform on V^m, v uniform on Q, the payload comes first. A machine with S states sorts the payloads into S blocks; after
that the best it can do for each control is the most frequent answer in the block. So

    P*(S) = max over partitions into at most S blocks of (1 / (|V|^m q)) sum_blocks sum_v max_y #{u in block: F(u, v) = y}.

Any task with few payloads: dynamic programming over subsets (`by_partitions`). Index: a block's majority answers are a word,
and P* is 1 - (mean Hamming distance to the best code of S words), by listing codes that contain 0 (`by_codes`), which loses
nothing since translations keep distances. Where lists end, z3 decides whether a code with a given sum of distances exists
(`solve`). Listing stops at a code that meets the sphere bound, and from the covering number on the optimum is a formula: every
word outside the code costs exactly 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from math import comb

import numpy as np

from hybridseq.bounds.payload_information import radius_one_bound, sphere_bound, sphere_distance
from hybridseq.evidence import Check
from hybridseq.tasks.function_composition import FunctionComposition

MOST_CODES = 2_000_000
"""Longer lists of codes are left to the solver."""


@dataclass(frozen=True)
class Code:
    """S words of V^m; `words` are numbers in base |V|. distance: sum over all of V^m of the Hamming distance to the nearest."""

    m: int
    vocab_size: int
    words: tuple[int, ...]
    distance: int

    @classmethod
    def of(cls, m: int, vocab_size: int, words: Sequence[int]) -> Code:
        """The code with its distance computed. Raises ValueError for repeated words or words outside V^m."""
        words = tuple(sorted(int(w) for w in words))
        if not words or len(set(words)) != len(words) or not 0 <= words[0] <= words[-1] < vocab_size**m:
            raise ValueError(f"words={words!r}: distinct numbers from 0..{vocab_size**m - 1}")
        return cls(m, vocab_size, words, int(distances(m, vocab_size)[list(words)].min(axis=0).sum()))

    @property
    def success(self) -> Fraction:
        """1 - distance / (m |V|^m): what the machine whose states are these words achieves."""
        return 1 - Fraction(self.distance, self.m * self.vocab_size**self.m)

    @property
    def radius(self) -> int:
        """The largest distance of a word to the code."""
        return int(distances(self.m, self.vocab_size)[list(self.words)].min(axis=0).max())


def distances(m: int, vocab_size: int) -> np.ndarray:
    """Hamming distances (|V|^m, |V|^m) between all words, small integers."""
    words = np.array(list(product(range(vocab_size), repeat=m)), dtype=np.int8)
    return (words[:, None] != words[None]).sum(axis=2, dtype=np.int8)


# listing -----------------------------------------------------------------------------------------------------------------


def by_codes(m: int, vocab_size: int, num_states: int) -> Code:
    """A best code of S words, from the list of all that contain 0; the list ends early at one that meets the sphere bound.

    Raises ValueError for lists of more than MOST_CODES codes, naming `solve`.

    >>> by_codes(3, 2, 3).success
    Fraction(19, 24)
    """
    least = sphere_distance(m, vocab_size, num_states)
    n, far = vocab_size**m, distances(m, vocab_size)
    if num_states == 1:
        return Code.of(m, vocab_size, [0])
    if comb(n - 1, num_states - 1) > MOST_CODES:
        raise ValueError(f"num_states={num_states!r}: {comb(n - 1, num_states - 1):,} codes are too many to list; use solve(...)")
    best = Code(m, vocab_size, (), m * n + 1)
    for chosen in combinations(range(1, n - 1), num_states - 2):
        last = chosen[-1] + 1 if chosen else 1
        near = far[[0, *chosen]].min(axis=0)
        sums = np.minimum(near, far[last:]).sum(axis=1, dtype=np.int64)
        i = int(sums.argmin())
        if sums[i] < best.distance:
            best = Code(m, vocab_size, (0, *chosen, last + i), int(sums[i]))
            if best.distance == least:
                break
    return best


def optimum(m: int, vocab_size: int) -> tuple[Code, ...]:
    """Best codes for S = 1, 2, ..., |V|^m: listed below the covering number, and from there on any covering code, enlarged.

    The last listed code has radius 1, so each further word takes 1 off the sum; no code can do better (`radius_one_bound`).
    """
    codes = [by_codes(m, vocab_size, 1)]
    while codes[-1].radius > 1 and len(codes) < vocab_size**m:
        codes.append(by_codes(m, vocab_size, len(codes) + 1))
    while len(codes) < vocab_size**m:
        fresh = next(w for w in range(vocab_size**m) if w not in codes[-1].words)
        codes.append(Code.of(m, vocab_size, [*codes[-1].words, fresh]))
    return tuple(codes)


def covering_number(codes: Sequence[Code]) -> int:
    """K_|V|(m, 1): the first S whose best code reaches every word within distance 1."""
    return next(len(code.words) for code in codes if code.radius <= 1)


def by_partitions(table: np.ndarray) -> tuple[Fraction, ...]:
    """P*(S) for S = 1..num_payloads from the answers (num_payloads, q): dynamic programming over subsets, 3^num_payloads steps.

    Raises ValueError for more than 10 payloads.

    >>> from hybridseq.tasks.function_composition import equality
    >>> by_partitions(equality(3).table())[0]
    Fraction(7, 8)
    """
    table = np.asarray(table)
    num, q = table.shape
    if num > 10:
        raise ValueError(f"table {table.shape}: {num} payloads would take 3^{num} = {3**num:,} steps; at most 10")
    answers = np.stack([table == y for y in np.unique(table)], axis=2).reshape(num, -1)
    members = np.arange(2**num)[:, None] >> np.arange(num) & 1
    value = (members @ answers).reshape(2**num, q, -1).max(axis=2).sum(axis=1).tolist()
    best, found = value, [value[-1]]
    for _ in range(1, num):
        best = [_split(mask, best, value) for mask in range(2**num)]
        found.append(best[-1])
    return tuple(Fraction(int(total), num * q) for total in found)


def _split(mask: int, best: list[int], value: list[int]) -> int:
    """The best of: one block around the lowest payload of `mask`, and the rest in one block fewer."""
    low = mask & -mask
    rest = part = mask ^ low
    most = value[mask]
    while rest:
        part = (part - 1) & rest  # every proper subset of the rest, the empty one last
        most = max(most, value[part | low] + best[rest ^ part])
        if not part:
            break
    return most


def machine_success(table: np.ndarray, state: Sequence[int]) -> Fraction:
    """The success of the best answers after payload i went to state[i]: any encoder, no optimisation."""
    table, state = np.asarray(table), np.asarray(state)
    total = 0
    for s in np.unique(state):
        total += sum(int(np.bincount(column).max()) for column in table[state == s].T)
    return Fraction(total, table.size)


# the solver --------------------------------------------------------------------------------------------------------------


def solve(m: int, vocab_size: int, num_states: int, distance: int, timeout_s: float = 60) -> Code | None:
    """A code of S words with a sum of distances of at most `distance`; None if z3 proves that there is none.

    One variable a word (is it in the code; 0 is), and one for each word and radius r ("nothing within r"), whose sum is the
    distance.

    Raises RuntimeError where z3 finds neither within `timeout_s` seconds.

    >>> solve(3, 2, 3, 4) is None, solve(3, 2, 3, 5).distance
    (True, 5)
    """
    import z3

    sphere_distance(m, vocab_size, num_states)  # validates
    far, n = distances(m, vocab_size), vocab_size**m
    solver = z3.SolverFor("QF_FD")
    solver.set("timeout", int(timeout_s * 1000))
    inside = [z3.Bool(f"in_{w}") for w in range(n)]
    solver.add(inside[0], z3.PbLe([(x, 1) for x in inside], num_states))
    costs = []
    for w, r in product(range(n), range(m)):
        beyond = z3.Bool(f"beyond_{w}_{r}")
        solver.add(z3.Or(beyond, *[inside[c] for c in np.flatnonzero(far[w] <= r)]))
        costs.append((beyond, 1))
    solver.add(z3.PbLe(costs, int(distance)))
    outcome = solver.check()
    if outcome == z3.unknown:
        raise RuntimeError(f"z3 did not decide m={m}, |V|={vocab_size}, S={num_states}, distance <= {distance} in {timeout_s} s")
    if outcome == z3.unsat:
        return None
    model = solver.model()
    words = [w for w in range(n) if z3.is_true(model.eval(inside[w], model_completion=True))]
    spare = [w for w in range(n) if w not in words]
    return Code.of(m, vocab_size, words + spare[: num_states - len(words)])


def hamming_code() -> Code:
    """The 16 words of the Hamming code [7, 4], a perfect code of radius 1: parity checks are the binary digits of the
    positions.
    """
    words = []
    for number in range(128):
        syndrome = 0
        for position in range(1, 8):
            if number >> (7 - position) & 1:
                syndrome ^= position
        if syndrome == 0:
            words.append(number)
    return Code.of(7, 2, words)


# checks ------------------------------------------------------------------------------------------------------------------


def check_codes(codes: Sequence[Code], num_states: Sequence[int] | None = None) -> Check:
    """Best codes of one grid against T-C: distances recomputed, never below the sphere bound; on the radius-1 line exactly
    from the covering number on. A counter-example is the first S where that fails."""
    m, v = codes[0].m, codes[0].vocab_size
    reached, problem = False, None
    for S, code in zip(num_states or range(1, len(codes) + 1), codes, strict=True):
        reached = reached or code.radius <= 1
        on_line = code.success == radius_one_bound(m, v, S)
        facts = {
            "sum": Code.of(m, v, code.words).distance == code.distance,
            "size": len(code.words) == S,
            "bound": code.success <= sphere_bound(m, v, S),
            "line": on_line == reached,
            "formula": not reached or code.success == sphere_bound(m, v, S),
        }
        if not all(facts.values()):
            problem = {"S": S, "fails": [name for name, true in facts.items() if not true], "success": code.success}
            break
    return Check.true(
        "P*(S) is at most the sphere bound, and equals it from the covering number on",
        problem is None,
        f"index, m = {m}, |V| = {v}, S = 1..{len(codes)}",
        cases=len(codes),
        counterexample=problem,
        value={"covering number": next((len(c.words) for c in codes if c.radius <= 1), None)},
    )


def check_solver(codes: Sequence[Code], timeout_s: float = 60) -> Check:
    """Each code is optimal by z3: a code with its sum of distances exists, and none with one less."""
    problem = None
    for code in codes:
        args = code.m, code.vocab_size, len(code.words)
        there = solve(*args, code.distance, timeout_s)
        better = solve(*args, code.distance - 1, timeout_s)
        if there is None or better is not None:
            problem = {"S": args[2], "claimed": code.distance, "z3 found": None if better is None else better.distance}
            break
    first = codes[0]
    return Check.true(
        "z3 finds a code with this sum of distances and proves that there is no better one",
        problem is None,
        f"index, m = {first.m}, |V| = {first.vocab_size}, S = {', '.join(str(len(c.words)) for c in codes)}",
        cases=2 * len(codes),
        counterexample=problem,
    )


def check_meets_bound(code: Code | None) -> Check:
    """A witness that meets the sphere bound is optimal, whoever found it; its distance is computed again here."""
    if code is None:
        return Check.true("a code meets the sphere bound", False, "no code was found", counterexample="z3 found none")
    again = Code.of(code.m, code.vocab_size, code.words)
    least = sphere_distance(code.m, code.vocab_size, len(code.words))
    return Check.true(
        f"{len(code.words)} words meet the sphere bound",
        again.distance == code.distance == least,
        f"index, m = {code.m}, |V| = {code.vocab_size}, all {code.vocab_size**code.m} payloads",
        cases=code.vocab_size**code.m,
        counterexample={"words": code.words, "distance": again.distance, "bound": least},
        value={"S": len(code.words), "success": code.success},
    )


def check_curve(task: FunctionComposition, expected: Sequence[Fraction]) -> Check:
    """P*(S) of a task by dynamic programming, against stated fractions."""
    got = by_partitions(task.table())
    return Check.equal(
        "P*(S), S = 1, 2, ...",
        [str(p) for p in got],
        [str(Fraction(p)) for p in expected],
        f"{task.name}: all partitions of {task.num_payloads} payloads",
        list(range(1, len(got) + 1)),
    )
