"""Builds the native training step where a C compiler is found; without one the package installs all the same.

Two plain shared libraries (float and double) that ctypes loads: they know nothing of Python, so no headers of Python are needed.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FOLDER = "src/hybridseq/learning/native"

spec = importlib.util.spec_from_file_location("source", Path(FOLDER, "source.py"))
source = importlib.util.module_from_spec(spec)
spec.loader.exec_module(source)


class SharedLibraries(build_ext):
    """Names without the interpreter's version, and no module to export."""

    def get_ext_filename(self, fullname: str) -> str:
        return fullname.replace(".", "/") + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return []


def library(dtype: str, *options: str) -> Extension:
    """One precision; `optional`: a failure to compile is a warning."""
    return Extension(
        "hybridseq.learning.native." + source.LIBRARIES[dtype].removesuffix(".so"),
        [f"{FOLDER}/step.c"],
        depends=[f"{FOLDER}/{name}" for name in (*source.FILES, "source.py")],
        extra_compile_args=[*source.flags(), f'-DSOURCE_HASH="{source.source_hash()}"', *options],
        libraries=["m"],
        optional=True,
    )


setup(
    ext_modules=[library("float32"), library("float64", "-DDOUBLE")],
    cmdclass={"build_ext": SharedLibraries},
    package_data={"hybridseq.learning.native": list(source.FILES)},
)
