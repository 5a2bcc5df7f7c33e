"""What a snapshot and a restore cost, as ratios: `python -m benchmarks.state [ROUNDS] [--bash PATH]`.

Processor time of this thread and of bash, in turns, as medians; ratios with their quartiles. Each row ends with the bar
that it has to pass.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from shellsession import Session, Snapshot

_BODY: Final = """
    local provider="$1" version='' IFS=$' \\t\\n'
    while [ $# -gt 0 ]; do
        case "$1" in
            --lts) version="${2-}"; shift ;;
            *.*) version="v${1#v}" ;;
            *) echo "unknown: $1" >&2; return 1 ;;
        esac
        shift
    done
    if [ -z "${version}" ] && [ -f "$HOME/.nvmrc" ]; then
        version=$(sed -e 's/#.*$//' "$HOME/.nvmrc" | head -n 1 | tr -d '[:space:]')
    fi
"""
_VENV: Final = "PS1='(venv) '; export VIRTUAL_ENV=/venv PATH=/venv/bin:$PATH; hash -r"
# Each state with the text that makes it.
_STATES: Final[dict[str, str]] = {
    "ordinary": "X=1; export Y=2; cd /usr; f() { echo f; }; alias ll='ls -l'; set -o pipefail",
    "nvm and venv": "\n".join(f"nvm_{n}() {{{_BODY * 3}}}" for n in range(119)) + f"\n{_VENV}",
    "2 000 functions and variables": (
        "for ((n = 0; n < 2000; n++)); do eval \"f$n() { local a=$n; echo \\$a \\$1; }; v$n='value $n'\"; done"
    ),
}
# Commands in a row, to measure what the snapshots between them cost.
_TIMES: Final = 200
_LISTING: Final = "{ declare -p; declare -F; declare -f; alias -p; trap -p; complete -p; } >%s"
# Each row: what is measured, the unit, and the bar for each state.
_BARS: Final = (
    ("snapshot", "open", {"ordinary": 0.5, "nvm and venv": 2.5}),
    ("snapshot", "bash's own listing", {"2 000 functions and variables": 1.4}),
    ("restore", "open", {"ordinary": 0.5, "nvm and venv": 5.0}),
    ("true, with changes=True", "true", {"ordinary": 1.6}),
    ("/bin/true, with changes=True", "/bin/true", {"ordinary": 1.4}),
    ("fork", "open", {"ordinary": 2.6, "nvm and venv": 12}),
    ("true, with recover=True", "true, again and again", {"ordinary": 1.1}),
    ("/bin/true, with recover=True", "/bin/true, again and again", {"ordinary": 1.05}),
)


def _bash_seconds(pid: int | None) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9 if pid else 0.0


def _cost(session: Session, act: Callable[[], object]) -> float:
    """Seconds of processor time of this thread and of the session's bash; of a bash that ``act`` starts, all."""
    host, bash = time.thread_time(), _bash_seconds(session.pid)
    act()
    return time.thread_time() - host + _bash_seconds(session.pid) - bash


def _again(session: Session, command: str) -> None:
    for _ in range(_TIMES):
        session.run(command)


def _round(text: str, snapshot: Snapshot | None, directory: str, bash: str) -> Iterator[tuple[str, float]]:
    with Session(cwd="/", bash=bash) as plain:
        yield "open", _cost(plain, plain.open)
    with Session(cwd="/", bash=bash) as session:
        session.run(text)
        yield "snapshot", _cost(session, session.snapshot)
        listing = _LISTING % f"{directory}/listing"
        yield "bash's own listing", _cost(session, lambda: session.run(listing))
        for command in ("true", "/bin/true"):
            session.run(command)
            yield command, _cost(session, partial(session.run, command))
            session.run("true", changes=True)
            yield f"{command}, with changes=True", _cost(session, partial(session.run, command, changes=True))
        begun = time.thread_time()
        with session.fork() as child:
            yield "fork", time.thread_time() - begun + _bash_seconds(child.pid)
    with Session(cwd="/", bash=bash) as usual, Session(cwd="/", bash=bash, recover=True) as recovering:
        for session, name in ((usual, ", again and again"), (recovering, ", with recover=True")):
            session.run(text)
            for command in ("true", "/bin/true"):
                session.run(command)
                yield command + name, _cost(session, partial(_again, session, command))
    with Session(cwd="/", bash=bash, snapshot=snapshot) as session:
        yield "open with a snapshot", _cost(session, session.open)
        assert session.restored.complete, session.restored


def measure(rounds: int, bash: str) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each round, for each state and each thing that is measured."""
    found: dict[str, dict[str, list[float]]] = {state: {} for state in _STATES}
    with tempfile.TemporaryDirectory() as directory:
        snapshots = dict[str, Snapshot]()
        for state, text in _STATES.items():
            with Session(cwd="/", bash=bash) as session:
                session.run(text)
                snapshots[state] = session.snapshot()
        for _ in range(rounds):
            for state, text in _STATES.items():
                for name, seconds in _round(text, snapshots[state], directory, bash):
                    found[state].setdefault(name, []).append(seconds)
    for one in found.values():
        one["restore"] = [both - only for both, only in zip(one["open with a snapshot"], one["open"], strict=True)]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=50)
    parser.add_argument("--bash", default="bash")
    args = parser.parse_args()
    with Session(bash=args.bash) as session:
        print(f"bash {session.run('echo $BASH_VERSION').stdout.strip()}, {args.rounds} rounds\n")
    found = measure(args.rounds, args.bash)
    print("| what | state | ms | ratio to | ratio | quartiles | bar |\n|---|---|---|---|---|---|---|")
    for state, one in found.items():
        for what, unit, bars in _BARS:
            bar = f"{bars[state]:g}" if state in bars else ""
            low, middle, high = quantiles([mine / its for mine, its in zip(one[what], one[unit], strict=True)])
            ratio = f"{middle:.2f} | {low:.2f}-{high:.2f}"
            print(f"| {what} | {state} | {median(one[what]) * 1e3:.2f} | {unit} | {ratio} | {bar} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
