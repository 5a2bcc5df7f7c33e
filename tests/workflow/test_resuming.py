"""Runs that stop and are continued: after a failure, and after kill -9 of the process that runs them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from commands import cli, running as command
from daemons import Daemon, running
from kinds import BRIDGE
from system import PATIENCE, SOAK, wait_until
from warm import PROGRAM

from shellsession import InvalidRequest, InvalidWorkflow, OutcomeUnknown, Policy, Session, Workflow, aconnect, connect
from shellsession.workflow.report import Event, Report, StepEnded, StepOutput

# Each step leaves a line in a file that nobody may write twice, and something in the shell. The last prints all of it.
_STEPS: Final = """\
name: survivor
env: {MODE: fast}
steps:
- id: one
  run: |
    echo in one
    cd PLACE; V=one; sleep 0.05; echo one >> log
- id: server
  run: |
    echo up; exec sleep 1000
  background: true
  ready: {output: ^up}
- id: two
  run: |
    echo in two; sleep 0.05
    mkdir -p sub; cd sub; f() { echo "f $1"; }; echo two >> ../log
- id: three
  shell: bash
  run: |
    echo in three | cat; V+=" three"; sleep 0.05; echo three >> ../log; SIZE=$(wc -l < ../log)
  outputs: [SIZE]
- id: four
  retry: 2
  run: |
    echo in four; sleep 0.05; [[ -e ../once ]] || { touch ../once; false; }
    V+=" four"; echo four >> ../log
- id: five
  env: {SEEN: "${{ steps.three.outputs.SIZE }}"}
  run: |
    echo in five; sleep 0.05; V+=" five$SEEN$MODE"; echo five >> ../log; trap 'echo trapped' USR1
- id: last
  run: |
    echo in last; echo last >> ../log; f x; echo "$V $PWD"; trap -p USR1; set -o | grep -E 'pipefail|errexit'
finally:
- id: always
  run: |
    echo in always; echo "always $V"
"""
_LOG: Final = ["one", "two", "three", "four", "five", "last"]
_NAMES: Final = ("one", "server", "two", "three", "four", "five", "last", "always")


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def written(place: Path) -> Path:
    (path := place / "survivor.yml").write_text(_STEPS.replace("PLACE", str(place)), encoding="utf-8")
    return path


def report_of(stdout: bytes) -> Report:
    last = json.loads(stdout.splitlines()[-1])
    assert last.pop("event") == "workflow_ended", last
    return Report.model_validate(last["report"])


def check_end(place: Path, report: Report) -> None:
    """What an undisturbed run leaves."""
    assert report.ok, report.to_markdown()
    assert (place / "log").read_text().split() == _LOG
    assert report["last"].output.splitlines()[-5:] == [
        "f x",
        f"one three four five3fast {place}/sub",
        "trap -- 'echo trapped' SIGUSR1",
        "errexit        \ton",
        "pipefail       \toff",
    ]
    assert report["always"].output == "in always\nalways one three four five3fast\n"


def killed(daemon: Daemon, path: Path, env: dict[str, str], step: str, moment: str, *more: str) -> bool:
    """Run the file, and kill the process at that event of the step. False if it has ended before."""
    number = _NAMES.index(step) + 1
    with command(daemon.socket, "workflow", "run", str(path), "--json", *more, env=env) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == moment and number == event.get("step", event.get("report", {}).get("step")):
                process.kill()
                break
    return process.returncode == -signal.SIGKILL


def resumed(daemon: Daemon, path: Path, env: dict[str, str], *more: str) -> Report:
    done = cli(daemon.socket, "workflow", "run", str(path), "--resume", "--json", *more, env=env)
    assert done.stdout, done.stderr
    return report_of(done.stdout)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("moment", ["step_started", "step_output", "step_ended"])
@pytest.mark.parametrize("step", _NAMES)
def test_killed_runner_is_resumed_and_no_step_runs_twice(
    daemon: Daemon, place: Path, state: dict[str, str], step: str, moment: str
) -> None:
    path = written(place)

    def killed_in_time() -> bool:
        (place / "log").unlink(missing_ok=True)
        (place / "once").unlink(missing_ok=True)
        return killed(daemon, path, state, step, moment)

    for _ in range(5 if SOAK else 1):
        wait_until(killed_in_time, "a kill before the end")
        check_end(place, resumed(daemon, path, state))


def run_for(daemon: Daemon, seconds: float | None, env: dict[str, str], *words: str) -> tuple[bytes, bytes] | None:
    """Run the command line, and kill it after this many seconds. Returns what it has printed; None if it was killed."""
    with command(daemon.socket, *words, env=env) as process:
        try:
            return process.communicate(timeout=seconds or PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            return None


def test_runner_killed_at_random_moments_is_resumed_each_time(
    daemon: Daemon, place: Path, state: dict[str, str]
) -> None:
    path, chance = written(place), random.Random(7)
    for _ in range(70 if SOAK else 1):
        (place / "log").unlink(missing_ok=True)
        (place / "once").unlink(missing_ok=True)
        words = ["workflow", "run", str(path), "--json"]
        for seconds in (*(chance.uniform(0.1, 1.2) for _ in range(3)), None, None):
            done = run_for(daemon, seconds, state, *words)
            if done is None:
                words = [*words[:4], "--resume"]
            elif b"no run" in done[0]:  # it was killed before it had begun
                words = words[:4]
            elif b"nothing to resume" in done[0]:  # it was killed once it had succeeded
                assert (place / "log").read_text().split() == _LOG
                break
            else:
                check_end(place, report_of(done[0]))
                break


def test_failed_step_is_repaired_and_resumed_with_the_shell_of_that_moment(
    daemon: Daemon, place: Path, state: dict[str, str]
) -> None:
    path = written(place)
    broken = path.read_text().replace("trap 'echo trapped' USR1", "V=wrong; cd /; unset -f f; false")
    path.write_text(broken)
    done = cli(daemon.socket, "workflow", "run", str(path), env=state)
    assert done.returncode == 1
    assert b"--resume` continues this run; its shell lives on for 10 minutes as agent survivor-" in done.stderr
    path.write_text(_STEPS.replace("PLACE", str(place)).replace("echo five >> ../log; ", ""))
    check_end(place, resumed(daemon, path, state))
    again = cli(daemon.socket, "workflow", "run", str(path), "--resume", env=state)
    assert (again.returncode, again.stdout) == (125, b"")


def test_final_step_in_which_the_runner_was_killed_runs_again_after_the_repaired_one(
    daemon: Daemon, place: Path, state: dict[str, str]
) -> None:
    (path := place / "survivor.yml").write_text(f"""\
