"""Tasks, one file each: vocabulary, prompts, labels, a reference solver, exhaustive and random generators."""

from hybridseq.tasks.vocabulary import Vocabulary

__all__ = ["Vocabulary"]
