"""The private socket on which bash is typed to, and answers.

Law: a word is bash's own where the kernel says so, and what is typed is read whole or not at all. Nothing here waits.
"""

from __future__ import annotations

import os
import socket
import struct
from binascii import hexlify
from typing import Final

from ..wire import LONG_READS, READ_MAX, SHORT_READ, Framer, Mark
from .streams import MANY_READS

# A struct ucred: PID, UID and GID.
_PID_SIZE = struct.calcsize("i")
_CREDENTIALS_SPACE = socket.CMSG_SPACE(3 * _PID_SIZE)
# Of a longer piece the rest is lost. A mark may be longer than PATH_MAX, and who is no glibc may write it all at once.
_HEARD_MAX = 1 << 16


class Control:
    """Our end of it: a SOCK_SEQPACKET, from which nobody takes a part of what was typed.

    Who reads it in bash's place (a PROMPT_COMMAND, `( read x ) <&10 &`) has all of a piece or nothing. Of a stream it
    could take all but the last byte of a line, and bash run what is left of it.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self.fd = end.fileno()
        self.line, self.typed = 0, 0  # bash's LINENO at the last mark, and how many lines were typed since
        self._speaker = self._spoke = b""  # bash, as the kernel names it, and who spoke last
        self.is_bash = True  # that was bash itself
        self.piece = SHORT_READ  # what bash reads at once
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)

    def send(self, data: bytes) -> None:
        """Type to bash. The socket holds far more than any of our lines, so this never blocks."""
        self.typed += data.count(b"\n")
        try:
            for start in range(0, len(data), self.piece):
                self._socket.send(data[start : start + self.piece], socket.MSG_NOSIGNAL)
        except OSError:
            return  # bash is gone: reading will say so

    def greeted(self, version: int) -> None:
        """Bash of that version has answered: from now on only what comes from that process is its word."""
        self._speaker = self._spoke
        self.piece = READ_MAX if version >= LONG_READS else SHORT_READ

    def hear(self, framer: Framer) -> bytes | None:
        """What is said: bytes, None when nothing yet, b"" when bash has let go of it. ``framer`` looks for the mark.

        In what bash itself has said: its children can have its own descriptors (`( ... ) &`, `cmd <&10`), read what we
        type, and say the mark in bash's place. The kernel tells who it was (SO_PASSCRED). Who has CAP_SYS_ADMIN may say
        that it is another one: unix(7). It could trace bash as well.
        """
        data = self.receive()
        if data:
            framer.feed(data, self.is_bash)
        return data

    def receive(self) -> bytes | None:
        """The same, when no mark is to come."""
        try:
            data, told, _, _ = self._socket.recvmsg(_HEARD_MAX, _CREDENTIALS_SPACE)
        except BlockingIOError:
            return None
        except ConnectionResetError:  # bash has died with lines unread: told once, and before its last words
            return self.receive()
        except OSError:
            return b""
        self._spoke = told[0][2][:_PID_SIZE] if told else b""
        self.is_bash = self._spoke == self._speaker or not self._speaker
        return data or (None if told else b"")  # the end is nobody's word: an empty piece is somebody's

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
        before, typed = self.line, self.typed
        self.line, self.typed = mark.line, 0
        return before + typed - mark.line if mark.line > before else 0

    def close(self) -> None:
        self._socket.close()


_NONCES: Final = list[bytes]()
os.register_at_fork(after_in_child=_NONCES.clear)


def fresh_nonce() -> bytes:
    """A nonce that nobody can guess while its command runs: 56 bits, and 24 that may be seen.

    From a pool, as one getrandom(2) is as dear as a look at the clock.
    """
    try:
        return _NONCES.pop()
    except IndexError:
        random = hexlify(os.urandom(640))
        _NONCES.extend(random[at : at + 20] for at in range(0, 1280, 20))
        return _NONCES.pop()
