"""fastloader's own exceptions. A wrong argument raises a ValueError or TypeError instead, and what a
dataset raises arrives as it was raised."""

from __future__ import annotations


class Error(RuntimeError):
    """The root of fastloader's own exceptions."""


class BackendError(Error):
    """A device, its driver or its memory failed. Close the loader and make it anew."""


class StoppedError(Exception):
    """Work for an epoch that has ended was given up. It does not derive from `Error`, because nothing
    failed and no user sees it."""


class PythonPathWarning(UserWarning):
    """Pictures that could be read natively take the Python path, for the reason that the warning names.
    It comes once for each loader and reason. docs/native.md says what is native."""


class NotNative(Exception):
    """The reason why a source does not serve a dataset that it knows. A dataset that no source serves
    takes the Python path."""
