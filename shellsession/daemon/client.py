"""RemoteSession: the session of an agent in the daemon, for threads; the same verbs as ``Session``.

Law: needs neither pydantic nor asyncio; each verb is one request, and its answer is awaited.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import closing, suppress
from typing import Any, Self, Unpack

from ..any_session import Seconds, Text, ThreadSession
from ..errors import ShellSessionError
from ..models import OnOutput, Result, Stream, check_flag, to_bytes
from ..options import SessionOptions
from . import autostart, giving_up  # noqa: F401  # ``blocking`` loads them at need: no descriptor may be free then
from .blocking import messages
from .endpoint import socket_path
from .exchange import Exchange, GivenUp
from .opening import opening
from .remote import Asked, Followed, Remote
from .search import Said
from .wire import Message


def connect(
    agent: str, socket: str | os.PathLike[str] | None = None, start: bool = True, **options: Unpack[SessionOptions]
) -> RemoteSession:
    """The session of an agent in the daemon, which is started if there is none (and ``start`` is not False).

    ``socket``: the daemon's (default: SHELLSESSION_SOCKET, or this user's own). ``options`` are those of ``Session``;
    they count when this client is the first to open that agent's session, and so do this process's directory,
    environment and umask. Raises DaemonUnavailable, VersionMismatch, InvalidRequest, TooManySessions.
    """
    check_flag("start", start)
    session = RemoteSession(agent, socket_path(socket), start, opening(**options))
    session.connect()
    return session


class RemoteSession(Remote, ThreadSession[Asked]):
    """An agent's session in the daemon. Leaving a ``with`` block disconnects; the session lives on until ``close``.

    Ctrl-C in a verb interrupts the command there; this client's death does not.
    What is printed while no verb runs is in the next Result, and ``on_output`` does not hear it.
    """

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def connect(self) -> None:
        """See to it that the daemon is there, and has the session (again)."""
        for message in self._exchange(self._open_request()):
            self._opened(message)

    def disconnect(self) -> None:
        """Close this client's connections; the session lives on."""
        self._pool.close()

    def _exchange(self, said: Said, expected: str = "") -> Generator[Message]:
        """Every event of a request, and its reply as the last; left before that, what it asked for is ended."""
        exchange = Exchange(self._pool, self._path, *said, expected)
        try:
            yield from messages(exchange, self._path, self._start, self._ended)
        except ShellSessionError as error:
            self._unlearn(said, error)
            raise self._meaning(error) from None

    def _end(self, request: str, given_up: GivenUp) -> None:
        """Have a request ended that another thread is in."""
        with suppress(ShellSessionError):
            for answer in self._exchange(({"verb": "cancel", "request": request, "reads": True}, ())):
                given_up.note(answer)

    def ask(self, said: Said, on_output: OnOutput | None = None) -> Message:
        """One request and its reply; its output is given to ``on_output`` as it comes."""
        with closing(self._asked(said)) as messages:
            for message in messages:
                if message.header.get("event") == "output" and on_output is not None:
                    self._hear(threading.get_ident(), on_output, message)
                elif message.header.get("event") == "waits" and self.on_wait is not None:
                    self.on_wait(message)
        return message

    def _asked(self, said: Said) -> Generator[Message]:
        self._check_caller(threading.get_ident())
        return self._begun(said)

    def _begun(self, said: Said) -> Generator[Message]:
        self._check_open()
        if not self._incarnation:
            self.connect()
        return self._exchange(said, self._incarnation)

    def _ask_now(self, said: Said) -> Message:
        """Also for who is in a callback: it waits for nobody."""
        with closing(self._begun(said)) as messages:
            *_, message = messages
        return message

    # -- the verbs, as Session has them

    def open(self) -> Self:
        """Start bash now. Raises ShellUnavailable."""
        self.ask(self._said("start"))
        return self

    def _run(self, asked: Asked) -> Result:
        return self._ran(self.ask(*asked), asked[1])

    def _follow(self, said: Said, followed: Followed) -> Generator[tuple[Stream, bytes] | Result]:
        followed.now = True
        try:
            with closing(self._asked(said)) as messages:
                for message in messages:
                    if message.header.get("event") == "output":
                        yield message.header["stream"], message.parts[0]
        finally:
            followed.now = False
        yield self._ran(message)  # out here: who leaves the loop with it has been told, and nothing is to be cancelled

    def wait(self, timeout: Seconds = ...) -> Result:
        """Stay with a command that was handed back running: until it ends, waits for input, or seconds pass."""
        return self._told(self.ask(self._until("wait", timeout), self._on_output))

    def poll(self) -> Result:
        """What the running command printed since the last time, without waiting."""
        return self._told(self.ask(self._of_command("poll")))

    def send(self, text: Text, timeout: Seconds = ...) -> Result:
        """Type into the running command's terminal (Enter is \"\\n\"), then stay with it as ``wait`` does."""
        return self._told(self.ask(self._until("send", timeout, to_bytes("text", text)), self._on_output))

    def type(self, text: Text) -> None:
        """Type into the running command's terminal, and do not wait for what it does: for use with ``expect``."""
        self.ask(self._of_command("type", to_bytes("text", text)))

    def interrupt(self) -> Result:
        """End the running command, whoever started it, as a time limit does, and keep the shell."""
        return self._told(self.ask(self._said("interrupt")))

    def _expect(self, pattern: Any, timeout: Seconds, exact: bool) -> int:
        search = self._search(pattern, timeout, exact)
        message: Message | None = None
        while (index := search.step(message)) is None:
            message = self.ask(search.request())
        return index

    def restart(self) -> None:
        """A fresh bash: first cwd and environment, startup commands run again. Ends what anybody else runs here."""
        self.ask(self._said("restart"))
        self._handed = ""

    def close(self) -> None:
        """End the agent's session and everything it started, for every client; a second time does nothing."""
        if not self._closed:
            with self._closing():
                self.ask(self._said("close"))
        self.disconnect()
