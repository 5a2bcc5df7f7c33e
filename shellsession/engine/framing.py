"""What is typed to bash around a text: how it is run, and how bash is made to report on it.

Law: pure, and one-shot. A nonce is good for one mark of one command. What bash says to it is read in ``marks``.

The mark is bash's own complaint about a redirection from a file that cannot exist::

    ! ((1)) <"/dev/null/NONCE ${PIPESTATUS[0]-} $? ${LINENO-} $- $SHELLOPTS ${DIRSTACK-}/NONCE"
    bash: /dev/null/NONCE 0 1 7 hiBs braceexpand:hashall /home/me/NONCE: Not a directory

It needs no command name, so no function, alias, `enable -n` or PATH can stand in for it. Bash gives it neither to a
DEBUG trap (the failing redirection belongs to a command that never starts) nor to `set -x`; `!` keeps it from `set -e`
and ERR traps. It goes to bash's own stderr, a socket: no output gets there, and of what children of bash's say there
(`( ... ) &` and `cmd <&10` have it from bash) the kernel tells whose word it is.
Measured: 37 us for a round trip with it, 57 with `printf` to the terminal. What is no directory stops the kernel at
once (3 us); a name that is missing in / is looked for on the disk (6 us), and leaves an entry in the kernel's cache.

The text runs under `! \\builtin eval`: `!` because a last status other than 0 (`false && true`) must not trip `set -e`
a second time at our level, and `builtin` because bash switches `set -e` off *inside* the text for `! eval`, but not
for `! builtin eval`. PIPESTATUS has the status that `!` turns round, DIRSTACK what `pwd` prints (PWD can be set).
LINENO counts what bash has read of all that was typed: a line too few, and somebody else (PROMPT_COMMAND='read x')
has taken it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

# What bash takes from its input at once. All that we type goes with one read: nothing is left in the socket that a
# trap could read there (`set -e` undoes our redirections before an EXIT trap runs). Longer text goes through a file;
# from 10 KB on that is the faster way in any case (1 KB: 0.20 ms inline, 0.23 from a file).
READ_MAX: Final = 1024
# Before 5.1 bash takes so much at once. Then the last time it gets the whole mark line, and the end of the one before
# it: a nonce is not longer than that allows.
SHORT_READ: Final = 128
LONG_READS: Final = 501  # 5.1

# How the text is run, best first: the name that a function could hide, and what is typed. Only the first keeps
# `set -e` alive inside the text; the others serve a shell where `builtin` or `eval` was replaced or disabled.
# `.` comes last: it takes a file, lets `return` pass, and keeps DEBUG traps out. From PROVEN on the same again, for a
# shell where `declare` itself was replaced: the guard does not ask who answers to the name, but has it run something.
SPELLINGS: Final = (
    (b"builtin", b"\\builtin eval"),
    (b"eval", b"\\eval"),
    (b"command", b"\\command eval"),
    (b".", b"\\."),
)
SOURCE: Final = 3
PROVEN: Final = len(SPELLINGS)
WAYS: Final = PROVEN + SOURCE

_NEWLINES_MAX: Final = 64
# No file can be below it, whatever is done to the file system; no longer than it must be.
NOWHERE: Final = b"/dev/null/"
# So much of a nonce is in the mark alone. The rest is in what is typed before it, which a DEBUG trap can read where
# `set -o history` keeps it.
SECRET: Final = 14
_STATUSES: Final = b"${PIPESTATUS[0]-} $?"
# The same words, which bash expands 1.5 us sooner.
_SET_WORDS: Final = b"$PIPESTATUS $? $LINENO $- $SHELLOPTS $DIRSTACK"
# Before 5.1 an error that throws bash out of `eval` itself (`shift 1 2`) leaves PIPESTATUS as it was before, and 1 in
# $?: so does what `!` makes of success. So behind the text success, too, is made 0, which no error leaves. (PIPESTATUS
# can be made unreadable: then only `!` tells.) What traces and DEBUG traps say there goes nowhere.
_BEHIND: Final = b"; case $?${PIPESTATUS[0]-} in 10) ((1));; 1) ((0));; esac 0</dev/null >/dev/null 2>&1"
# And a text that was not run leaves 1, for which no `set -e` ends the shell.
_SKIPPED_ONCE: Final = b"((0)) && :"
# Stands before the statuses then.
TOLD_BEHIND: Final = b"="
_BEFORE_ESCAPE: Final = re.compile(rb"(?<![\x80-\xff])[\x80-\xff]++(?=\\)")


def quote(text: bytes) -> bytes:
    """One line that bash reads back as ``text``, byte for byte, whatever its locale.

    Bash reads it by characters, and in some locales (GBK, Shift-JIS) the second byte of one can be a backslash: none of
    ours stands behind a byte that may be a first one.
    """
    if b"\\" not in text and b"'" not in text and b"\n" not in text:
        return b"$'" + text + b"'"
    line = b"$'" + text.replace(b"\\", b"\\\\").replace(b"'", b"\\'").replace(b"\n", b"\\n") + b"'"
    return line if line.isascii() or b"\\" not in line else _BEFORE_ESCAPE.sub(_in_hex, line)


def _in_hex(found: re.Match[bytes]) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in found[0])


def from_file(path: bytes, text: bytes, status: int = 0, spelling: int = 0) -> bytes:
    """An argument that reads back as ``text`` from the file at ``path``, and leaves that status in ``$?``.

    ``$(<file)`` strips newlines at the end, so they are put back by hand: a heredoc may end in them. It sets ``$?`` to
    0, and comes last: another status takes one more substitution behind it, which is a fork. With `set -T` a DEBUG trap
    runs in that one, and is not to run in the text.
    """
    newlines = len(text) - len(text.rstrip(b"\n"))
    if newlines > _NEWLINES_MAX and b"<<" not in text:
        newlines = 2  # not one: behind a backslash there must be an empty line
    return b'"$(<' + quote(path) + b')"' + (quote(b"\n" * newlines) if newlines else b"") + leaving(status, spelling)


def leaving(status: int, spelling: int = 0) -> bytes:
    """Behind an argument: leaves that status in ``$?``, with no function, and so no RETURN trap, for a fork."""
    return b'"$({ %bexit %d; } >/dev/null 2>&1)"' % (_prefix(spelling), status) if status else b""


def _prefix(spelling: int) -> bytes:
    """By which a builtin is reached: where `builtin` itself is not what it was, none that a function hides."""
    return b"\\" if spelling % PROVEN else b"\\builtin "


def mark_line(nonce: bytes, status: bytes = _STATUSES, nounset: bool = True) -> bytes:
    """The line whose answer is the mark. ``nounset``: `set -u` may be on, and some of its words unset.

    It begins with an empty one: after some syntax errors (an open quote) bash takes the first word of the next line
    for no reserved word, whatever it is.
    """
    words = b"%b ${LINENO-} $- $SHELLOPTS ${DIRSTACK-}" % status if nounset else _SET_WORDS
    return b'\n! ((1)) <"%b%b %b/%b"\n' % (NOWHERE, nonce, words, nonce)


def version_line(nonce: bytes) -> bytes:
    """As ``mark_line``, with bash's version times 100 (5.2 is 502) as the status."""
    return mark_line(nonce, b"$((BASH_VERSINFO[0]*100+BASH_VERSINFO[1])) 0")


