"""Transforms that change where pixels are, and how many there are."""
