"""Weights set by hand, one file a theorem: each construction says what it assumes and how to check what it claims."""
