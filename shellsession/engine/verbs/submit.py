"""Types a command to bash, and types it again if our own line provably failed.

Law: the text itself runs at most once. Only a text that never began is typed again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ...models import TTY, Request, Stream as StreamName
from ..bash.shell import Shell
from ..io.nonce import fresh_nonce
from ..io.output import spills_of
from ..io.streams import Stream
from ..io.threads import Steps
from ..kernel import activity, proc
from ..wire import (
    READ_MAX,
    SOURCE,
    SPELLING_COUNT,
    Errexit,
    Frame,
    Mark,
    from_file,
    leaving,
    named_descriptors,
    quote,
    sourced,
    switches_editing,
)
from .call import Call, Typed
from .collect import BROKEN, STOLEN, ask, kill_unusable
from .core import Core
from .known import NEVER

# After its own job, bash takes the terminal back. Nothing else can do that: no other process of ours is in bash's
# kernel session.
_TO_FOREGROUND: Final = b"[[ $- == *m* ]] || { \\builtin set -m; ( : ); \\builtin set +m; }\n"

# A continued line before a last line that bash takes for continued as well (in 5.3 even a comment).
_OPEN_END: Final = re.compile(rb"\\\n(?:[ \t]*#[^\n]*)?\\\Z")

# All words of our line that an alias could replace. `$((0))` tells its answer from its echo (`set -v`).
_OUR_WORDS: Final = b'if ! ((1)); then ((1)); elif ((1)); then { ! ((1)) <"/dev/null/taken$((0))/"; }; fi'

_UNREACHABLE: Final = (
    "the command was not run: in this session `builtin`, `eval`, `command` and `.` are disabled or hidden by functions,"
    " and the shell cannot run a command without one of them; the shell was killed"
)

_STARVED: Final = (
    "the command was not run: earlier commands have used up the shell's file descriptors (`exec 3<file` without"
    " `exec 3<&-`, `ulimit -n`), and none is left to open the command's streams; the shell was killed"
)


def start(core: Core, shell: Shell, request: Request, errexit: Errexit, ours: bool = False) -> Call:
    """Type the command to bash, and return its call. ``ours``: see ``Core.begin``."""
    terminal = request.stdin is TTY
    older: Mapping[int, int] = {}
    if core.known.had_children and shell.family.has_children():
        older = shell.family.present()
    if older or core.terminal_job is not None:
        _settle_terminal(core, shell, request)
    if core.known.prompt_speaks and core.known.may_run_trap(request):
        shell.clear_own_output()
    if terminal and shell.is_background():
        shell.control.send(_TO_FOREGROUND)
    try:
        modes = shell.keyboard.cook(request.echo) if terminal else shell.terminal.modes
        typed = _prepare(core, shell, request, errexit)
        call = Call(request, typed, older, modes, spills_of(request.limits), shell.prompt)
        core.begin(call, ours)
        _send(shell, typed)
    except BaseException:
        if terminal and not shell.busy:  # the command is not run, and a terminal without a command is in raw mode
            shell.keyboard.reset()
        raise
    return call


def _settle_terminal(core: Core, shell: Shell, request: Request) -> None:
    """Keep what background jobs print to the terminal out of this command's output.

    The job of an earlier command gets it. If there is no such job, it is dropped.
    """
    job = core.terminal_job
    if job is not None and (request.stdin is TTY or not job.alive()):
        job.give_back()
        core.lend_terminal(None)
    if core.terminal_job is None:
        shell.terminal.skip()


def _send(shell: Shell, typed: Typed) -> None:
    shell.begin()  # before: Ctrl-C may arrive as soon as the lines are sent
    shell.control.send(typed.lines)


def _prepare(core: Core, shell: Shell, request: Request, errexit: Errexit) -> Typed:
    """Make the files and streams that bash opens for the command, and return how to type it."""
    terminal, nonce = request.stdin is TTY, fresh_nonce()
    for stream in shell.streams.misplaced():
        core.host.forget_fd(stream.fd)
        shell.streams.detach(stream)
        stream.close()
    out = shell.terminal if terminal else shell.streams.get("tty" if request.tty else "out")
    err = None if request.merge_stderr else shell.streams.get("err")
    if out.is_terminal and not terminal:
        out.restore_modes()
    made = frame(core, shell, request, nonce, out, err)._replace(errexit=errexit)
    for argument, status in _arguments(core, shell, request, errexit.sources):
        lines = made.lines(argument, status)
        if len(lines) <= READ_MAX:
            break
    streams: tuple[tuple[StreamName, Stream], ...] = (("stdout", out),)
    if err is not None:
        streams += (("stderr", err),)
    if not terminal and core.terminal_job is None:
        streams += (("stdout", shell.terminal),)  # what is written to /dev/tty
    return Typed(lines, nonce, streams, made.grouped, len(lines) <= shell.control.read_size, errexit)


def frame(core: Core, shell: Shell, request: Request, nonce: bytes, out: Stream, err: Stream | None) -> Frame:
    """Return the frame for a command that prints to ``out`` and ``err``."""
    redirections = _redirections(shell, request, out)
    errors = b"2>" + (err.word if err else b"&1")
    # Bash gives background commands /dev/null as stdin. In a group that has its own stdin, it gives them that instead.
    known = core.known
    grouped = not known.traced and known.may_run_trap(request) and (request.stdin is None or request.isolated)
    reserved = _reserved(core, shell, request, grouped)
    return Frame(
        *(nonce, redirections, errors, known.spelling, request.isolated, grouped, reserved),
        *(core.setter, shell.version, known.guard != NEVER),
    )


def _reserved(core: Core, shell: Shell, request: Request, grouped: bool) -> Sequence[int]:
    """Return the numbers at which bash must keep none of its own descriptors.

    They include those that an earlier text named: one of its functions may use them.
    """
    if request.isolated and grouped:
        return ()  # a subshell has closed what bash keeps, and no redirection in it makes bash keep more
    named = named_descriptors(request.command)
    if not request.isolated and not named <= core.known.named:
        core.learn(named=core.known.named | named)
    named |= core.known.named
    return sorted(named - activity.descriptors(shell.pid)) if named else ()


def _arguments(core: Core, shell: Shell, request: Request, sources: bool) -> Iterator[tuple[bytes, int]]:
    """Yield arguments for the text, each with the status to set before it: the best first, the shortest last."""
    text, known = request.command, core.known
    status, spelling = known.status, known.spelling
    if b"\\" in text:
        text = _end_last_line(text)
    if spelling == SOURCE or sources:
        yield quote(shell.files.write("text", text)), status
        return
    if switches_editing(text):
        argument = sourced(shell.files.write("text", text), spelling)
        yield (argument + leaving(status, spelling), 0) if known.functions_trap else (argument, status)
        return
    if len(text) <= READ_MAX:
        yield (quote(text) + leaving(status, spelling), 0) if known.functions_trap else (quote(text), status)
    yield from_file(shell.files.write("text", text), text, status, spelling), 0


def _end_last_line(text: bytes) -> bytes:
    """End a continued last line, as Enter does: an interactive bash ends if the text of `eval` ends in one."""
    if text.endswith(b"\\") and _OPEN_END.search(text):
        text += b"\n"
    return text + b"\n" if text.rstrip(b" \t").endswith(b"\\\n") else text


def _redirections(shell: Shell, request: Request, out: Stream) -> bytes:
    if request.stdin is TTY:  # readable and writable, as in a login: `more` reads its keys from stderr
        return b"0<>%b 1>&0" % out.word
    source = b"/dev/null"
    if isinstance(request.stdin, bytes):
        source = quote(shell.files.write("stdin", request.stdin))
    return b"0<%b 1>%b" % (source, out.word)


def ran_beyond_doubt(call: Call) -> bool:
    """Return whether our own line ran beyond doubt, and the text with it."""
    mark = call.finder.mark
    assert mark is not None
    return not (mark.skipped or mark.broken or mark.doubtful or call.stolen or call.finder.has_noise)


def must_retype(core: Core, call: Call) -> Steps[bool]:
    """If our own line failed and the text provably never ran, type it again in another way. Returns whether it was.

    Also returns True if the shell can run nothing any more: it is killed, and the caller waits for its end.
    """
    mark, shell = call.finder.mark, core.live()
    assert mark is not None
    if lost := (yield from _why_lost(shell, call, mark)):
        kill_unusable(shell, call, lost, ran=lost == BROKEN)
        call.typed_as(call.typed._replace(nonce=call.nonce + b"x"))  # a mark that is still on its way must not count
        return True
    if mark.skipped:  # the name that runs the text is hidden by a function, or disabled
        core.learn(spelling=(core.known.spelling + 1) % SPELLING_COUNT)
    elif not call.begun and _is_something_gone(shell, call):  # our files were removed since we last checked
        for stream in shell.streams:
            core.host.forget_fd(stream.fd)
        shell.streams.drop()
    else:
        return False
    shell.read_own_stdout()  # the guard's `declare` named the function
    call.own_output.take()
    call.retyped += 1
    errexit = call.typed.errexit
    errexit = errexit._replace(sources=errexit.sources and not core.known.spelling)
    typed = _prepare(core, shell, call.request, errexit)
    call.typed_as(typed)
    _send(shell, typed)
    return True


def leave_stdin(shell: Shell, call: Call) -> None:
    """Drop the large stdin of a command that is handed back, once bash has opened its file.

    Only our line makes bash, or a subshell of it, open that file as stdin. So if the file is open, the text has begun.
    """
    if call.is_fed and (file := proc.identity(os.fsdecode(shell.files.path("stdin")))) != (0, 0):
        pids = (shell.pid, *shell.family.newer(call.older))
        if any(proc.identity(f"/proc/{pid}/fd/0") == file for pid in pids):
            call.begun = True
            call.forget_stdin()


def _why_lost(shell: Shell, call: Call, mark: Mark) -> Steps[str]:
    """Return why the shell can run nothing any more, or "". Unless it is BROKEN, this text did not run either."""
    if mark.skipped and call.retyped >= SPELLING_COUNT - 1:
        return _UNREACHABLE
    if call.stolen and not mark.thrown:  # SIGINT makes bash forget lines that it has read
        # If we asked for the mark a second time, the text may have run, unless bash reads text and mark at once.
        return STOLEN if call.typed.in_one or not call.mark_requests else BROKEN
    if mark.broken or (mark.doubtful and call.finder.has_noise and not (yield from _takes_our_words(shell))):
        return BROKEN
    is_silent = call.stdout.total == call.stderr.total == 0
    complains = any(map(call.finder.complains_of, (b"/dev/null", *(stream.path for _, stream in call.streams))))
    return _STARVED if mark.status == 1 and is_silent and complains and not shell.has_free_descriptors() else ""


def _takes_our_words(shell: Shell) -> Steps[bool]:
    """Return whether the words of our line mean to bash what they mean to us.

    If they do now, they did before: no text ran since that could have changed it. If they do not, an alias hides one,
    which explains the status 2. Noise alone shows nothing: with `set -x` or a DEBUG trap there is always some.
    """
    return b"/taken0/: " in ((yield from ask(shell, _OUR_WORDS)) or b"")


def _is_something_gone(shell: Shell, call: Call) -> bool:
    """Return whether a file of ours is gone, and bash failed to open it.

    An error message alone proves nothing: the text can print the same one.
    """
    gone = [stream.path for _, stream in call.streams if stream.inode and not stream.in_place()]
    gone += [path for path in map(shell.files.path, ("text", "stdin")) if not os.path.lexists(path)]
    return any(call.finder.complains_of(path) for path in gone)
