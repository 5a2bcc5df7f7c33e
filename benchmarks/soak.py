"""`python -m benchmarks.soak`: random verbs from clients that are killed and disconnected. No answer may be wrong.

Each of eight client processes has its own agent, and all share four more. Some use connections that break. Each
client checks every answer. After each minute all agents are closed, and the daemon must be as it was at first.
"""

import argparse
import json
import os
import random
import secrets
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import MEBIBYTE, carriers, descendants, describe, open_files, resident
from benchmarks.report import table
from benchmarks.served import Served, served
from benchmarks.soak_checks import PATIENCE
from benchmarks.soak_client import OWNED, SHARED
from shellsession import connect

CLIENTS = 8
AGENTS = (*map(OWNED.format, range(CLIENTS)), *(f"shared-{one}" for one in range(SHARED)))
# In the environment of every client, and so of everything that runs in its sessions.
MARK = "SHELLSESSION_SOAK"
# The descriptors of the daemon that an open session may take: its own, and those of a few jobs.
FILES_EACH = 30
# The daemon keeps answers for clients that ask again: up to 64 MiB, reached by the third minute. From then on it may
# grow by this many bytes a minute. A fragmented heap needs some of that; a leak of sessions took 6 MiB.
FULL, GROWTH = 3, 4 * MEBIBYTE
HEADER = ("minute", "answers", "wrong", "clients killed", "lines cut", "hung", "fds", "processes", "files", "RSS MiB")


@dataclass
class Minute:
    """The results of one minute."""

    seen: list[dict[str, object]]
    killed: int
    hung: list[str]
    before: tuple[int, int, int]  # descriptors, processes and files of the daemon while nothing runs
    after: tuple[int, int, int]
    live: int  # its descriptors while every agent has a session
    left: set[int]
    resident: int
    faults: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[dict[str, object]]:
        return [one for one in self.seen if "wrong" in one]

    def row(self, number: int) -> tuple[str, ...]:
        cuts = sum(int(str(one.get("cuts", 0))) for one in self.seen)
        files, processes, names = (f"{one} -> {two}" for one, two in zip(self.before, self.after, strict=True))
        figures = (number, len(self.seen), len(self.wrong), self.killed, cuts, len(self.hung))
        return (*map(str, figures), files, processes, names, f"{self.resident / MEBIBYTE:.1f}")


class DaemonEnded(Exception):
    """The daemon is gone: there is nothing left to measure."""


