"""Sessions on a Ray cluster, against the local daemon and sessions in process: ``python -m benchmarks.ray_cluster``.

Needs the extra ``ray``, and runs its own cluster: a head and three nodes on this machine.
"""

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from benchmarks import ray_kills
from benchmarks.machine import proportional
from benchmarks.measure import Burst, Row, duration, interleaved, number, ratios, spread, timed
from benchmarks.ray_nodes import FAST, Nodes, abouts, bare_actor, kill, nodes
from benchmarks.report import HEADER, VERDICT, table
from benchmarks.served import served
from shellsession import AsyncAgents, OutcomeUnknown, connect
from shellsession.cluster import AsyncRayAgents, RayAgents

LEASE = 6.0


# -- one command


def true(there: Nodes, quick: bool) -> list[Row]:
    bursts, size = (5, 20) if quick else (25, 60)
    bare = bare_actor()
    with served() as daemon, connect("one", daemon.socket, start=False) as local, RayAgents() as agents:
        contenders = {
            "ray": timed(agents.session("a").run),
            "bare": timed(lambda _: bare()),
            "daemon": timed(local.run),
        }
        medians = interleaved(contenders, "true", bursts, dict.fromkeys(contenders, size))
    ours = duration(spread(medians["ray"]).mid)
    rows = []
    for name, what, bar in (("daemon", "the local daemon", 4), ("bare", "a bare async actor", 3)):
        ratio, against = ratios(medians["ray"], medians[name]), f"{what} {duration(spread(medians[name]).mid)}"
        rows.append(
            Row(f"`true` through Ray, beside {what}", ours, against, f"{ratio} x", f"<= {bar} x", ratio.mid <= bar)
        )
    return rows


# -- many agents


def opens(there: Nodes, quick: bool) -> list[Row]:
    return [asyncio.run(_opens(4 if quick else 12, 40))]


async def _opens(rounds: int, count: int) -> Row:
    """First answers of many agents at once."""
    took: tuple[list[float], list[float]] = ([], [])
    async with AsyncRayAgents() as far, AsyncAgents() as here:
        for turn in range(rounds + 1):
            both: tuple[AsyncRayAgents | AsyncAgents, ...] = (far, here)
            for kind, agents in enumerate(both):
                names = [f"{turn}-{i}" for i in range(count)]
                begun = time.perf_counter()
                await asyncio.gather(*(agents.run(name, "true") for name in names))
                took[kind].append(time.perf_counter() - begun)
                for name in names:
                    await agents.close(name)
    far_took, here_took = (seconds[1:] for seconds in took)  # without the start of the daemons
    ratio = ratios(here_took, far_took)
    ours, against = (f"{number(count / spread(seconds).mid)}/s" for seconds in (far_took, here_took))
    return Row(
        f"first answers of {count} agents", ours, f"in process {against}", f"{ratio} x", ">= 0.5 x", ratio.mid >= 0.5
    )


def crowd(there: Nodes, quick: bool) -> list[Row]:
    fewer, more = (20, 100) if quick else (200, 1_000)
    with RayAgents(name="few") as few, RayAgents(name="many") as many, ThreadPoolExecutor(16) as threads:
        _answers(few, threads, fewer)
        _answers(many, threads, 3)  # starts the daemons
        before = _memory("many", there)
        begun = time.monotonic()
        answers = _answers(many, threads, more)
        took = time.monotonic() - begun
        grown = (_memory("many", there) - before) / (more - 3) / 1024
        contenders = {"many": _anyone(many, more), "few": _anyone(few, fewer)}
        medians = interleaved(contenders, "true", 5 if quick else 25, dict.fromkeys(contenders, 40))
    ratio, ours, theirs = (
        ratios(medians["many"], medians["few"]),
        spread(medians["many"]).mid,
        spread(medians["few"]).mid,
    )
    return [
        Row(f"{more} agents on 3 nodes", f"{answers} answer", f"in {duration(took)}", "", "all", answers == more),
        Row(
            *(f"p50 of `true`, {more} agents", duration(ours), f"{fewer} agents {duration(theirs)}"),
            *(f"{ratio} x", "<= 1.2 x", ratio.mid <= 1.2),
        ),
        Row(
            "memory of an agent on its node", f"{grown:.0f} KiB Pss", "without its bash", "", "<= 128 KiB", grown <= 128
        ),
    ]


def _answers(agents: RayAgents, threads: ThreadPoolExecutor, count: int) -> int:
    agents.place([f"m{i}" for i in range(count)])
    return sum(threads.map(lambda i: agents.run(f"m{i}", f"echo {i}").stdout == f"{i}\n", range(count)))


def _anyone(agents: RayAgents, count: int) -> Burst:
    return timed(lambda command: agents.run(f"m{random.randrange(count)}", command))


