"""The two ways in which a command ends badly: wrong input (exit code 2) and failed work (exit code 1)."""

from __future__ import annotations


class BadInput(ValueError):
    """An argument names something that does not exist: the message names argument, value and what is allowed."""


class BookFailed(RuntimeError):
    """A chapter, a claim or the site failed: `problems` holds one message a failure, each naming chapter and cell.

    >>> print(BookFailed(["chapter 4, cell 7: no", "chapter 5, cell 2: no"]))
    chapter 4, cell 7: no
    chapter 5, cell 2: no
    """

    def __init__(self, problems: list[str] | str) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))
