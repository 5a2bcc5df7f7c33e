"""A person at a terminal who attaches to an agent: with pexpect at the plain prompt, or in tmux."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pexpect
from ptyprocess import PtyProcess
from system import PATIENCE, wait_until
from warm import PROGRAM, Popen

LEAVE, CTRL_C, CTRL_D = "\x1d", "\x03", "\x04"
# A notice that a person sees on a slow machine.
_SLOW = re.compile(r"(?:\x1b\[2m)?the daemon has not replied yet: Ctrl-\] leaves(?:\x1b\[m)?\r\n")
_OTHERS = {"NO_COLOR", "SHELLSESSION_SOCKET", "TMUX", "COLUMNS", "LINES"}
TERMINAL = {name: value for name, value in os.environ.items() if name not in _OTHERS} | {"TERM": "xterm-256color"}


if TYPE_CHECKING:
    Spawn = pexpect.spawn[str]
else:
    Spawn = pexpect.spawn


class _Screen(Spawn):
    """A terminal with our command line, which is forked from a warm interpreter where that is possible."""

    def _spawnpty(self, args: list[bytes], env: dict[str, str], dimensions: tuple[int, int], **options: Any) -> Any:
        master, self.slave = os.openpty()
        termios.tcsetwinsize(self.slave, dimensions)
        self.modes = termios.tcgetattr(self.slave)
        streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), self.slave)
        self.process = Popen(args, env=env, cwd=options["cwd"], start_new_session=True, **streams)
        self.process.returncode = 0  # ptyprocess waits for it
        return PtyProcess(self.process.pid, master)

    def close(self, force: bool = True) -> None:
        if self.isalive():  # close would give it 0.1 s to end
            self.kill(signal.SIGKILL)
            self.wait()
        super().close(force)
        os.close(self.slave)


class Person:
    """A person who attaches to one agent. TERM is dumb, so the prompt is the plain one."""

    def __init__(self, socket: str, agent: str, home: Path, *options: str, **env: str) -> None:
        self.agent = agent
        self.screen = _Screen(
            sys.executable,
            [*PROGRAM[1:], "attach", agent, "--socket", socket, *options],
            env={**TERMINAL, "TERM": "dumb", "XDG_STATE_HOME": str(home / "state"), "HOME": str(home), **env},
            cwd=str(home),
            dimensions=(24, 160),
            maxread=1 << 16,
            encoding="utf-8",
            codec_errors="surrogateescape",
            timeout=PATIENCE,
        )
        self.screen.delaybeforesend = None
        self.screen.searchwindowsize = 10_000  # else a flood is searched again for each piece
        self.screen.str_last_chars = 4000  # shown by a failure

    def sees(self, pattern: str) -> str:
        """Wait for the pattern. Returns its first group, or the whole match."""
        self.screen.expect(pattern)
        match: re.Match[str] = self.screen.match  # type: ignore[assignment]  # the stubs do not know its type
        return match[1] if match.re.groups else match[0]

    def prompt(self) -> str:
        """Wait for the prompt. Returns what was shown before it."""
        self.sees(rf"{self.agent}:\S*\$ ")
        return _SLOW.sub("", self.screen.before or "")

    def types(self, text: str) -> None:
        self.screen.send(text)

    def runs(self, line: str) -> str:
        """Run a line at the prompt. Returns its output."""
        self.types(line + "\r")
        return self.prompt().partition("\n")[2]

    def ends(self) -> int:
        """Wait for the end, and return the status. The terminal must be as it was before."""
        wait_until(lambda: self.screen.expect([pexpect.TIMEOUT, pexpect.EOF], 0.02), "the end of `attach`")
        assert termios.tcgetattr(self.screen.slave) == self.screen.modes
        killed = self.screen.signalstatus
        status = self.screen.exitstatus if killed is None else 128 + killed
        assert status is not None
        return status

    def leaves(self) -> None:
        self.types(LEAVE)
        assert self.ends() == 0

    @property
    def pid(self) -> int:
        return self.screen.process.pid


Sits = Callable[..., Person]


class Tmux:
    """A terminal in its own tmux server."""

    def __init__(self, name: str, home: Path) -> None:
        self._words = ["tmux", "-L", name, "-f", "/dev/null"]
        self._env = {**TERMINAL, "HOME": str(home), "XDG_STATE_HOME": str(home), "TMUX_TMPDIR": str(home)}
        self("new-session", "-d", "-x", "80", "-y", "24", "-c", "/", "env PS1='outside$ ' bash --norc --noprofile")

    def __call__(self, *words: str) -> str:
        done = subprocess.run([*self._words, *words], env=self._env, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    def shows(self, text: str) -> str:
        """Wait until the screen contains the text. Returns the screen."""
        screens = [""]

        def look() -> bool:
            screens.append(self("capture-pane", "-p"))
            return text in screens[-1]

        try:
            wait_until(look, repr(text))
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen is\n{screens[-1]}") from None
        return screens[-1]

    def types(self, *keys: str) -> None:
        self("send-keys", *keys)
