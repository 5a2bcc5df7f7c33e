"""The small verbs: each is a function of its parsed words. Its docstring is the description in its help."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..errors import DaemonUnavailable, InvalidRequest, NoSuchAgent
from ..text import ago, some
from . import arguments, log
from .arguments import Example, add_agent, add_json, add_place, add_socket, escaped, show, show_json, span, table, talk
from .words import name

if TYPE_CHECKING:
    from ..state.values import Restored

Option = Callable[[ArgumentParser], object]
Run = Callable[[Namespace, ArgumentParser], int]

NO_DAEMON: Final = 3  # the exit status of `status` then, as with `systemctl status`
_LIFTED: Final = (
    "the last one was killed, and had a sandbox or rules for all sessions: the next one has them only if you start it"
    " with the same options of `shellsession serve`"
)
_add_result_json: Final = partial(add_json, what="print the whole result as one JSON object")


class Verb(NamedTuple):
    """A small verb. It has what the module of another verb has."""

    run: Run
    usage: str
    options: Sequence[Option]
    examples: Sequence[Example]

    def own_parser(self) -> ArgumentParser:
        description = " ".join((self.run.__doc__ or "").split())
        parser = arguments.parser(self.run.__name__, self.usage, description, self.examples)
        for add in self.options:
            add(parser)
        return parser

    def main(self, words: Sequence[str]) -> int:
        parser = self.own_parser()
        return self.run(parser.parse_args(words), parser)


VERBS: Final = dict[str, Verb]()


def verb(usage: str, *options: Option, examples: Sequence[Example]) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        VERBS[run.__name__] = Verb(run, usage, options, examples)
        return run

    return add


def option(*names: str, **how: Any) -> Option:
    return lambda parser: parser.add_argument(*names, **how)


@verb(
    "[OPTIONS]",
    option("--names", action="store_true", help="only the names, one per line"),
    partial(add_json, what="print a JSON list"),
    add_place,
    examples=[
        ("shellsession ls", "all agents, and what they run"),
        ("shellsession ls --json", "the same for programs, with nothing cut or rounded"),
    ],
)
def ls(args: Namespace, _: ArgumentParser) -> int:
    """List the agents that have a session, by name, and its state: new (no bash yet), idle, or running a command, and
    for how long that has been running (RUNS). It is also attached if a person uses it (`shellsession attach`); the
    agent's own calls wait then. It asks if a command waits for a yes (`shellsession approvals`)."""
    from ..daemon.client import admin

    found = sorted(admin.agents(args.socket), key=lambda one: str(one["agent"]))
    if args.json:
        show_json(found)
    elif args.names:
        show(*(escaped(one["agent"]) for one in found))
    elif not found:
        talk("no agent has a session: `shellsession run -s NAME -- COMMAND` opens one")
    else:
        rows = [
            (
                one["agent"],
                one["pid"] or "-",
                one["state"]
                + ", attached" * one["attached"]
                + (f", asks {one['question']}" if one["question"] else ""),
                span(one["age"]),
                span(one["idle"]),
                one["jobs"],
                one["cwd"],
                "-" if one["running_for"] is None else span(one["running_for"]),
                one["command"],
            )
            for one in found
        ]
        show(*table(("AGENT", "PID", "STATE", "AGE", "IDLE", "JOBS", "CWD", "RUNS", "COMMAND"), rows, state=2))
    return 0


