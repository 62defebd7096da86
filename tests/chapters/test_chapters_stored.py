"""How chapters are stored and built up: without outputs, with the parts that a reader can count on in every one of them."""

from __future__ import annotations

import ast
import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hybridseq.site.book import Book, Chapter, source_of
from hybridseq.site.ledger import load_ledger

BOOK = Book(Path(__file__).resolve().parents[2])
CHAPTERS = pytest.mark.parametrize("chapter", BOOK.chapters, ids=lambda chapter: chapter.slug)
SECTIONS = ("What you will be able to check", "What would falsify this", "Notation used here", "Where this lives in the package")
GRADES = ("practice", "recommended", "stretch")
HIDING = {"remove-cell", "remove-input", "remove-output", "hide-cell", "hide-input", "hide-output"}
Problems = Iterator[str]


def tags(cell: dict) -> set[str]:
    return set(cell["metadata"].get("tags", ()))


def code_cells(notebook: dict) -> list[dict]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def prose(notebook: dict) -> str:
    return "\n\n".join(source_of(cell) for cell in notebook["cells"] if cell["cell_type"] == "markdown")


def tree(cell: dict) -> ast.Module:
    """The cell's statements; lines of IPython's own language count as nothing."""
    lines = [re.sub(r"^(\s*)[%!].*", r"\1pass", line) for line in source_of(cell).splitlines()]
    return ast.parse("\n".join(lines))


def decided(cell: dict) -> list[str]:
    """Ids of the claims that the cell decides."""
    calls = [node for node in ast.walk(tree(cell)) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "decide"]
    return [call.args[0].value for call in calls if call.args and isinstance(call.args[0], ast.Constant)]


# Each of these yields what is wrong with a chapter.
def outputs_are_stripped(chapter: Chapter, notebook: dict) -> Problems:
    for cell in code_cells(notebook):
        if cell["outputs"] or cell["execution_count"] is not None:
            yield f"cell {cell['id']} carries outputs or a count"


def metadata_is_clean(chapter: Chapter, notebook: dict) -> Problems:
    if extra := set(notebook["metadata"]) - {"kernelspec", "hybridseq"}:
        yield f"notebook metadata holds {sorted(extra)}"
    if notebook["metadata"].get("kernelspec", {}).get("name") != "python3":
        yield "the kernel must be python3"
    for cell in notebook["cells"]:
        if extra := set(cell["metadata"]) - {"tags", "mystnb"}:
            yield f"cell {cell['id']} metadata holds {sorted(extra)}"


def cells_have_unique_names(chapter: Chapter, notebook: dict) -> Problems:
    names = [cell.get("id") for cell in notebook["cells"]]
    if None in names or len(set(names)) != len(names):
        yield "cell ids must be there and unique"


def parameters_stand_in_one_cell(chapter: Chapter, notebook: dict) -> Problems:
    cells = [cell for cell in code_cells(notebook) if "parameters" in tags(cell)]
    if len(cells) != 1:
        yield f"{len(cells)} cells are tagged parameters"
    elif not source_of(cells[0]).startswith('profile = "quick"\nseed = 0'):
        yield 'the parameters cell must begin with profile = "quick" and seed = 0'


def first_cell_installs_on_colab(chapter: Chapter, notebook: dict) -> Problems:
    first = notebook["cells"][0]
    if "remove-cell" not in tags(first) or '"google.colab" in sys.modules' not in source_of(first):
        yield "the first cell must be the install guard, tagged remove-cell"
    if any("remove-cell" in tags(cell) for cell in notebook["cells"][1:]):
        yield "only the first cell may be removed from the page"


def imports_stand_in_one_cell(chapter: Chapter, notebook: dict) -> Problems:
    importing = [cell for cell in code_cells(notebook)[1:]
                 if any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(tree(cell)))]
    if len(importing) != 1:
        yield f"{len(importing)} cells import: {[cell['id'] for cell in importing]}"
    if re.search(r"hybridseq\.site|hybridseq import site", "\n".join(map(source_of, importing))):
        yield "a chapter may not import hybridseq.site: what renders it is not part of its key"


