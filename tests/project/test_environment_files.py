"""pyproject.toml is the one source of dependencies; the lock and the two environment files must agree with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ENVIRONMENTS = ("environment.yml", "environment-gpu.yml")
CONDA_TOOLS = {"python", "pip", "setuptools", "wheel", "ninja", "packaging", "cuda-nvcc"}


@pytest.fixture(scope="module")
def project(project_root: Path) -> dict:
    return tomllib.loads((project_root / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins(path: Path) -> dict[str, str]:
    """`name==version` lines of a requirements file, by normalised name."""
    lines = [line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    found = [Requirement(line) for line in lines if line]
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in found}


def environment(root: Path, name: str) -> tuple[list[str], list[str]]:
    """Conda's packages and pip's lines of an environment file."""
    content = yaml.safe_load((root / name).read_text(encoding="utf-8"))
    conda = [entry for entry in content["dependencies"] if isinstance(entry, str)]
    (pip,) = [entry["pip"] for entry in content["dependencies"] if isinstance(entry, dict)]
    return conda, pip


def extras_of(lines: list[str]) -> set[str]:
    (editable,) = [line for line in lines if line.startswith("-e")]
    match = re.fullmatch(r"-e \.\[([\w,]+)\]", editable)
    assert match, editable
    return set(match[1].split(","))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_python_of_the_environment_is_one_that_the_package_allows(project_root, project, name):
    conda, _ = environment(project_root, name)
    (python,) = [entry for entry in conda if entry.startswith("python=")]
    assert python.split("=")[1] + ".0" in SpecifierSet(project["requires-python"])


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environment_is_thin(project_root, name):
    conda, pip = environment(project_root, name)
    assert {re.split("[=<>]", entry)[0] for entry in conda} <= CONDA_TOOLS | {"pytorch-gpu"}
    options = [line for line in pip if not line.startswith("-")]
    assert [canonicalize_name(Requirement(line).name) for line in options] == (["torch"] if name == "environment.yml" else [])


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environment_installs_the_book_and_its_tests(project_root, project, name):
    _, pip = environment(project_root, name)
    extras = extras_of(pip)
    assert extras <= set(project["optional-dependencies"])
    assert {"book", "dev"} <= extras
    # mamba-ssm cannot be built in the same step as torch: it breaks the whole install.
    assert not extras & {"gpu", "oracle"}


def test_torch_is_pinned_the_same_everywhere(project_root, project):
    pin = pins(project_root / "requirements/torch.txt")["torch"]
    assert f"torch=={pin}" in environment(project_root, "environment.yml")[1]
    assert f"pytorch-gpu={pin}" in environment(project_root, "environment-gpu.yml")[0]
    (wanted,) = [Requirement(line) for line in project["dependencies"] if Requirement(line).name == "torch"]
    assert pin in wanted.specifier
    assert "==" not in str(wanted.specifier), "the pin lives in requirements/torch.txt, so that Colab keeps its own torch"


def test_lock_holds_every_direct_dependency_at_an_allowed_version(project_root, project):
    lock = pins(project_root / "requirements/lock.txt") | pins(project_root / "requirements/torch.txt")
    direct = project["dependencies"] + project["optional-dependencies"]["book"] + project["optional-dependencies"]["dev"]
    for requirement in map(Requirement, direct):
        version = lock.get(canonicalize_name(requirement.name))
        assert version, f"{requirement.name} is missing in requirements/lock.txt: make lock"
        assert version in requirement.specifier, f"{requirement.name}: the lock has {version}: make lock"


def test_lock_brings_no_accelerator_packages(project_root):
    names = pins(project_root / "requirements/lock.txt")
    assert not [name for name in names if name.startswith(("nvidia", "cuda", "triton"))]
    assert "torch" not in names, "torch is pinned in requirements/torch.txt, installed first"


def test_oracle_list_is_the_oracle_extra(project_root, project):
    extra = {canonicalize_name(Requirement(r).name): str(Requirement(r).specifier).removeprefix("==")
             for r in project["optional-dependencies"]["oracle"]}
    assert pins(project_root / "requirements/oracle.txt") == extra


def test_packages_that_need_a_compiler_stay_out_of_the_ordinary_install(project):
    ordinary = project["dependencies"] + project["optional-dependencies"]["book"] + project["optional-dependencies"]["dev"]
    names = {canonicalize_name(Requirement(line).name) for line in ordinary}
    assert not names & {"mamba-ssm", "causal-conv1d", "triton"}


def test_installed_package_declares_what_pyproject_says(project):
    declared = {Requirement(line).name for line in requires("hybridseq") or [] if "extra" not in line}
    assert declared == {Requirement(line).name for line in project["dependencies"]}


@pytest.mark.skipif("HYBRIDSEQ_NETWORK" not in os.environ, reason="asks the package index: HYBRIDSEQ_NETWORK=1 runs it")
def test_pip_can_resolve_the_environment(project_root, tmp_path):
    """pip's part of environment.yml, without its index line (conda itself is not tried here)."""
    _, pip = environment(project_root, "environment.yml")
    wanted = [part for line in pip if not line.startswith("--") for part in line.split()]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", str(tmp_path / "report.json"), *wanted]
    finished = subprocess.run(command, cwd=project_root, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
