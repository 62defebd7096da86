"""Every example in a docstring of the package runs and gives what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import hybridseq

NO_MODULES = ("__main__", "_step32", "_step64")  # the native step is loaded as a library

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(hybridseq.__path__, "hybridseq.") if not module.name.endswith(NO_MODULES)
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_say(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
