"""Kill ssh, sshd, bridge and daemon at random while agents work over ssh: ``python -m benchmarks.via_kills [N]``.

Every command appends a line to a file, so the file records what ran. The answers are compared with it. Needs an sshd,
and runs one of its own on a high port.
"""

import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cluster import PROGRAM, own_sshd
from benchmarks.machine import carriers, command_lines, parent
from shellsession import DaemonUnavailable, OutcomeUnknown, RemoteSession, connect
from shellsession.daemon.client import admin

AGENTS, GRACE, STUCK = 4, 3.0, 120.0
MARK = "SHELLSESSION_VIA_KILLS"


@dataclass
class Agent:
    """One agent, in its own thread. ``faults``: impossible answers. ``ended``: how its commands ended."""

    session: RemoteSession
    lines: Path
    ended: list[tuple[str, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    stopping: bool = False

    def work(self) -> None:
        number, count = 0, None
        while not self.stopping:
            number += 1
            text = f"{self.session.agent}.{number}"
            seconds = random.choice((0, 0, 0.05, 0.5))
            command = f"N=$((N + 1)); echo {text} >>{self.lines}; sleep {seconds}; echo {text} $N; (exit {number % 9})"
            try:
                result = self.session.run(command)
            except (OutcomeUnknown, DaemonUnavailable) as error:
                self.ended.append((text, type(error).__name__))
                count = None
                continue
            except Exception as error:
                self.faults.append(f"{text}: {error!r}")
                return
            self.ended.append((text, "exited"))
            said, _, now = result.stdout.strip().partition(" ")
            if (said, result.exit_code) != (text, number % 9) or count not in (None, int(now) - 1):
                self.faults.append(f"{text}: {result.to_json()}, after {count}")
            count = int(now)


def processes(path: str) -> Iterator[tuple[str, int]]:
    """What carries the sessions of the daemon at that path: the name of each process, and its id."""
    for pid, words in command_lines().items():
        if not any(path in word for word in words):
            continue
        if words[0] == "ssh":
            yield "ssh", pid
        elif "bridge" in words:
            yield "bridge", pid
            with suppress(FileNotFoundError, ProcessLookupError):
                yield "sshd", parent(pid)
        elif "serve" in words:
            yield "daemon", pid


def measure(kills: int, seed: str) -> bool:
    chance, killed = random.Random(seed), Counter[str]()
    mark = f"{MARK}={seed}".encode()
    with tempfile.TemporaryDirectory(prefix="shellsession-bench-") as home, own_sshd() as via:
        path, lines = os.path.join(home, "run", "socket"), Path(home, "lines")
        given: dict[str, Any] = {"via": via, "remote": PROGRAM, "cwd": "/", "timeout": 300, "extra_env": {MARK: seed}}
        agents = [Agent(connect(f"a{i}", path, **given), lines) for i in range(AGENTS)]
        threads = [threading.Thread(target=agent.work, daemon=True) for agent in agents]
        for thread in threads:
            thread.start()
        while killed.total() < kills and any(thread.is_alive() for thread in threads):
            wanted = chance.choice(("ssh", "sshd", "bridge", "daemon"))
            if victims := [pid for name, pid in processes(path) if name == wanted]:
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(victims), signal.SIGKILL)
                    killed[wanted] += 1
                    print(f"{killed.total()}/{kills} {wanted}", file=sys.stderr)
            if chance.random() < 0.5:  # otherwise the next kill comes before all have recovered
                await_answers(agents)
            time.sleep(chance.random())
        for agent in agents:
            agent.stopping = True
        for thread in threads:
            thread.join(STUCK)
        admin.shutdown(path)
        time.sleep(GRACE)
        left = [*carriers(mark), *(pid for name, pid in processes(path) if name != "ssh")]
        for agent in agents:
            agent.session.disconnect()
        runs = Counter(lines.read_text(encoding="ascii").split())
    ended = [one for agent in agents for one in agent.ended]
    faults = [fault for agent in agents for fault in agent.faults]
    allowed = {"exited": {1}, "OutcomeUnknown": {0, 1}, "DaemonUnavailable": {0}}
    faults += [f"{text}: {how}, ran {runs[text]} times" for text, how in ended if runs[text] not in allowed[how]]
    faults += [f"stuck: {thread}" for thread in threads if thread.is_alive()]
    twice = [text for text, count in runs.items() if count > 1]
    outcomes = dict(Counter(how for _, how in ended))
    print(f"{killed.total()} random `kill -9` ({dict(killed)}), {len(ended)} commands ({outcomes})")
    print(f"run twice {len(twice)}, wrong answers {len(faults)}, processes left {len(left)} (seed {seed})")
    for problem in (*twice, *faults, *map(str, left)):
        print(problem, file=sys.stderr)
    return not (twice or faults or left)


def await_answers(agents: list[Agent]) -> None:
    """Wait until each agent has two more answers."""
    before = [len(agent.ended) for agent in agents]
    until = time.monotonic() + STUCK
    while any(len(agent.ended) < was + 2 and not agent.faults for agent, was in zip(agents, before, strict=True)):
        if time.monotonic() > until:
            raise AssertionError(f"no answer for {STUCK:g} s")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(not measure(int(sys.argv[1]) if len(sys.argv) > 1 else 200, f"{time.time():.0f}"))
