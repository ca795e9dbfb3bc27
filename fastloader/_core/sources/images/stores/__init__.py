"""Stores of pictures."""
