"""The ``fastloader`` command: ``fastloader demo`` and ``fastloader doctor``."""
