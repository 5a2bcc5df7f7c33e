"""``shellsession approvals``: show the commands that wait for a person's yes, and answer.

A question is shown whole. What a terminal would not print is escaped, so a command cannot hide a part of itself.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..daemon.client import admin
from ..daemon.client.daemon import Daemon
from ..errors import DaemonUnavailable
from . import arguments
from .arguments import escaped, show, show_json, span, table, talk
from .words import name

EXAMPLES: Final = (
    ("shellsession approvals", "the commands that wait for a yes"),
    ("shellsession approvals --follow", "the same, and each new one and each answer as it comes"),
    ("shellsession approvals accept 3f9a0c", "let it run, once"),
    ("shellsession approvals accept 3f9a0c --rule", "and ask no more about the rule that was shown"),
    ("shellsession approvals accept 3f9a0c --prefix 'git push'", "nor about any command that begins so"),
    ("shellsession approvals decline 3f9a0c --reason 'use the mirror'", "the agent gets the reason, and goes on"),
    ("shellsession approvals rules --remove 51be77", "ask again about that command"),
)
_DESCRIPTION: Final = """\
Show the commands that wait for a person's yes, and answer: accept, decline, cancel (decline without a reason to go on),
or list the rules that answers have left. A session asks if it was opened with --approvals, or with
Policy(confirm="queue"). The first answer counts. Answers from inside a session are refused, as an agent must not
approve itself."""
_STATES: Final = {"expired": "nobody has answered in time"}


def own_parser() -> argparse.ArgumentParser:
    usage = "[OPTIONS] [accept ID [--session | --rule | --prefix WORDS] | decline ID [--reason TEXT] | cancel ID"
    usage += " | rules [--remove ID]]"
    parser = arguments.parser("approvals", usage, _DESCRIPTION, EXAMPLES)
    parser.add_argument("-s", "--agent", metavar="AGENT", type=name, help="only the questions of this agent")
    parser.add_argument("--follow", action="store_true", help="go on, and show each new question and each answer")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--session",
        action="store_true",
        help="with accept: ask no more about this text in this directory, until the session is closed",
    )
    how.add_argument(
        "--rule",
        action="store_true",
        help="with accept: ask no more about the commands of the rule that is shown, in any session of the agent",
    )
    how.add_argument(
        "--prefix",
        metavar="WORDS",
        help="with accept: the same for all commands that begin with these first words of the rule",
    )
    parser.add_argument("--reason", metavar="TEXT", default="", help="with decline: what the agent is told")
    parser.add_argument("--remove", metavar="ID", help="with rules: forget this one")
    arguments.add_json(parser, "print JSON: a list, or with --follow an object per line")
    arguments.add_place(parser)
    parser.add_argument("action", nargs="?", choices=("accept", "decline", "cancel", "rules"), help=argparse.SUPPRESS)
    parser.add_argument("id", metavar="ID", nargs="?", help="the question")
    return parser


def main(words: Sequence[str]) -> int:
    parser = own_parser()
    args = parser.parse_args(words)
    for option, action in (
        ("session", "accept"),
        ("rule", "accept"),
        ("prefix", "accept"),
        ("reason", "decline"),
        ("remove", "rules"),
    ):
        if getattr(args, option) and args.action != action:
            parser.error(f"--{option} belongs to `approvals {action}`")
    answers = args.action in ("accept", "decline", "cancel")
    if answers != (args.id is not None):
        parser.error(
            f"name the question: approvals {args.action} ID" if answers else f"{args.id!r} is not expected here"
        )
    if answers:
        return _answer(args)
    return _rules(args) if args.action == "rules" else _list(args)


def _answer(args: argparse.Namespace) -> int:
    lasts = "_session" if args.session else "_rule" if args.rule or args.prefix else ""
    with Daemon(args.socket) as daemon:
        question = daemon.answer(args.id, args.action + lasts, args.reason, args.prefix or "")
    if args.json:
        show_json(question)
    else:
        talk(_said(question))
    return 0


def _rules(args: argparse.Namespace) -> int:
    found = [one for one in admin.remembered(args.socket, args.remove) if args.agent in (None, one["agent"])]
    if args.json:
        show_json(found)
    elif not found:
        talk("no rule is remembered: `shellsession approvals accept ID --rule` makes one")
    else:
        rows = [
            (one["id"], one["agent"], _lasts(one), span(max(0.0, time.time() - one["at"])), one["text"])
            for one in found
        ]
        show(*table(("ID", "AGENT", "LASTS", "AGE", "COMMAND"), rows))
    return 0


def _lasts(one: Mapping[str, Any]) -> str:
    return "until close" if one["lasts"] == "session" else "until removed"


def _list(args: argparse.Namespace) -> int:
    if args.follow:
        return _follow(args)
    with Daemon(args.socket) as daemon:
        found = daemon.approvals(args.agent)
    if args.json:
        show_json(found)
    elif not found:
        talk("no command waits for an answer")
    for question in found if not args.json else ():
        show(*lines_of(question))
    return 0


def _follow(args: argparse.Namespace) -> int:
    try:
        for question in admin.follow_approvals(args.socket, args.agent):
            if args.json:
                show_json(question)
            elif question["state"] == "open":
                show(*lines_of(question))
            else:
                show(_said(question))
            sys.stdout.flush()
    except DaemonUnavailable as error:
        talk(str(error))
    return 0


def lines_of(question: Mapping[str, Any]) -> list[str]:
    """A question in lines: who asks, the whole command, and how to answer."""
    left = "" if question["until"] is None else f", for {span(max(0.0, question['until'] - time.time()))} more"
    lines = [f"{question['id']}  agent {escaped(question['agent'])!r} is to run in {escaped(question['cwd'])}{left}:"]
    lines += [f"  | {escaped(line)}" for line in question["command"].split("\n")]
    lines += [f"  with {escaped(line)}" for line in question["given"]]
    rule = escaped(question["proposal"])
    lines.append(
        f"  rule: {rule}"
        if rule
        else "  no rule: it starts other programs, gets variables or input, or is not plain words"
    )
    return lines


def _said(question: Mapping[str, Any]) -> str:
    """What has become of a question, in one line."""
    by = question["by"]
    who = f" by {escaped(by['comm'])} (pid {by['pid']})" if by else ""
    lasts = {"accept_session": ", for the session", "accept_rule": f", with the rule {escaped(question['proposal'])}"}
    told = _STATES.get(question["state"], question["state"] + who)
    reason = f": {escaped(question['reason'])}" if question["reason"] and question["state"] != "expired" else ""
    return (
        f"{question['id']}  agent {escaped(question['agent'])!r}: {told}{lasts.get(question['decision'], '')}{reason}"
    )
