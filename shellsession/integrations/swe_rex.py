"""SWE-ReX: a runtime and a deployment over sessions of any kind, for SWE-agent and others (extra ``swe-rex``).

``connect`` returns a shellsession session for each SWE-ReX session. Files and ``execute`` use further ones.
"""

from __future__ import annotations

import io
import logging
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..errors import NotRunning, ShellSessionError
from ..extras import missing
from ..models import TTY, CommandTimeout, Limits, Result
from ..text import clean, ending
from .harness import MOST, Connect, Place, close_all, local

try:
    import pexpect
    from swerex.deployment.abstract import AbstractDeployment
    from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
    from swerex.exceptions import (
        BashIncorrectSyntaxError,
        CommandTimeoutError,
        DeploymentNotStartedError,
        NoExitCodeError,
        NonZeroExitCodeError,
        SessionDoesNotExistError,
        SessionExistsError,
    )
    from swerex.runtime.abstract import (
        AbstractRuntime,
        Action,
        BashAction,
        BashInterruptAction,
        BashObservation,
        CloseBashSessionResponse,
        CloseResponse,
        CloseSessionRequest,
        Command,
        CommandResponse,
        CreateBashSessionResponse,
        CreateSessionRequest,
        IsAliveResponse,
        ReadFileRequest,
        ReadFileResponse,
        UploadRequest,
        UploadResponse,
        WriteFileRequest,
        WriteFileResponse,
    )
    from swerex.utils.log import get_logger
except ImportError as error:
    raise missing("swe-rex", error) from error

# Bytes that are not UTF-8 are shown as SWE-ReX shows them.
_LENIENT: Final = ("utf-8", "backslashreplace")
_LIMITS: Final = Limits(max_output=MOST)
# Seconds until a program that has just been started is looked at.
_AT_ONCE: Final = 0.01
# Seconds that a command has to end once it has printed what was expected, if its exit code is asked for.
_STATUS_WITHIN: Final = 1.0


class Runtime(AbstractRuntime):
    """SWE-ReX's runtime. ``connect`` returns the session of a name (default: a new AsyncSession of this process)."""

    def __init__(self, connect: Connect = local, *, logger: logging.Logger | None = None) -> None:
        self.logger = logger or get_logger("rex-runtime")
        self._sessions: dict[str, Any] = {}
        self._place = Place(connect)

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        """Return whether a command runs."""
        try:
            await self._place.run("true", timeout=timeout, check=True)
        except ShellSessionError as error:
            return IsAliveResponse(is_alive=False, message=str(error))
        return IsAliveResponse(is_alive=True)

    async def create_session(self, request: CreateSessionRequest) -> CreateBashSessionResponse:
        """Open a session. Raises SessionExistsError, and CommandTimeoutError if ``startup_source`` takes too long."""
        if request.session in self._sessions:
            raise SessionExistsError(f"session {request.session!r} already exists: close it first, or use another name")
        session = await self._place.open(request.session)
        startup, output = "\n".join(f"source {path}" for path in request.startup_source), ""
        if startup:
            result = await session.run(startup, merge_stderr=True, timeout=request.startup_timeout)
            if result.outcome == "timed_out":
                await session.close()
                raise _timeout(startup, request.startup_timeout, result)
            output = _text(result)
        self._sessions[request.session] = session
        return CreateBashSessionResponse(output=output)

    async def run_in_session(self, action: Action) -> BashObservation:
        """Run an action. Raises SessionDoesNotExistError, and what the action asks for (see ``BashAction.check``)."""
        session = self._session(action.session)
        if isinstance(action, BashInterruptAction):
            return await _interrupt(session, action)
        if action.is_interactive_command or action.is_interactive_quit:
            return await _interact(session, action)
        await _check_syntax(session, action.command)
        if action.expect:
            return await _run_until_expected(session, action)
        result = await session.run(
            action.command,
            timeout=action.timeout,
            on_timeout="interrupt",
            stdin=None,
            merge_stderr=True,
            limits=_LIMITS,
        )
        return _observed(action, result, _text(result))

    async def close_session(self, request: CloseSessionRequest) -> CloseBashSessionResponse:
        """Close a session. Raises SessionDoesNotExistError."""
        session = self._session(request.session)
        del self._sessions[request.session]
        await session.close()
        return CloseBashSessionResponse()

    def _session(self, name: str) -> Any:
        if (session := self._sessions.get(name)) is None:
            raise SessionDoesNotExistError(f"session {name!r} does not exist: create it first")
        return session

    async def execute(self, command: Command) -> CommandResponse:
        """Run a command apart from all sessions, like ``subprocess.run``."""
        words = [command.command] if isinstance(command.command, str) else command.command
        if command.shell:
            words = ["/bin/sh", "-c", *words]
        if command.env is not None:  # it replaces the environment
            words = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in command.env.items()), *words]
        options = {"timeout": command.timeout, "cwd": command.cwd, "merge_stderr": command.merge_output_streams}
        result = await self._place.execute(words, limits=_LIMITS, **options)
        if result.outcome in ("timed_out", "idle"):
            raise _timeout(command.command, command.timeout, result)
        stdout, stderr = (data.decode(*_LENIENT) for data in (result.stdout_bytes, result.stderr_bytes))
        if command.check and result.exit_code != 0:
            raise _failed(command, result.exit_code, f"Stdout:\n{stdout!r}\nStderr:\n{stderr!r}")
        return CommandResponse(stdout=stdout, stderr=stderr, exit_code=result.exit_code)

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        """Return the text of a file. Raises OSError and UnicodeDecodeError, like ``Path.read_text``."""
        data = await self._place.read_file(request.path)
        text = io.TextIOWrapper(io.BytesIO(data), encoding=request.encoding or "utf-8", errors=request.errors)
        return ReadFileResponse(content=text.read())

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        """Write a text as UTF-8, and make the directories above the file. Raises OSError."""
        await self._place.write_file(request.path, request.content.encode())
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        """Copy a file or directory of this machine, with its modes and links. Raises OSError."""
        await self._place.upload(Path(request.source_path), request.target_path)
        return UploadResponse()

    async def close(self) -> CloseResponse:
        """Close all sessions."""
        sessions, self._sessions = self._sessions, {}
        try:
            await close_all(sessions.values())
        finally:
            await self._place.close()
        return CloseResponse()


