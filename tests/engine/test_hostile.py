"""Commands that damage their shell: the result is bash's own, and the next command is exactly right."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import beside, emptied
from hostile import LISTED, MORE, Damage
from reference import ENVIRONMENT, Incoming, Said, comparable, kinds_for
from samples import sample

from shellsession import Result, Session

pytestmark = pytest.mark.usefixtures("company")
NEXT = "zz=1; /bin/echo out; /bin/echo err >&2; (exit 42)"
CHECK = 'echo "[$zz]"'
# For what may never end by itself: long enough to get going.
AWHILE = 0.3
NewSession = Callable[..., Session]


def said(*results: Result) -> Said:
    stdout = b"".join(result.stdout_bytes for result in results)
    return Said(stdout, b"".join(result.stderr_bytes for result in results), results[-1].exit_code)


def compare(damage: Damage, ours: Said, theirs: Said, text: str, shell_ended: bool) -> None:
    """Ours must be what bash says at its prompt, known differences aside."""
    entered = text.encode()
    theirs = comparable(theirs, entered, reference=True, shell_ended=shell_ended)
    if damage.also_at_prompt:
        stdout, stderr = (re.sub(damage.also_at_prompt, b"", stream) for stream in (theirs.stdout, theirs.stderr))
        theirs = Said(stdout, stderr, theirs.status)
    assert comparable(ours, entered, reference=False, shell_ended=shell_ended) == theirs


def check_what_follows(sh: Session) -> None:
    after = sh.run(NEXT)
    assert (after.stdout, after.stderr, after.exit_code, after.outcome) == ("out\n", "err\n", 42, "exited")
    assert sh.run(CHECK).stdout == "[1]\n"


def check_outcome(damage: Damage, result: Result) -> None:
    assert result.state_kept == (result.outcome != "shell_exited"), result
    if damage.own == "open" and damage.shell == "lives":
        assert result.outcome in ("exited", "timed_out", "interrupted"), result
    elif damage.shell == "lives":
        assert result.outcome == "exited", result
    elif damage.shell != "either":
        assert result.outcome == "shell_exited", result
    assert result.outcome == "exited" or result.reason or result.exit_code is not None


@pytest.mark.parametrize(
    ("damage", "on_terminal"),
    [
        (damage, on_terminal)
        for damage in (*LISTED, *sample(MORE, 2))
        for on_terminal in kinds_for(damage.command.encode())
    ],
    ids=lambda value: {True: "terminal", False: "pipe"}.get(value, str(value)),
)
def test_a_damaged_shell_answers_exactly_or_says_that_it_ended(
    damage: Damage, on_terminal: bool, new_session: NewSession, place: Path
) -> None:
    """Each runs on a terminal or through pipes; in ``make soak`` on both."""
    traced = damage.then == "traced"
    text = "\n".join((damage.command, NEXT, CHECK)) if traced else damage.command
    their_place = beside(place)
    with ExitStack() as running:
        if comparing := damage.own == "compared" and damage.status is None:  # else it may never come back
            reference = running.enter_context(Incoming(text.encode(), their_place, on_terminal))
        sh = new_session(env=ENVIRONMENT, agent_env=False, tty=on_terminal, timeout=10.0)
        own = sh.run(damage.command, timeout=AWHILE if damage.own == "open" else 10.0)
        check_outcome(damage, own)
        if damage.status is not None:
            assert (own.stdout, own.stderr, own.exit_code) == ("", "", damage.status)
        elif comparing and (own.outcome == "exited" or damage.shell == "ends"):
            sequence = [own]
            if traced:
                assert own.outcome == "exited"
                sequence.append(sh.run(NEXT))
                if sequence[-1].outcome != "shell_exited":
                    sequence.append(sh.run(CHECK))
            theirs = reference.said().renamed(bytes(their_place), bytes(place))
            compare(damage, said(*sequence), theirs, text, sequence[-1].outcome == "shell_exited")
    if not traced:
        emptied(place)
        check_what_follows(sh)


@pytest.mark.sampled
@pytest.mark.parametrize("before", ["", "set -x; ", "set -v; ", "trap 'echo traced >&2' DEBUG; "])
@pytest.mark.parametrize("aliases", ["alias if='echo no'", "alias then=:", "alias '!'=true", "alias fi=true"])
def test_aliases_for_keywords_do_no_harm_or_end_the_shell_and_it_says_so(
    aliases: str, before: str, new_session: NewSession
) -> None:
    """Bash expands them in the line that we type as well: nothing runs any more, and no result may hide that."""
    sh = new_session(timeout=10.0)
    results = [sh.run(before + aliases), sh.run("echo ran >ran"), sh.run(NEXT)]
    lost = [result for result in results if result.outcome == "shell_exited"]
    assert len(lost) <= 1
    if lost:
        assert lost[0].reason
        check_what_follows(sh)
    else:  # our line had none of these words
        assert Path(results[1].cwd, "ran").read_text() == "ran\n"
        assert (results[2].exit_code, results[2].stdout) == (42, "out\n")
        assert sh.run("echo [$zz]").stdout == "[1]\n"


@pytest.mark.parametrize(
    "talk", ["set -x", "set -v", "trap 'echo traced >&2' DEBUG", "PROMPT_COMMAND='echo prompt >&2'"]
)
def test_a_shell_that_talks_is_not_taken_for_one_that_understands_nothing(sh: Session, talk: str) -> None:
    """An error throws bash out of our line, with the status that its word for an error of syntax has."""
    sh.run(talk)
    result = sh.run("(exit 2); shift 1 2; echo same line")
    assert (result.outcome, result.exit_code, result.stdout) == ("exited", 2, "")
    assert sh.run("echo $?").stdout == "2\n"


@pytest.mark.parametrize("keyword", ["if", "then", "elif", "else", "fi", "!", "{"])
@pytest.mark.parametrize("meaning", ["", "true;"])
def test_no_alias_for_a_keyword_makes_a_text_run_twice(
    keyword: str, meaning: str, new_session: NewSession, place: Path
) -> None:
    sh = new_session(timeout=10.0)
    sh.run(f"alias '{keyword}={meaning}'")
    sh.run("echo ran >>ran")
    assert sh.run(":").outcome in ("exited", "shell_exited")
    assert not (place / "ran").exists() or (place / "ran").read_text() == "ran\n"


@pytest.mark.parametrize("damage", ["builtin() { :; }", "enable -n builtin", "builtin() { :; }; eval() { :; }"])
def test_the_status_is_kept_where_our_first_words_are_gone(sh: Session, damage: str) -> None:
    sh.run(damage)
    sh.run("(exit 7)")
    assert sh.run("echo $?").stdout == "7\n"


@pytest.mark.sampled
@pytest.mark.parametrize("before", ["true", "set -e", "set -o posix", "set -T; trap 'echo dbg' DEBUG", "set -u"])
@pytest.mark.parametrize(
    "damage", ["builtin", "eval", "command", ".", "builtin eval", "eval command", "builtin command"]
)
def test_functions_named_declare_and_more_hide_no_command(sh: Session, place: Path, damage: str, before: str) -> None:
    sh.run(before)
    sh.run("".join(f"{name}() {{ :; }};" for name in ("declare", *damage.split())))
    assert sh.run("echo x >>count; (exit 7)", check=False).ran
    assert (place / "count").read_text() == "x\n"


@pytest.mark.parametrize(
    "all_four",
    [
        "enable -n builtin eval command .",
        "builtin() { :; }; eval() { :; }; command() { :; }; .() { :; }; declare() { :; }",
    ],
)
def test_where_no_name_is_left_to_run_a_command_it_is_reported_as_not_run(
    sh: Session, place: Path, all_four: str
) -> None:
    sh.run(all_four)
    result = sh.run("touch ran")
    assert (result.outcome, result.ran, (place / "ran").exists()) == ("shell_exited", False, False)
    assert "not run" in result.reason
    assert sh.run("echo fresh").stdout == "fresh\n"


@pytest.mark.parametrize("spy", ["trap 'echo dbg; echo worse >&2' DEBUG", "trap 'echo ret' RETURN", "true"])
@pytest.mark.parametrize("status", [0, 3])
def test_a_long_text_starts_with_the_last_status_where_functions_are_traced(sh: Session, spy: str, status: int) -> None:
    sh.run(f"set -T; {spy}; (exit {status})")
    result = sh.run(f"trap - DEBUG; : {'x' * 2000}; echo said")
    assert [line for line in result.stdout.splitlines() if line != "dbg"] == ["said"]
    sh.run(f"(exit {status})")
    assert sh.run(f"echo $?; : {'x' * 2000}").stdout == f"{status}\n"


def test_an_isolated_command_is_traced_without_a_word_of_ours(sh: Session) -> None:
    sh.run("set -x")
    result = sh.run("echo hi; exit 3", isolated=True)
    assert (result.stdout, result.stderr, result.exit_code) == ("hi\n", "++ echo hi\n++ exit 3\n", 3)


@pytest.mark.parametrize(
    "text", ["enable -n eval; eval foo", "enable -n builtin; builtin foo", "enable -n builtin; builtin cd / || false"]
)
def test_a_command_that_takes_our_first_words_away_is_not_run_again(sh: Session, place: Path, text: str) -> None:
    """Its own complaint looks as if ours had failed."""
    result = sh.run(f"echo x >>count; {text}")
    assert "command not found" in result.stderr
    assert (place / "count").read_text() == "x\n"
    assert sh.run("echo on").stdout == "on\n"