@verb(
    "[OPTIONS] AGENT [TEXT]",
    option("-n", action="store_true", help="do not press Enter after it"),
    option(
        "--keys", metavar="NAMES", help="keys to press after TEXT, as tmux names them: 'C-c', 'Up Up Enter', 'Escape :'"
    ),
    partial(arguments.add_timeout, what="wait for the command"),
    _add_result_json,
    add_place,
    add_agent,
    option("text", metavar="TEXT", nargs="?", help="what to type; optional with --keys"),
    examples=[
        (
            "shellsession send --timeout 5 builder Ann",
            "answer the first question of: shellsession run -i -s builder --"
            """ 'read -p "name? " n; read -n 1 -p "sure? " s; echo "$n $s"'""",
        ),
        ("shellsession send -n builder y", "one key, without Enter"),
        ("shellsession send --keys 'Down Down Enter' builder", "keys by name, for a program with menus"),
    ],
)
def send(args: Namespace, parser: ArgumentParser) -> int:
    """Type a line into the terminal of the command that was handed back running (see `shellsession run -i`), then print
    its output until it waits for input, ends, or the time limit passes. The exit status is 0 while the command is still
    running, and the command's status when it has ended. Ctrl-C ends the command. While a person is attached
    (`shellsession attach`), this waits until they leave; --timeout starts only then. While another process waits for
    the command, this waits, too, until that process returns; if --timeout passes first, it exits with 125, and nothing
    was typed. If stderr is a terminal, a note there says what it waits for."""
    if args.text is None and args.keys is None:
        parser.error("name what to type: TEXT, or --keys")
    from .results import follow, status

    text = b"" if args.text is None else os.fsencode(args.text if args.n else args.text + "\n")
    keys = (args.keys or "").split()
    result, interrupted = follow(args, lambda visit: visit.send(text, args.timeout, keys=keys))
    return 0 if result.runs_on else status(result, interrupted)


@verb(
    "[OPTIONS] AGENT",
    option("--until", metavar="RE", help="return once the output matches this regular expression"),
    partial(arguments.add_timeout, what="wait"),
    _add_result_json,
    add_place,
    add_agent,
    examples=[
        ("shellsession wait builder", "until it ends, or waits for input"),
        ("shellsession wait --until 'Ready on' builder", "until it has printed this text"),
        ("shellsession wait --timeout 0.1 builder", "what it has printed by now; 124 means that it is still running"),
    ],
)
def wait(args: Namespace, _: ArgumentParser) -> int:
    """Wait for the running command until it ends, needs input, or the time is up. First comes what it has printed since
    the last call, then the rest as it is printed. The exit status is the command's, or 124 while it is still running;
    with --until it is 0 once the output matches. A command that was handed back because of --idle-timeout is handed
    back again after each such silence. Ctrl-C ends the command, unless another process runs it and waits for it."""
    from .results import follow, status

    return status(*follow(args, lambda visit: visit.wait(args.timeout, until=args.until)))


@verb(
    "[OPTIONS] AGENT",
    partial(add_json, what="print kind, text, pid and comm as one JSON object"),
    add_place,
    add_agent,
    examples=[
        ("shellsession why builder", "for instance: flock waits for the lock /tmp/l, held by 812 make"),
        ("shellsession why --json builder", "the same for programs"),
    ],
)
def why(args: Namespace, _: ArgumentParser) -> int:
    """Say in one line what the command in the agent's session waits for: a lock and who holds it, an address, a FIFO,
    the terminal and the question there, or the processor. The line names processes and files, and no arguments. It says
    "unknown" where /proc does not tell. The command is not disturbed."""
    from ..daemon.client.admin import Visit

    with Visit(args.agent, args.socket) as visit:
        found = visit.why()
    if args.json:
        show_json(found.to_dict())
    else:
        show(escaped(str(found)))
    return 0


@verb(
    "[OPTIONS] AGENT",
    _add_result_json,
    add_place,
    add_agent,
    examples=[
        ("shellsession interrupt builder", "like Ctrl-C, then with stronger signals if the command ignores it"),
        ("shellsession interrupt --json builder", "its result, for programs"),
    ],
)
def interrupt(args: Namespace, _: ArgumentParser) -> int:
    """End the command that runs in the agent's session, even if another process waits for it, and keep the session.
    Print its output so far. The exit status is 0 if the command has ended and the session's state is kept, and 125 if
    no command runs."""
    from ..daemon.client.admin import Visit
    from .results import show_result, status

    with Visit(args.agent, args.socket) as visit:
        result = visit.interrupt()
    show_result(result, args.agent, args.json)
    return 0 if result.state_kept else status(result)


