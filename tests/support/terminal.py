"""What a program shows on a terminal."""

import os
import pty
import select
import subprocess
import sys
import textwrap
import time

from support import HANG, PACKAGE_ROOT, SUPPORT


def on_terminal(source, *arguments, env=None):
    """Runs Python source whose stderr is a terminal. Returns (exit status, stdout, stderr)."""
    variables = {key: value for key, value in os.environ.items() if "FASTLOADER" not in key}
    variables["PYTHONPATH"] = os.pathsep.join([str(PACKAGE_ROOT), str(SUPPORT)])
    variables.update(env or {})
    reader, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env=variables,
    )
    os.close(terminal)
    shown, end = b"", time.monotonic() + HANG
    try:
        while time.monotonic() < end:
            if select.select([reader], [], [], 0.1)[0]:
                try:
                    shown += os.read(reader, 65536)
                except OSError:  # the other end was closed
                    break
        printed = process.communicate(timeout=HANG)[0]
    finally:
        process.kill()
        process.wait()
        os.close(reader)
    return process.returncode, printed.decode(), shown.decode()
