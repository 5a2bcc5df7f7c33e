"""The verbs of a session as the daemon carries them out: ``serve`` takes a request and returns its answer.

Commands and input wait while another client holds the session. Requests that only look, or that end something, do not:
a client can always see what runs, and stop it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...branch.files import arguments
from ...engine.io.loop import LoopPoller, adrive, to_its_end
from ...engine.io.threads import T
from ...engine.verbs.delivery import Delivery
from ...engine.verbs.expect import glimpse
from ...engine.verbs.noticing import Reader, noticer_of
from ...errors import (
    CLOSED,
    RESTARTED,
    STILL_RUNS,
    InvalidRequest,
    LimitReached,
    PolicyRefused,
    SessionBusy,
    SessionClosed,
    ShellSessionError,
    ShellUnavailable,
)
from ...files import FileRequest, path_name
from ...keys import check_keys
from ...models import TTY, OwnText, Request, Result, Stream, check_seconds, command_text, streams_of
from ...policy.approval import Question, place_of
from ...redact import redact_data
from ...signatures import deadline
from ...state.snapshot import Snapshot
from ...state.values import Restored
from ...text import text_of
from ..protocol.messages import closed_meanwhile, from_part, from_result, to_part, to_result
from ..protocol.wire import PARTS_MAX, PROTOCOL, encode, to_json
from . import requests
from .approvals import described
from .connection import LEFT, Answer, Incoming, Listener
from .inside import is_inside, refuse_inside
from .shared import Fanout, SharedSession

if TYPE_CHECKING:
    from ...engine.io.output import Capture
    from ...engine.verbs.call import Call
    from ...engine.verbs.engine import Engine
    from ...engine.verbs.session_job import SessionJob
    from .shared import Sessions

# Of a caller that cannot wait for a person's answer as long as the question does.
ASKED: Final = (
    "a person has not answered yet whether it may run (`shellsession approvals`), and nothing was run: the same call"
    " again waits on"
)
# A person cannot read more characters of a command.
_ASKED_MAX: Final = 1 << 14
# How many characters of each variable and of the input a person is shown. Secrets are searched for in more bytes.
_GIVEN_MAX: Final = 200
_SEARCHED: Final = 1 << 14
# Seconds until a verb that has not returned is woken again.
_WAKE_AGAIN: Final = 0.05
# Seconds after which a request for notices is answered without one.
_NOTICES_WITHIN: Final = 60.0
# Seconds after which the client of a queued request is notified.
_NOTIFY_AFTER: Final = 1.0


async def serve(sessions: Sessions, incoming: Incoming) -> Answer:
    """Carry out a request about an agent's session, and return the answer."""
    request = incoming.request
    closes = isinstance(request, requests.Close) and not request.unused
    if type(request) in _NOT_FROM_ANY_SESSION:
        if not getattr(request, "put", False):  # an agent may run a workflow: that reads no state
            refuse_inside(sessions, incoming.connection, request.verb)
    elif type(request) in _NOT_FROM_ANOTHER_SESSION and not getattr(request, "unused", False):
        refuse_inside(sessions, incoming.connection, request.verb, request.agent)
    if closes and sessions.forget(request.agent, request.session):
        return Answer({"value": None})
    discards = isinstance(request, requests.OnBranch) and request.action == "discard"
    if discards and request.session is None and sessions.discard(request.agent):
        return Answer({"value": None}, (to_part([]),))
    shared = sessions.of(request.agent, request.session)
    if type(request) in _NOT_FROM_INSIDE:
        watches = isinstance(request, requests.Watch | requests.Hold)
        refuse_from_inside(shared.engine, shared.agent, incoming.request.verb, incoming.connection.pid, watches)
    if shared.is_taken:
        if getattr(request, "tell", False):
            asyncio.get_running_loop().call_later(_NOTIFY_AFTER, shared.notify_queued, incoming.listener)
        if (seconds := _patience(shared, request)) is not None:
            incoming.listener.drop_if_queued_for(seconds)
    elif shared.last_session is not None:
        incoming.listener.drop_if_queued_for(_patience(shared, request))
    try:
        shared.users += 1
        try:
            if closes:
                sessions.begin_to_close(shared)
            if type(request) not in _DESPITE_HOLD:
                await shared.hold.enter(request, incoming.listener)
            if shared.last_session is not None and not isinstance(request, requests.Close):
                await shared.until_branch_is_free(incoming.listener)
            if isinstance(request, requests.Fork):
                answer = await _fork(sessions, shared, request)
            elif isinstance(request, requests.TakeOver):
                answer = await _take_over(sessions, shared, incoming)
            else:
                answer = await _OF_AGENT[type(request)](shared, incoming) or Answer({"value": None})
        finally:
            shared.users -= 1
    except ShellUnavailable as error:
        if not (shared.opened or shared.users) and shared.session.state == "new":  # it would count as a session
            sessions.dismiss(shared)
            await shared.session.close()
        raise of_the_daemon(error) from error
    except SessionClosed as error:  # closed while the request was queued
        raise SessionClosed(closed_meanwhile(shared.agent)) from error
    answer.header.setdefault("pid", shared.session.pid)
    shared.opened = shared.opened or shared.session.pid is not None
    if shared.session.closed:
        sessions.dismiss(shared)
    return answer


