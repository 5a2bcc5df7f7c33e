"""``expect`` and similar calls on the running command's terminal; what they read is also in the result."""

from __future__ import annotations

import re
from collections.abc import Callable

import pexpect
import pytest

from shellsession import TTY, InvalidRequest, NotRunning, Session, ShellSessionError
from shellsession.engine.verbs import collect
from shellsession.errors import GONE

pytestmark = pytest.mark.usefixtures("company")

ASKING = "read -p 'Name? ' n; read -p 'Age? ' a; echo $n is $a; (exit 6)"


def test_a_dialogue(sh: Session) -> None:
    first = sh.run(ASKING, stdin=TTY)
    assert (first.outcome, first.stderr) == ("input", "Name? ")
    sh.type("Zoë\n")
    assert sh.expect_exact("Age? ") == 0
    sh.type("7\n")
    assert sh.expect(r"(\w+) is (\d+)") == 0
    assert (sh.match.group(1), sh.match.group(2), sh.after) == ("Zoë", "7", "Zoë is 7")
    last = sh.wait()
    assert (last.outcome, last.exit_code) == ("exited", 6)
    assert last.stdout == "Zoë is 7\n"


def test_the_question_is_reported_though_nobody_held_its_stream_before(
    sh: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine bash opens the stream of its prompt after we have seen it as hung up, and left it out."""
    monkeypatch.setattr(collect, "_HUNG_PAUSE", 60.0)
    errors = "e=$(readlink /proc/self/fd/2); exec 2>/dev/null"
    assert sh.run(f"{errors}; read x; exec 2>$e; read -p 'Name? ' n", stdin=TTY).outcome == "input"
    asked = sh.send("\n")
    assert (asked.outcome, asked.stderr) == ("input", "Name? ")


def test_before_and_after_are_pexpects(sh: Session) -> None:
    sh.run("echo one two three; read x; echo four", stdin=TTY)
    assert sh.expect_exact("two") == 0
    assert (sh.before, sh.after, sh.match) == ("one ", "two", "two")
    assert sh.expect(["nothing", "th(r+)ee"]) == 1
    assert (sh.before, sh.match.group(1)) == (" ", "r")
    sh.type("\n")
    assert sh.expect([pexpect.EOF, "five"]) == 0
    assert sh.before == "\nfour\n"


def test_what_expect_reads_is_in_the_result_too(sh: Session) -> None:
    first = sh.run("echo a; read x; echo b", stdin=TTY)
    sh.type("\n")
    sh.expect("b")
    last = sh.wait()
    assert first.stdout + last.stdout == "a\nb\n"


@pytest.mark.parametrize("pattern", ["nothing", re.compile("no.hing"), ["no", "nix"]], ids=["text", "compiled", "list"])
def test_what_does_not_come_in_time_is_a_timeout(sh: Session, pattern: object) -> None:
    sh.run("echo here; read x", stdin=TTY)
    with pytest.raises(pexpect.TIMEOUT, match=r"expect: 'no.* the output ends with 'here\\n'") as caught:
        sh.expect(pattern, timeout=0.1)
    assert isinstance(caught.value, ShellSessionError)
    assert caught.value.code == "expect_timeout"
    assert sh.expect([pexpect.TIMEOUT, "never"], timeout=0.1) == 0
    assert sh.expect("here", timeout=1) == 0


def test_the_end_of_the_command_is_an_end_of_file(sh: Session) -> None:
    sh.run("read x; echo bye", stdin=TTY)
    sh.type("\n")
    with pytest.raises(pexpect.EOF, match="'never' did not come before the command ended") as caught:
        sh.expect("never")
    assert isinstance(caught.value, ShellSessionError)
    assert sh.before == "bye\n"
    assert sh.wait().stdout == "bye\n"
    with pytest.raises(NotRunning):
        sh.expect("x")


def test_a_shell_whose_end_expect_saw_is_reported_by_the_next_command_once(sh: Session) -> None:
    assert sh.run("X=kept; read x; exit 3", stdin=TTY).outcome == "input"
    sh.type("go\n")
    assert sh.expect(pexpect.EOF) == 0
    lost = sh.run("echo [$X]")
    assert (lost.outcome, lost.exit_code, lost.ran, lost.reason.startswith(GONE)) == ("shell_exited", 3, False, True)
    assert sh.run("echo [$X]").stdout == "[]\n"


def test_a_shell_whose_end_wait_delivered_is_not_reported_again(sh: Session) -> None:
    assert sh.run("read x; exit 3", stdin=TTY).outcome == "input"
    sh.type("go\n")
    assert sh.expect(pexpect.EOF) == 0
    assert not sh.wait().state_kept
    assert sh.run("echo next").stdout == "next\n"


def test_the_first_of_several_wins(sh: Session) -> None:
    sh.run("echo alpha beta; read x", stdin=TTY)
    assert sh.expect(["beta", "alpha"]) == 1
    assert sh.expect_exact(["gamma", "beta"]) == 1


def test_characters_cut_by_a_write_are_seen_whole(sh: Session) -> None:
    sh.run("printf 'a\\xc3'; read x; printf '\\xa9b'; read x", stdin=TTY)
    sh.type("\n")
    assert sh.expect("aéb", timeout=5) == 0


def test_dots_match_line_ends_as_in_pexpect(sh: Session) -> None:
    sh.run("printf 'a\\nb\\n'; read x", stdin=TTY)
    assert sh.expect("a.b") == 0


@pytest.mark.parametrize("verb", [Session.expect, Session.expect_exact])
@pytest.mark.parametrize(
    "pattern",
    [5, [5], object(), [bytearray(b"x")], [[]]],
    ids=["number", "in a list", "object", "bytearray", "a list in a list"],
)
def test_what_is_no_pattern_is_refused(sh: Session, verb: Callable[..., int], pattern: object) -> None:
    sh.run("read x", stdin=TTY)
    with pytest.raises(InvalidRequest, match="expect"):
        verb(sh, pattern)
    assert sh.send("\n").outcome == "exited"


def test_what_is_no_regular_expression_is_refused(sh: Session) -> None:
    sh.run("read x", stdin=TTY)
    with pytest.raises(InvalidRequest, match=r"expect: .*unterminated subpattern"):
        sh.expect("(")


def test_without_a_dialogue_there_is_nothing_before(sh: Session) -> None:
    assert (sh.before, sh.after, sh.match) == (None, None, None)
    sh.run("read x", stdin=TTY)
    assert (sh.before, sh.after, sh.match) == (None, None, None)


def test_a_new_command_has_a_dialogue_of_its_own(sh: Session) -> None:
    sh.run("echo old; read x", stdin=TTY)
    sh.expect("ol")
    sh.send("\n")
    sh.run("echo new; read x", stdin=TTY)
    with pytest.raises(pexpect.TIMEOUT):
        sh.expect("old", timeout=0.05)
    assert sh.expect("new") == 0


def test_a_real_program_is_driven(sh: Session) -> None:
    sh.run("bc -q 2>/dev/null || python3 -q -i", stdin=TTY, idle_timeout=5, on_timeout="yield")
    sh.type("6*7\n")
    assert sh.expect_exact("42", timeout=20) == 0
    assert sh.interrupt().state_kept


def test_result_that_nobody_has_read_is_named_by_the_next_one_once() -> None:
    with Session() as sh:
        sh.run("read x; (exit 7)", stdin=TTY)
        sh.type("a\n")
        sh.expect(pexpect.EOF)
        said = "nobody has read the result of the earlier command c1 ('read x; (exit 7)'): exit status 7"
        assert [sh.run("true").reason for _ in range(2)] == [said, ""]
