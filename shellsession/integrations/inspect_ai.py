"""Inspect AI: a sandbox whose commands run in sessions of any kind (extra ``inspect``).

``sandbox="shellsession"`` is this machine; ``register`` names any other place. Inspect finds the first by an entry
point, without an import.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from inspect import Parameter, isawaitable, signature
from secrets import token_hex
from typing import Any, Final

from ..errors import DaemonUnavailable, InvalidRequest, ShellUnavailable
from ..extras import missing
from ..models import Limits, Result
from .harness import Place, local

try:
    import anyio
    from inspect_ai.util import (
        ExecResult,
        OutputLimitExceededError,
        SandboxEnvironment,
        SandboxEnvironmentLimits,
        SandboxUnavailableError,
        SandboxUserUnsupportedError,
        sandboxenv,
    )
except ImportError as error:
    raise missing("inspect", error) from error

_log: Final = logging.getLogger(__name__)
# Runs a command as another user. Its path is fixed, as a PATH of the sandbox may lead to anything.
_RUNUSER: Final = "/usr/sbin/runuser"
# What the function of ``register`` may take, beside the name of a session.
_FACTS: Final = ("task_name", "config", "metadata")


@sandboxenv(name="shellsession")
class InspectSandbox(SandboxEnvironment):
    """Inspect's sandbox: a directory, and sessions for the commands that run there.

    Each command runs in a subshell of a session, so commands do not change each other's state.
    """

    _connect: Callable[..., Any] = staticmethod(local)
    _facts: tuple[str, ...] = ()  # those of _FACTS that ``_connect`` takes
    _needs_config = False  # it takes a config, and has no default for it
    _close: Callable[[str], Any] | None = None
    _kept: str | None = None  # a directory that was not made for a sample

    def __init__(self, place: Place, names: list[str], directory: str, uid: str, user: str, can_switch: bool) -> None:
        super().__init__()
        self._place, self._connected, self._directory = place, names, directory
        self._names, self._can_switch = (uid, user), can_switch

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        """Open a session, and make the directory of the sample. Raises InvalidRequest if nothing takes the config."""
        if config is not None and "config" not in cls._facts:
            raise InvalidRequest(
                f"nothing takes the config {config!r:.100} of this sandbox: leave it out, or give the function of"
                " register() a parameter named config"
            )
        of_sample, names = f"inspect-{token_hex(4)}", list[str]()
        known = {"task_name": task_name, "metadata": metadata}
        if config is not None or cls._needs_config:
            known["config"] = config
        facts = {fact: value for fact, value in known.items() if fact in cls._facts}

        def connect(name: str) -> Any:
            names.append(f"{of_sample}-{name}")
            return cls._connect(names[-1], **facts)

        place = Place(connect)
        make = "mktemp -d -t inspect-XXXXXXXX" if cls._kept is None else f"cd -- {shlex.quote(cls._kept)} && pwd"
        switch = f"[[ $EUID = 0 && -x {_RUNUSER} ]] && echo yes || echo"
        command = f'{make} && echo "$EUID" && {{ id -un 2>/dev/null || echo; }} && {{ {switch}; }}'
        try:
            with _reachable():
                result = await place.run(command, check=True)
        except BaseException:
            with anyio.CancelScope(shield=True):
                try:
                    await place.close()
                finally:
                    await cls._close_all(names)
            raise
        directory, uid, user, can_switch = result.stdout.split("\n")[:4]
        return {"default": cls(place, names, directory, uid, user, bool(can_switch))}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        """End all commands of the sample, and remove the directory that was made for it."""
        for environment in environments.values():
            await environment.as_type(InspectSandbox)._end()

    async def _end(self) -> None:
        try:
            await self._end_commands()
        finally:
            await self._close_all(self._connected)

    @classmethod
    async def _close_all(cls, names: list[str]) -> None:
        """Call the function ``close`` of ``register`` for each name, even if another call raises."""
        async with AsyncExitStack() as closing:
            for name in names:
                closing.push_async_callback(cls._close_one, name)

    @classmethod
    async def _close_one(cls, name: str) -> None:
        if cls._close is not None and isawaitable(closing := cls._close(name)):
            await closing

    async def _end_commands(self) -> None:
        """Close the sessions, and remove the directory that was made for the sample."""
        await self._place.close()
        if self._kept is None:
            try:
                # In a new session: nothing else runs.
                result = await self._place.execute(["rm", "-rf", "--", self._directory])
                if not result.ok:
                    _log.warning("the directory %s of a sample could not be removed: %s", self._directory, result)
            finally:
                await self._place.close()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command. A time limit ends all that it started. Nothing is run twice, so ``timeout_retry`` is unused.

        Raises TimeoutError, PermissionError, OutputLimitExceededError, SandboxUserUnsupportedError and
        SandboxUnavailableError as Inspect defines them.
        """
        _refuse_nul(*cmd)
        words, place = [*self._switch(user), *cmd], self._path(cwd or "")
        limits = Limits(max_output=SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE)
        options = {"stdin": input, "timeout": timeout, "merge_stderr": False, "limits": limits}
        with _reachable():
            result = await self._place.execute(words, place, env, **options)
        return _completed(cmd, result)

    def _switch(self, user: str | None) -> list[str]:
        """Return the words that run a command as that user."""
        if user is None or user in self._names:
            return []
        if not self._can_switch:
            raise SandboxUserUnsupportedError(
                f"commands run as user {self._names[1] or self._names[0]} here, not as {user!r}:"
                f" only root can change that, with {_RUNUSER}"
            )
        return [_RUNUSER, "-u", user, "--"]

    def _path(self, path: str) -> str:
        _refuse_nul(path)
        return os.path.join(self._directory, path)

    async def read_file(self, file: str, text: bool = True) -> Any:
        """Return the content of a file, as text or bytes. Raises as ``open`` does, and OutputLimitExceededError."""
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            with _reachable():
                data = await self._place.read_file(self._path(file), limit)
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from error
            raise
        return data.decode() if text else data

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, and make the directories above it. Raises as ``open`` does."""
        data = contents.encode() if isinstance(contents, str) else contents
        with _reachable():
            await self._place.write_file(self._path(file), data)

    def default_polling_interval(self) -> float:
        """How many seconds Inspect's own services wait between two looks at the sandbox."""
        return 0.2