@verb(
    "[OPTIONS] AGENT",
    option("--keep-state", action="store_true", help="the fresh bash gets the state of the old one"),
    add_place,
    add_agent,
    examples=[
        ("shellsession restart builder", "when its shell is in a bad state"),
        ("shellsession restart --keep-state builder", "end what it has left running, and keep the rest"),
        ("shellsession restart --socket /run/ci/socket builder", "an agent of another daemon"),
    ],
)
def restart(args: Namespace, _: ArgumentParser) -> int:
    """Give an agent a fresh bash, in the directory and with the environment that its session was opened with.
    Everything that runs in the old one is ended, background jobs too. With --keep-state, what could not be restored is
    listed, and the exit status is 1 then."""
    from ..daemon.client.admin import Visit

    with Visit(args.agent, args.socket) as visit:
        return _say_missing(visit.restart(keep_state=args.keep_state))


_add_file: Final = option("file", metavar="FILE", help="the file of the snapshot")


@verb(
    "[OPTIONS] AGENT FILE",
    option("--exclude", metavar="PATTERN", action="append", default=[], help="leave out such names (repeat)"),
    add_place,
    add_agent,
    _add_file,
    examples=[
        ("shellsession snapshot builder before.snapshot", "keep its state before a risky step"),
        ("shellsession snapshot --exclude '*TOKEN*' builder b.snapshot", "without these variables and functions"),
    ],
)
def snapshot(args: Namespace, _: ArgumentParser) -> int:
    """Write the state of an agent's idle bash to a file: directory, variables, functions, aliases, options, traps. The
    file has no secrets of known forms and names. Only you can read it."""
    from ..daemon.client.admin import Visit

    with Visit(args.agent, args.socket) as visit:
        taken = visit.snapshot(exclude=args.exclude).for_file()
    taken.save(args.file)
    if taken.left_out:
        talk(f"left out: {', '.join(f'{one.kind} {one.name}' for one in taken.left_out)}")
    return 0


@verb(
    "[OPTIONS] AGENT FILE",
    add_place,
    add_agent,
    _add_file,
    examples=[
        ("shellsession restore builder before.snapshot", "back to that moment"),
        ("shellsession restore other before.snapshot", "the same state for another agent, which has a session"),
    ],
)
def restore(args: Namespace, _: ArgumentParser) -> int:
    """Give an agent a fresh bash with the state in a file that `shellsession snapshot` has written. Everything that
    runs in the old one is ended. What could not be restored is listed, and the exit status is 1 then."""
    from ..daemon.client.admin import Visit
    from ..state.snapshot import Snapshot

    taken = Snapshot.load(args.file)
    with Visit(args.agent, args.socket) as visit:
        report = visit.restore(taken)
    return _say_missing(report)


def _say_missing(report: Restored) -> int:
    """Name what was not restored. Returns the exit status."""
    for one in report.not_restored:
        talk(f"not restored: {one.kind} {one.name}: {one.reason}")
    return 0 if report.complete else 1


@verb(
    "[OPTIONS] AGENT NEW",
    add_place,
    add_agent,
    option("to", metavar="NEW", type=name, help="the agent that gets the copy; nothing may be known of it"),
    examples=[
        ("shellsession fork builder try-1", "try something in a copy"),
        ("shellsession fork --socket /run/ci/socket builder try-1", "of an agent of another daemon"),
    ],
)
def fork(args: Namespace, _: ArgumentParser) -> int:
    """Open a session for another agent with the state of this one: directory, variables, functions, options. It has the
    same sandbox, rules and limits. Jobs are not copied, and both share the file system. What could not be copied is
    listed, and the exit status is 1 then."""
    from ..daemon.client.admin import Visit

    with Visit(args.agent, args.socket) as visit, visit.fork(args.to) as child:
        return _say_missing(child.restored)


