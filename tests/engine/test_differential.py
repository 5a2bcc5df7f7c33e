"""For any text the session returns what bash prints at its prompt, on the fast path of an ordinary command and on the
general one: the two have the same results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import beside, emptied
from hypothesis import given
from reference import (
    DIFFERENT_SCRIPTS,
    ENVIRONMENT,
    KNOWN_DIFFERENCES,
    Difference,
    Incoming,
    Said,
    comparable,
    kinds_for,
)
from samples import sample
from scripts import THEMES, corpus
from writing import calls, some_texts, texts

from shellsession import Result, Session
from shellsession.engine.verbs.ordinary import Ordinary

pytestmark = pytest.mark.usefixtures("company")
ON_TERMINAL = pytest.mark.parametrize("on_terminal", [True, False], ids=["terminal", "pipe"])
# Themes whose scripts mean the same in a subshell (but one: its syntax error is told in other words there).
OTHERWISE_IN_A_SUBSHELL = "text: extglob needs its option"
WITHOUT_CONSEQUENCES = ("arithmetic", "arrays", "control", "expansions", "io", "printf_read", "quoting", "text")
# These fields differ from run to run, or are process ids, of which the number is the same.
UNLIKE = ("duration", "killed", "background")
# What runs in the background, or in a substitution, prints and ends when it gets to it.
BACKGROUND = re.compile(rb"[^&>]&(?![&>\d])|coproc|wait|[<>]\(")
PROCESS = re.compile(rb"\d{3,}")


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


def in_a_session(calls: tuple[bytes, ...], place: Path, on_terminal: bool, ordinary: bool = False) -> list[Result]:
    """The results of the calls one after the other in one fresh session, up to the end of its shell.

    With ``ordinary``, each call that may take the fast path does; otherwise none does.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not ordinary:
            patch.setattr(Ordinary, "after", classmethod(lambda *_: None))
        with Session(cwd=emptied(place), env=ENVIRONMENT, agent_env=False, tty=on_terminal, timeout=20.0) as sh:
            if ordinary:
                sh.run(":")
                sh.run(":")  # a prompt is known once it has come twice
            results: list[Result] = []
            for call in calls:
                results.append(sh.run(call))
                assert results[-1].outcome in ("exited", "shell_exited"), results[-1]
                if results[-1].outcome == "shell_exited":
                    break
    return results


def said(results: list[Result]) -> Said:
    """All output of the calls, and the last status."""
    stdout = b"".join(result.stdout_bytes for result in results)
    return Said(stdout, b"".join(result.stderr_bytes for result in results), results[-1].exit_code)


def fields(result: Result, text: bytes) -> dict[str, Any]:
    """The fields of a result that are the same in each run."""
    stdout, stderr = (PROCESS.sub(b"PID", data) for data in (result.stdout_bytes, result.stderr_bytes))
    output = comparable(Said(stdout, stderr, result.exit_code), text, reference=False)
    counts = {name: len(getattr(result, name)) for name in UNLIKE[1:]}
    left_out = (*UNLIKE, "id", "stdout_bytes", "stderr_bytes")
    other = {name: value for name, value in vars(result).items() if name not in left_out}
    return {**other, **counts, "output": output}


def both(
    calls: tuple[bytes, ...], place: Path, on_terminal: bool, without: Difference | None = None
) -> tuple[Said, Said]:
    """(ours, bash's), comparable. The fast path must give what the general one gives."""
    text = b"\n".join(calls)
    with at_the_prompt(text, place, on_terminal) as expected:
        results = in_a_session(calls, place, on_terminal)
        ended = results[-1].outcome == "shell_exited"
        if not BACKGROUND.search(text):
            fast = in_a_session(calls, place, on_terminal, ordinary=True)
            assert [fields(result, text) for result in fast] == [fields(result, text) for result in results]
        return (
            comparable(said(results), text, reference=False, shell_ended=ended, without=without),
            comparable(expected(), text, reference=True, shell_ended=ended, without=without),
        )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("theme", THEMES)
def test_each_script_of_a_theme_gives_what_bash_gives_at_its_prompt(theme: str, place: Path) -> None:
    """A sample of them, each on a terminal or through pipes; in ``make soak`` all, on both."""
    wrong = []
    for script in sample(corpus(theme), 5):
        for on_terminal in kinds_for(script.text):
            try:
                came, expected = both(script.calls, place, on_terminal)
                assert came == expected or script.name in DIFFERENT_SCRIPTS
            except AssertionError as error:
                wrong.append(f"{script.name}, {'terminal' if on_terminal else 'pipe'}: {error}")
    assert not wrong, "\n\n".join(wrong)


@some_texts
@given(text=texts())
@ON_TERMINAL
def test_a_generated_script_gives_what_bash_gives_at_its_prompt(text: bytes, on_terminal: bool, place: Path) -> None:
    came, expected = both((text,), place, on_terminal)
    assert came == expected


@some_texts
@given(text=texts())
@ON_TERMINAL
def test_a_generated_script_may_be_parted_into_calls_at_any_line(text: bytes, on_terminal: bool, place: Path) -> None:
    came, expected = both(tuple(text.split(b"\n")), place, on_terminal)
    assert came == expected


@some_texts
@given(lines=calls())
@ON_TERMINAL
def test_calls_that_end_in_any_way_in_any_state_give_what_bash_gives(
    lines: tuple[bytes, ...], on_terminal: bool, place: Path
) -> None:
    came, expected = both((*lines, b"exit"), place, on_terminal)
    assert came == expected


def test_a_script_listed_as_different_exists_and_is_different(place: Path) -> None:
    scripts = {script.name: script for script in corpus()}
    for name, why in DIFFERENT_SCRIPTS.items():
        came, expected = both(scripts[name].calls, place, on_terminal=False)
        assert came != expected, f"{name} is no longer different: {why}"


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
    for script in sample(corpus(*WITHOUT_CONSEQUENCES), 4):
        if script.name in (*DIFFERENT_SCRIPTS, OTHERWISE_IN_A_SUBSHELL):
            continue
        with at_the_prompt(script.text, place, on_terminal=False) as fresh:
            sh.run(f"cd /; cd {emptied(place)}; (exit 0)", check=True)
            result = sh.run(script.text, isolated=True)
            came = Said(result.stdout_bytes, result.stderr_bytes, result.exit_code)
            if comparable(came, script.text, reference=False) != comparable(fresh(), script.text, reference=True):
                other.append(script.name)
    assert other == []
