"""Finding the processes of a shell that ended by itself, and the cost of that beside many others."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, repeat
from typing import Any

import pytest
from escapes import ESCAPES
from sandboxes import ORDINARY, open_place
from system import PATIENCE, PYTHON, mentioning, unique_seconds, wait_until

from shellsession import AsyncSession, Session
from shellsession.engine.kernel import proc
from shellsession.engine.kernel.family import Orphans
from shellsession.engine.verbs import shell_end

MANY = 300
# Forks so many processes, which live until its stdin ends; "orphans" get another parent.
_FORKS = f"""
import os, sys
for _ in range({MANY}):
    if os.fork() == 0:
        os.close(1)
        os.read(0, 1)
        os._exit(0)
os.close(1)
if sys.argv[1] != "orphans":
    os.read(0, 1)
"""


@contextmanager
def many_others(kind: str) -> Iterator[None]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-ISc", _FORKS, kind], stdin=pipe, stdout=pipe) as parent:
        assert parent.stdout is not None
        assert parent.stdout.read() == b""  # all have closed it
        if kind == "orphans":
            parent.wait(PATIENCE)
        now = proc.time_now()
        wait_until(lambda: proc.time_now() > now, "the next tick of the clock that their start is told by")
        yield


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The path of each file, directory and link that was read in /proc, as it is."""
    paths = list[str]()

    def counted(look: Callable[..., Any], path: str, *more: Any) -> Any:
        paths.append(path)
        return look(path, *more)

    for name in ("_pages", "names", "link"):
        monkeypatch.setattr(proc, name, partial(counted, getattr(proc, name)))
    return paths


def end_the_shell(sh: Session) -> None:
    assert sh.run("exit 3").exit_code == 3


def kill_a_job(sh: Session) -> None:
    sh.run(f"sleep {unique_seconds()} &")
    (job,) = sh.jobs()
    assert job.kill() == job.pids


@pytest.mark.parametrize("act", [end_the_shell, kill_a_job], ids=lambda act: act.__name__)
@pytest.mark.parametrize("kind", ["children", "orphans"])
def test_it_costs_no_more_beside_many_other_processes(
    kind: str, act: Callable[[Session], None], new_session: Callable[..., Session], looks: list[str]
) -> None:
    def looked() -> int:
        with new_session() as sh:
            sh.run("true")
            looks.clear()
            act(sh)
            return len(looks)

    alone = looked()
    with many_others(kind):
        assert min(looked() for _ in range(3)) < alone + MANY / 3  # other tests may start some meanwhile


def test_other_tasks_of_the_loop_run_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where many processes have come since the shell was started."""
    events = list[str]()

    def look(pid: int, tag: Callable[[int], int] = proc.tag) -> int:
        events.append("look")
        return tag(pid)

    async def run_beside() -> None:
        while True:
            events.append("turn")
            await asyncio.sleep(0)

    async def main() -> None:
        async with AsyncSession() as sh:
            await sh.run("true")
            with many_others("orphans"):
                other = asyncio.create_task(run_beside())
                assert (await sh.run("exit 3")).exit_code == 3
                other.cancel()

    monkeypatch.setattr(shell_end, "_SLICE", 0.0)
    monkeypatch.setattr(proc, "tag", look)
    asyncio.run(main())
    first, last = events.index("look"), len(events) - events[::-1].index("look")
    assert events[first:last].count("look") > MANY
    assert events[first:last].count("turn") > MANY


def text(pids: list[int]) -> bytes:
    return b"".join(b"%d " % pid for pid in pids)


@pytest.mark.parametrize(
    ("before", "later", "young"),
    [
        ([1, 2, 3], [1, 2, 3, 9], [9]),
        ([1, 2, 3], [1, 2, 9], [9]),
        ([1, 2, 3], [9], [9]),
        ([1, 2, 3], [1, 3, 2], [2]),  # the number of one that has ended
        ([1, 2], [1, 2], [2]),
        ([1, 2], [1, 2, 9, 7], [9]),  # 7 is old, but was another's child
        ([1, 2], [1, 9, 0], [9]),  # 0 has ended since it was listed
        ([], [9, 7], [9]),
    ],
)
def test_a_list_is_read_back_to_a_process_that_was_in_it_before(
    before: list[int], later: list[int], young: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = {pid: 200 if pid in young else 100 if pid else 0 for pid in {*before, *later}}
    bash = 8
    monkeypatch.setattr(proc, "start_time", starts.__getitem__)
    monkeypatch.setattr(proc, "time_now", lambda: 150)  # as bash is started
    monkeypatch.setattr(proc, "tag", lambda pid: 4711 if pid in young else -1)
    monkeypatch.setattr(proc, "alive", bool)
    monkeypatch.setattr(proc, "below", lambda pid, besides: ())
    lists = chain([before, before], repeat(later))  # of the start, of the first scan, and of the others
    monkeypatch.setattr(proc, "adopting_lists", lambda: {"list": text(next(lists))})
    orphans = Orphans()
    assert [pid for pid in orphans.find(range(4711, 4712), (), {bash}) if pid] == young


# A host. It tells what its shell has left, before it ends itself: its watcher would end that.
_HOST = """
import os, subprocess
from shellsession import Session

