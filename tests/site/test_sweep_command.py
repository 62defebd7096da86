"""`hybridseq sweep`: the list, the plan, training, going on, and what wrong input gets to read."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from hybridseq.learning import catalogue, native
from hybridseq.learning.batches import Framed
from hybridseq.learning.recipe import Recipe
from hybridseq.learning.storage import Folder, rows_from_csv
from hybridseq.learning.sweep import Sweep
from hybridseq.site import doctor, sweeps
from hybridseq.site.book import Book
from hybridseq.site.cli import main
from hybridseq.site.sweeps import SweepProgress, finish_command, minutes
from hybridseq.tasks.multi_key_recall import MultiKeyRecall


def tiny_sweep() -> Sweep:
    """Real runs of real models, two steps each."""
    task = Framed(MultiKeyRecall(3, 1, skip_first=True), seq_len=8)
    points = catalogue.points(task, ("TF-TF", "SSM-TF"), (4,))
    return Sweep("tiny", "Two steps", points, (0.001, 0.01), (0, 1), (100, 101), Recipe(steps=2, warm_up=1), rule="mean accuracy",
                 representative="TF-TF-4")


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """The catalogue holds one more sweep."""
    monkeypatch.setitem(catalogue._SWEEPS, "tiny", tiny_sweep)
    monkeypatch.setattr(catalogue, "SWEEPS", ("tiny", "b-fig-6"))
    catalogue._made.cache_clear()
    yield
    catalogue._made.cache_clear()


@pytest.fixture
def sweep(tmp_path):
    """The command, with its results in a folder of the test."""

    def command(*words: str) -> Result:
        return CliRunner().invoke(main, ["sweep", "--results", str(tmp_path), *words])

    return command


def test_the_list_says_how_far_each_sweep_is_and_what_it_costs(sweep):
    listed = sweep("--list")
    assert listed.exit_code == 0
    lines = listed.stdout.splitlines()
    assert re.search(r"^tiny +0 of 12 +0 core-minutes +Two steps$", lines[1])
    assert re.search(r"^b-fig-6 +0 of 1848 +\d+ core-minutes", lines[2])


def test_a_dry_run_shows_the_plan_and_writes_nothing(sweep, tmp_path):
    planned = sweep("b-fig-6", "--dry-run", "--points", "TF-TF", "--jobs", "2", "--backend", "plain")
    assert planned.exit_code == 0
    assert planned.stdout.count("0/44      0/33") == 6
    assert "0 of 1848 runs done. To train: " in planned.stdout
    assert "with --jobs 2" in planned.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("backend", ["plain", "ensemble", "auto"])
def test_a_sweep_trains_and_then_has_nothing_to_do(sweep, tmp_path, backend):
    trained = sweep("tiny", "--jobs", "1", "--backend", backend)
    assert trained.exit_code == 0, trained.output
    assert "tiny: 12 of 12 runs, 12 of them now" in trained.stdout
    rows = rows_from_csv((tmp_path / "tiny" / "runs.csv").read_text(encoding="utf-8"))
    assert len(rows) == 12
    assert {row.steps for row in rows} == {2}
    if backend != "auto":
        assert {row.backend for row in rows} == {backend}
    assert json.loads((tmp_path / "tiny" / "representative.json").read_text())["row"]["label"] == "TF-TF-4"
    again = sweep("tiny", "--jobs", "1", "--backend", backend)
    assert "12 of 12 runs, 0 of them now" in again.stdout
    assert "complete" in sweep("--list").stdout


def test_a_part_is_named_as_a_part_with_the_command_for_the_whole(sweep, tmp_path):
    part = sweep("tiny", "--jobs", "1", "--backend", "plain", "--points", "TF-TF", "--phase", "select")
    assert part.exit_code == 0
    assert "tiny: 4 of 12 runs" in part.stdout
    assert "The whole of it: hybridseq sweep tiny" in part.stdout
    manifest = json.loads((tmp_path / "tiny" / "manifest.json").read_text())
    words = "--points TF-TF --phase select --jobs 1 --backend plain --results"
    assert manifest["command"] == f"hybridseq sweep tiny {words} {tmp_path}"
    assert manifest["finish"] == "hybridseq sweep tiny"
    assert manifest["sources"]["learning/plain.py"]


@pytest.mark.skipif(not native.available(), reason="the native trainer is not built here")
def test_what_native_and_plain_train_is_not_mixed_up(sweep, tmp_path):
    sweep("tiny", "--jobs", "1", "--backend", "native", "--phase", "select")
    rows = rows_from_csv((tmp_path / "tiny" / "runs.csv").read_text(encoding="utf-8"))
    assert {row.backend for row in rows} == {"native"}
    manifest = json.loads((tmp_path / "tiny" / "manifest.json").read_text())
    assert "learning/native/step.c" in manifest["sources"]
    assert "learning/plain.py" not in manifest["sources"]


def test_without_the_native_trainer_the_command_says_so(sweep, monkeypatch):
    monkeypatch.setattr(native, "why_not", lambda dtype="float32": "no compiler")
    monkeypatch.setattr(native, "available", lambda dtype="float32": False)
    planned = sweep("tiny", "--dry-run")
    assert "Slower than the native trainer: TF-TF-4, SSM-TF-4 on the ensemble trainer (not native: no compiler)" in planned.stdout
    refused = sweep("tiny", "--backend", "native")
    assert refused.exit_code == 2
    assert "TF-TF-4: backend='native': no compiler" in refused.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("b-fig6",), "sweep 'b-fig6': unknown (did you mean 'b-fig-6'?)"),
        ((), "sweep: name one of tiny, b-fig-6"),
        (("tiny", "--points", "TF-TF-5"), "point 'TF-TF-5': not in the sweep 'tiny' (did you mean 'TF-TF-4'?)"),
        (("tiny", "--backend", "nativ"), "backend='nativ': must be one of auto, native, ensemble, plain; did you mean 'native'?"),
        (("tiny", "--jobs", "0"), "jobs=0: must be an integer >= 1"),
        (("tiny", "--limit", "-1"), "limit: -1 minutes; must be > 0"),
        (("tiny", "--renew", "0"), "renew=0: must be >= 1"),
    ],
)
def test_wrong_input_names_argument_value_and_fix(sweep, words, message):
    refused = sweep(*words)
    assert refused.exit_code == 2
    assert message in refused.stderr


def test_an_unknown_phase_is_refused(sweep):
    refused = sweep("tiny", "--phase", "choose")
    assert refused.exit_code == 2
    assert "'select', 'report'" in refused.stderr


def test_a_folder_of_another_version_is_refused(sweep, tmp_path):
    Folder(tmp_path / "tiny").write([], {"format": 7, "config": {"name": "tiny"}})
    refused = sweep("tiny")
    assert refused.exit_code == 2
    assert "written in format 7" in refused.stderr
    assert "unreadable" in sweep("--list").stdout


def test_a_folder_in_use_is_refused(sweep, tmp_path):
    with Folder(tmp_path / "tiny").lock():
        refused = sweep("tiny", "--jobs", "1", "--backend", "plain")
    assert refused.exit_code == 1
    assert f"another sweep is writing here (process {os.getpid()} on" in refused.stderr


def make_stale(folder: Path) -> None:
    path = folder / "runs.csv"
    rows = rows_from_csv(path.read_text(encoding="utf-8"))
    path.write_text(path.read_text(encoding="utf-8").replace(rows[0].code, "0ther0000000"), encoding="utf-8")
    for journal in (folder / "journal").glob("*.json"):
        journal.unlink()


def test_stale_runs_are_shown_kept_and_renewed_or_put_aside(sweep, tmp_path):
    options = ("tiny", "--jobs", "1", "--backend", "plain")
    sweep(*options)
    make_stale(tmp_path / "tiny")
    planned = sweep("tiny", "--dry-run")
    assert re.search(r"stale: 12 runs, code 0ther0000000 of the plain trainer, now \w{12} \(SSM-TF-4, TF-TF-4\)", planned.stdout)
    refused = sweep(*options)
    assert refused.exit_code == 2
    assert "`hybridseq sweep tiny --renew 4`" in refused.stderr
    renewed = sweep(*options, "--renew", "2")
    assert renewed.exit_code == 0, renewed.output
    assert "2 runs trained again came out digit for digit; all 12 runs count under today's code" in renewed.stdout
    make_stale(tmp_path / "tiny")
    fresh = sweep(*options, "--fresh")
    assert "tiny: 12 of 12 runs, 12 of them now" in fresh.stdout
    assert "put aside: " in fresh.stderr


# Words
def test_times_left_in_words():
    assert [minutes(s) for s in (5, 90, 3600, 8000)] == ["1 min", "2 min", "60 min", "2 h 13 min"]


def test_the_command_that_goes_on_quotes_patterns():
    assert finish_command("x", {"--points": "TF-*", "--limit": 5.0}) == "hybridseq sweep x --points 'TF-*' --limit 5.0"


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_a_bar_on_a_terminal_and_a_line_a_minute_elsewhere(terminal, monkeypatch, tmp_path):
    """Time is told by hand: a cell every 20 seconds."""
    from hybridseq.learning.execution import BackendTrain, Execution, Workers

    now = [0.0]

    def monotonic():
        now[0] += 10
        return now[0]

    monkeypatch.setattr(sweeps.time, "monotonic", monotonic)
    console = Console(file=(tmp_path / "out").open("w", encoding="utf-8"), force_terminal=terminal, width=120, highlight=False)
    with SweepProgress(tiny_sweep(), console) as progress:
        Execution(tiny_sweep(), Folder(tmp_path / "tiny"), BackendTrain("plain"), workers=Workers(1), report=progress).run()
    console.file.close()
    out = (tmp_path / "out").read_text(encoding="utf-8")
    assert out.count("TF-TF-4: mean accuracy") == 1
    assert ("━" in out) is terminal
    lines = re.findall(r"\d+ of 12 runs, about \d+ min to go \(now", out)
    assert (len(lines) >= 2) is not terminal


# The doctor
def test_the_doctor_looks_at_the_native_step_and_the_sweeps(project_root, monkeypatch):
    monkeypatch.setattr(native, "why_not", lambda dtype="float32": "no compiler")
    monkeypatch.setattr(native, "available", lambda dtype="float32": False)
    finding = doctor.native_step()
    assert (finding.state, "no compiler" in finding.what) == ("note", True)
    (found,) = [f for f in doctor.sweeps(Book(project_root)) if f.state == "note"]
    assert "tiny (0 of 12 runs)" in found.what


@pytest.mark.parametrize("words", [("--jobs", "0"), ("--jobs", "-3"), ("--limit", "-1"), ("--limit", "nan"), ("--renew", "0"),
                                   ("--renew", "1", "--fresh")])
def test_a_dry_run_refuses_what_the_run_refuses(sweep, words):
    assert sweep("tiny", "--dry-run", *words).exit_code == 2


def test_the_command_that_goes_on_can_be_pasted():
    import shlex

    words = {"--points": "SSM-?,TF-[T]*", "--results": "a;b'c"}
    typed = ["--points", words["--points"], "--results", words["--results"]]
    assert shlex.split(finish_command("x", words)) == ["hybridseq", "sweep", "x", *typed]
