"""The exceptions that are fastloader's own. What the user passed wrongly is a ValueError or
TypeError; what a dataset raises arrives as it was raised."""

from __future__ import annotations


class Error(RuntimeError):
    """Root of fastloader's own exceptions."""


class BackendError(Error):
    """A device, its driver or its memory failed. The loader must be closed and made anew."""


class StoppedError(Exception):
    """Work for an epoch that has ended was given up. No Error: it is nothing that the work ran into, and
    no user sees it."""


class PythonPathWarning(UserWarning):
    """Pictures that could be read natively are not, for the reason that is named. It comes once for each
    loader and reason. What is native: docs/native.md."""


class NotNative(Exception):
    """Why a dataset takes the Python path."""
