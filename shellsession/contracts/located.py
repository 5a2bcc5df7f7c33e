"""Located: a contract and the session that its calls run in, with the text and the surroundings of each call.

Law: what an isolated call runs in is the host's working directory, umask and environment as they are at the time of the
call. A session that its maker gave an environment of its own (``env``) keeps that; one in a daemon that another client
has opened keeps what has not changed here since we came. Resource limits (``ulimit``) are those of the session's bash:
they may have been set for it.
"""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic

from ..agents import Agents, AsyncAgents
from ..engine.environment import inherited
from ..errors import InvalidRequest, ShellUnavailable
from ..models import Request, Result
from ..policy.rules import Policy
from .contract import Contract, Dressed, P, definition, display
from .one_shot import bash_c, without
from .surroundings import begun, changes, cwd, dressed, its_bash, since_start

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


def _options(request: Request) -> dict[str, Any]:
    names = ("timeout", "on_timeout", "stdin", "tty", "merge_stderr", "isolated", "limits", "on_output")
    return {name: getattr(request, name) for name in names}
