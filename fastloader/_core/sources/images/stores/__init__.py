"""Stores of encoded pictures."""
