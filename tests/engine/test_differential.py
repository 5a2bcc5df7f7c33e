"""For any text the session returns what bash prints at its prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import beside, emptied
from hypothesis import given
from reference import DIFFERENT_SCRIPTS, ENVIRONMENT, KNOWN_DIFFERENCES, Difference, Incoming, Said, comparable
from scripts import Script, corpus
from writing import calls, texts

from shellsession import Result, Session

pytestmark = pytest.mark.usefixtures("company")
ON_TERMINAL = pytest.mark.parametrize("on_terminal", [True, False], ids=["terminal", "pipe"])
CORPUS = list(corpus())
# Themes whose scripts mean the same in a subshell (but one: its syntax error is told in other words there).
OTHERWISE_IN_A_SUBSHELL = "text: extglob needs its option"
WITHOUT_CONSEQUENCES = ("arithmetic", "arrays", "control", "expansions", "io", "printf_read", "quoting", "text")


_said: dict[tuple[bytes, bool], Said] = {}


@contextmanager
def at_the_prompt(text: bytes, place: Path, on_terminal: bool) -> Iterator[Callable[[], Said]]:
    """What bash says, to be asked for: until then it runs beside ours. Run once, as if every test had one place."""
    key = (text, on_terminal)
    if key in _said:
        yield lambda: _said[key].renamed(b"PLACE", bytes(place))
        return
    theirs = beside(place)
    with Incoming(text, theirs, on_terminal) as asked:

        def answer() -> Said:
            _said[key] = asked.said().renamed(bytes(theirs), b"PLACE")
            return _said[key].renamed(b"PLACE", bytes(place))

        yield answer


def in_a_session(calls: tuple[bytes, ...], place: Path, on_terminal: bool) -> tuple[Said, bool]:
    """What the calls say one after the other in one fresh session, and whether they ended its shell."""
    with Session(cwd=emptied(place), env=ENVIRONMENT, agent_env=False, tty=on_terminal, timeout=20.0) as sh:
        results: list[Result] = []
        for call in calls:
            results.append(sh.run(call))
            assert results[-1].outcome in ("exited", "shell_exited"), results[-1]
            if results[-1].outcome == "shell_exited":
                break
    stdout = b"".join(result.stdout_bytes for result in results)
    stderr = b"".join(result.stderr_bytes for result in results)
    return Said(stdout, stderr, results[-1].exit_code), results[-1].outcome == "shell_exited"


def both(
    calls: tuple[bytes, ...], place: Path, on_terminal: bool, without: Difference | None = None
) -> tuple[Said, Said]:
    """(ours, bash's), comparable."""
    text = b"\n".join(calls)
    with at_the_prompt(text, place, on_terminal) as expected:
        came, ended = in_a_session(calls, place, on_terminal)
        return (
            comparable(came, text, reference=False, shell_ended=ended, without=without),
            comparable(expected(), text, reference=True, shell_ended=ended, without=without),
        )


@ON_TERMINAL
@pytest.mark.parametrize("script", [script for script in CORPUS if script.name not in DIFFERENT_SCRIPTS], ids=str)
def test_a_script_gives_what_bash_gives_at_its_prompt(script: Script, on_terminal: bool, place: Path) -> None:
    came, expected = both(script.calls, place, on_terminal)
    assert came == expected


@given(text=texts())
@ON_TERMINAL
def test_a_generated_script_gives_what_bash_gives_at_its_prompt(text: bytes, on_terminal: bool, place: Path) -> None:
    came, expected = both((text,), place, on_terminal)
    assert came == expected


@given(text=texts())
def test_a_generated_script_may_be_parted_into_calls_at_any_line(text: bytes, place: Path) -> None:
    came, expected = both(tuple(text.split(b"\n")), place, on_terminal=False)
    assert came == expected


@given(lines=calls())
@ON_TERMINAL
def test_calls_that_end_in_any_way_in_any_state_give_what_bash_gives(
    lines: tuple[bytes, ...], on_terminal: bool, place: Path
) -> None:
    came, expected = both((*lines, b"exit"), place, on_terminal)
    assert came == expected


@pytest.mark.parametrize("script", [script for script in CORPUS if script.name in DIFFERENT_SCRIPTS], ids=str)
def test_a_script_listed_as_different_is_different(script: Script, place: Path) -> None:
    came, expected = both(script.calls, place, on_terminal=False)
    assert came != expected, f"no longer true: {DIFFERENT_SCRIPTS[script.name]}"


def test_every_script_listed_as_different_exists() -> None:
    assert set(DIFFERENT_SCRIPTS) <= {script.name for script in CORPUS}


@pytest.mark.parametrize("difference", KNOWN_DIFFERENCES, ids=lambda difference: difference.why)
def test_every_known_difference_is_needed(difference: Difference, place: Path) -> None:
    came, expected = both((difference.example,), place, on_terminal=False, without=difference)
    assert came != expected
    came, expected = both((difference.example,), place, on_terminal=False)
    assert came == expected


def test_scripts_do_not_talk_to_each_other_in_one_long_session(
    new_session: Callable[..., Session], place: Path
) -> None:
    sh = new_session(env=ENVIRONMENT, agent_env=False, tty=False)
    other: list[str] = []
    for script in corpus(*WITHOUT_CONSEQUENCES):
        if script.name in (*DIFFERENT_SCRIPTS, OTHERWISE_IN_A_SUBSHELL):
            continue
        with at_the_prompt(script.text, place, on_terminal=False) as fresh:
            sh.run(f"cd /; cd {emptied(place)}; (exit 0)", check=True)
            result = sh.run(script.text, isolated=True)
            came = Said(result.stdout_bytes, result.stderr_bytes, result.exit_code)
            if comparable(came, script.text, reference=False) != comparable(fresh(), script.text, reference=True):
                other.append(script.name)
    assert other == []
