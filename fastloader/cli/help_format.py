"""How ``--help`` looks."""

from __future__ import annotations

import argparse


class HelpFormat(argparse.HelpFormatter):
    """Wraps descriptions at the terminal's width, leaves the lines of examples as they are, and names a
    default where there is one to name."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text or text.startswith("fastloader "):  # examples, to be copied
            return "\n".join(indent + line for line in text.splitlines())
        return super()._fill_text(text, width, indent)

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        nothing = action.default in (None, False, [], argparse.SUPPRESS)
        return text if nothing or "default" in text else f"{text} (default: %(default)s)"
