"""What every session promises to a caller while another thread runs a command."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import kinds
import pexpect
import pytest

from shellsession import TTY, NotRunning, Result, Session, SessionBusy

sh = kinds.sh

pytestmark = pytest.mark.usefixtures("company")

SOON = 0.3


class Elsewhere:
    """Another thread is in ``run`` until the fifo is written to."""

    def __init__(self, sh: Session, place: Path) -> None:
        self._fifo = str(place / "fifo")
        if not (place / "fifo").exists():
            os.mkfifo(self._fifo)
        begun = threading.Event()

        def run() -> None:
            self.result = sh.run(f"echo begun; read x <{self._fifo}; echo $x", on_output=lambda *_: begun.set())

        self._thread = threading.Thread(target=run)
        self._thread.start()
        assert begun.wait(20)

    def end(self) -> None:
        Path(self._fifo).write_text("over\n")

    def join(self) -> Result:
        self._thread.join(20)
        return self.result


@pytest.mark.sampled
@pytest.mark.parametrize("verb", ["wait", "poll"])
def test_who_waits_for_a_command_that_another_is_in_gets_back_at_his_moment(
    sh: Session, place: Path, verb: str
) -> None:
    other = Elsewhere(sh, place)
    result = sh.poll() if verb == "poll" else sh.wait(SOON)
    other.end()
    assert (result.outcome, result.runs_on, result.stdout) == ("running", True, "")
    assert "another" in result.reason
    assert other.join().stdout == "begun\nover\n"


def test_its_end_is_reported_to_both(sh: Session, place: Path) -> None:
    result = None
    while result is None:  # again if a slow machine begins to wait after the end only
        other = Elsewhere(sh, place)
        timer = threading.Timer(SOON, other.end)
        timer.start()
        with suppress(NotRunning):
            result = sh.wait(20)
        timer.join()
        assert other.join().outcome == "exited"
    assert (result.outcome, result.exit_code) == ("exited", 0)
    with pytest.raises(NotRunning):
        sh.wait(SOON)


def test_nothing_is_typed_into_a_command_that_another_is_in(sh: Session, place: Path) -> None:
    """Nor into the one that comes after it, which asks for something else."""
    other = Elsewhere(sh, place)
    with pytest.raises(SessionBusy):
        sh.send("meant for nobody\n", SOON)
    with pytest.raises(pexpect.TIMEOUT):
        sh.expect("over", SOON)
    timer = threading.Timer(SOON, other.end)
    timer.start()
    with pytest.raises(NotRunning):
        sh.send("meant for the first\n", 20)
    timer.join()
    other.join()
    assert sh.run("read x; echo got $x", stdin=TTY).outcome == "input"
    assert sh.send("yes\n").stdout == "got yes\n"