defaults: {{run: {{working-directory: {place}}}}}
steps:
- run: "[[ -e repaired ]]"
finally:
- run: echo begun; until [[ -e repaired ]]; do sleep 0.02; done; echo cleaned >> log
""")
    assert killed(daemon, path, state, _NAMES[1], "step_output")
    (place / "repaired").touch()
    assert resumed(daemon, path, state).ok
    assert (place / "log").read_text() == "cleaned\ncleaned\n"


def test_step_that_was_done_and_has_changed_is_refused_unless_forced(
    daemon: Daemon, place: Path, state: dict[str, str]
) -> None:
    (path := place / "w.yml").write_text("steps:\n- run: X=1\n- name: b\n  run: echo $X; [[ -e ok ]]\n")
    env = state | {"PWD": str(place)}
    assert cli(daemon.socket, "workflow", "run", str(path), env=env, cwd=str(place)).returncode == 1
    (place / "ok").touch()
    path.write_text("steps:\n- run: X=2\n- name: b\n  run: echo $X; [[ -e ok ]]\n")
    done = cli(daemon.socket, "workflow", "run", str(path), "--resume", env=env)
    assert f"{path}:2: step 1 (X=2), or what comes before it, has changed" in done.stderr.decode()
    report = resumed(daemon, path, env, "--force")
    assert (report.ok, report.steps[1].output) == (True, "1\n")


def test_input_that_has_changed_since_a_step_read_it_is_refused_unless_forced(daemon: Daemon, place: Path) -> None:
    text = """
inputs: {V: a}
env: {V: "${{ inputs.V }}"}
steps: [{run: 'echo $V > seen'}, {run: '[[ $V == b ]]'}]
"""
    workflow = Workflow.loads(text)
    with connect("inputs", daemon.socket, False, cwd=place) as session:
        assert not workflow.run(session, durable=True).ok
        with pytest.raises(InvalidWorkflow, match="the input 'V' has another value than when the run began: force it"):
            workflow.run(session, resume=True, inputs={"V": "b"})
        assert not workflow.run(session, resume=True, inputs={"V": "a"}).ok
        with pytest.raises(InvalidWorkflow, match="or what comes before it, has changed"):
            Workflow.loads(text.replace("V: a", "V: b")).run(session, resume=True)
        assert workflow.run(session, resume=True, inputs={"V": "b"}, force=True).ok
        session.close()
    assert (place / "seen").read_text() == "a\n"


def _stopped(place: Path, text: str, socket: str) -> tuple[Workflow, str]:
    """A workflow whose second step runs, while its process has died."""
    workflow = Workflow.loads(text, "w.yml")
    program = f"""
