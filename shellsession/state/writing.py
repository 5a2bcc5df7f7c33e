"""Writes the text that gives a fresh bash the state of a snapshot, and compares the state that it has then. Pure.

The text is ours, in ASCII, but for the definitions of functions. It sets each value before the attributes, because
``declare -i`` evaluates the value that it is given: that would run code that a value contains.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from .snapshot import Snapshot, is_name
from .values import OWN, Difference, Function, Variable

_BARE: Final = re.compile(rb"[A-Za-z0-9_/.,:@%][A-Za-z0-9_/.,:@%+-]*+")
_SPECIAL: Final = re.compile(rb"[^ -&(-\[\]-~]")
_ESCAPES: Final = {bytes((code,)): b"\\%03o" % code for code in range(256)} | {
    b"\\": b"\\\\",
    b"'": b"\\'",
    b"\n": b"\\n",
}

# What `set` and `shopt` have on, and our text may not change: line editing ends a shell without it, a restricted
# shell could not be left, and the rest means nothing at a prompt.
_FIXED_OPTIONS: Final = frozenset({"emacs", "vi", "noexec", "onecmd", "privileged", "restricted", "interactive"})
_FIXED_SHOPTS: Final = frozenset({"login_shell", "restricted_shell"})
# Reasons that shellsession knows before it tries.
_FIXED: Final = "shellsession cannot switch it on in a running shell"
# Options that act on our own text: they come last, in this order.
_ACTING: Final = ("nounset", "errtrace", "functrace", "errexit", "xtrace", "verbose")
# They act on our own text, so they are off while it runs.
_IN_THE_WAY: Final = ("allexport", "errexit", "keyword", "noclobber", "noglob", "nounset", "posix", "verbose", "xtrace")
# Set by our text, or by variables and options in it, although a fresh bash has them off.
_OPTIONS_TOUCHED: Final = frozenset({"errtrace", "functrace", "posix"})
_TOUCHED: Final = frozenset({"dotglob", "expand_aliases", "extdebug", "extglob", "inherit_errexit", "shift_verbose"})
# They change how bash works as soon as they are set, so they come last; BASH_COMPAT sets compatNN.
_LATE: Final = (
    *("POSIXLY_CORRECT", "GLOBIGNORE", "IGNOREEOF", "ignoreeof", "BASH_COMPAT", "HISTFILE", "FUNCNEST", "OPTIND"),
    *("PS0", "PS1", "PS2", "PS4", "PROMPT_COMMAND", "TMOUT"),
)
# Keys that a list `NAME=([KEY]=VALUE)` must not have: bash refuses `@` and `*` before 5.2, and loses \001 since.
_ALONE: Final = re.compile(r"\A[@*]\Z|\x01")
_LOCALE: Final = re.compile(r"LC_[A-Z]+|LANG|LANGUAGE")
# Signals whose traps would run within our text.
_LAST_TRAPS: Final = ("ERR", "RETURN", "DEBUG")


def quote(value: str) -> bytes:
    """Return a word in ASCII, on one line, that is this value to bash in every locale."""
    raw = value.encode("utf-8", "surrogateescape")
    if _BARE.fullmatch(raw):
        return raw
    if not _SPECIAL.search(raw):
        return b"'" + raw + b"'"
    return b"$'" + _SPECIAL.sub(lambda found: _ESCAPES[found[0]], raw) + b"'"


class Script(NamedTuple):
    """The text that restores a snapshot. It sources ``functions``, a text of definitions, if there are some."""

    text: bytes
    functions: bytes


class _Plan(NamedTuple):
    """What a fresh bash must be given, and what it must lose."""

    variables: Mapping[str, Variable]
    lost_variables: list[str]
    functions: Mapping[str, Function]
    lost_functions: list[str]


def assumed(environment: Mapping[str, str]) -> Snapshot:
    """Return the state that a bash with this environment has at its start, as far as it can be told without asking."""
    return Snapshot(
        variables={
            name: Variable(value, "x") for name, value in environment.items() if is_name(name) and name not in OWN
        }
    )


def script(
    snapshot: Snapshot, fresh: Snapshot, environment: Collection[str], functions_path: bytes, singly: bool = False
) -> Script:
    """Return the text that gives a bash in the state ``fresh`` that of the snapshot.

    ``environment``: the names of the variables that bash was started with: those that the snapshot's session had
    inherited, too, keep their value. ``singly``: define each function by itself.
    """
    plan, path = _plan(snapshot, fresh, environment), functions_path.decode("utf-8", "surrogateescape")
    body = [*_begin(fresh), *_settings(snapshot, fresh), *_lose(plan)]
    late, references, frozen = list[bytes](), list[bytes](), list[str]()
    for name, variable in plan.variables.items():
        old = fresh.variables.get(name)
        if old is not None and (variable.value is None or not set(old.attributes) <= {"x"} & set(variable.attributes)):
            body.append(_unset(name))
        if "n" in variable.attributes:
            references += _assignment(name, variable)
        else:
            (late if name in _LATE else body).extend(_assignment(name, variable))
            frozen += [name] * ("r" in variable.attributes)
    if plan.functions:
        body += _sourcing(path, singly)
    for letter in "xtr":
        if names := [name for name, one in plan.functions.items() if letter in one.attributes]:
            body.append(b"\\builtin declare -f%b -- %b" % (letter.encode(), _words(names)))
    body += [b"\\builtin pushd -n -- %b" % quote(path) for path in reversed(snapshot.directories)]
    body += [b"\\builtin complete %b" % _words(words) for words in snapshot.completions]
    body += [*late, *references]
    body += [b"\\builtin declare -r -- %b" % _words(frozen)] if frozen else []
    body.append(b"; ".join(_end(snapshot, fresh)))
    define = partial(_defining, path=path) if singly else _definition
    return Script(b"\n".join(body), b"".join(map(define, plan.functions.values())))


def _plan(snapshot: Snapshot, fresh: Snapshot, environment: Collection[str]) -> _Plan:
    kept = {name for kind, name in snapshot.left_out if kind == "variable"}
    kept |= {name for name in environment if name not in snapshot.variables and name not in snapshot.removed}
    kept |= {name for name in environment if name in snapshot.inherited}
    kept |= {name for name, one in fresh.variables.items() if "r" in one.attributes}
    # A name that `cd` has set comes again, in any case. The variables of the locale come first.
    wanted = sorted(snapshot.variables.items(), key=lambda item: _LOCALE.fullmatch(item[0]) is None)
    variables = {
        name: one
        for name, one in wanted
        if name not in kept and (name == "OLDPWD" or fresh.variables.get(name) != one) and not _is_own(name, snapshot)
    }
    lost = [name for name in fresh.variables if name not in snapshot.variables and name not in kept]
    stays = {name for kind, name in snapshot.left_out if kind == "function"}
    functions = {name: one for name, one in snapshot.functions.items() if fresh.functions.get(name) != one}
    functions.pop("builtin", None)  # all that we type begins with this word
    old = [
        name for name in fresh.functions if name not in stays and snapshot.functions.get(name) != fresh.functions[name]
    ]
    return _Plan(variables, lost, functions, old)


def _is_own(name: str, snapshot: Snapshot) -> bool:
    """Return whether the variable is about the old process, or `cd` or bash itself sets it."""
    value = snapshot.variables[name].value
    is_of_cd = name == "PWD" and value == snapshot.cwd
    return name in OWN or name == "BASH_XTRACEFD" or is_of_cd or _is_computed(name, value)


def _is_computed(name: str, value: object) -> bool:
    """Return whether bash computes the variable when it is first used."""
    return name == "COMP_WORDBREAKS" and value is None


def _begin(fresh: Snapshot) -> Iterator[bytes]:
    """Yield what keeps the startup commands of the session from acting on our text."""
    yield from (b"\\builtin set +o " + name.encode() for name in _IN_THE_WAY if name in fresh.options)
    yield b"\\builtin shopt -u expand_aliases extdebug"
    if traps := sorted(fresh.traps, key=lambda name: name not in _LAST_TRAPS):
        yield b"\\builtin trap - " + _words(traps)
    if fresh.disabled:
        yield b"\\builtin enable -- " + _words(fresh.disabled)


def _settings(snapshot: Snapshot, fresh: Snapshot) -> Iterator[bytes]:
    """Yield what removes the aliases and the like of the startup commands, and goes to the directory."""
    yield b"\\builtin unalias -a"
    if fresh.completions:
        yield b"\\builtin complete -r"
    if fresh.directories:
        yield b"\\builtin dirs -c"
    yield b"\\builtin umask %04o" % snapshot.umask
    yield b"\\builtin cd -- " + quote(snapshot.cwd)


def _lose(plan: _Plan) -> Iterator[bytes]:
    yield from map(_unset, plan.lost_variables)
    if plan.lost_functions:
        yield b"\\builtin unset -f -- " + _words(plan.lost_functions)


def _unset(name: str) -> bytes:
    return b"\\builtin unset -n %b; \\builtin unset -v %b" % (name.encode(), name.encode())


def _assignment(name: str, variable: Variable) -> Iterator[bytes]:
    value, letters, word = variable.value, set(variable.attributes), name.encode()
    if "n" in letters:
        given = b"" if value is None else b"=" + quote(str(value))
        yield b"\\builtin declare -n%b %b%b" % (_letters(letters, "rx"), word, given)
        return
    kind = _letters(letters, "aA")
    later = _letters(letters, "ciltux")
    if value is None:
        yield b"\\builtin declare -%b -- %b" % (kind + later, word) if kind + later else b"\\builtin declare -- " + word
        return
    if isinstance(value, str):
        yield b"%b=%b" % (word, quote(value))
    else:
        # Not `declare -a NAME=(...)`: after a word with a backslash, bash takes the parenthesis for a syntax error.
        yield b"\\builtin declare -%b %b" % (kind, word)
        elements = (b"[%b]=%b" % (quote(key), quote(one)) for key, one in value.items() if not _ALONE.search(key))
        yield b"%b=(%b)" % (word, b" ".join(elements))
        for key in filter(_ALONE.search, value):
            yield b"__key=%b; %b[$__key]=%b; \\builtin unset -v __key" % (quote(key), word, quote(value[key]))
    if later:
        yield b"\\builtin declare -%b -- %b" % (later, word)


def _letters(attributes: Collection[str], wanted: str) -> bytes:
    return "".join(letter for letter in wanted if letter in attributes).encode()


def _words(words: Iterable[str]) -> bytes:
    return b" ".join(map(quote, words))


def _definition(function: Function) -> bytes:
    """Return the definition of the function. After the word `function`, bash takes any name."""
    return b"function " + function.text.removeprefix("function ").encode("utf-8", "surrogateescape")


def _defining(function: Function, path: str) -> bytes:
    """Return a line that defines the function. If bash cannot read a definition, this does not end the file.

    The line names its file. So ``_sourcing`` can tell it from the commands of a forged function.
    """
    text = _definition(function).decode("utf-8", "surrogateescape")
    return b"\\builtin eval -- %b <%b\n" % (quote(text), quote(path))


def _sourcing(path: str, singly: bool) -> Iterator[bytes]:
    """Yield the lines that source the file of definitions, in which bash runs nothing else.

    With extdebug, bash skips a command for which the DEBUG trap is false. A definition runs no such trap.
    ``singly``: it has a line for each definition. Outside of a file, `eval` with half a definition ends bash 5.0.
    """
    word = quote(path)
    ours = f" || $BASH_COMMAND == *{path.rpartition('/')[2]}*" if singly else ""
    trap = quote(f"[[ ${{BASH_SOURCE[0]}} != {word.decode()}{ours} ]]")
    yield b"\\builtin shopt -s extglob extdebug; \\builtin set -T; \\builtin trap -- %b DEBUG" % trap
    yield b"\\builtin . " + word
    yield b"\\builtin trap - DEBUG; \\builtin shopt -u extdebug"


def _end(snapshot: Snapshot, fresh: Snapshot) -> Iterator[bytes]:
    """Yield the commands of the last line: it is read before it runs, and nothing of ours runs after it."""
    yield b"\\builtin set -- " + _words(snapshot.arguments)
    for name, value in snapshot.aliases.items():
        yield b"\\builtin alias -- " + quote(f"{name}={value}")
    off = sorted((fresh.options | _OPTIONS_TOUCHED) - snapshot.options - _FIXED_OPTIONS)
    yield from (b"\\builtin set +o " + name.encode() for name in off)
    on = snapshot.options - _FIXED_OPTIONS - ({"ignoreeof"} if "IGNOREEOF" in snapshot.variables else set())
    yield from (b"\\builtin set -o " + name.encode() for name in sorted(on - set(_ACTING), key=_posix_first))
    # After GLOBIGNORE and posix mode, which set some; before -E and -T, which `shopt -u extdebug` switches off.
    yield from _shopts(snapshot, fresh)
    if "extdebug" in snapshot.shopts:
        yield from (b"\\builtin set +o " + name.encode() for name in ("errtrace", "functrace"))
    yield from _traps(snapshot, snapshot.traps.keys() - set(_LAST_TRAPS))
    yield from (b"\\builtin set -o " + name.encode() for name in _ACTING if name in on)
    yield from _traps(snapshot, snapshot.traps.keys() & set(_LAST_TRAPS))
    if snapshot.disabled:
        yield b"\\builtin enable -n -- %b || ((1))" % _words(snapshot.disabled)


def _posix_first(name: str) -> tuple[bool, str]:
    return name != "posix", name


def _traps(snapshot: Snapshot, names: Collection[str]) -> Iterator[bytes]:
    for name in sorted(names, key=lambda name: (name == "DEBUG", name)):
        yield b"\\builtin trap -- %b %b || ((1))" % (quote(snapshot.traps[name]), quote(name))


def _shopts(snapshot: Snapshot, fresh: Snapshot) -> Iterator[bytes]:
    # BASH_COMPAT sets compatNN, and `shopt -u compatNN` sets BASH_COMPAT.
    off = {name for name in fresh.shopts | _TOUCHED if not name.startswith("compat")} - snapshot.shopts
    has_level = "BASH_COMPAT" in snapshot.variables
    on = {name for name in snapshot.shopts if not (name.startswith("compat") and has_level)}
    for letter, names in ((b"u", off - _FIXED_SHOPTS), (b"s", on - _FIXED_SHOPTS)):
        if names:
            yield b"\\builtin shopt -%b %b" % (letter, _words(sorted(names)))


def differences(snapshot: Snapshot, now: Snapshot, environment: Collection[str]) -> Iterator[Difference]:
    """Yield in what the state ``now`` differs from the snapshot, which was just restored."""
    if now.cwd != snapshot.cwd:
        yield Difference("cwd", snapshot.cwd, f"the shell is in {now.cwd}: the directory is gone, or closed to it")
    for name in sorted(snapshot.variables.keys() | (now.variables.keys() - set(environment)) | snapshot.removed):
        if (reason := _variable_fault(name, snapshot, now, environment)) is not None:
            yield Difference("variable", name, reason)
    for name, function in snapshot.functions.items():
        if (came := now.functions.get(name)) != function:
            yield Difference("function", name, _function_fault(name, came))
    left_out = {name for kind, name in snapshot.left_out if kind == "function"}
    for name in now.functions.keys() - snapshot.functions.keys() - left_out:
        yield Difference("function", name, "the startup commands define it, and it could not be removed")
    for kind, then, there in (("alias", snapshot.aliases, now.aliases), ("trap", snapshot.traps, now.traps)):
        for name in sorted(then.keys() | there.keys()):
            if then.get(name) != there.get(name) and (kind, name) not in snapshot.left_out:
                yield Difference(kind, name, "bash did not take it")
    for kind, on, now_on in (
        ("option", snapshot.options, now.options),
        ("shopt", snapshot.shopts, now.shopts),
        ("disabled builtin", frozenset(snapshot.disabled), frozenset(now.disabled)),
    ):
        for name in sorted(on ^ now_on):
            fixed = name in _FIXED_OPTIONS | _FIXED_SHOPTS
            yield Difference(kind, name, _FIXED if fixed else "it is still on" if name in now_on else "it is off")
    lost = {words for words in snapshot.completions if words not in now.completions}
    yield from (Difference("completion", words[-1], "bash did not take it") for words in sorted(lost))
    if now.arguments != snapshot.arguments and ("arguments", "$@") not in snapshot.left_out:
        yield Difference("arguments", "$@", "bash did not take them")
    if now.directories != snapshot.directories and ("directories", "dirs") not in snapshot.left_out:
        yield Difference("directories", "dirs", "one of them is gone, or closed to the shell")
    if now.umask != snapshot.umask:
        yield Difference("umask", f"{snapshot.umask:04o}", f"it is {now.umask:04o}")
    for name, limit in snapshot.limits.items():
        if (is_now := now.limits.get(name)) != limit:
            yield Difference("limit", name, f"it is {is_now}, as the shell may not have more")


def _variable_fault(name: str, snapshot: Snapshot, now: Snapshot, environment: Collection[str]) -> str | None:
    then, came = snapshot.variables.get(name), now.variables.get(name)
    if came == then or (name in environment and name in snapshot.inherited) or ("variable", name) in snapshot.left_out:
        return None
    if name == "BASH_XTRACEFD":
        return "it names a descriptor of the old shell"
    if (name == "PWD" and now.cwd != snapshot.cwd) or (then is not None and _is_computed(name, then.value)):
        return None  # the directory itself is reported
    if then is None:
        return "it is set in a fresh shell, and could not be removed"
    if came is None:
        return "bash did not take it"
    return "it is read-only in a fresh shell" if "r" in came.attributes else "it has another value or attributes now"


def _function_fault(name: str, came: Function | None) -> str:
    if name == "builtin":
        return "it would replace the builtin with which shellsession works"
    return "this bash cannot read what bash printed of it" if came is None else "it came back changed, and was removed"