def _memory(cluster: str, there: Nodes) -> int:
    """Bytes of the relays and daemons of these agents, and of what the daemons run beside the shells."""
    total = 0
    for about in abouts([cluster], there.names):
        daemon = psutil.Process(about["daemon"])
        helpers = [child.pid for child in daemon.children(recursive=True) if child.name() != "bash"]
        total += sum(map(proportional, (about["relay"], daemon.pid, *helpers)))
    return total


# -- what ends early


def cancel(there: Nodes, quick: bool) -> list[Row]:
    count = 20 if quick else 200
    unheard = asyncio.run(_cancel(count))
    return [Row("cancellations without effect", f"{unheard} of {count}", "", "", "0", not unheard)]


async def _cancel(count: int) -> int:
    """Cancel commands 0-10 ms after their call: none may run when that has returned, and the state is kept."""
    unheard = 0
    async with AsyncRayAgents() as agents:
        await agents.run("a", "X=kept")
        for i in range(count):
            command = f"sleep 1000.{os.getpid()}{i:04}"
            task = asyncio.create_task(agents.run("a", command))
            await asyncio.sleep(random.uniform(0, 0.01))
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            runs = any(command.split() == one.info["cmdline"] for one in psutil.process_iter(["cmdline"]))
            unheard += runs or (await agents.run("a", "echo $X", timeout=10)).stdout != "kept\n"
    return unheard


def relay(there: Nodes, quick: bool) -> list[Row]:
    """Kill the relay while a command runs: its result comes, and its shell is the same."""
    count = 5 if quick else 20
    with _Begun(1) as begun, RayAgents(name="relay") as agents:
        kept = 0
        for i in range(count):
            agents.run("a", f"X={i}")
            result = begun.submit(agents.run, "a", "sleep 0.5; echo $X")
            for about in abouts(["relay"], there.names):
                kill(psutil.Process(about["relay"]))
            kept += result.result().stdout == agents.run("a", "echo $X").stdout == f"{i}\n"
    return [Row("relay killed during a command: state kept", f"{kept} of {count}", "", "", "all", kept == count)]


def lost(there: Nodes, quick: bool) -> list[Row]:
    times = [_lost(there) for _ in range(2 if quick else 7)]
    return [_lost_row("a lost node is reported, fast health checks", times, 5)]


def lost_by_default(there: Nodes, quick: bool) -> list[Row]:
    return [_lost_row("a lost node is reported, Ray's defaults", [_lost(there)], 20)]


def _lost_row(what: str, times: Sequence[float], bar: int) -> Row:
    ours = f"{number(statistics.median(times))} s, at most {number(max(times))} s"
    return Row(what, ours, f"{len(times)} nodes", "", f"<= {bar} s", max(times) <= bar)


def _lost(there: Nodes) -> float:
    """Seconds from the end of a node to the error of the command that ran there."""

    def unknown(agent: str, command: str) -> float:
        with contextlib.suppress(OutcomeUnknown):
            raise AssertionError(agents.run(agent, command))
        return time.monotonic()

    with _Begun(1) as begun, RayAgents(lease=LEASE) as agents:
        agents.run("a", "true")
        result = begun.submit(unknown, "a", "sleep 1000")
        (name,) = [node.node for node in agents.nodes() if node.agents]
        lost = there.lose(name)
        reported: float = result.result()
        there.add()
    return reported - lost


class _Begun(ThreadPoolExecutor):
    """A thread in which commands run. ``submit`` returns when the command has begun."""

    def submit(self, run: Callable[..., Any], *arguments: Any) -> Any:  # type: ignore[override]
        *others, command = arguments
        with tempfile.TemporaryDirectory() as directory:
            mark = Path(directory, "begun")
            result = super().submit(run, *others, f"touch {mark}; {command}")
            while not mark.exists() and not result.done():
                time.sleep(0.005)
        return result


def kills(there: Nodes, quick: bool) -> list[Row]:
    return ray_kills.measure(there, 20 if quick else 200)


SECTIONS: Mapping[str, Callable[[Nodes, bool], list[Row]]] = {
    "true": true,
    "opens": opens,
    "crowd": crowd,
    "cancel": cancel,
    "relay": relay,
    "lost": lost,
    "lost-by-default": lost_by_default,
    "kills": kills,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="ray_cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="run a smoke test of some minutes")
    parser.add_argument("--only", choices=SECTIONS, help="run one section")
    options = parser.parse_args()
    rows = list[Row]()
    for name, section in SECTIONS.items():
        if options.only in (None, name):
            print(f"measuring: {name}", file=sys.stderr)
            with nodes(health={} if name == "lost-by-default" else FAST) as there:
                rows += section(there, options.quick)
    print(table(HEADER, [(row.what, row.ours, row.against, row.ratio, row.bar, VERDICT[row.holds]) for row in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
