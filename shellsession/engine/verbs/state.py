"""Takes a snapshot of an idle bash, and gives a fresh bash the state of a snapshot.

Bash lists its state to a private file, in one line that we type at its prompt; the host reads and parses it. To
restore, the host writes a text (see ``state.writing``), bash runs it, and a second snapshot shows what differs.

Law: nothing here goes through ``run``, so none of our words counts as the user's.
"""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from ...errors import InvalidRequest, ShellUnavailable, SnapshotDamaged, SnapshotUnavailable
from ...options import Options
from ...state.comparison import Listing
from ...state.dump import (
    AmbiguousFunctions,
    exit_trap,
    functions_line,
    is_same,
    listing_line,
    parse,
    parse_end,
    parse_traps,
    quote_path,
    traps_line,
)
from ...state.snapshot import Snapshot, check_secrets, is_name
from ...state.values import OF_CD, OWN, Difference, Omission, Restored, Variable
from ...state.writing import Script, assumed, differences, quote, script
from ..bash.shell import Shell
from ..io.threads import Steps, T, apart
from ..wire import ERREXIT_TRAP, Mark, names_trap
from .call import Call
from .collect import asked
from .core import Core
from .known import ALWAYS, ONCE

# Seconds for each of our lines. A large state takes a fraction of one.
_PATIENCE: Final = 60.0
_DUMP: Final = "state"
_FUNCTIONS: Final = "functions"
_ATTEMPTS: Final = 2
_END: Final = "end"
SHOW_EXIT_TRAP: Final = b"\\builtin trap -p EXIT >&2"
# The longest EXIT trap of a user that is typed again.
_LONGEST_TRAP: Final = 400
# They would run in our EXIT trap, or see it.
_BESIDE: Final = frozenset({"DEBUG", "RETURN"})
# A larger listing is parsed in another thread.
_LARGE: Final = 1 << 18
# The kernel ends a bash that writes a larger file than its limit: do not try below this size.
_FILE_ROOM: Final = 1 << 26
_LIMITS: Final = {
    name.removeprefix("RLIMIT_").lower(): number
    for name, number in vars(resource).items()
    if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"
}
# Descriptors that a command may have named: see ``wire.named_descriptors``.
_NAMED: Final = range(10, 20)
# In these character sets the second byte of a character can be a backslash or a quote.
_UNREADABLE: Final = re.compile(
    r"sjis|shift_?jis|gbk|gb18030|big5|uhc|johab|cp9(?:32|36|49|50)|\Azh_(?:TW|HK)(?!\.)", re.IGNORECASE
)
_FACTS: Final = ("prompt_speaks", "trapping", "debugging", "unseen", "guard")


def check_snapshot(snapshot: object, options: Options) -> None:
    """Raise InvalidRequest unless this is a snapshot that a session with these options may have."""
    if not isinstance(snapshot, Snapshot):
        raise InvalidRequest(f"snapshot must be a Snapshot, not {type(snapshot).__name__}")
    snapshot.check()
    if missing := sorted(snapshot.confined - confined(options)):
        raise InvalidRequest(
            f"the snapshot comes from a session with a {' and a '.join(missing)}, and its functions would run without"
            f" one here: give this session {' and '.join(f'{name}=' for name in missing)}, too"
        )


def confined(options: Options) -> frozenset[str]:
    """Return the names of the rules that confine a session with these options."""
    rules = {"sandbox": options.sandbox, "policy": options.policy}
    return frozenset(name for name, rule in rules.items() if rule is not None)


def not_in_file(snapshot: Snapshot, environment: Collection[str]) -> Iterator[Difference]:
    """Yield what the file of a snapshot leaves out and this environment does not provide."""
    for kind, name in snapshot.left_out:
        yield Difference(kind, name, "it may be secret, and is not kept after its session")
    for name in sorted(snapshot.inherited - set(environment)):
        yield Difference("variable", name, "it was inherited, and the environment of this session lacks it")


def listing(core: Core, anew: bool = True) -> Steps[Listing]:
    """Return what bash lists. Raises SnapshotUnavailable.

    ``anew``: False if the last one will do, unless a command has begun since.
    """
    shell, last = core.live(), core.listing
    if not anew and last is not None and last.begun == core.begun:
        return last
    _check_room(shell)
    try:
        data, dump, mark = yield from _listed(core, shell, last)
    except SnapshotDamaged as error:
        raise SnapshotUnavailable(
            f"{error}; nothing was changed: if the locale is one of Shift-JIS, GBK or Big5, use UTF-8"
        ) from error
    _check_locale(dump.variables)
    if core.known.at_exit and not is_ours(shell, data):  # a command has set another one in its place
        core.learn(at_exit=b"")
    dump = _without_ours(core, shell, dump)
    return core.keep_listing(Listing(data, dump, shell.check_cwd(mark.cwd), core.umask(), core.begun))


