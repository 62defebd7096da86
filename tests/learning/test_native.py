"""The native step against the plain module and numpy: gradients, training, data, NaN, threads, refusals."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hybridseq.learning import native, plain
from hybridseq.learning.batches import Framed, dropout_keep
from hybridseq.learning.native.source import FILES, flags, source_hash
from hybridseq.learning.recipe import Recipe, Run
from hybridseq.learning.stack import Stack
from hybridseq.tasks.multi_key_recall import MultiKeyRecall
from hybridseq.tasks.selective_copying import SelectiveCopying

needs_native = pytest.mark.skipif(not native.available("float64"), reason=native.why_not("float64") or "available")

RECALL = MultiKeyRecall(8, 2, skip_first=True)
TASKS = {
    "recall": Framed(RECALL),
    "recall, marked": Framed(RECALL, marked=True),
    "recall, all keys, marked": Framed(MultiKeyRecall(3, 3, skip_first=False), seq_len=37, marked=True),
    "recall, all keys": Framed(MultiKeyRecall(3, 3, skip_first=False), seq_len=37),
    "recall, single tokens": Framed(MultiKeyRecall(5, 1, skip_first=True), seq_len=24, content_len=10),
    "copying, previous": Framed(SelectiveCopying(5, 26, count_from="previous", first_number=5)),
    "copying, marked": Framed(SelectiveCopying(5, 26, count_from="previous", first_number=5), content_len=60, marked=True),
    "copying, current": Framed(SelectiveCopying(5, 26, count_from="current", first_number=5)),
    "copying, denser": Framed(SelectiveCopying(2, 3, count_from="current"), seq_len=31, content_len=20, density=0.4),
}


def stack(name: str, width: int = 12, **options) -> Stack:
    return Stack.parse(name, width=width, vocab_size=11, **options)


def far_from_the_start(stack: Stack) -> np.ndarray:
    return stack.initial(1) + 0.15 * np.random.default_rng(0).standard_normal(stack.size)


def gradients(stack: Stack, seq_len: int = 100, dropout: float = 0.1):
    """Loss and gradient of the plain module, native double, native float."""
    framed = Framed(RECALL, seq_len=seq_len)
    flat = far_from_the_start(stack)
    tokens, labels = framed.training_batch(1, 2)
    keep = dropout_keep(1, 2, seq_len, stack.width, dropout) / (1 - dropout) if dropout else None
    return (
        plain.loss_and_gradient(stack, flat, tokens, labels, keep),
        native.loss_and_gradient(stack, flat, tokens, labels, keep),
        native.loss_and_gradient(stack, flat.astype(np.float32), tokens, labels, keep),
    )


def assert_equal_gradients(stack: Stack, **options):
    (loss, gradient), double, single = gradients(stack, **options)
    for (got_loss, got), tolerance in ((double, 1e-12), (single, 1e-4)):
        assert abs(got_loss - loss) < tolerance
        for name, part in stack.unpack(gradient).items():  # each tensor against its own size
            assert np.abs(stack.unpack(got)[name] - part).max() <= tolerance * np.abs(part).max(), name


# ------------------------------------------------------------------------------------------------------------- availability


def test_a_machine_with_a_compiler_has_the_native_step():
    """No silent skip: where it can be built and run, it must have been."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    cpu = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
    if platform.system() != "Linux" or not compiler or not {"avx2", "fma"} <= set(cpu):
        pytest.skip("no C compiler, or no AVX2 here")
    assert native.available("float32"), native.why_not("float32")
    assert native.available("float64"), native.why_not("float64")


@needs_native
def test_a_library_of_another_source_is_refused(monkeypatch):
    monkeypatch.setattr(native, "source_hash", lambda: "0" * 16)
    native._load.cache_clear()
    try:
        assert not native.available()
        assert "another version" in native.why_not() and "build_ext --inplace" in native.why_not()
        with pytest.raises(RuntimeError, match="not available"):
            native.train(Run(stack("TF"), TASKS["recall"], Recipe(), 0, 0.01), steps=1)
    finally:
        monkeypatch.undo()
        native._load.cache_clear()
    assert native.available()


def test_a_library_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setitem(native.LIBRARIES, "float32", "_step_missing.so")
    native._load.cache_clear()
    try:
        assert not native.available() and "_step_missing.so is missing" in native.why_not()
    finally:
        monkeypatch.undo()
        native._load.cache_clear()


