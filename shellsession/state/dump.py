"""The line that makes bash list its state, and the parser of what it lists. Pure.

The line has no reserved word, for which an alias could stand, and runs only builtins; bash starts no process for it.
Sections end in NUL, which no value of bash's contains.

Law: what bash prints is data. It is parsed here, and no bash ever reads it, but for the definitions of functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from types import MappingProxyType
from typing import Final

from ..errors import SnapshotDamaged
from .snapshot import Snapshot
from .values import OWN, Function, Variable
from .writing import quote

# `|| ((1))`: no failure here may end the shell (`set -e`) or run an ERR trap.
_SECTION: Final = rb" || ((1)); \builtin printf '\0' || ((1)); "
_COUNTED: Final = rb"""\builtin printf '%s\0' "$#" "$@" "${#DIRSTACK[@]}" "${DIRSTACK[@]}" || ((1)); """
_LISTS: Final = (
    # Not BASHOPTS: after `set -o posix` or BASH_COMPAT=4.4, bash does not list there what these have set.
    *(b"declare -p", b"declare -F", b"declare -f", b"alias -p", b"trap -p", b"enable -n", b"complete -p", b"shopt -s"),
    rb"printf END",
)
_LISTING: Final = _COUNTED + b"".join(b"\\builtin " + words + _SECTION for words in _LISTS)
# A bash that ends is listed by a subshell, which writes at most this many KiB.
_ROOM: Final = 1 << 17
_BEFORE_LISTING: Final = (
    rb"""\builtin printf '%s ' "${FUNCNAME[@]-}" || ((1)); \builtin printf '\0%s\0' "${DIRSTACK-}" || ((1)); """
    rb"\builtin umask" + _SECTION
)
# Bash lists a local variable in the place of the global one. `declare -gt` marks the global one (for bash, the mark
# means nothing). In a function, `unset` removes what its callers see, and brings to light what that has hidden.
_LAYERS: Final = (
    rb"""\builtin mapfile -t __names <<<"$(\builtin compgen -v)" || ((1)); """
    rb"""\builtin declare -gt -- "${__names[@]}" || ((1)); \builtin declare -p"""
    + _SECTION
    + rb"""__peel() { \builtin unset -v -- "$@"; \builtin declare -p; \builtin printf '\0'; }; """
    + rb"""__peel "${__names[@]}" || ((1)); """ * 6
)
# What FUNCNAME has where no function runs.
_NO_FUNCTION: Final = frozenset({"source", "main"})


class AmbiguousFunctions(Exception):
    """A function contains what looks like the beginning of another one: bash must list each by itself.

    ``names``: the names of all functions.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = names


def listing_line(path: bytes) -> bytes:
    """Return the line that makes bash list its state to the file at ``path``."""
    return _into(path, _LISTING)


def functions_line(path: bytes, names: Sequence[str]) -> bytes:
    """Return the text that makes bash list these functions to the file at ``path``, each with a NUL at its end."""
    return _into(path, b"".join(b"\\builtin declare -f -- " + quote(name) + _SECTION for name in names))


def traps_line(path: bytes) -> bytes:
    """Return the line that makes bash list its traps to the file. What a DEBUG trap prints does not get there."""
    return b"\\builtin trap -p >|" + quote_path(path) + b" 2>/dev/null || ((1))"


def exit_trap(path: bytes) -> bytes:
    """Return the text of an EXIT trap that makes bash list its state to the file. ``$?`` is the same after it.

    The subshell bounds the file, and leaves everything as it is for a trap of the user, whose text may follow. As it is
    in a group, no `set -x` shows it.
    """
    return (
        b'{ ( \\builtin set -- "$?" "$@"; \\builtin ulimit -f %d; \\builtin eval -- %b >|%b; \\builtin exit "$1" )'
        b" && :; } 2>/dev/null\n" % (_ROOM, _in_quotes(_BEFORE_LISTING + _LISTING + _LAYERS), quote_path(path))
    )


