"""Bind a contract to a session or to agents, and perform its calls: ``Tool`` for threads, ``AsyncTool`` for asyncio.

A contract yields actions; this module performs them. It judges each command by the policy, asks for confirmation, runs
the command, and masks secrets in the result. ``Binder`` is the ``tool(...)`` function of each contract module.

An isolated call runs in a subshell of the session, not in another bash. In a sandbox only this session's /tmp and
process ids are those that the next call sees; and jobs, interrupts, rules and limits stay the agent's. The call has the
host's current directory, umask and environment. The first part of this module writes the bash text that sets these up.
It quotes all text. It puts no value on the command line of a program, where every user of the machine could read it. It
prints nothing except why a call could not begin.

The text sets every variable and exported function that the host has now and the session did not start with. Bash cannot
hold a name such as ``X-Y``; it only passes it on from its own environment. If the host has removed such a name since,
``env -u`` in front of the call's bash removes it. If the host has added or changed it, the call does not see that. A
variable that a command has made read-only keeps its value, or is not exported.

If the session is on another machine, an isolated call gets nothing of the host. It runs where the session is.
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
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeVar, overload

from ..agents import Agents, AsyncAgents
from ..engine.bash.spawn import for_agent, inherited
from ..engine.kernel import proc
from ..errors import InvalidRequest, SessionClosed, ShellSessionError, ShellUnavailable
from ..models import Request, Result
from ..options import Rules
from ..policy.rules import UNCONFIRMED, Policy, refuse_queue, refused, yes
from ..policy.secrets import secret_values
from ..sandbox import USABLE, Sandbox
from ..text import LOST
from . import cancel
from .cancel import CallCancelled, CancelToken
from .contract import (
    Action,
    Ask,
    Contract,
    FreshShell,
    HostPath,
    Judge,
    Limited,
    Log,
    Look,
    P,
    Programs,
    WrappedRequest,
    definition,
    display,
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

S = TypeVar("S", covariant=True)


class SessionsOfAgents(Protocol[S]):
    """Holds a session for each agent: ``Agents``, ``RayAgents``, and their variants for asyncio."""

    def session(self, agent: str, /) -> S: ...


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION: Final = re.compile(r"BASH_FUNC_([\w.:+@-]+)%%")
# Bash sets these itself and ignores what it inherits. Most are read-only; BASH is the program to run, and setting
# BASH_ARGV0 would change `$0`.
_SET_BY_BASH: Final = frozenset({"BASH", "BASH_ARGV0", "BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})
# Variables that the session's bash changes while it runs. A call gets the host's values instead.
_CHANGED_BY_BASH: Final = ("OLDPWD", "SHLVL", "COLUMNS", "LINES")
# Switches off all settings of a session that would make our text print something, or change its meaning. It enters
# posix mode by an assignment first, as no function can replace a special builtin in that mode.
_SILENCE: Final = (
    r"(( POSIXLY_CORRECT = 1 )); \unset -f builtin",
    r"\builtin trap - DEBUG ERR RETURN",
    r"\builtin set +aefkuvxCEPT +o posix",
    r"\builtin shopt -u expand_aliases cdspell",
)
# Checks `builtin`, then enters the directory. If `builtin` is a read-only function or disabled, it does nothing and
# prints nothing, so its effect on the positional parameters is tested. If PWD or OLDPWD is read-only, `cd` enters the
# directory and fails all the same; `-ef` accepts that. If it cannot enter, the second `cd` prints why.
_ENTER: Final = r"""%(name)s=%(nonce)s
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
        # The directory was removed: entering it will report that.
        return proc.link("/proc/self/cwd").removesuffix(" (deleted)") or "."


def begin_text(title: str, place: str, nonce: str) -> str:
    """Bash text that begins a call: it silences the session's settings and enters the directory ``place``.

    If it cannot, it prints the reason and the nonce, and exits. The title has no effect; it shows people in lists, logs
    and jobs at once which command all the text is for. ``set -v`` prints the first line, as bash prints a line before
    it runs anything in it, but no later one.
    """
    silence = "; ".join((f"\\builtin : {shlex.quote(title)}", *_SILENCE))
    enter = _ENTER % {"name": NONCE, "nonce": nonce, "place": _word(place)}
    return f"{{ {silence}; }} >/dev/null 2>&1\n{enter}"


