"""``shellsession agent`` as its users run it, with a scripted model."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import cli, environment, finish, running
from system import PATIENCE, unique_seconds, wait_until, with_argument

_HERE = str(Path(__file__).parent)
_PATIENCE = 3 * PATIENCE  # seconds for a program that first imports an SDK
pytestmark = pytest.mark.timeout(3 * _PATIENCE)
_MODEL = ("--model", "python:scripted_langchain:reporting")


def run(*words: str, script: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    env = {"PYTHONPATH": _HERE, "SCRIPT": script, **environment}
    return cli("", "agent", *words, env=env, patience=_PATIENCE)


def report(done: subprocess.CompletedProcess[bytes]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_only_with_bash_is_there_a_tool() -> None:
    script = "echo hel''lo"
    without, allowed = (run(*words, *_MODEL, "say hello", script=script) for words in ((), ("--bash",)))
    assert report(without) == {"tools": [], "heard": ["say hello"]}
    assert without.stderr == b""
    assert report(allowed) == {"tools": ["bash"], "heard": ["say hello", "", "hello\n"]}
    assert allowed.stderr.decode() == f"shellsession: bash: {script}\n"


_INSISTS = """
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
call = {"name": "bash", "args": {"command": "touch ran"}, "id": "1"}
insists = GenericFakeChatModel(messages=iter([AIMessage(content="", tool_calls=[call])]))
"""


def test_a_model_that_insists_on_a_tool_it_has_not_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "insists.py").write_text(_INSISTS)
    words = ("agent", "--model", "python:insists:insists", "do it")
    done = cli("", *words, env={"PYTHONPATH": str(tmp_path)}, cwd=str(tmp_path), patience=_PATIENCE)
    assert not (tmp_path / "ran").exists()
    assert "which it does not have (see --bash): nothing was run" in done.stderr.decode()


def test_the_agent_recovers_from_an_error() -> None:
    done = run("--bash", *_MODEL, "try", script="echo part; exit 3\necho better")
    assert report(done)["heard"][2::2] == ["Command failed with exit status 3\n[stdout]\npart", "better\n"]
    assert done.stderr.decode().splitlines() == [
        "shellsession: bash: echo part; exit 3",
        "shellsession: bash: Command failed with exit status 3",
        "shellsession: bash: echo better",
    ]


def test_what_the_model_says_does_nothing_to_the_terminal() -> None:
    assert b"\x1b" not in run("--bash", *_MODEL, "try", script="true \x1b[2J").stderr


def test_the_model_can_stand_in_the_environment() -> None:
    assert report(run("hello", SHELLSESSION_MODEL=_MODEL[1]))["heard"] == ["hello"]


def test_the_model_can_be_a_module_here(tmp_path: Path) -> None:
    """The installed program does not look there by itself, as `python -m` does."""
    (tmp_path / "my_models.py").write_text("from scripted_langchain import Reporting\nlocal = Reporting(script=[])\n")
    program = Path(sys.executable).parent / "shellsession"
    done = subprocess.run(
        [program, "agent", "--model", "python:my_models:local", "hello"],
        capture_output=True,
        cwd=tmp_path,
        env=environment("", {"PYTHONPATH": _HERE}),
        check=False,
    )
    assert report(done)["heard"] == ["hello"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("task",), "name a model: --model NAME, or $SHELLSESSION_MODEL"),
        (("--model", "python:scripted_langchain:failing", ""), "the task is empty: describe what"),
        (("--model", "python:scripted_langchain:failing", " \n"), "the task is empty: describe what"),
        ((), "the following arguments are required: TASK"),
        (("--model", "python:nowhere:model", "task"), "no model 'python:nowhere:model', which is python:MODULE"),
        (("--model", "python:json:nothing", "task"), "has no attribute 'nothing'"),
        (("--model", "python:", "task"), "no model 'python:'"),
        (("--model", "no-such-model", "task"), "no model 'no-such-model': "),
        (("--model", "python:scripted_langchain:failing", "task"), "the agent failed: RuntimeError: no key"),
    ],
)
def test_errors_are_one_line(words: tuple[str, ...], said: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (125, b"")
    assert said in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_ctrl_c_ends_the_agent_and_its_command() -> None:
    seconds = unique_seconds()
    script = {"PYTHONPATH": _HERE, "SCRIPT": f"sleep {seconds}"}
    with running("", "agent", "--bash", *_MODEL, "sleep", env=script) as process:
        wait_until(lambda: with_argument(seconds), "the command's start", _PATIENCE)
        assert finish(process, signal.SIGINT)[0] == 130
        assert with_argument(seconds) == []


def test_without_langchain_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "langchain_core.py").write_text("raise ImportError('not installed')\n")
    done = run(*_MODEL, "task", PYTHONPATH=str(tmp_path))
    assert done.returncode == 125
    assert done.stderr.decode() == (
        "shellsession: not installed: install shellsession again, with the extra: "
        "`pip install 'shellsession[langchain]'`\n"
    )
