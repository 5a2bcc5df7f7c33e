"""Writes the lines that make bash run a command and report its end, and parses the report.

``Frame`` writes the lines. ``MarkFinder`` finds the report, the mark, in what bash prints. The module does no I/O. A
nonce serves for one mark of one command.

The mark is bash's own error message about a redirection from a file that cannot exist::

    ! ((1)) <"/dev/null/NONCE ${PIPESTATUS[0]-} $? ${LINENO-} $- ${DIRSTACK-}/NONCE"
    bash: /dev/null/NONCE 0 1 7 hiBs /home/me/NONCE: Not a directory

It needs no command name, so no function, alias, `enable -n` or PATH can replace it. A DEBUG trap does not see it,
because the redirection fails before the command starts; nor does `set -x`. `!` keeps it from `set -e` and ERR traps.

The mark goes to bash's own stderr, a socket. The command's output never gets there. Children of bash can write to it
(`( ... ) &` and `cmd <&10` inherit it from bash), but the kernel reports which process wrote each message.

Measured: a round trip takes 37 us with this mark, and 57 us with `printf` to the terminal. In a path through a file
that is no directory, the kernel stops at once (3 us). For a name that is missing in /, it searches the disk (6 us) and
keeps a negative dentry.

The text runs under `! \\builtin eval`. The `!` is there because a non-zero last status (`false && true`) must not
trigger `set -e` a second time at our level. The `builtin` is there because bash switches `set -e` off *inside* the text
for `! eval`, but not for `! builtin eval`.

PIPESTATUS has the status that `!` inverts. DIRSTACK has what `pwd` prints; a command can set PWD. LINENO counts the
lines that bash has read. If it is one too low, something else (PROMPT_COMMAND='read x') has read one of our lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

# Bash reads this many bytes of its input at once. All lines of one command fit into one read: nothing is left in the
# socket that a trap could read (`set -e` undoes our redirections before an EXIT trap runs). Longer text goes through a
# file. From 10 KB on a file is faster in any case (1 KB: 0.20 ms inline, 0.23 ms from a file).
READ_MAX: Final = 1024

# Bash before 5.1 needs what follows here, and its own bootstrap (see ``spawn``).
LONG_READS: Final = 501  # 5.1
# An older bash reads this many bytes at once. Its last read gets the whole mark line and the end of the line before it.
# A nonce must be short enough for that.
SHORT_READ: Final = 128
# Comes before the statuses in the mark if ``_Dialect.suffix`` came after the text.
_SUFFIXED: Final = b"="


class _Dialect(NamedTuple):
    """The parts of our lines that differ in an older bash.

    ``suffix`` follows the text. Some errors (`shift 1 2`) throw an older bash out of `eval` itself. They leave
    PIPESTATUS unchanged and 1 in $?, which is also what `!` makes of success. So the suffix turns success into 0, which
    no error leaves. If PIPESTATUS was made unreadable, only `!` shows the status. Traces and DEBUG traps print nothing.

    ``skipped`` replaces a text that was not run. It leaves an older bash with 1, at which `set -e` does not end it.
    ``status_prefix`` comes before the statuses in the mark. ``alignment``: the lines are padded to a multiple of it.
    """

    suffix: bytes = b""
    skipped: bytes = b"((1))"
    status_prefix: bytes = b""
    alignment: int = 1


_NEW: Final = _Dialect()
_OLD: Final = _Dialect(
    b"; case $?${PIPESTATUS[0]-} in 10) ((1));; 1) ((0));; esac 0</dev/null >/dev/null 2>&1",
    b"((0)) && :",
    _SUFFIXED,
    SHORT_READ,
)

# The spellings of the call that runs the text, best first: the name that a function could hide, and what is typed. Only
# the first keeps `set -e` working inside the text. The others are for a shell where `builtin` or `eval` was replaced or
# disabled. `.` (SOURCE) comes last: it needs a file, accepts `return`, and hides the text from DEBUG traps.
SPELLINGS: Final = (
    (b"builtin", b"\\builtin eval"),
    (b"eval", b"\\eval"),
    (b"command", b"\\command eval"),
    (b".", b"\\."),
)
SOURCE: Final = 3
# The guard of these spellings asks `declare` whether the name is a function. For a shell where `declare` itself was
# replaced, the spellings from TRIED on repeat the first three. Their guard tries the call instead.
TRIED: Final = len(SPELLINGS)
SPELLING_COUNT: Final = TRIED + SOURCE

_NEWLINES_MAX: Final = 64
# No file can be below this path, whatever happens to the file system. It is as short as possible.
NOWHERE: Final = b"/dev/null/"
# This many bytes of a nonce are in the mark line only. The rest also appears in the lines before it. With
# `set -o history` a DEBUG trap can read those.
SECRET: Final = 14
_STATUSES: Final = b"${PIPESTATUS[0]-} $?"
# The same words in a form that bash expands 1.5 us faster.
_SET_WORDS: Final = b"$PIPESTATUS $? $LINENO $- $DIRSTACK"
_BEFORE_ESCAPE: Final = re.compile(rb"(?<![\x80-\xff])[\x80-\xff]++(?=\\)")


def quote(text: bytes) -> bytes:
    """Return one line that bash reads back as ``text``, byte for byte, in any locale.

    Bash reads characters, and in some locales (GBK, Shift-JIS) the second byte of a character can be a backslash. So no
    backslash of ours follows a byte that may begin a character.
    """
    if b"\\" not in text and b"'" not in text and b"\n" not in text:
        return b"$'" + text + b"'"
    line = b"$'" + text.replace(b"\\", b"\\\\").replace(b"'", b"\\'").replace(b"\n", b"\\n") + b"'"
    return line if line.isascii() or b"\\" not in line else _BEFORE_ESCAPE.sub(_in_hex, line)


def _in_hex(found: re.Match[bytes]) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in found[0])


def from_file(path: bytes, text: bytes, status: int = 0, spelling: int = 0) -> bytes:
    """Return an argument that reads ``text`` from the file at ``path``, and leaves ``status`` in ``$?``.

    ``$(<file)`` strips trailing newlines, so they are put back by hand: a heredoc may end in them. It also sets ``$?``
    to 0. Any other status needs one more substitution after it, which costs a fork. With `set -T` a DEBUG trap runs in
    that substitution; it must not run in the text.
    """
    newlines = len(text) - len(text.rstrip(b"\n"))
    if newlines > _NEWLINES_MAX and b"<<" not in text:
        newlines = 2  # not one: after a backslash there must be an empty line
    return b'"$(<' + quote(path) + b')"' + (quote(b"\n" * newlines) if newlines else b"") + leaving(status, spelling)


def leaving(status: int, spelling: int = 0) -> bytes:
    """Return what to append to an argument to leave ``status`` in ``$?``.

    It costs a fork, but needs no function and so runs no RETURN trap.
    """
    return b'"$({ %bexit %d; } >/dev/null 2>&1)"' % (_prefix(spelling), status) if status else b""


def sourced(path: bytes, spelling: int = 0) -> bytes:
    """Return an argument that makes bash source the file at ``path``."""
    return quote(_prefix(spelling) + b". " + quote(path))


def _prefix(spelling: int) -> bytes:
    """Return the prefix that calls a builtin: `builtin`, or a backslash where that is replaced or disabled."""
    return b"\\" if spelling % TRIED else b"\\builtin "


def mark_line(nonce: bytes, status: bytes = _STATUSES, nounset: bool = True, then: bytes = b"") -> bytes:
    """Return the line to which bash answers with the mark. ``nounset``: `set -u` may be on, and its variables unset.

    ``then``: what bash runs after that.

    An empty line comes first: after some syntax errors (an open quote) bash does not recognise a reserved word at the
    start of the next line.
    """
    words = b"%b ${LINENO-} $- ${DIRSTACK-}" % status if nounset else _SET_WORDS
    return b'\n! ((1)) <"%b%b %b/%b"%b\n' % (NOWHERE, nonce, words, nonce, b"; " + then if then else b"")


def version_line(nonce: bytes) -> bytes:
    """Return a ``mark_line`` whose status is bash's version times 100 (5.2 is 502)."""
    return mark_line(nonce, b"$((BASH_VERSINFO[0]*100+BASH_VERSINFO[1])) 0")


