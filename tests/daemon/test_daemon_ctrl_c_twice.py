"""A second Ctrl-C at any moment: the command is ended all the same. A wrapper may pass on the first one too."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from system import unique_seconds, wait_until, with_argument

from shellsession import RemoteSession, aconnect
from shellsession.cli import plain
from shellsession.cli.words import INTERRUPTED
from shellsession.daemon.client.exchange import Backend, Cancellation, Exchange
from shellsession.daemon.client.link import Link
from shellsession.engine.kernel import signals

# What who leaves a request does, from the first Ctrl-C on.
_PLACES = (
    (Exchange, "cancel"),
    (Exchange, "close"),
    (Link, "close"),
    (Cancellation, "__init__"),
    (signals, "signals_deferred"),
    (threading.Thread, "start"),
    (Backend, "until_done"),
    (threading.Event, "wait"),
)


class Second:
    """Ctrl-C, once it is armed, as this function is called, or as it comes back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, where: object, name: str, late: bool) -> None:
        self._armed = False
        real = getattr(where, name)

        def interrupted(*values: Any, **named: Any) -> Any:
            interrupts = self._armed and threading.current_thread() is threading.main_thread()
            self._armed = self._armed and not interrupts
            if interrupts and not late:
                raise KeyboardInterrupt
            came = real(*values, **named)
            if interrupts:
                raise KeyboardInterrupt
            return came

        monkeypatch.setattr(where, name, interrupted)

    def arm(self) -> None:
        self._armed = True


def run_and_interrupt(remote: RemoteSession, seconds: str, second: Second) -> None:
    def first(*_: object) -> None:
        second.arm()
        raise KeyboardInterrupt

    strike_at(seconds, first)
    remote.run(f"sleep {seconds}")


def plain_run_and_interrupt(remote: RemoteSession, seconds: str, second: Second) -> None:
    """Of the command line, without its parser."""

    def first(*_: object) -> None:
        second.arm()
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHELLSESSION_SOCKET", str(remote.transport))
        if plain.run(["-s", remote.agent, f"sleep {seconds}"], lambda: strike_at(seconds, first)) == INTERRUPTED:
            raise KeyboardInterrupt


def strike_at(seconds: str, handler: Callable[..., None]) -> None:
    """Ctrl-C, once the command is there."""
    signal.signal(signal.SIGINT, handler)
    main = threading.get_ident()

    def ctrl_c() -> None:
        wait_until(lambda: with_argument(seconds), "the command")
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=ctrl_c).start()


def arun_and_interrupt(remote: RemoteSession, seconds: str, second: Second) -> None:
    async def main() -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def first() -> None:  # as asyncio.run has it, whose second raises
            second.arm()
            task.cancel()

        def ctrl_c() -> None:
            wait_until(lambda: with_argument(seconds), "the command")
            loop.call_soon_threadsafe(first)

        threading.Thread(target=ctrl_c).start()
        async with aconnect(remote.agent, str(remote.transport), False) as session:
            await session.run(f"sleep {seconds}")

    try:
        asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@pytest.fixture
def _handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


# Of Python: what it closes because nobody has it any more, it warns of.
@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("_handler")
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("where", "name"), _PLACES, ids=[f"{place[0].__name__}.{place[1]}" for place in _PLACES])
@pytest.mark.parametrize(
    "call", [run_and_interrupt, plain_run_and_interrupt, arun_and_interrupt], ids=["sync", "plain", "async"]
)
def test_wherever_it_comes(
    remote: RemoteSession,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[RemoteSession, str, Second], None],
    where: Any,
    name: str,
    late: bool,
) -> None:
    remote.run("X=kept")
    seconds = unique_seconds()
    with monkeypatch.context() as patch:
        second = Second(patch, where, name, late)
        with pytest.raises(KeyboardInterrupt):
            call(remote, seconds, second)
    wait_until(lambda: not with_argument(seconds), "its end")
    gc.collect()
    assert remote.run("echo $X").stdout == "kept\n"
