"""What a text of bash runs: the commands in it, and those that these start (``env``, ``sudo``, ``bash -c``, ...).

Law: what cannot be known before it runs is said to be unknown, and never taken for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from .grammar import MAX_READ, Simple, parse
from .starters import ALL, Starter, flags_of, option_of, starter_of, until
from .subcommands import subcommand
from .words import Word

# Texts within texts (bash -c 'bash -c ...'): whoever needs more has something else in mind.
_DEEPEST: Final = 8
# Bytes of all texts and words of all commands together: what is within another one is read again.
_MOST: Final = 1 << 20
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=.*", re.DOTALL)
_SHELLS: Final = frozenset(
    {"bash", "sh", "dash", "ash", "zsh", "ksh", "mksh", "rbash", "fish", "csh", "tcsh"}  # all have -c, and words
)


@dataclass(frozen=True, slots=True)
class Run:
    """What a text runs, as far as the text says.

    ``commands``: the words of each; a word that is known at run time only is None. ``unknown``: what cannot be known,
    in words. ``fault``: what of the text is no bash, in words ("" when all of it is).
    """

    commands: tuple[tuple[Word, ...], ...]
    unknown: tuple[str, ...] = ()
    fault: str = ""


# After `time` and `coproc` these are no names; of what follows the grammar knows nothing.
_RESERVED: Final = frozenset({"{", "(", "!", "if", "while", "until", "for", "case", "select", "[["})
# Variables whose value is a text of bash, or the name of a command, and those that load something else.
_RUN: Final = frozenset(
    {"PAGER", "EDITOR", "VISUAL", "BROWSER", "LESSOPEN", "PROMPT_COMMAND", "PS0", "PS4", "SSH_ASKPASS"}
)
_RUN_BY_GIT: Final = re.compile(r"GIT_(?:\w*_)?(?:COMMAND|EDITOR|PAGER|ASKPASS|DIFF|SSH)")
_LOADED: Final = frozenset({"BASH_ENV", "LD_PRELOAD", "LD_AUDIT", "SHELLOPTS", "BASHOPTS"})
# Settings of git whose value is one; an alias is one after a "!".
_GIT_RUNS: Final = re.compile(
    r"(?i)core\.(?:pager|editor|sshcommand|fsmonitor|askpass)|pager\..*|sequence\.editor|diff\.external|gpg\..*program"
    r"|credential\..*helper|.*\.(?:cmd|textconv|command|clean|smudge|process|driver)"
)
_STDIN: Final = frozenset({"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


def commands(source: bytes) -> Run:
    """What the text runs. Raises InvalidRequest where the parser is missing."""
    return _Reader().read(source)


class _TooMuch(Exception):
    """So much is not read."""


class _Reader:
    """Reads texts, and the texts in them."""

    def __init__(self) -> None:
        self._spent = 0
        self.commands: list[tuple[Word, ...]] = []
        self.unknown: list[str] = []
        self.fault = ""

    def read(self, source: bytes) -> Run:
        try:
            self._text(source, 0)
        except _TooMuch:
            self.unknown.append("a command behind too many others")
        return Run(tuple(self.commands), tuple(dict.fromkeys(self.unknown)), self.fault)

    def _spend(self, size: int) -> None:
        self._spent += size
        if self._spent > _MOST:
            raise _TooMuch

    def _text(self, source: bytes, depth: int) -> None:
        self._spend(min(len(source), MAX_READ))
        if depth > _DEEPEST:
            self.unknown.append("a text within too many others")
            return
        text = parse(source)
        self.fault = self.fault or text.fault
        for name, value in text.assignments:
            self._assigned(name, value, depth)
        for simple in text.commands:
            self._command(simple, depth)

    def _assigned(self, name: str, value: Word, depth: int) -> None:
        if name in _LOADED:
            self.unknown.append(f"what {name} loads")
        elif name in _RUN or _RUN_BY_GIT.fullmatch(name):
            self._script(name, value, depth)

    def _script(self, what: str, text: Word, depth: int) -> None:
        if text is None:
            self.unknown.append(f"the text that {what} runs")
        else:
            self._text(text.encode("utf-8", "surrogateescape"), depth + 1)

    def _command(self, simple: Simple, depth: int) -> None:
        words = simple.words
        while words:
            self._spend(len(words))
            if depth > _DEEPEST:
                self.unknown.append("a command within too many others")
                return
            self.commands.append(words)
            if words[0] is None:
                self.unknown.append("the name of a command")
                return
            name = words[0].rpartition("/")[2]
            special = _SPECIAL.get(name) or (_Reader._shell if name in _SHELLS else None)
            if special is not None:
                special(self, name, simple, words, depth)
                return
            starter, words = starter_of(words)
            words = () if starter is None else self._started(name, starter, simple, words, depth)

    def _started(
        self, name: str, starter: Starter, simple: Simple, words: tuple[Word, ...], depth: int
    ) -> tuple[Word, ...]:
        """The words of the command that is started; none when there is none, or none that is known."""
        texts = starter.texts.split()
        takes = {*starter.options.split(), *starter.unless.split(), *texts}
        rest, operands, shell = list(words[1:]), starter.operands, starter.shell
        if starter.unless and not any(word in flags_of(starter.unless) for word in rest):
            operands = ALL
        while rest:
            word = rest.pop(0)
            if word is None and operands:
                self.unknown.append(f"what {name} starts")
                operands -= 1
            elif word is None:
                rest.insert(0, word)
                break
            elif word == "--":
                takes = set()
            elif word.startswith("-") and len(word) > 1:
                flags, option, value = option_of(word, takes, starter.flags.split())
                if set(starter.only_looks.split()) & set(flags):
                    return ()
                if option and value == "":
                    value = rest.pop(0) if rest else ""
                if option in texts:
                    self._script(name, value, depth)
                    shell = False
            elif starter.assignments and word == "-":
                continue
            elif starter.assignments and _ASSIGNMENT.fullmatch(word):
                variable, _, value = word.partition("=")
                self._assigned(variable.removesuffix("+"), value, depth)
            elif operands:
                operands -= 1
            elif starter.joined:
                self._joined(name, until((word, *rest), starter.ends), depth)
                return ()
            elif name == "coproc" and rest and rest[0] in ("{", "("):
                rest.pop(0)  # it was the name
            elif word in _RESERVED:
                rest.append(None)
                break
            else:
                return (word, *rest)
        if rest and starter.joined:
            self._joined(name, until(tuple(rest), starter.ends), depth)
        elif rest:
            self.unknown.append(f"what {name} starts")
        elif starter.ends:
            self.unknown.append(f"what {name} reads")
        elif shell:
            self._input(name, simple, "", depth)
        return ()

    # -- those that are not like the others

    def _shell(self, name: str, simple: Simple, words: tuple[Word, ...], depth: int) -> None:
        rest, has_text = list(words[1:]), False
        while rest:
            word = rest.pop(0)
            if word is None:
                break
            if word in ("--", "-"):
                word = rest.pop(0) if rest else ""
            elif word.startswith("--"):
                if word in ("--rcfile", "--init-file"):
                    rest[:1] = []
                continue
            elif word[:1] in ("-", "+") and len(word) > 1:
                has_text = has_text or (word[0] == "-" and "c" in word)
                if word[-1] in "oO":
                    rest[:1] = []
                if "s" not in word:
                    continue
                rest, word = [], ""
            if has_text:
                self._script(name, word, depth)
                return
            if word and word not in _STDIN:
                return  # the file that it runs is named
            break
        else:
            word = ""
        self._input(name, simple, None if word is None else "", depth)

    def _input(self, name: str, simple: Simple, word: Word, depth: int) -> None:
        """What a shell reads, when it is no file with a name."""
        if word is None or simple.fed is None:
            self.unknown.append(f"what {name} reads")
            return
        self._script(name, simple.fed, depth)
        if simple.live:
            self.unknown.append(f"all that {name} reads")

    def _source(self, name: str, simple: Simple, words: tuple[Word, ...], depth: int) -> None:
        for word in words[2:3] if words[1:2] == ("--",) else words[1:2]:
            if word is None or word in _STDIN:
                self._input(name, simple, word, depth)

    def _alias(self, name: str, simple: Simple, words: tuple[Word, ...], depth: int) -> None:
        for word in words[1:]:
            if word is None or "=" in word:
                self._script(name, None if word is None else word.partition("=")[2], depth)

    def _eval(self, name: str, simple: Simple, words: tuple[Word, ...], depth: int) -> None:
        self._joined(name, words[2:] if words[1:2] == ("--",) else words[1:], depth)

    def _joined(self, name: str, words: tuple[Word, ...], depth: int) -> None:
        known = [word for word in words if word is not None]
        self._script(name, " ".join(known) if len(known) == len(words) else None, depth)

    def _hash(self, name: str, simple: Simple, words: tuple[Word, ...], depth: int) -> None:
        for flag, path in pairwise(words):
            if flag == "-p":  # from here on another name for it
                self._command(Simple((path,)), depth + 1)

    def _at(self, name: str, simple: Simple, words: tuple[Word, ...], depth: int) -> None:
        if not {"-f", "-l", "-r", "-c"} & set(words):
            self._input(name, simple, "", depth)

    def _git(self, name: str, simple: Simple, words: tuple[Word, ...], depth: int) -> None:
        at = subcommand(words, known=True)
        rest = list(words[at:])
        for option, setting in pairwise(words[1:at]):
            if option == "-c":
                self._git_setting(setting and setting.partition("=")[0], setting and setting.partition("=")[2], depth)
        match rest:
            case ["config", *operands]:
                for setting, value in pairwise(operands):
                    self._git_setting(setting, value, depth)
            case ["bisect", "run", *inner] if inner:
                self._command(Simple(tuple(inner)), depth + 1)
            case ["submodule", *_] if "foreach" in rest:
                inner = rest[rest.index("foreach") + 1 :]
                self._joined(name, tuple(inner[inner[:1] == ["--recursive"] :]), depth)
            case ["rebase", *options]:
                for flag, text in pairwise((*options, "")):
                    if flag in ("-x", "-ix", "--exec"):
                        self._script(name, text, depth)
                    elif flag is not None and flag.startswith("--exec="):
                        self._script(name, flag.partition("=")[2], depth)

    def _git_setting(self, setting: Word, value: Word, depth: int) -> None:
        alias = setting is not None and setting.lower().startswith("alias.")
        if setting is None or (alias and value is None):
            self.unknown.append("a setting of git")
        elif (alias and value and value.startswith("!")) or (not alias and _GIT_RUNS.fullmatch(setting)):
            self._script("git", value and value.removeprefix("!"), depth)
        elif alias and value:
            self.commands.append(("git", *value.split()))

    def _trap(self, name: str, simple: Simple, words: tuple[Word, ...], depth: int) -> None:
        operands = [word for word in words[1:] if word not in ("--", "-p", "-l")]
        if len(operands) > 1:
            self._script(name, operands[0], depth)

    def _find(self, name: str, simple: Simple, words: tuple[Word, ...], depth: int) -> None:
        for index, word in enumerate(words):
            if word in ("-exec", "-execdir", "-ok", "-okdir"):
                inner = words[index + 1 :]
                ends = [at for at, one in enumerate(inner) if one in (";", "+")]
                self._command(Simple(inner[: ends[0]] if ends else inner), depth + 1)


_Special = Callable[[_Reader, str, Simple, tuple[Word, ...], int], None]
_SPECIAL: Final[dict[str, _Special]] = {
    "eval": _Reader._eval,
    "source": _Reader._source,
    ".": _Reader._source,
    "alias": _Reader._alias,
    "hash": _Reader._hash,
    "at": _Reader._at,
    "batch": _Reader._at,
    "git": _Reader._git,
    "trap": _Reader._trap,
    "find": _Reader._find,
}


def shown(run: Run) -> Iterator[str]:
    """Each command in one line, as it is told to people; a word that is not known is ``?``."""
    for words in run.commands:
        yield " ".join("?" if word is None else word for word in words)
