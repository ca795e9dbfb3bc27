"""Batches that Python makes, with the data set's code and torch's iterators."""
