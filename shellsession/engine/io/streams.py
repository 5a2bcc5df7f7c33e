"""The streams that carry the output of a shell's commands, and the keyboard of its terminal.

Law: no read here waits.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from ...errors import LimitReached
from ..kernel import proc
from ..kernel.signals import undisturbed
from ..wire import quote

# More reads than what a terminal holds takes (64 KiB, 4095 bytes each), or a socket.
MANY_READS = 256
# The pipe's size: bigger means fewer wake-ups. 1 MiB is what an ordinary user may have (/proc/sys/fs/pipe-max-size).
_PIPE_SIZE = 1 << 20
# Reading into 64 KiB when a line is there costs more in malloc and page faults than the read: begin small.
CHUNK = 1 << 16
SMALL = 1 << 12
# <asm-generic/ioctls.h>; os.ptsname and the like came with Python 3.13
_TIOCGPTN = 0x80045430
_TIOCSPTLCK = 0x40045431
_TIOCGPTPEER = 0x5441
_F_SETPIPE_SZ = 1031  # <linux/fcntl.h>; named in fcntl only by some builds
_TERMINALS_TAKEN = (
    "no pseudo terminal is free, and nothing was run: there are as many as kernel.pty.max (/proc/sys/kernel/pty/max)"
    " allows, or max= of the mount at /dev/pts: raise it, close sessions, or make some with tty=False"
)


class Stream:
    """One reading end and the path by which bash opens the other.

    ``word`` is the path as bash reads it, ``modes`` those of a terminal; ``identity`` tells the other end's file.
    """

    __slots__ = ("closed", "fd", "identity", "inode", "modes", "path", "word")

    def __init__(self, fd: int, path: bytes, modes: bytes = b"", slave: int = -1) -> None:
        self.fd = fd
        self.closed = False
        self.path = path
        self.word = path if modes else quote(path)
        self.modes = modes
        self.identity = proc.identity(slave if modes else fd)
        self.inode = 0 if modes else self.identity[1]

    def in_place(self) -> bool:
        """Does its path still lead to it? Bash would make a file where somebody has removed a pipe (1.5 us)."""
        try:
            return os.lstat(self.path).st_ino == self.inode
        except OSError:
            return False

    def read(self, size: int = CHUNK) -> bytes | None:
        """What is there: bytes, None when nothing is there yet, b"" when nobody holds the other end."""
        try:
            return os.read(self.fd, size)
        except BlockingIOError:
            return None
        except OSError:  # EIO: the last slave of a pseudo terminal is closed
            return b""

    def skip(self) -> None:
        """Throw away what is there; of who talks without end, some."""
        for _ in range(MANY_READS):
            if not self.read():
                break

    def settle(self) -> None:
        """Put a terminal's modes back to ours (`stty sane`, `reset` and the like change them)."""
        if fcntl.ioctl(self.fd, termios.TCGETS, _BLANK) != self.modes:
            set_modes(self.fd, self.modes)

    def close(self) -> None:
        """A second time, after the first was struck, it does what is left."""
        with suppress(OSError):
            if not self.closed:
                self.closed = True  # first: by then the number may be somebody else's
                os.close(self.fd)
        if self.inode and self.in_place():
            with suppress(OSError):
                os.unlink(self.path)


_BLANK = bytes(64)  # more than struct termios of any architecture


def get_modes(fd: int) -> bytes:
    """The terminal's modes as the kernel has them; through the master they are the slave's (2 us; tcgetattr 6)."""
    return fcntl.ioctl(fd, termios.TCGETS, _BLANK)


def set_modes(fd: int, modes: bytes) -> None:
    with suppress(OSError):
        fcntl.ioctl(fd, termios.TCSETS, modes)


def slave_path(master: int) -> bytes:
    """The path of a pseudo terminal's other side."""
    return b"/dev/pts/%d" % struct.unpack("I", fcntl.ioctl(master, _TIOCGPTN, bytes(4)))[0]


def set_size(fd: int, size: tuple[int, int]) -> None:
    columns, rows = size
    with suppress(OSError):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _open_pair(devices: int) -> tuple[int, int]:
    """A new pseudo terminal of another mount namespace, whose /dev/pts is open as ``devices``."""
    flags = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
    master = os.open("ptmx", flags, dir_fd=devices)
    try:
        fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
        return master, fcntl.ioctl(master, _TIOCGPTPEER, flags)
    except BaseException:
        os.close(master)
        raise


def open_terminal(size: tuple[int, int], devices: int = -1) -> tuple[int, int]:
    """A new pseudo terminal, raw (what is written comes out unchanged): our side, and the other one.

    Raises LimitReached where the kernel allows no more of them, and OSError.
    """
    try:
        master, slave = os.openpty() if devices < 0 else _open_pair(devices)
    except OSError as error:
        if error.errno == errno.ENOSPC:  # no disk is full
            raise LimitReached(_TERMINALS_TAKEN) from error
        raise
    try:
        tty.setraw(slave)
        set_size(slave, size)
        return master, slave
    except BaseException:
        os.close(master)
        os.close(slave)
        raise


def terminal_stream(size: tuple[int, int], devices: int = -1) -> Stream:
    """The same as a stream."""
    master, slave = open_terminal(size, devices)
    try:
        os.set_blocking(master, False)
        return Stream(master, slave_path(master), get_modes(master), slave)
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)


def pipe_stream(path: str) -> Stream:
    """A new named pipe (0600)."""
    os.mkfifo(path, 0o600)
    os.chmod(path, 0o600)  # the host's umask may have taken our own rights
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with suppress(OSError):  # the user's pipe pages are used up: a small pipe does as well, only slower
        fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_SIZE)
    return Stream(fd, os.fsencode(path))


