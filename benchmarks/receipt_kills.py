"""Kill what runs commands with idempotency keys: ``python -m benchmarks.receipt_kills N SEED OTHERS``.

Each of N rounds runs one command with an idempotency key, and kills one process: at a named step of the daemon, or at a
random moment. Whoever is left, or a successor, asks again with the same key until it gets an answer. Each command
appends its key to a file, so the file shows how often it ran. OTHERS more agents run such commands all the time; then a
step may be one of theirs. Prints a table of the kills, and each fault.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count, cycle, product
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import descendants
from benchmarks.report import table
from shellsession import DaemonUnavailable, OutcomeUnknown, Result, SessionClosed, connect
from shellsession.cli.main import main as program
from shellsession.daemon.server.receipts import Receipts
from shellsession.daemon.server.server import Server
from shellsession.daemon.server.shared import Sessions
from shellsession.engine.io.control_socket import ControlSocket
from shellsession.engine.verbs.core import Core
from shellsession.store import Store

# In order. Each is a moment in the daemon: before or after it has done that.
STEPS: Final = ("claimed", "written", "synced", "typing", "typed", "ended", "recorded", "answered")
VICTIMS: Final = ("daemon", "client", "bash", "bridge")
RANDOM: Final = "any time"
_STUCK: Final = 60.0
_PDEATHSIG: Final = 1  # <linux/prctl.h>
# Seconds that a command takes, and the longest time until a kill at a random moment.
_TAKES: Final = (0.0, 0.0, 0.01, 0.05)
_WITHIN: Final = 0.08


class Place:
    """The files of one run."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)
        self.socket = str(self.directory / "socket")
        self.lines, self.plan, self.kills = (self.directory / name for name in ("lines", "plan", "kills"))
        self.client, self.others = self.directory / "client", self.directory / "others"

    @staticmethod
    def put(path: Path, text: str) -> None:
        """Replace the content of a file at once: others read it meanwhile."""
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_text(text, encoding="ascii")
        beside.replace(path)

    def kill(self, victim: str, bashes: list[int]) -> None:
        """Kill a process now, and log that."""
        client = int(self.client.read_text(encoding="ascii") or 0)
        pids = {
            "daemon": lambda: {os.getpid()},
            "bash": lambda: set(bashes) - {0},
            "client": lambda: {client} - {0},
            "bridge": lambda: descendants(client) if client else set[int](),
        }[victim]()
        with open(self.kills, "a", encoding="ascii") as log:
            log.write("x\n" * bool(pids))
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _child(work: Callable[[], object]) -> int:
    """A fork that does the work, and ends with us. Returns its pid."""
    if (pid := os.fork()) == 0:
        try:
            ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
            work()
        finally:
            os._exit(0)
    return pid


# -- the daemon, with a look at each step


def _serve(place: Place) -> None:
    sessions: list[Sessions] = []

    def hit(step: str) -> None:
        with suppress(FileNotFoundError):
            planned, victim = place.plan.read_text(encoding="ascii").split()
            if planned == step:
                place.plan.unlink()
                place.kill(victim, [shared.session.pid or 0 for shared in sessions[-1] if shared.agent == "a"])

    def watch(
        kind: Any, name: str, before: str = "", after: str = "", when: Callable[..., bool] = lambda *_: True
    ) -> None:
        method = getattr(kind, name)

        def watched(self: Any, *values: Any, **named: Any) -> Any:
            if before and when(*values):
                hit(before)
            done = method(self, *values, **named)
            if after and when(*values):
                hit(after)
            return done

        setattr(kind, name, watched)

    watch(Receipts, "send", "claimed", "written")
    watch(Store, "sync", after="synced")
    watch(Core, "begin", before="typing")
    watch(ControlSocket, "send", after="typed", when=lambda data: b">>" in data)
    watch(Receipts, "note", "ended", "recorded")
    serve, begin = Server._serve, Sessions.__init__

    async def served(self: Server, incoming: Any) -> None:
        await serve(self, incoming)
        if incoming.request.verb == "run":
            hit("answered")

    def begun(self: Sessions, *values: Any) -> None:
        begin(self, *values)
        sessions.append(self)

    Server._serve = served  # type: ignore[method-assign]
    Sessions.__init__ = begun  # type: ignore[method-assign, assignment]
    program(["serve", "--socket", place.socket, "--log-level", "error", "--log-file", str(place.directory / "log")])


