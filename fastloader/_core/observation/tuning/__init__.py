"""The rules of ``num_workers="auto"`` and ``depth="auto"``."""
