"""One-shot calls beside what four documents start, which is ``bash -c COMMAND``."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import one_shots
import pytest
from bashes import SUBSTITUTION_HEEDS_INTERRUPT
from daemons import Daemon
from hypothesis import given, strategies as st
from one_shots import CONTRACTS, plain
from system import PATIENCE

from shellsession import Agents, Session, connect
from shellsession.contracts import bashtool, phoenix, spec
from shellsession.contracts.one_shot import read_report
from shellsession.engine.verbs import substitutions
from shellsession.engine.verbs.substitutions import LEFT_RUNNING
from shellsession.models import Result
from shellsession.policy.rules import Policy

agents = one_shots.agents
_spec, _bashtool, _phoenix = (CONTRACTS[name][1] for name in ("spec", "bashtool", "phoenix"))

pytestmark = pytest.mark.usefixtures("company")

# Those that say in their payload what was left running.
SAY_SO: Final = {"bashtool", "phoenix"}
# What a subshell of an interactive bash would do otherwise.
COMMANDS: Final = [
    "echo $- $# $0 $BASH_SUBSHELL ${#BASH_LINENO[@]} $SHLVL; [[ $$ == $BASHPID ]]",
    "\n\necho $LINENO\n\necho $LINENO",
    "echo ok\nfi # a syntax error",
    "echo 'an open quote: a syntax error",
    "echo $(( 1 + )); echo on",
    "nonexistent_command",
    "/etc",
    "cd /nowhere",
    "alias hi='echo hello'\nhi",
    "shopt login_shell expand_aliases huponexit checkwinsize; set -o | grep -v vi",
    "trap; jobs; sleep 0 & wait; echo done",
    "trap 'echo bye' EXIT; trap 'echo err' ERR; false; exit 3",
    "set -e; false; echo not here",
    "set -x; echo traced",
    "readonly R=1; R=2; echo not here",
    "echo $BASH_EXECUTION_STRING",
    "grep SigIgn /proc/$$/status; umask; ulimit -n -u",
    "cd /proc/self/fd; echo [012345678]; [[ ! -t 0 && ! -t 1 && ! -t 2 ]]; cat",
    "f() { local x=1; echo ${FUNCNAME[*]}; declare -F; }; f",
    "history; fc -l; echo !!; echo $HISTFILE",
    "echo $PS1$PS2$PROMPT_COMMAND; declare -p COLUMNS LINES 2>&1",
    "exec sh -c 'echo $0; exit 7'",
    "return 5; echo on",
    "exit 300",
    "exit 137",
    "{ sh -c 'kill -9 $$'; } 2>/dev/null; exit $?",
    "printf 'no newline' >&2; exit 4",
    "printf '[1]+  77 Killed   ( : x' >&2",
    # Who spawns it reads its pipes to the end.
    "seq 3 > >(sleep 0.4; cat)",
    "seq 3 | tee >(sort -r | tail -1)",
    "{ echo soon; sleep 0.1; echo late; } & exit 3",
]


@pytest.mark.sampled
@pytest.mark.parametrize("command", COMMANDS, ids=range(len(COMMANDS)))
@pytest.mark.parametrize("name", ["spec", "langchain", "bashtool"])
def test_it_is_what_bash_c_does(agents: Agents, monkeypatch: pytest.MonkeyPatch, name: str, command: str) -> None:
    monkeypatch.setattr(substitutions, "_JOBS", PATIENCE)  # for the job that ends soon
    contract, told = CONTRACTS[name]
    stdout, stderr, status = plain(command, "/bin/bash" if name == "spec" else "bash")
    if name == "langchain" and status == 0:
        stderr = ""
    assert told(contract.tool(agents, agent="a1"), command) == (stdout, stderr, status)


@pytest.mark.parametrize("command", COMMANDS, ids=range(len(COMMANDS)))
def test_phoenix_does_it_with_both_streams_in_one(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(substitutions, "_JOBS", PATIENCE)
    assert _phoenix(phoenix.tool(agents, agent="a1"), command) == plain(command, stderr=subprocess.STDOUT)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SHLVL", "7"),
        ("SHLVL", None),
        ("COLUMNS", "33"),
        ("OLDPWD", "/nonexistent"),
        ("PWD", "/nonexistent"),
        ("PWD", None),
        ("PWD", "link"),
        ("BASH_ENV", "file"),
        ("UID", "77"),
        ("PS4", "> "),
        ("BASH_FUNC_f%%", "() { echo func; }"),
    ],
)
def test_the_environment_is_to_the_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str | None
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "file").write_text("echo from BASH_ENV\n")
    monkeypatch.chdir(tmp_path / "there")
    if value is None:
        monkeypatch.delenv(name, raising=False)
    else:
        monkeypatch.setenv(name, str(tmp_path / value) if value in ("link", "file") else value)
    command = "echo $PWD $SHLVL; f 2>/dev/null; declare -x; env | sort; :"
    with Agents() as agents:
        bash = bashtool.tool(agents, agent="a1")
        assert _bashtool(bash, command)[0] == plain(command)[0]
        assert _bashtool(bash, command)[0] == plain(command)[0], "again"


@pytest.mark.parametrize("name", ["spec", "langchain", "bashtool", "phoenix"])
def test_the_environment_follows_the_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    def is_plain(command: str) -> None:
        found = told(contract.tool(agents, agent="a1"), command)
        assert found == plain(command, "/bin/bash" if name == "spec" else "bash")

    (tmp_path / "file").write_text("echo once")
    for variable, value in (("EDITOR", "/bin/false"), ("VISUAL", "/bin/false"), ("BASH_ENV", str(tmp_path / "file"))):
        monkeypatch.setenv(variable, value)
    contract, told = CONTRACTS.get(name, (phoenix, _phoenix))
    everything = "echo $0 $#; env | sort; f 2>/dev/null; g 2>/dev/null; :"
    monkeypatch.setenv("X-Y", "1")
    monkeypatch.setenv("A *B", "1")
    monkeypatch.setenv("BASH_FUNC_f%%", "() { echo first; }")
    with Agents() as agents:
        is_plain(everything)
        monkeypatch.delenv("A *B")
        monkeypatch.setenv("BASH_FUNC_f%%", "() { echo second; }")
        monkeypatch.setenv("BASH_FUNC_g%%", "() { echo third; }")
        is_plain(everything)
        monkeypatch.delenv("X-Y")
        monkeypatch.delenv("BASH_FUNC_f%%")
        is_plain(everything)
        monkeypatch.setenv("BASH_FUNC_g%%", "() { echo 'no function")
        assert "here" in str(told(contract.tool(agents, agent="a1"), "echo here"))


@pytest.mark.parametrize("signal", ["HUP", "INT", "KILL", "SEGV", "PIPE", "TERM", "USR1"])
def test_a_bash_that_a_signal_ends_has_no_exit_code(agents: Agents, signal: str) -> None:
    pid = agents.session("a1").pid
    for command in (
        f"ulimit -c 0; echo out; kill -{signal} $$",
        f"ulimit -c 0; echo out; exec sh -c 'kill -{signal} $$'",
    ):
        assert _bashtool(bashtool.tool(agents, agent="a1"), command) == ("out\n", "", -1)
        assert _phoenix(phoenix.tool(agents, agent="a1"), command) == ("out\n", "", -1)
    assert agents.session("a1").pid == pid, "the session is not theirs"


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_job_that_holds_the_output_is_left_running(agents: Agents, name: str) -> None:
    contract, told = CONTRACTS[name]
    bash = contract.tool(agents, agent=name)
    stdout, stderr, status = told(bash, "sleep 1000 & echo here")
    assert (stdout + stderr, status) == (f"here\n[{LEFT_RUNNING}]\n" if name in SAY_SO else "here\n", 0)
    (job,) = agents.session(name).jobs()
    assert job.running
    assert told(bash, "sleep 1000 >/dev/null 2>&1 & echo here") == ("here\n", "", 0), "nothing more can come of that"


@pytest.mark.skipif(not SUBSTITUTION_HEEDS_INTERRUPT, reason="it ignores SIGINT, as a job does")
def test_what_a_process_substitution_says_is_under_the_time_limit(agents: Agents) -> None:
    bash = bashtool.tool(agents, agent="limit", timeout=0.3)
    with pytest.raises(bashtool.Failed, match=r"^Command timed out after 0\.3s$"):
        bash({"command": "seq 3 > >(sleep 1000; cat)"})
    assert agents.session("limit").jobs() == []


def test_a_policy_sees_the_command_alone(agents: Agents) -> None:
    asked: list[str] = []

    def confirm(command: str, agent: str, cwd: str) -> bool:
        asked.append(command)
        return True

    for contract, _ in CONTRACTS.values():
        contract.tool(agents, agent="a1", policy=Policy(confirm=confirm))({"command": "echo hi"})
    assert asked == ["echo hi"] * 4


@given(st.binary(max_size=60), st.binary(max_size=60), st.none() | st.integers(0, 255))
def test_only_the_report_of_the_end_is_removed(stdout: bytes, stderr: bytes, status: int | None) -> None:
    result = Result(stdout, stderr, status, None, "/", 0.0, "exited")
    assert read_report(result, b"0123456789abcdef") == result


def test_it_is_the_bash_of_the_session(tmp_path: Path) -> None:
    shutil.copy(os.path.realpath("/bin/bash"), tmp_path / "my 'bash'")
    with Session(bash=str(tmp_path / "my 'bash'")) as session:
        for contract, told in CONTRACTS.values():
            stdout, _, status = told(contract.tool(session), "readlink /proc/$$/exe; :")
            assert (stdout, status) == (f"{tmp_path}/my 'bash'\n", 0)


def test_the_session_is_the_hosts_own(agents: Agents) -> None:
    """A bash for each call, all of them below the one that the agent has."""
    bash = spec.tool(agents, agent="a1")
    pids = [bash({"command": "echo $$ $PPID"})["stdout"].split() for _ in range(3)]
    assert len({pid for pid, _ in pids}) == 3
    assert {parent for _, parent in pids} == {str(agents.session("a1").pid)}


def test_what_a_session_adds_for_agents_is_not_there(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("PAGER", raising=False)
    monkeypatch.delenv("MAIL", raising=False)  # a login sets it; a session leaves it out
    command = "env | grep -v ^_= | sort; :"
    with Session() as session:
        assert _spec(spec.tool(session), command) == plain(command)
    with connect("one-shot", socket=daemon.socket) as remote:
        assert _spec(spec.tool(remote), command) == plain(command)
    with Session(extra_env={"PAGER": "cat"}) as session:
        assert _spec(spec.tool(session), "echo $PAGER $TERM")[0] == "cat xterm\n", "that one was asked for"
    with Session(env={"TERM": "dumb", "PATH": os.environ["PATH"]}) as session:
        assert _spec(spec.tool(session), "echo $TERM")[0] == "dumb\n"


@pytest.mark.parametrize("name", ["PS1", "PROMPT_COMMAND", "TMOUT", "HISTFILE", "MAIL"])
def test_what_an_interactive_bash_must_not_get_is_there(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "7")
    with Agents() as agents:
        command = f"env | grep ^{name}="
        assert _spec(spec.tool(agents, agent="a1"), command) == plain(command)
        assert _bashtool(bashtool.tool(agents, agent="a1"), command) == plain(command)
