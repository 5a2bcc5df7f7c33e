"""``shellsession top``: the live table on a terminal, and printed once."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pexpect
import pytest
from commands import cli
from daemons import Daemon, running
from persons import CTRL_C, LEAVE, TERMINAL
from system import PATIENCE, wait_until

import shellsession
from shellsession import Policy, PolicyRefused, connect
from shellsession.cli import top as cli_top

Start = Callable[..., "pexpect.spawn[str]"]
HOSTILE = "printf 'PIN-1234 \\033]0;title\\007\\033[2Jend\\342\\200\\256.\\n'"


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Start]:
    """Starts ``top`` on a terminal of 80 x 24."""
    with ExitStack() as opened:

        def start(daemon: Daemon, *options: str) -> pexpect.spawn[str]:
            words = ["-m", "shellsession", "top", "--socket", daemon.socket, *options]
            env = {**TERMINAL, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
            screen = pexpect.spawn(sys.executable, words, env=env, dimensions=(24, 80), encoding="utf-8")
            screen.timeout, screen.delaybeforesend = PATIENCE, None
            opened.callback(screen.close, force=True)
            return screen

        yield start


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon whose agents are those of the test."""
    with running(tmp_path / "own") as daemon:
        yield daemon


def test_top_once_prints_masked_and_escaped_lines(own: Daemon) -> None:
    with connect("a1", own.socket, redact=["PIN-[0-9]+"]) as first, connect("b1", own.socket) as second:
        first.run(HOSTILE)
        second.run("echo begun; sleep 100", timeout=0.1, on_timeout="yield")
        done = cli(own.socket, "top", "--once", "--sort", "name")
        assert done.returncode == 0
        title, one, other = done.stdout.decode().splitlines()
        assert title.split() == ["AGENT", "STATE", "RUNS", "COMMAND", "WHY", "LAST", "LINE"]
        assert re.fullmatch(r"a1 +idle +- +\*\*\* end\\u202e\.", one)
        assert re.fullmatch(r"b1 +running +\S+s +echo begun; sleep 100 +begun", other)
        _, *found = cli(own.socket, "top", "--once", "--filter", "IDLE").stdout.decode().splitlines()
        assert [line.split() for line in found] == [one.split()]
        second.close()
        assert b"`shellsession top --once` prints the table" in cli(own.socket, "top").stderr


def test_last_line_shows_no_known_secret_whole_or_cut(own: Daemon) -> None:
    """Of a line whose beginning is no longer kept, what is left may be the end of a secret."""
    value = "hunter2" * 3
    with connect("a1", own.socket, policy=Policy(secrets=[value])) as session:
        (shown,) = shellsession.Daemon(own.socket).described(lines=True)
        assert shown["line"] == ""
        session.run(f"echo before {value}")
        (shown,) = shellsession.Daemon(own.socket).described(lines=True)
        assert shown["line"] == "before ***"
        session.run(f"printf '%s %02000d' {value} 7")
        (shown,) = shellsession.Daemon(own.socket).described(lines=True)
        assert shown["line"] == ""
        session.run("printf '%03000d\\r50 %%\\r60 %%' 7")
        (shown,) = shellsession.Daemon(own.socket).described(lines=True)
        assert shown["line"] == "60 %"


def test_top_selects_filters_interrupts_and_attaches(own: Daemon, top: Start) -> None:
    with connect("a1", own.socket, redact=["PIN-[0-9]+"]) as first, connect("b1", own.socket) as second:
        first.run(HOSTILE)
        second.run("echo begun; sleep 100", timeout=0.1, on_timeout="yield")
        screen = top(own)
        screen.expect("2 agents, 1 running, by runs")
        screen.expect("begun")
        screen.expect(r"\*\*\* end\\u202e\.")
        shown = screen.before or ""
        assert "title" not in shown
        assert "PIN" not in shown
        screen.send("i")
        screen.expect("interrupted the command of b1")
        assert second.wait().outcome == "interrupted"
        screen.send("/a1\r")
        screen.expect("2 agents, 0 running, 1 with 'a1', by runs")
        screen.send("\r")
        screen.expect("attached to a1")
        screen.expect(r"a1:.+\$")
        screen.send(LEAVE)
        screen.expect("1 with 'a1', by runs")
        screen.send("\x1b" + "s")
        screen.expect("2 agents, 0 running, by name")
        screen.send("q")
        screen.expect(pexpect.EOF)
        assert screen.wait() == 0


