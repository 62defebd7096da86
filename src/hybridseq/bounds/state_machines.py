"""Stacks of state space layers as finite machines: products, reachable and minimal states (paper B, Section 2 and Lemma 3.5).

A layer is (S, s_0, u, r): S_i = u(S_{i-1}, x_i), output r(S_i), which depends on the new state only (a Moore machine). A stack
feeds the *same-step* output of a layer to the next one. Lemma 3.5: the stack is one layer whose states are tuples, so
|S'| <= prod |S_j|.

`Machine` holds the tables. `product_machine` builds the tuple machine, `run_stack` runs the layers one above the other and
shares no code with it. `minimise` refines partitions (Moore) on the reachable states and hands back its own evidence: a map
onto a quotient, and for each two states of the quotient a word that separates them. `library_minimal_count` asks automata-lib
for the same number.

Deviates: with a readout r(S_i, x_i) (Mealy) counts are those of the register; the strict reading multiplies them by |V|.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product

import numpy as np

from hybridseq.evidence import Check

# machines ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Machine:
    """One state space layer with finitely many states (paper B, Section 2).

    step: integers (num_states, num_letters), step[s, a] = u(s, a). out: integers (num_states,) >= 0, out[s] = r(s). start: s_0.

    Raises ValueError for tables of the wrong shape or entries outside the states.

    >>> parity = Machine([[0, 1], [1, 0]], [0, 1])
    >>> parity.outputs([[1, 1, 1]]).tolist()
    [[1, 0, 1]]
    """

    step: np.ndarray
    out: np.ndarray
    start: int = 0
    name: str = ""

    def __post_init__(self):
        step, out = np.asarray(self.step, dtype=np.int64), np.asarray(self.out, dtype=np.int64)
        if step.ndim != 2 or 0 in step.shape or out.shape != (len(step),):
            raise ValueError(
                f"step {step.shape}, out {out.shape}: need (num_states, num_letters) and (num_states,), none of them 0"
            )
        if step.min() < 0 or step.max() >= len(step) or not 0 <= self.start < len(step):
            raise ValueError(f"step, start={self.start}: states are 0..{len(step) - 1}")
        if out.min() < 0:
            raise ValueError("out: outputs are the letters of the next layer and must be >= 0")
        object.__setattr__(self, "step", step)
        object.__setattr__(self, "out", out)

    @property
    def num_states(self) -> int:
        """|S|, reachable or not."""
        return len(self.step)

    @property
    def num_letters(self) -> int:
        """Size of the input alphabet."""
        return self.step.shape[1]

    def states(self, words) -> np.ndarray:
        """States (num, seq_len + 1) along words (num, seq_len), the start included."""
        words = _check_words(words, self.num_letters)
        visited = np.full((len(words), words.shape[1] + 1), self.start)
        for t in range(words.shape[1]):
            visited[:, t + 1] = self.step[visited[:, t], words[:, t]]
        return visited

    def outputs(self, words) -> np.ndarray:
        """Outputs (num, seq_len), position by position."""
        return self.out[self.states(words)[:, 1:]]

    def last(self, words) -> np.ndarray:
        """Output (num,) after the whole word; for the empty word the readout of the start."""
        return self.out[self.states(words)[:, -1]]

    def with_step(self, state: int, letter: int, target: int) -> Machine:
        """A copy with one transition changed."""
        step = self.step.copy()
        step[state, letter] = target
        return replace(self, step=step)


def reachable(machine: Machine) -> list[int]:
    """The states that some word reaches, breadth first."""
    found, seen = [machine.start], {machine.start}
    for state in found:
        for target in machine.step[state].tolist():
            if target not in seen:
                seen.add(target)
                found.append(target)
    return found


def run_stack(layers: Sequence[Machine], words, delayed: bool = False) -> np.ndarray:
    """The last layer's outputs (num, seq_len + 1), run layer above layer; column 0 is its readout before any token.

    delayed: each layer above the first reads the output that the layer below had one step *earlier* (0 at the first step). That
    is another model, kept as a negative control for Lemma 3.5.
    """
    _check_stack(layers)
    signal = _check_words(words, layers[0].num_letters)
    for depth, layer in enumerate(layers):
        if delayed and depth:
            signal = np.concatenate([np.zeros((len(signal), 1), dtype=np.int64), signal], axis=1)[:, : signal.shape[1]]
        outputs = layer.out[layer.states(signal)]
        signal = outputs[:, 1:]
    return outputs


def product_machine(layers: Sequence[Machine]) -> Machine:
    """The single layer of Lemma 3.5: states are tuples (s_1, ..., s_k), numbered with s_1 most significant; all of them.

    On x let v = x; for j = 1..k: s_j <- u_j(s_j, v), v <- r_j(s_j). Cost: prod |S_j| times the letters.

    >>> parity = Machine([[0, 1], [1, 0]], [0, 1])
    >>> product_machine([parity, parity]).num_states
    4
    """
    _check_stack(layers)
    sizes = [layer.num_states for layer in layers]
    tuples = np.array(list(product(*map(range, sizes))), dtype=np.int64)
    weights = np.cumprod([1, *sizes[:0:-1]])[::-1]
    step = np.zeros((len(tuples), layers[0].num_letters), dtype=np.int64)
    for letter in range(layers[0].num_letters):
        v = np.full(len(tuples), letter)
        for j, layer in enumerate(layers):
            after = layer.step[tuples[:, j], v]
            step[:, letter] += weights[j] * after
            v = layer.out[after]
    start = sum(int(w) * layer.start for w, layer in zip(weights, layers, strict=True))
    return Machine(step, layers[-1].out[tuples[:, -1]], start, " > ".join(layer.name for layer in layers))


# minimal machines --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Minimisation:
    """A smallest machine with the same outputs on all words, and why it is one.

    quotient: the small machine. image: reachable state of the original -> state of the quotient. separating: for each pair of
    states of the quotient a word (a tuple of letters, () for the output itself) after which their outputs differ.
    """

    machine: Machine
    quotient: Machine
    image: Mapping[int, int]
    separating: Mapping[tuple[int, int], tuple[int, ...]]


def minimise(machine: Machine) -> Minimisation:
    """Moore's partition refinement on the reachable states: split by output, then by the classes of the successors, until stable.

    >>> twice = Machine([[1, 2], [1, 2], [1, 2]], [0, 0, 1])
    >>> minimise(twice).quotient.num_states
    2
    """
    states = reachable(machine)
    block = _number({s: int(machine.out[s]) for s in states})
    while True:
        finer = _number({s: (block[s], *(block[t] for t in machine.step[s].tolist())) for s in states})
        if max(finer.values()) == max(block.values()):
            break
        block = finer
    first = {block[s]: s for s in reversed(states)}
    order = [first[b] for b in range(len(first))]
    quotient = Machine(
        [[block[t] for t in machine.step[s].tolist()] for s in order], machine.out[order], block[machine.start], machine.name
    )
    return Minimisation(machine, quotient, block, separating_words(quotient))


def separating_words(machine: Machine) -> dict[tuple[int, int], tuple[int, ...]]:
    """A shortest separating word for each pair of states that has one, pairs (a, b) with a < b."""
    pairs = list(combinations(range(machine.num_states), 2))
    words: dict[tuple[int, int], tuple[int, ...]] = {(a, b): () for a, b in pairs if machine.out[a] != machine.out[b]}
    grew = True
    while grew:
        fresh = {}
        for a, b in pairs:
            if (a, b) in words:
                continue
            for letter in range(machine.num_letters):
                after = tuple(sorted((int(machine.step[a, letter]), int(machine.step[b, letter]))))
                if after in words:
                    fresh[a, b] = (letter, *words[after])
                    break
        words |= fresh
        grew = bool(fresh)
    return words


def library_minimal_count(machine: Machine) -> int:
    """The number of states of a smallest equivalent machine, by automata-lib's minimisation of an acceptor.

    Outputs become letters: from state s the letter "?y" leads to an accepting sink if r(s) = y and to a rejecting one
    otherwise. Two states are equivalent as acceptors exactly if they are as machines; the two sinks are equivalent to nothing
    else and are taken off again.

    Raises ImportError, with what to install, where automata-lib is missing.
    """
    try:
        from automata.fa.dfa import DFA
    except ImportError as error:
        raise ImportError("automata-lib is needed to compare with: pip install 'hybridseq[book]'") from error
    letters, answers = range(machine.num_letters), sorted(set(machine.out.tolist()))
    symbols = {str(a) for a in letters} | {f"?{y}" for y in answers}
    moves = {"yes": dict.fromkeys(symbols, "no"), "no": dict.fromkeys(symbols, "no")}
    for s in range(machine.num_states):
        moves[f"s{s}"] = {str(a): f"s{machine.step[s, a]}" for a in letters}
        moves[f"s{s}"] |= {f"?{y}": "yes" if machine.out[s] == y else "no" for y in answers}
    acceptor = DFA(
        states=set(moves), input_symbols=symbols, transitions=moves, initial_state=f"s{machine.start}", final_states={"yes"}
    )
    return len(acceptor.minify().states) - 2


def _number(keys: Mapping) -> dict:
    """Equal keys get equal numbers, in the order of appearance."""
    numbers: dict = {}
    return {s: numbers.setdefault(key, len(numbers)) for s, key in keys.items()}


# the examples of the chapter ---------------------------------------------------------------------------------------------


def examples() -> dict[str, tuple[Machine, ...]]:
    """Five stacks. E1: parity, then its running sum mod 3. E2: the last bit, twice. E3: ones mod 4, then a toggle
    when they are 0. E4: hold the last of a, b; count a up to 3, reset on b. E5: E1, then s <- (2 s + y) mod 5."""
    bit = [0, 1]
    parity = Machine([[s, 1 - s] for s in range(2)], bit, name="parity of ones")
    sum3 = Machine([[(s + y) % 3 for y in range(2)] for s in range(3)], range(3), name="running sum mod 3")
    last = Machine([[0, 1]] * 2, bit, name="last bit")
    ones4 = Machine([[(s + y) % 4 for y in range(2)] for s in range(4)], range(4), name="ones mod 4")
    toggle = Machine([[1 - s, s, s, s] for s in range(2)], bit, name="toggle on 0")
    hold = Machine([[1, 2, s] for s in range(3)], range(3), name="hold the last of a, b")
    count = Machine([[s, min(s + 1, 3), 0] for s in range(4)], range(4), name="count a to 3, reset on b")
    linear = Machine([[(2 * s + y) % 5 for y in range(3)] for s in range(5)], range(5), name="2 s + y mod 5")
    return {"E1": (parity, sum3), "E2": (last, last), "E3": (ones4, toggle), "E4": (hold, count), "E5": (parity, sum3, linear)}


def words_up_to(num_letters: int, longest: int) -> list[np.ndarray]:
    """All words of length 0..longest, one array (num_letters^t, t) a length."""
    return [
        np.array(list(product(range(num_letters), repeat=t)), dtype=np.int64).reshape(num_letters**t, t)
        for t in range(longest + 1)
    ]


# machines for the index task ---------------------------------------------------------------------------------------------
# Letters 0, 1 are payload bits, letter 1 + v is the control v = 1..m. Output 2 says "no answer yet".


def remember_prefix(m: int) -> Machine:
    """Index, payload first, one state a prefix and one an answer: 2^(m+1) - 1 + 2 states (17 at m = 3)."""
    _check_length(m)
    prefixes = [p for t in range(m + 1) for p in product(range(2), repeat=t)]
    place = {p: i for i, p in enumerate(prefixes)}
    answer = len(prefixes)
    step = np.tile(np.arange(answer + 2)[:, None], (1, m + 2))  # letters that the task never sends there change nothing
    for p, s in place.items():
        if len(p) < m:
            step[s, :2] = [place[(*p, b)] for b in range(2)]
        else:
            step[s, 2:] = [answer + b for b in p]
    return Machine(step, [2] * answer + [0, 1], 0, "one state a prefix")


def remember_last(m: int) -> Machine:
    """Index, payload first, keeping the last m bits only: 2^m states, as few as T-A allows. The control moves to a word of
    equal bits.
    """
    _check_length(m)
    words = list(product(range(2), repeat=m))
    place = {w: i for i, w in enumerate(words)}
    step = [[place[(*w[1:], b)] for b in range(2)] + [place[(w[v],) * m] for v in range(m)] for w in words]
    return Machine(step, [w[0] for w in words], 0, "the last m bits")


def count_down(m: int) -> Machine:
    """Index, control first: wait, count v down, keep the bit that arrives at 1; m + 3 states (6 at m = 3)."""
    _check_length(m)
    answer = m + 1
    step = np.tile(np.arange(m + 3)[:, None], (1, m + 2))
    step[0, 2:] = np.arange(1, m + 1)
    step[1, :2] = [answer, answer + 1]
    for left in range(2, m + 1):
        step[left, :2] = left - 1
    return Machine(step, [2] * (m + 1) + [0, 1], 0, "count down")


def index_words(m: int, payload_first: bool) -> tuple[np.ndarray, np.ndarray]:
    """All 2^m m inputs of the index task as words (num, m + 1) in the letters above, and their answers (num,)."""
    _check_length(m)
    payloads = np.repeat(np.array(list(product(range(2), repeat=m))), m, axis=0)
    control = np.tile(np.arange(m), 2**m)
    answers = payloads[np.arange(len(payloads)), control]
    parts = [payloads, control[:, None] + 2]
    return np.concatenate(parts if payload_first else parts[::-1], axis=1), answers


def fewest_states(words: np.ndarray, answers: np.ndarray, num_letters: int, num_states: int) -> Machine | None:
    """A machine with so many states that is right on the given words, whatever it does elsewhere; None if z3 proves that
    none exists.

    The words' prefixes form a tree; each prefix is given a state, so that equal states on equal letters have equal successors.
    Raises ValueError for fewer than one state, RuntimeError if z3 gives up.
    """
    import z3

    if num_states < 1:
        raise ValueError(f"num_states={num_states!r}: a machine has one state or more")
    words = _check_words(words, num_letters)
    solver = z3.Solver()
    step = [[z3.Int(f"step_{s}_{a}") for a in range(num_letters)] for s in range(num_states)]
    out = [z3.Int(f"out_{s}") for s in range(num_states)]
    solver.add([z3.And(t >= 0, t < num_states) for row in step for t in row])
    at = {(): z3.IntVal(0)}
    for word, answer in zip(map(tuple, words.tolist()), answers.tolist(), strict=True):
        for t in range(len(word)):
            prefix, longer = word[:t], word[: t + 1]
            if longer not in at:
                at[longer] = z3.Int("at_" + "_".join(map(str, longer)))
                solver.add(at[longer] >= 0, at[longer] < num_states)
                solver.add([z3.Implies(at[prefix] == s, at[longer] == step[s][word[t]]) for s in range(num_states)])
        solver.add([z3.Implies(at[word] == s, out[s] == answer) for s in range(num_states)])
    outcome = solver.check()
    if outcome == z3.unknown:
        raise RuntimeError(f"z3 gave up: {solver.reason_unknown()}")
    if outcome == z3.unsat:
        return None
    model = solver.model()
    value = lambda term: model.eval(term, model_completion=True).as_long()  # noqa: E731
    return Machine(
        [[value(t) for t in row] for row in step], [max(value(y), 0) for y in out], 0, f"found with {num_states} states"
    )


# checks ------------------------------------------------------------------------------------------------------------------


def check_product(layers: Sequence[Machine], longest: int = 8, machine: Machine | None = None) -> Check:
    """Lemma 3.5: a single machine (by default the product) gives the stack's output on every word up to the given length."""
    machine = product_machine(layers) if machine is None else machine
    cases, found = 0, None
    for words in words_up_to(layers[0].num_letters, longest):
        stack = run_stack(layers, words)[:, -1]
        wrong = np.flatnonzero(machine.last(words) != stack)
        cases += len(words)
        if len(wrong) and found is None:
            found = {
                "word": words[wrong[0]].tolist(),
                "stack": int(stack[wrong[0]]),
                "machine": int(machine.last(words)[wrong[0]]),
            }
    return Check.true(
        f"one machine does what the stack does ({machine.name})",
        found is None,
        f"all words of length 0..{longest}",
        cases=cases,
        counterexample=found,
    )


