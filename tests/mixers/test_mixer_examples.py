"""The examples in the docstrings of the mixers run."""

import doctest
import importlib
import pkgutil

import pytest

import hybridseq.mixers


@pytest.mark.parametrize("module", [m.name for m in pkgutil.iter_modules(hybridseq.mixers.__path__)])
def test_examples(module):
    assert doctest.testmod(importlib.import_module(f"hybridseq.mixers.{module}")).failed == 0