import os
from shellsession import Workflow, connect
with connect("w", {socket!r}, recover=True, cwd={str(place)!r}) as session:
    Workflow.loads({text!r}, "w.yml").run(
        session, durable=True, on_event=lambda event: event.kind == "step_output" and os._exit(7)
    )
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == 7
    return workflow, "w"


_LONG: Final = """
steps:
- run: X=1
- id: long
  run: echo begun; touch ran$((++RUNS)); sleep 600; X=2
- run: echo $X
"""


def test_step_whose_daemon_was_killed_must_be_named(place: Path, tmp_path: Path) -> None:
    """Nobody knows how far it came: it is not run again unless that is asked for."""
    with running(tmp_path / "daemon") as first:
        workflow, _ = _stopped(place, _LONG, first.socket)
        first.stop(signal.SIGKILL)
    with running(tmp_path / "daemon") as second:
        with connect("w", second.socket, False, recover=True, cwd=place) as session:
            with pytest.raises(OutcomeUnknown, match=r"step 2 \(long\): .* --rerun long or --skip long"):
                workflow.run(session, resume=True)
            with pytest.raises(InvalidWorkflow, match=r"only the step at which .*: 2 \(long\)"):
                workflow.run(session, resume=True, rerun="3")
            with pytest.raises(InvalidWorkflow, match="must not both be given"):
                workflow.run(session, resume=True, rerun="long", skip="long")
            assert [path.name for path in place.iterdir()] == ["ran1"]
            quick = Workflow.loads(_LONG.replace("sleep 600; ", ""), "w.yml")
            report = quick.run(session, resume=True, rerun="long")
            assert (report.ok, report.steps[2].output) == (True, "2\n")
        with connect("w", second.socket, False, recover=True, cwd=place) as session:
            assert quick.run(session, resume=True).ok  # it is done: nothing runs again
            session.close()


def test_step_that_has_changed_while_it_runs_must_be_named(daemon: Daemon, place: Path) -> None:
    """No step of finally waits for it, and it is neither run again nor counted as failed."""
    text = _LONG + "finally: [{run: touch last}]\n"
    _stopped(place, text, daemon.socket)
    with connect("w", daemon.socket, False) as session:
        for old, new in (("600", "1"), ("steps:", "env: {A: b}\nsteps:")):
            with pytest.raises(OutcomeUnknown, match=r"step.*long.*: look what it has done, .* --rerun long"):
                Workflow.loads(text.replace(old, new), "w.yml").run(session, resume=True, force=True)
        assert [path.name for path in place.iterdir()] == ["ran1"]
        session.interrupt()
        session.close()


@pytest.mark.parametrize(("word", "ran"), [("--rerun", "a\nb\nnew\nb\nc\n"), ("--skip", "a\nb\nnew\nnew\nc\n")])
def test_step_above_which_another_was_inserted_while_it_ran_must_be_named(
    daemon: Daemon, place: Path, state: dict[str, str], word: str, ran: str
) -> None:
    """It does not run twice unless that is asked for, also if the inserted one fails first."""
    before, after = f"steps:\n- run: cd {place}; echo a >> log\n- {{run: x, if: 'false'}}\n", "- run: echo c >> log\n"
    b = f"- id: b\n  run: |\n    echo b >> {place}/log; echo begun; until [[ -e {place}/go ]]; do sleep 0.02; done\n"
    new = "- run: echo new >> log; [[ -e ok ]]\n" if word == "--skip" else "- run: echo new >> log\n"
    (path := place / "w.yml").write_text(before + b + after)
    with command(daemon.socket, "workflow", "run", str(path), "--json", env=state) as process:
        assert process.stdout is not None
        assert any(b"step_output" in line for line in process.stdout)
        process.kill()
        process.wait(PATIENCE)
    path.write_text(before + new + b + after)
    (place / "go").touch()
    words = ("workflow", "run", str(path), "--resume")
    for _ in range(2):
        done = cli(daemon.socket, *words, env=state)
        assert (done.returncode, done.stdout) == (125, b"")
        assert b"step b was running" in done.stderr, done.stderr
        assert (place / "log").read_text() == "a\nb\n"
    done = cli(daemon.socket, *words, word, "b", env=state)
    if word == "--skip":
        assert done.returncode == 1, done.stderr
        (place / "ok").touch()
        done = cli(daemon.socket, *words, env=state)
    assert done.returncode == 0, done.stderr
    assert (b"2 attempts" in done.stdout) is (word == "--skip")
    assert (place / "log").read_text() == ran


