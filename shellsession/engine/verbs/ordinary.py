"""The fast path for ordinary commands: it types, waits for and reads a command in one short piece.

The text and the options of an ordinary command change nothing about how the next one is typed, and nothing about its
bash is unusual. All other commands take the general path (``submit``, ``engine.attend``, ``ending``). So does a command
that turns out to be unusual at its mark, with all that was read of it. Both paths type the same words and read the same
mark.
"""

from __future__ import annotations

import time
from operator import itemgetter
from select import POLLHUP, POLLIN
from typing import Final, NamedTuple, Self

from ...models import OPTIONS, Request, Result, Stream as StreamName, exited
from ..bash.shell import READY, Shell
from ..io.nonce import fresh_nonce
from ..io.streams import SMALL, Stream
from ..io.threads import SOON, Wait
from ..wire import LONG_READS, READ_MAX, SECRET, UNUSUAL, plain_mark, quote
from .call import Call, Typed
from .collect import QUICK, take_message
from .core import Core
from .delivery import DELIVERED
from .known import NEVER
from .submit import frame

# A longer text goes into a file, on the general path.
_LONGEST: Final = 900
# Placeholders for a nonce and a text in a frame that becomes a format. No word of ours has such bytes.
_NONCE: Final = bytes(range(0x80, 0x94))
_TEXT: Final = b"\xfe\xff"
_NAMES: Final[tuple[StreamName, StreamName]] = ("stdout", "stderr")
# An ordinary command may set these options. All others, also those of later versions, must have their defaults.
_ORDINARY: Final = {"timeout", "on_timeout", "tty", "limits", "on_output", "patience"}
_OTHERS: Final = itemgetter(*(name for name in OPTIONS if name not in _ORDINARY))
_USUAL: Final = _OTHERS(Request(b"").__dict__)


class _Line(NamedTuple):
    """The line around a text and a nonce, as a format, and the streams of the output."""

    words: bytes
    out: Stream
    err: Stream
    typed: Typed


