"""Patterns and texts of one client that take long: the daemon gives them up, and other clients hardly wait."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from typing import Final

import pytest
from daemons import Daemon
from system import PATIENCE, wait_until

from shellsession import InvalidRequest, Policy, PolicyRefused, StartupFailed, connect

_EVIL: Final = re.compile("(a+)+$")
_HELD: Final = "a" * 40 + "!"

# A daemon that searched without a limit would be held up for minutes; 0.25 s are usual on an idle machine.
HELD_UP = PATIENCE


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def _longest_wait(daemon: Daemon, meanwhile: Callable[[], object]) -> float:
    """The longest time that another client's ``true`` takes while this is done, and a little longer."""
    with connect("by", daemon.socket, False) as by:
        by.run("true")
        thread = threading.Thread(target=meanwhile)
        thread.start()
        waits: list[float] = []
        while thread.is_alive() or len(waits) < 20:
            before = time.monotonic()
            by.run("true")
            waits.append(time.monotonic() - before)
        thread.join()
    print(f"the longest wait: {max(waits):.2f} s")  # noqa: T201
    return max(waits)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(_EVIL, f": {_HELD}"), (re.compile(r"\w+:"), f": {'a' * 300_000}"), (re.compile(r"\w*\d:"), f": {'a' * 8000}")],
    ids=["nested", "long", "short"],
)
def test_deny_pattern_that_backtracks_refuses_the_command(
    daemon: Daemon, agent: str, pattern: re.Pattern[str], text: str
) -> None:
    with connect(agent, daemon.socket, False, policy=Policy(deny=[pattern])) as slow:
        slow.run("true")
        reasons: list[str] = []

        def run() -> None:
            with pytest.raises(PolicyRefused) as refused:
                slow.run(text)
            reasons.append(str(refused.value))

        assert _longest_wait(daemon, run) < HELD_UP
        assert "takes too long" in reasons[0]
        assert slow.run("echo ok").stdout == "ok\n"


@pytest.mark.parametrize("text", ["<<E\n" * 16_000, "a=(" * 20_000], ids=["here-documents", "arrays"])
def test_text_that_is_slow_to_parse_is_refused(daemon: Daemon, agent: str, text: str) -> None:
    with connect(agent, daemon.socket, False, policy=Policy(deny_commands=["sudo"])) as slow:
        slow.run("true")
        reasons: list[str] = []

        def run() -> None:
            with pytest.raises(PolicyRefused) as refused:
                slow.run(text)
            reasons.append(str(refused.value))

        assert _longest_wait(daemon, run) < HELD_UP
        assert "too long to be parsed" in reasons[0]


def test_write_pattern_that_backtracks_refuses_the_command(daemon: Daemon, agent: str) -> None:
    rules = Policy(write=["/" + "**a" * 30 + "b"])
    with connect(agent, daemon.socket, False, policy=rules) as slow:
        slow.run("true")
        refusals: list[PolicyRefused] = []

        def run() -> None:
            with pytest.raises(PolicyRefused, match="takes too long") as refused:
                slow.run(f"echo x > /{'a' * 3000}")
            refusals.append(refused.value)

        assert _longest_wait(daemon, run) < HELD_UP
        assert refusals


def test_redact_pattern_that_backtracks_withholds_the_commands_in_the_log(daemon: Daemon, agent: str) -> None:
    with connect(agent, daemon.socket, False, redact=[_EVIL, "hunter2"]) as slow:
        slow.run("echo hunter2 first")
        assert _longest_wait(daemon, lambda: [slow.run(f"echo {_HELD} hunter2") for _ in range(20)]) < HELD_UP
    entries = wait_until(lambda: found if len(found := daemon.logged(agent)) == 21 else [], "the lines of the log")
    assert "hunter2" not in json.dumps(entries)
    assert entries[0]["command"] == "echo *** first"
    assert all("withheld" in entry["command"] for entry in entries[1:])


def test_hide_values_that_backtracks_refuses_the_session(daemon: Daemon, agent: str) -> None:
    rules = Policy(hide_values=[_EVIL])
    refusals: list[InvalidRequest] = []

    def run() -> None:
        with (
            connect(agent, daemon.socket, False, policy=rules, extra_env={"X": _HELD}) as slow,
            pytest.raises(InvalidRequest, match="hide_values") as refused,
        ):
            slow.run("true")
        refusals.append(refused.value)

    assert _longest_wait(daemon, run) < HELD_UP
    assert refusals


def test_redact_pattern_that_backtracks_withholds_what_startup_printed(daemon: Daemon, agent: str) -> None:
    startup = ["head -c 1000000 /dev/zero | tr '\\0' a >&2; false"]
    errors: list[StartupFailed] = []

    def run() -> None:
        with connect(agent, daemon.socket, False, redact=[r"\w+:"], startup=startup) as slow:
            with pytest.raises(StartupFailed) as failed:
                slow.run("true")
            errors.append(failed.value)

    assert _longest_wait(daemon, run) < HELD_UP
    assert errors


def test_patterns_that_take_long_to_compile_are_refused(daemon: Daemon, agent: str) -> None:
    refusals: list[InvalidRequest] = []

    def run() -> None:
        with pytest.raises(InvalidRequest, match="compiling") as refused:
            connect(agent, daemon.socket, False, redact=["(a|b)" * 25_000]).run("true")
        refusals.append(refused.value)

    assert _longest_wait(daemon, run) < HELD_UP
    assert refusals
