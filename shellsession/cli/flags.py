"""Flags of ``run``, ``mcp`` and ``serve`` that make a session, and flags with the rules for its commands.

They become the options of ``Session``. Only flags that were given become options, as these must be the same on a
session that is open already.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidRequest
from ..models import Limits
from ..options import SessionOptions, absolute
from . import arguments

if TYPE_CHECKING:
    from ..policy.rules import Policy
    from ..sandbox import Sandbox


NEW_SESSION: Final = """\
They make the session. If the agent already has one that was opened with other options, the call is refused
(already_open)."""
_OF_SANDBOX: Final = ("write", "hide", "missing_ok", "network", "memory", "cpu", "pass_env")


def add_session(parser: argparse.ArgumentParser, description: str = NEW_SESSION, beside_command: bool = False) -> None:
    """Add the flags that make a session, but for its rules. ``beside_command``: -C and --env are those of a command."""
    group = parser.add_argument_group("options of the session", description)
    names = ("--cwd",) if beside_command else ("-C", "--cwd")
    group.add_argument(*names, dest="first_cwd", metavar="DIR", help="where it starts (default: here, or in --branch)")
    parser.set_defaults(extra_env=None)
    if not beside_command:
        group.add_argument(
            "--env",
            dest="extra_env",
            metavar="NAME=VALUE",
            type=arguments.variable,
            action="append",
            help="a variable of its environment (repeat)",
        )
    group.add_argument(
        "--branch",
        metavar="DIR",
        help="write below DIR to a branch of it; DIR itself stays as it is",
    )
    group.add_argument(
        "--auto-checkpoints",
        metavar="N",
        type=arguments.positive,
        help="keep the moments before its last N commands that wrote on the branch, for `shellsession rollback`",
    )
    group.add_argument(
        "--startup",
        metavar="COMMAND",
        action="append",
        help="what its shell runs first, before any command, such as '. venv/bin/activate' (repeat)",
    )
    group.add_argument(
        "--sandbox",
        action="store_true",
        help="confine it with bubblewrap: it can write nothing but --write and a private /tmp, has no network, and gets"
        " few variables",
    )
    group.add_argument(
        "--write",
        metavar="DIR",
        action="append",
        help=f"what it can write (repeat); a relative DIR is below {names[0]}, or else below here",
    )
    group.add_argument(
        "--hide", metavar="PATH", action="append", help="what it cannot see, such as ~/.ssh (repeat); as for --write"
    )
    group.add_argument("--missing-ok", action="store_true", help="skip --hide paths that do not exist")
    group.add_argument("--network", action="store_true", help="give it the host's network")
    group.add_argument("--memory", metavar="SIZE", help="the memory of all its processes together, such as 512M")
    group.add_argument(
        "--cpu", metavar="N", type=arguments.number, help="its processor time; 0.5 is half of one processor"
    )
    group.add_argument(
        "--pass-env",
        metavar="PATTERN",
        action="append",
        help="a variable of this environment that it gets, such as 'AWS_*' (repeat)",
    )


def add_recover(parser: argparse.ArgumentParser) -> None:
    """Add --no-recover. Without it, the session gets its state back after its shell has died."""
    parser.add_argument(
        "--no-recover",
        dest="recover",
        action="store_false",
        help="after the end of its shell, start with a fresh one; by default the next shell has the directory,"
        " variables and functions of the last one",
    )


def add_rules(parser: argparse.ArgumentParser, description: str) -> None:
    """Add the flags with the rules of a policy."""
    group = parser.add_argument_group("rules for its commands", description)
    group.add_argument(
        "--deny", metavar="CMD", action="append", help="a command that must not run, such as 'git push' (repeat)"
    )
    group.add_argument("--allow", metavar="CMD", action="append", help="only such commands may run (repeat)")
    group.add_argument(
        "--redirect",
        metavar="PATTERN",
        action="append",
        help="the only files that redirections may write, such as '/tmp/**' (repeat; default with --allow: none)",
    )
    group.add_argument("--strict", action="store_true", help="refuse what cannot be judged: $CMD, curl x | bash")
    group.add_argument(
        "--approvals",
        action="store_true",
        help="a command that the rules do not allow waits for a person (see `shellsession approvals`); without --allow"
        " and --redirect each command does",
    )
    group.add_argument("--redact", action="store_true", help="mask keys, tokens and passwords of known forms")


def add_max_chars(parser: argparse.ArgumentParser) -> None:
    parser.add_argument_group("limits of its results").add_argument(
        "--max-chars",
        metavar="N",
        type=arguments.positive,
        help="a result keeps N bytes of each stream, half from its start and half from its end (default: 1 MiB)",
    )


def options_of(args: argparse.Namespace, asks: bool = False) -> SessionOptions:
    """The options of the session that the flags make. ``asks``: the caller asks about what the flags do not allow."""
    options: SessionOptions = {}
    if args.first_cwd is not None:
        options["cwd"] = _expanded(args.first_cwd)
    if args.extra_env is not None:
        options["extra_env"] = dict(args.extra_env)
    if args.branch is not None:
        options["branch"] = _expanded(args.branch)
    if args.auto_checkpoints is not None:
        options["auto_checkpoints"] = args.auto_checkpoints
    if args.startup is not None:
        options["startup"] = args.startup
    if (sandbox := _sandbox(args)) is not None:
        options["sandbox"] = sandbox
    if args.redact:
        options["redact"] = True
    rules = _rules(args)
    if asks:
        rules = {name: rule for name, rule in rules.items() if name not in ("allow", "write")}
    if rules:
        options["policy"] = _policy(rules)
    return options


def output_limits(max_chars: int | None) -> SessionOptions:
    """The option for ``--max-chars`` of ``run`` and ``serve``."""
    return {} if max_chars is None else {"limits": Limits(max_output=max_chars)}


def asking_policy(args: argparse.Namespace, confirm: Any) -> Policy:
    """The policy of a client that asks with ``confirm``: about all commands, or what the flags do not allow."""
    if args.approvals:
        raise InvalidRequest("--confirm asks here, and --approvals has the question wait: choose one")
    return _policy({**_rules(args), "confirm": confirm, "confirm_timeout": None})


def _rules(args: argparse.Namespace) -> dict[str, Any]:
    """The rules that were given."""
    redirect = args.redirect and [os.path.abspath(os.path.expanduser(one)) for one in args.redirect]
    rules = {"deny_commands": args.deny, "allow": args.allow, "write": redirect, "strict": args.strict or None}
    rules["confirm"] = "queue" if args.approvals else None
    return {name: rule for name, rule in rules.items() if rule is not None}


def _policy(rules: dict[str, Any]) -> Policy:
    from ..policy.rules import Policy  # 13 ms

    return Policy(**rules)


def _sandbox(args: argparse.Namespace) -> Sandbox | None:
    given = {name: value for name in _OF_SANDBOX if (value := getattr(args, name)) is not None and value is not False}
    if not args.sandbox:
        if given:
            raise InvalidRequest(f"--{next(iter(given)).replace('_', '-')} belongs to a sandbox: add --sandbox")
        return None
    from ..sandbox import Sandbox

    for name in ("write", "hide"):
        given[name] = [_placed(name, path, args) for path in given.get(name, ())]
    return Sandbox(**given)


def _placed(name: str, typed: str, args: argparse.Namespace) -> str:
    """The absolute path for one of ``--write`` or ``--hide``. A relative one is below the session's first directory.

    Raises InvalidRequest, also for a ``--write`` that makes everything writable and does not look like it: an MCP
    client may start the server anywhere, often in /.
    """
    if not typed:  # such as an unset variable
        raise InvalidRequest(f"--{name} is empty: name a path, or leave it out")
    path = os.path.join(_expanded(args.first_cwd or ""), _expanded(typed))
    if not os.path.isabs(path) and not getattr(args.socket, "is_local", True):
        raise InvalidRequest(f"--{name} is {typed!r}: a session elsewhere (via) needs an absolute path")
    path = absolute(path)
    if name == "write" and typed != "/" and not os.path.realpath(path).strip("/"):
        raise InvalidRequest(
            f"--write {typed!r} is / here, and the whole file system would be writable: name the directory, or write"
            " --write / if you mean that"
        )
    return path


def _expanded(path: str) -> str:
    """The path with the home for ``~``: no shell reads the configuration of an MCP client."""
    return os.path.expanduser(path)
