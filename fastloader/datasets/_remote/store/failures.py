"""Requests that fail: which may succeed later, and what is said of the others."""

from __future__ import annotations

import re

from fastloader._core.machine import identity
from fastloader.errors import Error

# What a server says of a request that it would refuse again, and what our side finds wrong with it.
# A certificate that is damaged (Bad...) was harmed on the way. Without a length it is no file.
_HOPELESS = re.compile(
    r"status code: 4(?!08|25|29)\d\d|builder error|InvalidCertificate\((?!\s*Bad)|not.?supported"
    r"|Content-Length Header missing",
    re.I,
)


_OBSTORE = "obstore.exceptions"


class Refused(Error):
    """The store does not let these credentials read an object, or does not tell that there is none."""


def may_pass(error: Exception) -> bool:
    """Whether a request that failed so may succeed later."""
    if _is_any(error, _OBSTORE, "BaseError"):
        passing = _is_any(error, _OBSTORE, "GenericError", "JoinError")
        return passing and not _HOPELESS.search(str(error))
    if isinstance(error, PermissionError | IsADirectoryError):
        return False
    # What aiohttp finds wrong with an answer, of fsspec's files over HTTP.
    of_http = _is_any(error, "aiohttp", "ClientError") or _is_any(
        error, "aiohttp.http_exceptions", "HttpProcessingError"
    )
    return of_http or isinstance(error, OSError | EOFError)


def _is_any(error: Exception, module: str, *names: str) -> bool:
    """Whether it is an exception of one of these classes, of a library that may not be there."""
    return any(isinstance(error, identity.found(module, name) or ()) for name in names)


def explained(url: str, error: Exception, what: str = "") -> Error:
    """The library's exception without what it may have of signatures and keys in its text or its
    chain."""
    said, _, details = str(error).partition("Debug source")
    said = " ".join(re.sub(r"\?\S+", "?...", said).split())[:500]
    messages = re.findall(r'message: "([^"]*)"', details)
    if "InvalidCertificate" in details:
        messages = ["the server's certificate is not trusted"]
    elif "TimedOut" in details:
        messages = ["no answer in time"]
    why = f" ({messages[0]})" if messages else ""
    refused = isinstance(error, PermissionError) or _is_any(
        error, _OBSTORE, "PermissionDeniedError", "UnauthenticatedError"
    )
    # Some web servers answer with a page that says that there is no such file.
    refused |= "MissingContentLength" in details
    kind = Refused if refused else Error
    return kind(f"{url}: {what}{type(error).__name__}: {said}{why}")
