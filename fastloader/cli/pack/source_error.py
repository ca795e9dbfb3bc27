"""What ends a packing."""


class SourceError(Exception):
    """Ends the packing with a message and no traceback."""
