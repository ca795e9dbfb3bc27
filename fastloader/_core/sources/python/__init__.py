"""Batches that Python makes: the data set's code, and torch's iterators."""