def register(
    name: str,
    connect: Callable[..., Any],
    directory: str | None = None,
    close: Callable[[str], Any] | None = None,
) -> str:
    """Make ``sandbox=name`` a sandbox of sessions that ``connect`` returns. Returns the name.

    ``connect`` gets a name for the session, and those of task_name, config and metadata that it has parameters for:
    the facts of the sample, as Inspect has them. ``**facts`` takes them all. Without a config, the parameter keeps its
    default; without that it gets None. ``directory``: where the commands start, and what relative paths are relative to
    (default: a new, temporary directory for each sample). ``close`` is called at the end of the sample with each name
    that ``connect`` got, even if ``connect`` raised. Both may be asynchronous.
    """
    parameters = dict(list(signature(connect).parameters.items())[1:])
    takes_all = any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())
    facts = tuple(fact for fact in _FACTS if takes_all or fact in parameters)
    needs_config = "config" in parameters and parameters["config"].default is Parameter.empty
    members: dict[str, Any] = {"_connect": staticmethod(connect), "_facts": facts, "_needs_config": needs_config}
    members |= {"_kept": directory, "_close": close and staticmethod(close), "__doc__": InspectSandbox.__doc__}
    sandboxenv(name=name)(type("InspectSandbox", (InspectSandbox,), members))
    return name


@contextmanager
def _reachable() -> Iterator[None]:
    """The block in which an error of the way to bash is one of Inspect's."""
    try:
        yield
    except (DaemonUnavailable, ShellUnavailable) as error:
        raise SandboxUnavailableError(str(error)) from error


def _refuse_nul(*texts: str) -> None:
    """Raise the one ValueError that Inspect shows to the model, which can correct the call."""
    if any("\0" in text for text in texts):
        raise ValueError("embedded null byte")


def _completed(cmd: list[str], result: Result) -> ExecResult[str]:
    """Return what Inspect gets of a result, or raise what it says."""
    if result.outcome in ("timed_out", "idle"):
        error = TimeoutError(f"{cmd!r:.200}: {result.reason}")
        error.truncated_output = result.stdout + result.stderr  # type: ignore[attr-defined]  # Inspect looks for it
        raise error
    if result.exit_code is None or not result.state_kept:
        raise SandboxUnavailableError(f"{cmd!r:.200}: {result.reason}")
    if result.stdout_omitted or result.stderr_omitted:
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, result.stdout + result.stderr)
    denied = rf"(exec: |failed to execute ){re.escape(cmd[0])}: .*{os.strerror(errno.EACCES)}$"
    if result.exit_code == 126 and re.search(denied, result.stderr.rstrip()):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), cmd[0])
    return ExecResult(result.exit_code == 0, result.exit_code, result.stdout, result.stderr)
