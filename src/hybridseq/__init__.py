"""Hybrid sequence models, executed."""
