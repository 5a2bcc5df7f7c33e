"""Workflows whose files are on a branch: applied as a whole, and brought back with the shell when a run is resumed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from commands import cli, running as command
from daemons import Daemon, running
from system import PATIENCE, wait_until

from shellsession import BranchUnavailable, Conflict, InvalidWorkflow, OutcomeUnknown, Workflow, aconnect, connect
from shellsession.branch.mounts import fault
from shellsession.daemon.client.admin import agents

if reason := fault():
    pytest.skip(reason, allow_module_level=True)

_STEPS: Final = """\
branch: BASE
steps:
- run: cd BASE; rm old; echo 1 >one; X=1
- id: two
  run: echo 2 >>two; X+=2; GATE
- run: cat one two; X+=3; echo $X; ls
finally:
- run: echo >>BASE/cleanup
"""
_READY: Final = "[[ -e BASE/../ready ]]"


@pytest.fixture
def base(place: Path) -> Path:
    (base := place / "base").mkdir()
    (base / "old").touch()
    return base


def of(base: Path) -> list[str]:
    return sorted(path.name for path in base.iterdir())


def text_of(base: Path, gate: str = _READY) -> str:
    return _STEPS.replace("GATE", gate).replace("BASE", str(base))


def written(base: Path, gate: str = _READY) -> Path:
    (path := base.parent / "w.yml").write_text(text_of(base, gate), encoding="utf-8")
    return path


def check_end(base: Path, output: str) -> None:
    """Each step has written once, also the one that ran in part before."""
    assert output == "1\n2\n123\none\ntwo\n"
    assert of(base) == ["cleanup", "one", "two"]
    assert (base / "two").read_text() == "2\n"


def test_run_that_fails_writes_nothing_and_goes_on_with_the_files_of_that_moment(
    daemon: Daemon, base: Path, tmp_path: Path
) -> None:
    path, env = written(base), {"XDG_STATE_HOME": str(tmp_path / "state")}
    failed = cli(daemon.socket, "workflow", "run", str(path), env=env)
    assert (failed.returncode, of(base)) == (1, ["old"])
    (base.parent / "ready").touch()
    done = cli(daemon.socket, "workflow", "run", str(path), "--resume", "--json", env=env)
    assert f"4 changes of its branch were applied to {base}" in done.stderr.decode()
    report = json.loads(done.stdout.splitlines()[-1])["report"]
    assert (report["outcome"], report["applied"], report["steps"][0]["resumed"]) == ("success", 4, True)
    check_end(base, report["steps"][2]["output"])


def test_killed_runner_is_resumed_and_its_step_is_joined(daemon: Daemon, base: Path, tmp_path: Path) -> None:
    path, env = written(base, f"until {_READY}; do sleep 0.02; done"), {"XDG_STATE_HOME": str(tmp_path / "state")}
    with command(daemon.socket, "workflow", "run", str(path), "--json", env=env) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if (event["event"], event.get("step")) == ("step_started", 2):
                process.kill()
                process.wait(PATIENCE)
                break
    assert of(base) == ["old"]
    (base.parent / "ready").touch()
    done = cli(daemon.socket, "workflow", "run", str(path), "--resume", "--json", env=env)
    check_end(base, json.loads(done.stdout.splitlines()[-1])["report"]["steps"][2]["output"])


def test_step_whose_daemon_was_killed_begins_with_the_files_of_its_start(base: Path, tmp_path: Path) -> None:
    options: Any = {"branch": base, "cwd": base, "recover": True}
    hung = Workflow.loads(text_of(base, f"touch {base.parent}/begun; sleep 1000"), "w.yml")
    with (
        running(tmp_path / "daemon") as first,
        ThreadPoolExecutor(1) as pool,
        connect("w", first.socket, False, **options) as session,
    ):
        ran = pool.submit(hung.run, session, durable=True)
        wait_until((base.parent / "begun").exists, "step 2")
        first.stop(signal.SIGKILL)
        assert isinstance(ran.exception(), OutcomeUnknown)
    assert of(base) == ["old"]
    with running(tmp_path / "daemon") as second, connect("w", second.socket, False, **options) as session:
        quick = Workflow.loads(text_of(base, "true"), "w.yml")
        with pytest.raises(OutcomeUnknown, match="--rerun two or --skip two"):
            quick.run(session, resume=True)
        check_end(base, quick.run(session, resume=True, rerun="two").steps[2].output)
        session.close()


def test_job_that_a_step_leaves_makes_it_fail(daemon: Daemon, base: Path, agent: str) -> None:
    with connect(agent, daemon.socket, False, branch=base, cwd=base) as session:
        workflow = Workflow.loads(f"{{branch: {base}, steps: [{{run: sleep 1000 &}}, {{run: echo}}]}}")
        report = workflow.run(session, durable=True)
        assert report.steps[0].reason.startswith("its files could not be kept: ")
        assert [one.outcome for one in report.steps] == ["failure", "skipped"]
        session.close()


def test_conflict_ends_the_run_and_the_branch_stays(daemon: Daemon, base: Path, agent: str) -> None:
    with connect(agent, daemon.socket, False, branch=base, cwd=base) as session:
        workflow = Workflow.loads(f"{{branch: {base}, steps: [{{run: echo ours >old}}]}}")
        events = list[Any]()

        def look(event: Any) -> None:
            (base / "old").write_text("theirs")
            events.append(event)

        with pytest.raises(Conflict):
            workflow.run(session, durable=True, on_event=look)
        report = events[-1].report
        assert (report.outcome, report.reason[:17]) == ("failure", "'old' changed in ")
        assert 'errors="1"' in report.to_junit()
        assert "'old' changed in " in report.to_markdown()
        assert ((base / "old").read_text(), session.read_file("old")) == ("theirs", b"ours\n")
        session.branch.discard()
        session.close()


def test_asyncio_applies_too(daemon: Daemon, base: Path, agent: str) -> None:
    async def run() -> None:
        async with await aconnect(agent, daemon.socket, False, branch=base, cwd=base) as session:
            report = await Workflow.loads(f"{{branch: {base}, steps: [{{run: echo >new}}]}}").run(session, durable=True)
            assert (report.ok, report.applied) == (True, 1)
            await session.close()

    asyncio.run(run())
    assert of(base) == ["new", "old"]


def test_mistakes_are_named_before_anything_runs(daemon: Daemon, base: Path, agent: str) -> None:
    with pytest.raises(InvalidWorkflow, match=r"steps\[1\]\.background: must not be used with branch"):
        Workflow.loads("branch: .\nsteps:\n- run: sleep 9\n  background: true\n")
    with connect(agent, daemon.socket, False, cwd=base) as session:
        with pytest.raises(BranchUnavailable, match="branch="):
            Workflow.loads("{branch: ., steps: [{run: touch new}]}").run(session, durable=True)
        with pytest.raises(BranchUnavailable, match="branch="):
            Workflow.loads("{branch: ., steps: [{run: touch new}]}").run(session)
        session.close()
    assert of(base) == ["old"]


def test_run_whose_branch_was_discarded_is_not_resumed(daemon: Daemon, base: Path, agent: str) -> None:
    with connect(agent, daemon.socket, False, branch=base, cwd=base) as session:
        workflow = Workflow.loads(text_of(base), "w.yml")
        assert not workflow.run(session, durable=True).ok
        session.branch.discard()
        with pytest.raises(InvalidWorkflow, match="applied or discarded meanwhile: run the file anew"):
            workflow.run(session, resume=True)
        session.close()


def test_run_is_not_resumed_on_another_branch(daemon: Daemon, base: Path, agent: str) -> None:
    options: Any = {"cwd": base, "branch": base}
    workflow = Workflow.loads(text_of(base), "w.yml")
    with connect(agent, daemon.socket, False, **options) as session:
        assert not workflow.run(session, durable=True).ok
    with connect(agent, daemon.socket, False, idle_ttl=0.01):
        wait_until(lambda: agent not in [one["agent"] for one in agents(daemon.socket)], "its end")
    (other := base.parent / "other").mkdir()
    with pytest.raises(BranchUnavailable, match=f"has a branch of '{base}'"):
        workflow.run(connect(agent, daemon.socket, False, branch=other), resume=True)
    with connect(agent, daemon.socket, False, branch=other, branch_dir=base.parent / "layers") as session:
        with pytest.raises(InvalidWorkflow, match="run the file anew"):
            workflow.run(session, resume=True)
        session.close()
    assert of(base) == ["old"]


_KILLED = """
import os, sys
from shellsession import Workflow, connect
from shellsession.workflow.runner import Runner

