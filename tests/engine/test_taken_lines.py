"""Our line to bash is read by another process: the command did not run, and its result says so."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from bashes import VERSION
from system import wait_until

from shellsession import Session
from shellsession.engine.io.control_socket import ControlSocket

pytestmark = pytest.mark.usefixtures("company")

NewSession = Callable[..., Session]


@pytest.mark.parametrize("reader", ["read -t 0.2 taken", "read -t 0.2 -u 9; read -t 0 && read taken"])
def test_a_line_that_a_prompt_command_took_is_no_command_that_ran(
    new_session: NewSession, reader: str, tmp_path: Path
) -> None:
    session = new_session()
    ready = tmp_path / "ready"
    # With its limit it lets its own command's lines pass, and lies in wait for the next.
    session.run(f"mkfifo {tmp_path}/silent; exec 9<>{tmp_path}/silent")
    session.run(f"PROMPT_COMMAND='{reader}; : >>{ready}'")
    ready.unlink()
    lost = None
    for number in range(3):  # the one that comes while it reads
        result = session.run(f": >{tmp_path}/{number}")
        if result.outcome != "exited":
            lost = result
            assert not (tmp_path / str(number)).exists()
            break
        assert (tmp_path / str(number)).exists()
    assert lost is not None, "every command ran: nothing was taken"
    assert (lost.outcome, lost.state_kept) == ("shell_exited", False)
    # Before bash 5.2 a `read -t` waits in read(2), as bash at its prompt does: we ask for a mark again, and it may run.
    # Before 5.1 it reads in short pieces: perhaps it has had the first of them.
    told = VERSION >= (5, 2) or (VERSION >= (5, 1) and "-u 9" in reader)
    assert ("not run" in lost.reason, lost.ran) == (told, not told)
    assert session.run("echo fresh").stdout == "fresh\n"


@pytest.mark.skipif(VERSION < (5, 1), reason="it reads what is typed in short pieces, of which one can be taken alone")
@pytest.mark.parametrize("left", [1, 2, 100])
def test_nobody_takes_a_part_of_a_line(
    new_session: NewSession, monkeypatch: pytest.MonkeyPatch, left: int, tmp_path: Path
) -> None:
    """Of a stream all of a line but its end could be taken, and bash would run what is left of it."""
    session, typed, send = new_session(), [b""], ControlSocket.send

    def spy(control: ControlSocket, data: bytes) -> None:
        typed.append(data)
        send(control, data)

    monkeypatch.setattr(ControlSocket, "send", spy)
    text = f": >{tmp_path}/ran"
    session.run(f"trap ': >{tmp_path}/reads; read -rN $wanted taken' USR1")
    session.run(text)
    wanted = typed[-1].index(b"\n") + 1 - left
    (tmp_path / "ran").unlink()
    session.run(f"wanted={wanted}")
    assert session.pid is not None
    os.kill(session.pid, signal.SIGUSR1)
    wait_until((tmp_path / "reads").exists, "it reads")
    lost = session.run(text)
    assert (lost.outcome, (tmp_path / "ran").exists()) == ("shell_exited", False), lost
    assert lost.reason
    assert session.run("echo fresh").stdout == "fresh\n"


def test_a_line_that_a_signals_trap_took_is_no_command_that_ran(new_session: NewSession, tmp_path: Path) -> None:
    session = new_session()
    session.run(f"trap ': >{tmp_path}/waits; read taken' USR1; ( : ) & wait")
    assert session.pid is not None
    os.kill(session.pid, signal.SIGUSR1)
    wait_until(lambda: (tmp_path / "waits").exists(), "the trap")
    lost = session.run(f": >{tmp_path}/ran")
    assert (lost.outcome, lost.state_kept, (tmp_path / "ran").exists()) == ("shell_exited", False, False)
    assert lost.reason
    assert VERSION < (5, 1) or ("not run" in lost.reason and not lost.ran)


@pytest.mark.parametrize("reader", ["read taken", "read -n1 taken", "read -N 2000 taken", "cat >/dev/null"])
def test_a_prompt_that_reads_for_ever_costs_the_shell_and_says_so(
    new_session: NewSession, reader: str, tmp_path: Path
) -> None:
    session = new_session()
    result = session.run(f"PROMPT_COMMAND='{reader}'", timeout=20)
    assert "not run" not in result.reason  # it was: its prompt is what reads
    if result.state_kept:  # it read nothing but what we typed for want of an answer: the next one is told
        result = session.run(f": >{tmp_path}/ran", timeout=20)
        if (tmp_path / "ran").exists():  # what it took was but the empty line before our mark
            assert reader == "read -n1 taken"
            if result.outcome == "exited" or VERSION >= (5, 1):  # an older bash reads 128 bytes at once: perhaps of it
                assert (result.outcome, result.exit_code) == ("exited", 0)
                return
            assert "not run" not in result.reason
    assert (result.state_kept, result.exit_code is None) == (False, False), result
    assert result.outcome in ("shell_exited", "interrupted")
    assert result.reason
    assert session.run("echo fresh").stdout == "fresh\n"


CHANGES = [
    "unset LINENO",
    "LINENO=1",
    "unset LINENO; LINENO='a b'",
    "declare -i LINENO=3",
    "unset LINENO; LINENO=5",
    "unset LINENO; export LINENO=5; readonly LINENO",
    "unset LINENO; declare -i LINENO=5",
    "unset LINENO; number=5; declare -n LINENO=number",
    "unset LINENO; for LINENO in 1 2 3; do :; done",
    "f() { local LINENO=5; }; f",
    "f() { LINENO=5; }; f",
    "trap 'LINENO=5' DEBUG",
    "PROMPT_COMMAND='unset LINENO; LINENO=5'",
    "PS1='$((LINENO=5))'",
    "PS4='$((LINENO=1))'; set -x",
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_line_number_proves_nothing(new_session: NewSession, change: str, tmp_path: Path) -> None:
    session = new_session(cwd=str(tmp_path))
    session.run("true")
    session.run("true")
    result = session.run(f"KEPT=yes; {change}; (exit 1)")
    assert (result.outcome, result.exit_code, result.ran) == ("exited", 1, True)
    for _ in range(3):
        result = session.run("echo $KEPT; false")
        assert (result.stdout, result.outcome, result.exit_code) == ("yes\n", "exited", 1)
        assert result.cwd == str(tmp_path)


def test_a_line_number_that_was_put_back_costs_the_shell_and_is_announced(new_session: NewSession) -> None:
    session = new_session()
    lost = session.run("number=$LINENO; unset LINENO; LINENO=$number")
    assert (lost.outcome, lost.state_kept) == ("shell_exited", False)
    assert lost.reason
    assert session.run("echo fresh").stdout == "fresh\n"


def test_lines_that_an_interrupt_made_bash_forget_were_not_taken(new_session: NewSession) -> None:
    session = new_session()
    session.run("KEPT=yes")
    for _ in range(20):
        assert session.run("kill -INT $$; kill -INT $$; :").state_kept
        session.run("sleep 100", timeout=0.01)
    assert session.run("echo $KEPT").stdout == "yes\n"


def test_a_mark_that_was_asked_for_again_on_its_way_proves_nothing(
    new_session: NewSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our look at its socket and at bash itself, bash may have come back to its prompt."""
    session = new_session()
    session.run("KEPT=yes")
    shell = session.engine.live()
    while_it_ran = shell.idle

    def late() -> bool:
        wait_until(while_it_ran, "bash at its prompt")
        return True

    monkeypatch.setattr(shell, "idle", late)
    assert session.run("sleep 0.15; echo slow").stdout == "slow\n"
    monkeypatch.undo()
    for _ in range(3):
        assert session.run("echo $KEPT").stdout == "yes\n"
