"""A bash that is frozen, as in a container that is paused, is waited for."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from system import PATIENCE, stat_fields, wait_until

from shellsession import Session
from shellsession.engine.verbs import collect

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17  # <sys/ptrace.h>


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Freeze a process without a signal, for the duration of the block: this thread traces it."""

    def trace(request: int) -> int:
        return int(ctypes.CDLL(None).ptrace(ctypes.c_long(request), ctypes.c_long(pid), None, None))

    if trace(_SEIZE):
        pytest.skip("a process here may not trace its child")
    trace(_INTERRUPT)
    wait_until(lambda: stat_fields(pid)[0] == "t", "its freezing")
    try:
        yield
    finally:
        trace(_DETACH)


def test_command_for_a_frozen_bash_runs_once_it_goes_on(
    sh: Session, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = list[Any](), collect._look

    def count(*given: Any) -> Any:
        looks.append(given)
        return look(*given)

    monkeypatch.setattr(collect, "_look", count)
    sh.run("X=kept")
    assert sh.pid is not None
    with frozen(sh.pid):
        result = pool.submit(sh.run, "echo $X")
        wait_until(lambda: len(looks) > 4 or result.done(), "looks at it")
    assert result.result(PATIENCE).stdout == "kept\n"