def count_delayed(layers: Sequence[Machine], longest: int = 8) -> tuple[int, int]:
    """(words on which the outputs of stack and delayed control differ somewhere, words), all non-empty words up to the
    given length.
    """
    words = words_up_to(layers[0].num_letters, longest)[1:]
    differ = [(run_stack(layers, w) != run_stack(layers, w, delayed=True)).any(axis=1).sum() for w in words]
    return int(sum(differ)), sum(map(len, words))


def check_minimal(found: Minimisation) -> Check:
    """The quotient is equivalent (outputs and steps agree through the map, for all words at once) and cannot be smaller
    (each two of its states are reachable and have different outputs after their separating word).
    """
    machine, quotient, image = found.machine, found.quotient, found.image
    problem, states = None, reachable(machine)
    if image.get(machine.start) != quotient.start:
        problem = {"start": machine.start, "goes to": image.get(machine.start), "should be": quotient.start}
    for s in states if problem is None else ():
        if s not in image or not 0 <= image[s] < quotient.num_states or quotient.out[image[s]] != machine.out[s]:
            problem = {"state": s, "its image has another output": image.get(s)}
            break
        for a, t in enumerate(machine.step[s].tolist()):
            if quotient.step[image[s], a] != image.get(t):
                problem = {"state": s, "letter": a, "leads to": image.get(t), "the quotient": int(quotient.step[image[s], a])}
    if problem is None and {image[s] for s in states} != set(range(quotient.num_states)):
        problem = {
            "states of the quotient that no word reaches": sorted(set(range(quotient.num_states)) - {image[s] for s in states})
        }
    pairs = list(combinations(range(quotient.num_states), 2))
    for pair in pairs if problem is None else ():
        if pair not in found.separating or len({_after(quotient, s, found.separating[pair]) for s in pair}) == 1:
            problem = {"not separated": pair, "word": found.separating.get(pair)}
            break
    return Check.true(
        f"{quotient.num_states} states suffice and are needed ({machine.name})",
        problem is None,
        f"{len(states)} reachable states, {len(pairs)} pairs",
        cases=len(states) + len(pairs),
        counterexample=problem,
        value={"states": machine.num_states, "reachable": len(states), "minimal": quotient.num_states},
    )


