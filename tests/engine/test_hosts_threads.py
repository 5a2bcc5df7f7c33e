"""An interpreter that exits while a thread uses a session: nothing runs on, hangs or fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hosts
import pytest
from hosts import start
from system import PATIENCE, unique_seconds, with_argument

home, started = hosts.home, hosts.started


def test_a_command_of_a_thread_does_not_run_on_at_the_hosts_end(
    started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Its sleep was killed, and bash went on with the next command."""
    seconds = unique_seconds()
    program = f"""
import threading
from shellsession import Session
session = Session(cwd={str(tmp_path)!r}, timeout=None)
begun = threading.Event()
command = "echo begun; sleep {seconds}; touch ran-on"
options = dict(on_output=lambda *_: begun.set())
threading.Thread(target=session.run, args=(command,), kwargs=options, daemon=True).start()
begun.wait()
"""
    for _ in range(5):
        host = start(started, program)
        assert host.wait(20) == 0
        assert not with_argument(seconds)
        assert not (tmp_path / "ran-on").exists()


# The thread is held where the shell is about to be buried until the interpreter is at the same place, or stays away.
ENDS_WHILE_CLOSING = """
import atexit, threading
from shellsession import Session
from shellsession.engine.verbs import shell_end

session = Session(cwd="/")
session.run("true")
destroy, main = shell_end.destroy, threading.current_thread()
closing, at_exit, also_here, closed = (threading.Event() for _ in range(4))

def held(engine):
    if threading.current_thread() is main:
        also_here.set()
        closed.wait(60)
    else:
        closing.set()
        at_exit.wait(60)
        also_here.wait(0.3)
    yield from destroy(engine)
    closed.set()

shell_end.destroy = held
atexit.register(at_exit.set)
threading.Thread(target=session.close, daemon=True).start()
closing.wait(60)
"""


# As above, where the shell is about to be buried because it was closed while it was opened.
ENDS_WHILE_OPENING = """
import atexit, threading, time
from contextlib import suppress
from shellsession import Session, SessionClosed
from shellsession.engine.verbs import engine as verbs
from shellsession.engine.verbs import shell_end

session = Session(cwd="/")
destroy, shake, main = shell_end.destroy, verbs.handshake, threading.current_thread()
opening, at_exit, closed = (threading.Event() for _ in range(3))

def late(shell, tty, is_closed):
    opening.set()
    at_exit.wait(60)
    while not is_closed():
        time.sleep(0.001)
    yield from shake(shell, tty, is_closed)

def held(engine):
    if threading.current_thread() is main:
        closed.wait(60)
    yield from destroy(engine)
    closed.set()

def work():
    with suppress(SessionClosed):
        session.open()

verbs.handshake, shell_end.destroy = late, held
atexit.register(at_exit.set)
threading.Thread(target=work, daemon=True).start()
opening.wait(60)
"""


@pytest.mark.parametrize("program", [ENDS_WHILE_CLOSING, ENDS_WHILE_OPENING], ids=["closed", "opened"])
def test_an_interpreter_that_ends_while_a_session_is_closed_leaves_it_to_who_is_at_it(program: str) -> None:
    host = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (host.returncode, host.stdout, host.stderr) == (0, "", "")