@verb(
    "[OPTIONS] (diff | apply | discard) AGENT [PATH...]",
    option("--patch", action="store_true", help="diff: print a patch that `git apply` takes"),
    option("--since", metavar="CHECKPOINT", default="", help="diff: only changes since this checkpoint"),
    option("--overwrite", action="store_true", help="apply: overwrite also what has changed in the directory"),
    add_place,
    option("action", choices=("diff", "apply", "discard"), help="what to do with the changes"),
    add_agent,
    option("paths", metavar="PATH", nargs="*", help="apply: only these paths below the directory"),
    examples=[
        ("shellsession branch diff builder", "list what it has added, changed and removed"),
        ("shellsession branch diff --patch builder | git apply", "the same as a patch"),
        ("shellsession branch apply builder src README.md", "write these to the directory itself"),
        ("shellsession branch discard builder", "throw away all that it wrote, and its checkpoints"),
    ],
)
def branch(args: Namespace, parser: ArgumentParser) -> int:
    """Show what an agent's commands have written on the branch of its files (`shellsession run --branch DIR`), write it
    to the directory itself, or discard it. Only discard works after `shellsession kill`: else the session must be open.
    Only diff works while a job of it runs. If a path to write has changed in the directory meanwhile, apply writes
    nothing."""
    for given, word, action in (
        (args.paths, "PATH", "apply"),
        (args.overwrite, "--overwrite", "apply"),
        (args.patch, "--patch", "diff"),
        (args.since, "--since", "diff"),
    ):
        if given and args.action != action:
            parser.error(f"{word} is for {action}")
    from ..daemon.client.admin import Visit

    with Visit(args.agent, args.socket) as visit:
        if args.action == "discard":
            visit.branch.discard()
            return 0
        if args.action == "apply":
            found: Any = visit.branch.apply(args.paths or None, overwrite=args.overwrite)
        else:
            found = visit.branch.diff(args.since, patch=args.patch)
    if isinstance(found, bytes):
        sys.stdout.buffer.write(found)
        sys.stdout.flush()
        return 0
    for one in found:
        show(f"{one.kind:8} {escaped(one.path)}")
        if said := "; ".join(filter(None, (one.skipped, one.note))):
            talk(f"{one.path}: {said}")
    return 0


_end_jobs: Final = option("--end-jobs", action="store_true", help="kill its jobs, which could write to the files")


@verb(
    "[OPTIONS] AGENT [NAME]",
    _end_jobs,
    add_place,
    add_agent,
    option("--list", action="store_true", help="list its checkpoints in place of making one: name, age, bytes, parent"),
    option("--drop", action="store_true", help="forget the checkpoint NAME in place of making one"),
    option("checkpoint", metavar="NAME", nargs="?", default="", help="its name, for rollback"),
    examples=[
        ("shellsession checkpoint --list builder", "which ones there are"),
        ("shellsession checkpoint builder before-upgrade", "keep its files and its shell before a risky step"),
        ("shellsession checkpoint --end-jobs builder", "with a name that is free, which it prints"),
    ],
)
def checkpoint(args: Namespace, parser: ArgumentParser) -> int:
    """Freeze the files of an agent's branch and the state of its shell, and print the name of the checkpoint."""
    if args.drop != bool(args.checkpoint) and (args.drop or args.list):
        parser.error("--drop needs a NAME" if args.drop else "--list takes no NAME")
    from ..daemon.client.admin import Visit

    with Visit(args.agent, args.socket) as visit:
        if args.list:
            made = [
                (escaped(one.name), ago(time.time() - one.at), str(one.size), one.parent) for one in visit.checkpoints()
            ]
            show(*table(("NAME", "MADE", "BYTES", "PARENT"), made))
            return 0
        if args.drop:
            visit.drop_checkpoint(args.checkpoint)
            return 0
        show(escaped(visit.checkpoint(args.checkpoint, end_jobs=args.end_jobs).name))
    return 0


@verb(
    "[OPTIONS] AGENT [NAME]",
    option("--files-only", action="store_true", help="keep its bash as it is"),
    _end_jobs,
    add_place,
    add_agent,
    option("checkpoint", metavar="NAME", nargs="?", default="", help="the name of the checkpoint"),
    examples=[
        ("shellsession rollback builder before-upgrade", "bring back its files and its shell"),
        ("shellsession rollback builder", "take back its last command that wrote (--auto-checkpoints)"),
        ("shellsession rollback --files-only builder before-upgrade", "bring back only the files"),
    ],
)
def rollback(args: Namespace, _: ArgumentParser) -> int:
    """Bring the files of an agent's branch back to a checkpoint, and start a new bash with the state of that moment. If
    something could not be restored, list it and exit with status 1."""
    from ..daemon.client.admin import Visit

    with Visit(args.agent, args.socket) as visit:
        report = visit.rollback(args.checkpoint, files_only=args.files_only, end_jobs=args.end_jobs)
    if not args.checkpoint:
        talk(f"took back: {escaped(report.undone) or 'the last command that wrote files'}")
    return _say_missing(report)


