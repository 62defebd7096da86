"""Floating point over numpy or torch: nothing is rounded beyond what the dtype does."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from hybridseq.arithmetic.base import Arithmetic, check_scale

BACKENDS = ("numpy", "torch")


@dataclass(frozen=True)
class Float(Arithmetic):
    """Ordinary floating point with the operations of :class:`~hybridseq.arithmetic.Arithmetic`.

    Parameters
    ----------
    backend : ``"numpy"`` or ``"torch"`` (imported only when asked for; operations are out of place, so autograd works).
    dtype : a dtype name such as ``"float64"`` (default) or ``"float32"``, or the backend's dtype object.

    Softmax subtracts the maximum (here it changes nothing but overflow); a query that may see no key gets weights 0, as in F_s.

    Examples
    --------
    >>> Float().softmax(np.array([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """

    backend: str = "numpy"
    dtype: Any = "float64"
    exact = False

    def __post_init__(self):
        if self.backend not in BACKENDS:
            raise ValueError(f"backend={self.backend!r} is not one of {', '.join(BACKENDS)}")
        name = str(self.dtype).removeprefix("torch.").removeprefix("<class 'numpy.").removesuffix("'>")
        known = ("float16", "bfloat16", "float32", "float64") if self.backend == "torch" else ("float16", "float32", "float64")
        if name not in known:
            raise ValueError(f"dtype={self.dtype!r} is no float type of {self.backend}; use one of {', '.join(known)}")
        object.__setattr__(self, "dtype", name)

    @property
    def name(self) -> str:
        """For example ``float64`` or ``torch float32``."""
        return self.dtype if self.backend == "numpy" else f"torch {self.dtype}"

    @property
    def bits(self) -> int:
        """Bits that store one number."""
        return 16 if "16" in self.dtype else int(self.dtype.removeprefix("float"))

    @property
    def _torch(self):
        import torch

        return torch

    def array(self, values):
        if self.backend == "torch":
            torch = self._torch
            dtype = getattr(torch, self.dtype)
            if isinstance(values, torch.Tensor):
                return values.to(dtype)
            return torch.as_tensor(np.asarray(values, dtype=np.float64)).to(dtype)
        return np.asarray(values, dtype=np.float64).astype(self.dtype)

    def values(self, x):
        if self.backend == "torch":
            return x.detach().cpu().to(self._torch.float64).numpy()
        return np.asarray(x, dtype=np.float64)

    def full(self, shape, value):
        if self.backend == "torch":
            return self._torch.full(tuple(shape), float(value), dtype=getattr(self._torch, self.dtype))
        return np.full(shape, float(value), dtype=self.dtype)

    def add(self, a, b):
        return a + b

    def sub(self, a, b):
        return a - b

    def mul(self, a, b):
        return a * b

    def neg(self, a):
        return -a

    def relu(self, a):
        return self._torch.relu(a) if self.backend == "torch" else np.maximum(a, 0)

    def exp(self, x):
        return self._torch.exp(x) if self.backend == "torch" else np.exp(x)

    def sigmoid(self, x):
        if self.backend == "torch":
            return self._torch.sigmoid(x)
        x = np.asarray(x)
        decayed = np.exp(-np.abs(x))
        return np.where(x >= 0, 1 / (1 + decayed), decayed / (1 + decayed)).astype(x.dtype)

    def where(self, condition, a, b):
        if self.backend == "numpy":
            return np.where(condition, a, b)
        torch = self._torch
        dtype = getattr(torch, self.dtype)
        return torch.where(
            torch.as_tensor(condition), torch.as_tensor(a, dtype=dtype), torch.as_tensor(b, dtype=dtype)
        )

    def stack(self, arrays, axis=0):
        return self._torch.stack(list(arrays), dim=axis) if self.backend == "torch" else np.stack(arrays, axis=axis)

    def concat(self, arrays, axis=-1):
        if self.backend == "torch":
            return self._torch.cat(list(arrays), dim=axis)
        return np.concatenate(arrays, axis=axis)

    def sum(self, x, axis=-1):
        return x.sum(axis)

    def affine(self, weight, x, bias=None):
        product = x @ weight.T
        return product if bias is None else product + bias

    def _scaled(self, total, dim, scale):
        check_scale(scale)
        return total / {"raw": 1.0, "sqrt": sqrt(dim), "dim": float(dim)}[scale]

    def wide_dot(self, x, y, scale="raw"):
        return self._scaled((x * y).sum(-1), x.shape[-1], scale)

    def scores(self, q, k, scale="sqrt"):
        return self._scaled(q @ k.swapaxes(-1, -2), q.shape[-1], scale)

    def softmax(self, z, mask=None):
        if mask is None:
            mask = np.ones(tuple(z.shape[-2:]) if z.ndim > 1 else tuple(z.shape), dtype=bool)
        if self.backend == "torch":
            torch = self._torch
            mask = torch.as_tensor(mask, device=z.device).expand(z.shape)
            floor = torch.finfo(z.dtype).min
            top = torch.where(mask, z, torch.full_like(z, floor)).amax(-1, keepdim=True).detach()
            e = torch.where(mask, torch.exp(torch.where(mask, z - top, torch.zeros_like(z))), torch.zeros_like(z))
            total = e.sum(-1, keepdim=True)
            return e / torch.where(total == 0, torch.ones_like(total), total)
        z = np.asarray(z)
        mask = np.broadcast_to(mask, z.shape)
        top = np.where(mask, z, np.finfo(z.dtype).min).max(axis=-1, keepdims=True)
        e = np.where(mask, np.exp(np.where(mask, z - top, 0)), 0)
        total = e.sum(axis=-1, keepdims=True)
        return (e / np.where(total == 0, 1, total)).astype(z.dtype)

    def mix(self, p, v):
        return p @ v

    def rms_norm(self, x):
        return self._normalised(x, x.shape[-1])

    def l2_norm(self, x):
        return self._normalised(x, 1)

    def _normalised(self, x, factor):
        square_sum = (x * x).sum(-1)[..., None]
        if self.backend == "torch":
            torch = self._torch
            safe = torch.where(square_sum == 0, torch.ones_like(square_sum), square_sum)
            return x * torch.sqrt(factor / safe)
        return x * np.sqrt(factor / np.where(square_sum == 0, 1, square_sum)).astype(x.dtype)
