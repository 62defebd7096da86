"""Numbers that others printed, as tables like our own summaries: layers, parameters, mean.

They lie in `book/results/published/`, one file a figure and source, each with a comment line that says where it comes from.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

__all__ = ["PUBLISHED", "published"]

PUBLISHED = {
    "paper-figure-4": "cooper_figure4_selective_copy.csv",
    "audit-figure-4": "audit_figure4_selective_copy.csv",
    "paper-figure-6": "cooper_figure6_mkar.csv",
    "audit-figure-6": "audit_figure6_mkar.csv",
}
"""What there is: the tables that paper B prints in its figures, and an independent public rerun of both."""


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
    if name not in PUBLISHED:
        raise ValueError(f"name={name!r}: must be one of {', '.join(PUBLISHED)}")
    path = (_folder() if folder is None else Path(folder)) / PUBLISHED[name]
    if not path.is_file():
        raise ValueError(f"folder: there is no file {PUBLISHED[name]} in {path.parent}; it comes with the book's sources")
    table = _tidy(pd.read_csv(path, comment="#"), path.name)
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    table.attrs |= {"name": name, "source": first.removeprefix("#").strip()}
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