def test_step_that_exits_while_no_process_waits_is_joined(daemon: Daemon, place: Path) -> None:
    text = _LONG.replace("sleep 600; X=2", "X=2; until [[ -e go ]]; do sleep 0.02; done; exit 0")
    workflow, _ = _stopped(place, text, daemon.socket)
    with connect("w", daemon.socket, False) as session:
        said = list[tuple[int, str]]()

        def go(event: Event) -> None:
            (place / "go").touch()
            if isinstance(event, StepOutput):
                said.append((event.step, event.text))

        report = workflow.run(session, resume=True, on_event=go)
        assert (report.ok, report.steps[2].output) == (True, "2\n"), report.to_markdown()
        assert said == [(2, "begun\n"), (3, "2\n")]  # also what it has printed before
        session.close()


def test_step_of_unknown_outcome_can_be_skipped(place: Path, tmp_path: Path) -> None:
    with running(tmp_path / "daemon") as first:
        workflow, _ = _stopped(place, _LONG, first.socket)
        first.stop(signal.SIGKILL)
    with running(tmp_path / "daemon") as second, connect("w", second.socket, False, recover=True, cwd=place) as session:
        report = workflow.run(session, resume=True, skip="long")
        assert [one.outcome for one in report.steps] == ["success", "skipped", "success"]
        assert report.steps[2].output == "1\n"
        session.close()


def test_run_of_another_machine_is_resumed_by_an_asyncio_client(daemon: Daemon, place: Path) -> None:
    workflow = Workflow.loads("steps: [{run: X=1}, {run: '[[ -e ok ]]'}, {run: echo $X}]", "w.yml")
    options: Any = {"cwd": place, "recover": True}
    with connect("far", daemon.socket, False, via=["env"], remote=BRIDGE, **options) as session:
        assert [one.outcome for one in workflow.run(session, durable=True).steps] == ["success", "failure", "skipped"]
    (place / "ok").touch()

    async def resume() -> Report:
        async with await aconnect("far", daemon.socket, False, **options) as session:
            report = await workflow.run(session, resume=True)
            await session.close()
            return report

    report = asyncio.run(resume())
    assert ([one.outcome for one in report.steps], report.steps[2].output) == (["success"] * 3, "1\n")


def test_run_is_forgotten_with_its_session(daemon: Daemon, place: Path) -> None:
    workflow = Workflow.loads("steps: [{run: X=1}, {run: 'false'}]")
    with connect("gone", daemon.socket, False, cwd=place) as session:
        assert not workflow.run(session, durable=True).ok
        session.restart()
        assert not workflow.run(session, resume=True).ok
        session.close()
    with connect("gone", daemon.socket, False, cwd=place) as session:
        with pytest.raises(InvalidWorkflow, match="agent 'gone' has no run"):
            workflow.run(session, resume=True)
        session.close()


def test_secrets_reach_no_file(tmp_path: Path, place: Path) -> None:
    """Neither the journal, the state, the receipts nor the audit log has the value."""
    secret, state = "sesame-open-9", tmp_path / "state"
    (path := place / "w.yml").write_text(
        "secrets: [PIN]\nsteps:\n- run: echo $PIN; KEPT=x$PIN\n- run: false $PIN # sesame-open-9\n"
    )
    env = {"XDG_STATE_HOME": str(state), "PIN": secret}
    with running(tmp_path / "daemon", env={**os.environ, "XDG_STATE_HOME": str(state)}) as daemon:
        done = cli(daemon.socket, "workflow", "run", str(path), "--junit", str(place / "x.xml"), env=env)
        assert done.returncode == 1
        assert secret.encode() not in done.stdout + done.stderr
        again = cli(daemon.socket, "workflow", "run", str(path), "--resume", env=env)
        assert b"not restored: variable KEPT: it contains a secret\n" in again.stderr
        resume = cli(daemon.socket, "workflow", "run", str(path), "--resume", env=env | {"PIN": "another-one"})
        assert b"the secrets are others" in resume.stderr
    files = [one for one in (*tmp_path.rglob("*"), place / "x.xml") if one.is_file()]
    assert len(files) > 3
    assert [one for one in files if secret.encode() in one.read_bytes()] == []


