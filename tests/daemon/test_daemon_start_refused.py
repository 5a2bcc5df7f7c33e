"""If no daemon can start, or one does not answer, the client gets an error at once; other files stay intact."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import homes
import pytest
from daemons import answers
from homes import Home, finish

from shellsession import DaemonUnavailable, aconnect, connect
from shellsession.daemon.client import admin
from shellsession.daemon.client.transport import SocketChannel
from shellsession.daemon.server.service import ListeningSocket

home = homes.home


def test_a_second_daemon_at_the_same_socket_is_refused(home: Home) -> None:
    first = home.client()
    finish(first, "go\n")
    (daemon,) = home.daemons
    second = home.serve()
    assert second.returncode == 125
    assert home.socket in second.stderr
    assert "already" in second.stderr
    assert "Traceback" not in second.stderr
    assert home.daemons == [daemon]
    assert answers(home.socket)


def test_a_file_that_is_no_socket_is_not_touched(home: Home) -> None:
    os.mkdir(os.path.dirname(home.socket), 0o700)
    Path(home.socket).write_text("a letter", encoding="ascii")
    serve = home.serve()
    assert (serve.returncode, Path(home.socket).read_text(encoding="ascii")) == (125, "a letter")
    assert home.socket in serve.stderr


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702, 0o1777], ids=oct)
def test_a_directory_that_others_may_write_to_is_refused(home: Home, mode: int) -> None:
    directory = os.path.dirname(home.socket)
    os.mkdir(directory)
    os.chmod(directory, mode)
    with pytest.raises(DaemonUnavailable, match=re.escape(directory)):
        ListeningSocket(home.socket)
    assert not os.path.exists(home.socket)


def test_a_daemon_says_that_others_may_write_to_its_directory(home: Home) -> None:
    directory = os.path.dirname(home.socket)
    os.mkdir(directory)
    os.chmod(directory, 0o777)
    serve = home.serve()
    assert serve.returncode == 125
    assert directory in serve.stderr
    assert not os.path.exists(home.socket)


def test_who_wants_no_daemon_started_gets_no_advice_where_one_could_be(home: Home) -> None:
    os.mkdir(os.path.dirname(home.socket))
    os.chmod(os.path.dirname(home.socket), 0o777)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(home.socket)
    with pytest.raises(DaemonUnavailable, match="no daemon listens at"):
        connect("nobody", home.socket, start=False)


def test_a_daemon_that_cannot_start_is_reported_as_such(home: Home) -> None:
    os.mkdir(os.path.dirname(home.socket))
    os.chmod(os.path.dirname(home.socket), 0o777)
    _, errors = finish(home.client(), "go\n")
    assert "DaemonUnavailable" in errors.splitlines()[-1]
    assert home.daemons == []


def test_who_hangs_up_without_a_word_is_not_asked_for_ever(home: Home) -> None:
    os.mkdir(os.path.dirname(home.socket), 0o700)
    with socket.socket(socket.AF_UNIX) as mute, ThreadPoolExecutor(1) as threads:
        mute.bind(home.socket)
        mute.listen()
        hanging_up = threads.submit(hang_up, mute)
        try:
            _, errors = finish(home.client(), "go\n")
        finally:
            mute.shutdown(socket.SHUT_RDWR)
        hanging_up.result()
    assert "DaemonUnavailable" in errors.splitlines()[-1]


def hang_up(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            listener.accept()[0].close()


@pytest.mark.parametrize(
    "ask",
    [admin.agents, admin.stats, admin.shutdown, partial(connect, "a"), lambda path: asyncio.run(aconnect("a", path))],
)
def test_a_daemon_that_says_nothing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ask: Callable[[str], object]
) -> None:
    monkeypatch.setattr(SocketChannel, "patience", 0.05)
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(str(tmp_path / "socket"))
        stopped.listen()
        with pytest.raises(DaemonUnavailable, match="it is stopped"):
            ask(str(tmp_path / "socket"))