def freeze_and_die(self, number):
    yield from freeze(self, number)
    if number == 3:
        os._exit(9)

freeze, Runner._freeze = Runner._freeze, freeze_and_die
agent, socket, base, path = sys.argv[1:]
Workflow.load(path).run(connect(agent, socket, False, branch=base, cwd=base), durable=True)
"""


def test_checkpoint_of_a_runner_that_was_killed_before_it_noted_it_is_made_anew(
    daemon: Daemon, base: Path, agent: str
) -> None:
    path = written(base, "true")
    words = [sys.executable, "-c", _KILLED, agent, daemon.socket, str(base), str(path)]
    assert subprocess.run(words, timeout=PATIENCE, check=False).returncode == 9
    with connect(agent, daemon.socket, False, branch=base, cwd=base) as session:
        check_end(base, Workflow.load(path).run(session, resume=True).steps[2].output)
        session.close()


def test_command_line_names_a_conflict_and_the_agent_that_has_the_branch(
    daemon: Daemon, base: Path, tmp_path: Path
) -> None:
    text = f"echo ours >{base}/old; until [[ -s {base.parent}/go ]]; do sleep 0.02; done"
    (path := base.parent / "w.yml").write_text(f"branch: {base}\nsteps:\n- run: {text}\n")
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with command(daemon.socket, "workflow", "run", str(path), "--json", env=env) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (base / "old").write_text("theirs")
        (base.parent / "go").write_text("go")
        _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, (base / "old").read_text()) == (1, "theirs")
    assert b"or all with --overwrite" in said
    agent = said.decode().split("branch diff ")[1].split("`")[0]
    assert cli(daemon.socket, "branch", "diff", agent).stdout == b"changed  old\n"
    assert cli(daemon.socket, "branch", "discard", agent).returncode == 0
    assert cli(daemon.socket, "kill", agent).returncode == 0
