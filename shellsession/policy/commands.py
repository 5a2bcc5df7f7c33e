"""Find the commands that a bash text runs, those that these start (``env``, ``sudo``, ``bash -c``), and what it writes.

A part that is known only at run time is recorded as unknown; it is never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from .grammar import UNKNOWN, HereDocument, TextTooLong, parse
from .programs import ASSIGNMENT, SHELLS, Starter, base_name, option_of, starter_of

# Processor time for one text, in seconds. Others in the daemon wait for it; 64 KiB of usual bash take 0.02 s.
_MAX_SECONDS: Final = 0.2
# Limits: how deeply texts may nest (bash -c "bash -c ..."), and how long all texts and commands are together.
_MAX_DEPTH: Final = 8
_MAX_CHARACTERS: Final = 1 << 20

# Keywords that the grammar takes for command names after a word it does not know (time if a; then b; fi).
_BEFORE_COMMAND: Final = frozenset({"{", "!", "if", "then", "elif", "else", "while", "until", "do"})
_NO_COMMAND: Final = frozenset({"}", "fi", "done", "esac", "for", "case", "select", "function"})
_ASSIGNING: Final = frozenset({"export", "declare", "typeset", "local", "readonly", "env"})
# These variables change which program a name means.
_LOOKUP_VARIABLE: Final = re.compile(r"PATH|ENV|BASH_ENV|LD_\w+")
# These may change the working directory.
_MOVING: Final = frozenset({"cd", "pushd", "popd", "source", "."})
_STDIN: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


@dataclass(slots=True)
class Analysis:
    """What a text runs, as far as the text says.

    ``commands``: the words of each command; ``UNKNOWN`` stands for a part that is known only at run time.
    ``unknown``: a description of each thing that runs and is not in the text.
    ``fault``: where the text could not be parsed as bash, or "".
    ``unread``: why the text was not read to its end, or "".
    ``lookup_variable``: a variable the text sets that changes which program a name means (PATH), or "".
    ``written``: the targets of redirections that write. A relative one that a text does not have where the session is
    begins with ``UNKNOWN``.
    """

    commands: list[tuple[str, ...]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    fault: str = ""
    unread: str = ""
    lookup_variable: str = ""
    written: list[str] = field(default_factory=list)


def analyze(text: str, clock: Callable[[], float] = float) -> Analysis:
    """Analyze a bash text. Raises InvalidRequest if the parser is not installed.

    ``clock`` returns seconds of processor time. By default no time passes.
    """
    end = clock() + _MAX_SECONDS
    reader = _Analyzer(lambda: clock() > end)
    try:
        reader.read(text, 0)
    except TextTooLong as reason:
        reader.analysis.unread = str(reason)
    analysis = reader.analysis
    if any(UNKNOWN in words[0] or base_name(words[0]) in _MOVING for words in analysis.commands):
        analysis.written = [_elsewhere(path) for path in analysis.written]
    return analysis


def _elsewhere(path: str) -> str:
    """The path, as one that is not known if it starts in the working directory."""
    return path if path.startswith("/") else UNKNOWN + path


def lookup_variable(names: Iterable[str]) -> str:
    """Return the first name of a variable that changes which program a name means, or ""."""
    return next(filter(_LOOKUP_VARIABLE.fullmatch, names), "")


def one_line(words: Sequence[str]) -> str:
    """The command in one line, for messages and patterns; ``?`` stands for each part known only at run time."""
    return " ".join(words).replace(UNKNOWN, "?")


class _Analyzer:
    """Reads a text, and every text and command that it runs, into one ``Analysis``."""

    def __init__(self, expired: Callable[[], bool]) -> None:
        self.analysis = Analysis()
        self._documents: dict[str, HereDocument] = {}
        self._spent = 0
        self._expired = expired

    def read(self, text: str, depth: int, stdin: str | None = None) -> None:
        """Add what the text runs. ``stdin``: the input its commands inherit, if known. Raises TextTooLong."""
        self._spend(len(text))
        if depth > _MAX_DEPTH:
            raise TextTooLong(f"over {_MAX_DEPTH} texts nested in each other")
        script = parse(text, self._documents, self._expired)
        self.analysis.fault = self.analysis.fault or script.fault
        # A program that starts a shell may do so in another directory (`env -C`).
        self.analysis.written += map(_elsewhere, script.written) if depth else script.written
        self._note_assignments(script.assigned)
        for words, own in script.commands:
            todo: list[Sequence[str]] = [words]
            while todo:
                todo += self._started(todo.pop(), stdin if own is None else own, depth)

    def _spend(self, size: int) -> None:
        self._spent += size
        if self._spent > _MAX_CHARACTERS:
            raise TextTooLong(f"over {_MAX_CHARACTERS} characters, nested texts included")

    def _note_assignments(self, names: Sequence[str]) -> None:
        self.analysis.lookup_variable = self.analysis.lookup_variable or lookup_variable(names)

    def _started(self, words: Sequence[str], stdin: str | None, depth: int) -> Iterator[Sequence[str]]:
        """Add a command and the texts that it runs; yield the commands that it starts."""
        while words and (words[0] in _BEFORE_COMMAND or ASSIGNMENT.match(words[0])):
            words = words[1:]
        if not words or words[0] in _NO_COMMAND:
            return
        self._spend(sum(map(len, words)))
        self.analysis.commands.append(tuple(words))
        if UNKNOWN in words[0]:
            self.analysis.unknown.append("the name of a command")
        name = base_name(words[0])
        if name in _ASSIGNING:
            self._note_assignments([word.partition("=")[0] for word in words[1:] if "=" in word])
        for found in started_by(words):
            if isinstance(found, tuple):
                yield found
            elif found is not None:
                self._read_inner(name, found, depth, stdin)
            elif stdin is not None:
                self._read_inner(name, stdin, depth)
            else:
                self.analysis.unknown.append(f"what {name} reads")

    def _read_inner(self, name: str, text: str, depth: int, stdin: str | None = None) -> None:
        if UNKNOWN in text:
            self.analysis.unknown.append(f"the text that {name} runs")
        if text.strip() != UNKNOWN:
            self.read(text, depth + 1, stdin)


# What a command starts: the words of another command, a text for a shell, or None for a shell that reads its stdin.
Inner = tuple[str, ...] | str | None


def started_by(words: Sequence[str]) -> Iterator[Inner]:
    """Yield what a command of these words starts."""
    name = base_name(words[0])
    if name in SHELLS:
        yield from _by_shell([*words[1:]])
    elif name in ("source", "."):
        yield from _by_file([word for word in words[1:] if word != "--"])
    elif name == "trap":
        operands = [word for word in words[1:] if word and not word.startswith("-")]
        yield from operands[:1] if len(operands) > 1 else ()
    elif name == "alias":
        yield from (text for _, is_set, text in (word.partition("=") for word in words[1:]) if is_set)
    else:
        starter, words = starter_of(words)
        if starter is not None:
            yield from _by_words(starter, words) if starter.begins else _by_options(starter, words)


def _by_shell(words: list[str]) -> Iterator[Inner]:
    letters = ""
    while words and words[0][:1] in ("-", "+") and words[0] != "-":
        option = words.pop(0)
        if option == "--":
            break
        if option in ("--version", "--help"):
            return
        if option.startswith("--"):
            del words[: option in ("--rcfile", "--init-file")]
        else:
            letters += option[1:]
            del words[: option.count("o") + option.count("O")]  # each of these letters takes a word
    if "c" in letters:
        yield from words[:1]
    elif "s" in letters or not words:
        yield None
    else:
        yield from _by_file(words)


def _by_file(operands: Sequence[str]) -> Iterator[Inner]:
    """Yield what a shell runs when it is given these operands. A named file is not opened."""
    for path in operands[:1]:
        if path in _STDIN:
            yield None
        elif UNKNOWN in path:
            yield UNKNOWN


def _by_words(starter: Starter, words: Sequence[str]) -> Iterator[Inner]:
    begins, rest = starter.begins.split(), iter(words)
    for word in rest:
        if word in begins:
            command = takewhile(lambda one: one not in (";", "+"), rest)
            yield tuple(one.replace("{}", UNKNOWN) for one in command)


def _by_options(starter: Starter, words: Sequence[str]) -> Iterator[Inner]:
    texts, idle = {*starter.texts.split()}, {*starter.idle.split()}
    takes = {*starter.takes.split()} | texts
    operands, at, is_option, has_text = starter.operands, 1, True, False
    while at < len(words):
        word = words[at]
        if is_option and word.startswith("-"):
            is_option = word != "--"
            flags, name, value, follows = option_of(word, takes)
            at += follows
            if idle & {*flags, name}:
                return
            if name in texts:
                has_text = True
                yield from words[at : at + 1] if follows else (value,)
        elif not (starter.assigns and "=" in word):
            if not operands:
                break
            operands -= 1
        at += 1
    command = words[at:]
    if not command:
        yield from (None,) if starter.shell and not has_text else ()
    elif starter.joined:
        yield " ".join(takewhile(lambda word: word != ":::", command))  # the arguments of parallel follow ":::"
    elif starter.appends:
        yield (*(word.replace("{}", UNKNOWN) for word in command), UNKNOWN)
    else:
        yield tuple(command)