def check_index_machine(machine: Machine, m: int, payload_first: bool) -> Check:
    """The machine answers every input of the index task, read in the given order."""
    words, answers = index_words(m, payload_first)
    order = "payload, then control" if payload_first else "control, then payload"
    return Check.equal(
        f"{machine.name}: {machine.num_states} states answer every input",
        machine.last(words),
        answers,
        f"index, m = {m}, {order}, all {len(words)} inputs",
        words.tolist(),
        value={"states": machine.num_states},
    )


def _after(machine: Machine, state: int, word: Iterable[int]) -> int:
    for letter in word:
        state = int(machine.step[state, letter])
    return int(machine.out[state])


def _check_words(words, num_letters: int) -> np.ndarray:
    words = np.asarray(words, dtype=np.int64)
    if words.ndim != 2:
        raise ValueError(f"words {words.shape}: must have the shape (num, seq_len)")
    if words.size and not (words.min() >= 0 and words.max() < num_letters):
        raise ValueError(f"words: letters are 0..{num_letters - 1}, found {words.min()} to {words.max()}")
    return words


def _check_stack(layers: Sequence[Machine]) -> None:
    if not layers:
        raise ValueError("layers: a stack needs one layer or more")
    for below, above in pairwise(layers):
        if below.out.max() >= above.num_letters:
            top = above.num_letters - 1
            raise ValueError(f"layers: {below.name or 'one'} puts out {below.out.max()}, the next reads 0..{top}")


def _check_length(m) -> None:
    if isinstance(m, bool) or not isinstance(m, int | np.integer) or not 1 <= m <= 12:
        raise ValueError(f"m={m!r}: must be an integer from 1 to 12 (the machine has 2^m states)")
