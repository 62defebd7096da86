"""Rounded attention as AND/OR/NOT circuits of constant depth: compilers, a simplifier, a SAT miter (paper A, Lemma 6.1)."""

from hybridseq.bounds.circuits.circuit import Builder, Circuit

__all__ = ["Builder", "Circuit"]
