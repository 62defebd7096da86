"""A finite token alphabet, with the answer tokens and the scratch alphabet of a decoder."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Vocabulary"]


@dataclass(frozen=True)
class Vocabulary:
    """The alphabet Sigma in a fixed order, its answer tokens and its scratch alphabet Gamma (paper A, Section 3.1).

    tokens: distinct names; the order is also the order in which greedy decoding breaks ties. answers: the tokens that end
    a generation. scratch: tokens that a decoder may write before its answer. Raises ValueError for repeated or unknown names.

    >>> v = Vocabulary(("0", "1", "YES", "NO"), answers=("YES", "NO"))
    >>> v.index("YES"), v.names([0, 2])
    (2, ['0', 'YES'])
    """

    tokens: tuple[str, ...]
    answers: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()

    def __post_init__(self):
        for name in ("tokens", "answers", "scratch"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if len(set(self.tokens)) != len(self.tokens) or not self.tokens:
            raise ValueError(f"tokens: needs one or more distinct names, got {self.tokens}")
        for name in ("answers", "scratch"):
            if unknown := [token for token in getattr(self, name) if token not in self.tokens]:
                raise ValueError(f"{name}: {unknown} are not among the tokens {self.tokens}")
        if both := set(self.answers) & set(self.scratch):
            raise ValueError(f"scratch: {sorted(both)} are answer tokens; an answer cannot be scratch")

    def __len__(self) -> int:
        return len(self.tokens)

    def index(self, name: str) -> int:
        """The number of a token. Raises ValueError for an unknown name."""
        if name not in self.tokens:
            raise ValueError(f"token {name!r} is not in the vocabulary {self.tokens}")
        return self.tokens.index(name)

    def names(self, indices) -> list[str]:
        """The names of a sequence of token numbers."""
        return [self.tokens[int(i)] for i in indices]