class Soak:
    def __init__(self, daemon: Served, seed: str) -> None:
        self._daemon, self._seed, self._chance = daemon, seed, random.Random(seed)
        self._word, self._started = secrets.token_hex(8), 0
        self._env = {**os.environ, MARK: self._word}
        self._home = Path(daemon.directory)
        (self._home / "book").mkdir()
        self._close_all()  # does the work that is done only once
        time.sleep(1)  # by then the daemon has seen that those clients are gone
        self._at_first = self._state()

    def _state(self) -> tuple[int, int, int]:
        """The descriptors, processes and files, which must be the same whenever no agent has a session."""
        pid, runtime = self._daemon.pid, self._home / "runtime"
        return open_files(pid), len(descendants(pid)), sum(1 for _ in runtime.rglob("*"))

    def _close_all(self) -> None:
        for agent in AGENTS:
            with connect(agent, self._daemon.socket, start=False) as session:
                session.run("true") if not self._started else None
                session.close()

    # -- clients

    def _start(self, number: int, seconds: float) -> "subprocess.Popen[bytes]":
        self._started += 1
        seed = f"{self._seed}-{self._started}"
        words = [self._daemon.socket, str(self._home / "book"), str(number), seed, str(seconds)]
        return subprocess.Popen([sys.executable, "-m", "benchmarks.soak_client", *words], env=self._env)

    def minute(self, seconds: float) -> Minute:
        until = time.monotonic() + seconds
        clients = [self._start(number, seconds) for number in range(CLIENTS)]
        killed = 0
        while (left := until - time.monotonic()) > 0 and self._daemon.process.poll() is None:
            time.sleep(min(left, self._chance.expovariate(0.7)))
            number = self._chance.randrange(CLIENTS)
            if until - time.monotonic() > 2:
                clients[number].kill()
                clients[number].wait()
                clients[number] = self._start(number, until - time.monotonic())
                killed += 1
        if (status := self._daemon.process.poll()) is not None:
            for client in clients:
                client.kill()
            raise DaemonEnded(f"the daemon ended with status {status}, although nothing here stopped it")
        hung = [said for number, client in enumerate(clients) if (said := _end(number, client))]
        live = open_files(self._daemon.pid)
        self._close_all()
        return self._judged(Minute(self._read(), killed, hung, self._at_first, self._settled(), live, set(), 0))

    def _settled(self) -> tuple[int, int, int]:
        """The daemon's state, once it has seen that its clients are gone."""
        until = time.monotonic() + 5
        while (now := self._state()) != self._at_first and time.monotonic() < until:
            time.sleep(0.05)
        return now

    def _read(self) -> list[dict[str, object]]:
        seen: list[dict[str, object]] = []
        for path in sorted((self._home / "book").glob("seen-*")):
            seen += map(json.loads, path.read_text(encoding="utf-8").splitlines())
            path.unlink()
        for path in (self._home / "book").glob("state-*"):
            path.unlink()  # the next minute begins with fresh sessions
        return seen

    def _judged(self, minute: Minute) -> Minute:
        minute.left = carriers(f"{MARK}={self._word}".encode())
        minute.resident = resident(self._daemon.pid)
        if minute.after != minute.before:
            minute.faults.append(f"descriptors, processes, files: {minute.before} became {minute.after}")
        if minute.live > minute.before[0] + FILES_EACH * len(AGENTS):
            minute.faults.append(f"{minute.live} descriptors for {len(AGENTS)} agents")
        if minute.left:
            minute.faults.append(f"processes left: {sorted(minute.left)}")
        minute.faults += minute.hung
        return minute


def _end(number: int, client: "subprocess.Popen[bytes]") -> str:
    """Wait for a client to end. Returns what is wrong with its end, if anything."""
    try:
        status = client.wait(4 * PATIENCE)
    except subprocess.TimeoutExpired:
        client.kill()
        client.wait()
        return f"client {number} hung"
    return f"client {number} ended with status {status}" if status else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    options = parser.parse_args()
    print(f"seed {options.seed}; {describe()}", file=sys.stderr)
    minutes: list[Minute] = []
    with served(runtime=True) as daemon:
        soak = Soak(daemon, options.seed)
        left = options.minutes * 60
        while left > 0:
            minutes.append(soak.minute(min(60.0, left)))
            left -= 60
            told(minutes[-1], len(minutes))
    return report(minutes, options.seed)


def told(minute: Minute, number: int) -> None:
    print(f"minute {number}: {len(minute.seen)} answers, {len(minute.wrong)} wrong", *minute.faults, file=sys.stderr)


def report(minutes: list[Minute], seed: str) -> int:
    print(table(HEADER, [minute.row(number) for number, minute in enumerate(minutes, 1)]))
    seen = Counter(str(one["verb"]) for minute in minutes for one in minute.seen)
    print("\nanswers: " + ", ".join(f"{count} {name}" for name, count in seen.most_common()))
    faults = [fault for minute in minutes for fault in minute.faults]
    if (since := len(minutes) - FULL) >= FULL:
        grown = (minutes[-1].resident - minutes[FULL - 1].resident) / since
        if grown > GROWTH:
            faults.append(f"the daemon grows by {grown / MEBIBYTE:.1f} MiB a minute")
    wrong = [one for minute in minutes for one in minute.wrong]
    for one in wrong[:20]:
        print(f"\nWRONG {one['verb']} (client {one['client']}): {one['wrong']}\n{one['trace']}")
    for fault in faults:
        print(f"FAULT {fault}")
    print(f"\n{len(wrong)} of {seen.total()} answers wrong, {len(faults)} faults (seed {seed})")
    return 1 if wrong or faults else 0


if __name__ == "__main__":
    sys.exit(main())
