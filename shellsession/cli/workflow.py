"""``shellsession workflow``: run, check and list files with steps."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ..errors import AlreadyOpen, Conflict, InvalidRequest, InvalidWorkflow, NoSuchAgent, ShellSessionError, StateLost
from . import arguments
from .arguments import escaped, show, show_json, table, talk
from .wording import for_cli
from .words import INTERRUPTED, REFUSED, ErrorFormat

if TYPE_CHECKING:
    from ..daemon.client.session import RemoteSession
    from ..workflow.report import Event, Report
    from ..workflow.workflow import Workflow

EXAMPLES: Final = (
    ("shellsession workflow run build.yml", "all steps, in one shell"),
    ("shellsession workflow run build.yml --resume", "again from the step that failed, with its shell"),
    ("shellsession workflow run build.yml --input version=1.2 --junit out.xml", "with a value, and a report for CI"),
    ("shellsession workflow run build.yml --only lint --only test", "two of its steps"),
    ("shellsession workflow check *.yml", "look for mistakes, and run nothing"),
    ("shellsession workflow run README.md", "the blocks of bash and console in a page"),
    ("shellsession workflow list build.yml", "its steps"),
)
_DESCRIPTION: Final = """\
Run the steps of a workflow in one shell, which a daemon keeps. The exit status is 0 if it succeeds, 1 if a step fails,
125 if nothing could be run, 130 after Ctrl-C and 143 after SIGTERM. These two end the step, and the steps of `finally`
run; the second one ends those, too. --resume continues a run that failed at the step where it stopped, also one whose
process was killed. `check` prints the line of each mistake; its exit status is 1 if there are any.
`list` prints the steps."""
# Seconds that a step may run unless it, or the defaults of the file, say otherwise.
_LIMIT: Final = 3600.0
# Seconds for which the idle shell of a run lives on: while its process is there or was killed, and after it has failed.
# What --resume needs is in the daemon's store.
_IDLE: Final = 3600.0
_FAILED_IDLE: Final = 600.0
_SYNTAX: Final = ("bash", "-n", "-O", "extglob")
# What is noted in place of the agent once there is nothing to resume.
_SUCCEEDED: Final = ""
# The exit status of a shell after SIGTERM.
_TERMINATED: Final = 128 + signal.SIGTERM
_UNFIT: Final = ("only", "begin", "until")


class _Terminated(KeyboardInterrupt):
    """SIGTERM has come. It ends a workflow as Ctrl-C does."""


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("workflow", "(run | check | list) [OPTIONS] FILE...", _DESCRIPTION, EXAMPLES)
    parser.add_argument("action", choices=("run", "check", "list"), help="what to do with the files")
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="a workflow in YAML, or a page in Markdown (.md) with blocks of bash; `run` takes one",
    )
    parser.add_argument("--resume", action="store_true", help="continue the last run of this file where it stopped")
    parser.add_argument("--agent", metavar="AGENT", help="with --resume: continue the run in this agent's session")
    parser.add_argument(
        "--rerun", metavar="STEP", help="with --resume: run the step again at which it stopped, though it may have run"
    )
    parser.add_argument("--skip", metavar="STEP", help="with --resume: skip the step at which it stopped")
    parser.add_argument("--force", action="store_true", help="resume although steps that are done have changed since")
    parser.add_argument(
        "--input", metavar="NAME=VALUE", type=arguments.variable, action="append", default=[], help="a value (repeat)"
    )
    parser.add_argument("--only", metavar="STEP", action="append", default=[], help="run only this step (repeat)")
    parser.add_argument("--from", dest="begin", metavar="STEP", help="begin with this step")
    parser.add_argument("--until", metavar="STEP", help="end after this step")
    parser.add_argument("--dry-run", action="store_true", help="list the steps that would run, and run nothing")
    parser.add_argument("--junit", metavar="PATH", help="write a report as JUnit XML")
    parser.add_argument("--markdown", metavar="PATH", help="write a report as Markdown")
    parser.add_argument("--no-start", action="store_true", help="start no daemon if none runs")
    arguments.add_json(parser, "print each event, or each step, as one JSON object")
    arguments.add_place(parser)
    return parser


def main(typed: Sequence[str]) -> int:
    parser = own_parser()
    args = parser.parse_args(typed)
    if args.action == "check":
        return max(_check(path, args.json) for path in args.files)
    if len(args.files) > 1:
        parser.error(f"`{args.action}` takes one file, not {len(args.files)}")
    if (args.rerun or args.skip or args.agent) and not args.resume:
        parser.error("--rerun, --skip and --agent are for --resume")
    try:
        workflow = _load(args.files[0])
        if args.action == "list" or args.dry_run:
            return _list(workflow, args)
        return _run(_checked(workflow), args)
    except InvalidWorkflow as error:
        if ErrorFormat.json:
            raise
        for line in str(error).splitlines():
            talk(line)
        return REFUSED


def _load(path: str) -> Workflow:
    from ..search import limit_searches
    from ..workflow.workflow import Workflow

    limit_searches()
    try:
        return Workflow.load(path)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from None


def _checked(workflow: Workflow) -> Workflow:
    """Return the workflow. Raises InvalidWorkflow if bash cannot read the text of a step that has to succeed."""
    import subprocess

    from ..workflow.loading import Fault, invalid

    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    faults: list[Fault] = []
    for number, step in enumerate(workflow.all_steps, 1):
        if step.expect.exit_code != 0 or step.if_ == "false":
            continue
        text = step.run.encode("utf-8", "surrogatepass") + b"\n"
        try:  # as a file, so that messages have the line
            done = subprocess.run([*_SYNTAX, "/dev/stdin"], input=text, env=env, capture_output=True, check=False)
        except OSError:  # there is no bash in PATH; the session may use another
            break
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").partition("\n")[0].removeprefix("/dev/stdin: ")
            faults.append(Fault(step.line, f"step {number} ({step.title}): in its text, {said}"))
    if faults:
        raise invalid(workflow.path, faults)
    return workflow


def _check(path: str, as_json: bool) -> int:
    """Print the mistakes of a file. Returns the exit status."""
    steps, mistakes = 0, list[str]()
    try:
        steps = len(_checked(_load(path)).all_steps)
    except InvalidWorkflow as error:
        mistakes = str(error).splitlines()
    if as_json:
        show_json({"file": path, "steps": steps, "mistakes": mistakes})
    else:
        show(*map(escaped, mistakes or [f"{path}: {steps} steps, no mistakes"]))
    return 1 if mistakes else 0


def _list(workflow: Workflow, args: argparse.Namespace) -> int:
    from ..workflow.runner import Asked, selected

    chosen = selected(workflow, Asked(only=args.only, begin=args.begin, until=args.until))
    steps = [(number, one) for number, one in enumerate(workflow.all_steps, 1) if number in chosen]
    if args.json:
        show_json([{"step": number, **one.model_dump(by_alias=True)} for number, one in steps])
        return 0
    last = len(workflow.steps)
    rows = [
        (number, one.id or "-", one.line, one.title, "finally" if number > last else one.if_ or "")
        for number, one in steps
    ]
    show(*table(("STEP", "ID", "LINE", "TITLE", "IF"), rows))
    return 0


def _run(workflow: Workflow, args: argparse.Namespace) -> int:
    from ..daemon.client.session import RemoteSession
    from ..policy.rules import Policy
    from .progress import progress

    secrets = _secrets(workflow)
    chosen = {name: getattr(args, name) for name in _UNFIT}
    for path in filter(None, (args.junit, args.markdown)):
        _check_writable(path)
    agent = _agent(workflow, args)
    options: Any = {"timeout": _LIMIT}
    if workflow.branch is not None:
        options["branch"] = workflow.branch
    if secrets:
        options["policy"] = Policy(secrets=tuple(secrets.values()))
    shown = progress(args.json)
    is_durable = not any(chosen.values())

    def told(event: Event) -> None:
        if is_durable and event.kind == "workflow_started":  # what ran nothing leaves the last run to be resumed
            _note(workflow, agent)
        shown(event)

    given: dict[str, Any] = {"inputs": dict(args.input), "secrets": secrets, "on_event": told, **chosen}
    if args.resume:
        given |= {"resume": True, "rerun": args.rerun, "skip": args.skip, "force": args.force}
    if args.resume:
        _check_known(agent, args)
    with (
        _terminable(),
        RemoteSession.for_arguments(
            agent, args.socket, not args.no_start, options, idle_ttl=_IDLE, defaults={"recover": True}
        ) as session,
    ):
        try:
            session.connect()
        except AlreadyOpen:
            raise InvalidRequest(
                "the secrets are others than those that the shell of this run has: pass those, or end the run with"
                f" `shellsession kill {agent}`"
            ) from None
        try:
            workflow.run(session, durable=is_durable, **given)
        except KeyboardInterrupt as interrupt:
            shown.close()
            _leave(agent, args, workflow.branch is not None)
            return _TERMINATED if isinstance(interrupt, _Terminated) else INTERRUPTED
        except Conflict as conflict:  # all steps have succeeded, and the branch could not be applied
            shown.close()
            talk(for_cli(str(conflict)))
            _leave(agent, args, workflow.branch is not None)
            return 1
        except InvalidWorkflow:
            if not args.resume:
                _close(session)
            raise
        finally:
            shown.close()
            _write_reports(shown.report, args)
        report = shown.report
        if report is not None and report.applied:
            talk(f"{report.applied} changes of its branch were applied to {workflow.branch}")
        if report is not None and (report.ok or not is_durable):
            _close(session)
            with suppress(OSError):
                if (place := _record_of(workflow.path)).read_text(encoding="utf-8") == agent:  # else a later run's
                    place.write_text(_SUCCEEDED, encoding="utf-8")
            return 0 if report.ok else 1
    _leave(agent, args, workflow.branch is not None)
    return 1


@contextmanager
def _terminable() -> Iterator[None]:
    """Have SIGTERM raise _Terminated in the block."""

    def terminate(*_: object) -> NoReturn:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_known(agent: str, args: argparse.Namespace) -> None:
    """Raise InvalidWorkflow if the daemon knows no such agent. To connect to it would make one."""
    from ..daemon.client.session import RemoteSession

    with RemoteSession.for_arguments(agent, args.socket, not args.no_start, {}, create=False) as session:
        try:
            session.connect()
        except StateLost:  # its session has ended, and the journal of the run is in the store
            pass
        except NoSuchAgent:
            raise InvalidWorkflow(
                f"there is no agent {agent!r} whose run could be resumed: run the file anew"
            ) from None


def _close(session: RemoteSession) -> None:
    """Close the session of a run. Inside a session that is refused: then it is closed once it has been idle."""
    with suppress(InvalidRequest):
        session.close()


def _leave(agent: str, args: argparse.Namespace, has_branch: bool) -> None:
    """Leave the shell of a run that has failed, for a while, and say how to continue."""
    import shlex

    from ..daemon.client.session import RemoteSession

    with (
        suppress(ShellSessionError),
        RemoteSession.for_arguments(agent, args.socket, False, {}, idle_ttl=_FAILED_IDLE) as session,
    ):
        session.connect()
    files = f"; what it wrote is on a branch: `shellsession branch diff {agent}`" if has_branch else ""
    talk(
        f"`shellsession workflow run {shlex.quote(args.files[0])} --resume` continues this run; its shell lives on for"
        f" {_FAILED_IDLE / 60:.0f} minutes as agent {agent}" + files
    )


def _write_reports(report: Report | None, args: argparse.Namespace) -> None:
    if report is not None:
        for path, text in ((args.junit, report.to_junit), (args.markdown, report.to_markdown)):
            if path is not None:
                Path(path).write_text(text(), encoding="utf-8")


def _check_writable(path: str) -> None:
    """Raise InvalidRequest unless a report can be written there: better now than after an hour."""
    import errno

    exists, code = os.path.lexists(path), 0
    if os.path.isdir(path):
        code = errno.EISDIR
    elif not exists and not os.path.isdir(os.path.dirname(path) or "."):
        code = errno.ENOENT
    elif not os.access(path if exists else os.path.dirname(path) or ".", os.W_OK):
        code = errno.EACCES
    if code:
        raise InvalidRequest(f"{path} cannot be written: {os.strerror(code)}")


def _secrets(workflow: Workflow) -> Mapping[str, str]:
    """The values of the secrets: from the environment, or from the person at the terminal."""
    found = {name: os.environ[name] for name in workflow.secrets if os.environ.get(name)}
    for name in workflow.secrets:
        if name not in found and sys.stdin.isatty():
            from getpass import getpass

            found[name] = getpass(f"{name}: ", sys.stderr)
    return {name: value for name, value in found.items() if value}


def _agent(workflow: Workflow, args: argparse.Namespace) -> str:
    """The agent of a new run, named after the file; or that of the last run."""
    from secrets import token_hex

    if args.agent is not None:
        return str(args.agent)
    if args.resume:
        try:
            agent = _record_of(workflow.path).read_text(encoding="utf-8")
        except OSError:
            raise InvalidWorkflow(f"{workflow.path} has no run to resume: run it first") from None
        if agent == _SUCCEEDED:
            raise InvalidWorkflow(f"the last run of {workflow.path} has succeeded: there is nothing to resume")
        return agent
    return f"{Path(workflow.path).stem[:100]}-{token_hex(4)}"


def _note(workflow: Workflow, agent: str) -> None:
    """Note the agent of a run for ``--resume``."""
    from ..engine.io.directories import make_missing, make_private

    place = _record_of(workflow.path)
    with suppress(OSError):  # then --resume needs --agent
        make_missing(directory := str(place.parent))
        make_private(os.path.realpath(directory))
        place.write_text(agent, encoding="utf-8")


def _record_of(path: str) -> Path:
    """Where the agent of the last run of a file is noted."""
    from hashlib import sha256

    from ..engine.io.directories import state_directory

    name = sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:16]
    return Path(state_directory(), "workflows", name)