def test_top_shows_only_rows_that_fit(own: Daemon, top: Start) -> None:
    with ExitStack() as opened:
        for number in range(40):
            opened.enter_context(connect(f"agent-{number:02}", own.socket))
        screen = top(own, "--sort", "name")
        screen.expect("40 agents, 0 running")
        screen.expect("agent-19")
        screen.expect("q quit")
        assert "agent-20" not in (screen.before or "")
        screen.send("\x1b[F")  # End
        screen.expect("agent-20")
        screen.expect("agent-39")
        screen.setwinsize(6, 80)
        screen.expect("40 agents((?!agent-37).)*agent-38")  # an earlier frame may still have come
        screen.send(CTRL_C)
        screen.expect(pexpect.EOF)
        assert screen.wait() == 0


def test_top_goes_on_with_the_next_daemon(tmp_path: Path, top: Start) -> None:
    with running(tmp_path / "daemon") as first, connect("a1", first.socket) as session:
        session.run("true")
        screen = top(first)
        screen.expect("a1")
        first.stop()
        screen.expect("no daemon listens")
        with running(tmp_path / "daemon") as second, connect("b1", second.socket) as another:
            another.run("true")
            screen.expect("b1")


def test_top_without_rich_names_the_extra(own: Daemon) -> None:
    program = f"import sys; sys.modules['rich.live'] = None; from shellsession.cli.main import main; \
sys.exit(main(['top', '--socket', {own.socket!r}]))"
    with connect("a1", own.socket):
        screen = pexpect.spawn(sys.executable, ["-c", program], env=TERMINAL, encoding="utf-8", timeout=PATIENCE)
        screen.expect(re.escape("pip install 'shellsession[top]'"))
        screen.expect(pexpect.EOF)
        screen.close()


def test_top_says_why_a_command_runs_for_long(own: Daemon, top: Start) -> None:
    with connect("a1", own.socket) as session:
        session.run("sleep 100", timeout=0.1, on_timeout="yield")
        screen = top(own)
        screen.expect("a1: sleep sleeps")
        screen.setwinsize(24, 120)
        screen.expect("WHY")
        screen.expect("sleep 100.*sleep sleeps")
        row = cli(own.socket, "top", "--once").stdout.decode().splitlines()[1]
        assert re.fullmatch(r"a1 +running +\S+s +sleep 100 +sleep sleeps *", row)
        session.close()


@pytest.mark.parametrize("key", ["a", "d"])
def test_top_shows_the_question_and_answers_it(own: Daemon, top: Start, key: str) -> None:
    with (
        connect("a1", own.socket, policy=Policy(confirm="queue")) as session,
        ThreadPoolExecutor() as pool,
    ):
        asker = pool.submit(session.run, "echo hello", timeout=PATIENCE)
        screen = top(own)
        screen.expect("1 agents, 0 running, 1 asking")
        screen.expect("echo hello")
        screen.expect("a accepts it once, d declines it")
        screen.send(key)
        if key == "a":
            screen.expect(["only just now: look at it first", "accepted the command of a1"])  # or the test was slow
        while not asker.done():
            screen.send(key)
            screen.expect("by runs")
        if key == "a":
            assert asker.result(PATIENCE).stdout == "hello\n"
        else:
            with pytest.raises(PolicyRefused):
                asker.result(PATIENCE)
        session.close()


