"""Who talks without end on bash's own stderr, where we listen for the mark, does not make us forget the time."""

from __future__ import annotations

import os
import signal
import threading

from support import PATIENCE

from shellsession import Session

FLOOD = "for i in 1 2 3 4; do cat /dev/zero >&2 & done"


def test_a_time_limit_is_heard_of_through_a_flood(sh: Session) -> None:
    sh.open()
    pid = sh.pid
    assert pid is not None
    forgotten = threading.Event()

    def end() -> None:
        forgotten.set()
        os.kill(pid, signal.SIGKILL)

    watch = threading.Timer(PATIENCE, end)
    watch.start()
    result = sh.run(f"PROMPT_COMMAND='{FLOOD}; wait'", timeout=0.2)
    watch.cancel()
    assert (result.outcome, forgotten.is_set()) == ("timed_out", False)
