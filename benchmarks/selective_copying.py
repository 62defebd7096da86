"""Selective copying: the ten small domains run as a batch, against a direct loop over sequences and tokens; and a long input.

    python benchmarks/selective_copying.py

The direct implementation is what one would write first: dense matrices, one sequence at a time, one token at a time. It is
timed on a sample of every domain and scaled to the whole; its answers on the sample must equal those of the package.
"""

from __future__ import annotations

import resource
from time import process_time

import numpy as np

from hybridseq.constructions import selective_copying as sc
from hybridseq.constructions.selective_copying import DOMAINS, SelectiveCopyHybrid
from hybridseq.tasks.selective_copying import MASKED


def matrices(model: SelectiveCopyHybrid) -> dict[str, np.ndarray]:
    """The maps as dense matrices, and the two tables of the embedding."""
    tables = {"token": model.embedding.token.astype(float), "position": model.embedding.position.astype(float)}
    return tables | {name: affine.dense()[0].astype(float) for name, affine in model.maps.items()}


def direct(model: SelectiveCopyHybrid, w: dict[str, np.ndarray], tokens) -> int:
    """One answer, token by token."""
    h, stream = np.zeros(model.r), []
    for i, t in enumerate(tokens):
        x = w["token"][t] + w["position"][i]
        delta = (w["Delta"] @ x)[0]
        h = h - delta * (w["W_A"] @ h) + delta * (w["W_B"] @ x)
        stream.append(x + w["W_C"] @ h)
    q = w["W_q"] @ stream[-1]
    seen = stream[-model.num_numbers :]
    scores = np.array([q @ (w["W_k"] @ x) for x in seen])
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    output = sum(p * (w["W_v"] @ x) for p, x in zip(weights, seen, strict=True))
    return int(np.argmax(w["logits"] @ (w["W_o"] @ output)))


def main(sampled: int = 150) -> None:
    fast = slow = 0.0
    for domain in DOMAINS:
        model = SelectiveCopyHybrid(*domain)
        start = process_time()
        check = sc.check_answers(model)
        fast += process_time() - start
        assert check.passed, check
        tokens = np.concatenate(list(model.task.every(domain[2])))
        tokens = tokens[model.task.answers(tokens) != MASKED]
        some = tokens[:: max(1, len(tokens) // sampled)]
        w = matrices(model)
        start = process_time()
        answers = [direct(model, w, row) for row in some]
        slow += (process_time() - start) * len(tokens) / len(some)
        assert answers == model.answers(some).tolist()
    print(f"ten domains: {fast:.2f} s, direct {slow:.1f} s (scaled from samples), {slow / fast:.0f} times faster")

    start = process_time()
    check = sc.check_random(SelectiveCopyHybrid(100, 900, 10_000), 16)
    assert check.passed, check
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"L = 10,000, |V| = 1,000: {check.cases} sequences in {process_time() - start:.1f} s, peak memory {memory:.2f} GiB")


if __name__ == "__main__":
    main()
