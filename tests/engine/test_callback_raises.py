"""A callback that raises ends its command and nothing else, and the caller gets the exception."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from system import PATIENCE, unique_seconds, wait_until, with_argument

from shellsession import AsyncSession, Session

RAISED: list[tuple[type[BaseException], type[BaseException]]] = [
    (ZeroDivisionError, ZeroDivisionError),
    (SystemExit, SystemExit),
    (StopAsyncIteration, StopAsyncIteration),
    (StopIteration, RuntimeError),
    (GeneratorExit, RuntimeError),
]
TABLE = pytest.mark.parametrize(("raised", "told"), RAISED)


class Faulty:
    """Raises that, as soon as it is called."""

    def __init__(self, raised: type[BaseException]) -> None:
        self._raised = raised
        self.was_called = False

    def __call__(self, *_: object) -> None:
        self.was_called = True
        raise self._raised("by the callback")

    async def awaited(self, *_: object) -> None:
        await asyncio.sleep(0)
        self()


def is_of(error: BaseException, raised: type[BaseException]) -> bool:
    """Is that what the callback raised, or does it say so?"""
    return isinstance(error, raised) or isinstance(error.__cause__, raised)


@TABLE
def test_while_its_caller_waits(sh: Session, raised: type[BaseException], told: type[BaseException]) -> None:
    sh.run("kept=1")
    seconds = unique_seconds()
    with pytest.raises(told) as caught:
        sh.run(f"echo begun; sleep {seconds}", on_output=Faulty(raised))
    assert is_of(caught.value, raised)
    assert with_argument(seconds) == []
    assert sh.run("echo $kept").stdout == "1\n"


@TABLE
def test_between_two_verbs(sh: Session, place: Path, raised: type[BaseException], told: type[BaseException]) -> None:
    sh.run("mkfifo go; kept=1")
    seconds, faulty = unique_seconds(), Faulty(raised)
    command = f"read x <go; echo begun; sleep {seconds}"
    assert sh.run(command, timeout=0.05, on_timeout="yield", on_output=faulty).runs_on
    (place / "go").write_text("\n")
    wait_until(lambda: faulty.was_called, "the callback")
    with pytest.raises(told) as caught:
        sh.wait(PATIENCE)
    assert is_of(caught.value, raised)
    assert with_argument(seconds) == []
    assert sh.run("echo $kept").stdout == "1\n"


@pytest.mark.parametrize(("raised", "told"), [row for row in RAISED if row[0] is not SystemExit])  # it ends a loop
@pytest.mark.parametrize("awaited", [False, True], ids=["called", "awaited"])
def test_with_asyncio(place: Path, raised: type[BaseException], told: type[BaseException], awaited: bool) -> None:
    faulty, seconds = Faulty(raised), unique_seconds()

    async def main() -> None:
        async with AsyncSession(cwd=place, timeout=PATIENCE) as sh:
            await sh.run("kept=1")
            with pytest.raises(told) as caught:
                await sh.run(f"echo begun; sleep {seconds}", on_output=faulty.awaited if awaited else faulty)
            assert is_of(caught.value, raised)
            assert with_argument(seconds) == []
            assert (await sh.run("echo $kept")).stdout == "1\n"

    asyncio.run(main())
