"""A command that switches on line editing ends an interactive bash without it, and the result says so."""

from __future__ import annotations

import pytest
from bashes import VERSION

from shellsession import Session


@pytest.mark.parametrize("text", ["set -o vi", 'eval "$(set +o)"', 'kept=$(set +o); set -f; eval "$kept"; echo on'])
def test_the_loss_of_the_shell_and_its_reason_are_announced(sh: Session, text: str) -> None:
    result = sh.run(text)
    assert (result.outcome, result.state_kept) == ("shell_exited", False)
    assert "switching line editing" in result.reason
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
