"""Surroundings: the host's directory, umask and environment of now, and bash text that takes a call there.

Law: all text is quoted, no value gets into the words of a program, where everybody could read it, and nothing is said
but why a call could not be begun.

What the host's environment has now and the session did not start with is set in the subshell of a call, functions that
were exported too. A name that bash cannot hold (``X-Y``) it only hands on: one that is gone is taken away by ``env -u``
in front of the call's bash; one that has come since, or has another value, is not there in this session. A variable
that a command has made read-only stays as it is, or is not handed on.
"""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import re
import secrets
import shlex
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, overload

from ..agents import Agents, AsyncAgents
from ..engine.bash.spawn import AGENT_ENV, inherited
from ..engine.kernel import proc
from ..errors import InvalidRequest, SessionClosed, ShellSessionError, ShellUnavailable
from ..models import Request, Result
from ..policy.rules import UNCONFIRMED, Policy, refused, yes
from ..policy.secrets import secret_values
from ..sandbox import USABLE
from . import cancel
from .cancel import CallCancelled, CancelToken
from .contract import (
    LOST,
    Action,
    Ask,
    Contract,
    Dressed,
    Judge,
    Log,
    Look,
    P,
    Place,
    Programs,
    Restart,
    definition,
    display,
    limited,
    quoted,
)
from .one_shot import NONCE, WITHOUT, bash_c, without

