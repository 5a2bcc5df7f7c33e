"""Descriptors from 10 on, where bash keeps its own three: commands that open, close and read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from system import wait_until

from shellsession import TTY, Session

pytestmark = pytest.mark.usefixtures("company")


@pytest.mark.parametrize("options", [{}, {"stdin": b"x"}, {"stdin": TTY}, {"merge_stderr": True}], ids=repr)
@pytest.mark.parametrize("setting", ["true", "set -x", "trap 'true' DEBUG", "trap : EXIT"])
def test_an_isolated_text_opens_and_closes_its_own(
    sh: Session, place: Path, setting: str, options: dict[str, Any]
) -> None:
    sh.run(setting)
    result = sh.run("exec 10>kept; echo one >&10; exec 10>&-; exec 12>>kept; echo two >&12", isolated=True, **options)
    assert (result.exit_code, (place / "kept").read_text()) == (0, "one\ntwo\n")


def test_functions_open_and_close_one_again_and_again(sh: Session) -> None:
    sh.run("X=7; lock() { exec 10>lock; flock -n 10 && echo locked; }; unlock() { exec 10>&-; }")
    for _ in range(3):
        assert sh.run("lock").stdout == "locked\n"
        assert sh.run("flock -n lock true").exit_code == 1
        assert sh.run("unlock").outcome == "exited"
        assert sh.run("flock -n lock true").exit_code == 0
    assert sh.run("echo $X").stdout == "7\n"


@pytest.mark.parametrize("reader", ["read -u 10 x; read -u 10 y", "read x <&10; read y <&10", "cat <&10"])
def test_who_reads_bashs_own_does_not_hang(sh: Session, reader: str) -> None:
    sh.run("X=7")
    result = sh.run(f"{reader}; echo went on")
    assert (result.outcome, result.stdout) == ("interrupted", "")
    assert "waits for input" in result.reason
    assert sh.run("echo next").stdout == "next\n"


# Takes the line that asks for the mark, and says to bash's own stderr what bash would say to it.
FORGERY = r"""
read x <&10
read y <&10
n=${y#*/dev/null/}; n=${n%% *}
echo "bash: /dev/null/$n 7 0 9 hB x /forged/$n: Not a directory" >&12
until [[ -e go ]]; do :; done; echo end
"""


def test_who_reads_bashs_own_is_asked_for_no_second_mark(sh: Session) -> None:
    result = sh.run(FORGERY)
    assert (result.outcome, result.stdout) == ("interrupted", "")
    assert "/forged" not in result.cwd


@pytest.mark.parametrize("options", [{}, {"stdin": TTY}], ids=repr)
def test_a_shell_that_lost_its_stderr_at_its_prompt_asks_for_no_input(sh: Session, options: dict[str, Any]) -> None:
    result = sh.run("PROMPT_COMMAND='exec 2>/dev/null'", **options)
    assert (result.outcome, result.state_kept) == ("shell_exited", False)
    assert "no longer runs" in result.reason
    assert sh.run("echo on").stdout == "on\n"


def test_bash_that_comes_back_to_its_prompt_as_it_is_looked_at_asks_for_nothing(
    sh: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    sh.run("X=7")
    shell = sh.engine.live()
    really = shell.idle
    looks: list[bool] = []

    def late() -> bool:
        looks.append(wait_until(really, "its prompt"))
        return len(looks) > 1

    monkeypatch.setattr(shell, "idle", late)
    result = sh.run("sleep 0.1", stdin=TTY)
    assert looks, "nobody looked"
    assert (result.outcome, result.exit_code) == ("exited", 0)
