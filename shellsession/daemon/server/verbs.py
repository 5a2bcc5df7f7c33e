"""A request as it came to the daemon, and the answer to it.

Law: what is not there, and should be, is said by the verb's name.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ...async_session import AsyncSession
from ...engine.kernel import proc
from ...engine.kernel.family import GENERATIONS
from ...engine.verbs.command import Job
from ...engine.verbs.delivery import Delivery
from ...engine.verbs.expect import glimpse
from ...errors import (
    RESTARTED,
    InvalidRequest,
    LimitReached,
    SessionBusy,
    SessionClosed,
    ShellSessionError,
    ShellUnavailable,
)
from ...models import Result, Stream, check_seconds
from ..protocol.messages import closed_meanwhile, from_result, to_part
from ..protocol.wire import PARTS_MAX
from . import requests
from .connection import LEFT, Answer, Incoming, Listener
from .shared import Fanout, SharedSession

if TYPE_CHECKING:
    from ...engine.bash.shell import Shell
    from ...engine.io.output import Capture
    from ...engine.verbs.command import Call
    from ...engine.verbs.verbs import Engine
    from .shared import Sessions


def answer_with(shared: SharedSession, incoming: Incoming, result: Result, command: str) -> Answer:
    """The answer that brings a result of that command, which one runs on, and what was typed for it in vain."""
    header, parts = from_result(result)
    answer: dict[str, Any] = {"result": header}
    if result.runs_on:
        last = shared.outcomes.last
        answer["command"] = last.name if last.handed_back else ""
    elif unread := shared.unread(command):
        answer["unread"] = unread.decode("latin-1")
    return Answer(answer, parts)


def of_the_daemon(error: ShellUnavailable) -> ShellUnavailable:
    """What stands in its way, as its clients are to understand it: the limit is not theirs."""
    before, limit, _ = str(error).partition(". Raise the limit")
    if type(error) is not LimitReached or not limit:
        return error
    return LimitReached(
        f"{before.replace('this process', f'the daemon (pid {os.getpid()})', 1)}: close sessions (`shellsession kill`),"
        " or end it (`shellsession stop`) and start it from a shell that may open more (ulimit -Hn, ulimit -n)"
    )


def room_for(count: int) -> int:
    """Characters of a text, so that a list of so many fits into a message (a character may take 12 bytes in JSON)."""
    return min(4096, PARTS_MAX // (32 * max(1, count)))


def refuse_from_inside(engine: Engine, agent: str, verb: str, pid: int, looks_on: bool) -> None:
    """Who stays with a command is not to be that command: it would wait for itself, or print what it prints.

    ``pid``: who asks. Raises InvalidRequest.
    """
    shell = engine.shell
    if shell is None or not (looks_on or engine.state == "running") or not _is_of(shell, pid):
        return
    # What an earlier command has left in the background may have its turn: nobody waits for it.
    if looks_on or not shell.family.tags.is_earlier(pid):
        asked = "attach" if looks_on else verb  # that is what watches and holds
        raise InvalidRequest(
            f"{asked} was asked for inside its own session, that of agent {agent!r}, which would wait for itself: take"
            " another agent's session, or just run the command"
        )


def _is_of(shell: Shell, pid: int) -> bool:
    """Was it started in the session of that shell? Also by a session within it, whose tag is another."""
    first = shell.slot.tag
    return any(one == shell.pid or first <= proc.tag(one) < first + GENERATIONS for one in proc.lineage(pid))


# How soon a verb is woken again that has not gone on, in seconds.
_AGAIN: Final = 0.05


@contextmanager
def observing(engine: Engine, listener: Listener) -> Iterator[None]:
    """While a verb only looks at what was handed back: once its client has left for good it looks no more."""
    call = engine.handed_back
    looking = True

    def let_go(_: object = None) -> None:
        if looking and call is not None and call is engine.handed_back:
            if call is engine.attended and engine.shell is not None:
                call.following = call.has_output = True  # as if it had printed something
                engine.shell.wake()
            asyncio.get_running_loop().call_later(_AGAIN, let_go)  # perhaps its turn has not come yet

    listener.abandoned.add_done_callback(let_go)
    try:
        yield
    finally:
        looking = False
        listener.abandoned.remove_done_callback(let_go)
        if call is not None:
            call.following = False


async def _jobs(shared: SharedSession, _: Incoming) -> Answer:
    jobs = shared.session.jobs()
    return Answer({"value": None}, (to_part([_described(job, room_for(len(jobs))) for job in jobs]),))


async def _job_output(shared: SharedSession, incoming: Incoming) -> Answer:
    output, omitted, cut = _job(shared.session, incoming.request.job)._kept(incoming.request.name)
    return Answer({"value": omitted, "cut": cut}, (output,))


async def _kill_job(shared: SharedSession, incoming: Incoming) -> Answer:
    return Answer({"value": _job(shared.session, incoming.request.job).kill()})


async def _resize(shared: SharedSession, incoming: Incoming) -> None:
    request: requests.Resize = incoming.request
    shared.hold.resize(request.holder, request.columns, request.rows)


async def _info(shared: SharedSession, incoming: Incoming) -> Answer:
    session = shared.session
    value = {"state": session.state, "cwd": session.cwd, "idle": session.idle, "size": list(session.size)}
    return Answer({"value": value}, (shared.command.encode("utf-8", "replace"),))


async def _watch(shared: SharedSession, incoming: Incoming) -> Answer:
    command, person = shared.watch(incoming.connection)
    value = {"value": command[: room_for(1)], "person": person, "held": shared.session.attached}
    return Answer(value, (shared.shown,))


def _described(job: Job, room: int) -> dict[str, Any]:
    known = {"number": job.number, "command": job.command[:room], "pids": job.pids[:room]}
    return {**known, "alive": job.alive()[:room], "running": job.running}


def _job(session: AsyncSession, number: int) -> Job:
    for job in session.jobs():
        if job.number == number:
            return job
    raise InvalidRequest(f"there is no job {number} in this session: it was restarted, or the job ended long ago")


BESIDE: dict[type, Callable[[SharedSession, Incoming], Awaitable[Answer | None]]] = {
    requests.Jobs: _jobs,
    requests.JobOutput: _job_output,
    requests.KillJob: _kill_job,
    requests.Resize: _resize,
    requests.Info: _info,
    requests.Watch: _watch,
}


# How long a request waits for its turn until its client is notified, in seconds.
_NOTIFY_AFTER: Final = 1.0


async def serve(sessions: Sessions, incoming: Incoming) -> Answer:
    """Carry out the request of one agent's session."""
    request = incoming.request
    shared = sessions.of(request.agent)
    if type(request) in _ATTENDING:
        looks_on = isinstance(request, requests.Watch | requests.Hold)
        refuse_from_inside(shared.engine, shared.agent, incoming.request.verb, incoming.connection.pid, looks_on)
    if getattr(request, "tell", False):
        asyncio.get_running_loop().call_later(_NOTIFY_AFTER, shared.notify_queued, incoming.listener)
    if (seconds := request.turn_within) is not None:
        check_seconds("turn_within", seconds)
        incoming.listener.give_up_in(seconds)
    try:
        shared.users += 1
        try:
            if type(request) not in _UNHELD:
                await shared.hold.enter(request, incoming.listener)
            answer = await _OF_AGENT[type(request)](shared, incoming) or Answer({"value": None})
        finally:
            shared.users -= 1
    except ShellUnavailable as error:
        if not (shared.opened or shared.users) and shared.session.state == "new":  # it would take up a place
            await shared.session.close()
            sessions.dismiss(shared)
        raise of_the_daemon(error) from error
    except SessionClosed as error:  # while it waited for its turn
        raise SessionClosed(closed_meanwhile(shared.agent)) from error
    answer.header.setdefault("pid", shared.session.pid)
    shared.opened = shared.opened or shared.session.pid is not None
    if shared.session.closed:
        sessions.dismiss(shared)
    return answer


