"""The kill run: random `kill -9` of what carries the sessions on Ray, while drivers run commands in them.

Every command appends a line to a file, which so records what has run. ``Books`` compares it with the answers.
"""

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.machine import carriers
from benchmarks.measure import Row
from benchmarks.ray_driver import AGENTS, LEASE, MARK
from benchmarks.ray_nodes import Nodes, abouts, kill
from shellsession.errors import CLOSED

DRIVERS = 2
ALLOWED = ("OutcomeUnknown", "DaemonUnavailable")
# Seconds after which no process of a killed daemon, node or driver may be left.
GRACE = 3.0
# An agent that has no answer for this many seconds is stuck.
STUCK = 120.0


class Books:
    """The journals of the drivers, and the lines that their commands have written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read = Counter[Path]()  # bytes of each journal
        self.answers = Counter[tuple[str, str]]()  # of each agent of each driver
        self.begun = list[str]()  # the text of each command
        self.ended = list[dict[str, Any]]()

    def read(self) -> None:
        for path in self._directory.glob("*.jsonl"):
            with path.open("rb") as journal:
                journal.seek(self._read[path])
                for line in journal:
                    if not line.endswith(b"\n"):  # the driver is writing it
                        break
                    self._read[path] += len(line)
                    self._take(path.stem, json.loads(line))

    def _take(self, driver: str, entry: dict[str, Any]) -> None:
        if "agent" in entry:
            self.answers[driver, entry["agent"]] += 1
            self.ended.append(entry)
        else:
            self.begun.append(entry["text"])

    @property
    def unusual(self) -> Counter[str]:
        """The errors, and the results of commands that ended with their session."""
        names = (entry.get("error") or entry["outcome"] for entry in self.ended)
        return Counter(name for name in names if name != "exited")

    def runs(self) -> Counter[str]:
        return Counter((self._directory / "lines").read_text(encoding="ascii").split())

    def wrong(self) -> list[dict[str, Any]]:
        """The answers that the file of lines contradicts, and the errors that no driver should see."""
        runs, kept = self.runs(), dict[str, int]()
        return [entry for entry in self.ended if not self._is_right(entry, runs[entry["text"]], kept)]

    def _is_right(self, entry: dict[str, Any], runs: int, kept: dict[str, int]) -> bool:
        """``kept``: the variable that each agent's shell should have; none after an error."""
        agent = entry["text"].rpartition(".")[0]
        before = kept.pop(agent, None)
        if (error := entry.get("error")) is not None:
            return error in ALLOWED and runs <= (error == "OutcomeUnknown")
        if entry["outcome"] == "shell_exited":  # with the lease of its daemon
            return entry["reason"] == CLOSED and runs <= 1
        text, _, count = entry["stdout"].strip().partition(" ")
        if not count.isdecimal():
            return False
        kept[agent] = int(count)
        right = (entry["outcome"], text, entry["exit_code"]) == ("exited", entry["text"], entry["expected"])
        return right and runs == 1 and (before is None or kept[agent] == before + 1)