class Streams:
    """Those of one shell's commands: at most one of each kind ("tty", "out", "err"), which nobody else holds.

    ``others``: descriptors that are polled together with them.
    """

    def __init__(self, make_pipe: Callable[[], Stream], size: tuple[int, int], others: tuple[int, ...]) -> None:
        self._make_pipe = make_pipe
        self.size = size
        self.devices = -1  # the shell's /dev/pts, where that is not ours
        self._known: dict[str, Stream] = {}
        self.poll = select.poll()  # of all of them, and of what is read together with them
        for fd in others:
            self.poll.register(fd, select.POLLIN)

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._known.values())

    def prepare(self, tty: bool) -> None:
        """Make those of an ordinary command."""
        self.get("tty" if tty else "out")
        self.get("err")

    def get(self, kind: str) -> Stream:
        """The stream of that kind for the next command. Raises LimitReached."""
        if kind not in self._known:
            with undisturbed():
                stream = self._known[kind] = self._make(kind)
                self.poll.register(stream.fd, select.POLLIN)
        return self._known[kind]

    def _make(self, kind: str) -> Stream:
        try:
            return terminal_stream(self.size, self.devices) if kind == "tty" else self._make_pipe()
        except OSError as error:
            raise LimitReached(
                f"no stream could be made for the command, which was not run: {error};"
                " close sessions or files, or raise the limit"
            ) from error

    def misplaced(self) -> list[Stream]:
        """Those that bash would no longer find: somebody has removed or replaced our files."""
        gone = []
        for stream in self._known.values():
            if stream.inode and not stream.in_place():
                gone.append(stream)
        return gone

    def are_in_place(self, *streams: Stream) -> bool:
        """Are these still the shell's own, and would bash find them?"""
        known = self._known.values()
        try:
            for stream in streams:
                if stream not in known or (stream.inode and os.lstat(stream.path).st_ino != stream.inode):
                    return False
        except OSError:
            return False
        return True

    def glance(self) -> dict[int, int]:
        """What is to be read just now, by descriptor: POLLIN, or POLLHUP when nobody holds the stream.

        One call for all of them (2 us), as most commands leave nothing to read. The kernel hands over what was
        written to a terminal before it answers, so nothing is missed.
        """
        return dict(self.poll.poll(0))

    def part_with(self, stream: Stream) -> bool:
        """Hand a stream over for good (a child holds it); False for what is none of these, which stays the shell's."""
        for kind, known in list(self._known.items()):
            if known is stream:
                del self._known[kind]
                self.poll.unregister(stream.fd)
                return True
        return False

    def drop(self) -> None:
        """Close all: the next command gets new ones."""
        for kind, stream in list(self._known.items()):
            with suppress(KeyError):  # it was struck before it was registered, or after this
                self.poll.unregister(stream.fd)
            stream.close()
            self._known.pop(kind, None)

    def close(self) -> None:
        self.drop()
        devices, self.devices = self.devices, -1
        if devices >= 0:
            os.close(devices)


# That Backspace takes a character, and not the last byte of one (asm-generic/termbits.h); Python does not name it.
_IUTF8: Final = 0x4000
# How soon who types into a full terminal tries again, in seconds.
FULL_PAUSE: Final = 0.003


class Keyboard:
    """The writing side of the session's terminal."""

    def __init__(self, terminal: Stream) -> None:
        self._terminal = terminal
        self._keeper = -1  # a slave descriptor, from the first command that gets the terminal

    def cook(self, echo: bool) -> bytes:
        """Ctrl-C, Ctrl-D and CR as everybody knows them; output stays as it is written. The modes set.

        Raises LimitReached, before anything has changed.
        """
        fd = self._terminal.fd
        if self._keeper < 0:
            with undisturbed():
                self._keeper = _open_keeper(fd)
        self._terminal.settle()
        modes = termios.tcgetattr(fd)
        modes[0] |= termios.ICRNL | _IUTF8
        modes[3] |= termios.ICANON | termios.ISIG | termios.IEXTEN | termios.ECHOE | termios.ECHOK
        modes[3] |= termios.ECHO if echo else 0
        termios.tcsetattr(fd, termios.TCSANOW, modes)
        return self.modes()

    def modes(self) -> bytes:
        """Those of this moment."""
        return get_modes(self._terminal.fd)

    def type(self, data: bytes) -> int:
        """Write to the terminal as a keyboard does; the number of bytes it took, 0 when it is full."""
        try:
            return os.write(self._terminal.fd, data)
        except BlockingIOError:
            return 0

    def has_input(self) -> bool:
        """Is something typed that nobody has read yet?"""
        poll = select.poll()
        poll.register(self._keeper, select.POLLIN)
        return bool(poll.poll(0))

    def reset(self) -> bytes:
        """Raw again; what was typed for a command that has ended is not for the next, and is given back."""
        self._terminal.settle()
        if self._keeper < 0:  # no command has had it
            return b""
        unread = b""
        with suppress(OSError):  # there is nothing; raw, all of it can be read, also without the end of a line
            unread = os.read(self._keeper, SMALL)
        with suppress(termios.error):  # it was hung up
            termios.tcflush(self._keeper, termios.TCIFLUSH)
        return unread

    def close(self) -> None:
        keeper, self._keeper = self._keeper, -1
        if keeper >= 0:
            os.close(keeper)


def _open_keeper(fd: int) -> int:
    try:
        return os.open(slave_path(fd), os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise LimitReached(
            f"the terminal could not be had for the command, which was not run: {error};"
            " close sessions or files, or raise the limit"
        ) from error