def test_the_hash_reads_every_file_and_the_flags(tmp_path):
    for name in FILES:
        (tmp_path / name).write_bytes((Path(native.__file__).parent / name).read_bytes())
    start = source_hash(tmp_path)
    assert start == source_hash()
    for name in FILES:
        before = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(before + b"\n")
        assert source_hash(tmp_path) != start
        (tmp_path / name).write_bytes(before)
    assert "-march=x86-64-v3" in flags("x86_64") and not any("march" in flag for flag in flags("aarch64"))
    assert "-ffast-math" not in flags()


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_the_source_compiles_without_a_warning(tmp_path):
    source = Path(native.__file__).parent / "step.c"
    for dtype in ([], ["-DDOUBLE"]):
        command = ["gcc", *flags(), "-O0", "-Wall", "-Wextra", "-Wno-psabi", "-Werror", *dtype, "-c", source, "-o"]
        done = subprocess.run([*command, tmp_path / "step.o"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------------------------------------------------------------- data


@needs_native
@pytest.mark.parametrize("framed", TASKS.values(), ids=TASKS)
def test_batches_equal_numpy(framed):
    for seed, step in ((0, 0), (1, 7), (2**31 - 1, 3999)):
        for got, expected in zip(native.batch(framed, seed, step), framed.training_batch(seed, step), strict=True):
            np.testing.assert_array_equal(got, expected)
    for index in (0, 127):
        for got, expected in zip(native.evaluation_batch(framed, index), framed.evaluation_batch(index), strict=True):
            np.testing.assert_array_equal(got, expected)


@needs_native
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5])
def test_dropout_equals_numpy(rate):
    np.testing.assert_array_equal(native.dropout_keep(3, 4, 31, 5, rate), dropout_keep(3, 4, 31, 5, rate))


# ----------------------------------------------------------------------------------------------------------------- gradients


@needs_native
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("width", [4, 12, 24])
@pytest.mark.parametrize("name", ["SSM-TF", "TF-SSM", "TF-TF", "SSM-SSM"])
def test_gradients_equal_the_plain_module(name, width, window):
    assert_equal_gradients(stack(name, width, window=window), seq_len=100 if width == 12 else 40)


@needs_native
@pytest.mark.parametrize(
    ("name", "options", "seq_len"),
    [
        ("SSM-TF-SSM", {"width": 8}, 40),
        ("TF-TF", {"width": 8, "heads": 4}, 40),
        ("TF-SSM", {"width": 16, "heads": 4, "head_width": "split", "window": 7}, 40),
        ("SSM-SSM", {"state_dim": 4}, 40),
        ("SSM-TF", {"state_dim": 1}, 40),
        ("SSM-TF", {"state_dim": 19, "convolution": False}, 40),
        ("SSM-TF", {}, 37),  # no multiple of the tile of four positions
        ("TF-SSM", {"width": 20, "tied": False}, 30),
        ("SSM-TF", {"width": 6, "heads": 3, "window": 1, "rotary": "rotation"}, 22),
        ("TF-SSM", {"width": 5, "rotary": "none"}, 15),
    ],
)
def test_gradients_of_every_option(name, options, seq_len):
    assert_equal_gradients(stack(name, **options), seq_len=seq_len)


@needs_native
@pytest.mark.parametrize("width", [4, 8, 12, 16, 20, 24])
def test_every_rotary_width(width):
    """One to six turned columns; an odd number is no rotation."""
    assert_equal_gradients(stack("TF", width), seq_len=24, dropout=0)


@needs_native
def test_long_steps_and_fast_decays_stay_exact():
    """exp(dt A) leaves the range of normal numbers: the guarded path of the scan."""
    one = stack("SSM", 4)
    flat = one.initial(0)
    one.unpack(flat)["0.dt_proj.bias"][:] = 15
    tokens, labels = Framed(RECALL, seq_len=40).training_batch(0, 0)
    loss, gradient = plain.loss_and_gradient(one, flat, tokens, labels)
    for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-4)):
        got_loss, got = native.loss_and_gradient(one, flat.astype(dtype), tokens, labels)
        assert abs(got_loss - loss) < tolerance
        assert np.abs(got - gradient).max() < tolerance * np.abs(gradient).max()


