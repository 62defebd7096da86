"""±1 address codes whose distances are checked, never assumed.

A code word is a vector of +1 and -1; a :class:`Codebook` is an ordered list of such words with the minimum Hamming
distance that it claims. `verify_distance` enumerates the whole code and returns a certificate, or says where the claim
is wrong. `address_codebook` picks the family and the number of repetitions that a construction needs.
"""

from hybridseq.codes.address import FAMILIES, address_codebook
from hybridseq.codes.binary import binary, binary_words, width_for
from hybridseq.codes.codebook import Codebook, DistanceCertificate, verify_distance
from hybridseq.codes.linear import (
    bch,
    extended_bch,
    golay,
    lexicode,
    random_linear,
    reed_muller,
    repetition,
    span,
)

__all__ = [
    "FAMILIES",
    "Codebook",
    "DistanceCertificate",
    "address_codebook",
    "bch",
    "binary",
    "binary_words",
    "extended_bch",
    "golay",
    "lexicode",
    "random_linear",
    "reed_muller",
    "repetition",
    "span",
    "verify_distance",
    "width_for",
]
