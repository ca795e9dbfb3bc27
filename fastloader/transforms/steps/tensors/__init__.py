"""Transforms of tensors, behind the conversion."""