# -- verbs of a session


async def _start(shared: SharedSession, _: Incoming) -> None:
    with shared.attending():
        await shared.session.open()


async def _run(shared: SharedSession, incoming: Incoming) -> Answer:
    listener = incoming.listener
    listener.queued = True
    while True:
        async with shared.turn:
            await shared.until_unattended()
            if not (listener.connection.is_gone or listener.connection.congested):
                listener.queued = False
                return await _run_now(shared, incoming)
        # Whoever asked may have given up, and asked anew: to run it now could be to run it twice. And who does not
        # read the last answers is to have no more of them piled up here.
        await listener.taken()
        if listener.abandoned.done():  # it is being cancelled; to go round again would never let that happen
            raise SessionBusy(LEFT)


async def _run_now(shared: SharedSession, incoming: Incoming) -> Answer:
    request: requests.Run = incoming.request
    command = incoming.part
    given = request.given(incoming.second if request.stdin == "bytes" else None)
    by_person = request.holder is not None
    shared.is_next(command, by_person)
    fanout, outcome = shared.begin(command, request.id, incoming.connection if by_person else None)
    with shared.attending() as ending, _streaming(fanout, incoming):
        try:
            asked = shared.session._request(command, {**given, "on_output": fanout})
            result = await shared.session._run(asked)
        except ShellSessionError as error:
            shared.audience.show("refused", {"reason": str(error), "begun": fanout.begun})
            raise
        except asyncio.CancelledError:
            if (end := shared.session._came_of(command)) is not None:
                incoming.listener.outcome = shared.cancel(outcome, end)
                shared.first_result(outcome, command, end, fanout)
            raise
        ending.set_result(result)
    shared.first_result(outcome, command, result, fanout)
    return _answer(shared, incoming, outcome, result)


