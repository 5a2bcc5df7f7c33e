"""A one-shot call is a process with its own group and signals; calls run side by side, with text of any length."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import one_shots
import pytest
from bashes import VERSION
from one_shots import CONTRACTS, plain
from system import wait_until

from shellsession import Agents, Session
from shellsession.contracts import bashtool, spec

agents = one_shots.agents
_bashtool = CONTRACTS["bashtool"][1]

pytestmark = pytest.mark.usefixtures("company")


STATES: Final = [
    "set -eu -o pipefail -o noclobber",
    "set -o posix",
    "set -m",
    "IFS=0123456789abcdef",
    "shopt -s nullglob failglob nocasematch extdebug",
    "alias echo=false exec=false trap=false; f() { :; }; cd() { :; }; wait() { :; }; exec() { :; }",
    "trap 'echo interrupted' EXIT ERR",
    "set -T; trap 'x=1' DEBUG",
    "unset BASH; PATH=/nowhere:$PATH",
    "shopt -s expand_aliases; set a b c",
    "set -x",
    "set -v",
    "set -xv",
    "set -k",
    "set -afPE",
    "trap 'echo failed' ERR; set -E",
    "trap 'echo T; echo T >&2' DEBUG",
    # before bash 5.0 `exec` complains of a SHLVL that it cannot change
    f"readonly PWD OLDPWD COLUMNS LINES {'SHLVL' if VERSION >= (5, 0) else ''}",
    "readonly POSIXLY_CORRECT=1",
    "builtin() { echo own; }; unset() { echo own; }",
    "declare -i COMES=1; declare -a GOES=(a b)",
    "readonly -a COMES; readonly GOES",
]


# What no argument of a program can hold, and what a pipe cannot hold at once.
LONG: Final = f": {'x' * 200_000}; "


@pytest.mark.sampled
@pytest.mark.parametrize("long", ["", LONG], ids=["short", "long"])
@pytest.mark.parametrize("state", STATES)
def test_nothing_of_the_session_is_known(state: str, long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = 'echo hi "$@"; type -t f cd; echo $-; compgen -e _shellsession; echo err >&2; (exit 3)'
    with Session() as session:
        session.run(state)
        monkeypatch.setenv("COMES", "since then, and a secret")
        for name, argument in (("spec", "/bin/bash"), ("bashtool", "bash"), ("langchain", "bash")):
            contract, told = CONTRACTS[name]
            assert told(contract.tool(session), long + command) == plain(command, argument)


def test_a_command_of_documents_003_and_004_leads_a_process_group(agents: Agents) -> None:
    for name in ("bashtool", "phoenix"):
        contract, told = CONTRACTS[name]
        bash, pid = contract.tool(agents, agent="a1"), agents.session("a1").pid
        stdout, _, _ = told(bash, "cut -d' ' -f5 /proc/$$/stat; echo $$")
        assert len(set(stdout.split())) == 1
        assert told(bash, "sleep 100 & kill -KILL 0; echo late") == ("", "", -1)
        assert agents.session("a1").pid == pid


@pytest.mark.parametrize("signal", ["INT", "TERM"])
def test_a_command_that_signals_its_whole_group_is_waited_for(agents: Agents, signal: str) -> None:
    bash = bashtool.tool(agents, agent="a1")
    command = f"trap 'echo interrupted' {signal}; kill -{signal} 0; echo on; exit 3"
    assert _bashtool(bash, command) == ("interrupted\non\n", "", 3)
    assert _bashtool(bash, f"kill -{signal} 0; sleep 100") == ("", "", -1)


def test_a_command_that_stops_has_not_ended(agents: Agents) -> None:
    command = "(until grep -q '^State:.T' /proc/$$/status; do :; done; kill -CONT $$) & kill -STOP $$; echo on; exit 3"
    assert _bashtool(bashtool.tool(agents, agent="a1"), command) == ("on\n", "", 3)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "command",
    [
        "echo $- $# $0 $BASH_SUBSHELL $SHLVL; [[ $$ == $BASHPID ]]; cut -d' ' -f5 /proc/self/stat | grep -c ^$$",
        "ls /proc/self/fd; cat; nonexistent_command\n\nexit $LINENO",
        "trap 'echo bye' EXIT; jobs; sleep 0 & wait; false\nset -e; false; echo not here",
        "cat <<EOF\n$0\nEOF",
        "env | grep -c '^[XZ]-Y='; exit 3",
    ],
)
@pytest.mark.parametrize("name", CONTRACTS)
def test_what_is_too_long_for_an_argument_runs_as_all_else(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, name: str, command: str
) -> None:
    contract, told = CONTRACTS[name]
    monkeypatch.setenv("Z-Y", "1")
    bash = contract.tool(agents, agent="long")
    monkeypatch.delenv("Z-Y")
    agents.session("long").run("f() { :; }; set -uf")
    assert told(bash, LONG + command) == told(bash, command)


def test_a_signal_ends_what_is_too_long_for_an_argument(agents: Agents) -> None:
    assert _bashtool(bashtool.tool(agents, agent="a1"), LONG + "echo out; kill -KILL $$") == ("out\n", "", -1)
    found = bashtool.tool(agents, agent="a1", timeout=0.5)
    with pytest.raises(bashtool.Failed, match="timed out"):
        found({"command": LONG + "sleep 1000"})


def test_agents_calls_run_side_by_side_and_those_of_one_agent_in_turn(tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    reads, writes = {"command": f"cat {fifo}; echo read >>{tmp_path}/log"}, {"command": f"echo hi >{fifo}"}
    with Agents() as agents, ThreadPoolExecutor() as pool:
        one, two = (spec.tool(agents, agent=name) for name in ("one", "two"))
        first = pool.submit(one, reads)
        wait_until(lambda: agents.session("one").state == "running", "the first call")
        second = pool.submit(one, {"command": f"echo second >>{tmp_path}/log"})
        assert two(writes)["exitCode"] == 0
        assert (first.result(20)["stdout"], second.result(20)["exitCode"]) == ("hi\n", 0)
    assert (tmp_path / "log").read_text() == "read\nsecond\n"