def take(core: Core, exclude: Iterable[str] = (), is_secret: Callable[[str], bool] | None = None) -> Steps[Snapshot]:
    """Return a snapshot of the idle bash. Raises SnapshotUnavailable.

    ``exclude``: patterns of names to leave out. ``is_secret``: whether a text contains a secret.
    """
    shell = core.live()
    listed = yield from listing(core)
    return (yield from _apart_if_large(listed.data, lambda: _snapshot(core, shell, listed, exclude, is_secret)))


def _apart_if_large(data: bytes, call: Callable[[], T]) -> Steps[T]:
    return (yield from apart(call)) if len(data) > _LARGE else call()


def _snapshot(
    core: Core, shell: Shell, listed: Listing, exclude: Iterable[str], is_secret: Callable[[str], bool] | None
) -> Snapshot:
    dump, environment = listed.dump, core.environment()
    names = {
        name
        for name, value in environment.items()
        if (one := dump.variables.get(name)) is not None and one.value == value and one.attributes == "x"
    }
    options = core.options
    snapshot = dump.__replace__(
        cwd=listed.cwd,
        umask=listed.umask,
        limits=_limits(shell),
        inherited=frozenset(names - OF_CD),
        removed=frozenset(filter(is_name, environment.keys() - dump.variables.keys() - OWN)),
        confined=confined(options),
        facts=MappingProxyType(
            {name: getattr(core.known, name) for name in _FACTS} | {"named": tuple(sorted(core.known.named))}
        ),
        at=time.time(),
    )
    snapshot = snapshot.without(snapshot.matching(exclude, is_secret))
    return snapshot.__replace__(private=_private(core, snapshot))


def _private(core: Core, snapshot: Snapshot) -> frozenset[Omission]:
    """Return what the session's rules hide or mask."""
    if (secrets := core.secrets()) is None:
        return frozenset()
    masked = snapshot.matching(is_secret=lambda text: secrets.mask(text) != text)
    return frozenset(masked.union(_hidden(core, snapshot)))


def _hidden(core: Core, snapshot: Snapshot) -> list[Omission]:
    """Return the variables that the session's policy hides."""
    if (policy := core.options.policy) is None:
        return []
    values = {name: _text(variable) for name, variable in snapshot.variables.items()}
    return [Omission("variable", name) for name in sorted(values.keys() - policy.environment(values).keys())]


def restore(core: Core, snapshot: Snapshot) -> Steps[Restored]:
    """Give a fresh bash the state of the snapshot. Raises SnapshotUnavailable, also if that ends bash."""
    try:
        return (yield from _restored(core, snapshot))
    except ShellUnavailable as error:
        raise SnapshotUnavailable(
            "bash ended while it was given the state: does its PROMPT_COMMAND or a trap end a shell?"
        ) from error


def _restored(core: Core, snapshot: Snapshot) -> Steps[Restored]:
    shell, environment = core.live(), core.environment()
    hidden = _hidden(core, snapshot)
    wanted = snapshot.without(hidden)
    now = (yield from take(core)) if core.options.startup else assumed(environment)
    found: list[Difference] = []
    for attempt in range(_ATTEMPTS):  # the second one knows the state that the first has left
        texts = script(wanted, now, environment, shell.files.path(_FUNCTIONS), singly=attempt > 0)
        _learn(core, wanted, (yield from _run(shell, texts)))
        _set_limits(shell, wanted.limits)
        now = yield from take(core)
        if not (found := list(differences(wanted, now, environment))):
            break
    there = wanted.functions.keys() & now.functions.keys()
    if changed := [one.name for one in found if one.kind == "function" and one.name in there]:
        yield from _ask(shell, b"\\builtin unset -f -- %b 2>/dev/null || ((1))" % b" ".join(map(quote, changed)))
    return Restored((*(Difference(*one, "the session's policy hides it") for one in hidden), *found))


def _run(shell: Shell, texts: Script) -> Steps[Mark]:
    """Run our text, which may source another one."""
    try:
        if texts.functions:
            shell.files.write(_FUNCTIONS, texts.functions)
        text = _file(shell, texts.text)
        return (yield from _ask(shell, b'\\builtin eval -- "$(<%b)" >/dev/null 2>&1 || ((1))' % text))
    finally:
        shell.files.clear()


