"""Kept runs: the best run of a point, its parameters as plain text, and what is said when there is none."""

import numpy as np
import pytest

from hybridseq.learning import kept_models
from hybridseq.learning.storage import Folder, make_manifest, read_results
from hybridseq.learning.sweep import Row, Status


@pytest.fixture
def root(tmp_path, small_sweep, formula_train, code_of, monkeypatch):
    """A results folder with every run of the small sweep, and the modules pointed at its formula."""
    sweep = small_sweep()
    cells = [c for p in sweep.points for c in (*sweep.select_cells(p), *sweep.report_cells(p, 0.01))]
    rows = [Row.of(cell, formula_train(cell.run), "c0de00000001") for cell in cells]
    Folder(tmp_path / "small").write(rows, make_manifest(Status(sweep, rows, code_of), "x", {}))
    monkeypatch.setattr(kept_models.catalogue, "find", lambda name: sweep)
    monkeypatch.setattr(kept_models, "read_results", lambda s, r: read_results(s, r, code_of))
    monkeypatch.setattr(kept_models.backends, "train", lambda run, backend: formula_train(run))
    monkeypatch.setattr(kept_models, "code_hash", code_of)
    return tmp_path


def test_the_best_run_is_kept(root):
    path = kept_models.keep("small", "TF-TF-8", root)
    assert path == root / "small-models" / "TF-TF-8.json"
    found = kept_models.kept("small", "TF-TF-8", root)
    assert found.row.role == "select" and found.row.seed == 0 and found.row.learning_rate == 0.01
    assert found.stack.name == "TF-TF" and found.stack.width == 8
    np.testing.assert_array_equal(found.parameters, found.stack.initial(0).astype(np.float32))
    assert '"same": true' in path.read_text()


def test_what_is_missing_comes_with_its_command(root):
    with pytest.raises(ValueError, match=r"python -m hybridseq\.learning\.kept_models small TF-TF-4"):
        kept_models.kept("small", "TF-TF-4", root)
    with pytest.raises(ValueError, match="did you mean"):
        kept_models.keep("small", "TF-TF-9", root)


def test_no_run(tmp_path, small_sweep, code_of):
    with pytest.raises(ValueError, match="hybridseq sweep small"):
        kept_models.best_row(read_results(small_sweep(), tmp_path, code_of), "TF-TF-4")
