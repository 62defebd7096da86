"""Models as plain data: a content hash, and files without pickle (JSON for the structure, npz for the arrays)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from numbers import Real
from pathlib import Path

import numpy as np

import hybridseq.mixers as mixers
from hybridseq.evidence.provenance import content_hash as hash_of_data
from hybridseq.evidence.provenance import write_atomically
from hybridseq.models.embedding import Embedding, SumEmbedding, TypedEmbedding
from hybridseq.models.mlp import MLP
from hybridseq.models.model import Block, Model
from hybridseq.residual import Affine, Stream
from hybridseq.tasks import Vocabulary

__all__ = ["content_hash", "load", "save"]

STRUCTURE, ARRAYS = "model.json", "arrays.npz"
_PARTS = (Model, Block, MLP, Embedding, SumEmbedding, TypedEmbedding, Affine, Stream, Vocabulary)
KINDS = {kind.__name__: kind for kind in _PARTS} | {
    name: kind for name, kind in vars(mixers).items() if isinstance(kind, type) and is_dataclass(kind)
}


def content_hash(model: Model) -> str:
    """SHA-256 of a model's canonical content.

    Numbers enter as exact ratios and arrays by type, shape and bytes, so 1, 1.0 and Fraction(1) weigh the same and any changed
    weight changes the hash.
    """
    return hash_of_data(_describe(model))


def save(model: Model, folder: str | Path) -> Path:
    """Write `model.json` and `arrays.npz` into a folder, made if absent; returns the folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, np.ndarray] = {}
    structure = {"format": 1, "hash": content_hash(model), "model": _encode(model, arrays)}
    with open(folder / ARRAYS, "wb") as file:
        np.savez_compressed(file, **arrays)
    write_atomically(folder / STRUCTURE, json.dumps(structure, indent=1))
    return folder


def load(folder: str | Path) -> Model:
    """Read a model that `save` wrote. Raises ValueError when the content does not match its hash, or is of an unknown kind."""
    folder = Path(folder)
    structure = json.loads((folder / STRUCTURE).read_text(encoding="utf-8"))
    if structure.get("format") != 1:
        raise ValueError(f"{folder / STRUCTURE}: format {structure.get('format')!r} is unknown; this version reads format 1")
    with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
        model = _decode(structure["model"], arrays)
    if content_hash(model) != structure["hash"]:
        raise ValueError(f"{folder}: the content does not match its hash; the files were changed or belong to two models")
    return model


def _parts(item) -> dict:
    """The fields that a dataclass is built from."""
    return {f.name: getattr(item, f.name) for f in fields(item) if f.init}


def _describe(item):
    """Canonical plain data for the hash."""
    if item is None or isinstance(item, bool | str):
        return item
    if isinstance(item, np.ndarray):
        return ["array", item.dtype.str, list(item.shape), hashlib.sha256(np.ascontiguousarray(item).tobytes()).hexdigest()]
    if isinstance(item, Real):
        return ["number", str(Fraction(item.item() if isinstance(item, np.generic) else item))]
    if isinstance(item, Mapping):
        return ["map", {key: _describe(value) for key, value in item.items()}]
    if isinstance(item, list | tuple):
        return ["list", [_describe(value) for value in item]]
    return [_kind(item), {name: _describe(value) for name, value in _parts(item).items()}]


def _encode(item, arrays: dict):
    """JSON data with the Python types kept; arrays go to `arrays` under a name."""
    if item is None or isinstance(item, bool | int | str):
        return item
    if isinstance(item, np.ndarray):
        name = f"array_{len(arrays)}"
        arrays[name] = item
        return {"array": name}
    if isinstance(item, np.generic):
        return _encode(item.item(), arrays)
    if isinstance(item, float):
        return {"float": item.hex()}
    if isinstance(item, Fraction):
        return {"fraction": str(item)}
    if isinstance(item, Mapping):
        return {"map": {key: _encode(value, arrays) for key, value in item.items()}}
    if isinstance(item, list | tuple):
        return [_encode(value, arrays) for value in item]
    return {"kind": _kind(item), "fields": {name: _encode(value, arrays) for name, value in _parts(item).items()}}


def _decode(data, arrays):
    if isinstance(data, list):
        return tuple(_decode(value, arrays) for value in data)
    if not isinstance(data, dict):
        return data
    if "array" in data:
        return arrays[data["array"]]
    if "float" in data:
        return float.fromhex(data["float"])
    if "fraction" in data:
        return Fraction(data["fraction"])
    if "map" in data:
        return {key: _decode(value, arrays) for key, value in data["map"].items()}
    if data.get("kind") not in KINDS:
        raise ValueError(f"kind {data.get('kind')!r} is not a part of a model; known are {', '.join(sorted(KINDS))}")
    return KINDS[data["kind"]](**{name: _decode(value, arrays) for name, value in data["fields"].items()})


def _kind(item) -> str:
    name = type(item).__name__
    if KINDS.get(name) is not type(item):
        raise ValueError(f"a {name} cannot be stored; the parts of a model are {', '.join(sorted(KINDS))}, numbers and arrays")
    return name
