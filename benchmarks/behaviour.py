"""Nine commands to shellsession and to the alternatives, one after the other in one shell each: what comes back."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import pexpect
from swerex.exceptions import CommandTimeoutError
from swerex.runtime.abstract import BashAction, BashInterruptAction

from benchmarks.measure import Answers, duration
from benchmarks.peers import LangChain, Ours, Peer, ReplWrap, SweRex

LIMIT: Final = 2.0
# Each command, and what a right answer contains.
COMMANDS: Final = {
    "cd /usr; x=6": "no output",
    "echo $((x * 7)) $PWD": "`42 /usr`",
    "echo oops >&2; (exit 2)": "oops",
    "sleep 5; echo late": "time limit",
    "echo x=$x": "`x=6`",
    "cat": "no output",
    "printf abc": "`abc`",
    "exit 3": "status 3",
    "echo alive": "`alive`",
}
# Seconds for all nine: a peer that never answers must not stop the run.
_PATIENCE: Final = 60.0
_LATE: Final = "time limit"

Answer = Callable[[str], str]


def _shown(text: str, status: int | None, stderr: str = "") -> str:
    parts = [f"`{text.strip()}`".encode("unicode_escape").decode()] if text.strip() else []
    parts += [f"stderr `{stderr.strip()}`"] if stderr.strip() else []
    parts += [f"status {status}"] if status else []
    return ", ".join(parts) or "no output"


def _ours(peer: Ours) -> Answer:
    def answer(command: str) -> str:
        result = peer.session.run(command, timeout=LIMIT)
        return _LATE if result.outcome == "timed_out" else _shown(result.stdout, result.exit_code, result.stderr)

    return answer


def _langchain(peer: LangChain) -> Answer:
    def answer(command: str) -> str:
        result = peer.session.execute(command, timeout=LIMIT)
        return _LATE if result.timed_out else _shown(str(result.output), result.exit_code)

    return answer


def _swe_rex(peer: SweRex) -> Answer:
    """As its documents advise: an interrupt follows a time limit."""

    def answer(command: str) -> str:
        run, runtime = peer.runner.run, peer.runtime
        try:
            result = run(runtime.run_in_session(BashAction(command=command, timeout=LIMIT, check="silent")))
        except CommandTimeoutError:
            run(runtime.run_in_session(BashInterruptAction()))
            return _LATE
        return _shown(str(result.output), result.exit_code)

    return answer


def _replwrap(peer: ReplWrap) -> Answer:
    def answer(command: str) -> str:
        try:
            return _shown(peer.run(command, timeout=LIMIT), None)
        except pexpect.TIMEOUT:
            return _LATE

    return answer


def _answers(peer: Peer, answer: Answer) -> list[str]:
    """What came back for each command, in bold where it is wrong; then the time of all."""
    found, start = list[str](), time.perf_counter()

    def ask() -> None:
        for command, right in COMMANDS.items():
            try:
                shown = answer(command)
            except Exception as error:  # each peer has its own errors; any of them is its result
                shown = f"error {type(error).__name__}"
            found.append(shown if right in shown else f"**{shown}**")

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    took = duration(time.perf_counter() - start)
    if not thread.is_alive():
        peer.close()
    return [*found, *["**no answer**"] * (len(COMMANDS) - len(found)), took]


def measure(quick: bool) -> Sequence[Answers]:
    """A line for each command, with what each peer returned; the last has the time of all nine."""
    del quick  # it is short
    ours, langchain, swe_rex, replwrap = Ours(), LangChain(), SweRex(), ReplWrap()
    columns = (
        _answers(ours, _ours(ours)),
        _answers(langchain, _langchain(langchain)),
        _answers(swe_rex, _swe_rex(swe_rex)),
        _answers(replwrap, _replwrap(replwrap)),
    )
    names = (*(f"`{command}`" for command in COMMANDS), "all nine")
    return [Answers(name, list(answers)) for name, *answers in zip(names, *columns, strict=True)]
