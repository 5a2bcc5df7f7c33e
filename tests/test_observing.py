"""Logging and observers: each command that has ended is passed on once, without its output."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import kinds
import pytest
from system import is_alive, wait_until

from shellsession import Agents, Result, Session

sh = kinds.sh
OPTIONS: Final = {"extra_env": {"API_TOKEN": "verysecret"}}


def test_each_command_is_observed_once_with_its_secrets_masked(sh: Session, place: Path) -> None:
    os.mkfifo(go := place / "go")
    seen = list[tuple[str, str, Result]]()
    target: Any = sh if isinstance(sh, Session) or not hasattr(sh, "_session") else sh._session
    target.observe(lambda *ended: seen.append(ended))
    results = [sh.run("echo verysecret; (exit 3)"), sh.run("sleep 1000", timeout=0.05)]
    sh.run("echo later; read x <go", timeout=0.05, on_timeout="yield")
    go.write_text("\n")
    results.append(sh.wait())
    results.append(list(sh.stream("echo piece"))[-1])  # type: ignore[arg-type]  # the last is the Result
    assert [text for _, text, _ in seen] == [
        "echo ***; (exit 3)", "sleep 1000", "echo later; read x <go", "echo piece",
    ]  # fmt: skip
    assert [result.outcome for *_, result in seen] == ["exited", "timed_out", "exited", "exited"]
    assert [result for *_, result in seen] == results


def test_an_observer_that_raises_costs_nobody_the_result(sh: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, raised = list[str](), list[str]()
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, traceback: raised.append(str(error)))
    target: Any = sh if isinstance(sh, Session) or not hasattr(sh, "_session") else sh._session
    target.observe(lambda *ended: int(ended[1]))
    target.observe(lambda *ended: seen.append(ended[1]))
    assert sh.run("echo yes").stdout == "yes\n"
    assert seen == ["echo yes"]
    assert raised == ["invalid literal for int() with base 10: 'echo yes'"]


@pytest.mark.parametrize("how", ["close", "restart"])
def test_observer_hears_of_a_command_that_the_end_of_its_shell_ends(how: str) -> None:
    seen = list[tuple[str, str]]()
    with Session(startup=["echo begin"], shutdown=["echo end"]) as sh:
        sh.observe(lambda agent, text, result: seen.append((text, result.outcome)))
        sh.run("sleep 1000", timeout=0.01, on_timeout="yield")
        getattr(sh, how)()
    assert seen == [("sleep 1000", "interrupted")]  # by the shutdown command, which no observer hears of


def test_a_session_that_redacts_masks_the_secrets_of_its_environment_too() -> None:
    seen = list[str]()
    with Session(redact=["pin-[0-9]+"], extra_env={"API_TOKEN": "verysecret"}) as sh:
        sh.observe(lambda agent, text, result: seen.append(text))
        sh.run(": verysecret pin-1234")
    assert seen == [": *** ***"]


def test_the_log_has_sizes_and_no_text(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "shellsession"), Agents(extra_env={"API_TOKEN": "verysecret"}) as agents:
        agents.run("a1", "echo verysecret; echo err >&2; (exit 3)")
        agents.run("a1", "exit 4")
    opened, first, lost, second, closed = (record for record in caplog.records if record.name == "shellsession")
    assert opened.getMessage().startswith("agent 'a1': bash started, pid ")
    assert first.levelno == second.levelno == logging.DEBUG
    fields: dict[str, Any] = first.shellsession  # type: ignore[attr-defined]
    assert fields.pop("duration") > 0
    assert fields == {
        "agent": "a1", "exit_code": 3, "outcome": "exited", "stdout_bytes": 11, "stderr_bytes": 4,
    }  # fmt: skip
    assert "exit_code=3 outcome='exited'" in first.getMessage()
    assert (lost.levelno, closed.getMessage()) == (logging.WARNING, "agent 'a1': session closed")
    assert lost.getMessage().startswith("agent 'a1': a command cost the session its shell: the command ended")
    assert "echo" not in caplog.text


def test_a_shell_that_was_killed_between_two_commands_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with Session() as sh:
        pid = int(sh.run("echo $$").stdout)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), "the end of the shell")
        assert not sh.run("true").ran
    (lost,) = (record for record in caplog.records if record.name == "shellsession")
    assert lost.levelno == logging.WARNING
    assert lost.getMessage().startswith("a command cost the session its shell: ")


def test_a_program_without_logging_gets_nothing_on_stderr_and_does_not_load_it(tmp_path: Path) -> None:
    program = "import sys, shellsession\nwith shellsession.Session() as sh: sh.run('exit 3')\n"
    for more, known in (("", False), ("import logging\n", True)):
        text = f"{more}{program}sys.exit(('logging' in sys.modules) is not {known})"
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, check=False, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, b"")
