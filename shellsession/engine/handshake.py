"""The first words with a bash that has just started: is it there, and is it new enough?

Law: a bash that does not answer as it should is one clear error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..errors import ShellUnavailable
from .call import fresh_nonce
from .framing import version_line
from .marks import Framer
from .shell import Shell
from .waiting import Steps, Wait

# Before 5.1 bash has a history from the start, for all that it is told by `+o history`, and reads the user's into it.
BOOTSTRAP: Final = Path(__file__).with_name("bootstrap.bash").read_bytes()
# Bash starts in 1 to 3 ms; a minute means that the machine is on its knees, not that bash is slow.
_PATIENCE: Final = 60.0
_OLDEST: Final = 404


def handshake(shell: Shell, tty: bool, refuse_closed: Callable[[], None]) -> Steps[None]:
    """Set up the shell, with a terminal for its commands where ``tty`` says that they mostly have one.

    Raises ShellUnavailable, and what ``refuse_closed`` does when another thread has closed it.
    """
    framer = Framer(fresh_nonce())
    shell.control.send(shell.launch.prelude + BOOTSTRAP + version_line(framer.nonce))
    if not shell.launch.apart:
        shell.streams.prepare(tty)  # the first command's are made while bash starts
    until = time.monotonic() + _PATIENCE
    while framer.mark is None:
        refuse_closed()
        if not (yield Wait((shell.control.fd,), until)):
            raise ShellUnavailable(f"bash did not answer within {_PATIENCE:.0f} s")
        data = shell.control.hear(framer)
        if data == b"":
            said = framer.noise.decode("utf-8", "replace").strip()
            raise shell.launch.failed(said)
    shell.control.lines_taken(framer.mark)
    if shell.launch.apart:
        shell.find_bash()
        shell.streams.prepare(tty)
    if framer.mark.status < _OLDEST:
        major, minor = divmod(framer.mark.status, 100)
        raise ShellUnavailable(f"bash {major}.{minor} is too old, 4.4 or newer is needed: pass bash=<path> of another")
    shell.version = framer.mark.status
    shell.control.greeted(shell.version)
