"""Runs shellsession and its peers in turn: first answer, short commands, many lines, and state after a timeout."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.measure import Burst, Contender, duration, interleaved, number, once, ratios, spread, timed
from benchmarks.peers import FLOOR, OURS, PEERS, Kind, Peer
from benchmarks.throughput import lines

KINDS = (FLOOR, OURS, *PEERS)
# Some peers sleep 50 ms and more in every command: a burst of four is enough to show that.
BURST = 4


def measure(quick: bool) -> list[Contender]:
    rounds = 2 if quick else 7
    first = {kind.name: spread([_first_answer(kind) for _ in range(rounds)]).mid for kind in KINDS}
    with contextlib.ExitStack() as stack:
        peers = {kind.name: stack.enter_context(opened(kind)) for kind in KINDS}
        bursts: dict[str, Burst] = {name: timed(peer.run) for name, peer in peers.items()}
        count, sizes = 3 if quick else 25, dict.fromkeys(bursts, BURST)
        builtin = interleaved(bursts, "true", count, sizes)
        external = interleaved(bursts, "/bin/true", count, sizes)
    floods = _floods(1_000_000, 1 if quick else 3)
    return [
        Contender(
            kind.name,
            duration(first[kind.name]),
            *_against_floor(builtin[kind.name], builtin[FLOOR.name]),
            _against_floor(external[kind.name], external[FLOOR.name])[0],
            floods[kind.name],
            kind.exit_code,
            kind.stderr,
            "-" if kind is FLOOR else _after_timeout(kind),
        )
        for kind in KINDS
    ]


def _against_floor(ours: Sequence[float], floor: Sequence[float]) -> tuple[str, float]:
    ratio = ratios(ours, floor).mid
    return f"{duration(spread(ours).mid)} = {number(ratio)} x", ratio


@contextlib.contextmanager
def opened(kind: Kind) -> Iterator[Peer]:
    with contextlib.closing(kind.open()) as peer:
        yield peer


def _first_answer(kind: Kind) -> float:
    start = time.perf_counter()
    with opened(kind) as peer:
        peer.run("true")
        return time.perf_counter() - start


def _floods(size: int, rounds: int) -> dict[str, str]:
    """Megabytes a second. The flood is small: some peers need seconds for one megabyte, and four times that for two."""
    said = {}
    with lines(size) as (command, exact):
        for kind in KINDS:
            with opened(kind) as peer:
                peer.run("true")
                flood = partial(peer.run, command, 60.0)
                try:
                    said[kind.name] = f"{number(exact / 1e6 / spread([once(flood) for _ in range(rounds)]).mid)} MB/s"
                except Exception as error:  # each peer has its own errors; any of them is its result
                    said[kind.name] = type(error).__name__
    return said


def _after_timeout(kind: Kind) -> str:
    """Set a variable, let a command time out, then print the variable. Returns what a user would see."""
    with opened(kind) as peer:
        peer.run("STATE=kept")
        start = time.perf_counter()
        with contextlib.suppress(Exception):  # most peers raise their own exception for a timeout
            peer.run("sleep 3", timeout=0.5)
        back = time.perf_counter() - start
        try:
            answer = peer.run("echo got:$STATE", timeout=1.0)
        except Exception as error:  # as above: it is the peer's result
            return f"{type(error).__name__}, back {duration(back)}"
    state = "state kept" if answer.strip() == "got:kept" else "state lost" if "got:" in answer else "wrong output"
    return f"{state}, back {duration(back)}"
