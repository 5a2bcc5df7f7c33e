"""A bad connection between a client and the daemon: it breaks after a random number of bytes, at any place."""

import contextlib
import os
import random
import socket
import sys
import threading


class Cutter:
    """Listens at ``path`` and relays to ``target``. Each connection lasts for a random number of bytes."""

    def __init__(self, path: str, target: str, chance: random.Random) -> None:
        self.cuts = 0
        self._target, self._chance = target, chance
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # left by an earlier client that was killed
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(self._target)
            except OSError:  # the daemon is gone, and so is this connection
                far.close()
                near.close()
                continue
            # Some last. The others survive the greeting, and break within a request or a long answer.
            lasts = sys.maxsize if self._chance.random() < 0.3 else int(10 ** self._chance.uniform(2.5, 6.5))
            line = _Line(self, near, far, lasts)
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=line.carry, args=(one, other), daemon=True).start()


class _Line:
    """Relay one connection in both directions."""

    def __init__(self, cutter: Cutter, near: socket.socket, far: socket.socket, left: int) -> None:
        self._cutter, self._ends, self._left = cutter, (near, far), left
        self._carriers = 2

    def carry(self, source: socket.socket, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while self._left > 0 and (data := source.recv(65536)):
                to.sendall(data[: self._left])
                self._left -= len(data)
            self._cutter.cuts += self._left <= 0
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._carriers -= 1
        if not self._carriers:
            for end in self._ends:
                end.close()