async def _wait(shared: SharedSession, incoming: Incoming) -> Answer:
    return await _stay_until(shared, incoming, _moment(shared, incoming))


async def _stay_until(shared: SharedSession, incoming: Incoming, until: float | None) -> Answer:
    if (answer := await _shared_end(shared, incoming, until)) is not None:
        return answer
    with observing(shared.engine, incoming.listener):
        if incoming.request.so_far and (call := shared.engine.handed_back) is not None:
            _send_so_far(call, incoming.listener)
        left = None if until is None else max(0.001, until - time.monotonic())
        return await _stay(shared, incoming, shared.session.wait(left))


async def _shared_end(shared: SharedSession, incoming: Incoming, until: float | None) -> Answer | None:
    """Where another client stays with the command, or its end is kept: it is not to be waited for in the session."""
    command = incoming.request.command or shared.outcomes.last.name
    result = await shared.share_end(until, incoming.listener, incoming.request.command)
    return None if result is None else answer_with(shared, incoming, result, command)


def _send_so_far(call: Call, listener: Listener) -> None:
    """What a command has printed since its last result; the next one has it, too.

    Nothing is waited for between this and the output that follows: there is no gap.
    """
    captures: tuple[tuple[Stream, Capture], ...] = (("stdout", call.stdout), ("stderr", call.stderr))
    for stream, capture in captures:
        data, omitted, cut = capture.peek()
        for piece, missing in ((data[:cut], 0), (data[cut:], omitted)):
            if piece or missing:
                listener.send_output(stream, piece, so_far=missing)


async def _poll(shared: SharedSession, incoming: Incoming) -> Answer:
    if (answer := await _shared_end(shared, incoming, time.monotonic())) is not None:
        return answer
    return await _stay(shared, incoming, shared.session.poll())


async def _send(shared: SharedSession, incoming: Incoming) -> Answer:
    until = _moment(shared, incoming)
    await _typed(shared, incoming, until)
    return await _stay_until(shared, incoming, until)


async def _interrupt(shared: SharedSession, incoming: Incoming) -> Answer:
    command = incoming.request.command
    if command and (result := shared.outcomes.take(command, incoming.listener.missed_by)) is not None:
        return answer_with(shared, incoming, result, command)
    return await _stay(shared, incoming, shared.session.interrupt())


async def _stay(shared: SharedSession, incoming: Incoming, verb: Awaitable[Result]) -> Answer:
    with shared.attending() as ending, _streaming(shared.fanout, incoming):
        outcome = shared.outcomes.last
        try:
            result = await verb
        except asyncio.CancelledError:
            _note_cancelled(shared, incoming, outcome)
            raise
        ending.set_result(result)
    shared.next_result(outcome, result)
    return _answer(shared, incoming, outcome, result)


