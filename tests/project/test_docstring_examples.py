"""Every example in a docstring of the package runs and gives what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import hybridseq

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(hybridseq.__path__, "hybridseq.") if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_say(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
