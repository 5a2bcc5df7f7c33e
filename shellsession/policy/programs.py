"""Two tables: the programs that start other commands, and the options of programs that take a word.

To teach a policy another program, add a row. A policy assumes that a program without a row starts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Final, NamedTuple

from .grammar import UNKNOWN

_ALL: Final = 1 << 30  # every word is an operand: the other command is never among them


@dataclass(frozen=True, slots=True)
class Starter:
    """Where a program's arguments contain the command that it starts. Options are written without dashes.

    ``takes``: options that take a word.
    ``operands``: how many words of its own come before the command.
    ``assigns``: ``NAME=value`` may come before the command, too.
    ``texts``: options whose word is a text for a shell.
    ``joined``: all words of the command form one text for a shell.
    ``shell``: without a command, the program starts a shell that reads its standard input.
    ``idle``: options with which the program starts nothing.
    ``appends``: the program appends words to the command.
    ``begins``: words that are each followed by a command, up to ``;`` or ``+``.
    """

    takes: str = ""
    operands: int = 0
    assigns: bool = False
    texts: str = ""
    joined: bool = False
    shell: bool = False
    idle: str = ""
    appends: bool = False
    begins: str = ""


SHELLS: Final = frozenset({"bash", "sh", "dash", "ash", "zsh", "ksh", "fish", "csh", "tcsh"})

_PLAIN: Final = Starter()
_NODE: Final = Starter("p w package workspace", texts="c call")
_EXEC: Final = Starter("e u w env env-file index user workdir detach-keys", 1)
_RUN: Final = Starter(
    "a c e h l m p u v w add-host cap-add cap-drop cpus device dns entrypoint env env-file expose gpus hostname ip"
    " label log-driver log-opt memory mount name net network platform pull restart runtime security-opt shm-size"
    " stop-signal tmpfs ulimit user userns volume volumes-from workdir",
    1,
)
_TMUX: Final = Starter("c e F l n s t x y", joined=True)

# By name, or by name and subcommand.
STARTERS: Final[dict[str, Starter]] = {
    # bash
    "eval": Starter(joined=True),
    "exec": Starter("a"),
    "command": Starter(idle="v V"),
    **dict.fromkeys(("builtin", "coproc"), _PLAIN),
    "time": Starter("f o format output", assigns=True),
    # another user, root, machine or container
    "sudo": Starter(
        "C D g h p R r T t U u user group host chdir chroot prompt close-from command-timeout other-user role type",
        assigns=True,
        idle="e K l v edit list validate remove-timestamp",
        shell=True,
    ),
    "doas": Starter("C u", shell=True),
    "su": Starter("g G s w group shell", _ALL, texts="c command session-command", shell=True),
    "pkexec": Starter("u user", shell=True),
    "chroot": Starter("userspec groups", 1, shell=True),
    "ssh": Starter("B b c D E e F I i J L l m O o P p Q R S W w", 1, joined=True, shell=True, idle="N G O Q V W"),
    **{f"{name} exec": _EXEC for name in ("docker", "podman", "docker compose", "docker-compose")},
    **{f"{name} run": _RUN for name in ("docker", "podman", "docker compose", "docker-compose")},
    **{f"{name} container exec": _EXEC for name in ("docker", "podman")},
    "kubectl exec": Starter("n namespace c container f filename context", 1),
    # other limits, environment or terminal
    "env": Starter("u C unset chdir", assigns=True, texts="S split-string"),
    "nohup": _PLAIN,
    "setsid": _PLAIN,
    "nice": Starter("n adjustment"),
    "ionice": Starter("c n class classdata", idle="p"),
    "taskset": Starter("", 1, idle="p"),
    "timeout": Starter("k s kill-after signal", 1),
    "stdbuf": Starter("i o e input output error"),
    "flock": Starter("w E timeout wait conflict-exit-code", 1, texts="c command"),
    "script": Starter("E I m o O T echo log-in log-io log-out log-timing", _ALL, texts="c command"),
    "systemd-run": Starter("u p E M H unit property description slice setenv uid gid working-directory"),
    "xvfb-run": Starter("n e f s w p server-num error-file auth-file server-args"),
    "busybox": _PLAIN,
    **{
        f"tmux {verb}": _TMUX
        for verb in ("new", "new-session", "neww", "new-window", "splitw", "split-window", "send", "send-keys")
    },
    "screen": Starter("c e h p S s t T", idle="r x X ls list"),
    # repeatedly, or under observation
    "find": Starter(begins="-exec -execdir -ok -okdir"),
    **dict.fromkeys(("fd", "fdfind"), Starter(begins="-x -X --exec --exec-batch", appends=True)),
    "xargs": Starter("a d E I L n P s arg-file delimiter max-args max-procs max-chars process-slot-var", appends=True),
    "parallel": Starter("a j n N S I arg-file colsep delay jobs joblog max-args retries timeout", joined=True),
    "watch": Starter("n interval", joined=True),
    "entr": Starter(texts="s"),
    "strace": Starter("a b e E I o O p P s S u U X trace attach output string-limit user"),
    "git bisect run": _PLAIN,
    "git submodule foreach": Starter(joined=True),
    "git rebase": Starter("C s X onto", _ALL, texts="x exec"),
    # the environment of a project
    **dict.fromkeys(("npx", "bunx", "npm exec", "npm x", "pnpm exec", "pnpm dlx", "yarn exec", "yarn dlx"), _NODE),
    "uv run": Starter("p w python with with-requirements extra group package env-file directory project"),
    **dict.fromkeys(("uvx", "uv tool run"), Starter("p w python with from")),
    "pipx run": Starter("python spec pip-args"),
    **dict.fromkeys(("poetry run", "pipenv run", "pdm run", "hatch run", "rye run", "bundle exec"), _PLAIN),
    **dict.fromkeys(("conda run", "mamba run"), Starter("n p name prefix cwd")),
}

_CONTAINERS: Final = "c config context H host l log-level"
# Options before the subcommand that take a word. Any option of a program that is not in this table may take one.
OPTIONS: Final[dict[str, frozenset[str]]] = {
    name: frozenset(options.split())
    for name, options in {
        "git": "C c git-dir work-tree namespace super-prefix config-env",
        **dict.fromkeys(("docker", "podman"), _CONTAINERS),
        **dict.fromkeys(
            ("docker-compose", "docker compose"), "f file p project-name profile env-file project-directory"
        ),
        "kubectl": "n namespace s server context cluster user kubeconfig token as",
        **dict.fromkeys(("npm", "pnpm", "yarn"), "C prefix cwd dir w workspace registry userconfig cache loglevel tag"),
        **dict.fromkeys(("pip", "pip3"), "python log proxy retries timeout cache-dir"),
        **dict.fromkeys(("apt", "apt-get"), "o option c config-file t target-release"),
        "uv": "directory project config-file cache-dir color",
        "poetry": "C directory P project",
        "cargo": "C Z color config",
        "gh": "R repo",
        "systemctl": "H host M machine t type p property n lines o output s signal",
        "tmux": "L S f T c",
    }.items()
}
# Every proper prefix of a key of ``STARTERS``: "docker" and "docker container" of "docker container exec".
_GROUPS: Final = {" ".join(words[:at]) for words in map(str.split, STARTERS) for at in range(1, len(words))}
# The beginning of an assignment in bash.
ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=", re.ASCII)


def base_name(word: str) -> str:
    """The name of a program without its directory."""
    return word.rpartition("/")[2]


def starter_of(words: Sequence[str]) -> tuple[Starter | None, Sequence[str]]:
    """The row of a command (None: it has none), and its words from the program's name or its subcommand on."""
    name = base_name(words[0])
    while name not in STARTERS:
        if name not in _GROUPS:
            return None, words
        at = next((at for at in subcommands(name, words) if UNKNOWN not in words[at]), 0)
        if not at:
            return None, words
        name, words = f"{name} {words[at]}", words[at:]
    return STARTERS[name], words


