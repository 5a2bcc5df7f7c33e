"""``shellsession jobs``: list what the commands of an agent left running, or show, wait for, end or release one job.

It does not disturb other users of the session.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from . import arguments
from .arguments import show, show_json, table, talk

if TYPE_CHECKING:
    from ..daemon.client.session import RemoteThreadJob

EXAMPLES: Final = (
    ("shellsession jobs builder", "servers and watchers that its commands started, and their state"),
    ("shellsession jobs --json builder", "the same for programs, with their output"),
    ("shellsession jobs builder j1 --until 'Ready on'", "wait until the server is ready, and print its output"),
    ("shellsession jobs builder j1 --kill", "end it"),
)
_DESCRIPTION: Final = """\
List what earlier commands of an agent left running in the background, oldest first. With a JOB, print what it has
printed since its command returned. The exit status is 0 for a list; with --wait the job's status; with --until 1 if the
job ended without a match; 124 at the time limit."""
_LATE: Final = 124
_UNMATCHED: Final = 1


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("jobs", "[OPTIONS] AGENT [JOB]", _DESCRIPTION, EXAMPLES)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--wait", action="store_true", help="first wait until JOB ends")
    what.add_argument(
        "--until", metavar="RE", help="first wait until the output of JOB matches this regular expression"
    )
    what.add_argument("--kill", action="store_true", help="end JOB and everything below it")
    what.add_argument(
        "--release", action="store_true", help="let JOB outlive the session; it must be detached (setsid)"
    )
    parser.add_argument(
        "--timeout", metavar="S", type=arguments.seconds, help="wait for at most S seconds (default: no limit)"
    )
    parser.add_argument(
        "--tail", metavar="N", type=arguments.positive, help="print only the last N lines of each stream of JOB"
    )
    arguments.add_json(parser, "print JSON, with the output of each job since its command returned")
    arguments.add_place(parser)
    arguments.add_agent(parser)
    parser.add_argument("job", metavar="JOB", nargs="?", help="the id of one job, as the list shows it")
    return parser


def main(words: Sequence[str]) -> int:
    parser = own_parser()
    args = parser.parse_args(words)
    if args.job is not None:
        return _one(args)
    if args.wait or args.until or args.kill or args.release or args.tail:
        parser.error("name a JOB, as the list shows it")
    from ..daemon.client import admin

    found = admin.jobs(args.agent, args.socket, args.json)
    if args.json:
        show_json(found)
    elif not found:
        talk(f"no command of {args.agent!r} left anything running")
    else:
        show(*table(("JOB", "STATUS", "EXIT", "PIDS", "COMMAND"), map(_row, found), state=1))
    return 0


def _row(job: dict[str, Any]) -> tuple[object, ...]:
    status = job["status"] + (", released" if job["released"] else "")
    code = "-" if job["exit_code"] is None else job["exit_code"]
    return job["id"], status, code, ",".join(map(str, job["pids"])) or "-", job["command"]


def _one(args: argparse.Namespace) -> int:
    from ..daemon.client import admin

    with admin.Visit(args.agent, args.socket) as visit:
        job = admin.find_job(visit, args.job)
        if args.release:
            job.release()
        if args.kill:
            job.kill()
            job.wait()
        is_over = not (args.wait or args.until) or job.wait(args.timeout, args.until)
        if args.json:
            show_json(admin.described(job))
        elif not (args.kill or args.release):
            for file, text in ((sys.stdout, job.stdout), (sys.stderr, job.stderr)):
                file.writelines(text.splitlines(keepends=True)[-(args.tail or 0) :])
        return _status(job, is_over, args)


def _status(job: RemoteThreadJob, is_over: bool, args: argparse.Namespace) -> int:
    if not is_over:
        return _LATE if job.running else _UNMATCHED
    if not args.wait:
        return 0
    if (code := job.exit_code) is None:
        talk(f"the exit status of job {job.id} is not known")
    return code or 0
