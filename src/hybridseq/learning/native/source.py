"""What the native step is built from: files, their hash, compiler flags. Standard library only, since `setup.py` runs it too."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

FILES = ("step.c", "data.h", "layers.h", "scan.h", "attention.h", "products.h", "lanes.h")
"""step.c includes the others."""

LIBRARIES = {"float32": "_step32.so", "float64": "_step64.so"}
"""The built files, beside the sources."""

STRICT = (
    "-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden", "-Wno-psabi",
)  # fmt: skip
"""No -ffast-math, which would reorder sums and let a NaN pass comparisons; no -march=native, whose results differ by machine. A
product and a sum become one fused operation (-ffp-contract)."""

X86 = ("-march=x86-64-v3",)
"""AVX2 and fused multiply-adds; the loader checks that the processor has them."""


def flags(machine: str | None = None) -> list[str]:
    """Compiler flags for a machine (`platform.machine()`)."""
    x86 = (machine or platform.machine()).lower() in ("x86_64", "amd64")
    return [*STRICT, *(X86 if x86 else ())]


def source_hash(folder: Path | None = None) -> str:
    """16 hexadecimal digits over the names and the text of all files, and the flags."""
    folder = Path(__file__).parent if folder is None else folder
    digest = hashlib.sha256(" ".join(flags()).encode())
    for name in FILES:
        digest.update(b"\0" + name.encode() + b"\0" + (folder / name).read_bytes())
    return digest.hexdigest()[:16]
