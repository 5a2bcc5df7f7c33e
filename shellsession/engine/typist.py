"""How a command is typed to bash, and typed again when our own line provably failed.

Law: the text itself is run once at the most. Only what never began may be typed again.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from typing import Final

from ..models import Request, Stream as StreamName
from . import processes
from .call import Call, Typed, fresh_nonce
from .core import Core
from .framing import READ_MAX, SOURCE, WAYS, Framer, command_lines, from_file, leaving, named_descriptors, quote
from .pump import BROKEN, STOLEN, ask
from .shell import Shell
from .spill import Spills, spills_of
from .streams import Stream
from .waiting import Steps

# After a job of its own bash takes the terminal back; only it can, as nobody else is in its kernel session.
_TO_FOREGROUND: Final = b"[[ $- == *m* ]] || { \\builtin set -m; ( : ); \\builtin set +m; }\n"

_UNREACHABLE: Final = (
    "the command was not run: functions stand in this session for the shell's own `builtin`, `eval`, `command` and `.`,"
    " or they are disabled, and by no other name can it be told to run anything; the shell was killed"
)


def start(engine: Core, request: Request) -> Call:
    """Type the command. What bash does not need to begin is done while it works already."""
    shell = engine.live()
    older: Mapping[int, int] = {}
    if engine.had_children and shell.family.has_children():
        older = shell.family.present()
    if older or engine.terminal_job is not None:
        _settle_terminal(engine, shell, request)
    if engine.prompt_speaks and engine.may_trap(request):
        shell.clear_own_output()
    if request.takes_terminal and shell.is_background():
        shell.send(_TO_FOREGROUND)
    try:
        modes = shell.keyboard.cook(request.echo) if request.takes_terminal else shell.terminal.modes
        typed, lines = _put(engine, shell, request)
        engine.begun = request, typed, older, modes, spills_of(request.limits)
        _send(shell, typed, lines)
    except BaseException:
        if request.takes_terminal and not shell.busy:  # it is not run, and a terminal that nobody has is raw
            shell.keyboard.reset()
        raise
    return begun(engine, *engine.begun)


def begun(engine: Core, request: Request, typed: Typed, older: Mapping[int, int], modes: bytes, spills: Spills) -> Call:
    """The call of what was typed last; it is noted now, or by who is struck before that."""
    call = engine.last = Call(request, time.monotonic(), typed, older, modes, spills)
    engine.begun = None
    return call


def _settle_terminal(engine: Core, shell: Shell, request: Request) -> None:
    """What background jobs say to the terminal is no command's output: an earlier one's job reads it, or nobody."""
    job = engine.terminal_job
    if job is not None and (request.takes_terminal or not job.alive()):
        job.give_back()
        engine.terminal_job = None
    if engine.terminal_job is None:
        shell.terminal.skip()


def _send(shell: Shell, typed: Typed, lines: bytes) -> None:
    shell.busy = typed.nonce  # first: Ctrl-C may strike as soon as it is sent
    shell.send(lines)
    shell.ours_in_history = 1


def _put(engine: Core, shell: Shell, request: Request) -> tuple[Typed, bytes]:
    """How it is to be typed, and what bash reads then."""
    nonce = fresh_nonce()
    terminal = request.takes_terminal
    for stream in shell.streams.misplaced():
        engine.forget_fd(stream.fd)
        shell.streams.part_with(stream)
        stream.close()
    out = shell.terminal if terminal else shell.streams.get("tty" if request.tty else "out")
    err = None if request.merge_stderr else shell.streams.get("err")
    if out.modes and not terminal:
        out.settle()
    # As Enter does: an eval that ends in a line which is only continued ends an interactive bash.
    text = request.command
    if text.endswith(b"\\\n\\"):
        text += b"\n"
    if text.rstrip(b" \t").endswith(b"\\\n"):
        text += b"\n"
    spelling = engine.spelling
    redirections = _redirections(shell, request, out)
    errors = b"2>" + (err.word if err else b"&1")
    ours = 1 + shell.ours_in_history if engine.history else 0
    # In a group that has a stdin of its own, bash gives that to background commands, and else /dev/null.
    named = () if request.isolated else named_descriptors(text)  # a subshell has let go of those that bash keeps
    reserved = sorted(named - processes.descriptors(shell.pid)) if named else ()
    grouped = not engine.traced and engine.may_trap(request) and request.stdin is None

    def lines(argument: bytes, status: int) -> bytes:
        return command_lines(
            argument, redirections, errors, nonce, status, spelling, request.isolated, ours, grouped, reserved
        )

    def inline(text: bytes) -> bytes:
        if engine.functions_trap:
            return lines(quote(text) + leaving(engine.status), 0)
        return lines(quote(text), engine.status)

    if spelling == SOURCE:
        typed = lines(quote(shell.files.write("text", text)), engine.status)
    elif len(text) > READ_MAX or len(typed := inline(text)) > READ_MAX:
        typed = lines(from_file(shell.files.write("text", text), text, engine.status), 0)
    streams: list[tuple[StreamName, Stream]] = [("stdout", out)]
    if err is not None:
        streams.append(("stderr", err))
    if not terminal and engine.terminal_job is None:
        streams.append(("stdout", shell.terminal))  # what is written to /dev/tty
    return Typed(nonce, (out,) if err is None else (out, err), tuple(streams), grouped), typed


def _redirections(shell: Shell, request: Request, out: Stream) -> bytes:
    if request.takes_terminal:  # as a login has it, to be read and written by each: `more` reads its keys from stderr
        return b"0<>%b 1>&0" % out.word
    source = b"/dev/null"
    if isinstance(request.stdin, bytes):
        source = quote(shell.files.write("stdin", request.stdin))
    return b"0<%b 1>%b" % (source, out.word)


def is_plain(call: Call) -> bool:
    """Is it beyond doubt that our line was run?"""
    mark = call.framer.mark
    assert mark is not None
    return not (mark.skipped or mark.broken or call.stolen or call.framer.has_noise)


def must_retype(engine: Core, call: Call) -> Steps[bool]:
    """Did our own line fail, so that the text provably never ran? Then type it again, another way."""
    mark, shell = call.framer.mark, engine.live()
    assert mark is not None
    # SIGINT makes bash forget lines that it has read.
    stolen = call.stolen and not mark.thrown and (yield from _counts_lines(shell))
    unreachable = mark.skipped and call.retyped >= WAYS - 1
    if stolen is not False or (mark.broken and call.framer.has_noise) or unreachable:
        # Where lines were typed to it a second time, the first one may have been run.
        call.not_run = unreachable or (stolen is True and not call.idle_looks)
        call.reason = _UNREACHABLE if unreachable else STOLEN if call.not_run else BROKEN
        shell.signal(signal.SIGKILL)
        call.framer = Framer(call.framer.nonce + b"x")  # wait for its end: a mark of it may be on its way, and is void
        return True
    if mark.skipped:  # the name by which we reach eval is hidden by a function, or disabled
        engine.spelling = (engine.spelling + 1) % WAYS
    elif _is_something_gone(shell, call):  # somebody removed our files since we looked
        for stream in shell.streams:
            engine.forget_fd(stream.fd)
        shell.streams.drop()
    else:
        return False
    shell.read_own_stdout()  # the guard's `declare` named the function
    call.own_output.take()
    call.retyped += 1
    typed, lines = _put(engine, shell, call.request)
    call.typed_as(typed)
    _send(shell, typed, lines)
    return True


def _counts_lines(shell: Shell) -> Steps[bool | None]:
    """Is LINENO what bash counts, and not what a command has put there after `unset LINENO`? None: it does not answer.

    A line that was read moves it, and nothing else.
    """
    before = shell.line
    answer = yield from ask(shell, b"")
    return None if answer is None else shell.line > before


def _is_something_gone(shell: Shell, call: Call) -> bool:
    """Could bash not open what we had for it? A complaint alone proves nothing: the text can print one as well."""
    gone = [stream.path for stream in call.own if stream.inode and not stream.in_place()]
    gone += [path for path in map(shell.files.path, ("text", "stdin")) if not os.path.lexists(path)]
    return any(call.framer.complains_of(path) for path in gone)
