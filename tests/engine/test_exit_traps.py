"""EXIT traps under ``set -e``: bash undoes a command's redirections first, and the result has their output.

An ERR trap of the user's own lets `set -e` end the shell: see ``scope.guard_errexit``.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from system import wait_until

from shellsession import TTY, Limits, Session
from shellsession.models import Stdin

pytestmark = pytest.mark.usefixtures("company")

NewSession = Callable[..., Session]
SAYS = "trap 'echo bye; echo worse >&2' EXIT"

# What is run, what else run() is given, and its outcome, stdout and stderr.
CASES = {
    "the shell's own": (f"trap : ERR; set -e; {SAYS}; echo a; false", {}, "shell_exited", "a\nbye\n", "worse\n"),
    "an unset variable": (
        f"set -eu; {SAYS}; : $UNSET",
        {},
        "shell_exited",
        "bye\n",
        "bash: UNSET: unbound variable\nworse\n",
    ),
    "a subshell's": (f"(set -e; {SAYS}; echo a; false)", {}, "exited", "a\nbye\n", "worse\n"),
    "a function's in a subshell": (f"f() {{ false; }}; (set -e; {SAYS}; f)", {}, "exited", "bye\n", "worse\n"),
    "isolated": (f"{SAYS}; echo a", {"isolated": True}, "exited", "a\nbye\n", "worse\n"),
    "isolated, with stdin": (f"{SAYS}; echo a", {"isolated": True, "stdin": "x"}, "exited", "a\nbye\n", "worse\n"),
    "isolated, with set -e": (f"set -e; {SAYS}; echo a; false", {"isolated": True}, "exited", "a\nbye\n", "worse\n"),
    "by exit": (f"({SAYS}; exit 1)", {}, "exited", "bye\n", "worse\n"),
    "captured": (
        f"x=$(set -e; {SAYS}; echo a; false); (set -e; {SAYS}; false) | cat; echo [$x]; false",
        {},
        "exited",
        "bye\n[a bye]\n",
        "worse\nworse\n",
    ),
    "captured, isolated": (
        f"x=$(set -e; {SAYS}; echo a; false); echo [$x]; false",
        {"isolated": True},
        "exited",
        "[a bye]\n",
        "worse\n",
    ),
    "to a stream of its own": (f"(set -e; {SAYS}; false) 2>/dev/null", {}, "exited", "bye\n", ""),
    "with set -T": (f"set -T; (set -e; {SAYS}; false)", {}, "exited", "bye\n", "worse\n"),
    "merged": (f"(set -e; {SAYS}; false)", {"merge_stderr": True}, "exited", "bye\nworse\n", ""),
    "isolated, merged": (f"{SAYS}; echo a", {"isolated": True, "merge_stderr": True}, "exited", "a\nbye\nworse\n", ""),
    "nothing to say": ("(set -e; trap : EXIT; false)", {}, "exited", "", ""),
    "at a chatty prompt": (f"PROMPT_COMMAND='echo PC'; ({SAYS})", {}, "exited", "bye\n", "worse\n"),
}


AT_THEIR_PROMPTS = {
    "a prompt": ("PS1='(venv) '", "bye\n", "worse\n"),
    "a prompt that runs something": ("PS1='$(echo hi)> '", "bye\n", "worse\n"),
    "PROMPT_COMMAND": ("PROMPT_COMMAND='echo PC; echo PE >&2'", "bye\n", "worse\n"),
    "set -x": ("PS1='> '; set -x", "", f"++ trap : ERR\n++ set -e\n++ {SAYS}\n++ false\n+++ :\n"),
    "a DEBUG trap": ("PS1='> '; trap 'echo d' DEBUG", "d\nd\nd\nd\nd\n", ""),
}


@pytest.mark.parametrize(("before", "stdout", "stderr"), AT_THEIR_PROMPTS.values(), ids=AT_THEIR_PROMPTS)
def test_what_speaks_at_the_prompt_only_takes_nothing_away(
    new_session: NewSession, before: str, stdout: str, stderr: str
) -> None:
    """Only `set -x` and DEBUG traps, which tell of our words too, cost an EXIT trap under `set -e` its streams."""
    sh = new_session(tty=False)
    sh.run(before)
    result = sh.run(f"trap : ERR; set -e; {SAYS}; false")
    assert (result.outcome, result.exit_code) == ("shell_exited", 1)
    assert (result.stdout, result.stderr) == (stdout, stderr)


@pytest.mark.sampled
@pytest.mark.parametrize(("text", "options", "outcome", "stdout", "stderr"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])
def test_what_they_say_is_in_the_result(
    text: str, options: dict[str, bool], outcome: str, stdout: str, stderr: str, tty: bool, sh: Session
) -> None:
    result = sh.run(text, tty=tty, **options)  # type: ignore[arg-type]  # a table of options
    assert (result.outcome, result.stdout, result.stderr) == (outcome, stdout, stderr)
    assert result.exit_code == (0 if text.endswith(("echo a", f"({SAYS})")) else 1)
    after = sh.run("echo on; echo and >&2", tty=tty)
    assert (after.stdout, after.stderr) == ("on\n", "and\n")


@pytest.mark.parametrize("options", [{}, {"isolated": True}], ids=["here", "isolated"])
def test_they_read_what_the_command_reads(options: dict[str, bool], new_session: NewSession) -> None:
    for text, outcome in (
        ("(set -e; trap cat EXIT; false)", "exited"),
        ("trap : ERR; set -e; trap cat EXIT; false", "shell_exited"),
    ):
        result = new_session(timeout=15).run(text, **options)  # type: ignore[arg-type]  # a table of options
        assert result.outcome == ("exited" if "isolated" in options else outcome)
        assert result.stdout == ""


def test_where_nobody_could_know_of_them_they_never_hang_on_what_we_type(sh: Session) -> None:
    """Their input is bash's own then. It is empty, and who reads it is ended with a word why."""
    sh.run("t=tr; f() { ${t}ap cat EXIT; false; }")
    for text, stdin in (("(set -e; f)", None), ("(set -e; trap cat EXIT; false)", b"fed")):
        result = sh.run(text, timeout=15, stdin=stdin)
        assert result.outcome == "interrupted"
        assert "input" in result.reason


