"""Parameters of single runs of a sweep, kept as plain text so that a chapter can open the model.

A sweep keeps one representative run by itself. Other models that a chapter opens are trained once more from their row and lie
in `book/results/<sweep>-models/<label>.json`, in the form of representative.json:

    python -m hybridseq.learning.kept_models b-fig-6 SSM-TF-8 SSM-TF-24 TF-TF-24

keeps, of each point, the run with the highest accuracy, at whatever learning rate: a model that is opened to see how it solves
the task has to solve it. The file says which run it is, and whether training it again gave the same numbers.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hybridseq.evidence.provenance import write_atomically
from hybridseq.learning import backends, catalogue
from hybridseq.learning.sources import code_hash
from hybridseq.learning.storage import (
    Representative,
    Results,
    read_representative,
    read_results,
    representative_to_json,
    results_root,
)
from hybridseq.learning.sweep import ROLES, Row

__all__ = ["best_row", "keep", "kept", "path_of"]


def path_of(sweep: str, label: str, root: Path | str | None = None) -> Path:
    """Where the parameters of a point's kept run lie."""
    return Path(root or results_root()) / f"{sweep}-models" / f"{label}.json"


def best_row(results: Results, label: str) -> Row:
    """The run of a point with the highest accuracy, whatever its role and rate; of equal ones the smallest seed.

    Raises:
        ValueError: no such point, or no run of it yet.
    """
    point = results.sweep.point(label)
    rows = [row for role in ROLES for row in results.status.rows(point, role)]
    if not rows:
        raise ValueError(f"label={label!r}: has no run yet; `hybridseq sweep {results.sweep.name}` trains them")
    return max(rows, key=lambda row: (row.accuracy, -row.seed))


def keep(sweep: str, label: str, root: Path | str | None = None) -> Path:
    """Train a point's best run once more and keep its parameters; returns the file.

    Raises:
        ValueError: an unknown sweep or point, no run of it, a trainer that is not here.
    """
    results = read_results(catalogue.find(sweep), root)
    row = best_row(results, label)
    cell = results.status.cell_of(row)
    outcome = backends.train(cell.run, backend=row.backend)
    again = Row.of(cell, outcome, code_hash(outcome.backend, cell.run.task))
    path = path_of(sweep, label, root)
    write_atomically(path, representative_to_json(row, again, cell.run.stack, cell.run.task.config, outcome.parameters))
    return path


def kept(sweep: str, label: str, root: Path | str | None = None) -> Representative:
    """A kept run: its row, architecture and parameters.

    Raises:
        ValueError: it is not there; the message has the command that makes it.
    """
    path = path_of(sweep, label, root)
    if not path.exists():
        command = f"python -m hybridseq.learning.kept_models {sweep} {label}"
        raise ValueError(f"{path}: not there; `{command}` trains that run once more")
    return read_representative(path)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python -m hybridseq.learning.kept_models SWEEP LABEL ...")
    for wanted in sys.argv[2:]:
        print(keep(sys.argv[1], wanted))
