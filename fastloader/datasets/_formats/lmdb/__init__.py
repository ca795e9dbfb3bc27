"""LMDB files, those of ``fastloader pack`` and those of the well-known recipe."""
