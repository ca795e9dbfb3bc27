"""fastloader's own exceptions. A wrong argument raises a ValueError or TypeError instead, and what a
dataset raises arrives as it was raised."""

from __future__ import annotations


class Error(RuntimeError):
    """The root of fastloader's own exceptions."""


class BackendError(Error):
    """A device, its driver or its memory failed. Close the loader and make a new one."""


class StoppedError(Exception):
    """Work was given up because its epoch has ended. The class does not derive from `Error`, because
    nothing failed and no user sees it."""


class PythonPathWarning(UserWarning):
    """Pictures that could be read natively take the Python path, for the reason that the warning names.
    Each loader warns once for each reason. docs/native.md says what is native."""


class NotNative(Exception):
    """A source knows this dataset and still cannot serve it; the message says why. A dataset that no
    source serves takes the Python path."""
