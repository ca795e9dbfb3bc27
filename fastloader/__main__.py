"""``python -m fastloader``: the command ``fastloader``."""

import sys

from fastloader.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