def helpers_are_short(chapter: Chapter, notebook: dict) -> Problems:
    for cell in code_cells(notebook):
        for node in ast.walk(tree(cell)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 13:
                yield f"cell {cell['id']}: {node.name} is longer than a dozen lines; it belongs in the package"


def title_comes_first(chapter: Chapter, notebook: dict) -> Problems:
    text = source_of(notebook["cells"][1])
    if notebook["cells"][1]["cell_type"] != "markdown" or not re.match(r"(\([^)]*\)=\n)?# \S", text):
        yield "the second cell must be the title and the abstract"
    titles = re.findall(r"^# .*", re.sub(r"`{3,}.*?`{3,}", "", prose(notebook), flags=re.DOTALL), re.MULTILINE)
    if len(titles) != 1:
        yield f"a chapter has one title, this one has {titles}"


def sections_are_there(chapter: Chapter, notebook: dict) -> Problems:
    headings = re.findall(r"^#{2,3} (.*)", prose(notebook), re.MULTILINE)
    yield from (f"section {name!r} is missing" for name in SECTIONS if name not in headings)


def boxes_are_there(chapter: Chapter, notebook: dict) -> Problems:
    text = prose(notebook)
    if ":class: takeaway" not in text:
        yield "the takeaway is missing"
    if ":class: limits" not in text:
        yield "the limits box is missing"
    if not re.search(r"\{admonition\} Assumptions", text):
        yield "the assumptions box is missing"


def exercises_have_solutions(chapter: Chapter, notebook: dict) -> Problems:
    found = re.findall(r"\{exercise(?:-start)?\}[ ]*(.*)\n:label: (\S+)", prose(notebook))
    solved = set(re.findall(r"\{solution(?:-start)?\} (\S+)\n(?::label: \S+\n)?:class: dropdown", prose(notebook)))
    if len(found) < 4:
        yield f"{len(found)} exercises; at least four are asked for"
    for title, label in found:
        if label not in solved:
            yield f"exercise {label} has no folded solution"
        if not any(grade in title.lower() for grade in GRADES) or not re.search(r"\d+ min", title):
            yield f"exercise {label}: its title must name its grade and its minutes"
        if not label.startswith(f"ex-{chapter.number:02d}-"):
            yield f"exercise {label}: its label must begin with ex-{chapter.number:02d}-"


def claims_are_visible(chapter: Chapter, notebook: dict) -> Problems:
    for cell in code_cells(notebook):
        if not decided(cell):
            if "claim" in tags(cell):
                yield f"cell {cell['id']} is tagged claim and decides none"
            continue
        if "claim" not in tags(cell) or tags(cell) & HIDING:
            yield f"cell {cell['id']} decides {decided(cell)}: tag it claim, and hide nothing of it"


def claims_are_those_of_the_ledger(chapter: Chapter, notebook: dict) -> Problems:
    ledger = sorted(entry.id for entry in load_ledger(BOOK) if entry.chapter == chapter.number and not entry.deferred)
    here = sorted(claim for cell in code_cells(notebook) for claim in decided(cell))
    if here != ledger:
        yield f"decides {here}, the ledger asks for {ledger}"


def figures_are_there(chapter: Chapter, notebook: dict) -> Problems:
    published = re.findall(r"publish\(", "\n".join(map(source_of, code_cells(notebook))))
    if len(published) < 2:
        yield f"{len(published)} figures; at least two are asked for"


def glued_numbers_name_their_chapter(chapter: Chapter, notebook: dict) -> Problems:
    names = re.findall(r"\bglue\(\s*f?[\"']([^\"']+)", "\n".join(map(source_of, code_cells(notebook))))
    yield from (f"glue name {name!r} must begin with c{chapter.number}_" for name in names
                if not name.startswith(f"c{chapter.number}_"))


CHECKS: tuple[Callable[[Chapter, dict], Problems], ...] = (
    outputs_are_stripped,
    metadata_is_clean,
    cells_have_unique_names,
    parameters_stand_in_one_cell,
    first_cell_installs_on_colab,
    imports_stand_in_one_cell,
    helpers_are_short,
    title_comes_first,
    sections_are_there,
    boxes_are_there,
    exercises_have_solutions,
    claims_are_visible,
    claims_are_those_of_the_ledger,
    figures_are_there,
    glued_numbers_name_their_chapter,
)


@CHAPTERS
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_chapter(chapter, check):
    assert list(check(chapter, chapter.notebook())) == []


def test_the_folder_holds_the_chapters_of_the_contents_and_nothing_else():
    stored = sorted(path.name for path in (BOOK.root / "chapters").iterdir() if path.name != ".ipynb_checkpoints")
    assert stored == sorted(f"{chapter.slug}.ipynb" for chapter in BOOK.chapters)


@CHAPTERS
def test_the_full_profile_says_its_minutes_once(chapter):
    """`book/minutes.yml` and what the chapter itself prints in the full profile must be the same number."""
    words = {"a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
    told = re.findall(r"about (\w+) minutes?", "\n".join(map(source_of, code_cells(chapter.notebook()))))
    assert {words[word] for word in told} <= {BOOK.expected_minutes[chapter.number]}


# Each check must be able to fail: one change, the check that sees it.
def _cell(kind: str, name: str, text: str, *labels: str) -> dict:
    cell = {"cell_type": kind, "id": name, "metadata": {"tags": list(labels)} if labels else {}, "source": text}
    return cell if kind == "markdown" else {**cell, "outputs": [], "execution_count": None}


_GUARD = 'import sys\nif "google.colab" in sys.modules:\n    %pip install -q "hybridseq[book]"'
_EXERCISE = """```{{exercise}} {grade}, 5 minutes
:label: ex-04-{name}
Do.
```

```{{solution}} ex-04-{name}
:class: dropdown
So.
```
"""
_BOXES = ("Assumptions\n", "Limits\n:class: limits\n", "Takeaway\n:class: takeaway\n")
_PROSE = "\n\n".join(
    [f"## {name}" for name in SECTIONS]
    + [f"```{{admonition}} {box}```" for box in _BOXES]
    + [_EXERCISE.format(grade=grade, name=f"e{i}") for i, grade in enumerate((*GRADES, "practice"))]
)
_CLAIMS = [entry.id for entry in load_ledger(BOOK) if entry.chapter == 4]
FOUR = Chapter(4, "04_a_parity_bit", Path("chapters/04_a_parity_bit.ipynb"))
GOOD = {
    "nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": {"name": "python3"}},
    "cells": [
        _cell("code", "guard", _GUARD, "remove-cell"),
        _cell("markdown", "title", "# A finding\n\nAbstract."),
        _cell("code", "settings", 'profile = "quick"\nseed = 0', "parameters"),
        _cell("code", "imports", "import hybridseq"),
        _cell("markdown", "words", _PROSE),
        *(_cell("code", f"claim{i}", f'decide("{claim}", check)', "claim") for i, claim in enumerate(_CLAIMS)),
        _cell("code", "figures", 'publish(one)\npublish(two)\nglue("c4_x", 1)'),
    ],
}


def test_a_chapter_as_it_should_be_passes():
    assert {check.__name__: list(check(FOUR, GOOD)) for check in CHECKS} == {check.__name__: [] for check in CHECKS}


@pytest.mark.parametrize(
    ("cell", "field", "value", "seen_by"),
    [
        ("figures", "execution_count", 3, outputs_are_stripped),
        ("figures", "outputs", [{"output_type": "stream"}], outputs_are_stripped),
        ("figures", "metadata", {"papermill": {}}, metadata_is_clean),
        ("figures", "id", "words", cells_have_unique_names),
        ("settings", "metadata", {}, parameters_stand_in_one_cell),
        ("settings", "source", 'profile = "full"\nseed = 0', parameters_stand_in_one_cell),
        ("guard", "source", "import sys", first_cell_installs_on_colab),
        ("words", "metadata", {"tags": ["remove-cell"]}, first_cell_installs_on_colab),
        ("figures", "source", "import numpy\npublish(one)\npublish(two)", imports_stand_in_one_cell),
        ("imports", "source", "import hybridseq.site.build", imports_stand_in_one_cell),
        ("figures", "source", "def f():\n" + "    x = 1\n" * 13 + "publish(f)\npublish(f)", helpers_are_short),
        ("title", "source", "A finding", title_comes_first),
        ("words", "source", _PROSE + "\n\n# Another title", title_comes_first),
        ("words", "source", _PROSE.replace("## Notation used here", ""), sections_are_there),
        ("words", "source", _PROSE.replace("takeaway", "note"), boxes_are_there),
        ("words", "source", _PROSE.replace("{solution} ex-04-e1", "{solution} ex-04-e0"), exercises_have_solutions),
        ("words", "source", _PROSE.replace("stretch, 5 minutes", "stretch"), exercises_have_solutions),
        ("claim0", "metadata", {"tags": ["claim", "hide-input"]}, claims_are_visible),
        ("claim0", "metadata", {}, claims_are_visible),
        ("claim0", "source", "None", claims_are_those_of_the_ledger),
        ("claim0", "source", 'decide("A-lem-9.9", check)', claims_are_those_of_the_ledger),
        ("figures", "source", "publish(one)", figures_are_there),
        ("figures", "source", 'publish(one)\npublish(two)\nglue("x", 1)', glued_numbers_name_their_chapter),
    ],
)
def test_each_check_can_fail(cell, field, value, seen_by):
    changed = copy.deepcopy(GOOD)
    next(c for c in changed["cells"] if c["id"] == cell)[field] = value
    assert list(seen_by(FOUR, json.loads(json.dumps(changed))))
