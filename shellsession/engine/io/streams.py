"""Terminals and pipes: the streams that carry the output of a shell's commands, and the keyboard of its terminal.

A ``Stream`` is a named pipe or a pseudo terminal, ``Streams`` those of one shell. ``Keyboard`` types into the terminal.
No read here blocks.
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
from ..kernel.signals import signals_deferred
from ..wire import quote

# More reads than are needed to empty a terminal (64 KiB, 4095 bytes each) or a socket.
MANY_READS = 256
# A larger pipe means fewer wake-ups. An ordinary user may have 1 MiB (/proc/sys/fs/pipe-max-size).
_PIPE_SIZE = 1 << 20
# A buffer of 64 KiB for a single line costs more, in malloc and page faults, than the read itself: start small.
CHUNK = 1 << 16
SMALL = 1 << 12
# <asm-generic/ioctls.h>; os.ptsname and the like exist since Python 3.13
_TIOCGPTN = 0x80045430
_TIOCSPTLCK = 0x40045431
_TIOCGPTPEER = 0x5441
_F_SETPIPE_SZ = 1031  # <linux/fcntl.h>; named in fcntl only by some builds
_TERMINALS_TAKEN = (
    "no pseudo terminal is free, and nothing was run: there are as many as kernel.pty.max (/proc/sys/kernel/pty/max)"
    " allows, or max= of the mount at /dev/pts: raise it, close sessions, or make some with tty=False"
)


class Stream:
    """A pipe or pseudo terminal: our reading end ``fd``, and the ``path`` at which bash opens the other end.

    ``word``: the path, quoted for bash. ``modes``: those of a terminal, empty for a pipe. ``identity``: device and
    inode of the other end. ``inode``: that of a pipe, 0 for a terminal, whose path nobody can remove.
    """

    __slots__ = ("closed", "fd", "identity", "inode", "is_terminal", "modes", "path", "word")

    def __init__(self, fd: int, path: bytes, modes: bytes = b"", slave: int = -1) -> None:
        self.fd = fd
        self.closed = False
        self.path = path
        self.modes = modes
        self.is_terminal = is_terminal = modes != b""
        self.word = path if is_terminal else quote(path)
        self.identity = proc.identity(slave if is_terminal else fd)
        self.inode = 0 if is_terminal else self.identity[1]

    def in_place(self) -> bool:
        """Does the path still lead to this pipe? If it was removed, bash would make a file there. Takes 1.5 us."""
        try:
            return os.lstat(self.path).st_ino == self.inode
        except OSError:
            return False

    def read(self, size: int = CHUNK) -> bytes | None:
        """The next bytes: None if there are none now, b"" if nobody has the other end open."""
        try:
            return os.read(self.fd, size)
        except BlockingIOError:
            return None
        except OSError:  # EIO: the last slave of a pseudo terminal is closed
            return b""

    def skip(self) -> None:
        """Drop the output so far. An endless writer is read for a while only."""
        for _ in range(MANY_READS):
            if not self.read():
                break

    def restore_modes(self) -> None:
        """Restore the modes of a terminal, which `stty sane`, `reset` and the like change."""
        if fcntl.ioctl(self.fd, termios.TCGETS, _BLANK) != self.modes:
            set_modes(self.fd, self.modes)

    def close(self) -> None:
        """Close our end, and remove a pipe. After an interrupted call, a second one does the rest."""
        with suppress(OSError):
            if not self.closed:
                self.closed = True  # first: after the close the number may belong to another file
                os.close(self.fd)
        if self.inode and self.in_place():
            with suppress(OSError):
                os.unlink(self.path)


def has_unread(fd: int) -> bool:
    """Is there anything that was sent over this socket, and not read yet? False where the kernel does not say."""
    try:
        return fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)) != bytes(4)
    except OSError:
        return False


_BLANK = bytes(64)  # more than struct termios of any architecture


def get_modes(fd: int) -> bytes:
    """A terminal's modes as a struct termios. From the master, they are the slave's. 2 us; tcgetattr takes 6."""
    return fcntl.ioctl(fd, termios.TCGETS, _BLANK)


def set_modes(fd: int, modes: bytes) -> None:
    with suppress(OSError):
        fcntl.ioctl(fd, termios.TCSETS, modes)


def slave_path(master: int) -> bytes:
    """The path of a pseudo terminal's slave."""
    return b"/dev/pts/%d" % struct.unpack("I", fcntl.ioctl(master, _TIOCGPTN, bytes(4)))[0]


def set_size(fd: int, size: tuple[int, int]) -> None:
    columns, rows = size
    with suppress(OSError):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _open_pair(devices: int) -> tuple[int, int]:
    """A new pseudo terminal in another mount namespace, whose /dev/pts is open as ``devices``: master and slave."""
    flags = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
    master = os.open("ptmx", flags, dir_fd=devices)
    try:
        fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
        return master, fcntl.ioctl(master, _TIOCGPTPEER, flags)
    except BaseException:
        os.close(master)
        raise


def open_terminal(size: tuple[int, int], devices: int = -1) -> tuple[int, int]:
    """A new pseudo terminal in raw mode, so that output comes out unchanged: master and slave.

    Raises LimitReached if the kernel allows no more terminals, and OSError.
    """
    try:
        master, slave = os.openpty() if devices < 0 else _open_pair(devices)
    except OSError as error:
        if error.errno == errno.ENOSPC:  # here this is about terminals, not about a disk
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
    """A new pseudo terminal as a stream; see ``open_terminal``."""
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
    """A new named pipe (mode 0600) as a stream."""
    os.mkfifo(path, 0o600)
    os.chmod(path, 0o600)  # the host's umask may have removed our own rights
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with suppress(OSError):  # the user's quota of pipe pages is used up: a small pipe works, too, but more slowly
        fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_SIZE)
    return Stream(fd, os.fsencode(path))


