"""Processes that escape from their shell: none is left after close, restart, kill, or the shell's own end."""

from __future__ import annotations

import fcntl
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from system import PYTHON, mentioning, unique_seconds, wait_until

from shellsession import Session
from shellsession.engine.kernel import proc

EXIT = {"x86_64": 60, "aarch64": 93}  # the kernel's numbers of exit(2), which ends a thread

DOUBLE_FORK = """
import os, sys
if os.fork(): sys.exit()
os.setsid()
if os.fork(): os._exit(0)
os.execvp("sleep", ["sleep", "NAP"])
"""

SERVER = """
import os, socket, sys
if os.fork(): sys.exit()
os.setsid(); os.chdir("/"); os.umask(0)
if os.fork(): os._exit(0)
null = os.open(os.devnull, os.O_RDWR)
for fd in range(3): os.dup2(null, fd)
os.closerange(3, 100); os.environ.clear()
server = socket.socket(); server.bind(("127.0.0.1", 0)); server.listen(); server.accept()
"""

# Its first thread ends, and shows as a zombie then; the other one runs on, and has a file locked.
LED = f"""
import ctypes, fcntl, os, threading, time
os.setsid()
held = open("held", "w"); fcntl.flock(held, fcntl.LOCK_EX)
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).syscall({EXIT.get(os.uname().machine)}, 0)
"""

LEAD = f"""
{PYTHON} -ISc '{LED}' &
until {{ read stat </proc/$!/stat; [[ $stat == *') Z '* ]]; }}; do :; done
echo $!
"""

# NAP: seconds that nothing else on this machine sleeps, the name by which the process is found.
RUNAWAYS = {
    "setsid": "setsid sleep NAP &",
    "setsid in a subshell": "(setsid sleep NAP &)",
    "nohup setsid bash disown": 'nohup setsid bash -c "(sleep NAP; :) & disown; sleep NAP" >/dev/null 2>&1 &',
    "env -i setsid": "env -i setsid sleep NAP &",
    "set -m": "(set -m; sleep NAP &)",
    "double fork": f"{PYTHON} -c '{DOUBLE_FORK}' &",
    "daemonizing server": f"{PYTHON} -c '{SERVER}' NAP",
    "disowned": "sleep NAP & disown -h; disown -a",
    "trapping everything": "(trap '' INT TERM HUP QUIT; exec sleep NAP) &",
    "stopped": "bash -c 'kill -STOP $$' NAP &",
    "in a pipe to itself": "sleep NAP | sleep NAP &",
    "coproc": "coproc exec setsid sleep NAP",
    "another session leader's child": "setsid bash -c 'sleep NAP & sleep NAP & wait' &",
    "process substitution": "exec 7< <(exec setsid sleep NAP)",
    "started by a trap": "trap 'setsid sleep NAP &' USR1; kill -USR1 $$",
    "bash in bash": "bash -c 'bash -c \"setsid sleep NAP & exec sleep NAP\" & exec sleep NAP' &",
}


def close(sh: Session) -> None:
    sh.close()


def restart(sh: Session) -> None:
    sh.restart()


def time_out(sh: Session) -> None:
    assert sh.run("while :; do :; done", timeout=0.05, on_timeout="kill").outcome == "timed_out"


def killed(sh: Session) -> None:
    assert sh.run("kill -9 $$").outcome == "shell_exited"


def exits(sh: Session) -> None:
    assert sh.run("exit 0").outcome == "shell_exited"


ENDINGS = [close, restart, time_out, killed, exits]


def run_away(sh: Session, command: str) -> str:
    """Start it; the text that its processes have on their command lines."""
    seconds = unique_seconds()
    assert sh.run(command.replace("NAP", seconds)).outcome == "exited"
    wait_until(lambda: mentioning(seconds), "it runs")
    return seconds


@pytest.mark.sampled
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
@pytest.mark.parametrize("command", RUNAWAYS.values(), ids=RUNAWAYS)
def test_nothing_is_left(command: str, ending: Callable[[Session], None], sh: Session) -> None:
    seconds = run_away(sh, command)
    ending(sh)
    assert not mentioning(seconds)


