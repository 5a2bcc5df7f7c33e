"""What the adapters for harnesses share: ``Connect``, which returns a session, and ``Place``, where sessions are."""

from __future__ import annotations

import errno
import io
import os
import shlex
import stat
import tarfile
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from inspect import isawaitable, iscoroutinefunction
from pathlib import Path
from typing import Any, Final, Unpack

from ..async_session import AsyncSession
from ..daemon.client.async_session import AsyncRemoteSession
from ..errors import InvalidRequest, ShellSessionError
from ..models import Limits, Result
from ..signatures import RunOptions

# Returns a session for that name, or an awaitable of one: ``lambda name: aconnect(name, via=["ssh", "box"])``.
Connect = Callable[[str], Any | Awaitable[Any]]
# The most output that a daemon sends for one command.
MOST: Final = 128 << 20
# Seconds for reading or writing a file: a named pipe would take for ever.
_PATIENCE: Final = 600.0
# The numbers of the system's errors, by the words with which the tools of the system end their messages.
_NUMBERS: Final = {os.strerror(number): number for number in errno.errorcode}


def local(name: str) -> AsyncSession:
    """Return a new session in this process: the ``Connect`` of an adapter that got none."""
    return AsyncSession()


async def close_all(sessions: Iterable[Any]) -> None:
    """Close every session, even if closing another one raises."""
    async with AsyncExitStack() as closing:
        for session in sessions:
            closing.push_async_callback(session.close)


class Place:
    """One place (this process, a daemon, or a node), with the sessions that a harness uses there.

    ``open`` makes the sessions that have a state. Commands and files that need none use further ones: each takes an
    idle session, or opens another, so they run side by side. They run isolated, so it does not matter which one.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._first: Any = None
        self._name = ""
        self._number = 0
        self._all: list[Any] = []
        self._idle: list[Any] = []

    async def open(self, name: str) -> Any:
        """Return a new asyncio session, with its bash started. Raises InvalidRequest for any other object.

        The first comes from ``connect``, and decides where the others are. In a cluster its own name could lead
        to another machine.
        """
        session: Any
        if isinstance(first := self._first, AsyncRemoteSession):
            agent = first.agent.removesuffix(self._name) + name  # as ``connect`` would name it
            session = AsyncRemoteSession.like(first, agent)
        else:
            session = self._connect(name)
            session = await session if isawaitable(session) else session
        if not iscoroutinefunction(getattr(session, "run", None)):
            raise InvalidRequest(
                "connect(name) returns a session for asyncio: an AsyncSession, what aconnect() returns, or"
                f" AsyncAgents.session(name); not {session!r:.100}"
            )
        await session.open()
        if not self._first:
            self._first, self._name = session, name
        return session

    async def execute(
        self, words: Sequence[str], cwd: str | None = None, env: Mapping[str, str] | None = None, **options: Any
    ) -> Result:
        """Run a program, which is found on PATH, in that directory and with these variables.

        A time limit ends all that it started.
        """
        steps = [["exec", "--", *words]]
        if env:
            steps.insert(0, ["export", "--", *(f"{name}={value}" for name, value in env.items())])
        if cwd is not None:
            steps.insert(0, ["cd", "--", cwd])
        return await self.run(" && ".join(map(shlex.join, steps)), on_timeout="interrupt", **options)

    async def run(self, command: str, **options: Unpack[RunOptions]) -> Result:
        """Run a command in a subshell. After a ShellSessionError, its session is closed and not used again."""
        session = self._idle.pop() if self._idle else await self._another()
        options |= {"isolated": True, "tty": False}
        try:
            result: Result = await session.run(command, **options)
            if not result.ran:  # bash had ended before
                result = await session.run(command, **options)
        except ShellSessionError:
            self._all.remove(session)
            with suppress(ShellSessionError):  # the first error says more
                await session.close()
            raise
        except BaseException:  # the command was cancelled, and so interrupted
            self._idle.append(session)
            raise
        self._idle.append(session)
        return result

    async def _another(self) -> Any:
        self._number += 1
        session = await self.open(f"execute-{self._number}")
        self._all.append(session)
        return session

    async def read_file(self, path: str, most: int = MOST) -> bytes:
        """Return the content of a file.

        Raises OSError as ``open`` does (FileNotFoundError, IsADirectoryError, ...), and with EFBIG if it has more than
        ``most`` bytes.
        """
        result = await self._run_for(path, f"cat <{shlex.quote(path)}", limits=Limits(max_output=most))
        if result.stdout_omitted:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return result.stdout_bytes

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file, and make the directories above it. Raises OSError as ``open`` does."""
        above = shlex.quote(os.path.dirname(path) or ".")
        await self._run_for(path, f"mkdir -p -- {above} && cat >{shlex.quote(path)}", stdin=data)

    async def upload(self, source: Path, target: str) -> None:
        """Copy a file or directory of this machine, with modes and symbolic links. Raises OSError.

        A file goes into ``target`` if that is a directory. What a directory has is added to ``target``.
        """
        command, data = await to_thread(_packed, source, target)
        await self._run_for(target, command, stdin=data)

    async def _run_for(self, path: str, command: str, **options: Any) -> Result:
        """Run a command about a file. Raises the OSError that its last message names, and TimeoutError."""
        result = await self.run(f"export LC_ALL=C; {command}", timeout=_PATIENCE, on_timeout="interrupt", **options)
        if result.outcome == "timed_out":
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path)
        if not result.ok:
            said = result.stderr.strip().rpartition("\n")[2] or result.reason
            reason = said.rpartition(": ")[2]
            raise OSError(_NUMBERS.get(reason, errno.EIO), reason if reason in _NUMBERS else said, path)
        return result

    async def close(self) -> None:
        """Close the sessions that ``open`` did not return, and so end all that runs in them."""
        sessions, self._all, self._idle = self._all, [], []
        await close_all(sessions)


def _packed(source: Path, target: str) -> tuple[str, bytes]:
    """Return a command that writes the source to the target, and its input."""
    place, above = shlex.quote(target), shlex.quote(os.path.dirname(target) or ".")
    if not source.is_dir():
        data, mode = source.read_bytes(), stat.S_IMODE(source.stat().st_mode)
        into = f'to={place}; [ ! -d "$to" ] || to=$to/{shlex.quote(source.name)}'
        return f'{into}; mkdir -p -- {above} && cat >"$to" && chmod {mode:o} -- "$to"', data
    with io.BytesIO() as made:
        with tarfile.open(fileobj=made, mode="w") as archive:
            archive.add(source, arcname=".")
        return f"mkdir -p -- {place} && tar -xf - --no-same-owner -C {place}", made.getvalue()