def restore_environment(environ: Mapping[str, str]) -> list[str]:
    """Bash text that sets the host's umask, and restores the variables that a bash changes by itself."""
    # The host's PWD may name the directory through a symbolic link. Bash uses it only if it names the same directory.
    before = {name: environ[name] for name in (*_CHANGED_BY_BASH, "PWD") if name in environ}
    return [
        f"\\builtin umask {proc.umask():04o}",
        f"\\builtin unset -v {' '.join(_CHANGED_BY_BASH)} {WITHOUT}",
        *changes({}, before),
    ]


def since_start(session: Any, environ: Mapping[str, str], over_agents: bool) -> list[str]:
    """Bash text that changes the environment the session started with into ``environ``, the host's present one.

    It is empty if the caller gave the session its own environment (``env``). Sessions of agents have the host's.
    Variables of ``extra_env`` stay.
    """
    given = _made_with(session)
    if not (over_agents or given["inherited"]):
        return []
    text = changes(given["started"], {**environ, **(given["extra_env"] or {})})
    return [*text, f"{{ {USABLE}; }}"] if given["sandbox"] else text


def bash_program(session: Any) -> list[str]:
    """Bash text that sets BASH to the program of the session, unless that is plain ``bash``."""
    path = str(_made_with(session)["bash"])
    return [] if path == "bash" else [f"BASH={_word(shutil.which(path) or path)}"]


def _made_with(session: Any) -> dict[str, Any]:
    """The options that the session was made with, here or in a daemon; ``started`` is the environment of its bash."""
    if (engine := getattr(session, "engine", None)) is None:
        return _daemon_options(session)
    options, shell = engine.options, engine.shell
    given = {name: getattr(options, name) for name in ("extra_env", "bash", "sandbox")}
    started = engine.environment() if shell is None else proc.environment(shell.pid)
    return {**given, "inherited": options.env is None, "started": started}


def _sandbox_of(session: Any) -> Sandbox | None:
    """The sandbox that the session was made with, here or in a daemon."""
    if (engine := getattr(session, "engine", None)) is not None:
        sandbox: Sandbox | None = engine.options.sandbox
        return sandbox
    fields = getattr(session, "opening", {}).get("sandbox")
    return None if fields is None else Sandbox(**fields)


def _daemon_options(session: Any) -> dict[str, Any]:
    """The options for a session of a daemon, which starts all its shells with what the first request named."""
    opening: Mapping[str, Any] = getattr(session, "opening", {})
    options = {"extra_env": None, "bash": "bash", "sandbox": None, "inherited": False, **opening}
    started = options.get("env", {})
    if options["inherited"] and (sandbox := _sandbox_of(session)) is not None:
        started = sandbox.environment(started)
    if options.get("agent_env", True):
        started = for_agent(started)
    return {**options, "started": {**started, **(options["extra_env"] or {})}}


