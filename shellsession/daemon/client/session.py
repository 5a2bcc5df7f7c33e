"""RemoteSession: the session of an agent in the daemon, for threads; the same verbs as ``Session``.

Law: needs neither pydantic nor asyncio. What a verb does is in ``remote``; here are the signatures.
"""

from __future__ import annotations

import os
import threading
from typing import Final, Self, Unpack

from ...engine.kernel import signals
from ...models import OnOutput, Result, to_bytes
from ...options import SessionOptions
from ...signatures import Seconds, Text, ThreadSession
from ..protocol import directory_lock
from ..protocol.wire import Message
from .remote import PreparedRun, Remote

# What ``exchange`` and ``transport`` load only where they need it: a host may have no descriptor free then.
_LOADED: Final = (threading, signals, directory_lock)


def connect(
    agent: str, socket: str | os.PathLike[str] | None = None, start: bool = True, **options: Unpack[SessionOptions]
) -> RemoteSession:
    """The session of an agent in the daemon, which is started if there is none (and ``start`` is not False).

    ``socket``: the daemon's (default: SHELLSESSION_SOCKET, or this user's own). ``options`` are those of ``Session``;
    they count when this client is the first to open that agent's session, and so do this process's directory,
    environment and umask. Raises DaemonUnavailable, VersionMismatch, InvalidRequest, TooManySessions.
    """
    session = RemoteSession._of(agent, socket, start, options)
    session.connect()
    return session


class RemoteSession(Remote, ThreadSession[PreparedRun]):
    """An agent's session in the daemon. Leaving a ``with`` block disconnects; the session lives on until ``close``.

    Ctrl-C in a verb interrupts the command there; this client's death does not.
    What is printed while no verb runs is in the next Result, and ``on_output`` does not get it.
    """

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def connect(self) -> None:
        """Open the session in the daemon (again), or find it there; the daemon is started where that is allowed."""
        return self._backend.give(self._open_session(self._backend))

    def ask(self, request: Message, on_output: OnOutput | None = None) -> Message:
        """The reply to one request; ``on_output`` is called with its output as it comes."""
        return self._backend.give(self._ask(request, on_output))

    def _ask_now(self, verb: str, **fields: object) -> Message:
        return self._backend.give(self._ask(self._message(verb, **fields), backend=self._backend))

    # -- the verbs, as Session has them

    def open(self) -> Self:
        """Start bash now. Raises ShellUnavailable."""
        self.ask(self._message("start"))
        return self

    def wait(self, timeout: Seconds = ...) -> Result:
        """Wait until a command that was handed back ends or asks for input, or until so many seconds have passed."""
        return self._backend.give(self._stay("wait", timeout))

    def poll(self) -> Result:
        """What the running command printed since the last result, without waiting."""
        return self._backend.give(self._result(self._of_command("poll")))

    def send(self, text: Text, timeout: Seconds = ...) -> Result:
        """Type into the running command's terminal (Enter is \"\\n\"), then ``wait``."""
        return self._backend.give(self._stay("send", timeout, to_bytes("text", text)))

    def type(self, text: Text) -> None:
        """Type into the running command's terminal, and do not wait for what it does: for use with ``expect``."""
        return self._backend.give(self._tell(self._of_command("type", to_bytes("text", text))))

    def interrupt(self) -> Result:
        """End the running command, whoever started it, as a time limit does, and keep the shell."""
        return self._backend.give(self._interrupt())

    def restart(self) -> None:
        """Start a fresh bash in the first cwd and environment, and run the startup commands again.

        Ends what other clients run here.
        """
        return self._backend.give(self._restart())

    def close(self) -> None:
        """End the agent's session and everything it started, for every client; a second time does nothing."""
        return self._backend.give(self._close())
