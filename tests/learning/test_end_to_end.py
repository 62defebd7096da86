"""One published point, trained as the book trains it: selective copying is learned by a hybrid of 2,192 parameters."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from hybridseq.learning import native
from hybridseq.learning.backends import train
from hybridseq.learning.batches import Framed
from hybridseq.learning.recipe import Recipe, Run
from hybridseq.learning.stack import Stack
from hybridseq.tasks.selective_copying import SelectiveCopying

SEEDS, RATE = (0, 1, 2), 0.01
COPYING = Framed(SelectiveCopying(5, 26, count_from="previous", first_number=5))
HYBRID = Stack.parse("SSM-TF", width=8, vocab_size=COPYING.vocab_size, window=20)


@pytest.mark.skipif(bool(native.why_not()), reason=f"4,000 steps need the native trainer: {native.why_not()}")
def test_selective_copying_is_learned_by_every_seed():
    """Accuracy above .995 on 1,024 held-out sequences (paper B, Figure 4: .999)."""
    assert HYBRID.size == 2192
    runs = [Run(HYBRID, COPYING, Recipe(), seed, RATE) for seed in SEEDS]
    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(lambda run: train(run, backend="native"), runs))
    assert all(outcome.accuracy > 0.995 for outcome in outcomes), [outcome.accuracy for outcome in outcomes]
    assert all(outcome.losses[-100:].mean() < outcome.losses[:100].mean() / 4 for outcome in outcomes)