class Errexit(NamedTuple):
    """How `set -e` is made to end a text and not bash (see ``scope.guard_errexit``).

    ``sources``: bash sources the text. ``setup``: what it runs before. ``undo``: what it runs after the mark, which
    takes ``flags`` out of ``$-``.
    """

    sources: bool = False
    setup: bytes = b""
    undo: bytes = b""
    flags: bytes = b""


class Frame(NamedTuple):
    """The lines around one text: how bash runs it and reports its end.

    ``redirections`` are those of stdin and stdout; ``errors`` is that of stderr.

    ``grouped``: the redirections belong to a group. If they belong to a command, `set -e` undoes them before an EXIT
    trap runs, and bash undoes them before the trap of a signal that came in a last subshell. But in a group, `set -x`
    and DEBUG traps print our words into the redirections; for a command they print them before.

    ``reserved``: descriptors at which bash must keep none of its own (see ``named_descriptors``). The frame opens them.
    ``setter``: the name of a function that nobody else uses. It is the same for the life of one bash, which never
    forgets a name that it has seen (1.3 KB for each).
    ``version``: bash's version times 100 (5.2 is 502).
    ``guarded``: first check that the name which runs the text is still the builtin (see ``Known.guard``).
    ``nounset``: `set -u` may be on. ``errexit``: with ``sources``, the argument is the path of a file.
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
    errexit: Errexit = Errexit()

    def lines(self, argument: bytes, status: int = 0) -> bytes:
        """Return the two lines that run the text of ``argument``, with ``status`` in ``$?``, and report its end.

        The status: the last mark has left 1 in ``$?``. The guard turns that into 0; without a guard, a `((1))` does. A
        function that removes itself sets any other status.

        The guard: it reports a function that hides the name we call, or a disabled name; then bash runs nothing. It
        costs 5 us; a separate question would cost a round trip. A check afterwards would come too late: the text itself
        may have disabled the name.
        """
        dialect = _NEW if self.version >= LONG_READS else _OLD
        prologue, run = self._run(argument)
        prologue += self.errexit.setup
        if status:
            prologue += _set_status(self.setter, status, _prefix(self.spelling))
        elif self.errexit.setup:
            prologue += b"((1)); "
        run += dialect.suffix
        if dialect is _NEW and not (self.guarded or self.spelling):
            mark = mark_line(self.nonce, _STATUSES, self.nounset, self.errexit.undo)
            return b"%b%b\n%b" % (prologue or b"((1)); ", run, mark)
        # A command that has read this word could print it. It cannot fake the two statuses that are left here. After a
        # text, `!` never leaves 0 and 0, and ``_OLD.suffix`` never leaves 1 and 1 unless an error threw bash out of the
        # text (see ``MarkFinder``).
        skipped = b'! ((1)) <"%b%b$((0))/"; %b' % (NOWHERE, self.nonce[SECRET:], dialect.skipped)
        # Not `else`: if that is an alias for nothing, the text runs, and the report says that the guard skipped it.
        mark = mark_line(self.nonce, dialect.status_prefix + _STATUSES, then=self.errexit.undo)
        words = GUARDS[self.spelling], prologue, run, skipped, mark
        lines = b" %b; then %b%b; elif ((1)); then %b; fi\n%b" % words
        return b"if" + b" " * ((-len(lines) - 2) % dialect.alignment) + lines

    def _run(self, argument: bytes) -> tuple[bytes, bytes]:
        """Return what reserves the descriptors before the text, and what runs the text with its redirections."""
        # Not `builtin exec`: its redirections end with the command.
        reserving = b"".join(b"\\exec %d</dev/null; " % number for number in self.reserved)
        words = b"\\builtin ." if self.errexit.sources else eval_words(self.spelling)
        run = b"%b -- %b" % (words, argument)  # the text may begin with a dash
        if self.grouped:
            words = b"! ( %b ) %b %b" if self.isolated else b"{ ! %b; } %b %b"
            return reserving, words % (run, self.redirections, self.errors)
        if self.isolated:  # the subshell reserves its own
            return b"", b"! ( %b%b %b ) %b" % (reserving, run, self.errors, self.redirections)
        return reserving, b"! %b %b %b" % (run, self.redirections, self.errors)


def eval_words(spelling: int) -> bytes:
    """Return the words of that spelling, to which the text is the argument."""
    return SPELLINGS[spelling % TRIED][1]


def _guard(spelling: int) -> bytes:
    name, call = SPELLINGS[spelling % TRIED]
    if spelling >= TRIED:
        return b'%b "((1))" && ! %b "! ((1))"' % (call, call)  # `!`: no `set -e` may end the shell at it
    return b"! \\declare -F %b && %b%b" % (name, call, b" /dev/null" if spelling == SOURCE else b"")


# Conditions that are true if the name which runs the text is still the builtin; one for each spelling.
GUARDS: Final = tuple(map(_guard, range(SPELLING_COUNT)))


def _set_status(name: bytes, status: int, prefix: bytes) -> bytes:
    return b"%b() { %bunset -f %b; %breturn %d; }; %b builtin && :; " % (name, prefix, name, prefix, status, name)


_BLANK: Final = re.compile(rb"(?:[ \t\n]++|\\\n|#[^\n]*+)*+")
_EXEC: Final = re.compile(rb"exec\b(?:[<>]&|&>|\\\n|[^\n;&|])*+")  # with its arguments
_NAMED: Final = re.compile(rb"(?<![\w$])1\d(?=[<>])")
_ERREXIT: Final = re.compile(rb"\bset(?:[ \t]+[-+]?\w+){0,6}?[ \t]+-\w*e|\berrexit\b")
_ERR: Final = re.compile(rb"\bERR\b")
_ERRTRACE: Final = re.compile(rb"\bset[ \t]+-\w*E|\berrtrace\b")
# With `set -e`, end the sourced text at its first failing command, through all functions, before bash ends itself. Not
# in a child: that ends by itself, and in `eval false | cat` a `return` would lead it out of the text, into our words.
ERREXIT_TRAP: Final = b"case $-:${BASHPID-}:${#BASH_SOURCE[@]} in *e*:$$:[1-9]*) \\builtin return;; esac"
_NAMES_BUILTINS: Final = re.compile(
    rb"\b(?:builtin|enable)\b|\b(?:declare|eval)[ \t]*\(|\bfunction[ \t]+(?:declare|eval)\b"
)
_RUNS_UNSEEN: Final = re.compile(rb"\b(?:eval|source|trap|PROMPT_COMMAND)\b|(?:\A|[\s;&|({`!])\.[ \t]")
# Each match of the two patterns above contains one of these words. Looking for the words first takes a tenth of the
# time: 10 ms for 5 MB.
_BUILTIN_WORDS: Final = (b"builtin", b"enable", b"declare", b"eval")
_UNSEEN_WORDS: Final = (b"eval", b"source", b"trap", b"PROMPT_COMMAND", b". ", b".\t")
# Where a command begins, with the assignments and redirections before it.
# No repeated group is possessive: before 3.11.5, Python's `re` may then miss a match.
_PLAIN: Final = rb"[^\s;&|()'\"]*+"
_WORD: Final = _PLAIN + rb"(?:(?:\"[^\"]*+\"|'[^']*+')" + _PLAIN + rb")*"
_COMMAND: Final = (
    rb"(?:\A|[\n;&|(){`!]|\b(?:then|do|else|elif|if|while|until|time|command|builtin|coproc)(?:[ \t]++-\S*+)*[ \t])"
    rb"(?:[ \t]++|\\\n|\w++\+?=" + _WORD + rb"|[\w{}]*+[<>]++[&|]?[ \t]*+" + _WORD + rb")*"
)
_RUNS_OTHERS: Final = re.compile(
    _COMMAND + rb"(?:[\\'\"]?(?:eval|source|\.)['\"]?(?=[\s;&|)`<>]|\Z))|\bPROMPT_COMMAND\b"
)
# The word `trap`, also as an argument: a function may run it. In quotes it is one to search for (`grep 'trap'`), unless
# more follows there, or the text begins a command with it.
_TRAP: Final = re.compile(
    rb"(?<![\w./$-])(?<![ \t]['\"])trap(?=[\s;&|()}`'\"\\<>$]|\Z)|[ \t]['\"]trap[\s;&|()}`\\<>$]"
    rb"|" + _COMMAND + rb"['\"]trap['\"]"
)
_QUOTED_DOTS: Final = (b".'", b'."')
_RUNS_VARIABLE: Final = re.compile(_COMMAND + rb"['\"]?\$")
# Finds a text that may change how the next command must be typed, or that must itself be typed in another way: it has
# words of the two patterns above, or others that can change a shell; or it runs nothing; or its last line is continued.
UNUSUAL: Final = re.compile(
    rb"\b(?:builtin|enable|alias|eval|source|trap|PROMPT_COMMAND|exec|set|shopt|ulimit)\b"
    rb"|\bdeclare[ \t]*\(|(?i:debug)|(?:\A|[\s;&|({`!])\.[ \t]|\A\s*(?:#|\\|\Z)|\\\s*\Z"
)
# Where a command begins, also in a text for `eval`. A text that only mentions these words, in quotes, runs as usual.
_EDITING: Final = re.compile(
    rb"(?:\A|[\n;&|({`!]|\b(?:then|do|else|builtin|command)[ \t]|\beval[ \t]+[\"'])[ \t]*"
    rb"(?:set[ \t]+[-+]\w*o[ \t]*(?:$|[\n;|&>)`\"'])"
    rb"|(?:set|shopt)[ \t][^\n;|&>)`]*[-+]\w*o[ \t][^\n;|&>)`]*\b(?:vi|emacs)\b"
    rb"|shopt[ \t]+-(?:o\w*p|p\w*o))"
)


def is_blank(text: bytes) -> bool:
    """Return whether there is nothing to run: only blanks, empty or continued lines, and comments.

    A backslash does not continue a comment.
    """
    return text.lstrip(b" \t\n")[:1] in (b"", b"#", b"\\") and _BLANK.fullmatch(text) is not None


def named_descriptors(text: bytes) -> set[int]:
    """Return the descriptors that an ``exec`` in the text may use, and that bash would take for itself.

    While a text runs, bash keeps its own three descriptors at the first free numbers from 10 on. What the text opens
    there is lost, and if it closes one, the shell is lost. Redirections of other commands end with the command, and
    bash moves its own descriptors meanwhile.
    """
    return {int(number) for words in _EXEC.findall(text) for number in _NAMED.findall(words)}


def sets_errexit(text: bytes) -> bool:
    """Return whether the text may switch `set -e` on."""
    return (b"set" in text or b"errexit" in text) and _ERREXIT.search(text) is not None


def names_err_trap(text: bytes) -> bool:
    """Return whether the text may set an ERR trap. `echo ERROR` does not."""
    return b"ERR" in text and _ERR.search(text) is not None


def sets_errtrace(text: bytes) -> bool:
    """Return whether the text may switch `set -E` on."""
    return _ERRTRACE.search(text) is not None


def closes_descriptors(text: bytes) -> bool:
    """Return whether the text may close a descriptor whose number it does not show (`eval "exec $n>&-"`)."""
    return b"&-" in text


def names_builtins(text: bytes) -> bool:
    """Return whether the text may change what `builtin` or `eval` is, now or when one of its functions is called."""
    return any(word in text for word in _BUILTIN_WORDS) and _NAMES_BUILTINS.search(text) is not None


def runs_unseen(text: bytes) -> bool:
    """Return whether the text may run what it does not show: a file, or words that it puts together."""
    return any(word in text for word in _UNSEEN_WORDS) and _RUNS_UNSEEN.search(text) is not None


def names_trap(text: bytes) -> bool:
    """Return whether the text may call `trap`, now or when one of its functions is called."""
    return b"trap" in text and (_TRAP.search(text) is not None or _RUNS_VARIABLE.search(text) is not None)


def may_see_traps(text: bytes) -> bool:
    """Return whether the text may look at the traps, or set one. `find . -name eval` does not."""
    if names_trap(text):
        return True
    return any(word in text for word in _UNSEEN_WORDS + _QUOTED_DOTS) and _RUNS_OTHERS.search(text) is not None


def switches_editing(text: bytes) -> bool:
    """Return whether the text may switch line editing (`set -o vi`, `eval "$(set +o)"`).

    An interactive bash that began without line editing ends at that in the text of an `eval`: it then reads the rest
    from its stdin. In a sourced file it does not.
    """
    return (b"set" in text or b"shopt" in text) and _EDITING.search(text) is not None


# Bytes of noise that are kept while a mark is expected. A mark is a path name, and its parts are below PATH_MAX (4096).
NOISE_MAX: Final = 1 << 16

# What bash prints before an ordinary mark: its name, and the start of the path.
_BEFORE: Final = b"bash: " + NOWHERE[:-1]
_PLAIN_START: Final = len(_BEFORE)
_SIGNALLED: Final = 128
_LOST: Final = re.compile(rb": \d\d: ")


class Mark(NamedTuple):
    """Bash's report at its prompt, about the command and about itself.

    ``line``: how many lines bash has read so far; 0 if it does not know. ``skipped``: the guard did not let the text
    run. ``broken``: our own line did not do what it reports. ``thrown``: by the status, a signal threw bash out of our
    line. ``doubtful``: our line may have been a syntax error. Bash has then reported that on its own stderr; an error
    in the text can leave the same status.
    """

    status: int
    flags: bytes
    cwd: bytes
    line: int = 0
    skipped: bool = False
    broken: bool = False
    doubtful: bool = False
    thrown: bool = False


class MarkFinder:
    """Finds one mark in what bash prints on its control socket, in pieces of any size."""

    noise = b""  # all that was printed, and the mark in it
    trimmed = 0  # bytes of noise that were dropped
    mark: Mark | None = None
    has_noise = False  # something was printed besides the mark and prompts
    _skipped = False  # the noise that was dropped had the guard's report
    _foreign = 0  # other processes than bash may have written in the first this many bytes of the noise

    def __init__(self, nonce: bytes, prompt: bytes = b"") -> None:
        """``prompt``: what bash is known to print on its own stderr before it reads a line. It is not noise."""
        self.nonce = nonce
        self._fence = b"/" + nonce  # stands before the words of a mark, and after them
        self._prompt = prompt

    def feed(self, data: bytes, by_bash: bool = True) -> Mark | None:
        """Take the next bytes, and return the mark once it is complete.

        What follows a mark is noise. So is what other processes wrote (``by_bash`` is False).
        """
        self.noise += data
        if not by_bash and self.mark is None:
            self._foreign = len(self.noise)
        if self.mark is None and not self._find() and len(self.noise) > NOISE_MAX:
            self._skipped = self._reports_skip()
            cut = len(self.noise) - NOISE_MAX // 2
            self.trimmed += cut
            self.noise = self.noise[cut:]
            self._foreign = max(0, self._foreign - cut)
        return self.mark

    def _find(self) -> bool:
        # `set -v` echoes our line before bash answers it. Its unexpanded words are no mark, so continue the search.
        noise, fence = self.noise, self._fence
        start = noise.find(fence, self._foreign)
        while start >= 0:
            body = start + len(fence)
            end = noise.find(fence, body)
            if end < 0:
                return False
            self.mark = mark = _parse(noise[body:end])
            if mark is not None:
                # Only prompts and bash's name come before an ordinary mark.
                self.has_noise = start != _PLAIN_START and self._without_prompts(noise[:start]) != _BEFORE
                if self.has_noise and not mark.thrown and self._reports_skip():
                    self.mark = self._confirmed(mark, noise[body:end])
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

    def _reports_skip(self) -> bool:
        return self._skipped or NOWHERE + self.nonce[SECRET:] + b"0/" in self.noise

    def _confirmed(self, mark: Mark, body: bytes) -> Mark:
        """Return the mark with ``skipped``, or with ``broken`` if bash's statuses do not confirm the guard's report.

        The text is typed again only if the statuses, too, say that it never ran; `!` inverts one of them. If they do
        not, something has forged the report.
        """
        skipped = body.startswith((b" 0 0 ", b" " + _SUFFIXED + b"1 1 "))
        return mark._replace(skipped=skipped, broken=not skipped)

    @property
    def noise_before_mark(self) -> bytes:
        """What was printed on bash's stderr besides the mark."""
        at = self.noise.find(self._fence, self._foreign) if self.mark is not None else len(self.noise)
        said = self._without_prompts(self.noise[:at]).removesuffix(_BEFORE)
        return b"" if said == b"\n" else said  # after SIGINT bash begins a new line

    @property
    def lost_descriptor(self) -> bool:
        """Whether bash failed to restore its own descriptors (`exec 10>&-` closes one). It then has no input."""
        return self.has_noise and _LOST.search(self.noise) is not None

    def complains_of(self, path: bytes) -> bool:
        """Return whether bash failed to open ``path``; then our line did not run. It works in any message language."""
        return b": " + path + b": " in self.noise


