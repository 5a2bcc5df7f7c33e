"""What every session promises around a restart: calls that had not begun run after it, and none is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kinds
import pytest
from system import PATIENCE, wait_until

from shellsession import Result, Session
from shellsession.engine.io.threads import Steps
from shellsession.errors import GONE, RESTARTED
from shellsession.models import Request

sh = kinds.sh

pytestmark = pytest.mark.usefixtures("company")

# The first start does not come to its end.
OPTIONS = {"startup": ["echo >>starts; [ -e first ] || { touch first; sleep 1000; }"]}
COUNT = "wc -l <starts"
# What each verb does, and how many starts of bash there are in the end.
VERBS: dict[str, tuple[Callable[[Session], Any], int]] = {
    "open": (lambda sh: sh.open() and None, 2),
    "run": (lambda sh: sh.run(COUNT).stdout, 2),
    "stream": (lambda sh: list(sh.stream(COUNT))[-1].stdout, 2),  # type: ignore[union-attr]
    "restart": (lambda sh: None if sh.restart().complete else "", 3),
}


def interrupted(sh: Session, place: Path, verb: Callable[[Session], Any]) -> Any:
    """What the verb gives whose start of bash was ended by a restart."""
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(verb, sh)
        wait_until((place / "first").exists, "its start")
        sh.restart()
        return running.result(PATIENCE)


@pytest.mark.parametrize("verb", VERBS)
def test_what_was_about_to_start_is_done_behind_the_restart(sh: Session, place: Path, verb: str) -> None:
    do, starts = VERBS[verb]
    assert interrupted(sh, place, do) in (f"{starts}\n", None)
    assert sh.run(COUNT).stdout == f"{starts}\n"


def test_and_what_is_handed_back_then_is_known_as_any_other(sh: Session, place: Path) -> None:
    command = "echo begun; until [ -e go ]; do sleep 0.01; done; echo over; (exit 7)"
    first = interrupted(sh, place, lambda sh: sh.run(command, timeout=0.3, on_timeout="yield", patience=None))
    assert first.outcome == "running"
    (place / "go").touch()
    end = sh.wait()
    assert (end.outcome, first.stdout + end.stdout, end.exit_code) == ("exited", "begun\nover\n", 7)
    assert sh.run("echo next").stdout == "next\n"


def test_of_restarts_at_the_same_moment_none_is_refused(sh: Session, place: Path) -> None:
    (place / "first").touch()
    with ThreadPoolExecutor(4) as threads:
        restarts = [threads.submit(sh.restart) for _ in range(20)]
        assert [restart.exception(PATIENCE) for restart in restarts] == [None] * 20
    assert sh.run("echo fresh").stdout == "fresh\n"


@pytest.mark.parametrize("opened", [True, False])
def test_whose_shell_a_restart_killed_before_anything_was_typed_is_served_behind_it(
    new_session: Callable[..., Session], opened: bool
) -> None:
    session = new_session()
    if opened:
        session.run("true")
    engine, restart = session.engine, threading.Thread(target=session.restart)
    run = engine.run

    def ctrl_c(request: Request) -> Steps[Result]:
        """The turn has just come."""
        if restart.ident is None:
            restart.start()
            wait_until(lambda: engine.kill_reason and (engine.shell is None or engine.shell.dead), "the restart")
        return (yield from run(request))

    engine.run = ctrl_c  # type: ignore[method-assign]
    result = session.run("echo on")
    restart.join()
    assert (result.ran, result.stdout) == (True, "on\n")


def test_an_interrupted_restart_that_never_came_keeps_nobody_waiting(new_session: Callable[..., Session]) -> None:
    """Ctrl-C has interrupted it: a shell that was lost with it is announced."""
    session = new_session()
    session.engine.kill_running(RESTARTED)
    assert session.run("echo on").stdout == "on\n"
    session.engine.kill_running(RESTARTED)
    lost = session.run("echo on")
    assert (lost.ran, lost.reason.startswith(GONE)) == (False, True)
    assert session.run("echo on").stdout == "on\n"


def test_what_was_done_to_the_old_bash_is_not_known_of_the_fresh_one(new_session: Callable[..., Session]) -> None:
    sh = new_session(startup=["trap 'cat' USR1", "(kill -USR1 $$)"])
    for command in ("set -x", "trap : USR2"):
        sh.run(command)
    sh.restart()  # its trap, too, has a stdin of its own to read
    assert sh.run("echo $-").stderr == ""
