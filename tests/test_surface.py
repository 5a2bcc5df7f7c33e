"""What a session offers beyond running a command, in sessions of every kind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import kinds
import pytest
from system import wait_until

from shellsession import TTY, Agents, AsyncSession, InvalidRequest, Result, Session, aconnect, connect
from shellsession.engine.verbs import engine
from shellsession.text import reason_of

sh = kinds.sh

pytestmark = pytest.mark.usefixtures("company")

SOON: Final = 0.3
# All bytes but NUL.
_BYTES: Final = bytes(range(1, 256)).decode("utf-8", "surrogateescape") + "\n\n"
# The directory and the variables, in which nothing else differs from one command to the next.
_STATE: Final = "pwd; declare -p PWD OLDPWD PLAIN SENT NUMBER LIST NAMED NONE REF TARGET 2>&1"


def test_a_directory_and_variables_for_one_command(sh: Session, place: Path) -> None:
    (place / "sub dir").mkdir()
    (place / "other/sub dir").mkdir(parents=True)
    sh.run(
        "PLAIN=$'a\\001\\177\\377\\n\\n'; export SENT=s; declare -i NUMBER=5; LIST=(1 '2 3'); declare -x NAMED; "
        "declare -n REF=TARGET; TARGET=t; cd .; CDPATH=$PWD/other"
    )
    before = sh.run(_STATE)
    inside = 'pwd; printf %s "$PLAIN" "$NUMBER" "$LIST"; printenv NONE; cd /; SENT=other; export NONE=; KEPT=kept'
    env = {"PLAIN": _BYTES, "SENT": "", "NUMBER": "x y", "LIST": "l", "NAMED": "n", "REF": "r", "NONE": "sent"}
    result = sh.run(inside, cwd="sub dir", env=env)
    assert result.stdout_bytes == f"{place}/sub dir\n{_BYTES}x ylsent\n".encode("utf-8", "surrogateescape")
    assert (result.exit_code, result.cwd) == (0, str(place))
    assert sh.run(_STATE).stdout == before.stdout
    assert sh.run("unset NONE; declare -n NONE=KEPT", env={"NONE": "x"}).ok
    assert sh.run(_STATE).stdout == before.stdout
    assert sh.run("echo $KEPT").stdout == "kept\n"
    *_, last = sh.stream("pwd; echo $SENT; (exit 3)", cwd=Path("/"), env={"SENT": "x" * 10**6}, isolated=True)
    assert isinstance(last, Result)
    assert (last.exit_code, last.outcome, last.cwd) == (3, "exited", str(place))
    assert sh.run(_STATE).stdout == before.stdout


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["interrupt", "yield"])
def test_they_end_with_a_command_that_is_ended(sh: Session, how: Any, place: Path) -> None:
    sh.run("set -eu; trap 'true' DEBUG; X=before")
    result = sh.run("X=inside; cd /usr; sleep 100", cwd="/", env={"X": "x"}, timeout=SOON, on_timeout=how)
    if how == "yield":
        wait_until(lambda: sh.cwd == "/usr", "the command")
        result = sh.interrupt()
    assert (result.state_kept, result.cwd) == (True, str(place))
    assert sh.run("false && true; echo $X; pwd", env={"Y": ""}).stdout == f"before\n{place}\n"


def test_a_command_does_not_run_without_them(sh: Session, place: Path) -> None:
    sh.run("readonly FIXED=1; OTHER=before")
    missing = sh.run("echo never", cwd=place / "missing", env={"OTHER": "x"})
    fixed = sh.run("echo never", cwd="/", env={"OTHER": "x", "FIXED": "2"})
    for result, why in ((missing, "No such file or directory"), (fixed, "FIXED: cannot unset: readonly variable")):
        assert (result.ran, result.ok, result.state_kept, result.stdout) == (False, False, True, "")
        assert why in result.reason
        assert result.cwd == str(place)
    assert sh.run("echo $OTHER $FIXED; pwd").stdout == f"before 1\n{place}\n"
    kept = sh.run("readonly OTHER", env={"OTHER": "x"})
    assert (kept.exit_code, "OTHER: cannot unset: readonly variable" in kept.reason) == (0, True)
    sh.run("mkdir gone; cd gone")
    assert "could not be undone: cd: " in sh.run("rmdir ../gone; rmdir gone", cwd="..").reason


@pytest.mark.parametrize(
    "wrong",
    [
        {"cwd": ""},
        {"cwd": 1},
        {"env": {"A B": ""}},
        {"env": {"A": "\0"}},
        {"env": {"A": 1}},
        {"env": ["A"]},
        {"env": {"RANDOM": "1"}},
    ],
    ids=str,
)
def test_a_wrong_directory_or_variable_is_refused(sh: Session, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(wrong))):
        sh.run("echo never", **wrong)
    assert sh.pid is None


@contextmanager
def opened(kind: str, request: pytest.FixtureRequest, **options: Any) -> Iterator[Session]:
    """A session of that kind with these options, closed at the end."""
    if kind == "sync":
        with Session(**options) as session:
            yield session
    elif kind == "async":
        with kinds.in_a_loop(lambda: AsyncSession(**options)) as session:
            yield session
    else:
        socket = request.getfixturevalue("daemon").socket
        if kind == "remote":
            remote = connect(request.node.name, socket, False, **options)
            yield cast(Session, remote)
            remote.close()
        else:
            with kinds.in_a_loop(lambda: aconnect(request.node.name, socket, False, **options)) as session:
                yield session


each_kind = pytest.mark.parametrize("kind", ["sync", "async", "remote", "async remote"])


@each_kind
def test_a_session_has_defaults_of_its_own(kind: str, request: pytest.FixtureRequest) -> None:
    with opened(kind, request, stdin=TTY, merge_stderr=True, idle_timeout=1, timeout=20) as sh:
        assert sh.run("read -p 'Who? ' who").stdout == "Who? "
        assert sh.send("Ann\n").exit_code == 0
        assert sh.run("sleep 100").outcome == "idle"
        own = sh.run("echo $who; cat; echo err >&2; sleep 1.5", stdin=None, merge_stderr=False, idle_timeout=None)
        assert (own.stdout, own.stderr, own.exit_code) == ("Ann\n", "err\n", 0)
        assert sh.run("cat", tty=False).exit_code == 0
        *_, last = sh.stream("cat")
        assert isinstance(last, Result)
        assert last.exit_code == 0
    for wrong in ({"stdin": b"text"}, {"stdin": TTY, "tty": False}, {"merge_stderr": 1}, {"idle_timeout": 0}):
        with pytest.raises(InvalidRequest, match=next(iter(wrong))), opened(kind, request, **wrong):
            pass


@each_kind
@pytest.mark.parametrize("end", ["close", "restart"])
def test_the_last_commands_of_a_session(kind: str, end: str, request: pytest.FixtureRequest, place: Path) -> None:
    last = ["echo $X $((++n)) >>last; exit_status() { return 3; }; exit_status", "kill %1 && echo ended >>last"]
    with opened(kind, request, cwd=place, shutdown=last) as sh:
        sh.run("X=kept; sleep 100 &")
        sh.run("sleep 100", on_timeout="yield", timeout=SOON)
        getattr(sh, end)()
        assert (place / "last").read_text() == "kept 1\nended\n"
        assert sh.state == ("closed" if end == "close" else "idle")


def test_a_session_that_expires_runs_its_last_commands(place: Path) -> None:
    with Agents(cwd=place, idle_ttl=0.05, shutdown=["touch last"]) as agents:
        agents.run("a1", "true")
        wait_until(lambda: (place / "last").exists(), "the last command")


def test_last_commands_that_fail_are_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(engine, "_SHUTDOWN", SOON)
    for last in (["(exit 3)", "true", "sleep 100", "never"], ["exit", "never"]):
        with Session(shutdown=last) as sh:
            sh.open()
        assert sh.closed
    said = [record.getMessage() for record in caplog.records if record.name == "shellsession"]
    why = ["exit status 3", "ended by its time limit", "'never' was not run: 0.3 s are over"]
    why += ["ended the session's bash", "'never' was not run: the shell is gone"]
    for one, part in zip(said, why, strict=True):
        assert part in one


def test_a_wait_ends_when_the_output_matches(sh: Session, place: Path) -> None:
    (place / "go").write_text("")
    serve = (
        "echo starting; echo 'Ready on port' 80; while [ ! -s go ]; do sleep 0.01; done; "
        "echo ééééRebuilt é >&2; sleep 100"
    )
    first = sh.run(serve, tty=False, timeout=SOON, on_timeout="yield")
    # It may have been printed before the wait, and is not found twice.
    ready = sh.wait(until=r"^Ready on port (\d+)$")
    assert (ready.outcome, ready.still_running, ready.runs_on) == ("running", True, True)
    assert "Ready on port" in first.stdout + ready.stdout
    assert "matches" in ready.reason
    late = sh.wait(SOON, until="Ready")
    assert (ready.matched, late.matched, reason_of(late)[0]) == (True, False, "the time limit passed")
    assert sh.wait(idle_timeout=SOON, until="Ready").outcome == "idle"
    (place / "go").write_text("go")
    rebuilt = sh.wait(until="Rebuilt [é]")
    assert (rebuilt.outcome, rebuilt.stderr) == ("running", "ééééRebuilt é\n")
    assert reason_of(sh.wait(0.05, until="t é"))[0] == "the time limit passed"
    for wrong in ("(", b"x", 1):
        with pytest.raises(InvalidRequest, match="until"):
            sh.wait(until=cast(str, wrong))
    assert sh.interrupt().outcome == "interrupted"
    os.mkfifo(gate := place / "gate")
    sh.run("read x <gate; echo end", timeout=0.05, on_timeout="yield")
    gate.write_text("\n")
    ended = sh.wait(until="never")
    assert (ended.stdout, ended.outcome) == ("end\n", "exited")


def test_silence_has_its_limit_for_one_wait(sh: Session, place: Path) -> None:
    os.mkfifo(gate := place / "gate")
    assert sh.run("read x; read y <gate; echo $x; echo >said; sleep 100", stdin=TTY).outcome == "input"
    assert sh.send("typed\n", idle_timeout=0.1).outcome == "idle"
    gate.write_text("\n")
    wait_until((place / "said").exists, "the words")
    longer = sh.wait(idle_timeout=SOON)
    assert (longer.stdout, longer.outcome) == ("typed\n", "idle")
    assert sh.wait(0.1).outcome == "running"
    with pytest.raises(InvalidRequest, match="idle_timeout"):
        sh.wait(idle_timeout=0)


_SHOW_KEYS: Final = r"""
import os, sys, termios, tty
tty.setraw(0)
for switch in ("l", "h", "h\x1b[?1l"):
    os.write(1, f"\x1b[?1{switch}keys? ".encode())
    os.write(1, repr(os.read(0, 100)).encode())
