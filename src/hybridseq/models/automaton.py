"""A recurrent head over a finite format is a finite automaton: its states are stored numbers, its letters are distinct inputs."""

from __future__ import annotations

import numpy as np

__all__ = ["final_state"]

MOST_TRANSITIONS = 4096


def final_state(ar, core, inputs: dict, place: np.ndarray):
    """The state (num, ...) of a recurrent core after the inputs that stand at `place`; None where this route does not pay.

    inputs: what the core's step reads, arrays by name of shape (rows, features) or (rows,), or None where an input is absent.
    place: (num, seq_len) row numbers. Equal rows are one letter. The states that the start can reach are listed breadth first
    with `core.step`, and every prompt becomes a walk through the table of transitions. Exact, like the scan that it replaces.
    Returns None in floats, for codes beyond 64 bits, for states that are no plain array, and beyond MOST_TRANSITIONS.
    """
    start = core.init_state(ar, ())
    if not ar.exact or not isinstance(start, np.ndarray) or start.dtype == object:
        return None
    present = [table for table in inputs.values() if table is not None]
    joined = np.concatenate([table.reshape(len(table), -1) for table in present], axis=1)
    _, first, letter = np.unique(joined, axis=0, return_index=True, return_inverse=True)
    letters = {name: None if table is None else table[first] for name, table in inputs.items()}
    listed = _reachable(ar, core, start, letters, len(first))
    if listed is None:
        return None
    states, table = listed
    word, current = letter.reshape(-1)[place], np.zeros(len(place), dtype=np.intp)
    for t in range(place.shape[1]):
        current = table[current, word[:, t]]
    return states[current]


def _reachable(ar, core, start, letters: dict, num_letters: int):
    """(states, table): all reachable states, and table[i, a] = the number of the state after letter a in state i; or None."""
    numbers, states, table = {tuple(start.ravel().tolist()): 0}, [start], []
    while sum(map(len, table)) < len(states):
        if len(states) * num_letters > MOST_TRANSITIONS:
            return None
        frontier = states[sum(map(len, table)) :]
        tiled = {name: None if x is None else np.concatenate([x] * len(frontier)) for name, x in letters.items()}
        after = core.step(ar, np.repeat(frontier, num_letters, axis=0), core.input_type(**tiled))
        reached = []
        for state in after:
            number = numbers.setdefault(tuple(state.ravel().tolist()), len(states))
            if number == len(states):
                states.append(state)
            reached.append(number)
        table.append(np.array(reached, dtype=np.intp).reshape(len(frontier), num_letters))
    return np.stack(states), np.concatenate(table)
