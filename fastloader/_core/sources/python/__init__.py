"""Batches that Python makes, with the dataset's code and torch's iterators."""
