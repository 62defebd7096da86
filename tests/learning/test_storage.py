"""Results folders: rows as text, journal and runs.csv together, versions, the lock, the representative's parameters."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridseq.learning.storage import (
    COLUMNS,
    FORMAT,
    Folder,
    Locked,
    make_manifest,
    read_representative,
    read_results,
    representative_row,
    representative_to_json,
    results_root,
    rows_from_csv,
    rows_to_csv,
)
from hybridseq.learning.sweep import Cell, Row, Status

CODE = "c0de00000001"
CONTRACT = ("key role task label layers width parameters window heads state_dim learning_rate seed steps backend accuracy "
            "correct valid final_loss curve seconds code")


@pytest.fixture
def rows(small_sweep, formula_train) -> list[Row]:
    sweep = small_sweep()
    cells = [c for p in sweep.points for c in (*sweep.select_cells(p), *sweep.report_cells(p, 0.01))]
    return [Row.of(cell, formula_train(cell.run), CODE) for cell in cells]


@pytest.fixture
def folder(tmp_path) -> Folder:
    return Folder(tmp_path / "small")


# Rows as text
def test_the_columns_are_those_that_were_agreed():
    assert " ".join(COLUMNS) == CONTRACT


def test_rows_come_back_from_csv_and_are_sorted(rows):
    text = rows_to_csv(reversed(rows))
    assert text == rows_to_csv(rows)
    assert sorted(rows_from_csv(text), key=lambda r: r.key) == sorted(rows, key=lambda r: r.key)
    assert [r.width for r in rows_from_csv(text)] == sorted([4, 8] * 9) * 2


@given(st.floats(), st.floats(0, 1), st.none() | st.integers(1, 100))
def test_every_number_comes_back_exactly(loss, accuracy, window):
    row = Row("k" * 16, "select", "t", "l", "TF-TF", 4, 396, window, 1, 16, 10**-2.5, 3, 4000, "native", accuracy, 0, 0, loss,
              "2.1 nan", 1.5, CODE)
    (back,) = rows_from_csv(rows_to_csv([row]))
    assert repr(back) == repr(row)


def test_other_columns_are_refused_by_name(rows):
    text = rows_to_csv(rows).replace("seconds", "minutes")
    with pytest.raises(ValueError, match="missing: seconds; unknown: minutes"):
        rows_from_csv(text)
    with pytest.raises(ValueError, match="line 3: not a row"):
        rows_from_csv("\n".join([*rows_to_csv(rows).splitlines()[:2], "a,b"]))


# The folder
def test_journal_and_runs_csv_count_together(folder, rows):
    folder.write(rows[:3], {"format": FORMAT, "config": {"name": "small"}})
    for row in rows[2:6]:
        folder.add(row)
    assert {r.key for r in folder.rows()} == {r.key for r in rows[:6]}
    assert len(folder.rows()) == 6


def test_nothing_is_created_by_reading(folder, small_sweep, code_of):
    assert folder.rows() == []
    assert read_results(small_sweep(), folder.path.parent, code_of).rows == []
    assert not folder.path.exists()


def test_a_half_written_file_is_no_row_and_is_swept_up(folder, rows):
    folder.add(rows[0])
    half = folder.journal / f".{rows[1].key}-{CODE}.json.x8f"
    half.write_text('{"key": "', encoding="utf-8")
    assert folder.rows() == [rows[0]]
    with folder.lock():
        assert not half.exists()


def test_a_broken_journal_file_is_named(folder, rows):
    folder.add(rows[0])
    path = folder.journal / f"{rows[0].key}-{CODE}.json"
    path.write_text('{"key":', encoding="utf-8")
    with pytest.raises(ValueError, match=rf"{path.name}: not JSON"):
        folder.rows()


def test_a_folder_of_another_version_or_sweep_is_refused(folder):
    folder.write([], {"format": FORMAT + 1, "config": {"name": "small"}})
    with pytest.raises(ValueError, match=r"written in format 2, this version reads format 1; use .*--results"):
        folder.check("small")
    folder.write([], {"format": FORMAT, "config": {"name": "small"}})
    folder.check("small")
    with pytest.raises(ValueError, match="holds the sweep 'small', not 'other'"):
        folder.check("other")
    folder.manifest_path.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="not JSON"):
        folder.check("small")


def test_archived_rows_leave_and_are_kept(folder, rows):
    folder.write(rows[:4], {"format": FORMAT, "config": {"name": "small"}})
    folder.add(rows[4])
    first = folder.archive([rows[0], rows[4]])
    second = folder.archive([rows[1]])
    assert {r.key for r in folder.rows()} == {rows[2].key, rows[3].key}
    assert {r.key for path in (first, second) for r in rows_from_csv(path.read_text())} == {r.key for r in (*rows[:2], rows[4])}
    assert folder.archive([]) is None


# The lock
HOLD = """
import sys, time
from pathlib import Path
from hybridseq.learning.storage import Folder
with Folder(Path(sys.argv[1])).lock():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(folder):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder.path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_writer_is_told_who_the_first_is(folder, holder):
    with pytest.raises(Locked, match=rf"another sweep is writing here \(process {holder.pid} on .+, since 20"), folder.lock():
        pass