def _learn(core: Core, snapshot: Snapshot, mark: Mark) -> None:
    """Note what the engine knew about the shell of the snapshot: it says how to type and read the next command."""
    facts, has_debug = snapshot.facts, "DEBUG" in snapshot.traps
    core.learn(
        flags=mark.flags,
        guard=ALWAYS if facts.get("guard") == ALWAYS else ONCE,
        prompt_speaks=bool(facts.get("prompt_speaks")) or has_debug,
        trapping=bool(facts.get("trapping") or snapshot.traps),
        debugging=bool(facts.get("debugging")) or has_debug,
        unseen=bool(facts.get("unseen", True)),
        named=frozenset(one for one in facts.get("named", ()) if isinstance(one, int) and one in _NAMED),
    )


def _text(variable: Variable) -> str:
    value = variable.value
    return value if isinstance(value, str) else "\n".join((value or {}).values())


def _listed(core: Core, shell: Shell, last: Listing | None) -> Steps[tuple[bytes, Snapshot, Mark]]:
    """Return what bash lists, and its mark. If a DEBUG trap prints between the lists, it is taken off meanwhile."""
    path = shell.scratch_file(_DUMP)
    if not core.known.debugging:
        with suppress(SnapshotDamaged):
            data, dump, mark = yield from _parsed(shell, listing_line(path), last)
            if "DEBUG" not in dump.traps:
                return data, dump, mark
    traps = parse_traps((yield from _file_of(shell, traps_line(path)))[0].decode("utf-8", "surrogateescape"))
    line = listing_line(shell.scratch_file(_DUMP))
    if (trap := traps.get("DEBUG")) is not None:
        line = b"\\builtin trap - DEBUG; %b; \\builtin trap -- %b DEBUG || ((1))" % (line, quote(trap))
    data, dump, mark = yield from _parsed(shell, line, last)
    return data, dump if dump.traps == traps else dump.__replace__(traps=traps), mark


def _parsed(shell: Shell, line: bytes, last: Listing | None) -> Steps[tuple[bytes, Snapshot, Mark]]:
    data, mark = yield from _file_of(shell, line)
    try:
        return data, (yield from _apart_if_large(data, lambda: _dump(data, last))), mark
    except AmbiguousFunctions as error:
        text = functions_line(shell.scratch_file(_DUMP), error.names)
        singly, _ = yield from _file_of(shell, b'\\builtin eval -- "$(<%b)"' % _file(shell, text))
        return data, parse(data, singly), mark


def _dump(data: bytes, last: Listing | None) -> Snapshot:
    return last.dump if last is not None and is_same(last.data, data) else parse(data)


def _file(shell: Shell, text: bytes) -> bytes:
    return quote_path(shell.files.write("text", text))


def _file_of(shell: Shell, line: bytes) -> Steps[tuple[bytes, Mark]]:
    """Run a line that writes the scratch file. Returns the data, and bash's mark."""
    try:
        mark = yield from _ask(shell, line)
        return shell.read_scratch_file(_DUMP), mark
    except OSError as error:
        raise SnapshotUnavailable(f"bash could not list its state to a file: {error}; nothing was changed") from error
    finally:
        shell.files.clear()


def _ask(shell: Shell, line: bytes) -> Steps[Mark]:
    return (yield from _answer(shell, line))[1]


def _answer(shell: Shell, line: bytes) -> Steps[tuple[bytes, Mark]]:
    """Run a line. Returns what bash has printed on its own stderr, and its mark."""
    until = time.monotonic() + _PATIENCE
    finder = yield from asked(shell, line, _PATIENCE)
    if finder is not None and finder.mark is not None:
        return finder.noise_before_mark, finder.mark
    if time.monotonic() < until:
        raise ShellUnavailable("the shell has ended meanwhile: the next command reports how")
    raise SnapshotUnavailable(f"bash did not answer within {_PATIENCE:.0f} s: is the machine overloaded?")


def change_directory(shell: Shell, place: str, old: Variable | None) -> Steps[None]:
    """Have bash enter a directory, and keep OLDPWD as it is."""
    keep = b"\\builtin unset -v OLDPWD" if old is None else b"OLDPWD=" + quote(str(old.value))
    yield from _ask(shell, b"\\builtin cd -- %b >/dev/null 2>&1 && %b || ((1))" % (quote(place), keep))


def _limits(shell: Shell) -> Mapping[str, int]:
    """Return the soft limits of bash; none where we may not look."""
    limits = dict[str, int]()
    with suppress(OSError):
        limits = {name: resource.prlimit(shell.pid, number)[0] for name, number in _LIMITS.items()}
    return MappingProxyType(limits)