def test_durable_run_with_secrets_that_the_session_does_not_know_is_refused(daemon: Daemon, place: Path) -> None:
    workflow, secret = Workflow.loads("secrets: [PIN]\nsteps: [{run: 'KEPT=x$PIN; touch ran'}]"), "sesame-open-9"
    with connect("open", daemon.socket, False, cwd=place) as session:
        with pytest.raises(InvalidRequest, match=r"must know the secret PIN .*Policy\(secrets="):
            workflow.run(session, durable=True, secrets={"PIN": secret})
        assert not (place / "ran").exists()
        session.close()
    options: Any = {"cwd": place, "policy": Policy(secrets=(secret,))}
    with connect("masked", daemon.socket, False, **options) as session:
        assert workflow.run(session, durable=True, secrets={"PIN": secret}).ok
        session.close()


def test_workflow_runs_inside_a_session_and_cannot_be_resumed_there(daemon: Daemon, place: Path) -> None:
    """An agent may run one, but not read the state of another shell."""
    (place / "w.yml").write_text("steps: [{run: echo inside}, {run: '[[ -e ok ]]'}]")
    line = f"{shlex.join(PROGRAM)} workflow run w.yml"
    env = {**os.environ, "SHELLSESSION_SOCKET": daemon.socket, "XDG_STATE_HOME": str(place / "state")}
    with connect("outer", daemon.socket, False, cwd=place, env=env, timeout=PATIENCE) as session:
        first = session.run(line)
        assert (first.exit_code, "inside" in first.stdout) == (1, True), first
        again = session.run(f"touch ok; {line} --resume")
        assert (again.exit_code, "ask from outside" in again.stderr) == (125, True), again
        anew = session.run(line)
        assert (anew.exit_code, "inside" in anew.stdout) == (0, True), anew.stderr
        session.close()


def test_background_step_that_does_not_start_again_leaves_the_done_steps_done(daemon: Daemon, place: Path) -> None:
    workflow = Workflow.loads("""
steps:
- run: "[[ ! -e taken ]]; echo up; exec sleep 1000"
  background: true
  ready: {output: ^up}
- run: echo two >> log; V=2
- run: echo three >> log; [[ -e ok ]]
- run: echo $V
finally:
- run: V=wrong
""")
    with connect("server", daemon.socket, False, cwd=place, recover=True) as session:
        assert not workflow.run(session, durable=True).ok
        (place / "ok").touch()
        (place / "taken").touch()
        with pytest.raises(InvalidWorkflow, match=r"step 1 .* could not be started again: it ended"):
            workflow.run(session, resume=True)
    (place / "taken").unlink()
    with connect("server", daemon.socket, False) as session:
        report = workflow.run(session, resume=True)
        assert (report.ok, report.steps[3].output) == (True, "2\n"), report.to_markdown()
        session.close()
    assert (place / "log").read_text() == "two\nthree\nthree\n"


def test_run_cancelled_between_two_steps_is_resumed_with_the_shell_of_that_moment(daemon: Daemon, place: Path) -> None:
    workflow = Workflow.loads("steps: [{run: V=1}, {run: echo $V}]\nfinally: [{run: V=wrong}]")

    def cancel(event: Event) -> None:
        if isinstance(event, StepEnded):
            raise KeyboardInterrupt

    with (
        connect("between", daemon.socket, False, cwd=place, recover=True) as session,
        pytest.raises(KeyboardInterrupt),
    ):
        workflow.run(session, durable=True, on_event=cancel)
    with connect("between", daemon.socket, False) as session:
        report = workflow.run(session, resume=True)
        assert (report.ok, report.steps[1].output) == (True, "1\n"), report.to_markdown()
        session.close()


def test_journal_needs_a_daemon(sh: Session) -> None:
    with pytest.raises(ValueError, match="must be used with a session of a daemon"):
        Workflow.loads("steps: [{run: 'true'}]").run(sh, durable=True)
