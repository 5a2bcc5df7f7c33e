"""If a startup command fails, no session opens, and the error has the command, its status and its output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon
from kinds import in_a_loop

from shellsession import (
    Agents,
    AsyncAgents,
    AsyncSession,
    Policy,
    Session,
    ShellUnavailable,
    StartupFailed,
    aconnect,
    connect,
)

FAILS = "[ -e mended ] || { echo wrong >&2; (exit 7); }"
TOLD = (
    f"the startup command {FAILS!r} failed with status 7, and its stderr ends with 'wrong';"
    " where it may fail, end it with `|| true` or pass check_startup=False"
)


class OfAgents:
    """An agent's session, by the verbs that ``Agents`` have."""

    def __init__(self, **options: Any) -> None:
        self._agents = Agents(**options)

    def run(self, command: str) -> Any:
        return self._agents.run("a", command)

    def restart(self) -> None:
        self._agents.restart("a")

    def open(self) -> None:
        self._agents.session("a").open()

    def close(self) -> None:
        self._agents.close()


@contextmanager
def of_agents(**options: Any) -> Iterator[Any]:
    made = OfAgents(**options)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(params=["sync", "async", "agents", "remote", "async remote"])
def opened(request: pytest.FixtureRequest, place: Path) -> Callable[..., Any]:
    """Makes a session of each kind, as a context."""
    kind, agent = request.param, request.node.name

    def make(**options: Any) -> Any:
        options |= {"cwd": place, "timeout": 20}
        if kind == "sync":
            return Session(**options)
        if kind == "async":
            return in_a_loop(lambda: AsyncSession(**options))
        if kind == "agents":
            return of_agents(**options)
        daemon: Daemon = request.getfixturevalue("daemon")
        if kind == "remote":
            return connect(agent, daemon.socket, False, **options)
        return in_a_loop(lambda: aconnect(agent, daemon.socket, False, **options))

    return make


def test_it_is_named_and_the_session_can_be_opened_again(opened: Callable[..., Any], place: Path) -> None:
    def fails(verb: Callable[[], object]) -> None:
        with pytest.raises(StartupFailed) as caught:
            verb()
        assert (caught.value.code, str(caught.value)) == ("startup_failed", TOLD)
        assert isinstance(caught.value, ShellUnavailable)

    with opened(startup=["X=1", FAILS, "Y=2"]) as sh:
        fails(sh.open)
        fails(lambda: sh.run("true"))
        (place / "mended").touch()
        assert sh.run("echo $X$Y $?").stdout == "12 0\n"
        (place / "mended").unlink()
        fails(sh.restart)
        (place / "mended").touch()
        assert sh.run("exit 3").outcome == "shell_exited"
        (place / "mended").unlink()
        fails(lambda: sh.run("true"))


def test_unchecked_it_goes_on(opened: Callable[..., Any]) -> None:
    with opened(startup=["X=1", FAILS, "Y=2"], check_startup=False) as sh:
        assert sh.run("echo $X$Y $?").stdout == "12 0\n"


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("exit 3", r"did not finish \(the command ended the session's bash, with exit status 3\)"),
        ("sleep 100", r"did not finish \(the time limit passed: sleep sleeps\)"),
    ],
)
def test_one_that_does_not_come_to_its_end_fails_in_any_case(command: str, told: str, check: bool) -> None:
    with Session(startup=[command], timeout=0.2, check_startup=check) as sh, pytest.raises(StartupFailed, match=told):
        sh.open()


def test_async_agents_are_notified_as_well(place: Path) -> None:
    async def scenario() -> None:
        async with AsyncAgents(cwd=place, startup=[FAILS]) as agents:
            with pytest.raises(StartupFailed) as caught:
                await agents.run("a", "true")
            assert str(caught.value) == TOLD

    asyncio.run(scenario())


def test_a_long_command_and_long_words_are_cut() -> None:
    text = f"printf '%9999s'; printf '%9999s\\nthe end' >&2; : {'x' * 9999}; false"
    with Session(startup=[text]) as sh, pytest.raises(StartupFailed) as caught:
        sh.open()
    assert "the end" in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_failed_startup_command_with_secrets_shows_none(opened: Callable[..., Any]) -> None:
    token = "tok-" + 30 * "4"
    startup = [f"# {'x' * 150} {token}\necho login with $API_TOKEN failed >&2; echo PIN-5 >&2; false"]
    options = {"policy": Policy(mask_secrets=True), "redact": ["PIN-[0-9]+"], "extra_env": {"API_TOKEN": token}}
    with opened(startup=startup, **options) as sh, pytest.raises(StartupFailed) as failed:
        sh.run("true")
    assert "login with *** failed\\n***" in str(failed.value)
    assert "tok-" not in str(failed.value)
