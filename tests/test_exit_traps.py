"""EXIT traps under `set -e`: bash undoes our redirections before it runs them, and what they say is the command's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shellsession import Session

NewSession = Callable[..., Session]
SAYS = "trap 'echo bye; echo worse >&2' EXIT"

# What is run, what else run() is given, and its outcome, stdout and stderr.
CASES = {
    "the shell's own": (f"set -e; {SAYS}; echo a; false", {}, "shell_exited", "a\nbye\n", "worse\n"),
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
    "isolated, with set -e": (f"set -e; {SAYS}; echo a; false", {"isolated": True}, "exited", "a\nbye\n", "worse\n"),
    "by exit": (f"({SAYS}; exit 1)", {}, "exited", "bye\n", "worse\n"),
    "merged": (f"(set -e; {SAYS}; false)", {"merge_stderr": True}, "exited", "bye\nworse\n", ""),
    "nothing to say": ("(set -e; trap : EXIT; false)", {}, "exited", "", ""),
    "at a chatty prompt": (f"PROMPT_COMMAND='echo PC'; ({SAYS})", {}, "exited", "bye\n", "worse\n"),
}


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


def test_they_never_hang_on_what_we_type(new_session: NewSession) -> None:
    """Their input is bash's own then. It is empty, and who reads it is ended with a word why."""
    for text in ("(set -e; trap cat EXIT; false)", "set -e; trap cat EXIT; false"):
        result = new_session(timeout=15).run(text)
        assert result.outcome == "interrupted"
        assert "input" in result.reason
    assert new_session(timeout=15).run("trap cat EXIT; :", isolated=True).outcome == "exited"


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