class Frame(NamedTuple):
    """What stands around a text that is typed: how it is run, and how bash reports on it.

    ``redirections`` are those of stdin and stdout, ``errors`` that of stderr.
    ``grouped``: the redirections are a group's. Where they are a command's, `set -e` undoes them before an EXIT trap
    runs, and bash before the trap of a signal that came in a last subshell; but `set -x` and DEBUG traps tell of our
    words before a command's redirections, and in a group's.
    ``ours_in_history``: lines of ours that `set -o history` has recorded, this one too; the text takes their place.
    ``reserved``: descriptors that bash is to keep none of its own at (see ``texts``); they are opened.
    ``sourced``: the argument is a file that runs the text (see ``texts``).
    ``setter``: a function's name that nobody else has; the same for all of one bash, which never forgets a name that
    it has heard (1.3 KB for each).
    ``version``: bash's, times 100 (5.2 is 502).
    ``guarded``: the name that runs the text is proved to be what it was (see ``Core.guard``).
    ``nounset``: `set -u` may be on.
    """

    nonce: bytes
    redirections: bytes
    errors: bytes
    spelling: int = 0
    isolated: bool = False
    grouped: bool = False
    ours_in_history: int = 0
    reserved: Sequence[int] = ()
    sourced: bool = False
    setter: bytes = b"s"
    version: int = LONG_READS
    guarded: bool = True
    nounset: bool = True

    def lines(self, argument: bytes, status: int = 0) -> bytes:
        """The two lines that run the text that ``argument`` stands for, with that status in ``$?``, and report on it.

        Setting the status takes a function that removes itself. After success the guard leaves 0; without one `((1))`
        does, as the last mark has left 1. The guard reports a function that hides the name we call, or a name that was
        disabled (then nothing was run). It costs 5 us; a question of its own, a round trip; looking afterwards could
        not tell whether the text itself has just disabled the name.
        """
        way = b"\\builtin ." if self.sourced else way_of(self.spelling)
        run = b"%b -- %b" % (way, argument)  # the text may begin with a dash
        # Not `builtin exec`, whose redirections end with it.
        reserving = b"".join(b"\\exec %d</dev/null; " % number for number in self.reserved)
        if self.grouped:
            run = (b"! ( %b ) %b %b" if self.isolated else b"{ ! %b; } %b %b") % (run, self.redirections, self.errors)
        elif self.isolated:
            run, reserving = b"! ( %b%b %b ) %b" % (reserving, run, self.errors, self.redirections), b""
        else:
            run = b"! %b %b %b" % (run, self.redirections, self.errors)
        is_older, prologue = self.version < LONG_READS, reserving
        run += _BEHIND if is_older else b""
        if self.ours_in_history:
            prologue += _history(argument, self.ours_in_history, ahead=2 if is_older else 1)
        prologue += _set_status(self.setter, status, _prefix(self.spelling)) if status else b""
        if not (self.guarded or self.ours_in_history or self.sourced or self.spelling or is_older):
            return b"%b%b\n%b" % (prologue or b"((1)); ", run, mark_line(self.nonce, _STATUSES, self.nounset))
        # A command that has read this word could print it. What none can fake are the two statuses that it leaves:
        # behind a text `!` never leaves 0 and 0, nor ``_BEHIND`` 1 and 1 where no error threw bash out (see ``marks``).
        skipped = b'! ((1)) <"%b%b$((0))/"; %b' % (
            NOWHERE,
            self.nonce[SECRET:],
            _SKIPPED_ONCE if is_older else b"((1))",
        )
        # Not `else`: where that is an alias for nothing, the text runs and the guard is said to have kept it from it.
        guard = GUARDS[self.spelling] + (b" && \\builtin . /dev/null" if self.sourced else b"")
        words = guard, prologue, run, skipped, mark_line(self.nonce, (TOLD_BEHIND if is_older else b"") + _STATUSES)
        lines = b" %b; then %b%b; elif ((1)); then %b; fi\n%b" % words
        # Not before `if`: where HISTCONTROL has ignorespace it would not be in the history, from where we take it.
        return b"if" + (b" " * ((-len(lines) - 2) % SHORT_READ) if is_older else b"") + lines


