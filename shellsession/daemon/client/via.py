"""``ViaTransport``: connections to a daemon elsewhere, through a program such as ssh.

The program is ``via`` with `shellsession bridge` behind it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from ...errors import DaemonUnavailable, InvalidRequest
from ..protocol.endpoint import PATIENCE
from .pipe import Pipe, PipeTransport


class Program(Pipe):
    """The standard streams of a running program."""

    advice = f"{Pipe.advice}, or name the program with remote="

    def __init__(self, command: Sequence[str]) -> None:
        place = f"`{' '.join(command)}`"
        try:
            # A session of its own: Ctrl-C at our terminal must not reach it.
            self.process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise DaemonUnavailable(f"{place} could not be started: {error.strerror}") from error
        into, out_of = self.process.stdin, self.process.stdout
        assert into is not None
        assert out_of is not None
        super().__init__(place, out_of, into, self.process.stderr)

    def end(self, failed: bool) -> None:
        super().end(failed)
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
            raise InvalidRequest(f"via is a sequence of words such as ['ssh', 'box'], not {via!r:.100}")
        if not isinstance(remote, str) or not remote:
            raise InvalidRequest(f"remote is the name or path of a program there, not {remote!r:.100}")
        place = f"`{' '.join(via)}`"
        command = (*via, remote, "bridge")
        if socket is not None:
            if not os.path.isabs(socket):
                raise InvalidRequest(f"the socket is a path where {place} leads, so it must be absolute")
            command += ("--socket", socket)
        super().__init__(place, command, lambda: Program(command))
