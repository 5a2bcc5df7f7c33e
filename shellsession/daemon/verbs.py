"""What each verb does in the daemon: a request in, an answer out.

Law: a verb is the session's own; here it is only looked up, called, and written down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ..async_session import AsyncSession
from ..engine.dialogue import glimpse
from ..engine.jobs import Job
from ..errors import InvalidRequest, SessionBusy, ShellSessionError, ShellUnavailable
from ..models import TTY, Result, check_seconds
from . import requests
from .asked import Answer, Asked, answer_with, of_the_daemon, room_for
from .audience import Speaker
from .desk import Desk
from .duties import OF_DAEMON
from .kin import refuse_from_inside
from .listener import LEFT, Listener
from .records import to_part

if TYPE_CHECKING:
    from .server import Server


# How long a request waits for its turn until its client is told of that, in seconds.
_TELL_AFTER: Final = 1.0
# What of a command's request is not the session's to know.
_NO_OPTIONS: Final = {"protocol", "id", "agent", "verb", "holder", "term", "live", "tell"}


async def serve(server: Server, asked: Asked) -> Answer:
    """Do what is asked."""
    request = asked.request
    if isinstance(request, requests.OfAgent) and not isinstance(request, requests.Open):
        desk = server.desk(request.agent)
        if type(request) in _STAYS:
            looks_on = isinstance(request, requests.Watch | requests.Hold)
            refuse_from_inside(desk.session, desk.agent, asked.request.verb, asked.connection.pid, looks_on)
        if getattr(request, "tell", False):
            asyncio.get_running_loop().call_later(_TELL_AFTER, desk.tell_what_keeps, asked.listener)
        if type(request) not in _BESIDE:
            with _waiting(asked.listener):
                await desk.hold.enter(request.holder)
        try:
            answer = await _OF_AGENT[type(request)](desk, asked)
        except ShellUnavailable as error:
            if not desk.opened and desk.session.state == "new":  # it would keep a place for nothing
                await desk.session.close()
                server.dismiss(desk)
            raise of_the_daemon(error) from error
        answer.header.setdefault("pid", desk.session.pid)
        desk.opened = desk.opened or desk.session.pid is not None
        if desk.session.closed:
            server.dismiss(desk)
        return answer
    return await OF_DAEMON[type(request)](server, asked)


# -- verbs of a session


async def _start(desk: Desk, _: Asked) -> Answer:
    await desk.session.open()
    return Answer({"value": None})


async def _run(desk: Desk, asked: Asked) -> Answer:
    listener = asked.listener
    with _waiting(listener):
        while True:
            async with desk.turn:
                await desk.left_alone()
                if not listener.connection.is_gone:
                    listener.waits = False
                    return await _run_now(desk, asked)
            # Whoever asked may have given up, and asked anew: to run it now could be to run it twice.
            await listener.client()
            if listener.deserted.done():  # it is being cancelled; to go round again would never let that happen
                raise SessionBusy(LEFT)


async def _run_now(desk: Desk, asked: Asked) -> Answer:
    request: requests.Run = asked.request
    options = request.model_dump(exclude_unset=True, exclude=_NO_OPTIONS)
    if request.limits is not None:
        options["limits"] = request.limits.made()
    command = asked.part if request.term is None else desk.dressed(asked.part, request.term)
    if request.stdin is not None:
        options["stdin"] = TTY if request.stdin == "tty" else asked.second
    speaker = desk.begin(command)
    with desk.staying() as told, _heard(speaker, asked if request.live else None):
        try:
            result = await desk.session.run(command, on_output=speaker, **options)
        except ShellSessionError as error:
            desk.audience.show("refused", {"reason": str(error)})
            raise
        except asyncio.CancelledError:
            if (partial := desk.last_result(command)) is not None:
                desk.ran(command, partial, speaker, request.id)
            raise
        told.set_result(result)
    desk.ran(command, result, speaker, request.id)
    if asked.listener.connection.is_gone:
        desk.unheard.keep(request.id, desk.handed.current, result)
    return answer_with(desk, result, request.id)


async def _wait(desk: Desk, asked: Asked) -> Answer:
    return await _stay_until(desk, asked, _moment(desk, asked))


async def _stay_until(desk: Desk, asked: Asked, until: float | None) -> Answer:
    if (result := await desk.along(until, asked.listener, asked.request.command)) is not None:
        return answer_with(desk, result)
    left = None if until is None else max(0.001, until - time.monotonic())
    with desk.looking_on(asked.listener):
        return await _stay(desk, asked, desk.session.wait(left))


async def _poll(desk: Desk, asked: Asked) -> Answer:
    if (result := await desk.along(time.monotonic(), asked.listener, asked.request.command)) is not None:
        return answer_with(desk, result)
    return await _stay(desk, asked, desk.session.poll())


async def _send(desk: Desk, asked: Asked) -> Answer:
    until = _moment(desk, asked)
    await _typed(desk, asked, until)
    return await _stay_until(desk, asked, until)


async def _interrupt(desk: Desk, asked: Asked) -> Answer:
    return await _stay(desk, asked, desk.session.interrupt())


async def _stay(desk: Desk, asked: Asked, verb: Awaitable[Result]) -> Answer:
    with desk.staying() as told, _heard(desk.speaker, asked if getattr(asked.request, "live", False) else None):
        try:
            result = await verb
        except asyncio.CancelledError:
            if (partial := desk.last_result()) is not None:
                desk.went_on(partial)
            raise
        told.set_result(result)
    desk.went_on(result)
    command = desk.handed.current
    if not result.runs_on:
        desk.handed.leave()
    if asked.listener.connection.is_gone:
        desk.unheard.keep(asked.request.id, command, result)
        return answer_with(desk, result)
    return answer_with(desk, desk.unheard.before(result))


async def _type(desk: Desk, asked: Asked) -> Answer:
    await _typed(desk, asked, _moment(desk, asked))
    return Answer({"value": None})


async def _typed(desk: Desk, asked: Asked, until: float | None) -> None:
    text = asked.part
    with _waiting(asked.listener):
        await desk.handed_back(until)
    desk.handed.check(asked.request.command)
    await desk.type(text, until)


async def _glimpse(desk: Desk, asked: Asked) -> Answer:
    until = _moment(desk, asked)
    with _waiting(asked.listener):
        if not await desk.left_alone(until):
            return Answer({"value": False}, (b"",))
    desk.handed.check(asked.request.command)
    with desk.staying(), desk.looking_on(asked.listener):
        text, ended = await desk.session._do(glimpse(desk.session._mine(), until))
    if (end := desk.session._engine.ended) is not None:  # perhaps nobody waits for it any more
        desk.went_on(end)
    return Answer({"value": ended}, (text,))


async def _restart(desk: Desk, _: Asked) -> Answer:
    await desk.session.restart()
    desk.give_up()
    return Answer({"value": None})


async def _close(desk: Desk, _: Asked) -> Answer:
    await desk.session.close()
    desk.give_up()
    return Answer({"value": None})


async def _jobs(desk: Desk, _: Asked) -> Answer:
    jobs = desk.session.jobs()
    return Answer({"value": None}, (to_part([_described(job, room_for(len(jobs))) for job in jobs]),))


async def _job_output(desk: Desk, asked: Asked) -> Answer:
    output, omitted = _job(desk.session, asked.request.job).output(asked.request.name)
    return Answer({"value": omitted}, (output,))


async def _kill_job(desk: Desk, asked: Asked) -> Answer:
    return Answer({"value": _job(desk.session, asked.request.job).kill()})


async def _resize(desk: Desk, asked: Asked) -> Answer:
    desk.session.resize(asked.request.columns, asked.request.rows)
    return Answer({"value": None})


async def _info(desk: Desk, asked: Asked) -> Answer:
    session = desk.session
    value = {"state": session.state, "cwd": session.cwd, "idle": session.idle, "size": list(session.size)}
    return Answer({"value": value}, (desk.command.encode("utf-8", "replace"),))


async def _watch(desk: Desk, asked: Asked) -> Answer:
    command, person = desk.watch(asked.connection)
    return Answer({"value": command[: room_for(1)], "person": person}, (desk.shown,))


async def _hold(desk: Desk, asked: Asked) -> Answer:
    request: requests.Hold = asked.request
    if request.holder is None:
        raise InvalidRequest("hold: `holder` is to be a name that the requests of the holder carry")
    desk.hold.take(request.holder, request.others == "refuse", asked.connection)
    return Answer({"value": None})


_OF_AGENT: dict[type, Callable[[Desk, Asked], Awaitable[Answer]]] = {
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
    requests.Jobs: _jobs,
    requests.JobOutput: _job_output,
    requests.KillJob: _kill_job,
    requests.Resize: _resize,
    requests.Info: _info,
    requests.Watch: _watch,
    requests.Hold: _hold,
}
_STAYS = {requests.Run, requests.Wait, requests.Send, requests.Glimpse, requests.Watch, requests.Hold}
# Who holds the session keeps commands and keys out of it, not those who look on, and not those who end something.
_BESIDE = {
    *(requests.Jobs, requests.JobOutput, requests.KillJob, requests.Info, requests.Watch, requests.Resize),
    *(requests.Wait, requests.Poll, requests.Interrupt, requests.Restart, requests.Close),
}


# -- small things


@contextmanager
def _waiting(listener: Listener) -> Iterator[None]:
    """For its turn: should its client leave for good, it is given up."""
    listener.waits = True
    yield
    listener.waits = False


def _moment(desk: Desk, asked: Asked) -> float | None:
    """Until when the verb may stay: as was asked for, or as is usual in this session."""
    given = asked.limit.get("timeout", desk.session.default_timeout)
    check_seconds("timeout", given)
    return None if given is None else time.monotonic() + given


@contextmanager
def _heard(speaker: Speaker | None, asked: Asked | None) -> Iterator[None]:
    """While it is being served, the request's client hears the output as it comes."""
    if speaker is None or asked is None:
        yield
        return
    before, speaker.listener = speaker.listener, asked.listener
    try:
        yield
    finally:
        speaker.listener = before


def _described(job: Job, room: int) -> dict[str, Any]:
    known = {"number": job.number, "command": job.command[:room], "pids": job.pids[:room]}
    return {**known, "alive": job.alive()[:room], "running": job.running}


def _job(session: AsyncSession, number: int) -> Job:
    for job in session.jobs():
        if job.number == number:
            return job
    raise InvalidRequest(f"there is no job {number} in this session: it was restarted, or the job ended long ago")
