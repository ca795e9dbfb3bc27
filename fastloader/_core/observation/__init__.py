"""Counts what a loader does, and draws conclusions from the counts."""
