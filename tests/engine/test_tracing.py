"""A traced process is waited for while it runs; a host does not trace where a system call filter would kill it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from system import wait_until

from shellsession.engine.io.threads import Steps, drive
from shellsession.engine.kernel import activity, proc, vfork
from shellsession.engine.verbs import interrupt

# Installs a filter (seccomp(2), BPF) that kills who calls ptrace(2), as SystemCallFilter of systemd does.
_HOST = """
import ctypes, os, struct, sys
from shellsession import Session

number = {"x86_64": 101, "aarch64": 117}[os.uname().machine]
load, jump_if_equal, give = 0x20, 0x15, 0x06
rules = [(load, 0, 0, 0), (jump_if_equal, 0, 1, number), (give, 0, 0, 0x80000000), (give, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code))
libc = ctypes.CDLL(None)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    sys.exit("no filter to be had")
with Session() as sh:
    result = sh.run("v=7; sleep 100; echo went on", timeout=0.1)
    print(result.outcome, result.stdout, sh.run("echo $v").stdout, sep="")
"""


@pytest.mark.skipif(not vfork.is_possible(), reason="no copy can try it on this machine")
def test_a_host_that_would_be_killed_for_tracing_does_not_trace() -> None:
    done = subprocess.run([sys.executable, "-c", _HOST], capture_output=True, text=True, timeout=60, check=False)
    if "no filter to be had" in done.stderr:
        pytest.skip("this machine has no filters of system calls")
    assert (done.returncode, done.stdout, done.stderr) == (0, "timed_out7\n\n", "")


@pytest.mark.skipif(not vfork.is_possible(), reason="no copy can try it on this machine")
def test_a_copy_tells_what_kills() -> None:
    assert vfork.survives([("getpid", ())])
    assert not vfork.survives([("raise", (9,))])


# Stops, and is then for a while in no system call; then in one that nothing else makes.
_BUSY = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP); sum(range(10**7)); os.getppid()"
_GETPPID = {"x86_64": 110, "aarch64": 173}.get(os.uname().machine)


def to_that_call(pid: int) -> Steps[bool]:
    while (yield from interrupt._wait_for_stop(pid)):
        if interrupt.stopped_at(pid)[:2] == (interrupt.ENTRY, _GETPPID):
            return True
        interrupt.continue_traced(pid)
    return False


def test_a_process_that_runs_cannot_be_seized_and_is_let_go() -> None:
    with subprocess.Popen(["sleep", "60"]) as running:
        try:
            with pytest.raises(ProcessLookupError):
                interrupt.seize(running.pid)
            assert proc.tracer(running.pid) == 0
        finally:
            running.kill()


@pytest.mark.skipif(_GETPPID is None, reason="nobody knows the numbers of this machine's system calls")
def test_who_runs_is_waited_for_although_it_is_shown_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell is that just reaps its child: taken for asleep and interrupted there, it went on with its text."""
    shown = proc.state
    with subprocess.Popen([sys.executable, "-ISc", _BUSY]) as busy:
        wait_until(lambda: shown(busy.pid) == "T", "its stop")
        monkeypatch.setattr(proc, "state", lambda pid: shown(pid).replace("R", "S"))
        try:
            interrupt.seize(busy.pid)
            busy.send_signal(signal.SIGCONT)
            assert drive(to_that_call(busy.pid))
        finally:
            interrupt.detach(busy.pid)
            os.kill(busy.pid, signal.SIGKILL)  # Popen takes what it hears of a stop for the end, and kills no more


def test_who_sleeps_is_not_waited_for() -> None:
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        wait_until(lambda: activity.system_call(sleeper.pid)[1:], "its sleep")
        try:
            assert not drive(interrupt._wait_for_stop(sleeper.pid))
        finally:
            sleeper.kill()
