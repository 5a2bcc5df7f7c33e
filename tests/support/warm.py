"""Interpreters that are forked from one that has loaded the package: our program for a tenth of the work.

``Popen`` is that of subprocess, for our command line. The server has one thread. Its forks are children of the
process that asked (CLONE_PARENT), with descriptors, environment and directory as after an exec. One that
begins its own session gets the terminal that is its stdin. They cannot show a start itself: ``as_cold`` says which
programs are started in the ordinary way.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import platform
import resource
import runpy
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping
from typing import Any, ClassVar, Final

PROGRAM: Final = [sys.executable, "-m", "shellsession"]
_CLONE_PARENT: Final = 0x8000  # <linux/sched.h>
_LONGEST: Final = 100_000  # of an order, which is one packet
_SYS_CLONE: Final = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
# What an interpreter looks at when it starts, and a forked one does not.
_OF_A_START: Final = ("PYTHON", "LC_", "LANG")
# The program itself, and what needs an SDK.
_NOT_LOADED: Final = ("shellsession.__main__", "shellsession.cluster", "shellsession.integrations")


class Popen(subprocess.Popen[bytes]):
    """A process of a command line that begins with PROGRAM."""

    _servers: ClassVar[dict[int, tuple[socket.socket, subprocess.Popen[bytes]]]] = {}  # by the process that asks
    _one_at_a_time = threading.Lock()

    def _execute_child(
        self, args: Any, _executable: Any, preexec_fn: Any, _close: Any, pass_fds: Any, cwd: Any, env: Any, *rest: Any
    ) -> None:
        words = [os.fsdecode(word) for word in args]
        streams = enumerate((rest[3], rest[6], rest[8]))
        own_session, group = rest[-2:]
        state = dict(os.environ if env is None else env), os.fspath(cwd or os.getcwd()), own_session
        order = json.dumps([words[len(PROGRAM) :], *state])
        if as_cold(words, env) or len(order) > _LONGEST or preexec_fn or pass_fds or group not in (None, -1):
            super()._execute_child(  # type: ignore[misc]  # typeshed leaves it out
                args, _executable, preexec_fn, _close, pass_fds, cwd, env, *rest
            )
            return
        with self._one_at_a_time:
            server = self._server()
            socket.send_fds(server, [order.encode()], [number if fd == -1 else fd for number, fd in streams])
            self.pid = int(server.recv(100))
        self._child_created = True
        self._close_pipe_fds(*rest[3:9])  # type: ignore[attr-defined]

    def _server(self) -> socket.socket:
        if os.getpid() not in self._servers:
            ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
            with theirs:
                program = [sys.executable, __file__, str(theirs.fileno())]
                self._servers[os.getpid()] = ours, subprocess.Popen(program, pass_fds=[theirs.fileno()])
        return self._servers[os.getpid()][0]


def as_cold(words: list[str], env: Mapping[str, str] | None) -> bool:
    """True for a program that looks at how its interpreter was started."""
    changed = {name for name, value in (os.environ if env is None else env).items() if os.environ.get(name) != value}
    return words[:3] != PROGRAM or _SYS_CLONE is None or any(name.startswith(_OF_A_START) for name in changed)


def _serve(asked: socket.socket) -> None:
    """Fork for each order. Returns in the child, set up as its order says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    while True:
        order, fds, _, _ = socket.recv_fds(asked, _LONGEST, 3)
        if not order:
            os._exit(0)
        if (child := _fork_of_parent()) == 0:
            asked.close()
            return _become(order, fds)
        asked.send(str(child).encode())
        for fd in fds:
            os.close(fd)


def _fork_of_parent() -> int:
    """As ``os.fork``, but the child is a child of our parent."""
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = ctypes.pythonapi.syscall(_SYS_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    (ctypes.pythonapi.PyOS_AfterFork_Parent if pid else ctypes.pythonapi.PyOS_AfterFork_Child)()
    return pid


def _become(order: bytes, fds: list[int]) -> None:
    words, env, cwd, own_session = json.loads(order)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_NOFILE, resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE))
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    if own_session:
        os.setsid()
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY)
    os.closerange(3, 1 << 16)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = ["shellsession", *words]
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, 1 if number == 2 or os.isatty(number) else -1, old.encoding, old.errors)  # noqa: SIM115
        for number, mode, old in ((0, "r", sys.stdin), (1, "w", sys.stdout), (2, "w", sys.stderr))
    )


if __name__ == "__main__":
    for _module in pkgutil.walk_packages(importlib.import_module("shellsession").__path__, "shellsession."):
        if not _module.name.startswith(_NOT_LOADED):
            importlib.import_module(_module.name)
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("shellsession", run_name="__main__", alter_sys=True)
