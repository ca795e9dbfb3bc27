"""Batches gathered from arrays."""