def lead(sh: Session, place: Path) -> int:
    """Start that in the background; its process id."""
    pid = int(sh.run(LEAD).stdout)
    assert is_held(place)
    return pid


def is_held(place: Path) -> bool:
    with open(place / "held", "a", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.skipif(os.uname().machine not in EXIT, reason="ends its first thread by the number of a system call")
@pytest.mark.sampled(2)  # each takes five seconds, which nobody works
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
def test_nothing_is_left_of_what_lives_on_without_its_first_thread(
    ending: Callable[[Session], None], sh: Session, place: Path
) -> None:
    lead(sh, place)
    ending(sh)
    assert not is_held(place)


@pytest.mark.skipif(os.uname().machine not in EXIT, reason="ends its first thread by the number of a system call")
def test_nothing_is_left_of_it_where_its_host_is_killed(place: Path) -> None:
    host = "import os, sys, shellsession as s; sh = s.Session(); sh.run(sys.argv[1]); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", host, LEAD], cwd=place, check=False)
    wait_until(lambda: not is_held(place), "the watcher's work")


@pytest.mark.skipif(os.uname().machine not in EXIT, reason="ends its first thread by the number of a system call")
def test_what_lives_on_without_its_first_thread_is_ended_at_a_time_limit(sh: Session, place: Path) -> None:
    older = lead(sh, place)
    (job,) = sh.jobs()
    assert job.pids == (older,)
    job.kill()
    wait_until(lambda: not is_held(place), "its end")
    sh.run("v=7; sleep 1000 &")
    result = sh.run(f"{PYTHON} -ISc '{LED}'; echo after", timeout=0.5)
    assert (result.outcome, result.stdout, result.state_kept, len(result.killed)) == ("timed_out", "", True, 1)
    assert not is_held(place)
    assert sh.run("echo $v").stdout == "7\n"


@pytest.mark.parametrize("command", RUNAWAYS.values(), ids=RUNAWAYS)
def test_nothing_is_left_of_a_call_that_starts_it_and_kills_its_shell(command: str, sh: Session) -> None:
    seconds = unique_seconds()
    separator = " " if command.endswith("&") else "; "
    assert sh.run(command.replace("NAP", seconds) + separator + "kill -9 $$").outcome == "shell_exited"
    assert not mentioning(seconds)
    assert sh.run("echo next").stdout == "next\n"


def test_nothing_is_left_of_a_forgotten_session(place: Path) -> None:
    sh = Session(cwd=place)
    seconds = [run_away(sh, command) for command in list(RUNAWAYS.values())[:6]]
    del sh
    gc.collect()
    assert not [pid for name in seconds for pid in mentioning(name)]


def test_one_sessions_end_leaves_anothers_runaways(sh: Session, new_session: Callable[..., Session]) -> None:
    mine, others = run_away(sh, "setsid sleep NAP &"), new_session()
    theirs = run_away(others, "setsid sleep NAP &")
    sh.close()
    assert not mentioning(mine)
    assert mentioning(theirs)
    assert others.run("echo still").stdout == "still\n"


def test_a_process_that_forks_while_it_is_hunted_does_not_escape(sh: Session) -> None:
    seconds = unique_seconds()
    heads = f"for ((i = 0; i < 400; i++)); do setsid sleep {seconds} & done"  # root has no `ulimit -u`
    sh.run(f"({heads}) >/dev/null 2>&1 & ({heads}) >/dev/null 2>&1 &")
    wait_until(lambda: len(mentioning(seconds)) > 20, "it grows")
    sh.close()
    assert not mentioning(seconds)


def test_who_was_started_by_one_that_ended_in_a_look_is_found(sh: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 80 time limits over eight chains of such processes four left some behind."""
    family = sh.open().engine.live().family
    listings = iter([[1], [1, 2]])
    with monkeypatch.context() as patch:
        patch.setattr(family, "newer", lambda older: next(listings))
        patch.setattr(proc, "alive", lambda pid: pid == 2)
        assert family.living() == [2]
