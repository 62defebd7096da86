"""What a newcomer reads first must be true: commands of the README, licences, citation, and no traces of a machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

PAPERS = ("2605.16640", "2603.08859", "2602.01763")


def test_every_make_target_in_the_readme_exists(project_root):
    readme = (project_root / "README.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", (project_root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", readme, re.MULTILINE))
    assert {"book", "test"} <= named <= targets


def test_every_command_of_the_readme_exists(project_root):
    from hybridseq.site.cli import main

    readme = (project_root / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?:^|`)hybridseq ([a-z]+)", readme, re.MULTILINE)) <= set(main.commands)


def test_local_links_of_the_readme_resolve(project_root):
    readme = (project_root / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", readme) if "://" not in link]
    assert [link for link in links if not (project_root / link).exists()] == []


def test_make_explains_its_targets(project_root):
    finished = subprocess.run(["make", "help"], cwd=project_root, capture_output=True, text=True, check=True)
    assert "make book" in finished.stdout
    assert "make test" in finished.stdout


def test_make_says_what_is_wrong_with_the_python(project_root, tmp_path):
    old = tmp_path / "python-of-yore"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1\nexit 1\n', encoding="utf-8")
    old.chmod(0o755)
    for python, words in [(str(old), "Python 3.9.1 is too old"), ("no-such-python", "no-such-python is not installed")]:
        finished = subprocess.run(["make", "--always-make", f"PYTHON={python}", ".venv/.ok"], cwd=project_root,
                                  capture_output=True, text=True, check=False)
        assert finished.returncode != 0
        assert words in finished.stdout
        assert "3.11" in finished.stdout


def test_code_and_text_have_their_licences(project_root):
    code = (project_root / "LICENSE").read_text(encoding="utf-8")
    text = (project_root / "LICENSE-text").read_text(encoding="utf-8")
    assert "Permission is hereby granted, free of charge" in code
    assert "Attribution 4.0" in text


def test_citation_file_names_the_book_and_the_three_papers(project_root):
    citation = yaml.safe_load((project_root / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "license", "references"} <= set(citation)
    references = str(citation["references"])
    assert [paper for paper in PAPERS if paper not in references] == []


@pytest.mark.parametrize("name", ["Makefile", ".ci/run", "README.md", "environment.yml", "pyproject.toml", "_config.yml"])
def test_no_path_of_a_particular_machine(project_root, name):
    text = (project_root / name).read_text(encoding="utf-8")
    assert not re.search(r"(?<![\w.])/(home|root|Users|opt|work)/", text)


def test_integration_script_can_run(project_root):
    script = project_root / ".ci/run"
    assert script.stat().st_mode & 0o111
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    assert Path(script).read_text(encoding="utf-8").rstrip().endswith("make test")
