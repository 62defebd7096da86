"""The address words of paper A's decoders: a code word for every address of the table, and for MARK, BLANK and DUMMY."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from hybridseq.arithmetic import FixedPoint
from hybridseq.codes import Codebook, address_codebook
from hybridseq.constructions.hard_selection import m0

SCALES = ("sqrt", "raw")


class AddressWords:
    """Base of a frozen dataclass with the fields n (bits in the table), s (precision) and scale (of the scores)."""

    n: int
    s: int
    scale: str

    def _check_scale(self) -> None:
        if self.scale not in SCALES:
            raise ValueError(f"scale={self.scale!r}: must be one of {', '.join(SCALES)} (a score over d_h never selects)")

    @property
    def ar(self) -> FixedPoint:
        """The arithmetic of the construction, F_s with ties toward zero."""
        return FixedPoint(self.s)

    @cached_property
    def codebook(self) -> Codebook:
        """The address code E: words 0..n-1 are the addresses 1..n, then MARK, BLANK, DUMMY."""
        return address_codebook(self.n + 3, m0(self.s, self.scale))

    def word(self, name: str | int) -> np.ndarray:
        """E(l) for an address l in 1..n, E(MARK), E(BLANK) or E(DUMMY): m signs."""
        place = {"MARK": self.n, "BLANK": self.n + 1, "DUMMY": self.n + 2}
        if name not in place and not (isinstance(name, int) and 1 <= name <= self.n):
            raise ValueError(f"name={name!r}: must be an address from 1 to {self.n}, or one of {', '.join(place)}")
        return self.codebook.words[place[name] if name in place else name - 1]
