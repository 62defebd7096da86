"""Models inside certificates: the files that `models.save` writes, as text, so that a certificate is plain data."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hybridseq import models
from hybridseq.models import Model


def pack(model: Model) -> dict[str, str]:
    """The model's files by name, in base64."""
    with tempfile.TemporaryDirectory() as folder:
        models.save(model, folder)
        files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
    return {name: base64.b64encode(data).decode("ascii") for name, data in files.items()}


def unpack(files: Mapping[str, str]) -> Model:
    """The model again. Raises ValueError when the content does not match its own hash."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / Path(name).name).write_bytes(base64.b64decode(text))
        return models.load(folder)
