"""Files over the daemon: a lost connection, and other clients meanwhile."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon, Proxy, Raw, serving
from system import PATIENCE, wait_until

from shellsession import connect
from shellsession.engine.io.file_access import access
from shellsession.engine.verbs import engine
from shellsession.files import PIECE, FileReply

_DATA = bytes(range(256)) * (3 * PIECE // 256)


def lose_an_answer(proxy: Proxy) -> None:
    """Lose what the daemon sends next, and then the connection."""
    proxy.mute = True

    def cut() -> None:
        wait_until(lambda: proxy.swallowed, "what is lost")
        proxy.mute = False
        proxy.cut()

    threading.Thread(target=cut).start()


def test_an_answer_that_is_lost_changes_nothing(daemon: Daemon, proxy: Proxy, place: Path) -> None:
    """Pieces that are read are not kept, so the client asks anew. Those that are written are written once."""
    with connect("lost", proxy.path, False, cwd=place) as session:

        class Losing(io.BytesIO):
            def write(self, data: Any) -> int:
                if self.tell() == PIECE:
                    lose_an_answer(proxy)
                return super().write(data)

            def read(self, size: int | None = -1) -> bytes:
                if self.tell() == PIECE:
                    lose_an_answer(proxy)
                return super().read(size)

        (place / "from").write_bytes(_DATA)
        taken = Losing()
        session.read_file("from", into=taken)
        assert taken.getvalue() == _DATA
        assert len(proxy.swallowed) > 0
        proxy.swallowed.clear()
        session.write_file("to", Losing(_DATA))
        assert (place / "to").read_bytes() == _DATA
        assert len(proxy.swallowed) > 0
        session.close()


def test_a_slow_disk_holds_up_nobody_else(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> FileReply:
        begun.set()
        assert go_on.wait(PATIENCE)
        return access(*arguments)

    monkeypatch.setattr(engine, "access", slow)
    (place / "file").write_bytes(b"content")
    path = str(tmp_path / "socket")
    with serving(path), Raw(path) as reader, Raw(path) as other:
        reader.open("a", place)
        request = reader.say("read_file", agent="a", path="file", begin=0)
        assert begun.wait(PATIENCE)
        assert other.run("a", "echo served")["outcome"] == "exited"  # the same session, too
        go_on.set()
        reply = reader.receive()
        assert (reply.header["id"], reply.parts) == (request, (b"content",))