# -- the client


def _asked(place: Place, agent: str, key: str, seconds: float, bridged: bool = False) -> dict[str, Any]:
    """The answer to a command. It is asked for again until its outcome is known, or unknown for good."""
    text = f"echo {key} >>{place.lines}; sleep {seconds}; echo out of {key}; (exit 3)"
    way: dict[str, Any] = {}
    if bridged:
        way = {"via": ["env"], "remote": str(Path(sys.executable).with_name("shellsession"))}
    answer: dict[str, Any] = {}
    until = time.monotonic() + _STUCK
    while not answer:
        try:
            with connect(agent, place.socket, False, cwd="/", **way) as session:
                result = session.run(text, idempotency_key=key, timeout=30)
            if result.ran:
                answer = {"result": result.to_dict()}
        except OutcomeUnknown as error:
            if "with the key" in str(error):  # else the daemon has ended, and its successor knows more
                answer = {"unknown": str(error)}
        except (DaemonUnavailable, SessionClosed) as error:
            if time.monotonic() > until:
                answer = {"fault": repr(error)}
            time.sleep(0.005)
        except Exception as error:
            answer = {"fault": repr(error)}
    return answer


def _keep_asking(place: Place, agent: str) -> None:
    """Run one command with a key after the other, and note the answers."""
    for number in count():
        key = f"{agent}-{number}"
        answer = json.dumps([key, _asked(place, agent, key, 0.02 * (number % 3))])
        with open(place.others, "a", encoding="utf-8") as log:
            log.write(f"{answer}\n")


class Round:
    """One key: who is killed when, and what came of it."""

    def __init__(self, place: Place, number: int, step: str, victim: str) -> None:
        self.place, self.step, self.victim, self.key = place, step, victim, f"key-{number}"
        self.seconds, self.killed = random.choice(_TAKES), False

    def play(self, daemon: list[int]) -> dict[str, Any]:
        """Kill as planned. ``daemon``: the pid of the daemon, and of each successor that is started."""
        place = self.place
        before = place.kills.stat().st_size
        if self.step != RANDOM:
            place.put(place.plan, f"{self.step} {self.victim}")
            answer = self.answer(daemon)
        else:
            answer = self.answer(daemon, time.monotonic() + random.uniform(0, _WITHIN))
        place.plan.unlink(missing_ok=True)
        self.killed = place.kills.stat().st_size > before
        return answer

    def answer(self, daemon: list[int], kill_at: float | None = None) -> dict[str, Any]:
        """The answer of the client, or of its successors. A daemon that is killed gets a successor."""
        ours, theirs = os.pipe()
        client, until, data = 0, time.monotonic() + _STUCK, b""
        poll = select.poll()
        poll.register(ours, select.POLLIN)
        try:
            while not data and time.monotonic() < until:
                if client and os.waitpid(client, os.WNOHANG)[0]:
                    client = 0
                    self.place.put(self.place.client, "")
                    if poll.poll(0):
                        break
                client = client or _child(lambda: self._ask(theirs))
                if os.waitpid(daemon[-1], os.WNOHANG)[0]:
                    daemon.append(_child(lambda: _serve(self.place)))
                if kill_at is not None and time.monotonic() >= kill_at:
                    kill_at = None
                    self._kill_now(daemon[-1])
                if poll.poll(2):
                    break
            return json.loads(os.read(ours, 1 << 20)) if poll.poll(0) else {"fault": "no answer"}
        finally:
            os.close(ours)
            os.close(theirs)
            self.place.put(self.place.client, "")
            if client:
                os.kill(client, signal.SIGKILL)
                os.waitpid(client, 0)

    def _ask(self, pipe: int) -> None:
        self.place.put(self.place.client, str(os.getpid()))
        answer = _asked(self.place, "a", self.key, self.seconds, self.victim == "bridge")
        os.write(pipe, json.dumps(answer).encode())

    def _kill_now(self, daemon: int) -> None:
        if self.victim == "daemon":
            with open(self.place.kills, "a", encoding="ascii") as log:
                log.write("x\n")
            os.kill(daemon, signal.SIGKILL)
        else:
            bashes = [pid for pid in descendants(daemon) - {daemon} if _is_bash(pid, daemon)]
            self.place.kill(self.victim, bashes)