def quote_path(path: bytes) -> bytes:
    """Return the quoted path."""
    return quote(path.decode("utf-8", "surrogateescape"))


def _into(path: bytes, text: bytes) -> bytes:
    return b"\\builtin eval -- " + _in_quotes(text) + b" >|" + quote_path(path) + b" 2>/dev/null || ((1))"


def _in_quotes(text: bytes) -> bytes:
    return b"'" + text.replace(b"'", rb"'\''") + b"'"


# The four ways in which bash quotes a part of a word: "..", $'..', '..' and a backslash. The rest is bare.
_QUOTED: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|\$\'[^\'\\]*+(?:\\.[^\'\\]*+)*+\'|\'[^\']*+\'|\\.'
_VALUE: Final = rf"(?:{_QUOTED}|(?!\$')[^\"'\\\s()]++)*+"
_WORD: Final = rf"(?:{_QUOTED}|(?!\$')[^\"'\\\s])++"
_KEY: Final = rf"(?:{_QUOTED}|(?!\$')[^\"'\\\]])++"
_ELEMENT: Final = re.compile(rf"[ \n]*+\[({_KEY})\]=({_VALUE})", re.DOTALL)
_DECLARATION: Final = re.compile(
    # Bash 4.4 lists names of its environment that are no identifiers, without a value.
    rf"declare -([-a-zA-Z]++) (?:([A-Za-z_][A-Za-z0-9_]*+)"
    rf"(?:=(?:({_VALUE})(?=\n)|\(((?:{_ELEMENT.pattern})*+)[ \n]*+\)))?|[^\n=]++)\n",
    re.DOTALL,
)
_OWN_LINE: Final = re.compile(rf"declare -\S+ (?:{'|'.join(sorted(OWN - {'SHELLOPTS'}))})(?:=|\Z)".encode())
_PART: Final = re.compile(rf"({_QUOTED})|[^\"'\\$]++|\$", re.DOTALL)
_ALIAS: Final = re.compile(rf"alias (?:-- )?([^\n=]++)=({_VALUE}|(?:{_WORD}))\n", re.DOTALL)
_TRAP: Final = re.compile(rf"trap -- ((?:{_WORD})) (?:SIG)?([^\n]++)\n", re.DOTALL)
# Before 5.1, bash does not quote an empty name: the line ends in a blank.
_WORDS: Final = re.compile(rf" *+({_WORD})( ?\n)?", re.DOTALL)
_HEAD: Final = " () \n"  # after the name of a function
_IN_DOUBLE: Final = re.compile(r'\\([$`"\\])')
_IN_ANSI: Final = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|c(.)|(.))", re.DOTALL)
_LETTERS: Final = dict(zip(b"abeEfnrtv\\'\"?", b"\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))


def parse(data: bytes, functions: bytes | None = None) -> Snapshot:
    """Return what bash has listed; the other fields have their defaults.

    ``functions``: what bash printed for ``functions_line``.

    Raises SnapshotDamaged, and AmbiguousFunctions if the functions must be listed one by one.
    """
    text = data.decode("utf-8", "surrogateescape")
    if not text.endswith("\0END\0"):
        raise SnapshotDamaged(f"bash has not listed its state to the end ({len(data)} bytes came)")
    parts = iter(text.split("\0"))
    try:
        arguments, (_, *directories) = _counted(parts), _counted(parts)
        declared, heads, bodies, aliases, traps, disabled, completions, shopts, _, _ = parts
    except ValueError as error:
        raise SnapshotDamaged("bash has listed its state in another form than expected") from error
    variables = dict(_variables(declared))
    return Snapshot(
        arguments=arguments,
        directories=tuple(directories),
        variables=MappingProxyType({name: one for name, one in variables.items() if name not in OWN}),
        functions=_functions(heads, bodies, functions),
        aliases=MappingProxyType({name: unquoted(value) for name, value in _all(_ALIAS, aliases)}),
        traps=parse_traps(traps),
        disabled=tuple(line.split(" ", 2)[2] for line in _lines(disabled)),
        completions=tuple(_completions(completions)),
        options=_options(variables.get("SHELLOPTS")),
        shopts=frozenset(line.split()[0] for line in _lines(shopts)),
    )


def parse_end(data: bytes, before: Snapshot) -> Snapshot:
    """Return what a bash has listed by ``exit_trap``, with its directory and its umask. Raises SnapshotDamaged.

    ``before``: an earlier snapshot. It stands in for what cannot be seen where bash has ended in a function: the
    arguments of the shell, and a variable that a local one hides for good.
    """
    running, *values = data.split(b"\0", 3)
    try:
        cwd, umask, rest = values
        listing, end, layers = rest.partition(b"\0END\0")
        ended = parse(listing + end)
        ended = ended.__replace__(
            cwd=cwd.decode("utf-8", "surrogateescape"), umask=int(umask, 8), arguments=ended.arguments[1:]
        )
    except (AmbiguousFunctions, ValueError) as error:
        raise SnapshotDamaged("bash has listed its state in another form than expected") from error
    if _NO_FUNCTION.issuperset(running.decode("utf-8", "surrogateescape").split()):
        return ended
    seen = [dict(_variables(layer)) for layer in layers.decode("utf-8", "surrogateescape").split("\0")[:-1]]
    found = {name: one for name in ended.variables if (one := _outermost(name, seen, before)) is not None}
    return ended.__replace__(variables=MappingProxyType(found), arguments=before.arguments)


def _outermost(name: str, layers: list[dict[str, Variable]], before: Snapshot) -> Variable | None:
    """Return the global variable of that name: the one with the mark, in the first layer that shows it."""
    last = before.variables.get(name)
    for layer in layers:
        if (one := layer.get(name)) is not None and "t" in one.attributes:
            one = one._replace(attributes=one.attributes.replace("t", ""))
            # If there was none, the mark has made one that has no value.
            return one if one.value is not None or one == last else None
    return last


def is_same(one: bytes, other: bytes) -> bool:
    """Return whether these listings say the same, but for variables that bash computes, such as RANDOM."""
    lists, others = one.split(b"\0"), other.split(b"\0")
    if len(lists) != len(others):
        return False
    return all(mine == its or _differ_in_own(mine, its) for mine, its in zip(lists, others, strict=True))


def _differ_in_own(one: bytes, other: bytes) -> bool:
    lines, others = one.split(b"\n"), other.split(b"\n")
    if len(lines) != len(others) or not one.startswith(b"declare "):
        return False
    return all(
        _OWN_LINE.match(mine) and _OWN_LINE.match(its) for mine, its in zip(lines, others, strict=True) if mine != its
    )


def parse_traps(text: str) -> Mapping[str, str]:
    """Return the traps that ``trap -p`` lists, by the names of signals without SIG."""
    # In posix mode, bash lists each signal that has no trap with a bare dash.
    return MappingProxyType({name: unquoted(word) for word, name in _all(_TRAP, text) if word != "-"})


def _counted(parts: Iterator[str]) -> tuple[str, ...]:
    return tuple(islice(parts, int(next(parts, ""))))


def _lines(text: str) -> list[str]:
    return text.split("\n")[:-1]  # not splitlines: a name may contain other line boundaries


def _options(variable: Variable | None) -> frozenset[str]:
    value = variable.value if variable is not None else None
    return frozenset(value.split(":")) - {""} if isinstance(value, str) else frozenset()


def _all(pattern: re.Pattern[str], text: str) -> Iterator[tuple[str, ...]]:
    """Yield the groups of each match. Raises SnapshotDamaged unless the matches are all of the text."""
    at = 0
    while at < len(text):
        if (found := pattern.match(text, at)) is None:
            raise SnapshotDamaged(f"bash has listed {text[at : at + 40]!r}, which shellsession cannot read")
        at = found.end()
        yield found.groups()


def _variables(text: str) -> Iterator[tuple[str, Variable]]:
    for flags, name, value, elements, *_ in _all(_DECLARATION, text):
        if name is None or (name in OWN and name != "SHELLOPTS"):
            continue
        attributes = _attributes(flags)
        if elements is not None:
            items = _ELEMENT.findall(elements)
            yield name, Variable(MappingProxyType({unquoted(key): unquoted(one) for key, one in items}), attributes)
        elif value is not None and not {"a", "A"}.isdisjoint(attributes):
            yield name, Variable(MappingProxyType({"0": unquoted(value)}), attributes)
        else:
            yield name, Variable(None if value is None else unquoted(value), attributes)


@cache
def _attributes(flags: str) -> str:
    return "".join(sorted(flags.replace("-", "")))


def _functions(heads: str, bodies: str, singly: bytes | None) -> Mapping[str, Function]:
    flags = {}
    for line in _lines(heads):
        _, attributes, name = line.split(" ", 2)
        flags[name] = attributes.strip("-").replace("f", "")
    if singly is not None:
        texts = singly.decode("utf-8", "surrogateescape").split("\0")
        if len(texts) != len(flags) + 1:
            raise SnapshotDamaged("bash has not listed all of its functions")
        return MappingProxyType({name: Function(text, flags[name]) for name, text in zip(flags, texts, strict=False)})
    starts = list[tuple[str, int]]()
    for at in _heads(bodies):
        name = bodies[at : bodies.find(_HEAD, at)]
        if name in flags or (name := name.removeprefix("function ")) in flags:
            starts.append((name, at))
    if [name for name, _ in starts] != list(flags):
        raise AmbiguousFunctions(list(flags))
    ends = [*(at for _, at in starts[1:]), len(bodies)]
    return MappingProxyType(
        {name: Function(bodies[at:end], flags[name]) for (name, at), end in zip(starts, ends, strict=False)}
    )


def _heads(text: str) -> Iterator[int]:
    """Yield where a line begins that may be the head of a function."""
    at = text.find(_HEAD)
    while at >= 0:
        yield text.rfind("\n", 0, at) + 1
        at = text.find(_HEAD, at + 1)


def _completions(text: str) -> Iterator[tuple[str, ...]]:
    words = list[str]()
    for word, end in _all(_WORDS, text):
        words.append(unquoted(word))
        if end:
            words += [""] * (end != "\n")
            yield tuple(words[1:])
            words = []


def unquoted(word: str) -> str:
    """Return the value of a word that bash has quoted."""
    if word.startswith('"') and "\\" not in word and word.find('"', 1) == len(word) - 1:
        return word[1:-1]
    value = "".join(map(_value, _PART.finditer(word)))
    # The bytes of one character may have come as several escapes.
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _value(part: re.Match[str]) -> str:
    quoted = part[1]
    if quoted is None:
        return part[0]
    if quoted[0] == '"':
        return _IN_DOUBLE.sub(r"\1", quoted[1:-1])
    if quoted[0] == "$":
        raw = quoted[2:-1].encode("utf-8", "surrogateescape")
        return _IN_ANSI.sub(_byte, raw).decode("utf-8", "surrogateescape") if b"\\" in raw else quoted[2:-1]
    return quoted[1:-1] if quoted[0] == "'" else quoted[1:]


def _byte(escape: re.Match[bytes]) -> bytes:
    octal, hexadecimal, control, letter = escape.groups()
    if octal is not None:
        return bytes((int(octal, 8) & 255,))
    if hexadecimal is not None:
        return bytes((int(hexadecimal, 16),))
    if control is not None:
        return bytes((control[0] & 31,))
    return bytes((_LETTERS[letter[0]],)) if letter[0] in _LETTERS else escape[0]
