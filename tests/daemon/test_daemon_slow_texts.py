"""A text that the parser of a policy takes long for: the daemon refuses it, and other clients hardly wait."""

from __future__ import annotations

import threading
import time

import pytest
from daemons import Daemon

from shellsession import Policy, PolicyRefused, connect


@pytest.mark.parametrize("text", ["<<E\n" * 16_000, "a=(" * 20_000])
def test_a_text_that_is_slow_to_parse_does_not_delay_another_client(daemon: Daemon, text: str) -> None:
    rules = Policy(deny_commands=["sudo"])
    with connect("slow", daemon.socket, False, policy=rules) as slow, connect("by", daemon.socket, False) as by:
        slow.run("true")
        by.run("true")
        reasons: list[str] = []

        def run() -> None:
            with pytest.raises(PolicyRefused) as refused:
                slow.run(text)
            reasons.append(str(refused.value))

        thread = threading.Thread(target=run)
        thread.start()
        waits: list[float] = []
        while thread.is_alive() or not waits:
            before = time.monotonic()
            by.run("true")
            waits.append(time.monotonic() - before)
        thread.join()
        assert "too long to be parsed" in reasons[0]
        assert max(waits) < 3, waits  # 0.5 s on an idle machine
