"""Measures many sessions in one process, and many commands in one session."""

import gc
import os
import resource
import signal
import statistics
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from ptyprocess import PtyProcess

from benchmarks.machine import MEBIBYTE, descendants, open_files, proportional, resident
from benchmarks.measure import Row, duration, interleaved, once, ratios, spread, timed
from shellsession import Session


def first_answer() -> None:
    """Start a bash with Popen, and wait for its first answer."""
    pipe = subprocess.PIPE
    with subprocess.Popen(["bash"], stdin=pipe, stdout=pipe, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"echo\n")
        process.stdout.read(1)
        process.kill()


def first_answer_on_a_terminal() -> None:
    """The same with an interactive bash on a terminal. ptyprocess starts it by a fork of this process."""
    process = PtyProcess.spawn(["bash", "--noprofile", "--norc", "--noediting", "-i"], echo=False)
    process.write(b"echo h''i\n")
    heard = b""
    while b"hi" not in heard:
        heard += process.read(1024)
    os.kill(process.pid, signal.SIGKILL)
    os.waitpid(process.pid, 0)
    process.fileobj.close()
    process.closed = process.terminated = True  # its own close() sleeps


def measure(quick: bool) -> list[Row]:
    first = _first_of_a_process(3 if quick else 15)
    return [*_many_sessions(50 if quick else 1_000), first, *_many_commands(3_000 if quick else 100_000)]


@dataclass
class Opened:
    """Open sessions side by side, with a Popen bash in turn with each. Keeps the seconds that each took."""

    sessions: list[Session] = field(default_factory=list)
    opened: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    on_a_terminal: list[float] = field(default_factory=list)

    def add(self, stack: ExitStack) -> None:
        session = Session()
        stack.callback(session.close)
        self.opened.append(once(session.open))
        self.answered.append(self.opened[-1] + once(partial(session.run, "true")))
        self.theirs.append(once(first_answer))
        self.sessions.append(session)

    def answers(self) -> int:
        return sum(session.run(f"echo {i}").stdout == f"{i}\n" for i, session in enumerate(self.sessions))


def _many_sessions(count: int) -> list[Row]:
    # Each session takes a few descriptors, so ask for as many as the administrator allows.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    many = Opened()
    with ExitStack() as stack:
        with Session() as warm:  # what a process pays once is not the cost of a session
            warm.run("true")
        before, host, files = descendants(os.getpid()), proportional(os.getpid()), open_files()
        for _ in range(count):
            many.add(stack)
        answers = many.answers()
        ours = sum(map(proportional, descendants(os.getpid()) - before)) + proportional(os.getpid()) - host
        each, fds = ours / count / MEBIBYTE, f"{(open_files() - files) / count:.1f} fds each"
        # Not in turn with the others: after its fork each page that this process writes is copied, which we would pay.
        many.on_a_terminal = [once(first_answer_on_a_terminal) for _ in range(count)]
        closing = once(stack.close)
    rows = [
        Row(f"{count} sessions at once", f"{answers} answer", fds, "", "all", answers == count),
        Row("memory of each, the host's part included", f"{each:.2f} MiB Pss", "", "", "< 0.6 MiB", each < 0.6),
    ]
    for what, mine in (("open", many.opened), ("open and first answer", many.answered)):
        ratio, against = ratios(mine, many.theirs), f"Popen's first answer {duration(spread(many.theirs).mid)}"
        rows.append(Row(what, duration(spread(mine).mid), against, f"{ratio} x", "<= 1.5 x", ratio.mid <= 1.5))
    ratio, against = ratios(many.opened, many.on_a_terminal), f"a bare one {duration(spread(many.on_a_terminal).mid)}"
    rows.append(
        Row(
            "open, beside a bare PtyProcess of such a bash",
            duration(spread(many.opened).mid),
            against,
            f"{ratio} x",
            "",
        )
    )
    return [*rows, Row(f"close of {count} sessions", duration(closing), "", "", "")]


# A process pays for its directory and its watcher with its first session.
_FIRST = """
import time
from benchmarks.scale import first_answer, once
from shellsession import Session
session = Session()
print(once(lambda: session.run("true")), once(first_answer))
"""


def _first_of_a_process(count: int) -> Row:
    took = [
        [float(seconds) for seconds in subprocess.check_output([sys.executable, "-c", _FIRST], text=True).split()]
        for _ in range(count)
    ]
    ours, theirs = ([one[which] for one in took] for which in (0, 1))
    ratio, against = ratios(ours, theirs), f"Popen's first answer {duration(spread(theirs).mid)}"
    return Row("open and first answer, the first of a process", duration(spread(ours).mid), against, f"{ratio} x", "")


def _many_commands(count: int) -> list[Row]:
    block = min(1_000, count // 3)
    with Session() as old, Session() as fresh:
        bash = int(old.run("echo $$").stdout)
        aged = timed(old.run)
        first = statistics.median(aged("true", block))
        gc.collect()
        files, host, shell = open_files(), resident(), resident(bash)
        aged("true", count - 2 * block)
        gc.collect()
        grown = open_files() - files, (resident() - host) / MEBIBYTE, (resident(bash) - shell) / MEBIBYTE
        # On a shared machine the last block runs minutes after the first. So a fresh session runs beside it.
        bursts = {"old": aged, "fresh": timed(fresh.run)}
        medians = interleaved(bursts, "true", 10, dict.fromkeys(bursts, block // 10))
    ratio, last = ratios(medians["old"], medians["fresh"]), spread(medians["old"]).mid
    what = f"{count} commands in one session"
    against = f"a fresh one {duration(spread(medians['fresh']).mid)}; its own first {block}: {duration(first)}"
    memory = f"host {grown[1]:+.2f} MiB, bash {grown[2]:+.2f} MiB, fds {grown[0]:+d}"
    flat = grown[0] <= 0 and max(grown[1:]) < 2
    return [
        Row(f"{what}, p50 of the last {block}", duration(last), against, f"{ratio} x", "<= 1.2 x", ratio.mid <= 1.2),
        Row(f"{what}, growth", memory, "", "", "flat", flat),
    ]