@pytest.mark.parametrize("stdin", [b"fed", TTY], ids=["fed", "terminal"])
def test_a_text_with_a_trap_gives_its_background_commands_no_input(stdin: Stdin, sh: Session) -> None:
    result = sh.run("trap '' USR1; cat & wait; echo on", stdin=stdin, timeout=15)
    assert (result.outcome, result.stdout) == ("exited", "on\n")


def test_a_trap_that_a_startup_command_set_speaks_after_a_last_subshell(new_session: NewSession) -> None:
    result = new_session(startup=["trap 'echo got; echo err >&2' USR1"]).run("(kill -USR1 $$)")
    assert (result.stdout, result.stderr, result.exit_code) == ("got\n", "err\n", 0)


def test_what_a_debug_trap_says_of_our_words_is_nobodys(sh: Session) -> None:
    sh.run("trap 'echo dbg' DEBUG")
    assert sh.run("trap -p USR1; trap -p USR2").stdout == "dbg\ndbg\n"
    assert sh.run("trap -p USR1", isolated=True).stdout == ""
    assert sh.run("trap - DEBUG").stdout == "dbg\n"
    assert sh.run("trap -p DEBUG; echo on").stdout == "on\n"


@pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("together", [False, True], ids=["in two calls", "in one"])
def test_what_a_debug_trap_says_of_our_words_is_nobodys_behind_a_command_that_was_ended(
    sh: Session, together: bool, tty: bool
) -> None:
    trap, sleeps = "trap 'echo \"D:$BASH_COMMAND\"' DEBUG", "sleep 1000"
    for text in (f"{trap}; {sleeps}",) if together else (trap, sleeps):
        last = sh.run(text, timeout=0.2)
    assert last.outcome == "timed_out"
    assert [sh.run("x=1", tty=tty).stdout for _ in range(2)] == ["D:x=1\n"] * 2


def test_a_prompt_that_speaks_behind_a_command_that_was_ended_is_nobodys(sh: Session) -> None:
    sh.run("PS0='zz '")
    assert sh.run("sleep 1000", timeout=0.2).outcome == "timed_out"
    assert sh.run("exit 3").stderr == "exit\n"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("length", range(300, 1100, 20))
