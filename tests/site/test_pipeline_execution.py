"""Chapters run once per content; whatever goes wrong is told by chapter and cell and leaves earlier results whole."""

from __future__ import annotations

import functools
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hybridseq.site.book import Book
from hybridseq.site.cli import main
from hybridseq.site.errors import BookFailed
from hybridseq.site.execute import find_execution, run_chapters
from hybridseq.site.keys import execution_key


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def command(root: Path, *words: str) -> Result:
    """The command line, in this process."""
    return CliRunner().invoke(main, ["--root", str(root), *words])


def events_of(book: Book, **options) -> list[str]:
    """The events of one run, without those of single cells."""
    seen: list[str] = []
    run_chapters(book, report=lambda event, chapter, info: seen.append(event), **options)
    return [event for event in seen if event != "cell"]


# One execution a content
def test_a_second_run_executes_nothing(light_book):
    assert events_of(light_book.book) == ["started", "done"]
    assert events_of(light_book.book) == ["cached"]
    assert events_of(light_book.book, force=True) == ["started", "done"]


@pytest.mark.parametrize("change", ["chapter", "package", "lock", "result", "own claim"])
def test_what_a_chapter_reads_changes_its_key(small_book, change):
    book = small_book.book
    (chapter,) = book.chapters
    before = execution_key(book, chapter, "quick")
    if change == "chapter":
        small_book.source("weights", "weight = 3 ")
    elif change == "own claim":
        text = book.ledger_path.read_text(encoding="utf-8")
        book.ledger_path.write_text(text.replace("Ties go to zero.", "Ties go to even."), encoding="utf-8")
    else:
        places = {"package": "src/hybridseq/new.py", "lock": "requirements/lock.txt", "result": "book/results/x/runs.csv"}
        path = book.root / places[change]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# changed\n", encoding="utf-8")
    assert execution_key(book, chapter, "quick") != before


def test_what_a_chapter_does_not_read_leaves_its_key(small_book):
    book = small_book.book
    (chapter,) = book.chapters
    before = execution_key(book, chapter, "quick")
    text = book.ledger_path.read_text(encoding="utf-8")
    book.ledger_path.write_text(text.replace("A figure.", "Another figure."), encoding="utf-8")
    (book.root / "book/index.md").write_text("# Other words\n", encoding="utf-8")
    (book.root / "book/results/x/journal").mkdir(parents=True)
    (book.root / "book/results/x/journal/lock").write_text("a sweep is running", encoding="utf-8")
    assert execution_key(book, chapter, "quick") == before
    assert execution_key(book, chapter, "full") != before
    assert execution_key(book, chapter, "quick", {"seed": 1}) != before


def test_the_record_says_time_memory_versions_and_machine(built_book):
    (chapter,) = built_book.book.chapters
    record = find_execution(built_book.book, chapter, "quick").record
    assert 0 < record["cpu_s"] < 60
    assert 0 < record["wall_s"] < 120
    assert 30 < record["peak_mb"] < 2000
    assert record["versions"]["numpy"]
    assert {"mamba-ssm", "fla-core", "transformers"} == set(record["oracles"])
    assert record["cpu"]
    assert record["began"].endswith("+00:00")


def test_default_runs_carry_no_injected_cell(built_book):
    (chapter,) = built_book.book.chapters
    cells = find_execution(built_book.book, chapter, "quick").notebook["cells"]
    assert [cell["id"] for cell in cells] == ["title", "settings", "weights", "section", "claim", "figure"]


def test_chapters_run_in_their_own_folder_with_one_thread(light_book):
    light_book.source("weights", 'import os, pathlib\nweight = 3\nprint(pathlib.Path.cwd().name, os.environ["OMP_NUM_THREADS"])')
    (execution,) = run_chapters(light_book.book)
    assert execution.notebook["cells"][2]["outputs"][0]["text"][0].strip() == "chapters 1"


def test_a_run_with_parameters_never_counts(light_book):
    (execution,) = run_chapters(light_book.book, parameters={"seed": 5})
    assert "seed = 5" in json.dumps(execution.notebook)
    (chapter,) = light_book.book.chapters
    assert find_execution(light_book.book, chapter, "quick") is None


def test_the_full_profile_reaches_the_chapter_and_says_how_long_first(light_book):
    light_book.yaml("book/minutes.yml", {4: 2.5})
    light_book.source("weights", 'weight = 3\nassert profile == "full"')
    finished = command(light_book.root, "run", "--profile", "full")
    assert finished.exit_code == 0, finished.stderr
    assert "about 2.5 minutes" in finished.stderr.splitlines()[0]


# What goes wrong
def test_a_failing_cell_is_named_and_earlier_results_stay(built_book):
    before = contents(built_book.root / "_build/executed")
    built_book.source("weights", "weight = 3\nweight / 0")
    with pytest.raises(BookFailed) as failure:
        run_chapters(built_book.book)
    assert "chapter 4 (04_small), cell 3 [id weights]" in str(failure.value)
    assert "ZeroDivisionError" in str(failure.value)
    assert contents(built_book.root / "_build/executed") == before