def _note_cancelled(shared: SharedSession, incoming: Incoming, outcome: Delivery) -> None:
    """The verb that waited for that command was cancelled, which has ended the command."""
    if outcome is shared.outcomes.last and (result := shared.session._came_of()) is not None:
        shared.next_result(outcome, result)
        incoming.listener.outcome = shared.cancel(outcome, result)


async def _type(shared: SharedSession, incoming: Incoming) -> None:
    await _typed(shared, incoming, _moment(shared, incoming))


async def _typed(shared: SharedSession, incoming: Incoming, until: float | None) -> None:
    text = incoming.part
    incoming.listener.queued = True
    await shared.until_handed_back(until)
    incoming.listener.queued = False
    shared.outcomes.check(incoming.request.command)
    with shared.attending():
        await shared.type(text, until)


async def _glimpse(shared: SharedSession, incoming: Incoming) -> Answer:
    until = _moment(shared, incoming)
    incoming.listener.queued = True
    if not await shared.until_unattended(until):
        return Answer({"value": False}, (b"",))
    incoming.listener.queued = False
    shared.outcomes.check(incoming.request.command)
    with shared.attending(), observing(shared.engine, incoming.listener):
        outcome = shared.outcomes.last
        try:
            text, ended = await shared.session._do(glimpse(shared.session._mine(), until))
        except asyncio.CancelledError:
            _note_cancelled(shared, incoming, outcome)
            raise
    if (end := shared.engine.due) is not None:  # perhaps nobody waits for it any more
        shared.next_result(outcome, end)
    outcome.owner = incoming.request.id
    return Answer({"value": ended}, (text,))


async def _restart(shared: SharedSession, incoming: Incoming) -> None:
    with shared.attending():
        before, ran = shared.engine.shell, shared.engine.current is not None
        try:
            await shared.session.restart()
        finally:
            if shared.engine.shell is not before:  # else it was refused, and what runs there goes on
                shared.lose(RESTARTED)
                if before is not None and not ran:  # else its ending says so
                    shared.audience.show("restarted", {})


async def _close(shared: SharedSession, _: Incoming) -> None:
    await shared.session.close()
    shared.lose()


async def _hold(shared: SharedSession, incoming: Incoming) -> None:
    request: requests.Hold = incoming.request
    if request.holder is None:
        raise InvalidRequest("hold: `holder` is to be a name that the requests of the holder carry")
    shared.hold.take(request.holder, request.others == "refuse", incoming.connection)


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
    requests.Close: _close,
    requests.Hold: _hold,
    **BESIDE,
}
_ATTENDING = {requests.Run, requests.Wait, requests.Send, requests.Glimpse, requests.Watch, requests.Hold}
# Who holds the session keeps commands and keys out of it, not those who look on, and not those who end something.
_UNHELD = {*BESIDE, requests.Wait, requests.Poll, requests.Interrupt, requests.Restart, requests.Close}


# -- small things


def _moment(shared: SharedSession, incoming: Incoming) -> float | None:
    """Until when the verb may stay: as was asked for, or as is usual in this session."""
    request = incoming.request
    return shared.session._until(request.timeout if "timeout" in request.model_fields_set else ...)


def _answer(shared: SharedSession, incoming: Incoming, outcome: Delivery, result: Result) -> Answer:
    """Send that result of a command to the client; once that has gone, it is kept for the next one that asks."""
    result = shared.outcomes.send(outcome, result, incoming.listener.missed_by)
    shared.engine.note_loss(outcome)
    answer = answer_with(shared, incoming, result, outcome.name)
    if result.runs_on:  # perhaps it has ended meanwhile: that is kept for who names it
        answer.header["command"], outcome.owner = outcome.name, incoming.request.id
    return answer


@contextmanager
def _streaming(fanout: Fanout | None, incoming: Incoming) -> Iterator[None]:
    """While the request is being served, its client gets the output as it comes, if it asked for that."""
    if fanout is None or not getattr(incoming.request, "live", False):
        yield
        return
    before, fanout.listener = fanout.listener, incoming.listener
    try:
        yield
    finally:
        fanout.listener = before