class Deployment(AbstractDeployment):
    """SWE-ReX's deployment of a ``Runtime``: ``SWEEnv(deployment=Deployment(connect), ...)``."""

    def __init__(self, connect: Connect = local, *, logger: logging.Logger | None = None) -> None:
        self.logger = logger or get_logger("rex-deploy")
        self._connect = connect
        self._runtime: Runtime | None = None
        self._hooks = CombinedDeploymentHook()

    def add_hook(self, hook: DeploymentHook) -> None:
        """Add a hook, which is called as the deployment starts."""
        self._hooks.add_hook(hook)

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        """Return whether the runtime was started and runs commands."""
        if self._runtime is None:
            return IsAliveResponse(is_alive=False, message="the deployment was not started")
        return await self._runtime.is_alive(timeout=timeout)

    async def start(self) -> None:
        """Make the runtime."""
        self._hooks.on_custom_step("Starting runtime")
        self._runtime = Runtime(self._connect, logger=self.logger)

    async def stop(self) -> None:
        """Close the runtime and its sessions."""
        if self._runtime is not None:
            runtime, self._runtime = self._runtime, None
            await runtime.close()

    def __del__(self) -> None:
        if self._runtime is not None:  # otherwise SWE-ReX's method may print, or leave a task in the loop, for nothing
            super().__del__()

    @property
    def runtime(self) -> Runtime:
        """The runtime. Raises DeploymentNotStartedError."""
        if self._runtime is None:
            raise DeploymentNotStartedError()
        return self._runtime


class _Seen(NamedTuple):
    """The output up to the string that was expected, that string, and the result if the command has ended."""

    output: str
    expected: str
    result: Result | None


async def _interact(session: Any, action: BashAction) -> BashObservation:
    """Type a line into the running program, or start one. As in SWE-ReX, a status is never looked at."""
    try:
        await session.type(f"{action.command}\n")
    except NotRunning:
        seen = await _start(session, action)
    else:
        seen = await _follow(session, action, action.timeout)
    output = seen.output.lstrip().removeprefix(action.command).strip()  # the program may echo what was typed
    return BashObservation(output=output, exit_code=0, expect_string=seen.expected)


