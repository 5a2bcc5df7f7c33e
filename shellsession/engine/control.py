"""The private socket on which bash is typed to, and answers.

Law: a word is bash's own where the kernel says so. Nothing here waits.
"""

from __future__ import annotations

import socket
import struct

from .marks import Framer, Mark
from .streams import MANY_READS, SMALL

# A struct ucred: PID, UID and GID.
_PID_SIZE = struct.calcsize("i")
_CREDENTIALS_SPACE = socket.CMSG_SPACE(3 * _PID_SIZE)


class Control:
    """Our end of it."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self.fd = end.fileno()
        self.line, self._typed = 0, 0  # bash's LINENO at the last mark, and how many lines were typed since
        self._speaker = self._spoke = b""  # bash, as the kernel names it, and who spoke last
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    def send(self, data: bytes) -> None:
        """Type to bash. The socket holds far more than any of our lines, so this never blocks."""
        self._typed += data.count(b"\n")
        try:
            self._socket.send(data, socket.MSG_NOSIGNAL)
        except OSError:
            return  # bash is gone: reading will say so

    def greeted(self) -> None:
        """Bash has answered: from now on only what comes from that process is its word."""
        self._speaker = self._spoke

    def hear(self, framer: Framer) -> bytes | None:
        """What is said: bytes, None when nothing yet, b"" when bash has let go of it. ``framer`` looks for the mark.

        In what bash itself has said: its children can have its own descriptors (`( ... ) &`, `cmd <&10`), read what we
        type, and say the mark in bash's place. The kernel tells who it was (SO_PASSCRED). Who has CAP_SYS_ADMIN may say
        that it is another one: unix(7). It could trace bash as well.
        """
        try:
            data, told, _, _ = self._socket.recvmsg(SMALL, _CREDENTIALS_SPACE)
        except BlockingIOError:
            return None
        except OSError:
            return b""
        self._spoke = told[0][2][:_PID_SIZE] if told else b""
        framer.feed(data, self._speaker in (b"", self._spoke))
        return data

    def receive(self) -> bytes | None:
        """As ``hear``, when no mark is to come."""
        try:
            return self._socket.recv(SMALL)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def skip(self) -> None:
        """Forget what was said; of who talks without end, some."""
        for _ in range(MANY_READS):
            if not self.receive():
                break

    def lines_taken(self, mark: Mark) -> int:
        """Of the lines typed up to ``mark``: how many has somebody else read in bash's place? To be asked once.

        What is no greater than before is no count of bash's: a command has put it there.
        """
        if not mark.line:
            return 0
        before, typed = self.line, self._typed
        self.line, self._typed = mark.line, 0
        return before + typed - mark.line if mark.line > before else 0

    def close(self) -> None:
        self._socket.close()