@needs_native
def test_a_wrong_parameter_is_noticed():
    """Mutation of the comparison itself: one weight moved by 1e-6 breaks the 1e-12 agreement."""
    one = stack("SSM-TF")
    flat = far_from_the_start(one)
    tokens, labels = TASKS["recall"].training_batch(0, 0)
    _, gradient = native.loss_and_gradient(one, flat, tokens, labels)
    flat[one.offsets["0.x_proj.weight"]] += 1e-6
    _, other = native.loss_and_gradient(one, flat, tokens, labels)
    assert np.abs(other - gradient).max() > 1e-12 * np.abs(gradient).max()


@needs_native
def test_logits_equal_the_plain_module():
    from hybridseq.learning.modules import Decoder

    one = stack("SSM-TF", window=9)
    flat = one.initial(3)
    tokens, _ = TASKS["recall"].training_batch(0, 0)
    expected = Decoder(one, flat, "float64")(tokens).detach().numpy()
    np.testing.assert_allclose(native.logits(one, flat, tokens), expected, rtol=0, atol=1e-13)


# ------------------------------------------------------------------------------------------------------------------ training


@needs_native
@pytest.mark.parametrize("name", ["SSM-TF", "TF-TF"])
def test_120_steps_equal_the_plain_trainer(name):
    run = Run(stack(name, 4), Framed(RECALL, seq_len=20), Recipe(steps=120, warm_up=20), seed=0, learning_rate=0.01)
    slow, fast = plain.train(run, dtype="float64"), native.train(run, dtype="float64")
    assert np.abs(slow.losses - fast.losses).max() < 1e-12
    assert np.abs(slow.parameters - fast.parameters).max() < 1e-12 * np.abs(slow.parameters).max() * 10
    assert (slow.correct, slow.valid) == (fast.correct, fast.valid)


@needs_native
def test_a_shorter_run_is_the_beginning_of_a_longer_one():
    run = Run(stack("SSM-TF", 4), TASKS["recall"], Recipe(steps=130, warm_up=20), 5, 0.01)
    seen = {}
    whole, part = native.train(run), native.train(run, steps=70, record=lambda i, loss: seen.__setitem__(i, loss))
    np.testing.assert_array_equal(part.losses, whole.losses[:70])
    assert list(seen) == list(range(70)) and list(seen.values()) == part.losses.tolist()
    assert whole.parameters.dtype == np.float32 and whole.losses.shape == (130,) and whole.backend == "native"


@needs_native
def test_given_parameters_are_where_it_starts():
    run = Run(stack("TF", 4), TASKS["recall"], Recipe(steps=10, warm_up=1), 0, 0.01)
    start = run.stack.initial(9)
    same = native.train(run, parameters=start, steps=0)
    np.testing.assert_array_equal(same.parameters, start.astype(np.float32))
    assert native.train(run, parameters=start, steps=1).losses[0] != native.train(run, steps=1).losses[0]
    assert same.correct / same.valid == same.accuracy


@needs_native
@pytest.mark.parametrize("name", ["SSM-TF", "TF-SSM"])
def test_threads_give_the_same_bits(name):
    runs = [Run(stack(name, 8, window=20), TASKS["recall"], Recipe(steps=60, warm_up=10), seed, 0.01) for seed in range(4)]
    serial = [native.train(run) for run in runs]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(native.train, runs))
    for a, b in zip(serial, together, strict=True):
        assert a.parameters.tobytes() == b.parameters.tobytes() and a.losses.tobytes() == b.losses.tobytes()
        assert a.correct == b.correct


@needs_native
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["embedding", "0.A_log", "1.qkv.weight", "norm.bias"])
def test_nan_never_scores(name, dtype):
    one = stack("SSM-TF", 4)
    flat = one.initial(0).astype(dtype)
    one.unpack(flat)[name].flat[:] = np.nan
    correct, valid = native.evaluate(one, flat, TASKS["recall"], batches=2)
    assert correct == 0 and valid > 0
    tokens, labels = TASKS["recall"].training_batch(0, 0)
    loss, _ = native.loss_and_gradient(one, flat, tokens, labels)
    assert np.isnan(loss)


@needs_native
def test_equal_logits_do_not_score():
    one = stack("TF", 4)
    flat = np.zeros(one.size, dtype=np.float32)
    assert native.evaluate(one, flat, TASKS["recall"], batches=1)[0] == 0


