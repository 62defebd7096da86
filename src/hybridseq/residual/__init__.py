"""Residual streams with named subspaces, and sparse affine maps written between the names."""

from hybridseq.residual.affine import Affine
from hybridseq.residual.stream import Stream

__all__ = ["Affine", "Stream"]
