"""Binding: a contract over a session, or over agents' sessions; the one place where contracts meet the host.

Law: a contract's steps are told once and driven here, for threads and for asyncio.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, overload

from ..agents import Agents, AsyncAgents
from ..engine.environment import inherited
from ..errors import InvalidRequest, SessionClosed, ShellSessionError, ShellUnavailable
from ..models import Request, Result
from ..policy.rules import UNCONFIRMED, Policy, refused, yes
from ..policy.secrets import secret_values
from . import asking, programs, waiting
from .contract import Action, Ask, Contract, Dressed, Judge, Log, Look, P, Place, Programs, Restart, limited
from .failing import LOST
from .located import Located
from .surroundings import cwd, started
from .waiting import CallCancelled, CancelToken

if TYPE_CHECKING:
    from ..async_session import AsyncSession
    from ..daemon.async_client import AsyncRemoteSession
    from ..daemon.client import RemoteSession
    from ..policy.secrets import Secrets
    from ..session import Session

    Sync = Session | RemoteSession
    Async = AsyncSession | AsyncRemoteSession

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
            return programs.directory(action)
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

    _DEEDS: Final[Deeds] = {"run": waiting.run, "ask": asking.ask, "restart": methodcaller("restart")}

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

    _DEEDS: Final[Deeds] = {"run": waiting.arun, "ask": asking.aask, "restart": methodcaller("restart")}

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
