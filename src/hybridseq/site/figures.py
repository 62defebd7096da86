"""From published figures in a notebook's outputs to numbered figures of the page, with caption and alternative text."""

from __future__ import annotations

from collections.abc import Sequence

from hybridseq.site.book import cell_name
from hybridseq.site.execute import Execution

_REQUIRED = ("name", "finding", "caption", "alt")


def figure_of(output: dict) -> dict | None:
    """The texts that `hybridseq.figures.publish` left in an output, or None."""
    return output.get("metadata", {}).get("hybridseq", {}).get("figure")


def check_figures(executions: Sequence[Execution]) -> list[str]:
    """Pictures without name, finding, caption and alternative text, and figure names used twice, each by chapter and cell."""
    problems: list[str] = []
    seen: dict[str, str] = {}
    for execution in executions:
        for index, cell in enumerate(execution.notebook["cells"]):
            where = cell_name(execution.chapter, index, cell)
            for output in cell.get("outputs", ()):
                problems += _output_problems(output, where, seen)
    return problems


def _output_problems(output: dict, where: str, seen: dict[str, str]) -> list[str]:
    if not any(kind.startswith("image/") for kind in output.get("data", {})):
        return []
    figure = figure_of(output)
    if figure is None:
        return [f"{where}: a picture without name, finding, caption and alt text; show it with hybridseq.figures.publish(...)"]
    missing = [name for name in _REQUIRED if not str(figure.get(name) or "").strip()]
    if missing:
        return [f"{where}: figure {figure.get('name')!r} lacks {', '.join(missing)}"]
    first = seen.setdefault(figure["name"], where)
    return [f"{where}: figure name {figure['name']!r} is already used in {first}"] if first != where else []


def number_figures(cell: dict) -> list[dict]:
    """The cell, followed by one input-less cell a figure that carries it as a numbered figure, outputs kept in order.

    A cell's figure settings reach every output of that cell, hence the split.
    """
    if not any(figure_of(output) for output in cell.get("outputs", ())):
        return [cell]
    kept_tags = [tag for tag in cell.get("metadata", {}).get("tags", []) if tag in ("hide-output", "full-width", "margin")]
    parts: list[dict] = [{**cell, "outputs": []}]
    for output in cell["outputs"]:
        figure = figure_of(output)
        if figure is not None:
            parts.append(_follower(cell, len(parts), [*kept_tags, "remove-input"], _figure_settings(figure)))
        elif len(parts) > 1 and "mystnb" in parts[-1]["metadata"]:
            parts.append(_follower(cell, len(parts), [*kept_tags, "remove-input"], {}))
        parts[-1]["outputs"].append(output)
    return parts


def _figure_settings(figure: dict) -> dict:
    caption = f"**{figure['finding'].strip()}** {figure['caption'].strip()}"
    return {"mystnb": {"figure": {"name": figure["name"], "caption": caption}, "image": {"alt": figure["alt"]}}}


def _follower(cell: dict, number: int, tags: list[str], settings: dict) -> dict:
    return {
        "cell_type": "code",
        "id": f"{str(cell.get('id', 'cell'))[:54]}-out{number}",
        "execution_count": cell.get("execution_count"),
        "metadata": {"tags": tags, "hybridseq": cell.get("metadata", {}).get("hybridseq", {}), **settings},
        "source": "# shown above",  # removed from the page; a cell without text would be skipped with its outputs
        "outputs": [],
    }
