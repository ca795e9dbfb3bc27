"""Datasets that stand in the place of the loader's, where Python makes the samples."""