def test_a_claim_that_fails_is_named_with_its_counterexample(small_book):
    small_book.source("weights", "weight = 2")
    with pytest.raises(BookFailed) as failure:
        run_chapters(small_book.book)
    assert "chapter 4 (04_small), cell 5 [id claim]" in str(failure.value)
    assert "ClaimFailed" in str(failure.value)
    assert "'weight': 2" in str(failure.value)


def test_a_failing_cell_of_the_full_profile_is_named_by_its_place_in_the_chapter(small_book):
    small_book.source("claim", "1 / 0")
    with pytest.raises(BookFailed, match=r"cell 5 \[id claim\]"):
        run_chapters(small_book.book, profile="full")


def test_a_kernel_that_dies_is_reported(small_book):
    small_book.source("weights", "import os\nos._exit(3)")
    with pytest.raises(BookFailed, match=r"chapter 4 \(04_small\), cell 3"):
        run_chapters(small_book.book)


def test_sources_that_change_during_the_run_drop_its_result(light_book):
    module = light_book.root / "src/hybridseq/a_module.py"
    light_book.source("weights", f"weight = 3\nopen({str(module)!r}, 'w').write('x = 2')")
    with pytest.raises(BookFailed, match="changed while it ran"):
        run_chapters(light_book.book)
    assert not list((light_book.root / "_build/executed/quick").glob("04_small-*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "9"), "CHAPTER: '9' is unknown; allowed: 4 (04_small)"),
        (("run", "--profile", "fast"), "--profile: 'fast' is unknown; allowed: quick, full"),
        (("build", "--profile", "fast"), "--profile: 'fast' is unknown; allowed: quick, full"),
        (("claims", "--profile", "fast"), "--profile: 'fast' is unknown; allowed: quick, full"),
        (("run", "-p", "sed=1"), "--parameter: 'sed' is unknown to chapter 4 (04_small); allowed: seed"),
        (("run", "-p", "profile=full"), "--parameter: 'profile' is set by --profile"),
        (("run", "-p", "seed"), "'seed' is not of the form NAME=VALUE"),
        (("run", "--jobs", "0"), "--jobs: 0 is not allowed; it must be 1 or more"),
    ],
)
def test_wrong_input_ends_with_2_and_says_what_is_allowed(small_book, words, message):
    finished = command(small_book.root, *words)
    assert finished.exit_code == 2
    assert message in finished.stderr
    assert not (small_book.root / "_build/executed").exists()


def test_the_book_is_found_from_a_folder_inside_it(small_book):
    assert Book.find(small_book.root / "chapters").root == small_book.root.resolve()


def test_a_failing_chapter_ends_with_1(small_book):
    small_book.source("weights", "1 / 0")
    finished = command(small_book.root, "run", "4")
    assert finished.exit_code == 1
    assert "cell 3 [id weights]" in finished.stderr


def test_a_chapter_without_its_profile_parameter_is_refused(small_book):
    small_book.source("settings", "seed = 0")
    with pytest.raises(BookFailed, match='must set profile = "quick"'):
        run_chapters(small_book.book)


@pytest.mark.parametrize("text", ["not json", "{}"])
def test_a_file_that_is_no_notebook_is_named(small_book, text):
    (small_book.root / "chapters/04_small.ipynb").write_text(text, encoding="utf-8")
    with pytest.raises(BookFailed, match=r"chapter 4 \(04_small\).*is not a notebook"):
        run_chapters(small_book.book)


# Interrupts and full disks
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_an_interrupt_ends_the_kernel_and_leaves_earlier_results(built_book, sent, code):
    before = contents(built_book.root / "_build/executed") | contents(built_book.root / "_build/html")
    mark = built_book.root / "kernel"
    built_book.source("weights", f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(120)")
    line = [sys.executable, "-m", "hybridseq", "--root", str(built_book.root), "build"]
    # A shell that runs the tests in its background lets them ignore interrupts; the builder must hear this one.
    hear = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=hear)
    deadline = time.monotonic() + 120
    while not (mark.exists() and mark.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    kernel = int(mark.read_text())
    process.send_signal(sent)
    _, said = process.communicate(timeout=240)
    assert process.returncode == code
    assert ("as they were" in said) == (sent is signal.SIGINT)
    assert _ends(kernel)
    after = contents(built_book.root / "_build/executed") | contents(built_book.root / "_build/html")
    assert {name: content for name, content in after.items() if not name.startswith("quick/.draft-")} == before


def test_a_full_disk_leaves_earlier_results(built_book):
    """A limit on the size of files stands in for the full disk: what the run writes cannot be written."""
    before = contents(built_book.root / "_build/executed") | contents(built_book.root / "_build/html")
    built_book.source("title", "# Another title\n\n" + "Words. " * 1000)
    line = [sys.executable, "-m", "hybridseq", "--root", str(built_book.root), "build"]
    finished = subprocess.run(line, capture_output=True, text=True, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    assert finished.returncode == 1, finished.stderr
    assert "chapter 4 (04_small)" in finished.stderr
    assert contents(built_book.root / "_build/executed") | contents(built_book.root / "_build/html") == before


def _ends(process: int) -> bool:
    """Whether the process is gone within some seconds."""
    for _ in range(200):
        try:
            os.kill(process, 0)
            state = Path(f"/proc/{process}/stat")
            if state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
