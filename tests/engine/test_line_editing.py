"""A command that switches line editing keeps the shell if its text shows it; if not, the result says why it ends."""

from __future__ import annotations

from typing import Any

import pytest
from bashes import VERSION

from shellsession import Session


@pytest.mark.sampled
@pytest.mark.parametrize(
    "text",
    [
        "set -o vi",
        "set -o emacs",
        "set +o vi",
        "set +o emacs",
        'eval "$(set +o)"',
        'kept=$(set +o); set -f; eval "$kept"; echo on',
        "shopt -u nullglob; set +o emacs +o vi",
        "shopt -so vi",
        "shopt -o -s emacs",
        "set -u -o vi",
        "set -o pipefail -o emacs",
        'eval "$(shopt -po)"',
        "if true; then set -o vi; fi",
        "eval 'set -o vi'",
        "builtin set -o vi",
    ],
)
@pytest.mark.parametrize("more", [{}, {"tty": False}, {"stdin": "echo never\n"}, {"isolated": True}])
def test_switching_line_editing_in_the_text_keeps_the_shell(sh: Session, text: str, more: dict[str, Any]) -> None:
    sh.run("(exit 7)")
    pid = sh.pid
    result = sh.run(f"x=$?; {text}; (exit 5)", **more)
    assert (result.outcome, result.exit_code, result.state_kept) == ("exited", 5, True)
    assert "never" not in result.stdout
    assert sh.run("echo $x on").stdout == ("on\n" if "isolated" in more else "7 on\n")
    assert sh.pid == pid


@pytest.mark.parametrize("text", ["echo 'set -o vi'", "grep -c 'set -o vi' /dev/null", 'echo "set +o"'])
def test_text_that_only_mentions_the_switch_runs_as_usual(sh: Session, text: str) -> None:
    assert sh.run(f"{text}; exec /nosuch/tool; echo ${{#BASH_SOURCE[@]}}").stdout.endswith("0\n")


def test_switched_line_editing_leaves_time_limits_and_set_e(sh: Session) -> None:
    assert sh.run("set -o vi; sleep 1000; echo never", timeout=0.3).outcome == "timed_out"
    assert sh.run('set -u; saved=$(set +o); eval "$saved"; echo on').stdout == "on\n"
    result = sh.run('eval "$(set +o)"; set -e; false; echo never')
    assert (result.outcome, result.exit_code, result.stdout) == ("exited", 1, "")


def test_switching_line_editing_unseen_ends_the_shell_with_a_reason(sh: Session) -> None:
    sh.run('saved=$(set +o); restore() { eval "$saved"; }')
    result = sh.run("restore; touch done")
    assert (result.outcome, result.exit_code, result.state_kept) == ("shell_exited", 1, False)  # 1: the text was cut
    assert "switched its line editing" in result.reason
    assert sh.run("echo on").stdout == "on\n"


@pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("text", ['( set -o vi; eval "$(set +o)" )', "echo 'eval \"$(set +o)\"' >f; . ./f"])
def test_a_subshell_and_a_sourced_file_keep_it(sh: Session, text: str, tty: bool) -> None:
    sh.run("x=5")
    assert sh.run(f"{text}; echo kept", tty=tty).stdout == "kept\n"
    assert sh.run("echo $x").stdout == "5\n"


@pytest.mark.skipif(VERSION < (5, 1), reason="a function in which `-` was local sets all options anew where it ends")
def test_a_function_may_keep_its_options_to_itself(sh: Session) -> None:
    assert sh.run("f() { local -; set -f; }; f; echo kept").stdout == "kept\n"
