"""Sessions over one ssh to this machine, against the local daemon: ``python -m benchmarks.cluster``.

Needs an sshd, and runs one of its own on a high port. All pairs are interleaved in one run, so read the ratios.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.served import served
from shellsession import RemoteSession, aconnect, connect

PROGRAM = str(Path(sys.executable).with_name("shellsession"))
ROUNDS, CALLS, AGENTS, EACH = 15, 60, 60, 5
OUTPUT, FLOOD = 100_000_000, 1_000_000_000


@contextlib.contextmanager
def own_sshd() -> Iterator[list[str]]:
    """The words that log in here through our own sshd."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if program is None:
        raise SystemExit("no sshd: install openssh-server")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        for path in ("key", "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / path], check=True)
        Path("/run/sshd").mkdir(exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        (home / "config").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {home}/host\nAuthorizedKeysFile {home}/key.pub\n"
            "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n",
            encoding="ascii",
        )
        server = subprocess.Popen([program, "-D", "-e", "-f", home / "config"], stderr=subprocess.DEVNULL)
        try:
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            options = ("UserKnownHostsFile=/dev/null", "StrictHostKeyChecking=no", "LogLevel=ERROR", "BatchMode=yes")
            flags = [word for option in options for word in ("-o", option)]
            yield ["ssh", "-F", "none", "-p", str(port), "-i", str(home / "key"), *flags, "127.0.0.1"]
        finally:
            server.terminate()
            server.wait()


def seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def latencies(session: RemoteSession, calls: int = CALLS) -> list[float]:
    return [seconds(lambda: session.run("true")) for _ in range(calls)]


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def true(direct: RemoteSession, far: RemoteSession) -> None:
    both = [(latencies(direct), latencies(far)) for _ in range(ROUNDS)]
    medians = [(statistics.median(a), statistics.median(b)) for a, b in both]
    ratio = statistics.median(b / a for a, b in medians)
    shown = [statistics.median(column) * 1e6 for column in zip(*medians, strict=True)]
    print(f"`true`: {ratio:.2f} x the local daemon ({shown[1]:.0f} us, {shown[0]:.0f} us)")


def moved(session: RemoteSession, size: int) -> float:
    """Megabytes a second of a command's output."""
    received = [0]

    def count(_: str, data: bytes) -> None:
        received[0] += len(data)

    took = seconds(lambda: session.run(f"head -c {size} /dev/zero", timeout=600, tty=False, on_output=count))
    assert received[0] == size, received
    return size / took / 1e6


def output(direct: RemoteSession, far: RemoteSession) -> None:
    pairs = [(moved(direct, OUTPUT), moved(far, OUTPUT)) for _ in range(5)]
    ratio = statistics.median(b / a for a, b in pairs)
    here, there = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"100 MB of output: {ratio:.2f} x the local daemon ({there:.0f} MB/s, {here:.0f} MB/s)")


def flood(far: RemoteSession, other: RemoteSession) -> None:
    before = latencies(far, 500)
    thread = threading.Thread(target=moved, args=(other, FLOOD))
    thread.start()
    during: list[float] = []
    while thread.is_alive():
        during += latencies(far, 1)
    thread.join()
    print(
        f"`true` while another session moves 1 GB: p99 {p99(during) / p99(before):.2f} x the p99 alone"
        f" ({p99(during) * 1e6:.0f} us, {p99(before) * 1e6:.0f} us), p50"
        f" {statistics.median(during) / statistics.median(before):.2f} x, {len(during)} calls"
    )


async def many(path: str, options: list[dict[str, Any]]) -> None:
    rates: list[list[float]] = [[], []]
    sessions = [
        await asyncio.gather(*(aconnect(f"m{kind}-{i}", path, **given) for i in range(AGENTS)))
        for kind, given in enumerate(options)
    ]
    for _ in range(5):
        for kind, ours in enumerate(sessions):
            begun = time.perf_counter()
            for _ in range(EACH):
                await asyncio.gather(*(session.run("true") for session in ours))
            rates[kind].append(AGENTS * EACH / (time.perf_counter() - begun))
    ratio = statistics.median(b / a for a, b in zip(*rates, strict=True))
    here, there = map(statistics.median, rates)
    print(f"{AGENTS} agents over one ssh: {ratio:.2f} x the local daemon ({there:.0f}/s, {here:.0f}/s)")
    for session in (one for ours in sessions for one in ours):
        await session.close()


def main() -> None:
    with served() as daemon, own_sshd() as via:
        far: dict[str, Any] = {"via": via, "remote": PROGRAM}
        with (
            connect("direct", daemon.socket) as direct,
            connect("far", daemon.socket, **far) as there,
            connect("flood", daemon.socket, **far) as flooding,
        ):
            latencies(direct)
            latencies(there)
            true(direct, there)
            output(direct, there)
            flood(there, flooding)
        asyncio.run(many(daemon.socket, [{}, far]))


if __name__ == "__main__":
    main()
