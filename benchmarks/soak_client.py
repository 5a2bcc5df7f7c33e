"""One client of the soak: it uses its own agent and some shared ones, and may be killed at any moment.

Law: the client writes what it is about to do to disk first, so that its successor knows what may have happened.
"""

import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from benchmarks.cutter import Cutter
from benchmarks.soak_checks import PATIENCE, Wrong, must, must_be_sound, token
from benchmarks.soak_verbs import LOSING, VERBS, Owned
from shellsession import NotRunning, OutcomeUnknown, RemoteSession, Result, SessionClosed, connect

SHARED = 4
OWNED = "owned-{}"


class Book:
    """The files in which a client writes what it did, a line each, and the possible states of its agent."""

    def __init__(self, directory: Path, number: int) -> None:
        self._seen = os.open(directory / f"seen-{number}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._state = directory / f"state-{number}.json"

    def expect(self, counts: set[int]) -> None:
        fresh = self._state.with_suffix(".new")
        fresh.write_text(json.dumps(sorted(counts)), encoding="utf-8")
        fresh.replace(self._state)

    def expected(self) -> set[int]:
        return set(json.loads(self._state.read_text(encoding="utf-8"))) if self._state.exists() else {0}

    def note(self, **fields: object) -> None:
        os.write(self._seen, json.dumps(fields).encode() + b"\n")


class Client:
    def __init__(self, socket: str, directory: Path, number: int, seed: str, seconds: float) -> None:
        self.book, self.until = Book(directory, number), time.monotonic() + seconds
        self.number, self.chance = number, random.Random(seed)
        self.cutter: Cutter | None = None
        self._socket = self._way = socket
        if self.chance.random() < 0.5:
            self._way = str(directory / f"cut-{number}")
            self.cutter = Cutter(self._way, socket, random.Random(seed + "cut"))

    def open(self, agent: str, direct: bool = False) -> RemoteSession:
        return connect(agent, self._socket if direct else self._way, start=False, timeout=PATIENCE)

    def do(self, verb: Callable[[], object], name: str) -> bool:
        """Run one verb, and write down its result. True if it was right."""
        cuts = self.cutter.cuts if self.cutter else 0
        try:
            verb()
        except OutcomeUnknown:  # a broken connection may cause this, but never that a command runs twice
            self.book.note(verb="outcome unknown")
            return False
        except Exception as error:
            told = "" if isinstance(error, Wrong) else traceback.format_exc(limit=-4)
            self.book.note(verb=name, client=self.number, wrong=f"{type(error).__name__}: {error}", trace=told)
            return False
        self.book.note(verb=name, cuts=(self.cutter.cuts if self.cutter else 0) - cuts)
        return True

    # -- its own agent

    def commands_its_own(self) -> None:
        agent = OWNED.format(self.number)
        owned = Owned(partial(self.open, agent), partial(self.open, agent, direct=True), self.chance)
        owned.cuts, owned.counts = self.cutter is not None, self.book.expected()
        self.book.expect(owned.counts | {count + 1 for count in owned.counts})
        self.do(partial(self._take_over, owned), "take over")
        verbs = list(VERBS)
        while time.monotonic() < self.until:
            verb = self.chance.choices(verbs, list(VERBS.values()))[0]
            lost = {0, 1} if verb in LOSING else set()
            self.book.expect(owned.counts | {count + 1 for count in owned.counts} | lost)
            faulthandler.dump_traceback_later(2 * PATIENCE, exit=True)
            if not self.do(partial(verb, owned), verb.__name__):
                owned.recover()  # so that one wrong answer does not make the next ones wrong
        faulthandler.cancel_dump_traceback_later()
        self.book.expect(owned.counts | {count + 1 for count in owned.counts})

    def _take_over(self, owned: Owned) -> None:
        """End the command that still runs since the client before was killed, or wait for it."""
        if owned.session.state == "running":
            with suppress(NotRunning):
                owned.session.interrupt()
        if not owned.session.run("true").ran:  # the client before had ended the shell, and did not live to see that
            owned.counts = {0}
        owned.plain()

    # -- shared agents

    def joins_others(self) -> None:
        chance = random.Random(f"{self.chance.random()}")
        sessions: dict[str, RemoteSession] = {}
        while time.monotonic() < self.until:
            name = f"shared-{chance.randrange(SHARED)}"
            verb = chance.choices((_says, _leaves, _restarts), (60, 2, 1))[0]
            self.do(partial(self._with, sessions, name, partial(verb, chance=chance)), f"shared {verb.__name__[1:]}")

    def _with(self, sessions: dict[str, RemoteSession], name: str, verb: Callable[[RemoteSession], None]) -> None:
        if name not in sessions:
            sessions[name] = self.open(name)
        try:
            verb(sessions[name])
        except SessionClosed:  # by another client
            del sessions[name]


def _says(session: RemoteSession, chance: random.Random) -> None:
    """The output must be this command's alone, and complete unless another client ended the shell."""
    said, status = token(), chance.randrange(126)
    output = f"{said}\n" * chance.randrange(1, 200)
    seconds = chance.choice((0, 0, 0.01, 100))
    command = f"printf '%s' '{output}'; sleep {seconds}; (exit {status})"
    result = session.run(command, timeout=0.2 if seconds == 100 else PATIENCE, isolated=chance.random() < 0.2)
    if result.outcome == "exited":
        must(result.stdout == output and result.exit_code == status and not result.stderr, result)
    else:
        must(seconds == 100 or not result.state_kept, result)
        _only(said, output, result)


def _leaves(session: RemoteSession, chance: random.Random) -> None:
    said, end = token(), chance.choice(("exit 3", "kill -9 $$"))
    _only(said, f"{said}\n", session.run(f"echo {said}; {end}"))


def _restarts(session: RemoteSession, chance: random.Random) -> None:
    if chance.random() < 0.5:
        session.restart()
    else:
        session.close()
        raise SessionClosed  # it is opened again


def _only(said: str, output: str, result: Result) -> None:
    must_be_sound(result)
    must(output.startswith(result.stdout.removesuffix("exit\n")) and not result.stderr.strip("exit\n"), said, result)


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    socket, directory, number, seed, seconds = sys.argv[1:]
    client = Client(socket, Path(directory), int(number), seed, float(seconds))
    beside = threading.Thread(target=client.joins_others)
    beside.start()
    client.commands_its_own()
    beside.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
