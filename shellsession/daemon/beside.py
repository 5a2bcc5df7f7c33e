"""What is asked of a session beside its commands: how it is, what they left running, who looks on.

Law: none of it waits: not for a command, nor for who holds the session alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ..async_session import AsyncSession
from ..engine.jobs import Job
from ..errors import InvalidRequest
from . import requests
from .incoming import Answer, Incoming, room_for
from .records import to_part
from .shared import SharedSession


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
