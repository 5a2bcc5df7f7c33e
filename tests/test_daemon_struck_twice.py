"""A second Ctrl-C (a wrapper passes the first one on, too) wherever it strikes: the command is ended all the same."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest
from support import unique_seconds, wait_until, with_argument

import shellsession
from shellsession import RemoteSession, aconnect

_OURS = os.path.dirname(shellsession.__file__)


class Second:
    """Ctrl-C, as this thread calls the function of ours that is the ``number``th from ``arm`` on."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.struck = False

    def arm(self) -> None:
        sys.settrace(self._trace)

    def _trace(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code  # at its first line, as Python looks for signals there, and not where an ``await`` goes on
        if event == "call" and code.co_filename.startswith(_OURS) and frame.f_lineno == code.co_firstlineno:
            self._left -= 1
            if self._left < 0:
                self.struck = True
                sys.settrace(None)
                raise KeyboardInterrupt


def run_and_strike(remote: RemoteSession, seconds: str, second: Second) -> None:
    def first(*_: object) -> None:
        second.arm()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, first)
    main = threading.get_ident()

    def strike() -> None:
        wait_until(lambda: with_argument(seconds), "the command")
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=strike).start()
    remote.run(f"sleep {seconds}")


def arun_and_strike(remote: RemoteSession, seconds: str, second: Second) -> None:
    async def main() -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def first() -> None:  # as asyncio.run has it, whose second raises
            second.arm()
            task.cancel()

        def strike() -> None:
            wait_until(lambda: with_argument(seconds), "the command")
            loop.call_soon_threadsafe(first)

        threading.Thread(target=strike).start()
        async with aconnect(remote.agent, remote._path, False) as session:
            await session.run(f"sleep {seconds}")

    try:
        asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@pytest.fixture
def _signals() -> Iterator[None]:
    before, trace = signal.getsignal(signal.SIGINT), sys.gettrace()
    yield
    sys.settrace(trace)
    signal.signal(signal.SIGINT, before)


# Of Python: what it closes because nobody has it any more, it warns of.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize("strike", [run_and_strike, arun_and_strike], ids=["sync", "async"])
def test_wherever_it_strikes(remote: RemoteSession, strike: Callable[[RemoteSession, str, Second], None]) -> None:
    remote.run("X=kept")
    struck = True
    number = 0
    while struck:
        seconds, second = unique_seconds(), Second(number)
        with pytest.raises(KeyboardInterrupt):
            strike(remote, seconds, second)
        sys.settrace(None)
        wait_until(lambda seconds=seconds: not with_argument(seconds), f"its end, struck at {number}")  # type: ignore[misc]
        struck, number = second.struck, number + 1
    gc.collect()
    assert number > 10
    assert remote.run("echo $X").stdout == "kept\n"
