"""A MongoDB server for tests: FASTLOADER_TEST_MONGODB (a URI), a ``mongod`` on PATH, or nx-27017, which
speaks MongoDB's protocol over SQLite."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

VARIABLE = "FASTLOADER_TEST_MONGODB"
_SECONDS = 30


class Server:
    """A server of our own, which can be killed and started again with the same documents."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = None
        self.start()

    @property
    def uri(self):
        return f"mongodb://127.0.0.1:{self.port}/"

    def start(self):
        (self.folder / "data").mkdir(exist_ok=True)
        (self.folder / "pid").unlink(missing_ok=True)
        data, log = str(self.folder / "data"), str(self.folder / "log")
        program = shutil.which("mongod")
        if program:
            command = [program, "--bind_ip", "127.0.0.1", "--port", str(self.port)]
            command += ["--dbpath", data, "--logpath", log, "--quiet"]
        else:
            main = "from nx_27017.nx_27017 import main; main()"
            command = [sys.executable, "-c", main, "--host", "127.0.0.1", "-p", str(self.port)]
            command += ["--data-dir", data, "--log-file", log, "--pid-file"]
            command += [str(self.folder / "pid")]
        with open(self.folder / "out", "ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            if self.process.poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start: {(self.folder / 'out').read_text()[-2000:]}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.kill()


def server_or_skip(folder):
    pytest.importorskip("pymongo")
    if shutil.which("mongod") is None:
        pytest.importorskip("nx_27017")
    return Server(folder)


class Proxy:
    """Stands between a client and a server. ``delay``: the seconds for which each piece of an answer is
    held up. ``requests``: the commands that a client has sent, counted at the first byte of each."""

    def __init__(self, port):
        self.delay = 0.0
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = set()
        self._guard = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def uri(self):
        return f"mongodb://127.0.0.1:{self.port}/"

    def _accept(self):
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            try:
                there = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                here.close()
                continue
            with self._guard:
                self._sockets |= {here, there}
            threading.Thread(target=self._pump, args=(here, there, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(there, here, True), daemon=True).start()

    def _pump(self, source, target, answers):
        try:
            while data := source.recv(1 << 16):
                if answers and self.delay:
                    time.sleep(self.delay)
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            each.close()

    def cut(self):
        """Resets all connections."""
        with self._guard:
            cut, self._sockets = self._sockets, set()
        for each in cut:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    def close(self):
        self._listener.close()
        self.cut()


def given_uri():
    return os.environ.get(VARIABLE)