def _patience(shared: SharedSession, request: requests.OfAgent) -> float | None:
    """How many seconds the request may wait before it begins: as many as it names, or as long as its time limit.

    Input and ``expect`` wait for another client within their own time limit, so this is about a hold alone.
    """
    names = ["turn_within"]
    if isinstance(request, requests.Run) or shared.session.attached:
        names += ["patience", "timeout"]
    for name in names:
        if name in request.model_fields_set:
            seconds: float | None = getattr(request, name)
            check_seconds(name, seconds)
            return seconds
    return shared.engine.options.timeout if "timeout" in names and hasattr(request, "timeout") else None


# -- verbs that run, wait for or end a command


async def _start(shared: SharedSession, _: Incoming) -> None:
    with shared.attending():
        await shared.session.open()


async def _run(shared: SharedSession, incoming: Incoming) -> Answer:
    listener = incoming.listener
    listener.wait_for()
    has_key = incoming.request.idempotency_key is not None
    if has_key and shared.is_attempt:
        raise InvalidRequest("an attempt has its own session, whose receipts end with it: leave out idempotency_key=")
    permit: Permit | None = None
    while True:
        if has_key and (answer := await _from_receipt(shared, incoming)) is not None:
            return answer
        if incoming.request.ask_only:
            return _opened(shared, incoming)
        if shared.has_queue:
            permit = await _permit(shared, incoming, permit)
        async with shared.turn:
            await shared.until_unattended()
            if has_key and _claim(shared, incoming) is not None:  # it was run while this request was queued
                continue
            if permit is not None and permit.place != _place(shared, incoming):  # it was asked about another directory
                continue
            if not (listener.connection.is_gone or listener.connection.congested):
                listener.proceed()
                return await _run_now(shared, incoming, permit)
        # A client that is gone may have given up, and sent the command anew: it must not run twice. And while a client
        # does not read its answers, no more of them may pile up here.
        await listener.until_taken()
        if listener.abandoned.done():  # the task is being cancelled, and another round would never let that happen
            raise SessionBusy(LEFT)


async def _from_receipt(shared: SharedSession, incoming: Incoming) -> Answer | None:
    """The answer of a command with that key, which has run or runs now. None if it was not run."""
    until = _deadline(shared, incoming)
    while isinstance(known := _claim(shared, incoming), str):
        incoming.listener.proceed()
        if (answer := await _join(shared, incoming, known, until)) is not None:
            # The client that got the first part may be gone.
            so_far = shared.receipts.so_far(shared.agent, incoming.request.idempotency_key)
            is_over = not to_result(answer.header["result"], answer.parts).still_running
            if so_far is None or (is_over and so_far.still_running):  # the end could not be noted: a full disk
                answer.header["result"]["replayed"] = True
                return answer
            return _replayed(incoming, so_far, answer.header)
    if known is None:
        return None
    shared.note_read(incoming.request.idempotency_key)
    return _replayed(incoming, known, {})


def _replayed(incoming: Incoming, result: Result, header: Mapping[str, Any]) -> Answer:
    """The answer with a result that is noted in the receipt."""
    command = command_text(incoming.part)
    fields, parts = from_result(result.__replace__(command=command, replayed=True, output_kept=False))
    return Answer({**header, "result": fields}, parts)


def _claim(shared: SharedSession, incoming: Incoming) -> Result | str | None:
    """See ``Receipts.claim``."""
    key = incoming.request.idempotency_key
    return shared.receipts.claim(shared.agent, key, _digest(incoming), time.time())


def _digest(incoming: Incoming) -> bytes:
    """The digest of what a key stands for."""
    request: Any = incoming.request
    fields = to_json([request.cwd, request.stdin, sorted((request.env or {}).items())]).encode()
    return _digest_of(fields, *incoming.parts)


