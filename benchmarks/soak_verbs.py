"""The verbs that a soak client runs on its own agent, and what each answer must be."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from benchmarks.soak_checks import PATIENCE, Wrong, must, must_be, token
from shellsession import TTY, CommandFailed, Limits, NotRunning, RemoteSession, Result

Opener = Callable[[], RemoteSession]


class Owned:
    """An agent that only this client uses, and the possible states of its shell.

    ``counts``: the possible values of the shell's COUNT, 0 in a fresh shell. Each command adds one, so a command that
    ran twice, or not at all, shows.
    """

    def __init__(self, open_session: Opener, open_direct: Opener, chance: random.Random) -> None:
        self._open, self._open_direct, self._chance = open_session, open_direct, chance
        self.session = open_session()
        self.counts = {0}
        self.cuts = False  # True while connections are cut, so that live output may miss pieces

    # -- the state of the shell

    def _bump(self, said: str) -> str:
        """A command that adds one to COUNT, then prints ``said`` and COUNT."""
        return f"COUNT=$((COUNT + 1)); echo {said} $COUNT"

    def _counted(self, output: str, said: str) -> str:
        """Check the line that ``_bump`` printed. Returns the rest of the output."""
        line, _, rest = output.partition("\n")
        allowed = {f"{said} {count + 1}": count + 1 for count in self.counts}
        must(line in allowed, f"{line!r} is none of {sorted(allowed)}", f"then {rest!r}")
        self.counts = {allowed[line]}
        return rest

    def _lost(self) -> None:
        self.counts = {0}

    # -- verbs

    def plain(self) -> None:
        said, status = token(), self._chance.randrange(126)
        heard: list[bytes] = []
        result = self.session.run(
            f"{self._bump(said)}; echo E{said} >&2; (exit {status})",
            tty=self._chance.choice((True, False)),
            on_output=(lambda stream, data: heard.append(data) if stream == "stdout" else None),
        )
        must_be(result, "exited", status)
        must(self._counted(result.stdout, said) == "" and result.stderr == f"E{said}\n", result)
        must(self.cuts or b"".join(heard) == result.stdout_bytes, heard, result)

    def checked(self) -> None:
        said = token()
        try:
            self.session.run(f"{self._bump(said)}; (exit 3)", check=True)
        except CommandFailed as error:
            must_be(error.result, "exited", 3)
            must(self._counted(error.result.stdout, said) == "", error.result)
        else:
            raise Wrong("status 3 was not reported")

    def timeout(self) -> None:
        said = token()
        gently = self._chance.random() < 0.8
        result = self.session.run(
            f"echo {said}; sleep 100",
            timeout=self._chance.uniform(0.02, 0.3),
            on_timeout="interrupt" if gently else "kill",
        )
        must_be(result, "timed_out", None, kept=gently)
        must(result.stdout in ("", f"{said}\n"), result)
        if not gently:
            self._lost()

    def silence(self) -> None:
        said = token()
        result = self.session.run(f"echo {said}; sleep 100", idle_timeout=0.2)
        must_be(result, "idle", None)
        must(result.stdout in ("", f"{said}\n"), result)

    def handed_back(self) -> None:
        said, status = token(), self._chance.randrange(126)
        command = f"echo {said}; sleep 0.0{self._chance.randrange(10)}; {self._bump(said)}; (exit {status})"
        result = self.session.run(command, timeout=0.02, on_timeout="yield")
        output = result.stdout
        while result.outcome == "running":
            result = self.session.poll() if self._chance.random() < 0.3 else self.session.wait(0.05)
            output += result.stdout
        must_be(result, "exited", status)
        must(output.startswith(f"{said}\n"), output, result)
        must(self._counted(output[len(said) + 1 :], said) == "", output)

    def given_up(self) -> None:
        said = token()
        result = self.session.run(f"echo {said}; sleep 100", timeout=0.02, on_timeout="yield")
        must_be(result, "running", None)
        output = result.stdout
        result = self.session.interrupt()
        must_be(result, "interrupted", None)
        must(output + result.stdout in ("", f"{said}\n"), output, result)

    def struck(self) -> None:
        """Interrupt the command over another connection."""
        said = token()
        with self._beside(_strike):
            result = self.session.run(f"echo {said}; sleep 100", timeout=PATIENCE)
        must_be(result, "interrupted", None)
        must(result.stdout in ("", f"{said}\n"), result)

    def dialogue(self) -> None:
        said, name = token(), token()
        command = f"printf 'who? '; read -r name; {self._bump(said)}; echo $name"
        result = self.session.run(command, stdin=TTY)
        output = result.stdout
        while result.outcome == "running":
            result = self.session.wait()
            output += result.stdout
        must_be(result, "input", None)
        must(output == "who? ", output, result)
        result = self.session.send(f"{name}\n")
        must_be(result, "exited", 0)
        must(self._counted(result.stdout, said) == f"{name}\n", result)

    def isolated(self) -> None:
        said, status = token(), self._chance.randrange(126)
        result = self.session.run(f"COUNT=77; cd /; echo {said}; exit {status}", isolated=True)
        must_be(result, "exited", status)
        must(result.stdout == f"{said}\n", result)

    def big(self) -> None:
        said, size = token(), int(10 ** self._chance.uniform(4, 6.7))
        slow, seen = self._chance.random() < 0.2, 0

        def take(_: str, data: bytes) -> None:
            nonlocal seen
            seen += len(data)
            if slow:
                time.sleep(0.001)

        limits = Limits(max_output=self._chance.choice((1000, 100_000, 1 << 20)))
        command = f"head -c {size} /dev/zero | tr '\\0' x; echo {said}"
        result = self.session.run(command, tty=False, limits=limits, on_output=take)
        must_be(result, "exited", 0)
        total = len(result.stdout_bytes) + result.stdout_omitted
        must(total == size + 14 and result.stdout.endswith(f"x{said}\n"), f"{total} of {size + 14}", result.outcome)
        must(self.cuts or seen == total, f"on_output got {seen} of {total}")

    def given_input(self) -> None:
        data = self._chance.randbytes(int(10 ** self._chance.uniform(0, 5.5)))
        result = self.session.run("cat", stdin=data, tty=False)
        must_be(result, "exited", 0)
        must(result.stdout_bytes == data, f"{len(result.stdout_bytes)} of {len(data)} bytes, or other bytes")

    def long_text(self) -> None:
        said, lines = token(), self._chance.randrange(1, 4000)
        result = self.session.run(": a line of a long command, and quite harmless\n" * lines + self._bump(said))
        must_be(result, "exited", 0)
        must(self._counted(result.stdout, said) == "", result)

    def streamed(self) -> None:
        said = token()
        leaves = self._chance.random() < 0.3
        output, pieces = "", self.session.stream(f"{self._bump(said)}; sleep {100 if leaves else 0.01}; echo end")
        for piece in pieces:
            if isinstance(piece, Result):
                must_be(piece, "exited", 0)
                must(self._counted(piece.stdout, said) == "end\n", piece)
                must(self.cuts or output == piece.stdout, output, piece)
            elif piece[0] == "stdout":
                output += piece[1].decode()
                if leaves and "\n" in output:
                    must(self._counted(output, said) == "", output)
                    break

    def left_running(self) -> None:
        said = token()
        result = self.session.run(f"sleep 100 & {self._bump(said)}")
        must_be(result, "exited", 0)
        must(self._counted(result.stdout, said) == "" and len(result.background) == 1, result)
        job = self.session.jobs()[-1]
        must(job.running and job.pids == result.background, job, result)
        if self._chance.random() < 0.8:  # the other jobs end with the session
            must(job.kill() == result.background, job)
            until = time.monotonic() + PATIENCE
            while job.running and time.monotonic() < until:  # a signal takes some time
                time.sleep(0.002)
            must(not job.running, job, "still runs after kill()")

    # -- ends of the shell

    def left(self) -> None:
        said, status = token(), self._chance.randrange(126)
        result = self.session.run(f"{self._bump(said)}; exit {status}")
        must_be(result, "shell_exited", status, kept=False)
        must(self._counted(result.stdout, said) == "", result)
        self._lost()

    def suicide(self) -> None:
        said = token()
        result = self.session.run(f"{self._bump(said)}; kill -9 $$")
        must_be(result, "shell_exited", 137, kept=False)
        must(self._counted(result.stdout, said) == "", result)
        self._lost()

    def killed(self) -> None:
        """Kill the shell from outside while a command runs."""
        said = token()
        with self._beside(_kill):
            result = self.session.run(f"echo {said}; sleep 100", timeout=PATIENCE)
        must_be(result, "shell_exited", 137, kept=False)
        must(result.stdout in ("", f"{said}\n"), result)
        self._lost()

    def restart(self) -> None:
        self.session.restart()
        self._lost()

    def close(self) -> None:
        self.session.close()
        self.session = self._open()
        self._lost()

    def recover(self) -> None:
        """Get a fresh shell over a good connection, whatever has happened."""
        with self._open_direct() as direct:
            direct.restart()
        self._lost()

    # -- from another thread

    @contextmanager
    def _beside(self, act: Callable[[RemoteSession], None]) -> Iterator[None]:
        """While the block runs, another thread acts on the agent."""
        delay = self._chance.uniform(0.05, 0.2)

        def work() -> None:
            time.sleep(delay)
            with self._open_direct() as session:
                act(session)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            thread.join(PATIENCE)


def _strike(session: RemoteSession) -> None:
    for _ in range(1000):
        with suppress(NotRunning):  # the command has not begun yet
            session.interrupt()
            return
        time.sleep(0.01)


def _kill(session: RemoteSession) -> None:
    while not session.command.startswith("echo") or (pid := session.pid) is None:  # else it hits the shell's start
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)


# The weight of each verb. The last ones lose the shell's state.
VERBS = {
    Owned.plain: 10,
    Owned.checked: 2,
    Owned.timeout: 3,
    Owned.silence: 1,
    Owned.handed_back: 4,
    Owned.given_up: 2,
    Owned.struck: 2,
    Owned.dialogue: 3,
    Owned.isolated: 2,
    Owned.big: 3,
    Owned.given_input: 2,
    Owned.long_text: 2,
    Owned.streamed: 3,
    Owned.left_running: 2,
    Owned.left: 1,
    Owned.suicide: 1,
    Owned.killed: 1,
    Owned.restart: 1,
    Owned.close: 1,
}
LOSING = {Owned.timeout, Owned.left, Owned.suicide, Owned.killed, Owned.restart, Owned.close}
