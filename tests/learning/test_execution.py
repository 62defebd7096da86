"""Training the cells of a sweep: resuming, interrupts and kills, workers that die, stale runs, clusters."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from hybridseq.learning import execution
from hybridseq.learning.execution import Execution, Workers, spread
from hybridseq.learning.storage import Folder, Locked, read_representative, read_results, rows_from_csv


@pytest.fixture
def folder(tmp_path) -> Folder:
    return Folder(tmp_path / "small")


@pytest.fixture
def execute(small_sweep, formula_train, code_of, folder):
    """An execution of the small sweep in this process; `changes` as in `Execution`."""

    def make(sweep=None, train=None, **changes) -> Execution:
        changes = {"code_of": code_of, "workers": Workers(1)} | changes
        return Execution(sweep or small_sweep(), changes.pop("folder", folder), train or formula_train, **changes)

    return make


def counting(train):
    """The trainer, and the list of runs that it was asked for."""
    asked = []

    def counted(run):
        asked.append((run.stack.name, run.stack.width, run.seed, run.learning_rate))
        return train(run)

    return counted, asked


# A whole sweep
def test_a_sweep_trains_every_cell_once_and_tells_what_it_wrote(execute, formula_train, folder):
    train, asked = counting(formula_train)
    summary = execute(train=train).run()
    assert (summary.done, summary.of, summary.trained, summary.stopped, summary.problems) == (36, 36, 36, "", [])
    assert len(asked) == 37  # the representative run is trained once more, for its parameters
    assert len(set(asked)) == 36
    stored = rows_from_csv(folder.runs.read_text(encoding="utf-8"))
    assert len(stored) == 36
    assert {row.learning_rate for row in stored if row.role == "report"} == {0.01}
    manifest = folder.manifest()
    assert manifest["complete"] is True
    assert manifest["cells"] == {"done": 36, "of": 36}
    (session,) = manifest["sessions"]
    assert (session["jobs"], session["trained"], session["machine"]) == (1, 36, 0)
    assert manifest["config"]["rule"] == "mean accuracy"


def test_the_order_is_the_declared_one(execute, formula_train):
    train, asked = counting(formula_train)
    execute(train=train).run()
    assert [f"{name}-{width}" for name, width, *_ in asked[:6]] == ["SSM-TF-4"] * 6
    assert [seed for _, _, seed, _ in asked[:2]] == [0, 0]
    assert asked.index(("TF-TF", 8, 0, 0.001)) > asked.index(("SSM-TF", 4, 100, 0.01))


def test_a_second_run_trains_nothing(execute, formula_train, folder):
    execute().run()
    before = folder.runs.read_bytes(), folder.manifest_path.read_bytes()
    train, asked = counting(formula_train)
    summary = execute(train=train, command="hybridseq sweep small --jobs 3").run()
    assert (summary.done, summary.trained, asked) == (36, 0, [])
    assert (folder.runs.read_bytes(), folder.manifest_path.read_bytes()) == before


def test_the_representative_is_kept_and_was_trained_twice(execute, folder):
    events = []
    execute(report=lambda event, info: events.append((event, info))).run()
    kept = read_representative(folder.representative_path)
    assert (kept.row.label, kept.row.seed, kept.row.role) == ("TF-TF-4", 101, "report")
    assert kept.parameters.size == kept.stack.size
    assert any("came out the same, digit for digit" in info.get("text", "") for event, info in events if event == "note")


def test_a_representative_that_cannot_be_repeated_is_said(execute, formula_train, folder):
    calls = {}

    def train(run):
        calls[run.key] = calls.get(run.key, 0) + 1
        outcome = formula_train(run)
        return replace(outcome, correct=outcome.correct - 1) if calls[run.key] > 1 else outcome

    events = []
    execute(train=train, report=lambda event, info: events.append(info)).run()
    assert any("NOT the same as the stored run" in info.get("text", "") for info in events)
    assert json.loads(folder.representative_path.read_text())["trained_again"]["same"] is False


# Parts of a sweep
def test_points_and_phases_can_be_asked_for_alone(execute, small_sweep, folder, code_of):
    sweep = small_sweep()
    assert execute(points=sweep.select_points("TF-TF"), roles=("select",)).run().done == 12
    assert {(row.layers, row.role) for row in folder.rows()} == {("TF-TF", "select")}
    assert execute(roles=("report",)).run().done == 18
    assert {row.label for row in folder.rows() if row.role == "report"} == {"TF-TF-4", "TF-TF-8"}
    assert folder.manifest()["missing"] == {"SSM-TF-4": 9, "SSM-TF-8": 9}
    assert "hybridseq sweep small" in read_results(sweep, folder.path.parent, code_of).notice


def test_a_limit_begins_no_further_run(execute, formula_train):
    def slow(run):
        time.sleep(0.05)
        return formula_train(run)

    summary = execute(train=slow, limit_s=0.2).run()
    assert summary.stopped == "limit"
    assert 1 <= summary.done < 36
    assert execute().run().done == 36
    late = execute(limit_s=1e-9).run()
    assert (late.done, late.stopped) == (36, "")  # nothing was left to do
    with pytest.raises(ValueError, match="limit: 0 minutes; must be > 0"):
        execute(limit_s=0)


def test_a_fresh_copy_of_the_project_goes_on_from_runs_csv(execute, formula_train, folder, tmp_path):
    execute(roles=("select",)).run()
    copy = Folder(tmp_path / "copy" / "small")
    for name in ("runs.csv", "manifest.json"):
        copy.path.mkdir(parents=True, exist_ok=True)
        (copy.path / name).write_bytes((folder.path / name).read_bytes())
    train, asked = counting(formula_train)
    summary = execute(train=train, folder=copy).run()
    assert (summary.done, summary.trained) == (36, 12)
    assert {seed for *_, seed, _ in asked} == {100, 101, 102}


# Runs that fail
def test_a_run_that_raises_is_reported_and_the_others_go_on(execute, formula_train, folder):
    def train(run):
        if run.seed == 1 and run.stack.name == "TF-TF" and run.stack.width == 4:
            raise RuntimeError("the moon was full")
        return formula_train(run)

    summary = execute(train=train).run()
    assert summary.done == 36 - 3 - 3  # three rates, and three reported runs that have to wait
    assert len(summary.problems) == 3
    assert "TF-TF-4, learning rate 0.001, seed 1 (select): RuntimeError: the moon was full" in summary.problems[0]
    assert execute().run().done == 36


def test_a_diverged_run_is_a_result(execute, formula_train, folder):
    def train(run):
        outcome = formula_train(run)
        if run.learning_rate < 0.05:
            return outcome
        return replace(outcome, losses=outcome.losses * math.nan, correct=0, accuracy=0.0)

    assert execute(train=train).run().done == 36
    worst = [row for row in folder.rows() if row.learning_rate > 0.05]
    assert {repr(row.final_loss) for row in worst} == {"nan"}


def test_sources_that_change_during_the_run_stop_it(execute, formula_train, folder):
    """Once the worker finds other code than the writer, no row is kept under either name."""
    codes = iter(["c0de00000001"] * 4)
    with pytest.raises(ValueError, match="trained by code c0de00000001, but the code here is c0de00000002"):
        execute(code_of=lambda backend, task: next(codes, "c0de00000002")).run()
    assert not any(row.code == "c0de00000002" for row in folder.rows())


# Stale runs
def old_code(code_of):
    return lambda backend, task: code_of(backend, task).replace("1", "0")


def test_stale_runs_stop_the_sweep_and_nothing_is_lost(execute, code_of, folder):
    execute(code_of=old_code(code_of)).run()
    before = folder.runs.read_bytes()
    with pytest.raises(ValueError, match=r"small: 36 stored runs are stale.*--renew 4.*--fresh"):
        execute().run()
    assert folder.runs.read_bytes() == before


def test_fresh_puts_stale_runs_aside(execute, code_of, folder):
    execute(code_of=old_code(code_of)).run()
    aside = execute().fresh()
    assert len(rows_from_csv(aside.read_text())) == 36
    assert execute().run().trained == 36
    assert {row.code for row in folder.rows()} == {"c0de00000001"}
    assert len(rows_from_csv(aside.read_text())) == 36


def test_renew_keeps_what_comes_out_digit_for_digit(execute, code_of, formula_train, folder):
    execute(code_of=old_code(code_of)).run()
    train, asked = counting(formula_train)
    summary = execute(train=train).renew(4)
    assert (summary.trained, len(asked), summary.done, summary.problems) == (4, 4, 36, [])
    assert {row.code for row in folder.rows()} == {"c0de00000001"}
    (renewed,) = folder.manifest()["renewed"]
    assert (renewed["rows"], len(renewed["compared"]), renewed["to"]) == (36, 4, ["c0de00000001"])
    assert execute(train=train).run().trained == 0
    assert len(folder.manifest()["renewed"]) == 1


def test_renew_changes_nothing_when_a_run_differs(execute, code_of, formula_train, folder):
    execute(code_of=old_code(code_of)).run()
    before = folder.runs.read_bytes()
    summary = execute(train=lambda run: replace(formula_train(run), correct=7)).renew(2)
    assert len(summary.problems) == 2
    assert "7 by code c0de00000001" in summary.problems[0]
    assert folder.runs.read_bytes() == before
    with pytest.raises(ValueError, match="renew=0: must be >= 1"):
        execute().renew(0)


def test_runs_to_compare_are_spread_over_the_points(execute, folder):
    execute().run()
    chosen = spread(folder.rows(), 4)
    assert {(row.layers, row.width) for row in chosen} == {("SSM-TF", 4), ("SSM-TF", 8), ("TF-TF", 4), ("TF-TF", 8)}
    assert len(spread(folder.rows(), 100)) == 36


# Two writers
def test_two_sweeps_into_one_folder_are_refused(execute, folder):
    with folder.lock(), pytest.raises(Locked, match=f"process {os.getpid()} on"):
        execute().run()


# Processes. The script is a sweep of its own with a trainer that takes its time.
SCRIPT = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import make_sweep
from hybridseq.learning import execution
from hybridseq.learning.execution import Execution, Workers
from hybridseq.learning.storage import Folder

def train(run):
    import os, signal, time
    from pathlib import Path
    import numpy as np
    from hybridseq.learning.recipe import Outcome
    time.sleep({seconds})
    marker = Path({marker!r})
    if run.seed == 1 and run.learning_rate == 0.01 and run.stack.name == "TF-TF" and {marker!r} and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return Outcome(run.stack.initial(0), np.ones(run.recipe.steps), run.seed, 1000, run.seed / 1000, {seconds}, "formula")

def told(event, info):
    print(event, info.get("text", ""), flush=True)

if __name__ == "__main__":
    import signal
    def code(backend, task):
        if backend != "formula":
            raise ValueError(backend)
        return "c0de00000001"
    workers = Workers({jobs})
    summary = Execution(make_sweep(), Folder(Path(sys.argv[2])), train, code_of=code, workers=workers, report=told).run()
    print("summary", summary.done, summary.of, summary.stopped, summary.problems, flush=True)
"""