def changes(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Bash text that changes the environment ``then`` into ``now``."""
    text: list[str] = []
    for name, value in then.items():
        if name not in now or (now[name] != value and not _NAME.fullmatch(name)):
            text += _without(name)
    for name, value in now.items():
        if then.get(name) != value:
            text += _with(name, value)
    return text


def _without(name: str) -> list[str]:
    if name in _SET_BY_BASH:
        return []
    if _NAME.fullmatch(name):
        return [f"\\builtin unset -v {name} || \\builtin export -n {name}"]  # a read-only variable cannot be unset
    if function := _FUNCTION.fullmatch(name):
        return [f"\\builtin unset -f -- {function[1]}"]
    program = _word(shutil.which("env", path=os.defpath) or "env")
    return [f"{{ [[ -v {WITHOUT} ]] || {WITHOUT}=({program}); }}", f"{WITHOUT}+=(-u {_word(name)})"]


def _with(name: str, value: str) -> list[str]:
    if name in _SET_BY_BASH:
        return []
    if _NAME.fullmatch(name):
        # Unset it first: it may be an array in the session, or an integer, to which most values cannot be assigned;
        # that error would end our text.
        return [f"\\builtin unset -v {name}; \\builtin export {name}={_word(value)}"]
    if (function := _FUNCTION.fullmatch(name)) and value.startswith("() {"):
        return [f"\\builtin eval {_word(f'function {function[1]} {value}')} && \\builtin export -f -- {function[1]}"]
    return []


def _word(text: str) -> str:
    return quoted(os.fsencode(text)).decode("utf-8", "surrogateescape")


_made: Final = dict[Programs, str]()


def directory(programs: Programs) -> str:
    """The path of the directory with these programs, made at the first call. Raises ShellUnavailable."""
    path = _made.get(programs)
    if path is None or not os.access(os.path.join(path, programs.names[0]), os.X_OK):
        path = _made[programs] = _make(programs)
    return path


def _make(programs: Programs) -> str:
    """Make the directory where programs may run. /tmp is not the first choice, as a sandbox has its own."""
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
        f"no directory for the programs that the tool needs: {', '.join(refused)};"
        " set TMPDIR to a directory where you can write and programs may run"
    )


def _fill(path: str, programs: Programs) -> None:
    for name in programs.names:
        with open(os.path.join(path, name), "w", encoding="utf-8") as file:
            file.write(programs.text)
            os.fchmod(file.fileno(), 0o555)
    for name, target in programs.links:
        os.symlink(target, os.path.join(path, name))
    # Readable for all, as a command may change its user (`su`). Not writable, to protect it from mistakes.
    os.chmod(path, 0o555)


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:  # not a forked child
        with suppress(OSError):
            os.chmod(path, 0o700)
        shutil.rmtree(path, ignore_errors=True)


_PLACE: Final = "{working_directory}"  # stands in a description for the working directory
_TITLE_MAX: Final = 200  # bytes of a command in the title of a call
_NOT_RUN: Final = "nothing was run; change to another directory"


def _agent_reference(agent: object) -> Callable[[], object]:
    """A function that returns the agent. An object is held by a weak reference, as in Agents."""
    if agent is None or isinstance(agent, str):
        return lambda: agent
    try:
        return weakref.ref(agent)
    except TypeError:
        text = f"an agent must be a name (str), or an object that allows weak references, not {agent!r}"
        raise InvalidRequest(text) from None


def _has_agents(where: Any) -> bool:
    """True for what holds the sessions of agents, here or on other machines; False for a session."""
    return callable(getattr(where, "session", None))


def _holds_here(where: Any) -> bool:
    """Are the sessions of these agents in this process?"""
    return isinstance(where, Agents | AsyncAgents)


def _is_elsewhere(where: Any) -> bool:
    """Is the session on another machine (``via``, a cluster), or are those of the agents?"""
    if _has_agents(where):
        return not _holds_here(where)
    transport = getattr(where, "transport", None)
    return transport is not None and not transport.is_local


def _policy_of(where: Any) -> Policy | None:
    """The policy of the session, or of the sessions of agents in this process."""
    return where.options.get("policy") if _holds_here(where) else getattr(where, "policy", None)


def _refuse_policy(contract: Contract[Any], policy: Policy | None) -> None:
    """Refuse the policy of a session for a tool that writes words of its own around each command."""
    if policy is not None and (contract.wraps or not contract.persistent):
        raise InvalidRequest(
            "this session's policy would judge the words that the tool writes around each command: pass the policy"
            " to the tool instead of the session" + ("" if contract.wraps else ", or pass persistent=True")
        )


def _title(command: bytes) -> str:
    line, _, more = command.strip().partition(b"\n")
    shown = line[:_TITLE_MAX].decode("utf-8", "ignore")
    return shown + " ..." if more or len(line) > _TITLE_MAX else shown


# Fields of a request that are not options of ``run``.
_NO_OPTIONS: Final = {"command", *WrappedRequest.__annotations__}


def _options(request: Request) -> dict[str, Any]:
    """The options of the request, all of them: ``run`` raises TypeError for one that it does not know."""
    return {name: value for name, value in vars(request).items() if name not in _NO_OPTIONS}


# Secrets of this many earlier environments are kept: a day of tokens that are valid for an hour.
_EARLIER_MAX: Final = 24

_log: Final = logging.getLogger("shellsession.interaction")
# The operations of a call that take time: run a command, ask a person, restart bash.
Operation = Literal["run", "ask", "restart"]
Operations = Mapping[Operation, Callable[..., Any]]


class _Bound(Generic[P]):
    """A contract bound to the session, or the agents, that run its calls; it performs them under its policy."""

    _cached: tuple[list[Mapping[str, str]], Secrets] | None = None  # the last secrets, with their environments
    _earlier: tuple[Mapping[str, str], ...] = ()  # the secret parts of earlier environments

    def __init__(self, contract: Contract[P], where: Any, agent: object, policy: Policy | None) -> None:
        if _has_agents(where):
            if agent is None:
                raise InvalidRequest("a tool over agents needs its agent: tool(agents, agent=...)")
        elif agent is not None:
            raise InvalidRequest("agent= names one of Agents' sessions; this is a session already")
        if policy is not None and not isinstance(policy, Policy):
            raise InvalidRequest(f"policy must be a Policy, not {policy!r}")
        refuse_queue(policy)
        _refuse_policy(contract, _policy_of(where))
        self._elsewhere = _is_elsewhere(where)
        if self._elsewhere and contract.needs_host:
            raise InvalidRequest(
                "this tool needs files and variables of this machine, but the session is on another one: use another"
                " contract, or the tools for your SDK"
            )
        self.contract, self._where, self._policy = contract, where, policy
        self._agent, self._nonce = _agent_reference(agent), secrets.token_hex(8)

    @property
    def name(self) -> str:
        return self.contract.name

    @property
    def description(self) -> str:
        """The description for the model, with the current working directory."""
        text = self.contract.description
        if _PLACE not in text:
            return text
        return text.replace(_PLACE, display(self._pwd()))

    @property
    def definition(self) -> dict[str, Any]:
        """The definition for the model: name, description and ``input_schema`` (JSON schema)."""
        return {**definition(self.contract), "description": self.description}

    def _pwd(self) -> str:
        if not (self.contract.persistent or self._elsewhere):
            return self._place()
        if (session := self._existing_session()) is not None:
            return str(session.cwd)
        # There is no session yet: compute where its bash will start. Asking the agents for one would make it.
        options = {**self._where.options, **self.contract.session_options({})}
        return os.path.join(cwd(), options.get("cwd") or cwd())

    def _session(self, environ: Mapping[str, str] | None = None) -> Any:
        if not _has_agents(self._where):
            return self._where
        agent = self._live_agent()
        options = self._session_options(self._host() if environ is None else environ)
        session = self._where.session(agent, **options)
        _refuse_policy(self.contract, session.policy)  # the host may have made it with options of its own
        return session

    def _host(self) -> dict[str, str]:
        """The host's present environment; for a session in a sandbox, what that lets through."""
        if _holds_here(self._where):
            rules = self._where.registry.rules(self._live_agent())  # of a session that has expired
            sandbox = Rules.of(self._where.options).next(rules).sandbox
        else:
            sandbox = _sandbox_of(self._where)
        return inherited() if sandbox is None else sandbox.environment(inherited())

    def _live_agent(self) -> object:
        if (agent := self._agent()) is None:
            raise InvalidRequest("the agent of this tool is gone")
        return agent

    def _existing_session(self) -> Any:
        """The session, or None if the agent has none yet. Unlike ``_session``, this makes none."""
        if _holds_here(self._where):
            return self._where.registry.find(self._live_agent())
        return self._where.session(self._live_agent()) if _has_agents(self._where) else self._where

    def _session_options(self, environ: Mapping[str, str]) -> dict[str, Any]:
        options = self.contract.session_options(environ)
        if self._elsewhere:
            del options["env"]  # the session has that of its own machine
            return options
        return options if self._policy is None else {**options, "env": self._policy.environment(options["env"])}

    def _place(self) -> str:
        if self._elsewhere:
            return self.contract.cwd or "."
        return cwd() if self.contract.cwd is None else os.path.join(cwd(), self.contract.cwd)

    def _prepare(self, request: Request) -> tuple[Any, bytes, dict[str, Any]]:
        """The session of a call, the bash text to run there, and the options of ``run``."""
        now = self._host()
        session = self._session(now)
        return session, self._command(session, request, now), _options(request)

    def _command(self, session: Any, request: Request, now: Mapping[str, str]) -> bytes:
        """The bash text of a call.

        An isolated call runs as a ``bash -c`` of its own, in the host's current directory and environment; on another
        machine, in those of the session.
        """
        text = request.text if isinstance(request, WrappedRequest) else None
        if not request.isolated:
            return request.command if text is None else text
        text = bash_c(request.command, self.contract.shell) if text is None else text
        place = self._place()
        prelude = bash_program(session) + (
            [f"\\builtin unset -v {WITHOUT}"] if self._elsewhere else self._host_state(session, place, now)
        )
        begin = begin_text(_title(request.command), place, self._nonce)
        ours = f"{begin}\n{{ {'; '.join(prelude)}; }} >/dev/null 2>&1\n"
        return ours.encode("utf-8", "surrogateescape") + text

    def _host_state(self, session: Any, place: str, now: Mapping[str, str]) -> list[str]:
        """Bash text that gives an isolated call the umask and environment of the host."""
        if not os.path.isdir(place):
            raise InvalidRequest(f"the working directory {display(place)} does not exist: {_NOT_RUN}")
        environ = self._session_options(now)["env"]
        text = restore_environment(environ) + since_start(session, environ, _holds_here(self._where))
        if self._policy is not None:  # the session may have been made with variables that the policy hides
            text += changes(self.contract.session_options(now)["env"], environ)
        return text

    def _read(self, request: Request, text: bytes, result: Result) -> Result:
        """The result of the command alone. Raises InvalidRequest and ShellUnavailable if it did not begin."""
        if not isinstance(request, WrappedRequest) and not request.isolated:
            return result
        result = without(result, (text.partition(b"\n")[0] if request.isolated else text) + b"\n")
        said = result.stdout_bytes if request.merge_stderr else result.stderr_bytes
        if request.isolated and self._nonce.encode() in said:
            self._refuse(said.decode("utf-8", "replace"))
        return result

    def _refuse(self, said: str) -> None:
        """Raise InvalidRequest or ShellUnavailable if bash printed this because the call could not begin."""
        if said.startswith(f"{self._nonce}: "):
            why = said.partition("\n")[0].rpartition(": ")[2]
            raise ShellUnavailable(f"nothing was run: bash could not be started ({why})")
        if said.endswith(f": {self._nonce}\n"):
            raise ShellUnavailable("nothing was run: a command has replaced `builtin` in this session: restart it")
        if said.endswith(f"\n{self._nonce}\n"):
            why = said.split("\n")[-3].rpartition(": ")[2]
            raise InvalidRequest(
                f"the working directory {display(self._place())} cannot be entered ({why}): {_NOT_RUN}"
            )

    @property
    def owner(self) -> tuple[object, ...]:
        """A key for the session of these calls, valid while it lives. Calls with one key run one after the other."""
        agent = self._agent()
        return id(self._where), agent if isinstance(agent, str) else id(agent)

    async def _wait(self, operation: Operation, *arguments: Any) -> Any:
        """Perform the operation. A ``Tool`` blocks here, so its coroutines never suspend."""
        raise NotImplementedError

    def _judge(self, request: Request) -> tuple[Request, Ask | None]:
        """The request as it may run, and the question to ask first, if any. Raises PolicyRefused."""
        if self._policy is None:
            return request, None
        verdict = self._policy.judge(request, self._pwd, time.thread_time)
        if not verdict.question or not callable(self._policy.confirm):
            return verdict.request, None
        agent = self._agent()
        name = agent if isinstance(agent, str) else "" if agent is None else f"<{type(agent).__name__}>"
        return verdict.request, Ask(self._policy.confirm, (verdict.question, name, self._pwd()))

    def _mask(self, result: Result, before: list[Mapping[str, str]]) -> Result:
        """The result without secrets: the present ones, and those from before the command ran."""
        for known in self._all_secrets(before):
            result = known.mask_result(result)
        return result

    def _all_secrets(self, before: Sequence[Mapping[str, str]] = ()) -> Iterator[Secrets]:
        """Yield what is masked by this tool's policy, and by the options of its session."""
        if (secrets := self._secrets(before)) is not None:
            yield secrets
        with suppress(ShellSessionError):  # the agent is gone, or all sessions are
            if (secrets := getattr(self._existing_session(), "secrets", None)) is not None:
                yield secrets

    def _secrets(self, before: Sequence[Mapping[str, str]] = ()) -> Secrets | None:
        """The secrets of the present, of ``before``, and of earlier calls, which may have written one to a file.

        They are masked together, as one secret may begin with another.
        """
        if self._policy is None or not (self._policy.mask_secrets or self._policy.secrets):
            return None
        environs = [*before, *(environ for environ in self._environs() if environ not in before)]
        known = self._cached
        if known is None or known[0] != environs:  # cached, as making a Secrets is slow
            now = [_secret_variables(environ, self._policy) for environ in environs]
            self._earlier = (*(part for part in self._earlier if part not in now), *now)[-_EARLIER_MAX:]
            self._cached = known = environs, self._policy.known_secrets(*environs, *self._earlier)
        return known[1]

    def _environs(self) -> list[Mapping[str, str]]:
        """The environments that hold secrets: the host's present one, and the one that the session's bash started with.

        The bash still has variables that the host has changed or removed since.
        """
        if self._policy is None:
            return []
        environs: list[Mapping[str, str]] = [inherited()]
        with suppress(ShellSessionError):  # the agent is gone, or all sessions are
            if (session := self._existing_session()) is not None:
                environs.append(_made_with(session)["started"])
        return environs

    async def _call(self, call: object, cancel: CancelToken | None, fields: Mapping[str, object]) -> P:
        """Perform a call and return its payload. This code serves both threads and asyncio."""
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
                for known in self._all_secrets():
                    error.args = (known.mask(str(error)), *error.args[1:])
                answer, move = error, steps.throw

    async def _perform(self, action: Action, cancel: CancelToken | None) -> Any:
        if isinstance(action, Request):
            request = await self._approve(action, cancel)
            before = self._environs()
            try:
                result = await self._run(request, cancel)
            except CallCancelled as error:
                error.result = None if error.result is None else self._mask(error.result, before)
                raise
            if isinstance(action, WrappedRequest) and action.reads is not None:
                result = action.reads(result)
            if not isinstance(result, Result):
                return result
            result = self._mask(result, before)
            return result if request.timeout == action.timeout else Limited(**vars(result), limit=request.timeout)
        if isinstance(action, FreshShell):
            if cancel is not None and cancel.cancelled:
                raise CallCancelled
            session = self._existing_session()
            self._take_loss()
            if session is not None and session.state != "new":
                await self._wait("restart", session)
            return None
        if isinstance(action, Judge):
            self._judge(action.request)
            return None
        if isinstance(action, Ask):
            return yes(await self._ask(action, None, cancel))
        return self._answer(action)

    async def _run(self, request: Request, cancel: CancelToken | None) -> Any:
        while True:
            prepared = self._prepare(request)
            if not request.isolated:
                self._rely_on(prepared[0])
            try:
                result = await self._wait("run", *prepared, cancel)
                if not result.ran:  # an earlier command had killed the shell
                    if not request.isolated:  # and state was lost with it
                        raise ShellUnavailable(result.reason)
                    result = await self._wait("run", *prepared, cancel)
                return self._read(request, prepared[1], result)
            except SessionClosed:
                if not _has_agents(self._where) or not prepared[0].closed:
                    raise
                if self._elsewhere and not request.isolated:  # its state is lost, which the model has to know
                    raise
                # As in ``Agents.run``: the session has just expired, and nothing was run. Try again with a new one.

    def _rely_on(self, session: Any) -> None:
        """Record that the model relies on the state of this session.

        Raises ShellUnavailable, once, if the agent's previous session has expired.
        """
        if self._take_loss():
            raise ShellUnavailable(f"nothing was run: the session was closed after being idle for too long; {LOST}")
        session.relied_on = True
        if self.contract.lasts:
            session.lasts = True

    def _take_loss(self) -> bool:
        """True, once, if this agent's session has expired. A daemon reports this by itself."""
        return _holds_here(self._where) and self._where.registry.take_loss(self._live_agent())

    async def _approve(self, action: Request, cancel: CancelToken | None) -> Request:
        request, question = self._judge(action)
        if question is not None:
            seconds = None if self._policy is None else self._policy.confirm_timeout
            try:
                answer = await self._ask(question, seconds, cancel)
            except TimeoutError:
                raise refused(f"it was not confirmed within {seconds} s") from None
            if not yes(answer):
                raise refused(UNCONFIRMED)
        return request

    async def _ask(self, question: Ask, timeout: float | None, cancel: CancelToken | None) -> Any:
        """Ask, and return the answer. Raises CallCancelled, and InvalidRequest for an exception of ``confirm``."""
        if cancel is not None and cancel.left_queue:
            raise CallCancelled
        try:
            return await self._wait("ask", question.function, question.arguments, timeout, cancel)
        except ShellSessionError:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and timeout is not None:
                raise  # no answer in time
            raise InvalidRequest(
                f"the function that confirms commands raised {error!r:.200}: nothing was run"
            ) from error

    def _answer(self, action: Look | Programs | Log) -> Any:
        if isinstance(action, Programs):
            return directory(action)
        if isinstance(action, Look):
            path = cwd() if action.path is None else action.path
            if self._elsewhere:
                return HostPath(path, "directory")  # if it is none there, bash will say so when it enters it
            if os.path.isdir(path):
                return HostPath(path, "directory")
            return HostPath(path, "other" if os.path.exists(path) else "missing")
        record = dict(action.record)
        for known in self._all_secrets():
            record = {name: known.mask(value) if isinstance(value, str) else value for name, value in record.items()}
        _log.info("%s", record, extra={"interaction": record})
        return None


class Tool(_Bound[P]):
    """A contract bound to a session for threads: call it with the tool call's arguments."""

    _OPERATIONS: Final[Operations] = {"run": cancel.run, "ask": cancel.ask, "restart": methodcaller("restart")}

    async def _wait(self, operation: Operation, *arguments: Any) -> Any:
        return self._OPERATIONS[operation](*arguments)

    def __call__(
        self, call: Mapping[str, Any] | object = None, cancel: CancelToken | None = None, **fields: object
    ) -> P:
        """Run the call and return the contract's payload. Raises the contract's errors.

        ``cancel`` ends the call from outside; each contract reports that in its own way.
        """
        try:
            self._call(call, cancel, fields).send(None)
        except StopIteration as end:
            payload: P = end.value
            return payload
        raise AssertionError("a tool for threads waits in the call itself")


class AsyncTool(_Bound[P]):
    """As ``Tool``, for asyncio: await the call."""

    _OPERATIONS: Final[Operations] = {"run": cancel.arun, "ask": cancel.aask, "restart": methodcaller("restart")}

    async def _wait(self, operation: Operation, *arguments: Any) -> Any:
        return await self._OPERATIONS[operation](*arguments)

    async def __call__(
        self, call: Mapping[str, Any] | object = None, cancel: CancelToken | None = None, **fields: object
    ) -> P:
        """As ``Tool.__call__``."""
        return await self._call(call, cancel, fields)


class Binder(Generic[P]):
    """The ``tool`` function of a contract module: it makes the contract from ``settings`` and binds it."""

    def __init__(self, make: Callable[..., Contract[P]]) -> None:
        self._make = make

    @overload
    def __call__(
        self, where: SessionsOfAgents[Sync], agent: object, policy: Policy | None = None, **settings: Any
    ) -> Tool[P]: ...
    @overload
    def __call__(
        self, where: SessionsOfAgents[Async], agent: object, policy: Policy | None = None, **settings: Any
    ) -> AsyncTool[P]: ...
    @overload
    def __call__(self, where: Sync, *, policy: Policy | None = None, **settings: Any) -> Tool[P]: ...
    @overload
    def __call__(self, where: Async, *, policy: Policy | None = None, **settings: Any) -> AsyncTool[P]: ...
    def __call__(
        self, where: Any, agent: object = None, policy: Policy | None = None, **settings: Any
    ) -> Tool[P] | AsyncTool[P]:
        """Make a tool that runs in ``where``: a session of any kind, or Agents or RayAgents together with ``agent``.

        ``policy`` judges every command before it runs; a refusal becomes an error of the contract. Variables that it
        hides are missing from isolated calls, and from an agent's session that this tool makes. For a session of your
        own, pass ``env=policy.environment(os.environ)``.
        """
        run = getattr(where, "run", None)
        if run is None:
            raise InvalidRequest(f"a tool runs in a session or in Agents, not in {where!r}")
        contract = self._make(**settings)
        kind = AsyncTool if inspect.iscoroutinefunction(run) else Tool
        return kind(contract, where, agent, policy)


def _secret_variables(environ: Mapping[str, str], policy: Policy) -> Mapping[str, str]:
    shown = policy.environment(environ)
    return {name: value for name, value in environ.items() if name not in shown or any(secret_values({name: value}))}
