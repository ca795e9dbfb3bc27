"""``FASTLOADER_LOG``: what fastloader does, on stderr.

This imports the standard library only, because it runs at ``import fastloader``.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys

LEVELS = ("info", "debug")


def wanted() -> str:
    """The level that ``FASTLOADER_LOG`` names; empty if nothing is to be shown.

    Raises:
        ValueError: for any other value.
    """
    value = os.environ.get("FASTLOADER_LOG", "")
    if value.lower() not in ("", *LEVELS):
        raise ValueError(
            f"FASTLOADER_LOG={value!r}: use info, or debug for more; unset it for neither"
        )
    return value.lower()


def attach() -> bool:
    """Has the logger "fastloader" write to stderr, if ``FASTLOADER_LOG`` says so, and returns whether
    it does. Called once, at ``import fastloader``."""
    level = wanted()
    if not level:
        return False
    handler = logging.StreamHandler(sys.stderr)
    text = "%(asctime)s %(levelname)s %(process)d %(message)s"
    handler.setFormatter(logging.Formatter(text))
    logger = logging.getLogger("fastloader")
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    return True


def say(text: str) -> None:
    """Logs for information."""
    logging.getLogger("fastloader").info("fastloader: %s", text)


def is_worker() -> bool:
    """Whether this process was begun by multiprocessing, whose parent has said the same already."""
    # The name is set before a spawned process imports anything, unlike `parent_process`.
    return multiprocessing.current_process().name != "MainProcess"
