"""Stands between a client and a server of TCP, and harms what the server answers."""

import collections
import socket
import struct
import threading
import time


class FaultyProxy:
    """``delay``: the seconds for which each piece of an answer is held up. ``silent``: whether answers
    never arrive.

    ``faults``: pairs (kind, bytes). The first one strikes the connection on which the answers, counted
    over all connections since the last fault, reach so many bytes; then the next one is first. "cut"
    ends the connection in an orderly way, "reset" with a reset, "corrupt" changes a byte and goes on,
    "stall" sends no more on this connection. ``struck``: the kinds that have struck.
    """

    def __init__(self, port):
        self.delay = 0.0
        self.silent = False
        self.faults = collections.deque()
        self.struck = []
        self._answered = 0  # bytes since the last fault
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = set()
        self._guard = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

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
        kind = None
        try:
            while data := source.recv(1 << 16):
                if answers and self.silent:
                    continue
                if answers:
                    if self.delay:
                        time.sleep(self.delay)
                    kind, data = self._harmed(data)
                if kind == "reset":
                    target.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
                target.sendall(data)
                if kind == "cut":
                    break
                if kind == "stall":
                    while source.recv(1 << 16):
                        pass
        except OSError:
            pass
        # The thread of the other way waits in `recv`, and holds the socket open until it is woken up. To
        # shut down more than reading would end a connection that is to be reset in an orderly way.
        for each in (target, source):
            try:
                each.shutdown(socket.SHUT_RD if kind == "reset" else socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    def _harmed(self, data):
        with self._guard:
            if not self.faults:
                return None, data
            kind, after = self.faults[0]
            before, self._answered = self._answered, self._answered + len(data)
            if self._answered < after:
                return None, data
            self.faults.popleft()
            self.struck.append(kind)
            self._answered = 0
        place = max(0, after - before - 1)
        if kind == "corrupt":
            changed = bytearray(data)
            changed[place] ^= 0x10
            return kind, bytes(changed)
        return kind, data[:place]

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
