"""The output and status of bash itself for a text: the reference of the differential tests.

The text is typed to a fresh ``bash --noprofile --norc -i`` at its prompt. Its commands read /dev/null. Its stdout and
stderr are of the same kind as those of the call under test. All known differences are in ``KNOWN_DIFFERENCES``.

Interactive bash without line editing reads its input in pieces of 1024 bytes (128 before 5.1). So a first line can
point descriptor 0 at /dev/null while bash already has the text in its memory. Then no command can read the text. After
it bash reads an end of file, and exits with the last status.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
import tty
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from zlib import crc32

import pytest
from bashes import FORGETS_STATUS, VERSION
from system import SOAK, session_members

# The environment of both sides.
ENVIRONMENT: Final = {
    "PATH": os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
    "HOME": "/",
    "LC_ALL": "C.UTF-8",
    "TERM": "dumb",
}
# No history: a pasted `A!B` is plain text, and no test may write a user's ~/.bash_history. (Before 5.1 bash ignores
# `+o history`.)
_START: Final = Path(__file__).with_suffix(".bash")
_BASH: Final = ("bash", "--noprofile", "--rcfile", str(_START), "--noediting", "+H", "+o", "history", "-i")
# The first terminal that a session leader opens becomes its own. (preexec_fn would fork with all our memory.)
_ON_OWN_TERMINAL: Final = ("sh", "-c", ': <>"$0"; exec "$@"')
_FIRST_LINE: Final = b"exec </dev/null\n"
_INPUT_PIECE: Final = 1024 if VERSION >= (5, 1) else 128
_MAY_LEAVE: Final = re.compile(rb"&|coproc|[<>]\(")


def kinds_for(text: bytes) -> tuple[bool, ...]:
    """On a terminal (true) or through pipes, always the same for one text; both in ``make soak``."""
    return (True, False) if SOAK else (crc32(text) % 2 == 0,)


@dataclass(frozen=True, slots=True)
class Said:
    """The output of a text, and its status."""

    stdout: bytes
    stderr: bytes
    status: int | None

    def renamed(self, old: bytes, new: bytes) -> Said:
        """The same output with the directory ``old`` renamed to ``new``."""
        return Said(self.stdout.replace(old, new), self.stderr.replace(old, new), self.status)


@dataclass(frozen=True, slots=True)
class Difference:
    """An expected difference: the reason, an example, and what is rewritten before the comparison."""

    why: str
    example: bytes
    pattern: bytes
    becomes: bytes = b""
    streams: tuple[str, ...] = ("stderr",)
    only_reference: bool = False
    when: bytes = b""  # a regular expression: only for texts that contain it
    since: tuple[int, int] = (4, 4)  # no older bash differs
    before: tuple[int, int] = (99, 0)  # no newer bash differs
    status: int | None = None  # replaces status 1 if the pattern is found


_DIFFERENCES: Final = (
    Difference(
        "at the end of its input the reference says that it leaves",
        b"echo hi",
        rb"(There are (stopped|running) jobs\.\n)?exit\n\Z",
        only_reference=True,
    ),
    Difference("`[1] PID` of a job that starts: another number each time", b"true & wait", rb"\[\d+\] \d+\n"),
    Difference(
        "`[1]+  Done  sleep` comes with the next prompt, and the session has none",
        b"sleep 0.05 & wait",
        rb"^\[\d+\][+ -]? +(Done|Exit \d+|Running|Stopped|Terminated|Killed|Hangup|User defined)\b.*\n",
    ),
    Difference(
        "`eval` adds one to the depth that `set -x` shows by repeating the first character of PS4",
        b"set -x; echo hi",
        rb"^([+>])\1* ",
        rb"\1 ",
        ("stdout", "stderr"),
        when=rb"set -\w*x|xtrace",
    ),
    Difference(
        "after an interrupt a prompt starts on a line of its own",
        b"kill -INT $$",
        rb"\A\n",
        only_reference=True,
        when=rb"kill -INT \$\$",
    ),
    Difference(
        "LINENO: the lines of a session are counted on",
        b"cat <(eval '[[ a b ]]')",
        rb"^(bash: .*\bline )\d+(?=: )",
        rb"\1N",
    ),
    Difference(
        "a here-document that ends early carries a line number, and we start to count elsewhere",
        b"cat <<EOF\nbody",
        rb"here-document at line \d+ delimited",
        b"here-document at line N delimited",
    ),
    Difference(
        "what is open at the end of the text carries a line number, and we start to count elsewhere",
        b"if true; then",
        rb"(unexpected end of file from `.+' command on line )\d+$",
        rb"\1N",
        since=(5, 3),
    ),
    Difference(
        "`eval` of bash 4.4 leaves 1 behind an error of syntax, the prompt 2",
        b"fi",
        rb"^(bash: (?:syntax error(?::| near)|unexpected (?:EOF|token|argument)))",
        rb"\1",
        before=(5, 0),
        status=2,
    ),
)
KNOWN_DIFFERENCES: Final = tuple(found for found in _DIFFERENCES if found.since <= VERSION < found.before)

# Scripts of the corpus whose whole output differs. A test checks that each still does.
_SILENT_DEATH: Final = "only with job control bash reports a death by a signal (Killed, Terminated)"
DIFFERENT_SCRIPTS: Final[dict[str, str]] = {
    # A call is one text for `eval`. Most errors end only their line, as at a prompt. These end the whole text.
    "midway: an error of syntax in the middle": "`eval` reads no further after an error of syntax",
    "midway: an unbound variable in arithmetic": "bash leaves `eval` itself at this error",
    "midway: a bad subscript": "bash leaves `eval` itself at this error",
    "midway: too many arguments": "bash leaves `eval` itself at this error",
    "midway: an interrupt in the middle": "an interrupt ends the call, not a line of it",
    # The session's shell has no job control (`set +m`).
    "midway: a child that dies of an interrupt": "only with job control bash takes it for its own interrupt",
    "calls: lastpipe does nothing under job control": "without job control it does something",
    "shell_state: trap inherited by subshells": _SILENT_DEATH,
    "shell_state: kill subshell by signal": _SILENT_DEATH,
    "shell_state: child dies of a signal": _SILENT_DEATH,
    "statuses: signal status": _SILENT_DEATH,
    "statuses: hup and quit": _SILENT_DEATH,
    "statuses: subshell killed": _SILENT_DEATH,
    # Other reasons.
    "options: set e trap exit": "the shell lives, so its EXIT trap does not run",
    "traps: the command that an exit trap is told of": "bash gives it the `eval` that the text ran in",
    "calls: extdebug skips": "a DEBUG trap that may refuse commands may refuse ours: the shell is ended, and says so",
    "syntax_errors: escaped newline at the end": "Enter ends a typed line with a newline; our text ends where it ends",
}
# Only for some versions.
if VERSION >= (5, 2):
    _STATUS = "since bash 5.2 eval gives 1 for it, the prompt 2"
    DIFFERENT_SCRIPTS["syntax_errors: unclosed substitution"] = _STATUS
    DIFFERENT_SCRIPTS["syntax_errors: unclosed process substitution"] = _STATUS
if VERSION < (5, 1):
    DIFFERENT_SCRIPTS["shell_state: bind and fc without line editing"] = "its history is on at first: ours was emptied"
    DIFFERENT_SCRIPTS["functions: local dash"] = "it sets all options anew, and line editing ends the session's bash"
if (5, 0) <= VERSION < (5, 1):
    for _name in (
        "heredocs: heredoc unterminated inside function",
        "syntax_errors: if without fi",
        "syntax_errors: while without done",
        "syntax_errors: case without esac",
        "syntax_errors: function without body",
        "syntax_errors: pipe at the end",
        "syntax_errors: and at the end",
        "syntax_errors: bad token in parentheses",
        "syntax_errors: until without do",
        "syntax_errors: function keyword without body",
        "syntax_errors: or at the end behind a comment",
        "syntax_errors: group without end",
    ):
        DIFFERENT_SCRIPTS[_name] = "bash 5.0 ends where an unfinished text is evaluated"
if VERSION < (5, 0):
    _SYNTAX = "`eval` of bash 4.4 leaves 1 behind an error of syntax, and the next text prints it"
    DIFFERENT_SCRIPTS["calls: syntax error in between"] = _SYNTAX
    DIFFERENT_SCRIPTS["sequences: status of syntax error then"] = _SYNTAX
    DIFFERENT_SCRIPTS["syntax_errors: bad arithmetic for"] = "`eval` of bash 4.4 gives 0 for it"
    DIFFERENT_SCRIPTS["options: alias with newline"] = "`eval` of bash 4.4 leaves its second line to the prompt"
    DIFFERENT_SCRIPTS["sequences: a child's trap after a last subshell"] = "bash 4.4 runs it under job control only"
if FORGETS_STATUS:
    DIFFERENT_SCRIPTS["syntax_errors: bad double bracket operator"] = "at its prompt bash forgets its status"


class Incoming:
    """A fresh bash to which ``text`` was typed. It runs in parallel until ``said`` collects its output."""

    def __init__(self, text: bytes, directory: Path, on_terminal: bool) -> None:
        """Start it in ``directory``. Its stdout is a raw terminal or a pipe; its stderr is a pipe."""
        entered = _FIRST_LINE + text + b"\n"
        if len(entered) > _INPUT_PIECE:
            tell = pytest.skip if VERSION < (5, 1) else pytest.fail
            tell(f"{len(entered)} bytes: this bash would not hold the text in its own memory, so there is no reference")
        self._may_leave = bool(_MAY_LEAVE.search(text))
        host, terminal = os.openpty()
        tty.setraw(terminal)
        self._out, out = (host, terminal) if on_terminal else os.pipe()
        self._err, err = os.pipe()
        self._fds = {host, terminal, self._out, self._err}
        stdin, typing = os.pipe()
        os.write(typing, entered)
        os.close(typing)
        self._process = subprocess.Popen(
            (*_ON_OWN_TERMINAL, os.ttyname(terminal), *_BASH),
            stdin=stdin,
            stdout=out,
            stderr=err,
            cwd=directory,
            env=ENVIRONMENT,
            start_new_session=True,
        )
        for fd in {stdin, err} if on_terminal else {stdin, err, out}:
            os.close(fd)

    def said(self, patience: float = 20.0) -> Said:
        """Wait for its end. Returns all its output, and its status."""
        collected = _collect(self._process, self._out, self._err, patience)
        status = self._process.wait()
        return Said(collected[self._out], collected[self._err], 128 - status if status < 0 else status)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        if self._may_leave:  # to look at every process takes as long as the rest
            for pid in session_members(self._process.pid):
                os.kill(pid, signal.SIGKILL)
        for fd in self._fds:
            os.close(fd)


def typed(text: bytes, directory: Path, on_terminal: bool) -> Said:
    """The output and status of a fresh bash in ``directory`` for ``text``."""
    with Incoming(text, directory, on_terminal) as asked:
        return asked.said()


def _collect(process: subprocess.Popen[bytes], out: int, err: int, patience: float) -> dict[int, bytes]:
    """All output of both streams until bash has ended."""
    collected = {out: b"", err: b""}
    ended = os.pidfd_open(process.pid)
    poll = select.poll()
    for fd in (out, err, ended):
        os.set_blocking(fd, False)
        poll.register(fd, select.POLLIN)
    deadline = time.monotonic() + patience
    try:
        while True:
            ready = [fd for fd, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000)]
            assert ready, f"bash itself did not end within {patience} s; it said {collected}"
            for fd in (out, err):
                while piece := _read(fd):
                    collected[fd] += piece
                if fd in ready and ended not in ready and not _open_at_the_other_end(fd):
                    poll.unregister(fd)
            if ended in ready:
                return collected
    finally:
        os.close(ended)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except (BlockingIOError, OSError):
        return b""


def _open_at_the_other_end(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return not any(event & select.POLLHUP for _, event in poll.poll(0))


def comparable(
    said: Said, text: bytes, *, reference: bool, shell_ended: bool = False, without: Difference | None = None
) -> Said:
    """``said`` without the known differences.

    If the text itself ended its shell (``shell_ended``), bash did not print ``exit`` at the end of its input.
    """
    streams, status = {"stdout": said.stdout, "stderr": said.stderr}, said.status
    for difference in KNOWN_DIFFERENCES:
        leaving = b"exit" in difference.pattern
        if difference is without or (difference.only_reference and not reference) or (leaving and shell_ended):
            continue
        if difference.when and not re.search(difference.when, text):
            continue
        if status == 1 and difference.status and re.search(difference.pattern, streams["stderr"], re.MULTILINE):
            status = difference.status
        for name in difference.streams:
            streams[name] = re.sub(difference.pattern, difference.becomes, streams[name], flags=re.MULTILINE)
    return Said(streams["stdout"], streams["stderr"], status)