def _digest_of(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(b"%d " % len(part))
        digest.update(part)
    return digest.digest()


async def _join(shared: SharedSession, incoming: Incoming, command: str, until: float | None) -> Answer | None:
    """Wait for the command of that request, as ``wait`` does. None if its first result is there."""
    if (last := shared.deliveries.last).handed_back and last.name == command:
        header = {"protocol": PROTOCOL, "id": incoming.request.id, "agent": shared.agent, "verb": "wait"}
        live = incoming.request.live
        wait = requests.parse({**header, "command": command, "live": live, "so_far": live})
        return await _wait_until(shared, incoming._replace(request=wait), until, joins=True)
    if not shared.is_attended:
        shared.receipts.lose(command)
        return None
    if await shared.until_answered(until, incoming.listener):
        return None
    return answer_with(shared, shared.engine.running_elsewhere(), command)


class Permit(NamedTuple):
    """A person's yes to a command in the directory ``place``; see ``approvals``.

    ``question``: the question with it; None for an earlier answer that lasts. ``record``: for the audit log.
    """

    place: str
    question: Question | None
    record: dict[str, Any]


def _place(shared: SharedSession, incoming: Incoming) -> str:
    """The directory in which the command would run now."""
    return place_of(incoming.request.cwd, shared.session.cwd)


async def _permit(shared: SharedSession, incoming: Incoming, before: Permit | None) -> Permit | None:
    """Ask a person, if the policy wants that, before the command takes its turn. Raises PolicyRefused.

    None if nobody needs to say yes, or if the policy refuses the command anyway, as it does again in its turn.
    """
    request, listener, place = incoming.request, incoming.listener, _place(shared, incoming)
    if before is not None and before.place == place:
        return before
    if not isinstance(asked := _judged(shared, incoming, place), Question):
        return asked
    listener.wait_for(ASKED)
    # For longer than that the caller cannot wait, but the question can: the same call finds it again.
    listener.drop_if_queued_for(request.turn_within)
    try:
        question = await shared.approvals.ask(asked, shared.agent, lambda asked: shared.announce(asked, listener))
    except asyncio.CancelledError:
        if listener.dropped is None:  # the client has cancelled it: nobody waits for the answer
            shared.approvals.withdraw(request.id)
        raise
    if question.state != "accepted":
        from ...policy.rules import refused

        error = refused(question.refusal)
        shared.audience.show("refused", {"reason": str(error), "begun": False})
        shared.log_refusal(incoming.part, error, incoming.connection.pid, question.record)
        raise error
    if shared.engine.closed:
        raise SessionClosed(CLOSED)
    listener.drop_if_queued_for(_patience(shared, request) if shared.is_taken else None)
    await shared.hold.enter(request, listener)
    listener.wait_for()
    return Permit(place, question, question.record)


def _opened(shared: SharedSession, incoming: Incoming) -> Answer:
    """The answer with the question that waits for a person, and for the request that will run the command."""
    asked = _judged(shared, incoming, _place(shared, incoming)) if shared.has_queue else None
    incoming.listener.proceed()
    if not isinstance(asked, Question):
        return Answer({"value": None})
    return Answer({"value": described(shared.approvals.open(asked))})


def _judged(shared: SharedSession, incoming: Incoming, place: str) -> Permit | Question | None:
    """The question that the policy wants answered, the answer that lasts, or None: see ``_permit``."""
    from ...policy.proposals import proposed  # 13 ms with the rules, which most daemons need not spend
    from ...policy.rules import is_bare, refused

    request, approvals, agent = incoming.request, shared.approvals, shared.asks_as.agent
    options = request.given(incoming.second if request.stdin == "bytes" else None)
    options.pop("idempotency_key", None)
    try:
        run = shared.session._request(OwnText(incoming.part), options)
        policy = shared.engine.options.policy
        assert policy is not None
        verdict = policy.judge(run, lambda: shared.session.cwd, time.thread_time, approvals.rules_of(agent))
    except ShellSessionError:
        return None
    if verdict.remembered:
        return Permit(place, None, {"decision": "rule", "rule": "; ".join(map(str, verdict.remembered))})
    if not verdict.question:
        return None
    fields = to_json([place, sorted((run.env or {}).items()), run.stdin is TTY]).encode()
    digest = _digest_of(fields, *incoming.parts).hex()
    if (last := approvals.accepted_before(agent, digest)) is not None:
        return Permit(place, None, {"decision": "accept_session", "rule": last.id})
    if len(verdict.question) > _ASKED_MAX:
        raise refused(f"it has over {_ASKED_MAX} characters, too many to ask a person about: put it into a file")
    # With ``turn_within``, a tool names how long its call can wait, and its patience says the same.
    is_named = "patience" in request.model_fields_set and request.turn_within is None
    patience = request.patience if is_named else policy.confirm_timeout
    check_seconds("patience", patience)
    from ...policy.secrets import Secrets, secret_values

    command, now, own = verdict.question, time.time(), Secrets({}, secret_values(run.env or {}))

    def mask(text: str) -> str:
        return own.mask(shared.secrets.mask(text))

    return Question(
        id="",
        agent=agent,
        command=mask(command),
        cwd=mask(place),
        digest=digest,
        request=request.id,
        asked=now,
        until=None if patience is None else now + patience,
        given=_given(run, mask),
        rules=proposed(command) if is_bare(run) and mask(command) == command else (),
    )


def _given(request: Request, mask: Callable[[str], str]) -> tuple[str, ...]:
    """What a command gets beside its text, in lines for a person: each variable, and the beginning of the input."""
    env, stdin = request.env or {}, request.stdin
    lines = [f"{name}={_brief(mask(value))}" for name, value in sorted(env.items())]
    if isinstance(stdin, bytes):
        lines.append(f"stdin, {len(stdin)} bytes: {_brief(mask(text_of(stdin[:_SEARCHED])))}")
    elif stdin is TTY:
        lines.append("stdin, a terminal: the agent types into it later")
    return tuple(lines)


def _brief(text: str) -> str:
    return text if len(text) <= _GIVEN_MAX else f"{text[:_GIVEN_MAX]}..."


async def _run_now(shared: SharedSession, incoming: Incoming, permit: Permit | None) -> Answer:
    request: requests.Run = incoming.request
    command = OwnText(incoming.part)
    if request.unless_lost or shared.is_elsewhere:
        await shared.check_lost()
    options = request.given(incoming.second if request.stdin == "bytes" else None)
    key = options.pop("idempotency_key", None)
    by_person = request.holder is not None
    shared.note_author(command, by_person)
    client, viewer = incoming.connection.pid, incoming.connection if by_person else None
    if permit is not None and permit.question is not None and (why := shared.approvals.take(permit.question)):
        from ...policy.rules import refused

        raise refused(why)
    begun = shared.begin(command, request.id, client, viewer, key or "", None if permit is None else permit.record)
    if key is not None and begun is None:  # it would run, without a receipt, if the earlier one ended just now
        raise SessionBusy(STILL_RUNS)
    delivery = begun or Delivery()
    with shared.attending() as ending, _streaming(shared.fanout if begun else None, incoming):
        try:
            run = shared.session._request(command, options)
            if key is not None:
                await shared.write_receipt(key, _digest(incoming), request.id)
            known = await shared.session._run(run, None if permit is None else permit.place)
            result = known if by_person else shared.with_news(known)  # a person is not the agent
        except ShellSessionError as error:
            shared.audience.show("refused", {"reason": str(error), "begun": begun is not None})
            if begun:
                shared.not_begun()
            if isinstance(error, PolicyRefused):
                shared.log_refusal(command, error, client)
            raise
        except Exception:  # a bug of ours
            shared.not_begun()
            raise
        except asyncio.CancelledError:
            if (end := shared.engine.came_of(command)) is not None:
                incoming.listener.cancelled_with(shared.settle_cancelled(delivery, end))
                shared.first_result(delivery, command, end, end)
            elif begun:
                shared.not_begun()
            raise
        ending.set_result(result)
    shared.first_result(delivery, command, result, known)
    return _deliver(shared, incoming, delivery, result)


async def _wait(shared: SharedSession, incoming: Incoming) -> Answer:
    return await _wait_until(shared, incoming, _deadline(shared, incoming))


async def _wait_until(shared: SharedSession, incoming: Incoming, until: float | None, joins: bool = False) -> Answer:
    """Wait for the command that was handed back. ``joins``: the client has seen no result of it."""
    if (answer := await _shared_end(shared, incoming, until)) is not None:
        return answer
    with observing(shared.engine, incoming.listener):
        if incoming.request.so_far and (call := shared.engine.handed_back) is not None:
            _send_so_far(call, incoming.listener, shared.printed if joins else None)
        left = None if until is None else max(0.001, until - time.monotonic())
        options = incoming.request.model_dump(include={"idle_timeout", "until"}, exclude_unset=True)
        return await _wait_in_session(shared, incoming, shared.session.wait(left, **options))


async def _shared_end(shared: SharedSession, incoming: Incoming, until: float | None) -> Answer | None:
    """The answer without waiting in the session: another client waits there already, or the end is kept. Else None."""
    command = incoming.request.command or shared.deliveries.last.name  # read now: another one may begin during the wait
    result = await shared.share_end(until, incoming.listener, incoming.request.command)
    return None if result is None else answer_with(shared, result, command)


def _send_so_far(call: Call, listener: Listener, before: Result | None) -> None:
    """Send what a command has printed ``before`` its last result, and since. Its next result will contain the latter.

    There is no await between this and the live output that follows, so nothing is missing in between.
    """
    captures: tuple[tuple[Stream, Capture], ...] = (("stdout", call.stdout), ("stderr", call.stderr))
    pieces = [] if before is None else list(streams_of(before))
    pieces += [(stream, *capture.peek()) for stream, capture in captures]
    for stream, data, omitted, cut in pieces:
        for piece, missing in ((data[:cut], 0), (data[cut:], omitted)):
            if piece or missing:
                listener.send_output(stream, piece, so_far=missing)


async def _poll(shared: SharedSession, incoming: Incoming) -> Answer:
    if (answer := await _shared_end(shared, incoming, time.monotonic())) is not None:
        return answer
    return await _wait_in_session(shared, incoming, shared.session.poll())


async def _send(shared: SharedSession, incoming: Incoming) -> Answer:
    until = _deadline(shared, incoming)
    await _type_text(shared, incoming, until)
    return await _wait_until(shared, incoming, until)


async def _interrupt(shared: SharedSession, incoming: Incoming) -> Answer:
    command = incoming.request.command
    if command and (result := shared.deliveries.take(command, incoming.listener.missed_by)) is not None:
        return answer_with(shared, result, command)
    return await _wait_in_session(shared, incoming, shared.session.interrupt())


async def _wait_in_session(shared: SharedSession, incoming: Incoming, verb: Awaitable[Result]) -> Answer:
    with shared.attending() as ending, _streaming(shared.fanout, incoming):
        delivery = shared.deliveries.last
        try:
            result = await verb
        except asyncio.CancelledError:
            _note_cancelled(shared, incoming, delivery)
            raise
        ending.set_result(result)
    shared.next_result(delivery, result)
    return _deliver(shared, incoming, delivery, result)


def _note_cancelled(shared: SharedSession, incoming: Incoming, delivery: Delivery) -> None:
    """Note the end of a command that ended because the verb that waited for it was cancelled."""
    if delivery is shared.deliveries.last and (result := shared.engine.came_of()) is not None:
        shared.next_result(delivery, result)
        incoming.listener.cancelled_with(shared.settle_cancelled(delivery, result))


async def _type(shared: SharedSession, incoming: Incoming) -> None:
    await _type_text(shared, incoming, _deadline(shared, incoming))


async def _type_text(shared: SharedSession, incoming: Incoming, until: float | None) -> None:
    keys = check_keys(getattr(incoming.request, "keys", []))
    incoming.listener.wait_for()
    await shared.until_handed_back(until)
    incoming.listener.proceed()
    shared.deliveries.check(incoming.request.command)
    with shared.attending():
        await shared.type(shared.engine.typed(incoming.part, keys), until)


async def _glimpse(shared: SharedSession, incoming: Incoming) -> Answer:
    until = _deadline(shared, incoming)
    incoming.listener.wait_for()
    if not await shared.until_unattended(until):
        return Answer({"value": False}, (b"",))
    incoming.listener.proceed()
    shared.deliveries.check(incoming.request.command)
    with shared.attending(), observing(shared.engine, incoming.listener):
        delivery = shared.deliveries.last
        try:
            text, ended = await shared.session.do(glimpse(shared.engine, until))
        except asyncio.CancelledError:
            _note_cancelled(shared, incoming, delivery)
            raise
    if (end := shared.engine.due) is not None:  # perhaps no client waits for it any more
        shared.next_result(delivery, end)
    delivery.owner = incoming.request.id
    return Answer({"value": ended}, (text,))


async def _restart(shared: SharedSession, incoming: Incoming) -> Answer:
    keep_state = incoming.request.keep_state
    report = await _restart_with(shared, lambda: shared.session.restart(keep_state=keep_state))
    if keep_state:
        shared.note_restored()
    return _reported(report)


async def _restore(shared: SharedSession, incoming: Incoming) -> Answer:
    snapshot = Snapshot.from_bytes(incoming.part)
    report = await _restart_with(shared, lambda: shared.session.restore(snapshot))
    shared.note_restored()
    return _reported(report)


async def _snapshot(shared: SharedSession, incoming: Incoming) -> Answer:
    exclude, secrets = from_part(incoming.parts)
    with shared.attending():
        snapshot = await shared.session.snapshot(exclude=exclude, secrets=secrets)
    return Answer({"value": None}, (snapshot.to_bytes(),))


async def _checkpoint(shared: SharedSession, incoming: Incoming) -> Answer:
    if not incoming.request.put:
        return Answer({"value": None}, shared.checkpoint())
    data, secrets = incoming.part, from_part((incoming.second,))
    snapshot: Snapshot | None = None
    if incoming.request.with_state:
        with shared.attending():
            snapshot = await shared.session.snapshot(secrets=secrets)
    await shared.put_checkpoint(data, snapshot)
    return Answer({"value": None})


async def _on_branch(shared: SharedSession, incoming: Incoming) -> Answer:
    request: requests.OnBranch = incoming.request
    session, name = shared.session, request.name
    if request.action == "rollback":
        given = {"files_only": request.files_only, "end_jobs": request.end_jobs}
        async with _turn_to_change(shared, incoming):
            report = await _restart_with(shared, lambda: session.rollback(name, **given))
        shared.note_restored()
        return _reported(report, shared.secrets.mask(report.undone))
    is_look = request.action in ("checkpoints", "diff", "patch")
    async with nullcontext() if is_look else _turn_to_change(shared, incoming):
        return await _on_files(shared, request)


async def _on_files(shared: SharedSession, request: requests.OnBranch) -> Answer:
    session, name = shared.session, request.name
    with shared.attending():
        if request.action == "checkpoint":
            found: Any = [await session.checkpoint(name, end_jobs=request.end_jobs)]
        elif request.action == "drop":
            await session.drop_checkpoint(name)
            found = []
        elif request.action == "checkpoints":
            found = await session.checkpoints()
        else:
            given = arguments(name, paths=request.paths, overwrite=request.overwrite)
            found = await session.do_in_bash(partial(shared.engine.act_on_branch, request.action, given)) or ()
    part = found if isinstance(found, bytes) else to_part([list(one) for one in found])
    return Answer({"value": None}, (part,))


@asynccontextmanager
async def _turn_to_change(shared: SharedSession, incoming: Incoming) -> AsyncIterator[None]:
    """Yield when it is the turn of a request that changes files. A client that is gone may have given it up."""
    listener = incoming.listener
    listener.wait_for()
    while True:
        async with shared.turn:
            await shared.until_unattended()
            if not listener.connection.is_gone:
                listener.proceed()
                yield
                return
        await listener.until_taken()
        if listener.abandoned.done():
            raise SessionBusy(LEFT)


async def _fork(sessions: Sessions, shared: SharedSession, request: requests.Fork) -> Answer:
    if request.attempt:
        shared.engine.refuse_without_branch()
    begin = partial(sessions.fork, shared, request.to, request.attempt)
    with shared.attending():
        (child,) = await shared.session.do_in_bash(partial(shared.engine.fork, begin))
    try:
        await child.session.open()
        if not request.attempt:
            sessions.keep_branch(child)
    except BaseException:
        await _forget(sessions, child)
        raise
    child.opened = True
    child.note_restored()
    return _reported(child.session.restored)


async def _forget(sessions: Sessions, shared: SharedSession) -> None:
    sessions.begin_to_close(shared)
    await shared.session.close()
    sessions.dismiss(shared)


async def _take_over(sessions: Sessions, shared: SharedSession, incoming: Incoming) -> Answer:
    agent = incoming.request.fork
    if (fork := sessions.find(agent)) is None:  # no NoSuchAgent, which would be about the session itself
        raise InvalidRequest(
            f"this attempt ({agent}) has ended: it was closed, was idle for too long, or its daemon has ended; try the"
            " command again"
        )
    async with _turn_to_change(shared, incoming):
        with fork.attending():
            frozen = await fork.session.do(fork.engine.frozen())
        go_on = partial(shared.engine.take_over, frozen)
        report = await _restart_with(shared, lambda: shared.session.do_in_bash(go_on))
    shared.note_restored()
    await _forget(sessions, fork)
    return _reported(report)


def _reported(report: Restored, undone: str = "") -> Answer:
    return Answer({"value": undone}, (to_part([list(one) for one in report.not_restored]),))


async def _restart_with(shared: SharedSession, verb: Callable[[], Awaitable[T]]) -> T:
    with shared.attending():
        before, ran = shared.engine.shell, shared.engine.current is not None
        try:
            return await verb()
        finally:
            if shared.engine.shell is not before:  # else it was refused, and the command runs on
                shared.note_shell_end(RESTARTED)
                shared.forget_record()
                if before is not None and not ran:  # else the command's ending says so
                    shared.audience.show("restarted", {})


async def _close(shared: SharedSession, incoming: Incoming) -> None:
    if incoming.request.unused and (shared.opened or shared.users > 1):  # this request is one of the users
        return
    await shared.session.close()


async def _hold(shared: SharedSession, incoming: Incoming) -> None:
    request: requests.Hold = incoming.request
    if request.holder is None:
        raise InvalidRequest("hold: `holder` is missing: send a name, and send it with each request of the holder")
    shared.hold.take(request.holder, request.others == "refuse", incoming.connection)


# -- verbs that do not wait for a command


async def _jobs(shared: SharedSession, incoming: Incoming) -> Answer:
    jobs = shared.session.jobs(incoming.request.released)
    return Answer({"value": None}, (to_part([_described(job, room_for(len(jobs))) for job in jobs]),))


async def _job_output(shared: SharedSession, incoming: Incoming) -> Answer:
    output, omitted, cut = _job(shared, incoming.request.job).kept(incoming.request.name)
    return Answer({"value": omitted, "cut": cut}, (output,))


async def _read_output(shared: SharedSession, incoming: Incoming) -> Answer:
    request: requests.ReadOutput = incoming.request
    piece = shared.engine.piece(request.output, request.stream, request.begin, request.size)
    sizes = {"kept": piece.kept, "size": piece.size, "cut": piece.cut, "grows": piece.grows}
    return Answer({"output": piece.id, **sizes}, (piece.data,))


async def _read_file(shared: SharedSession, incoming: Incoming) -> Answer:
    return await _access(shared, _piece_of(incoming.request))


async def _write_file(shared: SharedSession, incoming: Incoming) -> Answer:
    request = _piece_of(incoming.request)
    return await _access(shared, request._replace(data=incoming.part, parents=incoming.request.parents))


def _piece_of(request: requests.OfFile) -> FileRequest:
    name, file = path_name(request.path), None if request.file is None else tuple(request.file)
    return FileRequest(name, name, request.begin, file=file)


async def _access(shared: SharedSession, request: FileRequest) -> Answer:
    work = shared.engine.file_access(request)
    try:
        reply = await to_its_end(asyncio.to_thread(work))
    except OSError as error:
        return Answer({"errno": error.errno})
    return Answer({"value": reply.path, "file": list(reply.file), "size": reply.size}, (reply.data,))


async def _kill_job(shared: SharedSession, incoming: Incoming) -> Answer:
    return Answer({"value": _job(shared, incoming.request.job).kill()})


async def _release_job(shared: SharedSession, incoming: Incoming) -> None:
    await adrive(_job(shared, incoming.request.job).releasing(), LoopPoller())


async def _resize(shared: SharedSession, incoming: Incoming) -> None:
    request: requests.Resize = incoming.request
    shared.hold.resize(request.holder, request.columns, request.rows)


async def _info(shared: SharedSession, incoming: Incoming) -> Answer:
    session = shared.session
    value = {"state": session.state, "cwd": session.cwd, "idle": session.idle, "size": list(session.size)}
    value |= {"redact": redact_data(session.redact), "branch_path": shared.engine.branch_path()}
    return Answer({"value": value}, (shared.command.encode("utf-8", "replace"),))


async def _why(shared: SharedSession, _: Incoming) -> Answer:
    found = await shared.session.why()
    return Answer({"value": found.to_dict()})


async def _watch(shared: SharedSession, incoming: Incoming) -> Answer:
    command, person = shared.watch(incoming.connection)
    for question in shared.approvals.waiting(shared.agent):
        asks = {"event": "asks", "agent": shared.agent, "question": described(question)}
        incoming.connection.send(encode(asks))
    value = {"value": command[: room_for(1)], "person": person, "held": shared.session.attached}
    return Answer(value, (shared.output_tail,))


async def _events(shared: SharedSession, incoming: Incoming) -> Answer:
    request, poller = incoming.request, LoopPoller()
    reader = Reader(noticer_of(shared.engine), request.watch(), request.after)
    until = time.monotonic() + min(request.timeout, _NOTICES_WITHIN)
    try:
        while not (notices := reader.read()) and not reader.is_over and time.monotonic() < until:
            await adrive(reader.pause(until), poller)
            shared.check_end()
    finally:
        poller.forget_all()
    header = {"last": reader.number, "dropped": reader.dropped, "over": reader.is_over}
    return Answer(header, (to_part([list(vars(notice).values()) for notice in notices]),))


def _described(job: SessionJob, room: int) -> dict[str, Any]:
    known = {"id": job.id, "command": job.command[:room], "pids": job.pids[:room], "released": job.released}
    return {**known, "alive": job.alive()[:room], "running": job.running, "exit_code": job.exit_code}


def _job(shared: SharedSession, name: str) -> SessionJob:
    for job in shared.engine.jobs:
        if job.id == name:
            return job
    raise InvalidRequest(f"there is no job {name} in this session: `jobs` lists those that are known")


_WITHOUT_COMMAND: dict[type, Callable[[SharedSession, Incoming], Awaitable[Answer | None]]] = {
    requests.Jobs: _jobs,
    requests.JobOutput: _job_output,
    requests.ReadOutput: _read_output,
    requests.ReadFile: _read_file,
    requests.WriteFile: _write_file,
    requests.KillJob: _kill_job,
    requests.ReleaseJob: _release_job,
    requests.Resize: _resize,
    requests.Info: _info,
    requests.Watch: _watch,
    requests.Why: _why,
    requests.Events: _events,
}
_OF_AGENT: dict[type, Callable[[SharedSession, Incoming], Awaitable[Answer | None]]] = {
    requests.Start: _start,
    requests.Run: _run,
    requests.Wait: _wait,
    requests.Poll: _poll,
    requests.Send: _send,
    requests.Interrupt: _interrupt,
    requests.Type: _type,
    requests.Glimpse: _glimpse,
    requests.Restart: _restart,
    requests.TakeSnapshot: _snapshot,
    requests.Restore: _restore,
    requests.Checkpoint: _checkpoint,
    requests.OnBranch: _on_branch,
    requests.Close: _close,
    requests.Hold: _hold,
    **_WITHOUT_COMMAND,
}
_NOT_FROM_INSIDE = {requests.Run, requests.Wait, requests.Send, requests.Glimpse, requests.Watch, requests.Hold}
# An agent must not read the state of another one, or replace it.
_NOT_FROM_ANY_SESSION = {
    requests.TakeSnapshot,
    requests.Restore,
    requests.Fork,
    requests.Checkpoint,
    requests.OnBranch,
    requests.TakeOver,
}
# ... or change what another one runs. It may run commands in the session of another agent, which judges them itself.
_NOT_FROM_ANOTHER_SESSION = {
    *(requests.Close, requests.Restart, requests.Interrupt, requests.Send, requests.Type, requests.Hold),
    *(requests.KillJob, requests.ReleaseJob, requests.WriteFile, requests.Resize),
}
# A hold keeps out the commands and the input of others, but not requests that only look, or that end something.
_DESPITE_HOLD = {*_WITHOUT_COMMAND, requests.Wait, requests.Poll, requests.Interrupt, requests.Restart, requests.Close}


# -- shared parts of the verbs


def _deadline(shared: SharedSession, incoming: Incoming) -> float | None:
    """When the verb must return: by the request's timeout, else by the session's."""
    request = incoming.request
    seconds = request.timeout if "timeout" in request.model_fields_set else ...
    return deadline(seconds, shared.engine.options.timeout)


def _deliver(shared: SharedSession, incoming: Incoming, delivery: Delivery, result: Result) -> Answer:
    """Deliver a result: the answer with it. If the client has gone, the result is kept for the next one that asks."""
    result = shared.deliveries.send(delivery, result, incoming.listener.missed_by)
    shared.owner = incoming.listener.connection
    shared.engine.note_loss(delivery)
    answer = answer_with(shared, result, delivery.name)
    if result.runs_on:  # it may have ended meanwhile: its end is kept for a client that names it
        answer.header["command"], delivery.owner = delivery.name, incoming.request.id
    return answer


def answer_with(shared: SharedSession, result: Result, command: str) -> Answer:
    """The answer with a result of that command. It also has the id of a command that runs on, and input not read."""
    header, parts = from_result(result)
    answer: dict[str, Any] = {"result": header}
    if result.runs_on:
        last = shared.deliveries.last
        answer["command"] = last.name if last.handed_back else ""
    elif unread := shared.unread(command):
        answer["unread"] = unread.decode("latin-1")
    return Answer(answer, parts)


@contextmanager
def _streaming(fanout: Fanout | None, incoming: Incoming) -> Iterator[None]:
    """While the request is served, send its client the output as it comes, if the request asks for that."""
    if fanout is None or not getattr(incoming.request, "live", False):
        yield
        return
    before, fanout.listener = fanout.listener, incoming.listener
    try:
        yield
    finally:
        fanout.listener = before


@contextmanager
def observing(engine: Engine, listener: Listener) -> Iterator[None]:
    """Make a verb that only watches a handed-back command return once its client has left for good.

    The command runs on. The verb must return, as it keeps the session busy for other clients.
    """
    call = engine.handed_back
    active = True  # until the verb has returned

    def wake(_: object = None) -> None:
        if active and call is not None and call is engine.handed_back:
            if call is engine.attended and engine.shell is not None:
                call.nudge()
                engine.shell.wake()
            asyncio.get_running_loop().call_later(_WAKE_AGAIN, wake)  # the verb may not have begun to wait yet

    listener.abandoned.add_done_callback(wake)
    try:
        yield
    finally:
        active = False
        listener.abandoned.remove_done_callback(wake)
        if call is not None:
            call.stop_following()


def refuse_from_inside(engine: Engine, agent: str, verb: str, pid: int, watches: bool) -> None:
    """Raise InvalidRequest if the client ``pid`` runs inside the session: it would wait for itself.

    A watcher there (``watches``) would also print its own output again and again.
    """
    shell = engine.shell
    if shell is None or not (watches or engine.state == "running") or not is_inside(shell.pid, shell.slot.tag, pid):
        return
    # A process that an earlier command left in the background may ask: no command waits for its end.
    if watches or not shell.family.tags.is_earlier(pid):
        asked = "attach" if verb in ("watch", "hold") else verb  # those are only of attach
        raise InvalidRequest(
            f"{asked} was asked for inside its own session, that of agent {agent!r}, and would wait for itself: use"
            " another agent's session, or run the command directly"
        )


def of_the_daemon(error: ShellUnavailable) -> ShellUnavailable:
    """The error, reworded for clients: the limit that was reached is the daemon's, not theirs."""
    before, limit, _ = str(error).partition(". Raise the limit")
    if type(error) is not LimitReached or not limit:
        return error
    return LimitReached(
        f"{before.replace('this process', f'the daemon (pid {os.getpid()})', 1)}: close sessions (`shellsession kill`),"
        " or end it (`shellsession stop`) and start it from a shell that may open more (ulimit -Hn, ulimit -n)"
    )


def room_for(count: int) -> int:
    """How many characters of each of ``count`` texts fit into a message. In JSON a character takes up to 12 bytes."""
    return min(4096, PARTS_MAX // (32 * max(1, count)))