@verb(
    "[OPTIONS] (AGENT... | --all)",
    option("--all", action="store_true", help="the sessions of all agents"),
    add_place,
    option("agents", metavar="AGENT", type=name, nargs="*", help="whose sessions"),
    examples=[
        ("shellsession kill builder", "end its session, its command and its jobs"),
        ("shellsession kill --all", "end those of every agent; the daemon stays"),
    ],
)
def kill(args: Namespace, parser: ArgumentParser) -> int:
    """Close the sessions of agents, and end everything that runs in them. Their records, the stored state of their
    shells and their idempotency keys are deleted: the same key would run its command again. The daemon keeps running.
    """
    named = _named(args, parser)
    from ..daemon.client import admin

    if args.all:
        for one in admin.agents(args.socket):
            _close(one["agent"], args.socket)
    if missing := [agent for agent in named if not _close(agent, args.socket)]:
        raise NoSuchAgent(f"agent {', '.join(map(repr, missing))} has no session here: it was closed, or never opened")
    return 0


def _close(agent: str, socket: str | None) -> bool:
    """Close the agent's session; False if there was none."""
    from ..daemon.client import admin

    try:
        with admin.Visit(agent, socket) as visit:
            visit.close()
    except NoSuchAgent:
        return False
    except DaemonUnavailable:  # it has ended, and its sessions with it: what it has recorded is left
        if not (isinstance(socket, str | None) and admin.forget(agent, socket)):
            raise
    return True


def _named(args: Namespace, parser: ArgumentParser) -> list[str]:
    """The agents that were named, once each; none with --all."""
    if bool(args.agents) == args.all:
        parser.error("name the agents, or use --all")
    return list(dict.fromkeys(args.agents))


@verb(
    "[OPTIONS] (AGENT... | --all)",
    option("--all", action="store_true", help="the records of all agents without a session"),
    add_socket,
    option("agents", metavar="AGENT", type=name, nargs="*", help="whose records"),
    examples=[
        ("shellsession forget builder", "its next session starts anew: no directory, no rules"),
        ("shellsession forget --all", "those of every agent without a session"),
    ],
)
def forget(args: Namespace, parser: ArgumentParser) -> int:
    """Delete the records of agents whose sessions have ended: the directory that the next session would start in, what
    ran when the daemon ended, the stored state of the shell, the agent's rules, and its idempotency keys: the same key
    would run its command again. `kill` does so for an agent with a session."""
    arguments.check_here("forget")
    named = _named(args, parser)
    from ..daemon.client import admin

    if args.all:
        talk(f"agents forgotten: {admin.forget(None, args.socket)}")
    elif missing := [agent for agent in named if not admin.forget(agent, args.socket)]:
        raise InvalidRequest(
            f"nothing is recorded about agent {', '.join(map(repr, missing))}: `shellsession status --json` names the"
            " agents without a session whose state is stored"
        )
    return 0


@verb(
    "[OPTIONS] AGENT",
    log.add_options,
    option("session", metavar="AGENT", type=name, help="whose commands"),
    examples=[
        ("shellsession history builder", "its last 20 commands, and how they ended"),
        ("shellsession history -n 0 --json builder", "all of them, as JSON"),
    ],
)
def history(args: Namespace, _: ArgumentParser) -> int:
    """List the commands of one agent: when each ended, its id, its status, and how long it took. "began" means that no
    end is recorded: it still runs, or it ran when the daemon was killed. KEY is its idempotency key (`run
    --idempotency-key`)."""
    return log.run(args)


