"""The person's own terminal: its modes and keys, the prompt, and the signals that concern it.

Law: whatever happens, it is given back as it was found; nothing else of the command line touches it.
"""

from __future__ import annotations

import os
import signal
import termios
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any, Final, Self

from ..engine.waiting import Wait
from ..errors import InvalidRequest
from .ahead import Ahead
from .editing import for_readline, from_readline, take_any_character
from .screen import Screen

_IN: Final = 0
_OUT: Final = 1
# How often it is seen, while a line is typed, whether there is something to show, in seconds. Readline waits in C: only
# a signal reaches us there, and one that comes just before it waits is not heard before the next.
_GLANCE: Final = 0.1


class Disturbed(Exception):
    """Something has to be shown while a line is being typed; ``text`` is what was typed of it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Terminal(Screen):
    """The terminal on stdin and stdout, ours within a ``with`` block. Raises InvalidRequest where there is none.

    In the block SIGTERM and SIGHUP end the program (SystemExit), and so give it back. Once it is raw, Ctrl-C is a key,
    also from a prompt on, when the kernel makes SIGINT of it, and drops what was typed before it and not read.
    """

    def __init__(self) -> None:
        if not (os.isatty(_IN) and os.isatty(_OUT)):
            raise InvalidRequest(
                "attach is for a person at a terminal, and stdin or stdout is none: programs use `shellsession run`"
            )
        super().__init__()
        self.fd = _IN
        self._modes: list[Any] = termios.tcgetattr(_IN)
        self._set_modes = self._modes
        self._keyed = False  # it was raw once
        self._struck = False  # by a SIGINT that is to be the key
        self._asking = False  # in ``line``
        self._disturber: int | None = None  # the socket of ``line``, while we may raise to end it
        self._ended: int | None = None  # the signal that ends the program
        self.leaves = False  # did Ctrl-] end the last line?
        self._begun: str | None = None  # what the next line begins with, until readline has it
        self._queue: Ahead | None = None  # keys that readline reads before those of the keyboard
        self.left = b""  # those that the last line left unread
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self._give_back)
            bell, ring = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            undo.callback(os.close, bell)
            undo.callback(os.close, ring)
            undo.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(ring, warn_on_full_buffer=False))
            self._bell = bell
            for number in (signal.SIGTERM, signal.SIGHUP):
                undo.callback(signal.signal, number, signal.signal(number, self._end))
            undo.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, self._interrupted))
            # Before readline is loaded: it hears of a new size as well when it finds a handler, and calls that.
            undo.callback(signal.signal, signal.SIGWINCH, signal.signal(signal.SIGWINCH, lambda *_: None))
            # Ctrl-\ at a prompt does nothing, as in bash. (Not SIG_IGN, which a daemon that we start would inherit.)
            undo.callback(signal.signal, signal.SIGQUIT, signal.signal(signal.SIGQUIT, lambda *_: None))
            for number in (signal.SIGALRM, signal.SIGCONT):
                undo.callback(signal.signal, number, signal.signal(number, self._glance))
            if signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL:  # else nobody is there who could continue us
                undo.callback(signal.signal, signal.SIGTSTP, signal.signal(signal.SIGTSTP, self._suspend))
            self._prepare_prompt()
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _give_back(self) -> None:
        self._leave_queue()
        with suppress(OSError):
            self.calm()
        self.cook()

    # -- modes

    def raw(self, strikes: bool = False) -> None:
        """Each key is read as it is; a line feed in what is shown still begins a new line.

        Ctrl-C, too, unless it ``strikes``: where keys are left for the next prompt it would be a key behind them.
        """
        self._keyed = True
        modes = self._raw(strikes)
        if modes != self._set_modes:
            self._set(modes)

    def _raw(self, strikes: bool) -> list[Any]:
        """The modes of ``raw``."""
        modes = [*self._modes]
        modes[0] &= ~(termios.IXON | termios.ICRNL | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.BRKINT)
        modes[1] |= termios.OPOST | termios.ONLCR
        modes[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
        modes[6] = [*modes[6]]
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        if strikes:
            modes[3] |= termios.ISIG
            modes[6][termios.VINTR], modes[6][termios.VQUIT], modes[6][termios.VSUSP] = b"\x03", b"\0", b"\0"
        return modes

    def _prepare_line(self) -> None:
        """What readline finds, and leaves behind until it is raw again. It echoes keys where the terminal does.

        Not in lines (ICANON), as the kernel stores Ctrl-D as NUL then, and heeds Backspace and others itself: who reads
        raw later gets what has become of them. Nor are Ctrl-S and Ctrl-Z for us there: see ``_begin_typing``.
        """
        modes = self._raw(strikes=True)
        modes[0] = self._modes[0] & ~termios.IXON
        modes[3] |= self._modes[3] & termios.ECHO
        self._set(modes)

    def cook(self) -> None:
        """As it was found."""
        self._set(self._modes)

    def _set(self, modes: list[Any]) -> None:
        self._set_modes = modes
        _put(modes)

    # -- keys

    def wait(self, *fds: int, until: float | None) -> set[int]:
        """Until one of these can be read (``fd``: keys), a signal comes, or the moment; who can be read."""
        ready = set(self._poller.wait(Wait((self._bell, *fds), until)))
        if self._bell in ready:
            os.read(self._bell, 4096)
        return ready | {_IN} if self._struck else ready

    def keys(self) -> bytes:
        """What was typed; b"" when the terminal is gone."""
        if self._struck:
            self._struck = False
            return b"\x03"
        try:
            return os.read(_IN, 4096)
        except OSError:
            return b""

    def heed(self) -> None:
        """Raises KeyboardInterrupt where Ctrl-C was pressed, and is no key of a command's."""
        if self._struck:
            self._struck = False
            raise KeyboardInterrupt

    # -- the prompt

    def _prepare_prompt(self) -> None:
        import readline  # not before there is a handler for SIGWINCH

        self._readline = readline
        take_any_character()
        readline.set_auto_history(False)
        # Each line of vi's begins by inserting, whatever the keymap was; one of emacs' in that which is set here last.
        for keymap in ("vi-command", "vi-insert", "emacs"):
            readline.parse_and_bind(f"set keymap {keymap}")
            # A macro may not name a function: it goes by a key that no keyboard has. The line is emptied, then ended.
            readline.parse_and_bind(r'"\e[9001~": kill-whole-line')
            # A completion is the one thing that calls us: Ctrl-] is known from Ctrl-D by it.
            readline.parse_and_bind(r'"\e[9002~": complete')
            readline.parse_and_bind(r'"\C-]": "\e[9001~\e[9002~\C-d"')
            readline.parse_and_bind(r'"\e\C-]": "\C-]"')  # behind an Esc that nothing has come of yet
            readline.parse_and_bind("tab: tab-insert")
        readline.parse_and_bind("set bell-style none")  # nothing is ever completed
        readline.set_completer(self._note_leaving)
        # In the C locale a byte from 128 on would be Alt and a key.
        readline.parse_and_bind("set convert-meta off")
        readline.set_pre_input_hook(self._begin_typing)

    def line(self, prompt: str, begun: str, socket: int, keys: bytes = b"") -> str | None:
        """A line that is typed; None at Ctrl-D or Ctrl-]. It begins with what was ``begun`` before, and these keys.

        Raises Disturbed when the socket can be read meanwhile, KeyboardInterrupt.
        """
        self.begin_line()
        self._asking = True
        self._prepare_line()
        self._begun, self.leaves = for_readline(begun), False
        self.left = b""
        self._queue = Ahead(keys, self._raw(strikes=False)) if keys else None
        lines: list[str] = []
        blocking = os.get_blocking(_OUT)
        os.set_blocking(_OUT, True)  # what readline writes to a full terminal that does not block is lost
        try:
            signal.setitimer(signal.ITIMER_REAL, _GLANCE, _GLANCE)
            try:
                self._disturber = socket
                # From Enter to the list it is all C: no signal comes between them and takes the line away.
                lines.extend(map(input, (prompt,)))
            finally:
                self._disturber = None
        except EOFError:
            return None
        except Disturbed:
            if not lines:
                raise
        except SystemError as error:
            raise _first_raised(error) from None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.set_blocking(_OUT, blocking)
            self._leave_queue()
            self.raw(strikes=True)
            self._asking = False
            self._tail = b"" if lines else b"?"  # at the start of a line, or somewhere in one
            if self._ended is not None:  # whatever has become of what ``_end`` raised
                raise SystemExit(128 + self._ended)
        return lines[0]

    def _leave_queue(self) -> None:
        """The keyboard is read again."""
        if self._queue is not None:
            self.left, self._queue = self._queue.close(), None
            self._set_modes = []  # readline may have given back those of the queue instead

    def _note_leaving(self, _text: str, _state: int) -> None:
        self.leaves = True

    def _begin_typing(self) -> None:
        if self._begun:
            self._readline.insert_text(self._begun)
            self._readline.redisplay()
        self._begun = None
        # While it is typed flow control is as found, and so are the keys of signals. (No function: ``_is_swallowed``.)
        modes = termios.tcgetattr(_IN)
        modes[0] |= self._modes[0] & termios.IXON
        for key in (termios.VINTR, termios.VQUIT, termios.VSUSP):
            modes[6][key] = self._modes[6][key]
        termios.tcsetattr(_IN, termios.TCSANOW, modes)
        if self._queue is not None:  # not before: readline has prepared the keyboard, which is read afterwards
            os.dup2(self._queue.fd, _IN)

    # Signals. ``input`` looks for them once more when a handler has raised: of what the next one raises on top of that
    # the first is lost, and where it returns that is a SystemError. Hence nothing but the end is raised on top.

    def _interrupted(self, _number: int, frame: FrameType | None) -> None:
        if (self._disturber is None and self._keyed) or _is_swallowed(frame):
            self._struck = True
            return
        self._disturber = None
        raise KeyboardInterrupt

    def _glance(self, number: int, frame: FrameType | None) -> None:
        """SIGALRM: is there something to show? SIGCONT, after Ctrl-Z: all is to be shown again, in our modes."""
        if self._disturber is None:
            if number == signal.SIGCONT and self._keyed and not self._asking:
                self._set(self._set_modes)
            return
        if _is_swallowed(frame):
            return
        if self._ended is not None:
            self._end(self._ended, frame)
        if self._struck:
            self._struck, self._disturber = False, None
            raise KeyboardInterrupt
        if self._queue is not None:  # shown anew, a line has its cursor at the end: not amid its keys
            if self._queue.is_read(self._poller):
                self._leave_queue()
            return
        if number == signal.SIGCONT or self._poller.wait(Wait((self._disturber,), 0)):
            self._disturber = None
            raise Disturbed(from_readline(self._readline.get_line_buffer() if self._begun is None else self._begun))

    def _suspend(self, _number: int, frame: FrameType | None) -> None:
        """SIGTSTP, Ctrl-Z at the prompt: whoever has the terminal meanwhile finds it as we did.

        Bash sets the modes that it wants itself; other shells do not.
        """
        self._leave_queue()
        modes, disturber = termios.tcgetattr(_IN), self._disturber
        self._disturber = None  # until we go on: nothing may be raised before we stop
        _put(self._modes)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        try:
            signal.raise_signal(signal.SIGTSTP)
        finally:
            signal.signal(signal.SIGTSTP, self._suspend)
            _put(modes)
            self._disturber = disturber
        self._glance(signal.SIGCONT, frame)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._ended = number
        if not _is_swallowed(frame):  # else the next glance raises
            self._disturber = None
            raise SystemExit(128 + number)


def _put(modes: list[Any]) -> None:
    """Have the terminal in these modes; what is typed already stays."""
    with suppress(termios.error):  # it was hung up
        termios.tcsetattr(_IN, termios.TCSADRAIN, modes)


def _is_swallowed(frame: FrameType | None) -> bool:
    """Is this readline's hook, where what is raised comes to nothing?"""
    return frame is not None and frame.f_code is Terminal._begin_typing.__code__


def _first_raised(error: BaseException) -> BaseException:
    """What a signal's handler raised before others returned on top of it."""
    while isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__
    return error
