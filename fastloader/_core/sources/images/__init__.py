"""Batches of pictures that native threads decode."""