def test_nothing_we_typed_is_left_for_them_to_read(new_session: NewSession, length: int) -> None:
    """A mark that bash has not read yet would be theirs, with its nonce: they could say it themselves."""
    sh = new_session(timeout=15)
    steal = "(set -e; trap 'timeout 0.02 cat >stolen' EXIT; false)"
    result = sh.run(f": {'x' * length}; {steal}; sh -c 'exit 7'")
    assert (result.exit_code, result.outcome) == (7, "exited")
    assert sh.run("cat stolen").stdout == ""


@pytest.mark.parametrize(
    "chat",
    ["PROMPT_COMMAND='echo PC'", "trap 'echo dbg >&2' DEBUG", "set -x", "set -v", "set -T; trap 'echo R' RETURN"],
)
def test_what_is_said_at_every_prompt_is_nobodys(sh: Session, chat: str) -> None:
    sh.run(chat)
    for text in ("trap - USR1", "(exit 3)", f"({SAYS})"):
        result = sh.run(text)
        for ours in ("PC", "declare", "builtin", "eval", "R\n"):
            assert ours not in result.stdout + result.stderr
        assert result.stderr.count("dbg") <= 3


def test_all_they_say_is_kept_or_counted(sh: Session) -> None:
    large = Limits(max_output=10**7)
    numbers = "".join(f"{i}\n" for i in range(1, 50_001))
    assert sh.run("trap : ERR; trap 'seq 50000' EXIT; set -e; false", limits=large).stdout == numbers
    result = sh.run("trap 'seq 50000 >&2' EXIT; set -e; false", isolated=True, limits=large)
    assert len(result.stderr_bytes) + result.stderr_omitted == len(numbers)
    result = sh.run("trap : ERR; trap 'seq 50000' EXIT; set -e; false", limits=Limits(max_output=100))
    assert len(result.stdout_bytes) + result.stdout_omitted == len(numbers)
    kill = Limits(max_output=1000, on_overflow="kill")
    assert sh.run("trap : ERR; trap yes EXIT; set -e; false", limits=kill).outcome == "overflow"


def test_they_are_received_after_an_interrupt_too(sh: Session) -> None:
    sh.run("sleep 100", timeout=0.05)
    assert sh.run("trap : ERR; trap 'echo bye' EXIT; set -e; false").stdout == "bye\n"


def test_what_a_trap_said_while_nothing_ran_is_in_no_result(sh: Session, place: Path) -> None:
    sh.run("trap 'echo usr; echo err >&2; touch said' USR1")
    assert sh.pid
    os.kill(sh.pid, signal.SIGUSR1)
    wait_until((place / "said").exists, "the trap")  # not by a command, which would take its words away
    result = sh.run("echo about trap")
    assert (result.stdout, result.stderr) == ("about trap\n", "")


def test_an_exit_trap_of_the_session_comes_to_its_end(sh: Session, place: Path) -> None:
    sh.run("trap 'seq 100000; seq 100000 >&2; touch done' EXIT")
    sh.close()
    assert (place / "done").exists()


def test_no_complaint_of_theirs_makes_us_run_a_command_again(sh: Session, place: Path) -> None:
    text = "echo x >>count; p=$(readlink /proc/self/fd/0); trap '$p >&2' EXIT; set -e; false"
    assert sh.run(text, stdin="x", isolated=True).outcome == "exited"
    assert (place / "count").read_text() == "x\n"


LOOKS_LOST = {
    "set -v": ("set -v", "echo 'a: 10: b'", {}),
    "set -x": ("set -x", "PS4='a: 11: '", {}),
    "an EXIT trap": ("true", "trap 'echo sh: 12: foo: not found >&2' EXIT; set -e; false", {"isolated": True}),
}


@pytest.mark.parametrize(("before", "text", "options"), LOOKS_LOST.values(), ids=LOOKS_LOST)
def test_words_that_look_like_a_lost_descriptor_end_no_shell(
    before: str, text: str, options: dict[str, bool], sh: Session
) -> None:
    sh.run(f"{before}; kept=1")
    assert sh.run(text, **options).state_kept  # type: ignore[arg-type]  # a table of options
    assert sh.run("echo $kept").stdout == "1\n"


def test_bash_without_its_own_stdout_keeps_nobody_busy(sh: Session) -> None:
    before = time.process_time()
    assert sh.run('number=11; eval "exec $number>&-"; sleep 0.5').outcome == "shell_exited"
    assert time.process_time() - before < 0.4