class KillRun:
    def __init__(self, nodes: Nodes, directory: Path, seed: str) -> None:
        self._nodes, self._directory, self._chance = nodes, directory, random.Random(seed)
        self.books = Books(directory)
        self._drivers: dict[str, subprocess.Popen[bytes]] = {}
        self._made = 0
        self._checks = list[threading.Timer]()
        self.left = list[str]()  # processes that outlived what they belong to
        self.killed = Counter[str]()

    def run(self, kills: int) -> None:
        victims = {
            "relay": (self._kill_relay, 3),
            "directory": (self._kill_directory, 2),
            "daemon": (self._kill_daemon, 3),
            "driver": (self._kill_driver, 2),
            "node": (self._kill_node, 2),
        }
        try:
            self._await_answers()
            while (done := self.killed.total()) < kills:
                (name,) = self._chance.choices(list(victims), [weight for _, weight in victims.values()])
                with suppress(psutil.Error, IndexError):  # the victim has just died, or is not back yet
                    victims[name][0]()
                    self.killed[name] += 1
                    print(f"{done + 1}/{kills} {name}", file=sys.stderr)
                time.sleep(self._chance.random())
                if self._chance.random() < 0.5:  # otherwise the next kill comes before all have recovered
                    self._await_answers()
            self._await_answers()
            self._end_all()
        finally:
            for process in self._drivers.values():
                process.kill()
                process.wait()
            for check in self._checks:
                check.join()

    # -- drivers

    def _replace_drivers(self) -> None:
        for name, process in list(self._drivers.items()):
            if process.poll() is not None:
                del self._drivers[name]
                self._expect_gone(LEASE + GRACE, partial(_processes_of, name))
        while len(self._drivers) < DRIVERS:
            self._made += 1
            name = f"kills-{self._made}"
            argv = [sys.executable, "-m", "benchmarks.ray_driver", self._nodes.address, name, str(self._directory)]
            self._drivers[name] = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)  # Ray chats

    def _await_answers(self) -> None:
        """Wait until every agent has got an answer to a command that it sent from now on."""
        until = time.monotonic() + STUCK
        self.books.read()
        before = Counter(self.books.answers)
        while missing := [
            (driver, agent)
            for driver in self._drivers or [""]
            for agent in (f"a{i}" for i in range(AGENTS))
            if self.books.answers[driver, agent] < before[driver, agent] + 2
        ]:
            if time.monotonic() > until:
                raise AssertionError(f"no answer for {STUCK:g} s: {missing}")
            self._replace_drivers()
            time.sleep(0.05)
            self.books.read()

    def _end_all(self) -> None:
        for process in self._drivers.values():
            process.communicate(timeout=STUCK)
        for name in self._drivers:
            self._expect_gone(0, partial(_processes_of, name))

    # -- the victims

    def _kill_relay(self) -> None:
        kill(self._chance.choice(self._nodes.workers("Relay")))

    def _kill_directory(self) -> None:
        kill(self._chance.choice(self._nodes.workers("Directory")))

    def _kill_driver(self) -> None:
        name = self._chance.choice(list(self._drivers))
        self._drivers[name].kill()
        self._drivers[name].wait()
        self._replace_drivers()

    def _kill_daemon(self) -> None:
        daemon = self._chance.choice(self._daemons(self._nodes.names))
        shells = _running(daemon.children(recursive=True))
        kill(daemon)
        self._expect_gone(GRACE, partial(_running, shells))

    def _kill_node(self) -> None:
        name = self._chance.choice(self._nodes.names)
        daemons = self._daemons([name])
        family = [*daemons, *(child for daemon in daemons for child in daemon.children(recursive=True))]
        self._nodes.lose(name)
        self._expect_gone(LEASE + GRACE, partial(_running, family))
        self._nodes.add()

    def _daemons(self, nodes: list[str]) -> list[psutil.Process]:
        pids = [about["daemon"] for about in abouts(self._drivers, nodes)]
        return [psutil.Process(pid) for pid in pids if pid]

    def _expect_gone(self, seconds: float, left: Callable[[], list[psutil.Process]]) -> None:
        def check() -> None:
            self.left += map(str, left())

        self._checks.append(threading.Timer(seconds, check))
        self._checks[-1].start()


def _processes_of(driver: str) -> list[psutil.Process]:
    """The processes of the driver's sessions."""
    found = list[psutil.Process]()
    for pid in carriers(f"{MARK}={driver}".encode()):
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return _running(found)


def _running(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def measure(nodes: Nodes, kills: int) -> list[Row]:
    seed = f"{time.time():.0f}"
    with tempfile.TemporaryDirectory(prefix="shellsession-bench-") as name:
        run = KillRun(nodes, Path(name), seed)
        run.run(kills)
        books = run.books
        books.read()
        twice = [text for text, count in books.runs().items() if count > 1]
        wrong = books.wrong()
    for problem in (*twice, *wrong, *run.left):
        print(f"seed {seed}: {problem}", file=sys.stderr)
    killed = ", ".join(f"{count} {name}" for name, count in run.killed.items())
    errors = ", ".join(f"{count} {name}" for name, count in books.unusual.items())
    what = f"{run.killed.total()} random `kill -9`"
    return [
        Row(f"{what}: commands run twice", f"{len(twice)} of {len(books.begun)}", killed, "", "0", not twice),
        Row(f"{what}: wrong answers", f"{len(wrong)} of {len(books.ended)}", errors, "", "0", not wrong),
        Row(f"{what}: processes left", f"{len(run.left)}", f"{GRACE:g} s after the lease", "", "0", not run.left),
    ]