def repeated(said: bytes) -> bytes:
    """Return what ``said`` repeats two or three times, or b"" if it is no such repetition.

    Bash reads three lines for each command, and has printed the prompt for the first one before.
    """
    for times in (3, 2):
        once = said[: len(said) // times]
        if once and said == once * times:
            return once
    return b""


def plain_mark(said: bytes, nonce: bytes) -> Mark | None:
    """Return the mark if bash printed nothing else, or None."""
    fence = b"/" + nonce
    start = _PLAIN_START + len(fence)
    end = said.find(fence, start)
    return _parse(said[start:end]) if end > 0 and said.startswith(_BEFORE + fence) else None


def _parse(body: bytes) -> Mark | None:
    """Return the mark with these words, or None if they are no report of bash's."""
    words = body.split(b" ", 5)
    if len(words) != 6 or words[0]:
        return None
    _, piped, last, line, flags, cwd = words
    if has_suffix := piped.startswith(_SUFFIXED):
        piped = piped[len(_SUFFIXED) :]
    if not last.isdigit() or not (piped.isdigit() or not piped):
        return None
    if has_suffix and b"r" in flags and piped:  # a restricted shell has refused the suffix, which left 1
        last, has_suffix = b"%d" % (piped == b"0"), False
    read = int(line) if line.isdigit() else 0  # `unset LINENO` removes its special meaning
    # `!` leaves 0 or 1. From 128 on, SIGINT threw bash out of our line: `$?` is 130, or an earlier value as high (see
    # bash's sig.c). Any other value means that an error did so (`exit 1 2`), and `$?` is the text's. Or it is 2, and
    # bash rejects our line itself, for example because a keyword in it is an alias.
    if int(last) >= _SIGNALLED:
        return Mark(int(last), flags, cwd, read, thrown=True)
    if last not in (b"0", b"1") or (has_suffix and piped and last == b"1"):
        return Mark(int(last), flags, cwd, read, doubtful=last == b"2")
    # PIPESTATUS can be made unreadable (`declare -A PIPESTATUS`): then undo `!` by hand. If `!` had nothing to invert,
    # an error threw bash out of the text.
    failed = last == b"0"
    status = int(piped or failed)
    return Mark(status if failed or not status else int(last), flags, cwd, read)
