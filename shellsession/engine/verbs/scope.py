"""What holds for one command only: its directory and variables (``cwd=``, ``env=``), and the guard of ``set -e``.

``enter`` and ``guard_errexit`` set it; ``leave`` undoes both, once the command has ended.

Bash itself saves the variables: `declare -p` writes commands to a file that set each one again with all its attributes.
A variable that is not in that file was unset. A temporary environment cannot do this: that of `A=1 \\builtin eval` ends
with the first command of the text, and `A=1 eval` switches `set -e` off in it.

Law: if the shell survives the command, the scope is left exactly once, however the command ended. If an exception (such
as Ctrl-C) interrupts this, the next command does it.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from ...models import Request
from ..bash.shell import Shell
from ..io.threads import Steps
from ..wire import (
    ERREXIT_TRAP,
    LONG_READS,
    READ_MAX,
    Errexit,
    Mark,
    from_file,
    names_err_trap,
    quote,
    sets_errexit,
    sets_errtrace,
)
from .call import Call
from .collect import ask, asked
from .core import Core

# Seconds for each of our lines. Only the disk can make them slow.
_PATIENCE: Final = 10.0
_SAVED, _SET = "saved", "set"
_SHOW_TRAP: Final = b"! \\builtin trap -p ERR >&2"
_UNTRAP: Final = b"! \\builtin trap - ERR; "
# `cd` sets these.
_OF_CD: Final = (b"PWD", b"OLDPWD")
# A prompt may come before a message. What `set -x` prints begins its own line, and may contain anything.
_MESSAGE: Final = re.compile(rb"^[^+\n]*?bash: ([^\n]+)", re.MULTILINE)


class Left(NamedTuple):
    """What bash replied: its messages, and its mark, which is None if it did not reply."""

    fault: str
    mark: Mark | None


def enter(core: Core, shell: Shell, request: Request) -> Steps[Left]:
    """Set the directory and the variables of the request. ``Known.scope`` becomes the text that restores them."""
    variables = {name.encode(): value.encode("utf-8", "surrogateescape") for name, value in (request.env or {}).items()}
    names = b" ".join((*(_OF_CD if request.cwd is not None else ()), *variables))
    saved = quote(shell.scratch_file(_SAVED))
    # The first mark also has bash's current directory.
    left = yield from _do(shell, b"! \\builtin declare -p %b >|%b 2>/dev/null" % (names, saved))
    if left.mark is None or left.fault:
        return left
    steps = []
    unset = b"! \\builtin unset -n %b; ! \\builtin unset -v %b; " % (names, names)
    undo = unset + b"! \\builtin eval -- \"! { ((1))\"$'\\n'\"$(<%b)\"$'\\n}'" % saved
    if request.cwd is not None:
        back = os.fsencode(shell.check_cwd(left.mark.cwd))
        undo = b"! %b; %b" % (_cd(back), undo)
        steps.append(_cd(os.fsencode(request.cwd)))
    core.learn(scope=undo)
    if variables:
        # First the references themselves: otherwise `unset` and `export` would change what they refer to.
        steps += [b"\\builtin unset %b %b" % (kind, b" ".join(variables)) for kind in (b"-n", b"-v")]
        steps.append(b"\\builtin export " + b" ".join(b"%b=%b" % (name, quote(variables[name])) for name in variables))
    text = b" && ".join(steps) + b" || ! ((1))"  # so that `set -e` does not end the shell at a step that fails
    argument = quote(text)
    if len(argument) > READ_MAX:
        argument = from_file(shell.files.write(_SET, text), text)
    left = yield from _do(shell, b"! \\builtin eval -- " + argument)
    shell.files.remove(_SET)
    if left.mark is not None and left.mark.status:
        return left._replace(fault=left.fault or "bash gave no reason")
    return left._replace(fault="")


def guard_errexit(core: Core, shell: Shell, request: Request) -> Steps[Errexit]:
    """If ``set -e`` may be on in the text, return how to make it end the text and not bash.

    If the request has ``errexit``, first switch it on. Our ERR trap ends the text (see ``ERREXIT_TRAP``): bash runs it
    before it would end. Where the user has one, or a trap would see ours, `set -e` ends bash.
    """
    known, text = core.known, request.command
    setup = undo = flags = b""
    if request.errexit and not known.errexit:
        setup, undo, flags = b"! \\builtin set -e; ", b"! \\builtin set +e; ", b"e"
    if sources := (setup or known.errexit or sets_errexit(text)) and (yield from _can_trap(core, shell, request)):
        setup += b"! \\builtin trap -- %b ERR; ! \\builtin set -E; " % quote(ERREXIT_TRAP)
        if b"E" not in known.flags and not sets_errtrace(text):
            undo, flags = b"! \\builtin set +E; " + undo, flags + b"E"
        undo = _UNTRAP + undo
    if not setup:
        return Errexit()
    core.learn(scope=undo + known.scope)
    # An older bash must get the mark line in one read. And a trap that the text may set unseen must stay.
    is_sure = shell.version >= LONG_READS and known.has_no_traps(text)
    return Errexit(bool(sources), setup, undo if is_sure else b"", flags)


def _can_trap(core: Core, shell: Shell, request: Request) -> Steps[bool]:
    """Return whether an ERR trap of ours takes the place of no other, and no other trap sees it."""
    known = core.known
    if request.isolated or known.spelling:
        return False
    if known.functions_trap or known.debugging or names_err_trap(request.command):
        return False
    if known.has_no_traps():
        return True
    said = yield from ask(shell, _SHOW_TRAP)
    return said is not None and b"trap -- " not in said


def leave(core: Core, shell: Shell, call: Call | None = None) -> Steps[Left]:
    """Restore what was before. ``fault``: what could not be restored, in bash's words.

    ``call``: the command, which bash has perhaps undone itself, directly after its mark.
    """
    known, undo = core.known, core.known.scope
    if call is not None and call.typed.errexit.undo == undo and (mark := call.own_mark) is not None:
        core.learn(scope=b"")
        return Left("", mark._replace(flags=mark.flags.translate(None, call.typed.errexit.flags)))
    asks = undo.startswith(_UNTRAP) and not known.has_no_traps()
    if asks and ERREXIT_TRAP not in ((yield from ask(shell, _SHOW_TRAP)) or b""):
        undo = undo.removeprefix(_UNTRAP)  # the text has set another trap, in a way that it does not show
    left = yield from _do(shell, undo)
    core.learn(scope=b"")
    shell.files.remove(_SAVED)
    return left


def _cd(path: bytes) -> bytes:
    """Return the command that changes the directory. CDPATH and `cd -` do not apply to such a path."""
    return b"\\builtin cd -- " + quote(path if path.startswith(b"/") else b"./" + path)


def _do(shell: Shell, line: bytes) -> Steps[Left]:
    finder = yield from asked(shell, line, _PATIENCE)
    if finder is None:
        return Left(f"bash did not answer within {_PATIENCE:.0f} s", None)
    messages = _MESSAGE.findall(finder.noise_before_mark)
    return Left(b"; ".join(messages).decode("utf-8", "replace"), finder.mark)
