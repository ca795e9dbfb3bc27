"""Names of any bytes, as a terminal may show them."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """The text on one line. What is no character to be seen is escaped: a terminal may take it for an
    order, and no encoding has the bytes of a name that is no UTF-8."""
    return "".join(
        each.encode("unicode_escape").decode()
        if unicodedata.category(each)[0] == "C" or each in "\u2028\u2029"
        else each
        for each in text
    )