"""


def test_keys_by_name(sh: Session) -> None:
    assert sh.run(["python3", "-c", _SHOW_KEYS], stdin=TTY).question == "keys?"
    again = sh.send("a", keys=["Up", "Tab", "C-c", "M-x", "F1", "F5", "DC", "é"])
    typed = b"a\x1b[A\t\x03\x1bx\x1bOP\x1b[15~\x1b[3~\xc3\xa9"
    assert repr(typed) in again.stdout
    assert (again.outcome, again.question.endswith("keys?")) == ("input", True)
    assert repr(b"\x1bOA\x1bOH\r") in sh.send(keys=["Up", "Home", "Enter"]).stdout
    assert repr(b"\x1b[A\x7f\0") in sh.send(keys=["Up", "C-?", "C-Space"]).stdout
    assert sh.run("read -p 'Go on? ' x; echo $?", stdin=TTY).question == "Go on?"
    for wrong in (["Upp"], "C-c", [1], ["C-"]):
        with pytest.raises(InvalidRequest, match=r"C-x, M-x .*Up, Down, .*F12"):
            sh.send(keys=cast(list[str], wrong))
    assert sh.send(keys=["C-c"]).exit_code == 130


def test_what_a_program_asks(sh: Session) -> None:
    asks = "print('1) one'); print('no line', end='', flush=True); input('\\x1b[1mWhich?\\x1b[0m ')"
    result = sh.run(["python3", "-c", asks], stdin=TTY)
    assert (result.outcome, result.question) == ("input", "Which?")
    assert sh.send("1\n").question == ""
    assert sh.run("printf 'Continue [y/N] '; read answer", stdin=TTY).question == "Continue [y/N]"
    sh.interrupt()
    assert sh.run("printf unfinished").question == ""
    assert sh.run("echo; echo 'Your name:'; read name", stdin=TTY).question == "Your name:"