with Session(cwd="/", timeout=20) as sh:
    sh.run("true")
    print(sh.run(os.environ["COMMAND"]).outcome)
    print(subprocess.run(["pgrep", "-xf", "sleep " + os.environ["SECONDS_OF"]], capture_output=True, text=True).stdout)
"""
_ADOPTS = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); "
_BECOMES = f"os.setgroups([]); os.setgid({ORDINARY}); os.setuid({ORDINARY})\n"
_MOUNT = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
HOSTS = {
    "the host itself": [sys.executable, "-c", _ADOPTS + _HOST],
    "a process above it": [
        *(sys.executable, "-c", _ADOPTS + "sys.exit(os.spawnvp(os.P_WAIT, sys.argv[1], sys.argv[1:]))"),
        *(sys.executable, "-c", _HOST),
    ],
    "the host, as the first of its namespace": ["unshare", "-fp", "--mount-proc", sys.executable, "-c", _HOST],
    "one that is hidden from the host": [
        *("unshare", "-m", "sh", "-c", _MOUNT, "sh"),
        *(
            sys.executable,
            "-c",
            f"import os, shellsession.engine.verbs.expect, shellsession.session; {_BECOMES}{_HOST}",
        ),
    ],
}


@pytest.mark.parametrize("adopter", HOSTS)
def test_nothing_is_left_whoever_gets_the_orphans(adopter: str) -> None:
    if HOSTS[adopter][0] == "unshare" and os.getuid() != 0:
        pytest.skip("only root can mount")
    seconds = unique_seconds()
    starts = [ESCAPES[name].format(seconds) for name in ("setsid", "a twofold orphan", "without the mark")]
    all_run = f"until [[ $(pgrep -cxf 'sleep {seconds}') = {len(starts)} ]]; do :; done"
    command = "\n".join([*starts, all_run, "kill -9 $$"])
    with open_place("as an ordinary user" if "hidden" in adopter else "as who we are") as place:
        env = {**os.environ, "XDG_RUNTIME_DIR": str(place), "SECONDS_OF": seconds, "COMMAND": command}
        done = subprocess.run(HOSTS[adopter], env=env, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("shell_exited\n\n", "")


_CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine)  # the kernel's numbers of clone(2)
SLEEP = 'os.execvp("sleep", ["sleep", "NAP"])'
REPLACED = {
    "gives the host another child": f"if ctypes.CDLL(None).syscall({_CLONE}, 0x8000 | 17, 0, 0, 0, 0) == 0: {SLEEP}",
    "adopts no orphans any more": f"""
ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: {SLEEP}
    os._exit(0)
os.wait()
""",
}


@pytest.mark.skipif(_CLONE is None, reason="makes a system call by its number")
@pytest.mark.parametrize("program", REPLACED.values(), ids=REPLACED)
def test_nothing_is_left_of_a_program_in_the_place_of_bash_that(program: str, sh: Session) -> None:
    seconds = unique_seconds()
    program = "import ctypes, os\n" + program.replace("NAP", seconds)
    assert sh.run(f"exec {PYTHON} -ISc '{program}'").outcome == "shell_exited"
    assert not mentioning(seconds)
