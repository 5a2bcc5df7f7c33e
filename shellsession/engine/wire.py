"""What is typed to bash around a text: how it is run, and how bash is made to report on it.

Law: pure, and one-shot. A nonce is good for one mark of one command. ``Framer`` finds it in what bash says.

The mark is bash's own complaint about a redirection from a file that cannot exist::

    ! ((1)) <"/dev/null/NONCE ${PIPESTATUS[0]-} $? ${LINENO-} $- ${DIRSTACK-}/NONCE"
    bash: /dev/null/NONCE 0 1 7 hiBs /home/me/NONCE: Not a directory

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

# Before bash 5.1: all that such a bash needs, but for its bootstrap (see ``spawn``).
LONG_READS: Final = 501  # 5.1
# It takes so much at once. The last time it gets the whole mark line, and the end of the one before it: a nonce is not
# longer than that allows.
SHORT_READ: Final = 128
# Stands before the statuses where ``_Dialect.behind`` stood behind the text.
TOLD_BEHIND: Final = b"="


class _Dialect(NamedTuple):
    """What is typed in another way to an older bash.

    ``behind``: behind the text. An error that throws an older bash out of `eval` itself (`shift 1 2`) leaves
    PIPESTATUS as it was before, and 1 in $?: so does what `!` makes of success. So success, too, is made 0 there, which
    no error leaves. (PIPESTATUS can be made unreadable: then only `!` tells.) Traces and DEBUG traps print nothing.
    ``skipped``: in place of a text that was not run. An older bash is left with 1, for which no `set -e` ends it.
    ``aligned``: the lines are filled up to a multiple of this length.
    """

    behind: bytes = b""
    skipped: bytes = b"((1))"
    told: bytes = b""
    aligned: int = 1


_NEW: Final = _Dialect()
_OLD: Final = _Dialect(
    b"; case $?${PIPESTATUS[0]-} in 10) ((1));; 1) ((0));; esac 0</dev/null >/dev/null 2>&1",
    b"((0)) && :",
    TOLD_BEHIND,
    SHORT_READ,
)

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
_SET_WORDS: Final = b"$PIPESTATUS $? $LINENO $- $DIRSTACK"
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
    words = b"%b ${LINENO-} $- ${DIRSTACK-}" % status if nounset else _SET_WORDS
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
    ``reserved``: descriptors that bash is to keep none of its own at (see ``named_descriptors``); they are opened.
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
    reserved: Sequence[int] = ()
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
        run = b"%b -- %b" % (way_of(self.spelling), argument)  # the text may begin with a dash
        # Not `builtin exec`, whose redirections end with it.
        reserving = b"".join(b"\\exec %d</dev/null; " % number for number in self.reserved)
        if self.grouped:
            run = (b"! ( %b ) %b %b" if self.isolated else b"{ ! %b; } %b %b") % (run, self.redirections, self.errors)
        elif self.isolated:
            run, reserving = b"! ( %b%b %b ) %b" % (reserving, run, self.errors, self.redirections), b""
        else:
            run = b"! %b %b %b" % (run, self.redirections, self.errors)
        dialect, prologue = _NEW if self.version >= LONG_READS else _OLD, reserving
        run += dialect.behind
        prologue += _set_status(self.setter, status, _prefix(self.spelling)) if status else b""
        if dialect is _NEW and not (self.guarded or self.spelling):
            return b"%b%b\n%b" % (prologue or b"((1)); ", run, mark_line(self.nonce, _STATUSES, self.nounset))
        # A command that has read this word could print it. What none can fake are the two statuses that it leaves:
        # behind a text `!` never leaves 0 and 0, nor ``_OLD.behind`` 1 and 1 where no error threw it out (``Framer``).
        skipped = b'! ((1)) <"%b%b$((0))/"; %b' % (NOWHERE, self.nonce[SECRET:], dialect.skipped)
        # Not `else`: where that is an alias for nothing, the text runs and the guard is said to have kept it from it.
        mark = mark_line(self.nonce, dialect.told + _STATUSES)
        words = GUARDS[self.spelling], prologue, run, skipped, mark
        lines = b" %b; then %b%b; elif ((1)); then %b; fi\n%b" % words
        return b"if" + b" " * ((-len(lines) - 2) % dialect.aligned) + lines


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


_BLANK: Final = re.compile(rb"(?:[ \t\n]++|\\\n|#[^\n]*+)*+")
_EXEC: Final = re.compile(rb"exec\b(?:[<>]&|&>|\\\n|[^\n;&|])*+")  # with what is behind it
_NAMED: Final = re.compile(rb"(?<![\w$])1\d(?=[<>])")
_ERREXIT: Final = re.compile(rb"\bset[ \t]+-\w*e|\berrexit\b")
_NAMES_BUILTINS: Final = re.compile(
    rb"\b(?:builtin|enable)\b|\b(?:declare|eval)[ \t]*\(|\bfunction[ \t]+(?:declare|eval)\b"
)
_RUNS_UNSEEN: Final = re.compile(rb"\b(?:eval|source|trap|PROMPT_COMMAND)\b|(?:\A|[\s;&|({`!])\.[ \t]")
# A text that may change how the next command is to be typed, or needs to be typed in another way itself: it has words
# of the two above, or others by which a text is known to change a shell; it runs nothing, or its end is continued.
UNUSUAL: Final = re.compile(
    rb"\b(?:builtin|enable|alias|eval|source|trap|PROMPT_COMMAND|exec|set|shopt|ulimit)\b"
    rb"|\bdeclare[ \t]*\(|(?i:debug)|(?:\A|[\s;&|({`!])\.[ \t]|\A\s*(?:#|\\|\Z)|\\\s*\Z"
)
_EDITING: Final = re.compile(rb"\bset[ \t]+[-+]\w*o(?:[ \t]+(?:vi|emacs)\b|[ \t]*(?:$|[;|&>)`]))")


def is_blank(text: bytes) -> bool:
    """Is there nothing to run: only blanks, empty or continued lines, and comments (which nothing continues)?"""
    return text.lstrip(b" \t\n")[:1] in (b"", b"#", b"\\") and _BLANK.fullmatch(text) is not None


def named_descriptors(text: bytes) -> set[int]:
    """Those that bash would take for itself, and an ``exec`` in the text may mean.

    While a text runs bash keeps its own three at the first numbers from 10 on that are free: what is opened there is
    lost, and what is closed there costs the shell. Other redirections come to an end, and it moves its own meanwhile.
    """
    return {int(number) for words in _EXEC.findall(text) for number in _NAMED.findall(words)}


def sets_errexit(text: bytes) -> bool:
    """May it switch `set -e` on?"""
    return _ERREXIT.search(text) is not None


def closes_descriptors(text: bytes) -> bool:
    """May it close a descriptor whose number it does not show (`eval "exec $n>&-"`)?"""
    return b"&-" in text


def names_builtins(text: bytes) -> bool:
    """May it change what `builtin` or `eval` is, now or when a function of it is called?"""
    return _NAMES_BUILTINS.search(text) is not None


def runs_unseen(text: bytes) -> bool:
    """May it run what it does not show: a file, or words that it puts together?"""
    return _RUNS_UNSEEN.search(text) is not None


def switches_editing(text: bytes) -> bool:
    """May it switch line editing (`set -o vi`, `eval "$(set +o)"`)? An interactive bash without it ends then."""
    return _EDITING.search(text) is not None


# Bytes of noise kept while looking for a mark. A mark is a path name: its parts are under PATH_MAX (4096).
NOISE_MAX: Final = 1 << 16

_BEFORE: Final = b"bash: " + NOWHERE[:-1]
_AT: Final = len(_BEFORE)
_SIGNALLED: Final = 128
_LOST: Final = re.compile(rb": \d\d: ")


class Mark(NamedTuple):
    """Bash is back at its prompt: what it says of the command and of itself.

    ``line``: how many lines bash has read so far, 0 when it does not know. ``skipped``: the guard kept the text from
    running. ``broken``: our own line has not done what it says that it did. ``doubtful``: it may have made no sense to
    bash, which has told its own stderr so then; an error in the text can leave the same status. ``thrown``: a signal
    threw bash out of it, by the status.
    """

    status: int
    flags: bytes
    cwd: bytes
    line: int = 0
    skipped: bool = False
    broken: bool = False
    doubtful: bool = False
    thrown: bool = False


class Framer:
    """Finds one mark in what bash says on its private socket, however it is cut."""

    noise = b""
    trimmed = 0  # bytes of noise that were forgotten
    mark: Mark | None = None
    has_noise = False
    _skipped = False
    _others = 0  # so many bytes of the noise, from its beginning, may hold what others than bash have said

    def __init__(self, nonce: bytes, prompt: bytes = b"") -> None:
        """``prompt``: what bash is known to say on its own stderr before it reads a line; that is no noise."""
        self.nonce = nonce
        self._fence = b"/" + nonce
        self._prompt = prompt

    def feed(self, data: bytes, by_bash: bool = True) -> Mark | None:
        """Take the next bytes; the mark once it is whole. What follows a mark is noise, and what is not ``by_bash``."""
        self.noise += data
        if not by_bash and self.mark is None:
            self._others = len(self.noise)
        if self.mark is None and not self._find() and len(self.noise) > NOISE_MAX:
            self._skipped = self._tells_of_skipping()
            cut = len(self.noise) - NOISE_MAX // 2
            self.trimmed += cut
            self.noise = self.noise[cut:]
            self._others = max(0, self._others - cut)
        return self.mark

    def _find(self) -> bool:
        # `set -v` echoes our line before bash answers it: its unexpanded words are no mark, so look on.
        noise, fence = self.noise, self._fence
        start = noise.find(fence, self._others)
        while start >= 0:
            body = start + len(fence)
            end = noise.find(fence, body)
            if end < 0:
                return False
            self.mark = mark = _read(noise[body:end])
            if mark is not None:
                # Before an ordinary mark stands nothing but prompts and bash's name.
                self.has_noise = start != _AT and self._without_prompts(noise[:start]) != _BEFORE
                if self.has_noise and not mark.thrown and self._tells_of_skipping():
                    self.mark = self._borne_out(mark, noise[body:end])
                return True
            start = end
        return False

    @property
    def noise_without_prompts(self) -> bytes:
        return self._without_prompts(self.noise)

    def _without_prompts(self, said: bytes) -> bytes:
        while self._prompt and said.startswith(self._prompt):
            said = said[len(self._prompt) :]
        return said

    def _tells_of_skipping(self) -> bool:
        return self._skipped or NOWHERE + self.nonce[SECRET:] + b"0/" in self.noise

    def _borne_out(self, mark: Mark, body: bytes) -> Mark:
        """The text is typed again only where bash's statuses say, too, that it never ran: `!` turns one of them round.

        Where they do not, somebody has forged the other word.
        """
        skipped = body.startswith((b" 0 0 ", b" " + TOLD_BEHIND + b"1 1 "))
        return mark._replace(skipped=skipped, broken=not skipped)

    @property
    def noise_before_mark(self) -> bytes:
        """What was said on bash's stderr besides the mark."""
        at = self.noise.find(self._fence, self._others) if self.mark is not None else len(self.noise)
        said = self._without_prompts(self.noise[:at]).removesuffix(_BEFORE)
        return b"" if said == b"\n" else said  # after SIGINT bash begins a new line

    @property
    def lost_descriptor(self) -> bool:
        """Did bash fail to put back its own descriptors (`exec 10>&-` closes one)? It has no input any more then."""
        return self.has_noise and _LOST.search(self.noise) is not None

    def complains_of(self, path: bytes) -> bool:
        """Did bash fail to open ``path``? Then our line did not run, in whatever language it says so."""
        return b": " + path + b": " in self.noise


