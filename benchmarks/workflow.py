"""What a workflow costs: `python -m benchmarks.workflow [ROUNDS]`.

A hundred steps of ``true``, as ratios to a hundred plain calls of ``run`` in the same session, in turns, as medians.
Most of it is what each call costs with ``errexit=True``, which ends a text at its first failing command.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from shellsession import RemoteSession, Session, Step, Workflow, connect
from shellsession.daemon.client import admin

_STEPS: Final = 100
_CHECKED: Final = Workflow(steps=tuple(Step(run="true") for _ in range(_STEPS)))
_UNCHECKED: Final = Workflow(steps=tuple(Step(run="true", errexit=False) for _ in range(_STEPS)))


def _calls(session: Session | RemoteSession, **options: Any) -> None:
    for _ in range(_STEPS):
        session.run("true", **options)


def _calls_with_keys(session: RemoteSession) -> None:
    for _ in range(_STEPS):
        session.run("true", idempotency_key=os.urandom(8).hex())


def measure(session: Session | RemoteSession, others: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The ratio of each to plain calls, and the milliseconds of one of these as "plain"."""
    acts: dict[str, Callable[[], object]] = {"plain": lambda: _calls(session), **others}
    found: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(rounds):
        for name, act in acts.items():
            begun = time.perf_counter()
            act()
            found[name].append(time.perf_counter() - begun)
    plain = median(found["plain"])
    ratios = {name: median(times) / plain for name, times in found.items()}
    return {**ratios, "plain": plain / _STEPS * 1000}


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with Session() as session:
        acts: dict[str, Callable[[], object]] = {
            "run(errexit=True)": lambda: _calls(session, errexit=True, tty=False, merge_stderr=True),
            "workflow (bar: 3)": lambda: _CHECKED.run(session),
            "workflow, errexit: false": lambda: _UNCHECKED.run(session),
        }
        _show("in this process", measure(session, acts, rounds))
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_STATE_HOME"] = directory
        with connect("bench", f"{directory}/socket", recover=True) as remote:
            acts = {
                "run(idempotency_key=)": lambda: _calls_with_keys(remote),
                "workflow": lambda: _CHECKED.run(remote),
                "workflow, durable (bar: 25)": lambda: _CHECKED.run(remote, durable=True),
            }
            _show("in a daemon", measure(remote, acts, rounds))
        admin.shutdown(f"{directory}/socket")


def _show(where: str, found: dict[str, float]) -> None:
    print(f"{where}: a plain `true` takes {found.pop('plain'):.2f} ms")
    for name, ratio in found.items():
        print(f"  {name:<30}{ratio:6.1f} x")


if __name__ == "__main__":
    main()
