"""A column that is not there."""

from __future__ import annotations


class NoColumn(KeyError):
    """A KeyError whose message is shown as it is: that of Python is shown in quotes, as a key."""

    def __str__(self) -> str:
        return str(self.args[0])