def subcommands(name: str, words: Sequence[str]) -> Iterator[int]:
    """Yield each index at which the program's subcommand can be, the likeliest first.

    The subcommand is the first word that is neither an option, nor the word of an option, nor ``NAME=value``. An option
    of a program that is not in the table may take a word: then the word after it may be the subcommand, and so may the
    next one. A word that is known only at run time may be anything.
    """
    takes = OPTIONS.get(name)
    at, may_be_taken = 1, False
    while at < len(words):
        word = words[at]
        at += 1
        if word[:1] in ("-", "+") and word != "-":
            if takes is not None and word in ("--help", "--version"):
                return
            at += takes is not None and option_of(word, takes).follows
            may_be_taken = takes is None and "=" not in word
        elif not ASSIGNMENT.match(word):
            yield at - 1
            if not may_be_taken and not word.startswith(UNKNOWN):
                return
            may_be_taken = False


class Option(NamedTuple):
    """A parsed option word.

    ``flags``: the letters in it that take no word. ``name``: its long name, or the letter that takes a word.
    ``value``: the word it takes, if that is joined to it. ``follows``: that word is the next one instead.
    """

    flags: str
    name: str
    value: str
    follows: bool


def option_of(word: str, takes: Set[str]) -> Option:
    """Parse an option word. ``takes``: the options that take a word."""
    if word.startswith("--"):
        name, is_here, value = word[2:].partition("=")
        return Option("", name, value, name in takes and not is_here)
    for at, letter in enumerate(word[1:], 1):
        if letter in takes:
            return Option(word[1:at], letter, word[at + 1 :], at + 1 == len(word))
    return Option(word[1:], "", "", False)
