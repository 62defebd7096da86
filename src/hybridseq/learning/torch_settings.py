"""How torch runs small models on one core: one thread, no denormals, and an allocator that keeps its memory.

Measured traps. With two threads inside an operation, small operations wait for each other, 3 to 8 times slower beside a busy
neighbour. Numbers below 1e-38 (moments of unused embeddings, decayed states) are computed in microcode unless they are flushed
to zero. glibc hands big tensors back to the kernel after every operation and clears the pages again at the next.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # parameters of glibc's mallopt


@contextmanager
def one_quiet_thread() -> Iterator[None]:
    """Inside: one thread an operation, denormals flushed to zero. The number of threads and the flag come back afterwards."""
    threads, flushed = torch.get_num_threads(), _flushes_denormals()
    _keep_freed_memory()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushed)


def _flushes_denormals() -> bool:
    """Whether this thread flushes them already: torch has no getter, so a product that is one."""
    return float(torch.tensor([1e-30]) * torch.tensor([1e-10])) == 0.0


@cache
def _keep_freed_memory() -> bool:
    """Ask glibc, once a process, to reuse freed blocks of any size; False where the C library is another."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(_TRIM_THRESHOLD, 2**31 - 1) and mallopt(_MMAP_MAX, 0))