class Streams:
    """The streams of one shell's commands: at most one of each kind ("tty", "out", "err"), reused by each command.

    ``others``: descriptors that are polled together with them.
    """

    def __init__(self, make_pipe: Callable[[], Stream], size: tuple[int, int], others: tuple[int, ...]) -> None:
        self._make_pipe = make_pipe
        self.size = size
        self.devices = -1  # the shell's /dev/pts, if that is not ours
        self._known: dict[str, Stream] = {}
        self.poll = select.poll()  # for all of them, and the ``others``
        for fd in others:
            self.poll.register(fd, select.POLLIN)

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._known.values())

    def prepare(self, tty: bool) -> None:
        """Make the streams of an ordinary command."""
        self.get("tty" if tty else "out")
        self.get("err")

    def get(self, kind: str) -> Stream:
        """The stream of that kind for the next command. Raises LimitReached."""
        if kind not in self._known:
            with signals_deferred():
                stream = self._known[kind] = self._make(kind)
                self.poll.register(stream.fd, select.POLLIN)
        return self._known[kind]

    def _make(self, kind: str) -> Stream:
        try:
            return terminal_stream(self.size, self.devices) if kind == "tty" else self._make_pipe()
        except OSError as error:
            raise LimitReached(
                f"no terminal or pipe could be made for the command, which was not run: {error};"
                " close sessions or files, or raise the limit"
            ) from error

    def misplaced(self) -> list[Stream]:
        """The streams that bash would not find, as somebody has removed or replaced our pipes."""
        return [stream for stream in self._known.values() if stream.inode and not stream.in_place()]

    def are_in_place(self, *streams: Stream) -> bool:
        """Do these streams still belong to the shell, and would bash find them?"""
        known = self._known.values()
        try:
            for stream in streams:
                if stream not in known or (stream.inode and os.lstat(stream.path).st_ino != stream.inode):
                    return False
        except OSError:
            return False
        return True

    def events(self) -> dict[int, int]:
        """The events of the streams that are ready, by descriptor: POLLIN, or POLLHUP if nobody has a stream open.

        One call for all of them (2 us), as most commands leave nothing to read. The kernel first passes on what was
        written to a terminal, so nothing is missed.
        """
        return dict(self.poll.poll(0))

    def detach(self, stream: Stream) -> bool:
        """Remove a stream that a background process keeps open. False if it is not one of the shell's."""
        for kind, known in list(self._known.items()):
            if known is stream:
                del self._known[kind]
                self.poll.unregister(stream.fd)
                return True
        return False

    def drop(self) -> None:
        """Close all streams: the next command gets new ones."""
        for kind, stream in list(self._known.items()):
            with suppress(KeyError):  # not registered yet, or not any more, because of an interrupted call
                self.poll.unregister(stream.fd)
            stream.close()
            self._known.pop(kind, None)

    def close(self) -> None:
        self.drop()
        devices, self.devices = self.devices, -1
        if devices >= 0:
            os.close(devices)


# With it, Backspace erases a whole character of several bytes (asm-generic/termbits.h). Python has no name for it.
_IUTF8: Final = 0x4000
# Seconds to wait before typing into a full terminal is tried again.
FULL_PAUSE: Final = 0.003


class Keyboard:
    """The writing side of the session's terminal: types input, and sets the modes for it."""

    def __init__(self, terminal: Stream) -> None:
        self._terminal = terminal
        self._slave = -1  # a descriptor of the slave, from the first command on that gets the terminal

    def cook(self, echo: bool) -> bytes:
        """Set cooked mode (Ctrl-C, Ctrl-D and CR work as usual; output stays unchanged), and return the modes.

        Raises LimitReached before anything has changed.
        """
        fd = self._terminal.fd
        if self._slave < 0:
            with signals_deferred():
                self._slave = _open_slave(fd)
        self._terminal.restore_modes()
        modes = termios.tcgetattr(fd)
        modes[0] |= termios.ICRNL | _IUTF8
        modes[3] |= termios.ICANON | termios.ISIG | termios.IEXTEN | termios.ECHOE | termios.ECHOK
        modes[3] |= termios.ECHO if echo else 0
        termios.tcsetattr(fd, termios.TCSANOW, modes)
        return self.modes()

    def modes(self) -> bytes:
        """The present modes of the terminal."""
        return get_modes(self._terminal.fd)

    def type(self, data: bytes) -> int:
        """Write to the terminal as a keyboard does. Returns the number of bytes written, 0 if it is full."""
        try:
            return os.write(self._terminal.fd, data)
        except BlockingIOError:
            return 0

    def has_input(self) -> bool:
        """Is there typed input that nobody has read yet?"""
        poll = select.poll()
        poll.register(self._slave, select.POLLIN)
        return bool(poll.poll(0))

    def reset(self) -> bytes:
        """Set raw mode, and remove and return unread input: it was for a command that has ended, not for the next."""
        self._terminal.restore_modes()
        if self._slave < 0:  # no command has had the terminal
            return b""
        unread = b""
        with suppress(OSError):  # no input; in raw mode even an unfinished line can be read
            unread = os.read(self._slave, SMALL)
        with suppress(termios.error):  # the terminal was hung up
            termios.tcflush(self._slave, termios.TCIFLUSH)
        return unread

    def close(self) -> None:
        slave, self._slave = self._slave, -1
        if slave >= 0:
            os.close(slave)


def _open_slave(fd: int) -> int:
    try:
        return os.open(slave_path(fd), os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise LimitReached(
            f"the terminal could not be opened for the command, which was not run: {error};"
            " close sessions or files, or raise the limit"
        ) from error
