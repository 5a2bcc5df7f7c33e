"""The private control socket: our lines go to bash over it, and bash's marks come back.

The kernel names the sender of each message, so only bash itself can report the end of a command. A line is read whole
or not at all. Nothing here waits.
"""

from __future__ import annotations

import socket
import struct

from ..wire import LONG_READS, READ_MAX, SHORT_READ, Mark, MarkFinder
from .streams import MANY_READS, has_unread

# A struct ucred: PID, UID and GID.
_PID_SIZE = struct.calcsize("i")
_CREDENTIALS_SPACE = socket.CMSG_SPACE(3 * _PID_SIZE)
# The rest of a longer message is lost. A mark may exceed PATH_MAX, and a C library other than glibc may write it whole.
_MESSAGE_MAX = 1 << 16


class ControlSocket:
    """Our end of the socket. It is a SOCK_SEQPACKET, so a reader gets a whole message or nothing.

    Other readers than bash are possible (a PROMPT_COMMAND, `( read x ) <&10 &`). From a stream socket one could take
    the beginning of a line, and bash would run the rest.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self.fd = end.fileno()
        self.last_line = 0  # bash's LINENO at the last mark
        self.lines_sent = 0  # since then
        self._bash = self._sender = b""  # bash's pid, and that of the last sender, as in the credentials
        self.is_bash = True  # is the last sender bash itself?
        self.read_size = SHORT_READ  # how many bytes bash reads at once
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    def send(self, data: bytes) -> None:
        """Send lines to bash. The socket holds far more than any of our lines, so this never blocks."""
        self.lines_sent += data.count(b"\n")
        try:
            for start in range(0, len(data), self.read_size):
                self._socket.send(data[start : start + self.read_size], socket.MSG_NOSIGNAL)
        except OSError:
            return  # bash has ended: reading reports that

    @property
    def has_unread(self) -> bool:
        """Are there lines that nobody has read yet? False where the kernel does not say."""
        return has_unread(self.fd)

    def identify(self, version: int) -> None:
        """Note the first answer of bash, of that version: from now on only messages of that process count as bash's."""
        self._bash = self._sender
        self.read_size = READ_MAX if version >= LONG_READS else SHORT_READ

    def read(self, finder: MarkFinder) -> bytes | None:
        """The next message: None if there is none now, b"" if bash has closed its end. ``finder`` looks for the mark.

        Only a mark from bash itself counts. Its children can have its descriptors (`( ... ) &`, `cmd <&10`), read our
        lines, and send the mark in its place. The kernel names the sender (SO_PASSCRED). A process with CAP_SYS_ADMIN
        can pretend to be another one (unix(7)); it could also trace bash.
        """
        data = self.receive()
        if data:
            finder.feed(data, self.is_bash)
        return data

    def receive(self) -> bytes | None:
        """The next message, as ``read`` returns it. Then ``is_bash`` says who sent it, for the caller's finder."""
        try:
            data, credentials, _, _ = self._socket.recvmsg(_MESSAGE_MAX, _CREDENTIALS_SPACE)
        except BlockingIOError:
            return None
        except ConnectionResetError:  # bash has died with lines unread: reported once, before its last messages
            return self.receive()
        except OSError:
            return b""
        self._sender = credentials[0][2][:_PID_SIZE] if credentials else b""
        self.is_bash = self._sender == self._bash or not self._bash
        return data or (None if credentials else b"")  # an empty message has a sender, the end has none

    def skip(self) -> None:
        """Drop the messages so far. An endless writer is read for a while only."""
        for _ in range(MANY_READS):
            if not self.receive():
                break

    def note_mark(self, mark: Mark) -> int:
        """Note how many lines bash has read. Returns how many of ours another process has read in its place.

        A count that has not grown is not bash's own: a command has set it.
        """
        if not mark.line:
            return 0
        before, sent = self.last_line, self.lines_sent
        self.last_line, self.lines_sent = mark.line, 0
        return before + sent - mark.line if mark.line > before else 0

    def close(self) -> None:
        self._socket.close()
