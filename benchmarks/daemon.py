"""Measures what the daemon adds to one command, to many agents at once and to much output, and its memory."""

import math
import multiprocessing
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.crowd import AGENTS, EACH, PROCESSES, SHELLS, Crowd, work
from benchmarks.machine import MEBIBYTE, descendants, forget_peak, open_files, peak_resident, proportional, resident
from benchmarks.measure import Row, duration, interleaved, number, once, ratios, spread, timed
from benchmarks.served import Served, served
from benchmarks.throughput import lines
from shellsession import RemoteSession, Session, connect

# The most that `true` of a quiet agent may take beside an endless printer: seconds at the 99th percentile.
FAIR = 0.02


def measure(quick: bool) -> list[Row]:
    # A session takes eight descriptors of the daemon, so ask for as many as the administrator allows.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with served() as daemon:
        rows = [_command(daemon, quick), _process(daemon, quick), *_fairness(daemon, quick), *_flood(daemon, quick)]
    with served() as daemon:
        rows.append(_crowd(daemon, quick))
    with served() as daemon:
        return [*rows, *_many(daemon, 50 if quick else min(1_000, (hard - 100) // 9))]


# -- one command


def _command(daemon: Served, quick: bool) -> Row:
    bursts, size = (5, 20) if quick else (25, 120)
    with Session() as session, connect("one", daemon.socket, start=False) as remote:
        contenders = {"daemon": timed(remote.run), "session": timed(session.run)}
        medians = interleaved(contenders, "true", bursts, dict.fromkeys(contenders, size))
    ratio, mine = ratios(medians["daemon"], medians["session"]), spread(medians["daemon"]).mid
    against = f"session {duration(spread(medians['session']).mid)}"
    holds = ratio.mid <= 4 or mine <= 0.3e-3
    return Row("`true` over the daemon", f"{duration(mine)}", against, f"{ratio} x", "<= 4 x or 0.3 ms", holds)


def _process(daemon: Served, quick: bool) -> Row:
    """The whole process of the command line, from fork to exit status, beside Python's own start."""
    script = str(Path(sys.executable).with_name("shellsession"))
    ours = [script, "run", "-s", "one", "--", "true"]
    env = {**os.environ, "SHELLSESSION_SOCKET": daemon.socket}
    contenders = {
        "run": timed(lambda _: subprocess.run(ours, env=env, check=True)),
        "python": timed(lambda _: subprocess.run([sys.executable, "-I", "-c", "pass"], env=env, check=True)),
    }
    medians = interleaved(contenders, "", 3 if quick else 25, dict.fromkeys(contenders, 4))
    ratio, mine, theirs = ratios(medians["run"], medians["python"]), medians["run"], medians["python"]
    what, against = "a process: `shellsession run -- true`", f"`python -I -c pass` {duration(spread(theirs).mid)}"
    return Row(what, duration(spread(mine).mid), against, f"{ratio} x", "<= 2 x", ratio.mid <= 2)


# -- many at once


def _crowd(daemon: Served, quick: bool) -> Row:
    rounds, each = (2, 3) if quick else (11, 12)
    command, rates = work(), dict[str, list[float]]({AGENTS: [], SHELLS: []})
    crowd = Crowd(daemon.socket)
    try:
        crowd.rate(AGENTS, command, 1)  # work that is done only once
        for _ in range(rounds):
            for kind, found in rates.items():
                found.append(crowd.rate(kind, command, each))
    finally:
        crowd.close()
    ratio, what = ratios(rates[AGENTS], rates[SHELLS]), f"{PROCESSES * EACH} agents of {PROCESSES} processes, 5 ms each"
    ours, theirs = (f"{number(spread(found).mid)}/s" for found in rates.values())
    return Row(what, ours, f"as many plain shells {theirs}", f"{ratio} x", ">= 0.8 x", ratio.mid >= 0.8)


# -- beside an endless printer


def _fairness(daemon: Served, quick: bool) -> list[Row]:
    return [_beside(daemon, terminal, 200 if quick else 3_000) for terminal in (False, True)]


def _beside(daemon: Served, terminal: bool, count: int) -> Row:
    """A quiet agent beside one that floods its client; a session without a daemon shows the noise of the machine."""
    context = multiprocessing.get_context("spawn")
    flows = context.Event()
    printer = context.Process(target=_print_endlessly, args=(daemon.socket, terminal, flows), daemon=True)
    took: dict[str, list[float]] = {"quiet": [], "session": []}
    with Session() as session, connect("one", daemon.socket, start=False) as quiet:
        bursts = {"quiet": timed(quiet.run), "session": timed(session.run)}
        printer.start()
        flows.wait()
        for _ in range(count // 50):
            for name, burst in bursts.items():
                took[name] += burst("true", 50)
        printer.kill()
        printer.join()
    with connect("printer", daemon.socket, start=False) as agent:
        agent.close()
    mine, theirs = (percentile(seconds, 0.99) for seconds in took.values())
    what = f"`true` beside an endless printer{' on its terminal' if terminal else ''}, p99"
    ours = f"{duration(mine)}, p50 {duration(spread(took['quiet']).mid)}"
    against = f"a session without a daemon {duration(theirs)}"
    return Row(what, ours, against, f"{number(mine / theirs)} x", f"<= {FAIR * 1e3:g} ms", mine <= FAIR)


def _print_endlessly(socket: str, terminal: bool, flows: Event) -> None:
    with connect("printer", socket, start=False) as agent:
        agent.run("yes", timeout=None, tty=terminal, on_output=lambda *_: flows.set())


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[math.ceil(part * len(values)) - 1]


# -- much output


def _flood(daemon: Served, quick: bool) -> list[Row]:
    size, rounds = (10_000_000, 3) if quick else (100_000_000, 9)
    with (
        lines(size) as (command, exact),
        Session() as session,
        connect("flood", daemon.socket, start=False) as remote,
    ):
        remote.run("true")
        forget_peak(daemon.pid)
        before = resident(daemon.pid)
        took: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            took[0].append(once(partial(_take_all, remote.run, command, exact)))
            took[1].append(once(partial(_take_all, session.run, command, exact)))
        grown = (peak_resident(daemon.pid) - before) / MEBIBYTE
    speed, theirs = (exact / 1e6 / spread(seconds).mid for seconds in took)
    what = f"{size // 1_000_000} MB through the daemon to `on_output`"
    ratio = ratios(took[1], took[0])
    ours, against = f"{number(speed)} MB/s", f"session {number(theirs)} MB/s"
    return [
        Row(what, ours, against, f"{ratio} x", ">= 200 MB/s", speed >= 200),
        Row(f"{what}, growth of the daemon", f"{grown:.1f} MiB", "", "", "< 32 MiB", grown < 32),
    ]


def _take_all(run: Callable[..., object], command: str, size: int) -> None:
    """Return the speed; fail unless all of the output came."""
    seen = 0

    def take(_: str, data: bytes) -> None:
        nonlocal seen
        seen += len(data)

    run(command, tty=False, on_output=take)
    if seen != size:
        raise AssertionError(f"{seen} of {size} bytes came")


# -- many agents


def _many(daemon: Served, count: int) -> list[Row]:
    host, files = resident(daemon.pid), open_files(daemon.pid)
    before = descendants(daemon.pid)
    opened = [once(partial(_answers, daemon, one)) for one in range(count)]
    answers = sum(_answers(daemon, one) for one in range(count))
    shells = sum(map(proportional, descendants(daemon.pid) - before)) / count / MEBIBYTE
    grown, fds = resident(daemon.pid) / MEBIBYTE, (open_files(daemon.pid) - files) / count
    first = f"{duration(spread(opened).mid)} to the first answer"
    return [
        Row(
            f"{count} agents in one daemon", f"{answers} answer", f"{fds:.1f} fds each", first, "all", answers == count
        ),
        Row("memory of each shell", f"{shells:.2f} MiB Pss", "", "", "< 0.6 MiB", shells < 0.6),
        Row(
            "the daemon's own", f"{grown:.0f} MiB RSS", f"{host / MEBIBYTE:.0f} at first", "", "< 150 MiB", grown < 150
        ),
    ]


def _answers(daemon: Served, one: int) -> bool:
    with connect(f"many-{one}", daemon.socket, start=False) as agent:
        return _echo(agent, f"{one}\n")


def _echo(agent: RemoteSession, text: str) -> bool:
    return agent.run(f"echo {text}").stdout == text