@needs_native
def test_evaluation_equals_the_plain_one():
    one = Stack.parse("SSM-TF", width=8, vocab_size=34, window=20)
    framed = TASKS["copying, current"]
    flat = native.train(Run(one, framed, Recipe(steps=200, warm_up=20), 0, 0.01), dtype="float64").parameters
    assert native.evaluate(one, flat, framed, batches=4) == plain.evaluate(one, flat, framed, batches=4)


@needs_native
def test_memory_of_a_replica():
    for name in ("SSM-TF", "SSM-SSM", "TF-TF"):
        assert native.work_bytes(Stack.parse(name, width=24, vocab_size=34), seq_len=100) <= 6 * 2**20


@needs_native
def test_the_smallest_copying_hybrid_learns_the_task():
    """Selective copying, width 8, window 20 (2,192 parameters): solved, as in the paper."""
    one = Stack.parse("SSM-TF", width=8, vocab_size=34, window=20)
    outcome = native.train(Run(one, TASKS["copying, previous"], Recipe(), 0, 0.01))
    assert outcome.accuracy > 0.995


# ------------------------------------------------------------------------------------------------------------------- refusals


def test_what_it_does_not_reach_is_said():
    run = Run(stack("SSM-TF", 4), TASKS["recall"], Recipe(), 0, 0.01)
    assert native.supports(run) is None
    assert "GDN" in native.supports(replace(run, stack=stack("GDN-TF", 4)))
    assert "batch=4" in native.supports(replace(run, recipe=Recipe(batch=4)))


@needs_native
def test_bad_input():
    one, framed = stack("TF", 4), TASKS["recall"]
    flat = one.initial(0)
    run = Run(one, framed, Recipe(steps=10, warm_up=1), 0, 0.01)
    tokens, labels = framed.training_batch(0, 0)
    refused = [
        ("layers GLA", lambda: native.evaluate(stack("GLA", 4), stack("GLA", 4).initial(0), framed)),
        ("use the ensemble", lambda: native.train(replace(run, recipe=Recipe(batch=4)), steps=1)),
        ("steps=11", lambda: native.train(run, steps=11)),
        ("dtype='float16'", lambda: native.train(run, dtype="float16")),
        ("flat: shape", lambda: native.train(run, parameters=flat[1:])),
        ("flat: dtype", lambda: native.evaluate(one, flat.astype(int), framed)),
        ("vocab_size=12", lambda: native.evaluate(Stack.parse("TF", width=4, vocab_size=12), flat, framed)),
        ("batches=129", lambda: native.evaluate(one, flat, framed, batches=129)),
        ("tokens: needs", lambda: native.loss_and_gradient(one, flat, tokens[:3], labels[:3])),
        ("tokens: values", lambda: native.loss_and_gradient(one, flat, tokens + 5, labels)),
        ("labels: needs", lambda: native.loss_and_gradient(one, flat, tokens, labels[:, 1:])),
        ("all positions are masked", lambda: native.loss_and_gradient(one, flat, tokens, labels * 0 - 1)),
        ("do not say the dropout rate", lambda: native.loss_and_gradient(one, flat, tokens, labels, np.ones((8, 100, 4), bool))),
        ("keep: needs", lambda: native.loss_and_gradient(one, flat, tokens, labels, np.ones((8, 4, 100)))),
        ("rate=1", lambda: native.dropout_keep(0, 0, 4, 4, 1)),
    ]
    for message, call in refused:
        with pytest.raises(ValueError, match=message):
            call()


def test_importing_it_needs_no_torch():
    done = subprocess.run(
        [sys.executable, "-c", "import sys, hybridseq.learning.native; sys.exit('torch' in sys.modules)"], check=False
    )
    assert done.returncode == 0


@needs_native
def test_a_batch_without_any_label_is_refused_as_by_the_other_trainers():
    task = Framed(SelectiveCopying(1, 3, count_from="previous", first_number=5), seq_len=4, density=1.0)
    run = Run(Stack.parse("TF", width=4, vocab_size=task.vocab_size), task, Recipe(steps=3, warm_up=1), 0, 0.01)
    for trainer in (native, plain):
        with pytest.raises(ValueError, match="masked"):
            trainer.train(run)


@needs_native
def test_a_library_of_the_other_precision_is_refused(monkeypatch):
    monkeypatch.setitem(native.LIBRARIES, "float32", native.LIBRARIES["float64"])
    native._load.cache_clear()
    try:
        assert "another precision" in native.why_not("float32")
    finally:
        monkeypatch.undo()
        native._load.cache_clear()