@verb(
    "[OPTIONS]",
    partial(add_json, what="print a JSON object"),
    add_socket,
    examples=[
        ("shellsession status", "its version, uptime and load"),
        ("shellsession status --json", "the same for programs"),
    ],
)
def status(args: Namespace, _: ArgumentParser) -> int:
    """Show the state of the daemon, when it has kept the state of each shell, and the agents without a session whose
    state it has. The exit status is 0 if it is running, 3 if it is not, and 125 if it does not reply."""
    arguments.check_here("status")
    from ..daemon.client import admin
    from ..daemon.protocol import endpoint

    path = endpoint.socket_path(args.socket)
    try:
        found = admin.stats(path)
        ages = {one["agent"]: one["state_age"] for one in admin.agents(path) if one["state_age"] is not None}
    except DaemonUnavailable as error:
        if (other := endpoint.reach(path)) is not None:  # it listens, but does not reply
            other.close()
            raise
        arguments.tell_error(error.code, str(error))
        return NO_DAEMON
    if args.json:
        show_json({**found, "socket": path, "state_ages": ages})
        return 0
    lines = {
        "daemon": f"{found['version']} (protocol {found['protocol']}), pid {found['pid']}, up {span(found['uptime'])}",
        "socket": path,
        "agents": f"{found['agents']}, {found['running']} of them running a command",
        "clients": f"{found['connections']} connected (this one too), {found['requests']} requests served",
        "audit log": found["audit_fault"].removeprefix("audit log ") or found["audit"] or "none",
    }
    if found["state"]:
        lines["state"] = found["state_fault"] or f"{found['state']}, {found['state_size'] // 1024} KiB"
    if ages:
        oldest = sorted(ages.items(), key=lambda one: -one[1])
        lines["shells"] = "kept " + some(f"{agent} {span(age)} ago" for agent, age in oldest)
    if stored := sorted(found["stored_ages"].items(), key=lambda one: one[1]):
        used = some(f"{agent} {span(age)} ago" for agent, age in stored)
        lines["stored"] = f"{len(stored)} with a state but no session, last used: {used}"
    if (lease := found["lease"]) is not None:
        lines["lease"] = f"{lease['seconds']:g} s, of which {lease['left']:.1f} s are left"
    show(*(f"{name:<11}{escaped(text)}" for name, text in lines.items()))
    return 0


@verb(
    "[OPTIONS]",
    add_socket,
    examples=[
        ("shellsession stop", "running commands get a few seconds to end (see `shellsession serve --patience`)"),
        ("shellsession stop --socket /run/ci/socket", "another daemon"),
    ],
)
def stop(args: Namespace, _: ArgumentParser) -> int:
    """End the daemon and every session, and return when it has ended. The exit status is 0 even if no daemon is
    running."""
    arguments.check_here("stop")
    from ..daemon.client import admin
    from ..daemon.protocol import endpoint

    path = endpoint.socket_path(args.socket)
    pid = admin.shutdown(path)
    lifted = endpoint.reach(path) is None and _allow_plain(path)  # else another daemon has started
    told = f"no daemon listens at {path}: nothing to stop" if pid is None else f"the daemon (pid {pid}) has ended"
    talk(f"{told}; {_LIFTED}" if lifted else told)
    return 0


def _allow_plain(path: str) -> bool:
    """Allow a plain daemon after one with a sandbox or rules that was killed. True if there was such a one."""
    from ..daemon.protocol.endpoint import confined_marker
    from ..engine.io.directories import homes

    with suppress(OSError):
        os.unlink(confined_marker(path))
        with suppress(OSError):  # others use the directory, or it is the user's own
            if (directory := os.path.dirname(path)) in homes():
                os.rmdir(directory)
        return True
    return False


@verb(
    "[OPTIONS]",
    add_socket,
    examples=[
        ("shellsession bridge </dev/null | cat", "a check by hand: it prints its greeting, and ends"),
        ("shellsession bridge --socket /run/ci/socket </dev/null | cat", "the same for another daemon"),
    ],
)
def bridge(args: Namespace, _: ArgumentParser) -> int:
    """Carry the connections of a client elsewhere to this user's daemon, over stdin and stdout, until stdin is closed.
    The daemon is started if a session is to be opened and none runs. Clients start this program themselves: see
    --via."""
    if os.isatty(0) or os.isatty(1):
        raise InvalidRequest(
            "stdin and stdout of `shellsession bridge` are pipes to a client, which starts it: see `--via`"
        )
    from ..daemon.client.bridge import Bridge
    from ..daemon.client.process_state import process_state
    from ..daemon.client.transport import UnixTransport
    from ..daemon.protocol.endpoint import socket_path
    from ..daemon.protocol.mux import FilePipe, PipeEnded

    channel = Bridge(FilePipe(0, 1), UnixTransport(socket_path(args.socket)), process_state())
    try:
        while True:
            channel.turn(None)
    except PipeEnded:
        return 0


