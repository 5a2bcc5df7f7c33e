"""The prompt of ``attach``: read a person's next command, which may have several lines.

If prompt_toolkit is installed, it edits the command and keeps a history. Otherwise the kernel edits each line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ..engine.io.directories import make_private, state_directory
from ..models import to_bytes
from .terminal import CTRL_C, CTRL_D, ESCAPE, LEAVE, STDIN, UserTerminal, encoded

if TYPE_CHECKING:
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyPressEvent


_MORE: Final = "> "
_LINE_END: Final = re.compile(b"[\n" + re.escape(CTRL_C + CTRL_D + LEAVE) + b"]")
# Keys that are not text, such as Up. The kernel edits with only a few of them, and no command contains one.
_KEY_CODES: Final = re.compile(ESCAPE.pattern + b"|[\0-\x02\x05-\x08\x0b-\x1c\x1e\x1f\x7f]")
# How bash reports a text that is incomplete. Only at the start of a line, as the rest of a message quotes the text.
_INCOMPLETE: Final = re.compile(
    rb"^bash: line \d+: (?:(?:syntax error: )?unexpected (?:end of file|EOF )"
    rb"|(?:syntax error near )?unexpected token `EOF'"
    rb"|warning: here-document at line \d+ delimited by end-of-file)",
    re.MULTILINE,
)


def open_prompt(terminal: UserTerminal, fd: int, receive: Callable[[], None]) -> Prompt:
    """The best available prompt. It calls ``receive`` when ``fd`` becomes readable while a person types."""
    if os.environ.get("TERM", "dumb") != "dumb":
        with suppress(ImportError):
            return EditingPrompt(terminal, fd, receive)
    return Prompt(terminal, fd, receive)


class Prompt:
    """Reads commands in the terminal's line mode."""

    def __init__(self, terminal: UserTerminal, fd: int, receive: Callable[[], None]) -> None:
        self._terminal, self._fd, self._receive = terminal, fd, receive
        self.ahead = b""  # keys typed before the prompt, which no command has read

    def type_ahead(self, keys: bytes) -> None:
        """Add keys for the next prompt."""
        self.ahead += _KEY_CODES.sub(b"", keys.replace(b"\r", b"\n"))

    def read(self, prompt: str) -> bytes | None:
        """The next command; None when the person leaves."""
        self._terminal.line_mode()
        try:
            return self._read(prompt)
        finally:
            self._terminal.raw_mode()

    def _read(self, prompt: str) -> bytes | None:
        command = b""
        while True:
            line, end = self._read_line(_MORE if command else prompt)
            if end in (LEAVE, CTRL_D):
                return None
            if end == CTRL_C:
                command = self.ahead = b""
            elif is_complete(command + line):
                return command + line
            else:
                command += line + b"\n"

    def _read_line(self, prompt: str) -> tuple[bytes, bytes]:
        """The next line, and the key that ended it."""
        terminal = self._terminal
        terminal.begin_line()
        terminal.show(encoded(prompt) + self.ahead.partition(b"\n")[0])
        typed_here = False  # typed at this prompt, so the kernel has echoed it
        while (end := _LINE_END.search(self.ahead)) is None:
            ready = terminal.wait(self._fd)
            if self._fd in ready:
                self._receive()
                terminal.begin_line()
                terminal.show(encoded(prompt) + self.ahead)
            if STDIN in ready:
                self.type_ahead(terminal.read() or CTRL_D)
                typed_here = True
        line, self.ahead = self.ahead[: end.start()], self.ahead[end.end() :]
        if typed_here:
            terminal.note_shown(end[0])
        terminal.begin_line()
        return line, end[0]


class EditingPrompt(Prompt):
    """Reads commands with prompt_toolkit. Raises ImportError where that is not installed."""

    def __init__(self, terminal: UserTerminal, fd: int, receive: Callable[[], None]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.enums import DEFAULT_BUFFER
        from prompt_toolkit.filters import has_focus
        from prompt_toolkit.key_binding import KeyBindings

        super().__init__(terminal, fd, receive)
        keys = KeyBindings()
        keys.add("enter", filter=has_focus(DEFAULT_BUFFER))(_press_enter)
        keys.add("c-]", eager=True)(lambda event: event.app.exit(exception=EOFError))
        # Otherwise prompt_toolkit asks the terminal for the cursor position, and the reply could be taken for keys.
        os.environ["PROMPT_TOOLKIT_NO_CPR"] = "1"
        self._session: PromptSession[str] = PromptSession(
            multiline=True, prompt_continuation=_MORE, key_bindings=keys, history=_history()
        )

    def read(self, prompt: str) -> bytes | None:
        """As in Prompt. Keys typed ahead are in the line, to be edited."""
        draft, self.ahead = self.ahead.strip(b"\n").decode("utf-8", "surrogateescape"), b""
        self._terminal.begin_line()
        try:
            return to_bytes("command", self._session.prompt(prompt, default=draft, pre_run=self._listen))
        except EOFError:
            return None
        except KeyboardInterrupt:
            return b""
        finally:
            self._terminal.note_shown(b"\n")

    def _listen(self) -> None:
        """Show the next events above the prompt."""
        app = self._session.app
        loop = app.loop
        assert loop is not None  # the application is running

        def readable() -> None:
            loop.remove_reader(self._fd)
            app.create_background_task(self._show_events())

        loop.add_reader(self._fd, readable)

    async def _show_events(self) -> None:
        from prompt_toolkit.application import run_in_terminal

        try:
            await run_in_terminal(self._receive)
            self._listen()
        except Exception as error:  # the session is closed, or the daemon has ended
            self._session.app.exit(exception=error)


def _press_enter(event: KeyPressEvent) -> None:
    buffer = event.current_buffer
    if is_complete(to_bytes("command", buffer.text)):
        buffer.validate_and_handle()
    else:
        buffer.insert_text("\n")


def _history() -> History:
    """The history, in a private file; in memory if the file cannot be opened."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    path = os.path.join(state_directory(), "attach_history")
    try:
        make_private(os.path.dirname(path))
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


def is_complete(command: bytes) -> bool:
    """Would bash at a terminal run this text, rather than ask for more? ``bash -n`` checks it, and runs nothing."""
    import subprocess  # slow to load, and not needed for --read-only

    if (len(command) - len(command.rstrip(b"\\"))) % 2:
        return False
    words = ["bash", "-n", "-O", "extglob"]
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    try:
        stderr = subprocess.run(words, input=command + b"\n", env=env, capture_output=True, check=False).stderr
    except OSError:  # there is no bash in PATH; the session may use another
        return True
    return _INCOMPLETE.search(stderr) is None
