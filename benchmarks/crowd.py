"""Runs the same work in several processes at once: by agents of one daemon and by plain shells, in turn."""

import contextlib
import multiprocessing
import resource
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection

from benchmarks.floor import Floor
from shellsession import RemoteSession, connect

PROCESSES, EACH = 8, 8
# Seconds of processor time that one command takes.
WORK = 0.005

AGENTS, SHELLS = "agents", "shells"


def work() -> str:
    """A command that keeps bash itself busy for that time on this machine."""
    count, loop = 200_000, "for ((i = 0; i < {}; i++)); do :; done"
    took = min(_processor_time(loop.format(count)) for _ in range(3))
    return loop.format(round(count * WORK / took))


def _processor_time(script: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["bash", "--noprofile", "--norc", "-c", script], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Crowd:
    """The processes. Each has some agents and as many plain shells, and runs one kind of them on request."""

    def __init__(self, socket: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for number in range(PROCESSES):
            ours, theirs = context.Pipe()
            process = context.Process(target=_member, args=(theirs, socket, number))
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()  # all are ready

    def rate(self, kind: str, command: str, each: int) -> float:
        """Commands a second of all together, until each has run this many."""
        start = time.perf_counter()
        for pipe in self._pipes:
            pipe.send((kind, command, each))
        for pipe in self._pipes:
            pipe.recv()
        return PROCESSES * EACH * each / (time.perf_counter() - start)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()


def _member(pipe: Connection, socket: str, number: int) -> None:
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(EACH) as threads:
        agents = [connect(f"crowd-{number}-{one}", socket, start=False) for one in range(EACH)]
        shells = [stack.enter_context(Floor()) for _ in range(EACH)]
        kinds: dict[str, list[Callable[[str], object]]] = {
            AGENTS: [partial(_checked, agent) for agent in agents],
            SHELLS: [shell.run for shell in shells],
        }
        for run in (*kinds[AGENTS], *kinds[SHELLS]):
            run("true")
        pipe.send("here")
        with contextlib.suppress(EOFError):
            while True:
                kind, command, each = pipe.recv()
                list(threads.map(partial(_repeat, command=command, times=each), kinds[kind]))
                pipe.send("done")
        for agent in agents:
            agent.close()


def _checked(agent: RemoteSession, command: str) -> None:
    result = agent.run(command)
    if not result.ok or result.stdout_bytes or result.stderr_bytes:
        raise AssertionError(f"{command!r}: {result}")


def _repeat(run: Callable[[str], object], command: str, times: int) -> None:
    for _ in range(times):
        run(command)
