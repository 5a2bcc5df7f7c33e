"""A new process with the id of one that has ended is not taken for that one."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from system import PATIENCE, unique_seconds, wait_until, with_argument

from shellsession import Session
from shellsession.engine.kernel import proc

# In a PID namespace of its own it can be said which number is next, and nobody else takes it.
APART = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]


def test_who_has_an_older_ones_number_is_not_older(sh: Session) -> None:
    seconds = unique_seconds()
    sh.run(f"sleep {seconds}", timeout=0.05, on_timeout="yield")
    (pid,) = wait_until(lambda: with_argument(seconds), "it runs")
    family, start = sh.engine.live().family, proc.start_time(pid)
    assert family.newer({pid: start}) == []
    assert family.newer({pid: start - 1}) == [pid]
    assert family.newer({pid + 1: start}) == [pid]


def test_who_is_present_is_older(sh: Session) -> None:
    seconds = unique_seconds()
    sh.run(f"sleep {seconds}", timeout=0.05, on_timeout="yield")
    (pid,) = wait_until(lambda: with_argument(seconds), "it runs")
    family = sh.engine.live().family
    assert (list(present := family.present()), family.newer(present)) == ([pid], [])


PROGRAM = """
from shellsession import Session
with Session(timeout=20) as sh:
    sh.run("X=kept; sleep 300 & sleep 300 &")
    first, second = sh.jobs()[0].pids
    later = "read then _ </proc/uptime; until read now _ </proc/uptime; [[ $now != $then ]]; do :; done"  # a tick
    again = f"kill -9 {first}; wait {first} 2>/dev/null; echo {first - 1} >/proc/sys/kernel/ns_last_pid; sleep 300"
    result = sh.run(f"{later}; {again}", timeout=2)
    assert (result.outcome, result.state_kept, result.killed) == ("timed_out", True, (first,)), result
    assert sh.run("echo $X").stdout == "kept\\n"
    assert sh.jobs()[0].alive() == [second]
    print("right")
"""


def test_a_command_whose_process_has_an_ended_jobs_number_is_interrupted() -> None:
    if shutil.which("unshare") is None or subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no PID namespace can be made here")
    done = subprocess.run([*APART, sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("right\n", "")