def test_the_lock_of_a_killed_writer_is_taken_over_and_said(folder, holder):
    holder.kill()
    holder.wait()
    with folder.lock() as note:
        assert f"process {holder.pid} on" in note
        assert "was killed" in note
    with folder.lock() as note:
        assert note == ""


# Manifest and reading
def test_the_manifest_says_what_is_missing_and_how_to_finish(small_sweep, rows, code_of):
    sweep = small_sweep()
    status = Status(sweep, rows[:7], code_of)
    manifest = make_manifest(status, "hybridseq sweep small --limit 1", {})
    assert manifest["format"] == FORMAT
    assert manifest["command"] == "hybridseq sweep small --limit 1"
    assert manifest["cells"] == {"done": 7, "of": 36}
    assert manifest["missing"] == {"SSM-TF-4": 2, "SSM-TF-8": 9, "TF-TF-4": 9, "TF-TF-8": 9}
    assert (manifest["complete"], manifest["finish"]) == (False, "hybridseq sweep small")
    assert manifest["chosen"] == {"SSM-TF-4": 0.01, "SSM-TF-8": None, "TF-TF-4": None, "TF-TF-8": None}
    assert manifest["seeds"] == {"select": [0, 1], "report": [100, 101, 102]}
    assert manifest["selection"] == "mean accuracy"
    assert manifest["versions"]["numpy"]
    assert manifest["machines"][0]["cores"]
    whole = make_manifest(Status(sweep, rows, code_of), "x", manifest)
    assert (whole["complete"], whole["finish"], whole["missing"]) == (True, None, {})
    assert len(whole["machines"]) == 1


def test_the_manifest_keeps_the_calls_that_trained_and_their_machines(small_sweep, rows, code_of):
    status = Status(small_sweep(), rows, code_of)
    first = {"began": "2026-01-01T00:00:00+00:00", "minutes": 1.0, "jobs": 2, "cluster": False, "trained": 3}
    early = make_manifest(status, "x", {"machines": [{"cpu": "abacus"}], "sessions": []}, first)
    later = make_manifest(status, "x", early, first | {"minutes": 2.0, "trained": 5})
    assert later["sessions"] == [first | {"minutes": 2.0, "trained": 5, "machine": 1}]
    second = first | {"began": "2026-01-02T00:00:00+00:00"}
    assert [s["began"][:10] for s in make_manifest(status, "x", later, second)["sessions"]] == ["2026-01-01", "2026-01-02"]
    assert make_manifest(status, "x", later, second | {"trained": 0})["sessions"] == later["sessions"]
    assert later["machines"][0] == {"cpu": "abacus"}


def test_reading_leaves_stale_rows_out_and_says_so(folder, small_sweep, rows, code_of):
    folder.write([replace(rows[0], code="0ther0000000"), *rows[1:]], {"format": FORMAT, "config": {"name": "small"}})
    found = read_results(small_sweep(), folder.path.parent, code_of)
    assert len(found.rows) == len(found.table()) == 35 - 3  # one select run is stale: the point's report has to wait
    assert "1 stored runs were made by other code" in found.notice
    folder.write(rows, {"format": FORMAT, "config": {"name": "small"}})
    whole = read_results(small_sweep(), folder.path.parent, code_of)
    assert (whole.notice, len(whole.rows)) == ("", 36)
    assert list(whole.table().columns) == list(COLUMNS)
    every = [point.label for point in small_sweep().points]
    assert len(found.complete_points) == 3 and set(found.complete_points) < set(every)
    assert [len(runs) for runs in found.complete_runs()] == [3 * 6, 3 * 3]
    assert whole.complete_points == every
    select, report = whole.complete_runs()
    assert (set(select["role"]), set(report["role"])) == ({"select"}, {"report"}) and len(select) + len(report) == 36