def _set_limits(shell: Shell, limits: Mapping[str, int]) -> None:
    """Set the soft limits, up to the hard ones."""
    for name, wanted in limits.items():
        number = _LIMITS.get(name)
        with suppress(OSError, ValueError):  # the next snapshot shows it
            if number is not None and (now := resource.prlimit(shell.pid, number))[0] != wanted:
                resource.prlimit(shell.pid, number, (wanted, now[1]))


def _check_room(shell: Shell) -> None:
    limit = resource.prlimit(shell.pid, resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and limit < _FILE_ROOM:
        raise SnapshotUnavailable(
            f"this bash may write files of at most {limit} bytes (`ulimit -f`), and would end if its state is larger;"
            " nothing was changed"
        )


def _check_locale(variables: Mapping[str, Variable]) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        if (one := variables.get(name)) is not None and one.value:
            if _UNREADABLE.search(str(one.value)):
                raise SnapshotUnavailable(
                    f"in the locale {one.value} ({name}) a backslash can be part of a character, and shellsession"
                    " cannot read what bash lists: use UTF-8"
                )
            return


def seek(secrets: Sequence[str]) -> Callable[[str], bool] | None:
    """Return a function that finds these values in a text, in every spelling. Raises InvalidRequest."""
    if not (values := check_secrets(secrets)):
        return None
    from ...policy.secrets import Secrets  # rarely needed

    found = Secrets({}, named=values)
    return lambda text: found.mask(text) != text


# -- the state of a bash at its end


def set_exit_trap(core: Core, snapshot: Snapshot) -> Steps[None]:
    """Let bash list its state at its end, before an EXIT trap of the user. ``snapshot``: the state of bash now.

    ``Known.at_exit`` becomes the words that undo it. Nobody may see it, so it is not set in a shell whose functions
    use traps. In a sandbox, the file would be gone with the bash.
    """
    shell, user = core.live(), snapshot.traps.get("EXIT", "")
    if shell.launch.is_sandboxed or len(user) > _LONGEST_TRAP or not _BESIDE.isdisjoint(snapshot.traps):
        return
    texts = (*(one.text for one in snapshot.functions.values()), *snapshot.aliases.values(), *snapshot.traps.values())
    if not snapshot.options.isdisjoint({"functrace", "verbose"}) or any(map(names_trap, map(os.fsencode, texts))):
        return
    core.learn(at_exit=b"! \\builtin trap " + (b"-- %b EXIT; " % quote(user) if user else b"- EXIT; "))
    line = b"\\builtin trap -- %b EXIT" % quote(_ours(shell) + user)
    try:
        yield from _ask(shell, b'\\builtin eval -- "$(<%b)"' % _file(shell, line))
    finally:
        shell.files.clear()


def remove_exit_trap(core: Core) -> Steps[None]:
    """Put the EXIT trap of the user back, unless a file that a function has read has set another one."""
    shell = core.live()
    said, _ = yield from _answer(shell, SHOW_EXIT_TRAP)
    if is_ours(shell, said):
        yield from _ask(shell, core.known.at_exit)
    core.learn(at_exit=b"")


def is_ours(shell: Shell, listed: bytes) -> bool:
    """Return whether our EXIT trap is among the traps that bash has listed."""
    return shell.scratch_path(_END) in listed


def at_end(core: Core, shell: Shell, call: Call, before: Snapshot) -> Snapshot | None:
    """Return the state in which a bash has ended by itself; None if it has not listed it. ``before``: see ``dump``."""
    try:
        data = shell.read_scratch_file(_END)
        ended = parse_end(data, before)
    except (OSError, SnapshotDamaged):
        return None
    off = {"errexit"} if call.request.errexit else set[str]()
    if ended.traps.get("ERR") == ERREXIT_TRAP.decode():  # that of ``scope.guard_errexit``
        off.add("errtrace")
    # A text that may set traps has been without ours. In a function, bash does not list each trap.
    ended = ended.__replace__(traps=before.traps, options=ended.options - (off - before.options))
    made = _snapshot(core, shell, Listing(data, ended, ended.cwd, ended.umask, core.begun), (), None)
    return made.__replace__(limits=before.limits)


def _ours(shell: Shell) -> str:
    return os.fsdecode(exit_trap(shell.scratch_path(_END)))


def _without_ours(core: Core, shell: Shell, dump: Snapshot) -> Snapshot:
    """Return what bash has listed, without our EXIT trap."""
    if not core.known.at_exit or "EXIT" not in dump.traps:
        return dump
    traps = dict(dump.traps)
    if text := traps.pop("EXIT").replace(_ours(shell), ""):
        traps["EXIT"] = text
    return dump.__replace__(traps=MappingProxyType(traps))