class Ordinary:
    """Types ordinary commands to one bash, as long as nothing about that bash changes."""

    def __init__(self, core: Core, shell: Shell, flags: bytes) -> None:
        self.wait = Wait((shell.control.fd,), spin=SOON, within=QUICK)
        # Not the core, which refers to this object: the cycle would keep both alive until the next garbage collection.
        self._shell = shell
        self._state = flags, core.known.guard, core.known.trapping, shell.prompt
        self._flags, self._guarded, self._prompt = flags, core.known.guard != NEVER, shell.prompt
        self._lines: dict[tuple[bool, int], _Line] = {}  # by `tty`, and by `$?`
        self._line: _Line
        self._said: bytes | None = None  # what bash has printed since the command was typed

    @classmethod
    def after(cls, core: Core, call: Call, before: Self | None) -> Self | None:
        """Return the fast path after that call, or None while something about the shell is unusual."""
        shell, mark = core.shell, call.finder.mark
        if (
            shell is None
            or mark is None
            or call.ending is not None
            or core.terminal_job is not None
            or not core.known.is_usual
            or shell.version < LONG_READS
        ):
            return None
        flags = core.known.flags
        return before if before is not None and before.fits(core, shell, flags) else cls(core, shell, flags)

    def fits(self, core: Core, shell: Shell, flags: bytes) -> bool:
        """Return whether this object is still right for the state of the shell."""
        return self._shell is shell and self._state == (flags, core.known.guard, core.known.trapping, shell.prompt)

    def send(self, core: Core, request: Request) -> Call | None:
        """Type the command and return its call. If it is no ordinary command, type nothing and return None."""
        shell, text, limits = self._shell, request.command, request.limits
        if (
            _OTHERS(request.__dict__) != _USUAL
            or (request.timeout is not None and request.timeout <= QUICK)
            or limits.spill is not None
            or limits.on_overflow != "truncate"
            or core.shell is not shell
            or core.kill_reason
            or core.interrupt_requested
            or shell.life != READY
            or len(text) > _LONGEST
            or UNUSUAL.search(text)
            or not shell.prepare(True)
        ):
            return None
        line = self._lines.get((request.tty, core.known.status)) or self._learn(core, request.tty)
        out, err = line.out, line.err
        if not shell.streams.are_in_place(out, err):
            self._lines.clear()
            return None
        if out.is_terminal:
            out.restore_modes()
        nonce = fresh_nonce()
        values = (quote(text), nonce[SECRET:], nonce, nonce) if self._guarded else (quote(text), nonce, nonce)
        lines = line.words % values
        if len(lines) > READ_MAX:
            return None
        if self._prompt:
            shell.control.receive()  # the prompt for this line
        self._line, self._said = line, None
        call = core.begin(Call(request, line.typed, nonce=nonce, prompt=self._prompt))
        shell.begin()  # before: Ctrl-C may arrive as soon as the lines are sent
        shell.control.send(lines)
        return call

    def _learn(self, core: Core, tty: bool) -> _Line:
        streams = self._shell.streams
        out, err = streams.get("tty" if tty else "out"), streams.get("err")
        made = frame(core, self._shell, Request(_TEXT, tty=tty), _NONCE, out, err)
        made = made._replace(nounset=b"u" in self._flags)
        lines = made.lines(quote(_TEXT), core.known.status)
        words = lines.replace(b"%", b"%%").replace(quote(_TEXT), b"%b")
        words = words.replace(_NONCE, b"%b").replace(_NONCE[SECRET:], b"%b")
        outputs: tuple[tuple[StreamName, Stream], ...] = (("stdout", out), ("stderr", err))
        typed = Typed(streams=(*outputs, ("stdout", self._shell.terminal)), grouped=made.grouped)
        line = self._lines[tty, core.known.status] = _Line(words, out, err, typed)
        return line

    def has_only_prompt(self) -> bool:
        """Read what bash has printed. Returns True if it is only the prompt, so that the mark has yet to come."""
        receive, prompt = self._shell.control.receive, self._prompt
        said = receive()
        if not prompt:
            self._said = said
            return False
        while said == prompt:  # bash prints the prompt for two lines, one directly after the other
            said = receive()
        self._said = said
        return said is None

    def read(self, core: Core, call: Call) -> Result | None:
        """Return the result of the command, or None if it still runs or something about it is unusual."""
        shell, line = self._shell, self._line
        control, said = shell.control, self._said
        mark = plain_mark(said, call.nonce) if said and control.is_bash else None
        if (
            mark is None
            or mark.thrown
            or mark.doubtful
            or mark.flags != self._flags
            or mark.line != control.last_line + control.lines_sent
            or (mark.status and shell.launch.groups)  # perhaps a sandbox's limit has ended it
            or shell.family.has_children()
        ):
            take_message(shell, call, said)
            return None
        output, is_whole = _drain(shell, line.out, line.err)
        if not is_whole or max(map(len, output)) > call.request.limits.max_output:
            take_message(shell, call, said)
            for name, data in zip(_NAMES, output, strict=True):
                if data:
                    call.feed(name, data, call.last_output)
            return None
        control.note_mark(mark)
        if mark.status != core.known.status:
            core.learn(status=mark.status)
        shell.settle()
        duration = time.monotonic() - call.started
        cwd, delivery = shell.check_cwd(mark.cwd), call.delivery
        result = exited(*output, mark.status, cwd, duration, call.id, call.request.command)
        core.outputs.small.append((call.id, *output))
        delivery.state, delivery.result = DELIVERED, result  # the caller of `run` gets it
        if call.taps or call.request.on_output is not None:
            try:
                for name, data in zip(_NAMES, output, strict=True):
                    if data:
                        call.show(name, data)
            finally:  # also if one of them raises: the command has ended
                call.end(result)
        return result


def _drain(shell: Shell, out: Stream, err: Stream) -> tuple[tuple[bytes, bytes], bool]:
    """Read both streams. Returns their data, and whether that is certainly the whole output.

    It is if nothing was printed anywhere else, and no process holds a stream any more.
    """
    events = dict(shell.streams.poll.poll(0))
    pieces, is_whole = [b"", b""], True
    for at, stream in enumerate((out, err)):
        event = events.pop(stream.fd, 0)
        if event & POLLIN:
            pieces[at] = stream.read(SMALL) or b""
            rest = stream.read(SMALL)
            pieces[at] += rest or b""
            is_whole = is_whole and rest == b""
        elif event != POLLHUP:
            is_whole = False
    for event in events.values():  # other streams must be hung up: the terminal, or one that this command does not use
        is_whole = is_whole and event == POLLHUP
    return (pieces[0], pieces[1]), is_whole
