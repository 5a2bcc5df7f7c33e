"""``ViaTransport``: connections to a daemon elsewhere, through a program such as ssh.

The program is ``via`` with `shellsession bridge` behind it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ...errors import DaemonUnavailable, InvalidRequest
from ..protocol.endpoint import PATIENCE
from ..protocol.mux import FilePipe
from .pipe import BridgePipe, PipeTransport

_ERRORS_MAX: Final = 4096  # bytes of its stderr that are kept
_LINES: Final = 5  # of them in a message


class Program(FilePipe, BridgePipe):
    """The standard streams of a running program."""

    advice = f"{BridgePipe.advice}, or name the program with remote="

    def __init__(self, command: Sequence[str]) -> None:
        self._place = f"`{' '.join(command)}`"
        try:
            # Its own session: Ctrl-C at our terminal must not reach it.
            self.process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise DaemonUnavailable(f"{self._place} could not be started: {error.strerror}") from error
        streams = self.process.stdin, self.process.stdout, self.process.stderr
        self._streams = [stream for stream in streams if stream is not None]  # all three
        into, out_of, self.errors = (stream.fileno() for stream in self._streams)
        super().__init__(out_of, into)
        os.set_blocking(self.errors, False)
        self._text = b""

    def __str__(self) -> str:
        return self._place

    def read_errors(self) -> bool:
        assert self.errors is not None
        try:
            while data := os.read(self.errors, _ERRORS_MAX):
                self._text = (self._text + data)[-_ERRORS_MAX:]
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def why_ended(self) -> str:
        self.read_errors()
        return " | ".join(self._text.decode("utf-8", "replace").strip().splitlines()[-_LINES:])

    def close(self) -> None:
        for stream in self._streams:
            with suppress(OSError):
                stream.close()

    def end(self, failed: bool) -> None:
        self.close()
        try:
            self.process.wait(0 if failed else PATIENCE)
        except subprocess.TimeoutExpired:  # it is stopped, or its connection is
            self.process.kill()
            self.process.wait()


class ViaTransport(PipeTransport):
    """Connects to this user's daemon at the other end of ``via``.

    ``remote``: the program there. ``socket``: the daemon's socket there (default: the one of the user there).
    """

    def __init__(self, via: Sequence[str], remote: str = "shellsession", socket: str | None = None) -> None:
        if isinstance(via, str) or not via or not all(isinstance(word, str) and word for word in via):
            raise InvalidRequest(f"via must be a sequence of words such as ['ssh', 'box'], not {via!r:.100}")
        if not isinstance(remote, str) or not remote:
            raise InvalidRequest(f"remote must be the name or path of a program there, not {remote!r:.100}")
        place = f"`{' '.join(via)}`"
        command = (*via, remote, "bridge")
        if socket is not None:
            if not os.path.isabs(socket):
                raise InvalidRequest(f"the socket is a path where {place} leads, so it must be absolute")
            command += ("--socket", socket)
        super().__init__(place, command, lambda: Program(command))
