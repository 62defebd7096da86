"""Numbers that others printed, as tables like our own summaries: layers, parameters, mean.

They lie in `book/results/published/`, one file a figure and source, each with a comment line that says where it comes from.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

__all__ = ["PUBLISHED", "PUBLISHED_RUNS", "published", "published_runs"]

PUBLISHED = {
    "paper-figure-4": "cooper_figure4_selective_copy.csv",
    "audit-figure-4": "audit_figure4_selective_copy.csv",
    "paper-figure-6": "cooper_figure6_mkar.csv",
    "audit-figure-6": "audit_figure6_mkar.csv",
}
"""What there is: the tables that paper B prints in its figures, and an independent public rerun of both."""

PUBLISHED_RUNS = {"audit-figure-6": "audit_figure6_runs.csv"}
"""Where every single run was published: 24 points of the rerun of Figure 6, 11 runs each."""


def published(name: str, folder: Path | str | None = None) -> pd.DataFrame:
    """One published table.

    Args:
        name: a key of `PUBLISHED`.
        folder: where the files lie; None looks for `book/results/published` in the working folder and above it, then in the
            project that this package was installed from.

    Returns:
        layers, parameters, mean, exact (False where the source rounds the parameter count); the comment line is in
        `.attrs["source"]`, the name in `.attrs["name"]`.

    Raises:
        ValueError: an unknown name, no such folder or file, a file with other columns.

    Example:
        >>> published("audit-figure-4").iloc[0].to_dict()
        {'layers': 'SSM-TF', 'parameters': 2192, 'mean': 0.999985, 'exact': True}
    """
    table = _read(name, PUBLISHED, folder)
    return _marked(_tidy(table, PUBLISHED[name]), name, table)


def published_runs(name: str, folder: Path | str | None = None) -> pd.DataFrame:
    """Every run behind a published table, with the columns that `reports.summary` and `crossings.crossing_ratio` read.

    Args and raises as `published`, with the names of `PUBLISHED_RUNS`. The seeds count from 0; runs of one number at two points
    have nothing in common but that number.

    Example:
        >>> runs = published_runs("audit-figure-6")
        >>> runs[runs.parameters == 5808].groupby("layers").accuracy.max().round(3).to_dict()
        {'SSM-TF': 0.994, 'TF-SSM': 0.407}
    """
    table = _read(name, PUBLISHED_RUNS, folder)
    if missing := sorted({"architecture", "hidden_dim", "parameters", "learning_rate", "seed", "accuracy"} - set(table.columns)):
        raise ValueError(f"{PUBLISHED_RUNS[name]}: has no column {', '.join(missing)}")
    runs = table.rename(columns={"architecture": "layers", "hidden_dim": "width"})
    fixed = {"task": name, "label": "", "window": None, "heads": 1, "state_dim": 16, "steps": 4000, "role": "report"}
    return _marked(runs.assign(**fixed), name, table)


def _read(name: str, names: dict[str, str], folder: Path | str | None) -> pd.DataFrame:
    if name not in names:
        raise ValueError(f"name={name!r}: must be one of {', '.join(names)}")
    path = (_folder() if folder is None else Path(folder)) / names[name]
    if not path.is_file():
        raise ValueError(f"folder: there is no file {names[name]} in {path.parent}; it comes with the book's sources")
    table = pd.read_csv(path, comment="#")
    table.attrs["source"] = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()
    return table


def _marked(table: pd.DataFrame, name: str, source: pd.DataFrame) -> pd.DataFrame:
    table.attrs |= {"name": name, "source": source.attrs["source"]}
    return table


def _folder() -> Path:
    for root in (Path.cwd(), *Path.cwd().parents, *Path(__file__).resolve().parents):
        if (place := root / "book" / "results" / "published").is_dir():
            return place
    raise ValueError("folder: no book/results/published here or above; give the folder, or work in a clone of the book")


def _tidy(table: pd.DataFrame, file: str) -> pd.DataFrame:
    if {"architecture", "parameters", "mean_accuracy"} <= set(table.columns):
        tidy = table.rename(columns={"architecture": "layers", "mean_accuracy": "mean"}).assign(exact=True)
    elif "parameters_rounded" in table.columns:
        tidy = table.melt("parameters_rounded", var_name="layers", value_name="mean").assign(exact=False)
        tidy = tidy.rename(columns={"parameters_rounded": "parameters"})
    else:
        raise ValueError(f"{file}: needs the columns architecture, parameters, mean_accuracy; or parameters_rounded, TF-TF, ...")
    return tidy[["layers", "parameters", "mean", "exact"]]
