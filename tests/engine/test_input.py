"""A command that waits for input is reported at once; one without the terminal never hangs on it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import chosen
from system import PATIENCE, PYTHON, stat_fields, unique_seconds, wait_until, with_argument

from shellsession import TTY, Session
from shellsession.engine.verbs import collect

pytestmark = pytest.mark.usefixtures("company")


# The command, what is typed, what it says in the end.
READERS = {
    "read": ("read x; echo got $x", "a\n", "got a\n"),
    "read with a prompt": ("read -p 'x? ' x; echo got $x", "a\n", "got a\n"),
    "read of one key": ("read -n1 x; echo got $x", "a", "got a\n"),
    "read without echo": ("read -s x; echo got $x", "a\n", "got a\n"),
    "read for a while": ("read -t 20 x; echo got $x", "a\n", "got a\n"),
    "read in a loop": ("for i in 1 2; do read x; done; echo got $x", "a\nb\n", "got b\n"),
    "read in a function in a subshell": ("f() { (read x; echo got $x); }; f", "a\n", "got a\n"),
    "read in a pipeline": ("{ read x; echo got $x; } | cat", "a\n", "got a\n"),
    "cat": ("cat | tail -1", "a\n\x04", "a\n"),
    "head": ("head -n1", "a\n", "a\n"),
    "python": (f"{PYTHON} -c 'print(\"got\", input())'", "a\n", "got a\n"),
    "another bash": ("bash --norc -c 'read x; echo got $x'", "a\n", "got a\n"),
    "from /dev/tty": ("read x </dev/tty; echo got $x", "a\n", "got a\n"),
    "select": ("select x in one two; do echo got $x; break; done 2>/dev/null", "2\n", "got two\n"),
}


@pytest.mark.parametrize(("command", "typed", "said"), READERS.values(), ids=READERS)
def test_a_reader_says_that_it_waits(sh: Session, command: str, typed: str, said: str) -> None:
    first = sh.run(command, stdin=TTY)
    assert (first.outcome, first.exit_code, first.state_kept) == ("input", None, True)
    assert "waits for input" in first.reason
    assert first.duration < PATIENCE
    last = sh.send(typed)
    assert (last.stdout, last.outcome) == (said, "exited")


POLLER = """
import select, sys
select.select([sys.stdin], [], [])
print("got", sys.stdin.readline(), end="")
"""


def test_a_program_that_polls_is_believed_after_a_silence(sh: Session) -> None:
    first = sh.run(f"{PYTHON} -c '{POLLER}'", stdin=TTY)
    assert first.outcome == "input"
    assert sh.send("a\n").stdout == "got a\n"


# Each waits longer than a silence that would be believed, with the terminal at hand: for something else.
_OTHERWISE = {
    "select": "r, _ = os.pipe(); select.select([r], [], [], 0.8)",
    "select to write": "r, _ = os.pipe(); select.select([r], [0], [], 0.1); select.select([r], [], [], 0.8)",
    "poll": "r, _ = os.pipe(); p = select.poll(); p.register(r, 1); p.register(0, 0); p.poll(800)",
    "epoll": "r, _ = os.pipe(); p = select.epoll(); p.register(r, 1); p.poll(0.8)",
    "asyncio": "asyncio.run(asyncio.sleep(0.8))",
    "a thread hears keys": "threading.Thread(target=open('/dev/tty').read, daemon=True).start(); time.sleep(0.8)",
    "socket": "s = socket.create_server(('127.0.0.1', 0)); s.settimeout(0.8); select.select([s], [], [], 0.8)",
}


@pytest.mark.sampled
@pytest.mark.parametrize("given", [True, False], ids=["given", "not given"])
@pytest.mark.parametrize("wait", _OTHERWISE)
def test_who_waits_for_something_else_waits_for_no_key(sh: Session, wait: str, given: bool) -> None:
    imports = "import asyncio, os, select, socket, threading, time"
    text = f'{PYTHON} -c "{imports}; {_OTHERWISE[wait]}" {"" if given else "3<>/dev/tty"}; echo done'
    result = sh.run(text, stdin=TTY if given else None)
    assert (result.outcome, result.stdout) == ("exited", "done\n")


@pytest.mark.parametrize("given", [True, False], ids=["given", "not given"])
@pytest.mark.parametrize("wait", ["tty.readline", "lambda: select.select([tty], [], [])", "poll.poll"])
def test_a_thread_that_reads_is_seen(sh: Session, wait: str, given: bool) -> None:
    prepare = "tty = open('/dev/tty'); poll = select.poll(); poll.register(tty, 1)"
    script = f"import select, threading; {prepare}; t = threading.Thread(target={wait}); t.start(); t.join()"
    result = sh.run(f'{PYTHON} -c "{script}"', stdin=TTY if given else None)
    assert result.outcome == ("input" if given else "interrupted")
    assert result.duration < PATIENCE


def test_a_sleeping_command_waits_for_nothing(sh: Session) -> None:
    result = sh.run("sleep 0.7; echo slept", stdin=TTY)
    assert (result.outcome, result.stdout) == ("exited", "slept\n")


def test_a_busy_command_waits_for_nothing(sh: Session) -> None:
    result = sh.run("for ((i = 0; i < 300000; i++)); do :; done; echo done", stdin=TTY)
    assert (result.outcome, result.stdout) == ("exited", "done\n")


def test_a_reader_of_a_pipe_waits_for_no_key(sh: Session) -> None:
    result = sh.run("(sleep 0.5; echo late) | cat", stdin=TTY)
    assert (result.outcome, result.stdout) == ("exited", "late\n")


def test_asked_twice_it_waits_twice(sh: Session) -> None:
    assert sh.run("read a; read b; echo $a$b", stdin=TTY).outcome == "input"
    assert sh.send("1\n").outcome == "input"
    assert sh.poll().outcome in ("running", "input")
    assert sh.wait().outcome == "input"
    assert sh.send("2\n").stdout == "12\n"


def test_check_says_nothing_about_a_command_that_waits(sh: Session) -> None:
    assert sh.run("read x", stdin=TTY, check=True).outcome == "input"


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {missing}")


# In a group of its own, which is not in the foreground at the terminal.
_BEHIND = f"{PYTHON} -c 'import os, sys; os.setpgid(0, 0); os.execvp(sys.argv[1], sys.argv[1:])'"
# None of them was given the terminal, and each goes and reads it all the same.
GREEDY = [
    pytest.param("read x </dev/tty", id="read </dev/tty"),
    pytest.param("cat /dev/tty", id="cat /dev/tty"),
    pytest.param("less /etc/passwd", id="less file", marks=needs("less")),
    pytest.param("echo x | less", id="less in a pipeline", marks=needs("less")),
    pytest.param("seq 1000 | less | cat >/dev/tty; less /etc/passwd", id="less after less", marks=needs("less")),
    pytest.param(f"{PYTHON} -c 'open(\"/dev/tty\").readline()'", id="python"),
    pytest.param(f"{PYTHON} -c 'import getpass; getpass.getpass()'", id="getpass"),
    pytest.param("bash -c 'read -s x </dev/tty'", id="password in a child"),
    pytest.param("top", id="top", marks=needs("top")),
    pytest.param("cat <&1", id="cat <&1"),
    pytest.param(f"{_BEHIND} stty -F /dev/tty raw", id="modes from the background"),
    pytest.param(f"{_BEHIND} stty -F /dev/tty -drain raw", id="modes at once"),
    pytest.param(f"{_BEHIND} bash -ic true", id="a shell from the background"),
    pytest.param("[ -t 1 ] && cat </dev/stdout", id="cat </dev/stdout"),
]


def reads_the_terminal(command: str, tty: bool, place: Path) -> None:
    with Session(cwd=place, timeout=2 * PATIENCE) as session:
        session.run("X=1; export LESS= TERM=xterm")
        result = session.run(f"echo before; {command}", tty=tty)
        assert result.outcome in ("exited", "interrupted"), result
        assert result.duration < PATIENCE
        assert "before\n" in result.stdout
        if result.outcome == "interrupted":
            assert "waits for input" in result.reason
            assert result.state_kept
        assert session.run("echo $X").stdout == "1\n"


@pytest.fixture(scope="module")
def begun(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, bool], Future[None]]]:
    """All of them in sessions of their own, a few side by side: they wait most of the time. In the tests' order."""
    with ThreadPoolExecutor(4) as pool:
        yield {
            (command, tty): pool.submit(reads_the_terminal, command, tty, tmp_path_factory.mktemp("place"))
            for command, tty in chosen(request, "command", "tty")
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.sampled
@pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("command", GREEDY)
def test_a_command_without_the_terminal_never_hangs_on_it(
    command: str, tty: bool, begun: dict[tuple[str, bool], Future[None]]
) -> None:
    begun[command, tty].result()


def test_a_command_ended_for_its_reading_is_ended_whole(sh: Session) -> None:
    seconds = unique_seconds()
    result = sh.run(f"sleep {seconds} & read x </dev/tty; echo never")
    assert (result.outcome, result.exit_code, "never" in result.stdout) == ("interrupted", 130, False)
    assert with_argument(seconds) == []


@pytest.mark.parametrize("policy", ["interrupt", "kill", "yield"])
def test_the_policy_of_the_limit_does_not_matter_for_it(sh: Session, policy: str) -> None:
    result = sh.run("read x </dev/tty", on_timeout=policy)  # type: ignore[arg-type]
    assert (result.outcome, result.state_kept) == ("interrupted", True)
    assert sh.run("echo next").stdout == "next\n"


def test_who_is_stopped_for_anything_else_does_not_wait(sh: Session) -> None:
    result = sh.run("set -m; sleep 9 & kill -STOP $!; sleep 0.9; kill -9 $!; echo done")
    assert (result.outcome, result.stdout) == ("exited", "done\n")


def test_background_readers_of_the_terminal_are_no_reason_to_end_a_later_call(sh: Session) -> None:
    sh.run("(read x </dev/tty; echo $x) >/dev/null 2>&1 &")
    result = sh.run("sleep 0.4; echo slept")
    assert (result.outcome, result.stdout) == ("exited", "slept\n")


def test_who_takes_the_answer_while_it_is_looked_at_does_not_wait_for_another(
    sh: Session, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is seen to read, and has read when it is asked whether anything is left to read."""
    os.mkfifo(go := place / "go")
    assert sh.run("read -r name; read x <go; echo $name", stdin=TTY).outcome == "input"
    shell, call = sh.engine.live(), sh.engine.handed_back
    assert call is not None
    os.kill(shell.pid, signal.SIGSTOP)
    wait_until(lambda: stat_fields(shell.pid)[:1] == ["T"], "its stop")
    shell.keyboard.type(b"me\n")
    wait_until(shell.keyboard.has_input, "the answer")

    def late(pid: int, *_: object) -> str:
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not shell.keyboard.has_input(), "its being read")
        return "reads"

    with monkeypatch.context() as patch:
        patch.setattr(collect, "at_terminal", late)
        asked = collect._wants_input(shell, call, 0.02)
    os.kill(shell.pid, signal.SIGCONT)
    assert not asked
    go.write_text("\n")
    assert sh.wait().stdout == "me\n"
