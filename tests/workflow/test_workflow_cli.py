"""``shellsession workflow``: what it prints, its exit statuses, its reports, and its picture on a terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from commands import all_shown, cli, environment, finish, line, running as command
from daemons import Daemon
from system import PATIENCE, wait_until

from shellsession import connect
from shellsession.cli.workflow import main

_FILE: Final = """\
name: small
inputs:
  who: {default: Ann}
steps:
- id: greet
  run: echo "hello $WHO"
  env: {WHO: "${{ inputs.who }}"}
- name: the second
  run: echo two; false
  continue-on-error: true
- run: printf 'no newline'
finally:
- run: echo end
"""


@pytest.fixture
def path(place: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (path := place / "small.yml").write_text(_FILE)
    return str(path)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def test_run_prints_each_step_and_a_table(daemon: Daemon, path: str, env: dict[str, str], place: Path) -> None:
    reports = ["--junit", str(place / "out.xml"), "--markdown", str(place / "out.md")]
    done = cli(daemon.socket, "workflow", "run", path, "--input", "who=Ben", *reports, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    lines = [one.partition(" (0.")[0] for one in done.stdout.decode().splitlines()]
    assert lines[:12] == [
        *("== 1/4 greet", "hello Ben", "-- ok", "== 2/4 the second", "two", "-- failed, allowed: exit status 1"),
        *("== 3/4 printf 'no newline'", "no newline", "-- ok", "== 4/4 echo end", "end", "-- ok"),
    ]
    assert lines[13].split() == ["STEP", "TITLE", "RESULT", "TIME"]
    assert 'tests="4" failures="0"' in (place / "out.xml").read_text()
    assert (place / "out.md").read_text().startswith("# small: success\n")
    assert b"small-" not in cli(daemon.socket, "ls").stdout  # its shell is closed


def test_json_has_an_event_on_each_line(daemon: Daemon, path: str, env: dict[str, str]) -> None:
    done = cli(daemon.socket, "workflow", "run", path, "--json", "--only", "greet", env=env)
    events = [json.loads(one) for one in done.stdout.splitlines()]
    assert [one["event"] for one in events] == [
        *("workflow_started", "step_started", "step_output", "step_ended", "workflow_ended")
    ]
    assert events[-1]["report"]["outcome"] == "success"


def test_check_prints_mistakes_and_list_prints_steps(path: str, place: Path) -> None:
    (bad := place / "bad.yml").write_text("steps:\n- uses: x\n")
    done = cli("", "workflow", "check", path, str(bad))
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout.decode().splitlines() == [
        f"{path}: 4 steps, no mistakes",
        f"{bad}:2: steps[1].uses: is not supported: actions of others cannot run here: write their commands in run",
        f"{bad}:2: steps[1].run: is missing",
    ]
    as_json = cli("", "workflow", "check", path, str(bad), "--json").stdout.splitlines()
    assert [(one["steps"], len(one["mistakes"])) for one in map(json.loads, as_json)] == [(4, 0), (0, 2)]
    listed = cli("", "workflow", "list", path).stdout.decode().splitlines()
    assert [one.split() for one in listed[1:3]] == [["1", "greet", "5", "greet"], ["2", "-", "8", "the", "second"]]
    dry = cli("", "workflow", "run", path, "--dry-run", "--from", "2", "--until", "the second", "--json")
    assert [one["step"] for one in json.loads(dry.stdout)] == [2, 4]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "nowhere.yml"], "nowhere.yml cannot be read: No such file or directory"),
        (["run", "BAD"], "BAD:2: steps[1].run: is missing"),
        (["run", "FILE", "FILE"], "`run` takes one file, not 2"),
        (["run", "FILE", "--rerun", "x"], "--rerun, --skip and --agent are for --resume"),
        (["run", "FILE", "--resume"], "FILE has no run to resume: run it first"),
        (["run", "FILE", "--junit", "/nowhere/x.xml"], "/nowhere/x.xml cannot be written: No such file or directory"),
        (["run", "FILE", "--markdown", "/"], "/ cannot be written: Is a directory"),
        (["run", "FILE", "--only", "x"], "there is no step 'x': there are greet, the second, 3, 4"),
        (["run", "FILE", "--input", "x=1"], "there is no input 'x': there are who"),
    ],
)
def test_wrong_call_runs_nothing(
    daemon: Daemon, path: str, place: Path, env: dict[str, str], words: list[str], said: str
) -> None:
    (bad := place / "bad.yml").write_text("steps:\n- name: x\n")
    names = {"FILE": path, "BAD": str(bad)}
    done = cli(daemon.socket, "workflow", *(names.get(word, word) for word in words), env=env)
    for name, file in names.items():
        said = said.replace(name, file)
    assert (done.returncode, done.stdout) == (125, b"")
    assert f"shellsession: {said}" in done.stderr.decode()
    assert b"small-" not in cli(daemon.socket, "ls").stdout


def test_text_that_bash_cannot_read_is_found_before_anything_runs(
    daemon: Daemon, place: Path, env: dict[str, str]
) -> None:
    (path := place / "w.yml").write_text(
        "steps:\n- run: touch ran; shopt -s extglob; echo !(x)\n- run: |\n    if true\n    fi )\n"
        "- run: fi\n  expect: {exit-code: 2}\n"
    )
    said = f"{path}:3: step 2 (if true): in its text, line 2: syntax error near unexpected token `fi'"
    check = cli("", "workflow", "check", str(path))
    assert (check.returncode, check.stdout.decode().splitlines()) == (1, [said])
    done = cli(daemon.socket, "workflow", "run", str(path), env=env, cwd=str(place))
    assert (done.returncode, done.stdout, said in done.stderr.decode()) == (125, b"", True)
    assert not (place / "ran").exists()


def test_pattern_that_takes_too_long_fails_the_background_step(
    daemon: Daemon, place: Path, env: dict[str, str]
) -> None:
    (path := place / "w.yml").write_text(
        "steps:\n- run: printf 'a%.0s' {1..5000}; echo; sleep 1000\n  background: true\n"
        "  ready: {output: '(a|aa)+$x'}\n"
    )
    done = cli(daemon.socket, "workflow", "run", str(path), env=env)
    assert (done.returncode, b"ready: to search its output takes too long" in done.stdout) == (1, True), done.stderr


def test_call_that_runs_nothing_leaves_the_last_run_to_be_resumed(
    daemon: Daemon, place: Path, env: dict[str, str]
) -> None:
    (path := place / "w.yml").write_text("inputs: {V: }\nsteps:\n- run: X=1\n- run: '[[ -e ok ]]; echo $X'\n")
    words = ("workflow", "run", str(path))
    assert cli(daemon.socket, *words, "--input", "V=1", env=env, cwd=str(place)).returncode == 1
    assert cli(daemon.socket, *words, env=env).returncode == 125
    (place / "ok").touch()
    done = cli(daemon.socket, *words, "--resume", env=env)
    assert (done.returncode, b"\n1\n" in done.stdout) == (0, True), done.stderr


def test_run_that_has_succeeded_is_not_resumed(daemon: Daemon, path: str, env: dict[str, str]) -> None:
    assert cli(daemon.socket, "workflow", "run", path, env=env).returncode == 0
    done = cli(daemon.socket, "workflow", "run", path, "--resume", env=env)
    assert (done.returncode, done.stdout) == (125, b"")
    assert f"the last run of {path} has succeeded: there is nothing to resume" in done.stderr.decode()
    assert b"small-" not in cli(daemon.socket, "ls").stdout


def test_run_that_has_succeeded_leaves_a_later_one_to_be_resumed(
    daemon: Daemon, place: Path, env: dict[str, str]
) -> None:
    text = f"steps:\n- run: cd {place}; echo begun; until [[ -e go ]]; do sleep 0.02; done\n"
    (path := place / "w.yml").write_text(text)
    words = ("workflow", "run", str(path))
    with command(daemon.socket, *words, env=env) as first:
        assert [line(first) for _ in range(2)][1] == b"begun\n"
        path.write_text(f"steps:\n- run: cd {place}; [[ -e go ]]; echo later\n")
        assert cli(daemon.socket, *words, env=env).returncode == 1
        (place / "go").touch()
        assert finish(first) == (0, b"")
    assert b"later" in cli(daemon.socket, *words, "--resume", env=env).stdout


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_the_step_runs_the_last_ones_and_leaves_the_run(
    daemon: Daemon, place: Path, env: dict[str, str], number: signal.Signals, exit_code: int
) -> None:
    (path := place / "w.yml").write_text(
        "steps:\n- run: echo begun; sleep 1000\n- run: b\nfinally:\n- run: echo last\n"
    )
    words = ("workflow", "run", str(path), "--markdown", str(place / "out.md"))
    with command(daemon.socket, *words, env=env) as process:
        assert [line(process) for _ in range(2)] == [b"== 1/3 echo begun; sleep 1000\n", b"begun\n"]
        assert process.stdout is not None
        process.send_signal(number)
        assert b"last\n" in [line(process) for _ in range(4)]
        status, said = finish(process)
    assert status == exit_code
    assert b"--resume` continues this run" in said
    assert "| 2 | b | skipped: the run was ended |" in (place / "out.md").read_text()
    path.write_text("steps:\n- run: echo repaired\n")
    assert b"repaired" in cli(daemon.socket, "workflow", "run", str(path), "--resume", env=env).stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_second_signal_ends_the_last_steps(
    daemon: Daemon, place: Path, env: dict[str, str], number: signal.Signals
) -> None:
    (path := place / "w.yml").write_text(
        "steps:\n- run: echo begun; sleep 1000\nfinally:\n- run: echo last; sleep 1000\n- run: echo never\n"
    )
    with command(daemon.socket, "workflow", "run", str(path), env=env) as process:
        assert [line(process) for _ in range(2)][1] == b"begun\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert any(one == b"last\n" for one in process.stdout)
        process.send_signal(number)
        assert b"never\n" not in process.stdout.readlines()
        assert process.wait(PATIENCE) == 130


def test_sigterm_handler_of_the_process_is_as_before(
    daemon: Daemon, place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (path := place / "w.yml").write_text(f"steps: [{{run: kill -TERM {os.getpid()}; sleep 1000}}]\n")

    def mine(*_: object) -> None:
        raise AssertionError("the run has left SIGTERM to its caller")

    before = signal.signal(signal.SIGTERM, mine)
    try:
        assert main(["run", str(path), "--socket", daemon.socket]) == 143
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_resume_of_an_unknown_agent_makes_none(daemon: Daemon, path: str, env: dict[str, str]) -> None:
    done = cli(daemon.socket, "workflow", "run", path, "--resume", "--agent", "small-x", env=env)
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"there is no agent 'small-x' whose run could be resumed: run the file anew" in done.stderr
    assert b"small-x" not in cli(daemon.socket, "ls").stdout


def test_shell_of_a_failed_run_lives_on_for_a_while(daemon: Daemon, place: Path, env: dict[str, str]) -> None:
    (path := place / "w.yml").write_text("steps: [{run: X=1}, {run: '[[ -e ok ]]; echo $X'}]\n")
    done = cli(daemon.socket, "workflow", "run", str(path), env=env, cwd=str(place))
    said = re.search(rb"its shell lives on for 10 minutes as agent (w-\w+)", done.stderr)
    assert said is not None, done.stderr
    with connect(said[1].decode(), daemon.socket, False, idle_ttl=0.01):
        wait_until(lambda: said[1] not in cli(daemon.socket, "ls").stdout, "its end")
    (place / "ok").touch()
    assert b"\n1\n" in cli(daemon.socket, "workflow", "run", str(path), "--resume", env=env).stdout


_SHORT = """
import sys
from shellsession.cli import workflow
from shellsession.cli.main import main
assert (workflow._LIMIT, workflow._FAILED_IDLE) == (3600.0, 600.0)
workflow._LIMIT = workflow._FAILED_IDLE = 0.2
sys.exit(main())
"""


def test_step_ends_after_an_hour_and_the_shell_of_a_failed_run_after_ten_minutes(
    daemon: Daemon, place: Path, env: dict[str, str]
) -> None:
    (path := place / "long.yml").write_text("steps: [{run: sleep 1000}]\n")
    words = [sys.executable, "-c", _SHORT, "workflow", "run", str(path)]
    done = subprocess.run(
        words, env=environment(daemon.socket, env), capture_output=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, b"the time limit was over" in done.stdout) == (1, True)
    wait_until(lambda: b"long-" not in cli(daemon.socket, "ls").stdout, "its end")


def test_secret_that_is_not_in_the_environment_is_asked_for(daemon: Daemon, place: Path, env: dict[str, str]) -> None:
    (path := place / "w.yml").write_text("secrets: [PIN]\nsteps: [{run: 'echo ${#PIN} $PIN'}]\n")
    master, slave = os.openpty()
    words = ("workflow", "run", str(path))
    with command(daemon.socket, *words, env=env, stdin=slave, stderr=slave, start_new_session=True) as process:
        os.close(slave)
        asked = os.read(master, 100)
        os.write(master, b"sesame\n")
        assert process.stdout is not None
        said = process.stdout.read()
        assert (asked, process.wait(PATIENCE)) == (b"PIN: ", 0), said
    assert b"6 ***\n" in said
    assert b"sesame" not in said + all_shown(master)


def test_terminal_shows_a_table_that_changes(daemon: Daemon, path: str, env: dict[str, str]) -> None:
    master, slave = os.openpty()
    with command(daemon.socket, "workflow", "run", path, env=env | {"TERM": "xterm"}, stdout=slave) as process:
        os.close(slave)
        shown = all_shown(master).decode()
        assert process.wait(PATIENCE) == 0
    assert "✓" in shown
    assert "failed, allowed: exit status 1" in shown
    assert "\x1b[?25h" in shown  # the cursor is back
