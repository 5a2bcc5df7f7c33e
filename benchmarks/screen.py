"""The output of the demo: plain lines, with colours only on a terminal where the user has not turned them off."""

import os
import sys
import textwrap
from collections.abc import Sequence

from shellsession import Result

# The demo shows this many lines of a long output.
LINES_SHOWN = 12

# Output must not control the reader's terminal: control characters are shown as text.
CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (9, 10)}

BOLD, DIM, GREEN, RED, CYAN = "1", "2", "32", "31", "36"


class Screen:
    def __init__(self) -> None:
        self._colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def title(self, number: int, total: int, text: str) -> None:
        print(f"\n{self._paint(BOLD, f'{number:2}/{total}  {text}')}")

    def command(self, text: str) -> None:
        for number, line in enumerate(text.splitlines()):
            print(self._paint(CYAN, f"    {'>' if number else '$'} {line}"))

    def note(self, text: str) -> None:
        print(self._paint(DIM, f"    ({text})"))

    def result(self, result: Result, broken: Sequence[str]) -> None:
        self._output(result.stdout)
        self._output(result.stderr, "! ")
        status = "no status" if result.exit_code is None else f"status {result.exit_code}"
        facts = [status, str(result.outcome), f"{result.duration * 1e3:.1f} ms"]
        if result.killed:
            facts.append(f"killed {len(result.killed)}")
        if result.background:
            facts.append(f"in the background: {len(result.background)}")
        facts.append(result.recovered or ("state kept" if result.state_kept else "state lost"))
        print(self._paint(DIM, f"    -- {', '.join(facts)}"))
        self._broken(broken)

    def process(self, stdout: str, stderr: str, status: int, broken: Sequence[str]) -> None:
        self._output(stdout)
        self._output(stderr, "! ")
        print(self._paint(DIM, f"    -- status {status}"))
        self._broken(broken)

    def _broken(self, promises: Sequence[str]) -> None:
        for promise in promises:
            print(self._paint(RED, f"    NOT AS PROMISED: {promise}"))
        sys.stdout.flush()

    def verdict(self, steps: int, failed: int) -> None:
        if failed:
            print(self._paint(RED, f"\n{failed} of {steps} steps did not come out as promised."))
        else:
            print(self._paint(GREEN, f"\nAll {steps} steps came out as promised."))

    def _output(self, text: str, prefix: str = "") -> None:
        lines = text.translate(CONTROL).splitlines()
        for line in lines[:LINES_SHOWN]:
            print(textwrap.indent(line, f"      {prefix}", lambda _: True))
        if len(lines) > LINES_SHOWN:
            print(self._paint(DIM, f"      ... {len(lines) - LINES_SHOWN} more lines"))

    def _paint(self, colour: str, text: str) -> str:
        return f"\033[{colour}m{text}\033[0m" if self._colour else text
