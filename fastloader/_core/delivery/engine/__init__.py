"""Delivery through the native ring and prefetch thread."""
