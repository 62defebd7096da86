"""The floors of the package: rooms import from below, never from above or from a neighbour."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def lint(root: Path) -> subprocess.CompletedProcess:
    """import-linter over the package under `root`, by the contracts of its `.importlinter`."""
    lint_imports = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [str(lint_imports), ".importlinter", "--no-cache", "--no-logo"], cwd=root, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(root / "src"), "PATH": "/usr/bin:/bin"},
    )


ROOMS = (
    "arithmetic", "codes", "evidence", "rng", "residual", "mixers", "figures", "oracles",
    "models", "constructions", "bounds", "site",
)


@pytest.fixture
def skeleton(project_root: Path, tmp_path: Path) -> Path:
    """The rooms, empty, under the project's own contracts: a place to plant an import."""
    for room in ROOMS:
        folder = tmp_path / "src/hybridseq" / room
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    (tmp_path / "src/hybridseq/__init__.py").touch()
    shutil.copy(project_root / ".importlinter", tmp_path)
    return tmp_path


def test_rooms_keep_to_their_floors(project_root):
    finished = lint(project_root)
    assert finished.returncode == 0, finished.stdout


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("arithmetic", "from hybridseq.mixers import attention"),
        ("codes", "import hybridseq.site.cli"),
        ("constructions", "import hybridseq.bounds"),
        ("mixers", "import hybridseq.figures"),
        ("oracles", "import hybridseq.arithmetic"),
    ],
)
def test_a_planted_import_is_refused(skeleton, room, line):
    assert lint(skeleton).returncode == 0
    (skeleton / "src/hybridseq" / room / "planted.py").write_text(f"{line}\n", encoding="utf-8")
    finished = lint(skeleton)
    assert finished.returncode != 0
    assert f"hybridseq.{room}.planted" in finished.stdout


def test_a_room_without_a_floor_is_refused(skeleton):
    (skeleton / "src/hybridseq/attic").mkdir()
    (skeleton / "src/hybridseq/attic/__init__.py").touch()
    finished = lint(skeleton)
    assert finished.returncode != 0
    assert "attic" in finished.stdout


def test_the_package_alone_is_light():
    """`import hybridseq` and the number systems must not load torch."""
    script = "import sys, hybridseq, hybridseq.evidence; assert 'torch' not in sys.modules; assert 'papermill' not in sys.modules"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