def test_top_shows_the_oldest_question_first(own: Daemon, top: Start) -> None:
    policy = Policy(confirm="queue")
    with (
        connect("b1", own.socket, policy=policy) as first,
        connect("a1", own.socket, policy=policy) as second,
        ThreadPoolExecutor() as pool,
    ):
        older = pool.submit(first.run, "echo older", timeout=PATIENCE)
        daemon = shellsession.Daemon(own.socket)
        wait_until(lambda: len(daemon.approvals()) == 1, "a question")
        newer = pool.submit(second.run, "echo newer", timeout=PATIENCE)
        wait_until(lambda: len(daemon.approvals()) == 2, "another question")
        screen = top(own)
        screen.expect(r"2 agents, 0 running, 2 asking.+\| echo older.+d declines it, and 1 more wait")
        screen.send("d")
        screen.expect(r"\| echo newer")
        for asker in (older, newer):
            with pytest.raises(PolicyRefused):
                asker.result(PATIENCE)
            screen.send("d")
        first.close()
        second.close()


class _Asked:
    """A daemon with questions that keeps the answers."""

    def __init__(self, *commands: str) -> None:
        self.questions: list[dict[str, Any]] = [
            {
                "id": f"q{number}",
                "agent": "a1",
                "cwd": "/",
                "command": command,
                "until": None,
                "given": [],
                "proposal": "",
            }
            for number, command in enumerate(commands, 1)
        ]
        self.answers = list[tuple[str, str]]()

    def described(self, lines: bool) -> list[dict[str, Any]]:
        return []

    def approvals(self) -> list[dict[str, Any]]:
        return [*self.questions]

    def answer(self, question: str, decision: str) -> None:
        self.answers.append((question, decision))


def test_top_accepts_only_a_question_that_was_shown_for_half_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    daemon: Any = _Asked("true", "false")
    shown = cli_top.Top(daemon, None, "runs", "")

    def look_and_press(seconds: float, key: bytes) -> None:
        nonlocal now
        shown.look()
        shown.picture(80, 24)
        now += seconds
        shown._press(key)

    for seconds in (0.0, 0.49):
        look_and_press(seconds, b"a")
    assert (daemon.answers, "only just now" in shown.note) == ([], True)
    look_and_press(0.02, b"a")
    assert daemon.answers == [("q1", "accept")]
    del daemon.questions[0]  # the next one is on top, and its time begins
    look_and_press(0.49, b"a")
    assert len(daemon.answers) == 1
    look_and_press(0.0, b"d")  # a decline needs no look
    assert daemon.answers[1:] == [("q2", "decline")]


def test_top_orders_agents(own: Daemon) -> None:
    with ExitStack() as opened:
        sessions = {name: opened.enter_context(connect(name, own.socket)) for name in ("b1", "c1", "a1", "d1")}
        for name in ("b1", "a1"):
            sessions[name].run("true")
        for name in ("d1", "c1"):
            sessions[name].run("sleep 100", timeout=0.1, on_timeout="yield")

        def order(*options: str) -> list[str]:
            _, *rows = cli(own.socket, "top", "--once", *options).stdout.decode().splitlines()
            return [row.split()[0] for row in rows]

        assert order() == ["d1", "c1", "a1", "b1"]
        assert order("--sort", "name") == ["a1", "b1", "c1", "d1"]
        *running, last, first = order("--sort", "idle")
        assert (sorted(running), last, first) == (["c1", "d1"], "a1", "b1")
        for name in ("d1", "c1"):
            sessions[name].close()


def test_top_accepts_no_question_that_is_not_shown_whole(own: Daemon, top: Start) -> None:
    with (
        connect("a1", own.socket, policy=Policy(confirm="queue")) as session,
        ThreadPoolExecutor() as pool,
    ):
        asker = pool.submit(session.run, "echo hello;" + "\n" * 30 + "rm -r /nowhere", timeout=PATIENCE)
        screen = top(own)
        screen.expect("shows it whole")
        screen.send("a")
        screen.expect("look at it first")
        screen.send("d")
        screen.expect("declined the command of a1")
        with pytest.raises(PolicyRefused):
            asker.result(PATIENCE)
        session.close()