def test_results_lie_in_the_project(project_root, tmp_path):
    assert results_root(project_root / "chapters") == project_root / "book" / "results"


# The representative
def test_the_representative_is_the_median_of_the_reported_runs(small_sweep, rows, code_of):
    status = Status(small_sweep(), rows, code_of)
    assert representative_row(status).seed == 101
    assert representative_row(Status(small_sweep(), rows[:-10], code_of)) is None
    assert representative_row(Status(small_sweep(representative=None), rows, code_of)) is None


def test_parameters_come_back_bit_for_bit(small_sweep, rows, code_of, tmp_path):
    status = Status(small_sweep(), rows, code_of)
    row = representative_row(status)
    cell: Cell = status.cell_of(row)
    flat = cell.run.stack.initial(5).astype(np.float32) * np.float32(1e-3)
    flat[:4] = [math.nan, math.inf, -math.inf, np.float32(1e-42)]
    path = tmp_path / "representative.json"
    path.write_text(representative_to_json(row, row, cell.run.stack, cell.run.task.config, flat), encoding="utf-8")
    kept = read_representative(path)
    assert kept.parameters.dtype == np.float32
    assert kept.parameters.tobytes() == flat.tobytes()
    assert (kept.row, kept.stack) == (row, cell.run.stack)
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["trained_again"]["same"] is True
    assert data["shapes"]["0.qkv.weight"] == [12, 4]
    with pytest.raises(ValueError, match="not there"):
        read_representative(tmp_path / "none.json")


# Rows, manifests and models that no sweep has written
@pytest.mark.parametrize("changes", [
    {"accuracy": 5.0}, {"accuracy": math.nan}, {"accuracy": 0.1234}, {"correct": -1}, {"role": "x"}, {"seconds": math.nan},
    {"curve": ""}, {"curve": "junk"},
])  # fmt: skip
def test_a_row_that_no_run_can_have_written_is_refused(rows, changes):
    with pytest.raises(ValueError, match=r"runs\.csv, line 2: not a row of this version"):
        rows_from_csv(rows_to_csv([replace(rows[0], **changes)]))


def test_a_line_with_a_value_too_many_is_refused(rows):
    with pytest.raises(ValueError, match="line 2: 22 values for 21 columns"):
        rows_from_csv(rows_to_csv(rows[:1]).rstrip() + ",9\n")


@pytest.mark.parametrize("changes", [{"seed": 7}, {"width": 12}, {"learning_rate": 0.5}, {"steps": 100}, {"role": "report"}])
def test_a_row_whose_columns_are_not_those_of_its_key_is_refused(rows, small_sweep, code_of, changes):
    with pytest.raises(ValueError, match=rf"key {rows[0].key} .* says {next(iter(changes))}="):
        Status(small_sweep(), [replace(rows[0], **changes), *rows[1:]], code_of)


@pytest.mark.parametrize("name", ["config", "machines", "sessions", "renewed"])
def test_a_manifest_with_another_kind_of_entry_is_refused(folder, name):
    folder.path.mkdir()
    folder.manifest_path.write_text(json.dumps({"format": FORMAT, "config": {"name": "small"}, name: 3}))
    with pytest.raises(ValueError, match=rf"manifest\.json: {name} is no"):
        folder.check("small")


def test_runs_that_are_no_text_are_refused_by_name(folder):
    folder.path.mkdir()
    folder.runs.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"runs\.csv: not text"):
        folder.rows()


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"format": 1, "stack": {"layers": "SSM", "foo": 1}}'])
def test_a_model_that_cannot_be_read_is_refused_by_name(tmp_path, text):
    (tmp_path / "representative.json").write_text(text)
    with pytest.raises(ValueError, match=r"representative\.json: "):
        read_representative(tmp_path / "representative.json")