def way_of(spelling: int) -> bytes:
    """How a text is run by that spelling."""
    return SPELLINGS[spelling % PROVEN][1]


def _guard(spelling: int) -> bytes:
    name, call = SPELLINGS[spelling % PROVEN]
    if spelling >= PROVEN:
        return b'%b "((1))" && ! %b "! ((1))"' % (call, call)  # `!`: no `set -e` may end the shell at it
    return b"! \\declare -F %b && %b%b" % (name, call, b" /dev/null" if spelling == SOURCE else b"")


# True where the name by which we reach eval is what it should be; by the way in which the text is run.
GUARDS: Final = tuple(map(_guard, range(WAYS)))


def _set_status(name: bytes, status: int, prefix: bytes) -> bytes:
    return b"%b() { %bunset -f %b; %breturn %d; }; %b builtin && :; " % (name, prefix, name, prefix, status, name)


def _history(argument: bytes, lines: int, ahead: int) -> bytes:
    # HISTCMD is the number of the line being run, before 5.1 one more; what is left of ours stands before it, and goes
    # first, as -s looks at what stands before the text (HISTCONTROL). Bash 5.1 takes no negative number that reaches
    # the first entry. Where HISTCMD was unset it is -1 (4.4 takes none): the line being run goes, and in any case -s
    # puts its words in place of the last one.
    forget = b'\\builtin history -d "$((${HISTCMD-%d}-%d))"; ' % (ahead - 1, ahead)
    return forget * (lines - 1) + b"\\builtin history -s -- %b; " % argument
