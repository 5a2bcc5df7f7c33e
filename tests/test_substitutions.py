"""What stands behind a command (`> >(tee log)`) and reads its output to the end has its last words in the result."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from support import unique_seconds

from shellsession import Session

Make = Callable[..., Session]

# Each is run often, as its reader may come to its end before our look, at it, or behind it: 30 to 96 of 100 went wrong.
_ROUNDS = 15
_READERS = {
    "a log of all": ("exec > >(tee log) 2>&1; echo one; echo two", "one\ntwo\n", ""),
    "a filter": ("seq 3 > >(sed s/^/a/)", "a1\na2\na3\n", ""),
    "a second reader": ("echo x | tee >(sed s/x/y/) >/dev/null", "y\n", ""),
    "a pipeline": ("seq 9000 > >(tee log | tail -1)", "9000\n", ""),
    "of errors": ("{ echo oops >&2; } 2> >(sed s/^/E:/ >&2)", "", "E:oops\n"),
    "of both": ("{ echo a; echo b >&2; } > >(cat) 2> >(cat >&2)", "a\n", "b\n"),
    "in a subshell": ("(exec > >(tee log); echo sub)", "sub\n", ""),
    "more than a pipe holds": ("printf %0200000d 0 > >(cat)", "0" * 200_000, ""),
}


@pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("command", _READERS)
def test_its_last_words_are_in_the_result(new_session: Make, command: str, tty: bool) -> None:
    text, stdout, stderr = _READERS[command]
    sh = new_session(tty=tty)
    for _ in range(_ROUNDS):
        result = sh.run(text)
        assert (result.stdout, result.stderr, result.exit_code) == (stdout, stderr, 0)
        assert sh.run("echo next").stdout == "next\n"


@pytest.mark.parametrize("fed", ["", "echo x |", "sleep 1000 |"])
def test_a_job_is_not_waited_for(new_session: Make, fed: str) -> None:
    """Only one whose input has ended already is, for the moment that its last words may take."""
    sh = new_session()
    begun = time.monotonic()
    result = sh.run(f"{fed} sleep {unique_seconds()} &")
    assert len(result.background) == 1 + fed.startswith("sleep")
    assert time.monotonic() - begun < 30
    for job in sh.jobs():
        job.kill()


def test_who_speaks_without_end_is_left_running(new_session: Make) -> None:
    sh = new_session(tty=False)
    result = sh.run("echo x > >(cat; yes)")
    assert result.stdout.startswith("x\ny\ny\n")
    assert result.background
    sh.jobs()[-1].kill()