def script(shell: str) -> str:
    """The path of the completion script for this shell. docs/generate.py makes it from the parsers of the verbs."""
    return os.path.join(os.path.dirname(__file__), "completions", f"shellsession.{shell}")


@verb(
    "SHELL",
    option("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish"),
    examples=[
        ("shellsession completion bash >> ~/.bash_completion", "for your shells"),
        ("shellsession completion bash > /etc/bash_completion.d/shellsession", "for all users of this machine"),
        (
            "shellsession completion zsh > ~/.zfunc/_shellsession",
            "for zsh, with fpath+=~/.zfunc above compinit in .zshrc",
        ),
        ("shellsession completion fish > ~/.config/fish/completions/shellsession.fish", "for fish"),
    ],
)
def completion(args: Namespace, _: ArgumentParser) -> int:
    """Print a script that makes your shell complete verbs, options, and the names of agents."""
    with open(script(args.shell), encoding="utf-8") as file:
        show(file.read().rstrip())
    return 0


def _range(text: str) -> tuple[int, int | None]:
    first, colon, last = text.partition(":")
    with suppress(ValueError):
        if colon:
            return int(first), int(last) if last else None
    raise ArgumentTypeError(f"{text!r:.40} is not a range of numbers such as 200:300 or 200:")


@verb(
    "[OPTIONS] AGENT [ID]",
    option("--stream", choices=("stdout", "stderr"), default="stdout", help="which stream (default: stdout)"),
    option("--lines", metavar="A:B", type=_range, help="the lines from A to B, counted from 1; A: goes on"),
    option("--grep", metavar="RE", help="only the lines that match a Python regular expression"),
    option("--bytes", metavar="A:B", type=_range, help="the bytes from A up to B (excluded), counted from 0"),
    option("--tail", metavar="N", type=arguments.positive, help="the last N lines"),
    option("--follow", action="store_true", help="go on with what comes; without ID also of later commands"),
    option(
        "--since",
        metavar="N",
        type=arguments.count,
        help="only what is new since the answer that gave this number, if more may come; 0 gives the first one",
    ),
    option(
        "--max-chars",
        metavar="N",
        type=arguments.positive,
        default=30_000,
        help="how much to show at most (default: 30000)",
    ),
    add_place,
    add_agent,
    option(
        "id", metavar="ID", nargs="?", default="", help="id of a result or job (default: the latest result with output)"
    ),
    examples=[
        ("shellsession output builder", "the latest output, from its first line"),
        ("shellsession output builder c17 --lines 200:300", "some lines of the result with this id"),
        ("shellsession output builder j1 --tail 50", "the last lines of a job, and the number for --since"),
        ("shellsession output builder --tail 50 --follow", "the last lines, and what comes, until Ctrl-C"),
        ("shellsession output builder --grep 'error|warning'", "the lines that match, with their numbers"),
    ],
)
def output(args: Namespace, parser: ArgumentParser) -> int:
    """Show a part of what a command or job of the agent printed. The session keeps the last 20 short outputs and the
    last 20 others, 64 MiB together. If there is more than --max-chars, the last line names the next call. `shellsession
    run --json` prints the id of each result. Secrets that the session's redact= finds are shown as ***."""
    if args.follow and (args.lines or args.bytes or args.grep):
        parser.error("--follow takes only --tail or --since")
    import shlex

    from ..daemon.client.admin import Visit
    from ..paging import query_for
    from ..redact import masker
    from .relay import write

    query = query_for(
        args.id, args.stream, args.lines, args.bytes, args.grep, args.max_chars, None, args.tail, args.since
    )
    with Visit(args.agent, args.socket) as visit:
        query = query._replace(mask=masker(visit.redact))
        if args.follow:
            from .following import follow

            try:
                follow(visit, query)
            except NoSuchAgent:
                talk(f"the session of agent {args.agent!r} was closed")
            return 0
        text = visit.read_page(query._replace(verb=f"shellsession output {shlex.quote(args.agent)}"))
    if not text:
        talk(f"nothing to show: {args.stream} has no such part, or no line matches")
    ends = args.bytes or not text or text.endswith("\n")
    write("stdout", (text if ends else f"{text}\n").encode("utf-8", "replace"))
    return 0