@pytest.fixture
def start(tmp_path, folder, monkeypatch) -> Iterator:
    """Start the script; everything that it started ends with the test."""
    started = []

    def begin(seconds: float, jobs: int = 2, marker: str = "") -> subprocess.Popen:
        path = tmp_path / "script.py"
        path.write_text(SCRIPT.format(seconds=seconds, jobs=jobs, marker=marker), encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, str(path), str(Path(__file__).parent), str(folder.path)], stdout=subprocess.PIPE, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until(met, otherwise: str, limit_s: float = 60) -> None:
    until = time.monotonic() + limit_s
    while not met():
        assert time.monotonic() < until, otherwise
        time.sleep(0.02)


def wait_for_cells(folder: Folder, count: int) -> None:
    wait_until(lambda: len(list(folder.journal.glob("*.json"))) >= count, "the sweep made no progress")


def children(pid: int) -> list[int]:
    """Processes that `pid` has started and that train (Linux)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def test_a_kill_loses_no_finished_cell(start, folder, execute):
    process = start(0.1)
    wait_for_cells(folder, 5)
    workers = children(process.pid)
    process.kill()
    process.wait()
    assert len(workers) >= 2
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "its workers go on without it")
    finished = {path.name for path in folder.journal.glob("*.json")}
    assert len(folder.rows()) == len(finished) >= 5
    again = start(0.0)
    out, _ = again.communicate(timeout=60)
    assert "was killed; going on from what it finished" in out
    assert "summary 36 36  []" in out
    assert out.count("cell ") == 36 - len(finished)
    assert len(rows_from_csv(folder.runs.read_text())) == 36


@pytest.mark.parametrize(("number", "jobs"), [(signal.SIGINT, 1), (signal.SIGINT, 2), (signal.SIGTERM, 2)])
def test_an_interrupt_ends_soon_and_writes_what_is_finished(start, folder, number, jobs):
    process = start(0.3, jobs)
    wait_for_cells(folder, 3)
    os.kill(process.pid, number)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0, out
    assert " 36 interrupted []" in out
    finished = len(list(folder.journal.glob("*.json")))
    assert 3 <= finished < 36
    assert len(rows_from_csv(folder.runs.read_text())) == finished
    assert folder.manifest()["cells"]["done"] == finished


def test_an_interrupt_of_the_whole_group_prints_no_traceback(start, folder):
    """Ctrl-C on a terminal reaches the workers too."""
    process = start(0.3)
    wait_for_cells(folder, 3)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert " 36 interrupted []" in out
    assert "Traceback" not in out


def test_a_killed_worker_is_reported_and_its_cells_are_trained(start, folder, tmp_path):
    process = start(0.0, marker=str(tmp_path / "killed"))
    out, _ = process.communicate(timeout=90)
    assert (tmp_path / "killed").exists()
    assert "a worker was killed" in out
    assert "summary 36 36  []" in out


def test_workers_that_die_again_and_again_end_the_sweep(execute, folder):
    def train(run):
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)

    def code(backend, task):
        raise ValueError

    summary = execute(train=train, code_of=code, workers=Workers(2)).run()
    assert "workers were killed 3 times without finishing a run" in summary.problems[0]
    assert "fewer --jobs" in summary.problems[0]


@pytest.mark.parametrize("jobs", [0, -1, True, 1.5])
def test_jobs_below_one_are_refused(jobs):
    with pytest.raises(ValueError, match="jobs="):
        Workers(jobs)


# A cluster
def formula_code(backend, task):
    if backend != "formula":
        raise ValueError(backend)
    return "c0de00000001"


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    local = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50)
    yield local.scheduler_address
    local.close()


def copied(function):
    """A function that workers get as a copy: they cannot import a test."""
    from types import FunctionType

    return FunctionType(function.__code__, {"__builtins__": __builtins__}, "copied_function")


def test_a_sweep_on_a_cluster_of_two_gives_the_same_rows(cluster, execute, formula_train, folder, tmp_path):
    alone = Folder(tmp_path / "alone" / "small")
    assert execute(folder=alone).run().done == 36
    workers = Workers(cluster=cluster)
    assert workers.jobs == 2
    try:
        summary = execute(workers=workers, code_of=copied(formula_code)).run()
    finally:
        workers.close()
    assert (summary.done, summary.problems) == (36, [])
    assert folder.runs.read_bytes() == alone.runs.read_bytes()


def test_a_cluster_that_does_not_answer_is_named(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(execution, "_CONNECT_S", 1)
    with pytest.raises(ValueError, match=r"cluster='tcp://127.0.0.1:1': no scheduler with a worker answers"):
        Workers(cluster="tcp://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match=r"Dask is not installed; `pip install 'hybridseq\[cluster\]'`"):
        Workers(cluster="local")


@pytest.mark.parametrize("address", ["nonsense", "tcp://host", ":"])
def test_a_cluster_that_is_no_address_is_refused_at_once(address):
    started = time.monotonic()
    with pytest.raises(ValueError, match=r"cluster=.*such as tcp://host:8786"):
        Workers(1, address)
    assert time.monotonic() - started < 5
