"""What both remote sessions are made of: how each verb is said, and how its answer is read.

Law: bad arguments are refused here, before anything is sent; everything else is the daemon's to judge.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from ..any_session import AnySession, Given, Seconds, fed
from ..checks import check_size
from ..errors import (
    IN_CALLBACK,
    STILL_RUNS,
    DaemonUnavailable,
    InvalidRequest,
    NoSuchAgent,
    NotRunning,
    OutcomeUnknown,
    SessionBusy,
    SessionClosed,
    ShellSessionError,
    ShellUnavailable,
)
from ..models import TTY, OnOutput, Request, Result, State, check_seconds, to_bytes
from .endpoint import reach
from .jobs import RemoteJob
from .link import Pool
from .opening import limits_fields
from .records import closed_meanwhile, field, from_part, only_part, to_result
from .search import Said, Search
from .wire import PARTS_MAX, Message

if TYPE_CHECKING:
    from ..engine.dialogue import Dialogue

# A request of ``run``, and who hears its output.
Asked = tuple[Said, OnOutput | None]

# After so many seconds a verb of this task is given up whose turn has not come, behind other clients; it is not run.
TURN_WITHIN: Final[ContextVar[float | None]] = ContextVar("shellsession-turn-within", default=None)


class Followed:
    """Is somebody at the output of a command just now?"""

    now = False


class Remote(AnySession[Asked]):
    """An agent's session in the daemon, as one client sees it."""

    def __init__(self, agent: str, path: str, start: bool, opening: dict[str, Any]) -> None:
        if not isinstance(agent, str):
            raise InvalidRequest(f"an agent is named by text (str), not {agent!r}")
        self.agent = agent
        self._path, self._start = path, start
        self._opening = opening
        self._gentle = "kill" if opening.get("on_timeout") == "kill" else "interrupt"
        self._incarnation = ""  # of the daemon that has our session; "" while none has
        self._timeout: float | None = 120.0  # the session's own, whoever has opened it
        self.opened_here = False  # was the session made for us, and not there before?
        self._handed = ""  # the command that this client was handed back; "" for none
        self._pool = Pool()
        self._closed = False
        self._dialogue: Dialogue | None = None
        # Told of what keeps a command, or what is to be sent to one, waiting for its turn, once it has for a second.
        self.on_wait: Callable[[Message], None] | None = None
        self._on_output: OnOutput | None = None  # of the command that was handed back
        self._followed: list[tuple[weakref.ref[object], Followed]] = []  # who iterates over the output of a command
        self._hearing: set[object] = set()  # threads or tasks in a callback
        weakref.finalize(self, self._pool.close)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.agent!r} at {self._path} {'closed' if self._closed else 'open'}>"

    def _ask_now(self, said: Said) -> Message:
        raise NotImplementedError

    # -- how it is just now

    @property
    def closed(self) -> bool:
        """Was the session closed, as far as this client knows?"""
        return self._closed

    @property
    def pid(self) -> int | None:
        """Bash's process id; None while there is no bash."""
        return None if self._closed else field(self._ask_now(self._said("info")).header, "pid", int, type(None))

    @property
    def state(self) -> State:
        """As ``Session.state``."""
        state: State = "closed" if self._closed else self._info("state", str)
        return state

    @property
    def cwd(self) -> str:
        """As ``Session.cwd``."""
        return str(self._info("cwd", str))

    @property
    def command(self) -> str:
        """As ``Session.command``."""
        return "" if self._closed else only_part(self._ask_now(self._said("info")).parts).decode("utf-8", "replace")

    @property
    def size(self) -> tuple[int, int]:
        """As ``Session.size``."""
        columns, rows = self._info("size", list)
        return columns, rows

    @property
    def idle(self) -> float:
        """As ``Session.idle``."""
        return float(self._info("idle", float, int))

    def _info(self, name: str, *kinds: type) -> Any:
        return field(field(self._ask_now(self._said("info")).header, "value", dict), name, *kinds)

    def jobs(self) -> list[RemoteJob]:
        """What earlier calls left running, and what came of it; the most recent last."""
        if self._closed:
            return []
        described = from_part(self._ask_now(self._said("jobs")).parts)
        return [RemoteJob(self._job_request, one) for one in described]

    def _job_request(self, verb: str, **fields: object) -> Message:
        return self._ask_now(self._said(verb, **fields))

    def resize(self, columns: int, rows: int) -> None:
        """As ``Session.resize``."""
        check_size((columns, rows))
        self._ask_now(self._said("resize", columns=columns, rows=rows))

    # -- the last ``expect``

    def _screen(self, name: str) -> Any:
        return getattr(self._dialogue.screen, name) if self._dialogue else None

    def _search(self, pattern: Any, timeout: Seconds, exact: bool) -> Search:
        if self._dialogue is None:
            from ..engine.dialogue import Dialogue  # pexpect: dear, and seldom needed

            self._dialogue = Dialogue()
        seconds = self._timeout if timeout is ... else timeout
        check_seconds("timeout", seconds)
        return Search(self._of_command("glimpse"), self._dialogue, self._dialogue.expecter(pattern, exact), seconds)

    # -- what is said, and what an answer means

    def _said(self, verb: str, *parts: bytes, **fields: object) -> Said:
        if (size := sum(map(len, parts))) > PARTS_MAX:
            raise InvalidRequest(
                f"{verb}: its text and stdin are {size} bytes, and over the daemon at most {PARTS_MAX}: put it into a"
                " file, and have the command read that"
            )
        if (seconds := TURN_WITHIN.get()) is not None:
            fields["turn_within"] = seconds
        return {"verb": verb, "agent": self.agent, **fields}, parts

    def _open_request(self) -> Said:
        self._check_open()
        self._incarnation = ""
        return self._said("open", **self._opening)

    def _opened(self, message: Message) -> None:
        self._incarnation = field(message.header, "id", str).partition(".")[0]
        self.opened_here = bool(message.header.get("value"))
        self._timeout = field(message.header, "timeout", float, int, type(None))
        if self.opened_here or self._handed.partition(".")[0] != self._incarnation:
            self._handed = ""  # a fresh session knows nothing of it, and would refuse what names it for ever

    def _hear(self, caller: object, on_output: OnOutput, message: Message) -> object:
        """Give a piece of output to its callback, which cannot use the session whose command waits for it."""
        self._hearing.add(caller)
        try:
            return on_output(message.header["stream"], message.parts[0])
        finally:
            self._hearing.discard(caller)

    def _check_caller(self, caller: object) -> None:
        if caller in self._hearing:
            raise SessionBusy(IN_CALLBACK)

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosed(f"the session of agent {self.agent!r} is closed: connect again for a new one")

    def _unlearn(self, said: Said, error: ShellSessionError) -> None:
        """Who asked how that very command ended, and hears that this is not known any more, asks no more for it.

        Where something was to be typed for it, NotRunning says only that it has ended: how, is still to be asked for.
        """
        header = said[0]
        asked = header["verb"] in ("wait", "poll") and header.get("command") == self._handed
        if asked and isinstance(error, NotRunning):
            self._handed = ""

    def _ended(self, command: str) -> None:
        """Who was with that one, and left, has ended it: as here, it is not asked for any more."""
        if command == self._handed:
            self._handed = ""

    def _meaning(self, error: ShellSessionError) -> ShellSessionError:
        """What an error of a request means for the session."""
        if isinstance(error, DaemonUnavailable | OutcomeUnknown | ShellUnavailable):
            self._incarnation = ""  # the next verb opens a session (in the next daemon, or where there is room again)
        if isinstance(error, NoSuchAgent):
            self._closed = True
            return SessionClosed(closed_meanwhile(self.agent))
        return error

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """While it is being closed: what is gone already is closed, and no daemon is started for that."""
        start, self._start = self._start, False
        try:
            yield
        except SessionClosed:  # somebody else was quicker
            pass
        except (DaemonUnavailable, OutcomeUnknown):
            if (other := reach(self._path)) is not None:
                other.close()
                raise
        finally:
            self._start = start
        self._closed = True

    def _stream(self, asked: Asked) -> Any:
        """Iterate over what that prints, as it comes; ``run`` is refused meanwhile."""
        (header, parts), _ = asked
        header = {name: value for name, value in header.items() if name != "tell"}
        followed = Followed()
        pieces = self._follow(({**header, "live": True}, parts), followed)
        known = [one for one in self._followed if one[0]() is not None]
        self._followed = [*known, (weakref.ref(pieces), followed)]
        return pieces

    def _follow(self, said: Said, followed: Followed) -> Any:
        raise NotImplementedError

    def _request(self, given: Given) -> Asked:
        """Raises InvalidRequest and SessionBusy."""
        # It would wait for who iterates, and that is us. (Not for one that was dropped: asyncio ends that later, and
        # what is run meanwhile has its turn after it.)
        if any(followed.now and pieces() is not None for pieces, followed in self._followed):
            raise SessionBusy(STILL_RUNS)
        # What is not given is the session's own, and what is no flag of this call is not sent.
        text, stdin, on_output = to_bytes("command", given.command), given.stdin, given.on_output
        data = () if stdin is None or stdin is TTY else (fed(stdin),)
        named = {"on_timeout": given.on_timeout, "tty": given.tty, "limits": given.limits}
        fields: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
        if given.timeout is not ...:
            fields["timeout"] = given.timeout
        fields["idle_timeout"] = given.idle_timeout
        flags: dict[str, Any] = {name: getattr(given, name) for name in ("merge_stderr", "isolated", "echo")}
        Request(text, on_output=on_output, **fields, **flags)  # refuses what cannot be meant
        flags |= {"live": on_output is not None, "tell": self.on_wait is not None}
        fields |= {name: True for name, is_set in flags.items() if is_set}
        if given.limits is not None:
            fields["limits"] = limits_fields(given.limits)
        if stdin is not None:
            fields["stdin"] = "tty" if stdin is TTY else "bytes"
        return self._said("run", text, *data, **fields), on_output

    def _until(self, verb: str, timeout: Seconds, *parts: bytes) -> Said:
        """The request of ``wait`` and ``send``."""
        fields: dict[str, object] = {"live": True} if self._on_output is not None else {}
        if verb == "send" and self.on_wait is not None:  # for ``wait`` there is no turn to come
            fields["tell"] = True
        if timeout is not ...:
            check_seconds("timeout", timeout)
            fields["timeout"] = timeout
        return self._of_command(verb, *parts, **fields)

    def _of_command(self, verb: str, *parts: bytes, **fields: object) -> Said:
        """The request of a verb that goes on with the command that was handed back here, or with whichever runs."""
        return self._said(verb, *parts, **fields, **({"command": self._handed} if self._handed else {}))

    def _ran(self, message: Message, on_output: OnOutput | None = None) -> Result:
        """As ``_told``, of a command that was begun here: what was kept of the last one is not wanted any more."""
        self._dialogue, self._on_output, before = None, on_output, self._handed
        result = self._told(message)
        if not result.runs_on:
            self._handed = before  # it has ended since: how, is still to be asked for
        return result

    def _told(self, message: Message) -> Result:
        """The Result in a reply; which command is to be gone on with is noted."""
        result = told(message)
        self._handed = message.header.get("command", "") if result.runs_on else ""
        return result


def told(message: Message) -> Result:
    """The Result in a reply."""
    return to_result(field(message.header, "result", dict), message.parts)