def one_of(said: bytes) -> bytes:
    """What was said two or three times in a row; b"" if nothing was.

    Bash reads three lines for each command, the first of which it has asked for before.
    """
    for times in (3, 2):
        once = said[: len(said) // times]
        if once and said == once * times:
            return once
    return b""


def plain_mark(said: bytes, nonce: bytes) -> Mark | None:
    """The mark, if that is all that was said."""
    fence = b"/" + nonce
    start = _AT + len(fence)
    end = said.find(fence, start)
    return _read(said[start:end]) if end > 0 and said.startswith(_BEFORE + fence) else None


def _read(body: bytes) -> Mark | None:
    words = body.split(b" ", 5)
    if len(words) != 6 or words[0]:
        return None
    _, piped, last, line, flags, cwd = words
    if was_told_behind := piped.startswith(TOLD_BEHIND):
        piped = piped[len(TOLD_BEHIND) :]
    if not last.isdigit() or not (piped.isdigit() or not piped):
        return None
    if was_told_behind and b"r" in flags and piped:  # a restricted shell has refused the word behind, and so left 1
        last, was_told_behind = b"%d" % (piped == b"0"), False
    read = int(line) if line.isdigit() else 0  # `unset LINENO` takes its meaning away
    # `!` leaves 0 or 1. From 128 on, SIGINT threw bash out of our line (`$?` is 130, or what was there before and was
    # as high: sig.c). Else an error did that (`exit 1 2`), and `$?` is the text's; or 2 is bash's verdict on our line
    # itself, as when a keyword of it is an alias.
    if int(last) >= _SIGNALLED:
        return Mark(int(last), flags, cwd, read, thrown=True)
    if last not in (b"0", b"1") or (was_told_behind and piped and last == b"1"):
        return Mark(int(last), flags, cwd, read, doubtful=last == b"2")
    # PIPESTATUS can be made unreadable (`declare -A PIPESTATUS`): then undo `!` by hand. Where that had nothing to turn
    # round, an error threw bash out of the text.
    failed = last == b"0"
    status = int(piped or failed)
    return Mark(status if failed or not status else int(last), flags, cwd, read)
