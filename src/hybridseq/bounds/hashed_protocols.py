"""Hybrids with one full layer as protocols without weights: states and accumulators are hashes of what they may depend on.

Lemma E2 uses nothing of a model but how many bits go where. So the fairest models to try it on are those that use all their bits
and have no other structure: every update is a random function, here a keyed hash cut to its width.

    before the full layer   sigma <- h(sigma, segment)                      S_pre bits, after each player's segment
    the full layer          acc <- h(acc, segment, sigma, query)            b bits, one for each query; a query is made of its own
                                                                            token and the state there
    after it                rho <- h(rho, segment, sigma, accumulators)     S_post bits
    the last player         says h(rho, sigma, w, acc) mod N_1

The prompt is z_2 | z_1 | z_0 | w (L = 2). Deviates: states move a segment at a time; a finer machine has the same budget.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hybridseq.bounds.composition_bounds import Budget
from hybridseq.rng import mix
from hybridseq.tasks.sequential_composition import SequentialComposition


@dataclass(frozen=True)
class HashedHybrid:
    """A random hybrid of the word R*FR* with a given budget of bits, as a protocol (`task`, `transcript`, `outputs`, `state`).

    budget: S_pre, S_post and b. seed: which random functions. Raises ValueError unless L = 2, the order is std and widths are at
    most 32 bits.

    >>> protocol = HashedHybrid(SequentialComposition(2, (2,)), Budget(1, 1, 1), seed=0)
    >>> tokens = protocol.task.sample(np.arange(3))
    >>> protocol.transcript(tokens, 1).shape, int(protocol.state(tokens, 2).max()) <= 1
    ((3, 4), True)
    """

    task: SequentialComposition
    budget: Budget
    seed: int

    def __post_init__(self):
        if self.task.L != 2 or self.task.order != "std":
            raise ValueError(f"task={self.task!r}: needs L = 2 and the order 'std'")
        if max(self.budget.before, self.budget.after, self.budget.accumulator) > 32:
            raise ValueError(f"budget={self.budget}: widths go up to 32 bits")

    def _hash(self, bits: int, tag: int, *columns) -> np.ndarray:
        """The keyed hash of columns (num,), in 0..2^bits - 1."""
        word = mix(mix(self.seed) + np.uint64(tag))
        for column in columns:
            with np.errstate(over="ignore"):
                word = mix(word + np.asarray(column, dtype=np.int64).astype(np.uint64))
        return (np.broadcast_to(word, np.shape(columns[0])) & np.uint64((1 << bits) - 1)).astype(np.int64)

    def _segments(self, tokens) -> list[np.ndarray]:
        """63-bit names of z_2, z_1, z_0 and w, as far as the tokens (num, k) go."""
        places = [place for place in self.task.segments.values() if place.stop <= np.shape(tokens)[1]]
        return [self._hash(63, 0, *np.asarray(tokens)[:, place].T) for place in places]

    def _before(self, segments) -> list[np.ndarray]:
        """sigma after each segment."""
        states = [self._hash(self.budget.before, 1, segments[0])]
        for segment in segments[1:]:
            states.append(self._hash(self.budget.before, 2, states[-1], segment))
        return states

    def state(self, tokens, player: int) -> np.ndarray:
        """sigma once `player` is through (num, 1); the tokens may end there."""
        place = self.task.players.index(player)
        return self._before(self._segments(tokens)[: place + 1])[place][:, None]

    def _accumulators(self, query, segments, states) -> list[np.ndarray]:
        """One query's accumulator after each of the given segments."""
        found = [self._hash(self.budget.accumulator, 3, segments[0], query)]
        for segment, state in zip(segments[1:], states, strict=False):
            found.append(self._hash(self.budget.accumulator, 4, found[-1], segment, state, query))
        return found

    def _run(self, tokens) -> dict:
        """All states and accumulators of prompts (num, seq_len)."""
        tokens = np.asarray(tokens)
        segments = self._segments(tokens)
        sigma, bits = self._before(segments), self.budget.after
        first = self.task.segments[1]
        queries = [self._hash(63, 5, np.full(len(tokens), i), tokens[:, i], sigma[0]) for i in range(first.start, first.stop)]
        at_first = [self._accumulators(q, segments[:1], sigma)[0] for q in queries]
        at_start, at_last = (
            self._accumulators(self._hash(63, tag, segments[i], sigma[i - 1]), segments[:i], sigma) for tag, i in ((6, 2), (7, 3))
        )
        rho = [self._hash(bits, 8, segments[0])]
        rho.append(self._hash(bits, 9, rho[0], segments[1], sigma[0], *at_first))
        rho.append(self._hash(bits, 10, rho[1], segments[2], sigma[1], at_start[-1]))
        return {"w": segments[3], "sigma": sigma, "rho": rho, "first": at_first, "start": at_start, "last": at_last}

    def transcript(self, tokens, level: int) -> np.ndarray:
        """What players >= level hand to players < level (num, width): states, and accumulators of the queries down there."""
        run = self._run(tokens)
        after = self.task.players.index(level)
        sent = [run["sigma"][after], run["rho"][after], run["last"][after]]
        if level >= 1:
            sent.append(run["start"][after])
        return np.stack([*sent, *(run["first"] if level == 2 else [])], axis=1)

    def outputs(self, tokens) -> np.ndarray:
        """What the last player says (num,)."""
        run = self._run(tokens)
        return self._hash(32, 11, run["rho"][2], run["sigma"][2], run["w"], run["last"][2]) % self.task.num_answers