def _is_bash(pid: int, daemon: int) -> bool:
    with suppress(OSError):
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return status.partition("(")[2].startswith("bash)") and int(status.rpartition(")")[2].split()[1]) == daemon
    return False


def fault_of(key: str, answer: dict[str, Any], lines: Counter[str]) -> str:
    """The fault of the answer, given how often the command ran; "" if there is none."""
    if lines[key] > 1:
        return f"{key} ran {lines[key]} times"
    if "fault" in answer:
        return f"{key}: {answer['fault']}"
    if "unknown" not in answer:
        result = Result.from_dict(answer["result"])
        if result.outcome == "exited" and (lines[key], result.stdout, result.exit_code) != (1, f"out of {key}\n", 3):
            return f"{key} ran {lines[key]} times, and has the result {result.to_json()}"
        if key in result.stdout.replace(f"out of {key}\n", "") or "out of" in result.stdout.replace(
            f"out of {key}", ""
        ):
            return f"{key} has the output {result.stdout!r}"
    return ""


def play(rounds: int, seed: int, company: int = 0) -> list[str]:
    """Play the rounds, print the table, and return the faults."""
    random.seed(seed)
    faults: list[str] = []
    seen: dict[tuple[str, str], Counter[str]] = {}
    kinds = cycle([*product(STEPS, VICTIMS), *((RANDOM, victim) for victim in VICTIMS)])
    with tempfile.TemporaryDirectory(prefix="shellsession-kills-") as directory:
        place = Place(directory)
        os.environ["XDG_STATE_HOME"] = os.environ["XDG_RUNTIME_DIR"] = directory
        place.kills.touch()
        place.lines.touch()
        place.others.touch()
        place.client.touch()
        daemon = [_child(lambda: _serve(place))]
        others = [_child(partial(_keep_asking, place, agent)) for agent in map("other{}".format, range(company))]
        answers: list[tuple[Round, dict[str, Any]]] = []
        try:
            for number in range(rounds):
                one = Round(place, number, *next(kinds))
                answers.append((one, one.play(daemon)))
                known = answers[-1][1]
                again = one.answer(daemon)  # whatever was said stays so
                stays = "unknown" in again
                if "result" in known:
                    result = again.get("result", {})
                    stays = (result.get("replayed"), result.get("stdout")) == (True, known["result"]["stdout"])
                if not stays:
                    faults.append(f"{one.key}: {known}, and then {again}")
        finally:
            for pid, number in (*((pid, signal.SIGKILL) for pid in others), (daemon[-1], signal.SIGTERM)):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                    os.waitpid(pid, 0)
        lines = Counter(place.lines.read_text(encoding="ascii").split())
        for one, answer in answers:
            row = seen.setdefault((one.step, one.victim), Counter())
            row["kills"] += one.killed
            row["ran twice"] += lines[one.key] > 1
            kind = "unknown" if "unknown" in answer else "first" if "result" in answer else "fault"
            if kind == "first" and answer["result"]["replayed"]:
                kind = "replayed"
            row[kind] += 1
            row["unknown, had not run"] += kind == "unknown" and not lines[one.key]
            if fault := fault_of(one.key, answer, lines):
                faults.append(f"{one.step}, {one.victim}: {fault}")
        noted = [json.loads(line) for line in place.others.read_text(encoding="utf-8").splitlines()]
        faults += filter(None, (fault_of(key, answer, lines) for key, answer in noted))
        faults += [f"{key} ran {times} times" for key, times in lines.items() if times > 1]
        if faults and (log := place.directory / "log").exists():
            faults.append(log.read_text(encoding="utf-8")[-5000:])
    titles = ("kills", "ran twice", "first", "replayed", "unknown", "unknown, had not run", "fault")
    total: Counter[str] = Counter()
    for row in seen.values():
        total += row
    rows = [(step, victim, *(str(row[title]) for title in titles)) for (step, victim), row in sorted(seen.items())]
    print(table(("step", "victim", *titles), [*rows, ("all", "", *(str(total[title]) for title in titles))]))
    print(f"{rounds} rounds, {total['kills']} kills, {len(daemon)} daemons, {len(noted)} others, seed {seed}")
    return faults


def main(rounds: int = 200, seed: int | None = None, company: int = 0) -> int:
    """Play, print the faults, and return 1 if there are any."""
    faults = play(rounds, random.randrange(1 << 32) if seed is None else seed, company)
    for fault in faults:
        print("FAULT", fault)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