if TYPE_CHECKING:
    from ..async_session import AsyncSession
    from ..daemon.client.async_session import AsyncRemoteSession
    from ..daemon.client.session import RemoteSession
    from ..policy.secrets import Secrets
    from ..session import Session

    Sync = Session | RemoteSession
    Async = AsyncSession | AsyncRemoteSession


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION: Final = re.compile(r"BASH_FUNC_([\w.:+@-]+)%%")
# Bash sets these itself, whatever it is given: most are read-only, by BASH we know which program to run, and BASH_ARGV0
# would be `$0`.
_ITS_OWN: Final = frozenset({"BASH", "BASH_ARGV0", "BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})
# What the session's bash sets itself: of its own life, not of the command's.
_CHANGED: Final = ("OLDPWD", "SHLVL", "COLUMNS", "LINES")
# What of a session would be heard at our words, or change what they mean. No function stands before a special builtin
# in posix mode, which an assignment can begin.
_CALM: Final = (
    r"(( POSIXLY_CORRECT = 1 )); \unset -f builtin",
    r"\builtin trap - DEBUG ERR RETURN",
    r"\builtin set +aefkuvxCEPT +o posix",
    r"\builtin shopt -u expand_aliases cdspell",
)
# A `builtin` that is none (a read-only function, or disabled) would do nothing of all this, without a word. A `cd` that
# goes there fails all the same where PWD or OLDPWD is read-only. One that does not says why.
_GO: Final = r"""%(name)s=%(nonce)s
\builtin set -- %(place)s "$%(name)s"
[[ ${2-} == "$%(name)s" || ${_shellsession_builtin?%(nonce)s} ]]
{ \builtin cd -- "$1" || [[ . -ef $1 ]]; } 2>/dev/null || {
\builtin cd -- "$1" >/dev/null
\builtin printf '%%s\n' "$2" >&2
\builtin exit 1
}"""


def cwd() -> str:
    """The host's working directory."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        # Removed under us: said by whoever goes there.
        return proc.link("/proc/self/cwd").removesuffix(" (deleted)") or "."


def begun(title: str, place: str, nonce: str) -> str:
    """Bash text that begins a call: in silence, whatever the session is set to, and there; or says why it cannot, and
    the nonce, and ends. The title does nothing: by it who looks on (lists, logs, jobs) sees at once what all the rest
    is to run.

    ``set -v`` shows the first line, as bash shows a line before it runs anything of it, and no other.
    """
    calm = "; ".join((f"\\builtin : {shlex.quote(title)}", *_CALM))
    go = _GO % {"name": NONCE, "nonce": nonce, "place": _word(place)}
    return f"{{ {calm}; }} >/dev/null 2>&1\n{go}"


def dressed(place: str, environ: Mapping[str, str]) -> list[str]:
    """Bash text that takes the host's umask, and undoes what a bash has changed in its environment."""
    before = {name: environ[name] for name in _CHANGED if name in environ}
    if (path := environ.get("PWD", "")) and _is_same(path, place):
        before["PWD"] = path  # perhaps another name of it
    return [
        f"\\builtin umask {proc.umask():04o}",
        f"\\builtin unset -v {' '.join(_CHANGED)} {WITHOUT}",
        *changes({}, before),
    ]


def since_start(session: Any, environ: Mapping[str, str], over_agents: bool) -> list[str]:
    """Bash text that makes ``environ`` of what the session's bash has started with, where that is the host's: also over
    agents, and not where whoever made the session has named another (``env``). What was added (``extra_env``) stays.
    """
    given = _given(session)
    if not (over_agents or given["inherited"]):
        return []
    text = changes(given["started"], {**environ, **(given["extra_env"] or {})})
    return [*text, f"{{ {USABLE}; }}"] if given["sandbox"] else text


def its_bash(session: Any) -> list[str]:
    """Bash text that names the program that the session runs, where that is not the one that bash would find."""
    path = str(_given(session)["bash"])
    return [] if path == "bash" else [f"BASH={_word(shutil.which(path) or path)}"]


def started(session: Any) -> Mapping[str, str]:
    """The environment that the session's bash was started with, or will be."""
    environ: Mapping[str, str] = _given(session)["started"]
    return environ


def _given(session: Any) -> dict[str, Any]:
    """With which options somebody made the session, here or in a daemon; and ``started``, its bash's environment."""
    if (engine := getattr(session, "_engine", None)) is None:
        return _given_to_daemon(session)
    options, shell = engine.options, engine.shell
    given = {name: getattr(options, name) for name in ("extra_env", "bash", "sandbox")}
    started = engine.environment() if shell is None else proc.environment(shell.pid)
    return {**given, "inherited": options.env is None, "started": started}


def _given_to_daemon(session: Any) -> dict[str, Any]:
    """It keeps for all its shells what it was opened with: another client's follows what changes here."""
    opening: Mapping[str, Any] = getattr(session, "_opening", {})
    options = {"extra_env": None, "bash": "bash", "sandbox": None, "inherited": False, **opening}
    started = {**options.get("env", {}), **(AGENT_ENV if options.get("agent_env", True) else {})}
    return {**options, "started": {**started, **(options["extra_env"] or {})}}


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def changes(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Bash text that makes one environment of another."""
    text: list[str] = []
    for name, value in then.items():
        if name not in now or (now[name] != value and not _NAME.fullmatch(name)):
            text += _without(name)
    for name, value in now.items():
        if then.get(name) != value:
            text += _with(name, value)
    return text


def _without(name: str) -> list[str]:
    if name in _ITS_OWN:
        return []
    if _NAME.fullmatch(name):
        return [f"\\builtin unset -v {name} || \\builtin export -n {name}"]  # a read-only one is not handed on
    if function := _FUNCTION.fullmatch(name):
        return [f"\\builtin unset -f -- {function[1]}"]
    program = _word(shutil.which("env", path=os.defpath) or "env")
    return [f"{{ [[ -v {WITHOUT} ]] || {WITHOUT}=({program}); }}", f"{WITHOUT}+=(-u {_word(name)})"]


def _with(name: str, value: str) -> list[str]:
    if name in _ITS_OWN:
        return []
    if _NAME.fullmatch(name):
        # Not as the session has it: an array, or a number, which a value that is none would end our text with.
        return [f"\\builtin unset -v {name}; \\builtin export {name}={_word(value)}"]
    if (function := _FUNCTION.fullmatch(name)) and value.startswith("() {"):
        return [f"\\builtin eval {_word(f'function {function[1]} {value}')} && \\builtin export -f -- {function[1]}"]
    return []


def _word(text: str) -> str:
    return quoted(os.fsencode(text)).decode("utf-8", "surrogateescape")


_made: Final = dict[Programs, str]()


def directory(programs: Programs) -> str:
    """The path of the directory. Raises ShellUnavailable."""
    path = _made.get(programs)
    if path is None or not os.access(os.path.join(path, programs.names[0]), os.X_OK):
        path = _made[programs] = _make(programs)
    return path


def _make(programs: Programs) -> str:
    """Make it where programs may run. Sandboxes have a /tmp of their own, so that is not the first choice."""
    refused = []
    for place in ("/var/tmp", tempfile.gettempdir(), os.path.expanduser("~")):
        try:
            path = tempfile.mkdtemp(prefix=programs.prefix, dir=place)
            atexit.register(_remove, path, os.getpid())
            _fill(path, programs)
        except OSError as error:
            refused.append(f"{place} ({error.strerror})")
            continue
        if os.access(os.path.join(path, programs.names[0]), os.X_OK):
            return path
        refused.append(f"{place} (mounted noexec)")
    raise ShellUnavailable(
        f"no place for programs that the tool needs: {', '.join(refused)};"
        " set TMPDIR to a directory where you can write and programs may run"
    )


def _fill(path: str, programs: Programs) -> None:
    for name in programs.names:
        with open(os.path.join(path, name), "w", encoding="utf-8") as file:
            file.write(programs.text)
            os.fchmod(file.fileno(), 0o555)
    for name, target in programs.links:
        os.symlink(target, os.path.join(path, name))
    # Others may run them: a command may change its user (`su`). Nobody is to write there by mistake.
    os.chmod(path, 0o555)


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:  # not a forked child
        with suppress(OSError):
            os.chmod(path, 0o700)
        shutil.rmtree(path, ignore_errors=True)


_PLACE: Final = "{working_directory}"  # in a description
_TITLE_MAX: Final = 200  # bytes of a command that others are told first
_NOT_RUN: Final = "nothing was run; go to another"


class Located(Generic[P]):
    """A contract, and where it runs."""

    def __init__(self, contract: Contract[P], where: Any, agent: object, policy: Policy | None) -> None:
        if isinstance(where, Agents | AsyncAgents):
            if agent is None:
                raise InvalidRequest("a tool over agents needs its agent: tool(agents, agent=...)")
        elif agent is not None:
            raise InvalidRequest("agent= names one of Agents' sessions; this is a session already")
        if policy is not None and not isinstance(policy, Policy):
            raise InvalidRequest(f"policy is a Policy, not {policy!r}")
        self.contract, self._where, self._policy = contract, where, policy
        self._agent, self._nonce = _held(agent), secrets.token_hex(8)

    @property
    def name(self) -> str:
        return self.contract.name

    @property
    def description(self) -> str:
        """What the model is told, with the working directory of now."""
        text = self.contract.description
        if _PLACE not in text:
            return text
        return text.replace(_PLACE, display(self._pwd()))

    @property
    def definition(self) -> dict[str, Any]:
        """Name, description and ``input_schema`` (JSON schema), as models are told of tools."""
        return {**definition(self.contract), "description": self.description}

    def _pwd(self) -> str:
        if not self.contract.persistent:
            return self._place()
        if (session := self._present()) is not None:
            return str(session.cwd)
        # Where its bash will start: to ask for the session would make it, and there may be only so many.
        options = {**self._where._options, **self.contract.session_options({})}
        return os.path.join(cwd(), options.get("cwd") or cwd())

    def _session(self, environ: Mapping[str, str] | None = None) -> Any:
        if not isinstance(self._where, Agents | AsyncAgents):
            return self._where
        agent = self._who()
        options = self._session_options(inherited() if environ is None else environ)
        return self._where.session(agent, **options)

    def _who(self) -> object:
        if (agent := self._agent()) is None:
            raise InvalidRequest("the agent of this tool is gone")
        return agent

    def _present(self) -> Any:
        """The session, where there is one: to ask agents for it would make it."""
        agents = isinstance(self._where, Agents | AsyncAgents)
        return self._where._find(self._who()) if agents else self._where

    def _session_options(self, environ: Mapping[str, str]) -> dict[str, Any]:
        options = self.contract.session_options(environ)
        return options if self._policy is None else {**options, "env": self._policy.environment(options["env"])}

    def _place(self) -> str:
        return cwd() if self.contract.cwd is None else os.path.join(cwd(), self.contract.cwd)

    def _prepared(self, request: Request) -> tuple[Any, bytes, dict[str, Any]]:
        """The session of a call, its text, and how it is run."""
        now = inherited()
        session = self._session(now)
        return session, self._command(session, request, now), _options(request)

    def _command(self, session: Any, request: Request, now: Mapping[str, str]) -> bytes:
        """The text of a call; an isolated one is a ``bash -c`` of its own that starts where the host is, in what the
        host's environment is now."""
        text = request.text if isinstance(request, Dressed) else None
        if not request.isolated:
            return request.command if text is None else text
        place = self._place()
        if not os.path.isdir(place):
            raise InvalidRequest(f"the working directory {display(place)} does not exist: {_NOT_RUN}")
        environ = self._session_options(now)["env"]
        text = bash_c(request.command, self.contract.shell) if text is None else text
        prelude = its_bash(session) + dressed(place, environ)
        prelude += since_start(session, environ, isinstance(self._where, Agents | AsyncAgents))
        if self._policy is not None:  # who made this session may have hidden less
            prelude += changes(self.contract.session_options(now)["env"], environ)
        begin = begun(_title(request.command), place, self._nonce)
        ours = f"{begin}\n{{ {'; '.join(prelude)}; }} >/dev/null 2>&1\n"
        return ours.encode("utf-8", "surrogateescape") + text

    def _read(self, request: Request, text: bytes, result: Result) -> Result:
        """What came of the command itself. Raises InvalidRequest and ShellUnavailable where it was not begun."""
        if not isinstance(request, Dressed) and not request.isolated:
            return result
        result = without(result, (text.partition(b"\n")[0] if request.isolated else text) + b"\n")
        said = result.stdout_bytes if request.merge_stderr else result.stderr_bytes
        if request.isolated and self._nonce.encode() in said:
            self._refuse(said.decode("utf-8", "replace"))
        return result

    def _refuse(self, said: str) -> None:
        """Raises InvalidRequest and ShellUnavailable, where this is what bash says of a call that was not begun."""
        if said.startswith(f"{self._nonce}: "):
            why = said.partition("\n")[0].rpartition(": ")[2]
            raise ShellUnavailable(f"nothing was run: bash could not be started ({why})")
        if said.endswith(f": {self._nonce}\n"):
            raise ShellUnavailable("nothing was run: a command has put something in place of the session's `builtin`")
        if said.endswith(f"\n{self._nonce}\n"):
            why = said.split("\n")[-3].rpartition(": ")[2]
            raise InvalidRequest(
                f"the working directory {display(self._place())} cannot be entered ({why}): {_NOT_RUN}"
            )


def _held(agent: object) -> Callable[[], object]:
    """Who the agent is; one that is an object is held weakly, here as by Agents."""
    if agent is None or isinstance(agent, str):
        return lambda: agent
    try:
        return weakref.ref(agent)
    except TypeError:
        said = f"an agent is a name (str), or an object that can be held weakly, not {agent!r}"
        raise InvalidRequest(said) from None


def _title(command: bytes) -> str:
    line, _, more = command.strip().partition(b"\n")
    shown = line[:_TITLE_MAX].decode("utf-8", "ignore")
    return shown + " ..." if more or len(line) > _TITLE_MAX else shown


# What of a request is no option of ``run``.
_NO_OPTIONS: Final = {"command", *Dressed.__annotations__}


def _options(request: Request) -> dict[str, Any]:
    """The options of the request, all of them: ``run`` raises TypeError for one that it does not know."""
    return {name: value for name, value in vars(request).items() if name not in _NO_OPTIONS}


# So many earlier environments' secrets are kept: a day of tokens that are good for an hour.
_PAST_MAX: Final = 24

_log: Final = logging.getLogger("shellsession.interaction")
# What a call waits for: running a command, somebody's yes, a fresh bash.
Deed = Literal["run", "ask", "restart"]
Deeds = Mapping[Deed, Callable[..., Any]]


class _Bound(Located[P]):
    """A contract's calls, judged by its policy and performed."""

    _known: tuple[list[Mapping[str, str]], Secrets] | None = None  # by these environments
    _past: tuple[Mapping[str, str], ...] = ()  # what was secret in earlier ones

    @property
    def owner(self) -> tuple[object, ...]:
        """Whose calls these are, while it lives: those of one owner are run one after the other."""
        agent = self._agent()
        return id(self._where), agent if isinstance(agent, str) else id(agent)

    async def _wait(self, deed: Deed, *arguments: Any) -> Any:
        """Do it. Threads wait right here, so that their coroutines come to the end at once."""
        raise NotImplementedError

    def _judged(self, request: Request) -> tuple[Request, Ask | None]:
        """The request as it may run, and who must say yes to it. Raises PolicyRefused."""
        if self._policy is None:
            return request, None
        verdict = self._policy.judge(request)
        if not verdict.question or self._policy.confirm is None:
            return verdict.request, None
        agent = self._agent()
        name = agent if isinstance(agent, str) else "" if agent is None else f"<{type(agent).__name__}>"
        return verdict.request, Ask(self._policy.confirm, (verdict.question, name, self._pwd()))

    @contextmanager
    def _patience(self) -> Iterator[float | None]:
        """For so many seconds somebody is waited for. Raises PolicyRefused when they have passed."""
        seconds = None if self._policy is None else self._policy.confirm_timeout
        try:
            yield seconds
        except TimeoutError:
            raise refused(f"it was not confirmed within {seconds} s") from None

    def _masked(self, result: Result, before: list[Mapping[str, str]]) -> Result:
        """The result without secrets: those of now, and of before it was run."""
        secrets = self._secrets(before)
        return result if secrets is None else secrets.mask_result(result)

    def _secrets(self, before: Sequence[Mapping[str, str]] = ()) -> Secrets | None:
        """Those of now, of before, and of earlier calls, which may have written one to a file: all at once, as one may
        begin with another."""
        if self._policy is None or not (self._policy.mask_secrets or self._policy.secrets):
            return None
        environs = [*before, *(environ for environ in self._environs() if environ not in before)]
        known = self._known
        if known is None or known[0] != environs:  # they take long to make
            now = [_secret_part(environ, self._policy) for environ in environs]
            self._past = (*(part for part in self._past if part not in now), *now)[-_PAST_MAX:]
            self._known = known = environs, self._policy.known_secrets(*environs, *self._past)
        return known[1]

    def _environs(self) -> list[Mapping[str, str]]:
        """Where secrets are: the host's environment as it is now, and the session's: what the host has changed there
        since, or taken out, its bash still has."""
        if self._policy is None:
            return []
        environs: list[Mapping[str, str]] = [inherited()]
        with suppress(ShellSessionError):  # the agent is gone, or all sessions are
            if (session := self._present()) is not None:
                environs.append(started(session))
        return environs

    async def _call(self, call: object, cancel: CancelToken | None, fields: Mapping[str, object]) -> P:
        """What a call does, told once for threads and for asyncio; its payload."""
        if fields:
            call = {**call, **fields} if isinstance(call, Mapping) else fields
        steps = self.contract.steps(call)
        answer, move = None, steps.send
        while True:
            try:
                action = move(answer)
            except StopIteration as end:
                payload: P = end.value
                return payload
            try:
                answer, move = await self._perform(action, cancel), steps.send
            except ShellSessionError as error:
                answer, move = error, steps.throw

    async def _perform(self, action: Action, cancel: CancelToken | None) -> Any:
        if isinstance(action, Request):
            request = await self._approved(action, cancel)
            before = self._environs()
            try:
                result = await self._run(request, cancel)
            except CallCancelled as error:
                error.result = None if error.result is None else self._masked(error.result, before)
                raise
            if isinstance(action, Dressed) and action.reads is not None:
                result = action.reads(result)
            if not isinstance(result, Result):
                return result
            result = self._masked(result, before)
            return result if request.timeout == action.timeout else limited(result, request.timeout)
        if isinstance(action, Restart):
            if cancel is not None and cancel.cancelled:
                raise CallCancelled
            session = self._present()
            self._take_loss()
            return None if session is None or session.state == "new" else await self._wait("restart", session)
        if isinstance(action, Judge):
            self._judged(action.request)
            return None
        if isinstance(action, Ask):
            return yes(await self._asked(action, None, cancel))
        return self._answer(action)

    async def _run(self, request: Request, cancel: CancelToken | None) -> Any:
        while True:
            prepared = self._prepared(request)
            if not request.isolated:
                self._rely_on(prepared[0])
            try:
                result = await self._wait("run", *prepared, cancel)
                if _is_lost(request, result):
                    result = await self._wait("run", *prepared, cancel)
                return self._read(request, prepared[1], result)
            except SessionClosed:
                if not isinstance(self._where, Agents | AsyncAgents) or not prepared[0].closed:
                    raise
                # As in ``Agents.run``: its time was up just now, and nothing was run.

    def _rely_on(self, session: Any) -> None:
        """The model counts on what it keeps. Raises ShellUnavailable, once, where the one before it has expired."""
        if self._take_loss():
            raise ShellUnavailable(f"nothing was run: the session was closed, as it had been idle for too long; {LOST}")
        session.relied_on = True
        if self.contract.lasts:
            session.lasts = True

    def _take_loss(self) -> bool:
        """Has this agent's session expired, and is that yet to be told? A daemon tells it itself."""
        return isinstance(self._where, Agents | AsyncAgents) and self._where._take_loss(self._who())

    async def _approved(self, action: Request, cancel: CancelToken | None) -> Request:
        request, question = self._judged(action)
        if question is not None:
            with self._patience() as seconds:
                answer = await self._asked(question, seconds, cancel)
            if not yes(answer):
                raise refused(UNCONFIRMED)
        return request

    async def _asked(self, question: Ask, timeout: float | None, cancel: CancelToken | None) -> Any:
        """What somebody said. Raises InvalidRequest for what was raised there, and CallCancelled."""
        if cancel is not None and cancel._left_queue:
            raise CallCancelled
        try:
            return await self._wait("ask", question.function, question.arguments, timeout, cancel)
        except ShellSessionError:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and timeout is not None:
                raise  # nobody was heard in time
            raise InvalidRequest(f"who was asked for a yes or no raised {error!r:.200}: nothing was run") from error

    def _answer(self, action: Look | Programs | Log) -> Any:
        if isinstance(action, Programs):
            return directory(action)
        if isinstance(action, Look):
            path = cwd() if action.path is None else action.path
            return Place(path, "directory" if os.path.isdir(path) else "other" if os.path.exists(path) else "missing")
        record = dict(action.record)
        if (secrets := self._secrets()) is not None:
            record = {name: secrets.mask(value) if isinstance(value, str) else value for name, value in record.items()}
        _log.info("%s", record, extra={"interaction": record})
        return None


class Tool(_Bound[P]):
    """A contract bound to a session for threads: call it with the tool call's arguments."""

    _DEEDS: Final[Deeds] = {"run": cancel.run, "ask": cancel.ask, "restart": methodcaller("restart")}

    async def _wait(self, deed: Deed, *arguments: Any) -> Any:
        return self._DEEDS[deed](*arguments)

    def __call__(
        self, call: Mapping[str, Any] | object = None, cancel: CancelToken | None = None, **fields: object
    ) -> P:
        """Run the call; the contract's payload. Raises the contract's errors.

        ``cancel`` ends it from elsewhere, which the contract tells in its own way.
        """
        try:
            self._call(call, cancel, fields).send(None)
        except StopIteration as end:
            payload: P = end.value
            return payload
        raise AssertionError("a tool for threads waits in the call itself")


class AsyncTool(_Bound[P]):
    """As ``Tool``, for asyncio: await the call."""

    _DEEDS: Final[Deeds] = {"run": cancel.arun, "ask": cancel.aask, "restart": methodcaller("restart")}

    async def _wait(self, deed: Deed, *arguments: Any) -> Any:
        return await self._DEEDS[deed](*arguments)

    async def __call__(
        self, call: Mapping[str, Any] | object = None, cancel: CancelToken | None = None, **fields: object
    ) -> P:
        """As ``Tool.__call__``."""
        return await self._call(call, cancel, fields)


class Binder(Generic[P]):
    """A contract module's ``tool``: makes the contract (``settings`` are the contract's own) and binds it."""

    def __init__(self, make: Callable[..., Contract[P]]) -> None:
        self._make = make

    @overload
    def __call__(self, where: Agents, agent: object, policy: Policy | None = None, **settings: Any) -> Tool[P]: ...
    @overload
    def __call__(
        self, where: AsyncAgents, agent: object, policy: Policy | None = None, **settings: Any
    ) -> AsyncTool[P]: ...
    @overload
    def __call__(self, where: Sync, *, policy: Policy | None = None, **settings: Any) -> Tool[P]: ...
    @overload
    def __call__(self, where: Async, *, policy: Policy | None = None, **settings: Any) -> AsyncTool[P]: ...
    def __call__(
        self, where: Any, agent: object = None, policy: Policy | None = None, **settings: Any
    ) -> Tool[P] | AsyncTool[P]:
        """A tool that runs in ``where``: a session of any kind, or agents and which one of them.

        ``policy`` judges every command before it runs; what it refuses is told as the contract tells its errors. What
        it hides is not in the environment of isolated calls, nor of an agent's session that this tool makes; make a
        session of your own with ``env=policy.environment(os.environ)``.
        """
        run = getattr(where, "run", None)
        if run is None:
            raise InvalidRequest(f"a tool runs in a session or in Agents, not in {where!r}")
        contract = self._make(**settings)
        kind = AsyncTool if inspect.iscoroutinefunction(run) else Tool
        return kind(contract, where, agent, policy)


def _secret_part(environ: Mapping[str, str], policy: Policy) -> Mapping[str, str]:
    shown = policy.environment(environ)
    return {name: value for name, value in environ.items() if name not in shown or any(secret_values({name: value}))}


def _is_lost(request: Request, result: Result) -> bool:
    """Was it not run, as an earlier one's doing had killed the shell? It is run in a fresh one, where nothing is kept
    between calls. Raises ShellUnavailable where state was lost with the shell.
    """
    if not result.ran and not request.isolated:
        raise ShellUnavailable(result.reason)
    return not result.ran