async def _run_until_expected(session: Any, action: BashAction) -> BashObservation:
    """Run a command until it prints what is expected, or ends. In the first case it runs on."""
    output, expected, result = await _start(session, action)
    if result is None and action.check != "ignore":
        later = await session.wait(_STATUS_WITHIN)
        result = None if later.runs_on else later
    if result is not None:
        return _observed(action, result, output, expected)
    if action.check == "raise":
        raise NoExitCodeError(f"{action.command!r} has printed {expected!r}, and runs on: it has no exit code yet")
    return BashObservation(output=output, expect_string=expected)


async def _start(session: Any, action: BashAction) -> _Seen:
    """Start a command on the terminal, and follow it."""
    result = await session.run(
        action.command,
        timeout=_AT_ONCE,
        patience=action.timeout,
        on_timeout="yield",
        stdin=TTY,
        tty=True,
        merge_stderr=True,
        limits=_LIMITS,
    )
    if result.runs_on:
        return await _follow(session, action, action.timeout)
    text = _text(result)
    found = [(match.start(), one) for one in action.expect if (match := re.search(one, text, re.DOTALL))]
    return _Seen(text[: min(found)[0]], min(found)[1], result) if found else _Seen(text, "", result)


async def _follow(session: Any, action: BashAction | BashInterruptAction, timeout: float | None) -> _Seen:
    """Wait until the running command prints what is expected, or ends. Raises CommandTimeoutError."""
    index = await session.expect([*action.expect, pexpect.EOF, pexpect.TIMEOUT], timeout)
    output = clean(session.before)
    if index < len(action.expect):
        return _Seen(output, action.expect[index], None)
    if index == len(action.expect):
        return _Seen(output, "", await session.wait(None))
    raise CommandTimeoutError(
        f"timeout after {timeout} seconds while {action.expect} was expected; the command runs on"
    )


async def _interrupt(session: Any, action: BashInterruptAction) -> BashObservation:
    """End the running command. If something is expected, Ctrl-C may be enough: a program may return to its prompt."""
    try:
        for _ in range(action.n_retry if action.expect else 0):
            await session.type("\x03")
            with suppress(CommandTimeoutError):
                seen = await _follow(session, action, action.timeout)
                return BashObservation(output=seen.output.strip(), exit_code=0, expect_string=seen.expected)
        output = _text(await session.interrupt())
    except NotRunning:  # it has ended, perhaps by its time limit
        output = ""
    return BashObservation(output=output.strip(), exit_code=0)


async def _check_syntax(session: Any, command: str) -> None:
    """Raise BashIncorrectSyntaxError before anything runs."""
    result = await session.run(["bash", "-n"], stdin=command, isolated=True, tty=False, merge_stderr=False)
    if not result.ok:
        info = {"bash_stdout": result.stdout, "bash_stderr": result.stderr}
        raise BashIncorrectSyntaxError(f"bash cannot read the command {command!r}:\n{result}", extra_info=info)


def _observed(action: BashAction, result: Result, output: str, expected: str = "") -> BashObservation:
    """What a command that has ended gives for ``action.check``."""
    if result.outcome in ("timed_out", "idle"):
        raise _timeout(action.command, action.timeout, result)
    status = result.exit_code if result.ran else None
    if action.check == "raise" and status is None:
        raise NoExitCodeError(f"{action.command!r} has no exit code: {result.reason}")
    if action.check == "raise" and status != 0:
        raise _failed(action, status, f"Here is the output:\n{output!r}")
    shown = None if action.check == "ignore" else status
    return BashObservation(output=output, exit_code=shown, failure_reason=result.reason, expect_string=expected)


def _failed(asked: BashAction | Command, status: int | None, output: str) -> NonZeroExitCodeError:
    message = f"Command {asked.command!r} failed with exit code {status}. {output}"
    return NonZeroExitCodeError(f"{asked.error_msg}: {message}" if asked.error_msg else message)


def _timeout(command: object, timeout: float | None, result: Result) -> CommandTimeoutError:
    error = CommandTimeoutError(f"timeout after {timeout} seconds while running command {command!r}: {ending(result)}")
    error.__cause__ = CommandTimeout(result.reason, result)  # it has the output so far
    return error


def _text(result: Result) -> str:
    """The output as text, without escape sequences."""
    return clean(result.stdout if result.stdout_omitted else result.stdout_bytes.decode(*_LENIENT))
