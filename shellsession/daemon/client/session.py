"""``connect`` and RemoteSession: an agent's session in the daemon, for threads, with the verbs of ``Session``.

These are the signatures; ``remote`` has the code. A client needs neither pydantic nor asyncio.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self, Unpack

from ...branch.checkpoint import Checkpoint
from ...branch.files import BranchFiles
from ...engine.io.jobs import Job
from ...engine.kernel import signals
from ...keys import check_keys
from ...models import OnOutput, Result, to_bytes
from ...options import SessionOptions
from ...signatures import Command, RunOptions, Seconds, Text, ThreadSession, pattern_of, refuse_unknown
from ...state.snapshot import Snapshot
from ...state.values import Restored
from ..protocol import directory_lock
from ..protocol.wire import Message
from .remote import CONNECT_OPTIONS, PreparedRun, Remote, RemoteJob

if TYPE_CHECKING:
    from ...branch.attempt import Attempt

# ``exchange`` and ``transport`` import these late. They are imported here, as a host may have no free descriptor then.
_LOADED: Final = (threading, signals, directory_lock)


def connect(
    agent: str,
    socket: str | os.PathLike[str] | None = None,
    start: bool = True,
    *,
    create: bool = True,
    via: Sequence[str] | None = None,
    remote: str | None = None,
    idle_ttl: Seconds = ...,
    **options: Unpack[SessionOptions],
) -> RemoteSession:
    """The session of an agent in the daemon. Starts the daemon if there is none, unless ``start`` is False.

    ``socket``: the daemon's socket (default: SHELLSESSION_SOCKET, or the one of this user). ``options``: those of
    ``Session``. They apply, with this process's directory, environment and umask, if this client is the first to open
    the agent's session; ``opened_here`` of the session says whether it was. If it is not, another ``cwd``, ``env``,
    ``extra_env``, ``limits``, ``startup``, ``sandbox``, ``policy`` or ``redact`` than that of the session raises
    AlreadyOpen. ``timeout`` always applies to this client's own calls.

    ``idle_ttl``: the session is closed after this many seconds without a command or a running job (None: never). The
    default is what another client has named, or that of the daemon, an hour.

    A session outlives its clients, but not the daemon, nor an idle hour. The agent's next session then starts in the
    directory of the last one, unless ``cwd`` is named, and the ``reason`` of its first result says what is lost. With
    ``create=False`` no session is made: if the last one has ended, this raises StateLost, and nothing runs.

    ``via``: the words of a program that leads to another machine, container or user, such as ``["ssh", "box"]``.
    `shellsession bridge` is appended to them; ``remote`` names another program than ``shellsession`` there. The session
    then starts with the directory, environment and umask of the login there.

    Raises DaemonUnavailable, VersionMismatch, InvalidRequest, AlreadyOpen, TooManySessions; with ``create=False`` also
    StateLost and NoSuchAgent.
    """
    refuse_unknown("connect", options, CONNECT_OPTIONS)
    session = RemoteSession.for_arguments(
        agent, socket, start, options, via=via, remote=remote, create=create, idle_ttl=idle_ttl
    )
    session.connect()
    return session


class RemoteThreadJob(RemoteJob, Job):
    """A job in the daemon, for threads."""


class RemoteSession(Remote, ThreadSession[PreparedRun]):
    """An agent's session in the daemon. Leaving a ``with`` block disconnects; the session lives on until ``close``.

    Ctrl-C in a verb interrupts the command; the death of this client does not. Output that comes while no verb runs is
    in the next Result; ``on_output`` does not get it.
    """

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def connect(self) -> None:
        """Open the session in the daemon (again), or use the one that is there. Starts the daemon if allowed."""
        return self._backend.give(self._open_session(self._backend))

    def ask(self, request: Message, on_output: OnOutput | None = None) -> Message:
        """Send one request, and return the reply. ``on_output`` is called with output as it comes."""
        return self._backend.give(self._ask(request, on_output))

    def _ask_now(self, verb: str, **fields: object) -> Message:
        return self._backend.give(self._ask(self.message(verb, **fields), backend=self._backend))

    # -- the verbs, as Session has them

    def open(self) -> Self:
        """Start bash now. Raises ShellUnavailable."""
        self.ask(self.message("start"))
        return self

    def wait(self, timeout: Seconds = ..., *, idle_timeout: Seconds = ..., until: str | None = None) -> Result:
        """Wait until a command that was handed back ends or waits for input, or until the time is up.

        The options are those of ``Session.wait``. They do not apply while another client waits for the command.
        """
        pattern_of(until)
        given = {} if until is None else {"until": until}
        return self._backend.give(self._wait("wait", timeout, idle_timeout, **given))

    def poll(self) -> Result:
        """The output of the running command since the last result, without waiting."""
        return self._backend.give(self._result(self._of_command("poll")))

    def send(
        self, text: Text = "", timeout: Seconds = ..., *, keys: Sequence[str] = (), idle_timeout: Seconds = ...
    ) -> Result:
        """Type into the running command's terminal (Enter is \"\\n\"), then ``wait``. ``keys``: as ``Session.send``."""
        given = {"keys": names} if (names := check_keys(keys)) else {}
        return self._backend.give(self._wait("send", timeout, idle_timeout, to_bytes("text", text), **given))

    def type(self, text: Text) -> None:
        """Type into the running command's terminal, and return at once: for use with ``expect``."""
        return self._backend.give(self._send_only(self._of_command("type", to_bytes("text", text))))

    def interrupt(self) -> Result:
        """End the running command, whichever client started it, as a time limit does, and keep the shell."""
        return self._backend.give(self.interrupt_command())

    def jobs(self, released: bool = False) -> list[RemoteThreadJob]:
        """As ``Session.jobs``. Released jobs are known as long as the daemon runs and the agent has a session."""
        return self._jobs(RemoteThreadJob, released)

    def restart(self, *, keep_state: bool = False) -> Restored:
        """Start a fresh bash in the first cwd and environment, and run the startup commands again.

        Ends what other clients run here. ``keep_state``: as in ``Session.restart``.
        """
        return self._backend.give(self._restart(keep_state))

    def snapshot(self, *, exclude: Sequence[str] = (), secrets: Sequence[str] = ()) -> Snapshot:
        """As ``Session.snapshot``."""
        return self._backend.give(self._snapshot(exclude, secrets))

    def restore(self, snapshot: Snapshot) -> Restored:
        """As ``Session.restore``. Ends what other clients run here."""
        return self._backend.give(self._restore(snapshot))

    def checkpoint(self, name: str = "", *, end_jobs: bool = False) -> Checkpoint:
        """As ``Session.checkpoint``."""
        return self._backend.give(self._checkpoint(name, end_jobs))

    def rollback(
        self, checkpoint: Checkpoint | str = "", *, files_only: bool = False, end_jobs: bool = False
    ) -> Restored:
        """As ``Session.rollback``. Ends what other clients run here."""
        return self._backend.give(self._rollback(checkpoint, files_only, end_jobs))

    def checkpoints(self) -> list[Checkpoint]:
        """As ``Session.checkpoints``."""
        return self._backend.give(self._checkpoints("checkpoints"))

    def drop_checkpoint(self, checkpoint: Checkpoint | str) -> None:
        """As ``Session.drop_checkpoint``."""
        return self._backend.give(self._drop_checkpoint(checkpoint))

    @property
    def branch(self) -> BranchFiles:
        """As ``Session.branch``."""
        return BranchFiles(lambda *given: self._backend.give(self._act_on_branch(*given)), self._branch_path)

    def fork(self, agent: str) -> Self:
        """Return a session of another agent, with the state, the options and the rules of this one.

        Raises AlreadyOpen if that agent is known already; else see ``Session.fork``.
        """
        return self._backend.give(self._fork(agent))

    def attempt(self, command: Command, **options: Unpack[RunOptions]) -> Attempt:
        """As ``Session.attempt``. If this client dies, the daemon closes the fork as any idle session."""
        from ...branch.attempt import Attempt  # rarely needed

        child = self._backend.give(self._fork(self._of_attempt(options), attempt=True))
        return Attempt.of(child, lambda fork: self._backend.give(self._take_over(fork)), command, options)

    def close(self) -> None:
        """End the agent's session, and everything it started, for every client. A second call does nothing."""
        return self._backend.give(self._close())
