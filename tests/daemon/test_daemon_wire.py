"""An invalid message gets an error with a code on its own connection, and affects no other client."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon, Raw, running
from hypothesis import given, strategies as st
from system import unique_seconds, wait_until, with_argument

from shellsession import RemoteSession, ShellSessionError, connect
from shellsession.daemon.protocol.messages import from_part
from shellsession.daemon.protocol.wire import HEADER_MAX, PARTS_MAX, PROTOCOL, Message, encode
from shellsession.daemon.server.connection import IN_FLIGHT


def codes(root: type[ShellSessionError] = ShellSessionError) -> set[str]:
    return {root.code}.union(*(codes(child) for child in root.__subclasses__()))


# "error" is what the daemon says where it failed itself.
CODES = codes() - {"error"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("daemon")) as daemon:
        yield daemon
        # Whatever clients sent: neither a traceback nor a complaint.
        assert not re.search("traceback|warning|error", daemon.said, re.IGNORECASE)


@pytest.fixture(scope="module")
def healthy(daemon: Daemon) -> Iterator[RemoteSession]:
    """A client that minds its own business."""
    with connect("healthy", daemon.socket, False) as session:
        yield session


@pytest.fixture
def raw(daemon: Daemon, healthy: RemoteSession) -> Iterator[Raw]:
    """A client that misbehaves, while another one is served."""
    with Raw(daemon.socket) as raw:
        yield raw
        assert healthy.run("echo well").stdout == "well\n"


def error(raw: Raw) -> tuple[object, str]:
    """The id and the code of the error that comes next."""
    header = raw.receive().header
    assert header["error"]["message"]
    return header["id"], header["error"]["code"]


UNREADABLE = {
    "no JSON": b"garbage\n",
    "an empty line": b"\n",
    "half JSON": b'{"id":\n',
    "no object": b"[1]\n",
    "no UTF-8": b'{"\xff":1}\n',
    "NaN": b'{"id":NaN}\n',
    "a number too large": b'{"id":1e999}\n',
    "more digits than Python reads": b'{"id":' + b"9" * 5000 + b"}\n",
    "a thousand brackets": b"[" * 100_000 + b"\n",
    "an endless line": b"x" * (HEADER_MAX + 1),
    "a negative size": b'{"sizes":[-1]}\n',
    "a size that is no number": b'{"sizes":["1"]}\n',
    "sizes that are no list": b'{"sizes":1}\n',
    "a size over the limit": b'{"sizes":[%d]}\n' % (PARTS_MAX + 1),
    "sizes over the limit together": b'{"sizes":[%d,%d]}\n' % (PARTS_MAX, 1),
    "an endless list of sizes": b'{"sizes":[' + b"0," * 100 + b"0]}\n",
}
HALF = {
    "half a line": b'{"id":"x","ver',
    "a header without its part": b'{"id":"x","sizes":[5]}\n',
    "half a part": b'{"id":"x","sizes":[5]}\nabc',
}


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_message_ends_the_connection_with_an_error(raw: Raw, data: bytes) -> None:
    raw.socket.sendall(data)
    assert error(raw) == (None, "protocol")
    with pytest.raises(EOFError):
        raw.receive()


@pytest.mark.parametrize("data", HALF.values(), ids=HALF)
def test_half_a_message_is_no_message(raw: Raw, data: bytes) -> None:
    raw.socket.sendall(data)
    raw.socket.shutdown(socket.SHUT_WR)
    assert error(raw) == (None, "protocol")
    with pytest.raises(EOFError):
        raw.receive()


def test_what_is_no_message_behind_a_request_is_reported_at_once(raw: Raw, daemon: Daemon) -> None:
    request = raw.header("list")
    raw.socket.sendall(encode(request) + b"garbage\n")
    messages = []
    with suppress(EOFError):
        while True:
            messages.append(raw.receive().header)
    assert messages[-1]["error"]["code"] == "protocol"
    with Raw(daemon.socket) as other:
        other.socket.sendall(encode(request))
        assert from_part(other.receive().parts)


def nested(depth: int) -> Any:
    return json.loads("[" * depth + "]" * depth)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no verb": ({"verb": ...}, "invalid_request"),
    "an unknown verb": ({"verb": "fly"}, "invalid_request"),
    "a verb that is no text": ({"verb": 7}, "invalid_request"),
    "a verb that is no character": ({"verb": "\ud800"}, "invalid_request"),
    "a missing field": ({"verb": "start"}, "invalid_request"),
    "a field too many": ({"colour": "red"}, "invalid_request"),
    "a field too many, deep": ({"colour": nested(900)}, "invalid_request"),
    "a field that is no character": ({"\udcff": 1}, "invalid_request"),
    "the field of another verb": ({"agent": "a"}, "invalid_request"),
    "a wrong type": ({"verb": "wait", "agent": "healthy", "timeout": "5"}, "invalid_request"),
    "a truth for a number": ({"verb": "resize", "agent": "healthy", "columns": True, "rows": 9}, "invalid_request"),
    "a number that no terminal has": (
        {"verb": "resize", "agent": "healthy", "columns": 10**4000, "rows": 9},
        "invalid_request",
    ),
    "an unknown word": ({"verb": "hold", "agent": "healthy", "holder": "me", "others": "die"}, "invalid_request"),
    "a hold without a holder": ({"verb": "hold", "agent": "healthy"}, "invalid_request"),
    "no name": ({"verb": "start", "agent": ""}, "invalid_request"),
    "a name too long": ({"verb": "info", "agent": "fuzz" * 257}, "invalid_request"),
    "no agent": ({"verb": "start", "agent": "nobody"}, "no_such_agent"),
    "no job": ({"verb": "kill_job", "agent": "healthy", "job": 10**30}, "invalid_request"),
    "no command to wait for": ({"verb": "wait", "agent": "healthy"}, "not_running"),
    "a command without its bytes": ({"verb": "run", "agent": "healthy"}, "invalid_request"),
    "text without its bytes": ({"verb": "send", "agent": "healthy"}, "invalid_request"),
    "a path that nothing can have": (
        {"verb": "read_file", "agent": "healthy", "path": "/\0", "begin": 0},
        "invalid_request",
    ),
    "a position that no file has": (
        {"verb": "read_file", "agent": "healthy", "path": "/etc/passwd", "begin": 1 << 63},
        "invalid_request",
    ),
    "a file without its bytes": (
        {"verb": "write_file", "agent": "healthy", "path": "/nowhere/file", "begin": 0},
        "invalid_request",
    ),
    "an older protocol": ({"protocol": 0}, "version_mismatch"),
    "a newer protocol": ({"protocol": PROTOCOL + 1, "verb": "fly"}, "version_mismatch"),
    "no protocol": ({"protocol": ...}, "version_mismatch"),
    "a protocol of brackets": ({"protocol": nested(900)}, "version_mismatch"),
    "no id": ({"id": ...}, "invalid_request"),
    "an id that is no text": ({"id": 7}, "invalid_request"),
    "an id too long": ({"id": "x" * 129}, "invalid_request"),
    "an id as long as a header": ({"id": "x" * (HEADER_MAX - 100)}, "invalid_request"),
    "an id that is no id": ({"id": "x"}, "protocol"),
    "an empty id": ({"id": ""}, "protocol"),
    "the id of another daemon": ({"id": "0123456789abcdef.1.1"}, "outcome_unknown"),
    "the id of a connection to come": ({"id": "INCARNATION.999999.1"}, "protocol"),
    "a request number 0": ({"id": "INCARNATION.1.0"}, "protocol"),
    "a request number of 30 digits": ({"id": "INCARNATION.1." + "9" * 30}, "protocol"),
    "the cancelling of nothing": ({"verb": "cancel"}, "invalid_request"),
}


@pytest.mark.parametrize(("fields", "code"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_meant_is_refused_and_the_connection_goes_on(
    raw: Raw, fields: dict[str, Any], code: str
) -> None:
    header = raw.header("list", **fields)
    if isinstance(request := header.get("id"), str):
        header["id"] = request = request.replace("INCARNATION", raw.hello["incarnation"])
    raw.socket.sendall(json.dumps(header).encode() + b"\n")
    told, found = error(raw)
    assert found == code
    if isinstance(request, str) and len(request) <= 128:
        assert told == request
    assert raw.agents()


OPENINGS: dict[str, dict[str, Any]] = {
    "no such directory": {"cwd": "/no such place"},
    "a directory that nobody can have": {"cwd": "/\0"},
    "a name that nothing can have": {"env": {"A=B": "c"}},
    "a value that nothing can have": {"env": {"A": "b\0"}},
    "a value that is no character": {"env": {"A": "\ud800"}},
    "a time limit before now": {"timeout": -1},
    "idle for less than nothing": {"idle_ttl": -1},
    "a terminal of no size": {"size": [0, 0]},
    "a startup that is no command": {"startup": ["a\0b"]},
    "a startup that is no character": {"startup": ["\ud800"]},
    "limits below nothing": {"limits": {"max_output": -1, "spill": None, "spill_max": 0, "on_overflow": "kill"}},
    "no umask": {"umask": 0o1000},
}


@pytest.mark.parametrize("fields", OPENINGS.values(), ids=OPENINGS)
def test_a_session_that_cannot_be_is_refused(raw: Raw, fields: dict[str, Any]) -> None:
    assert raw.open("refused", **{"cwd": "/", **fields}).header["error"]["code"] == "invalid_request"
    assert raw.ask("info", agent="refused").header["error"]["code"] == "no_such_agent"


def test_input_that_did_not_come_is_not_the_command_itself(raw: Raw) -> None:
    reply = raw.ask("run", b"cat", agent="healthy", stdin="bytes")
    assert reply.header["error"]["code"] == "invalid_request"


def test_a_client_that_goes_in_the_middle_of_its_request_takes_nothing_with_it(raw: Raw, daemon: Daemon) -> None:
    for data in [*HALF.values(), encode(raw.header("list"))]:
        with Raw(daemon.socket) as other:
            other.socket.sendall(data)
    assert raw.agents()


def test_a_flood_of_requests_is_taken_as_it_is_served(
    daemon: Daemon, raw: Raw, healthy: RemoteSession, place: Path
) -> None:
    """Each of them waits for a command: there is room for some, and the rest stays with its client."""
    with Raw(daemon.socket) as other:
        other.open("flood", place)
        seconds = unique_seconds()
        held = other.say("run", f"sleep {seconds}".encode(), agent="flood")
        wait_until(lambda: with_argument(seconds), "the command")
        before = other_requests(healthy)
        requests = [raw.header("type", agent="flood") for _ in range(10_000)]
        with ThreadPoolExecutor(1) as sender:
            sending = sender.submit(raw.socket.sendall, b"".join(encode(request, b"x") for request in requests))
            wait_until(lambda: other_requests(healthy) > before + IN_FLIGHT // 2, "the first requests")
            assert healthy.run("echo served").stdout == "served\n"
            assert other_requests(healthy) < before + 2 * IN_FLIGHT
            with Raw(daemon.socket) as third:
                third.ask("interrupt", agent="flood")
            assert other.receive().header["id"] == held
            replies = [raw.receive().header for _ in requests]
            sending.result()
    assert [reply["id"] for reply in replies] == [request["id"] for request in requests]
    assert {reply["error"]["code"] for reply in replies} == {"not_running"}


def other_requests(session: RemoteSession) -> int:
    """How many requests the daemon has taken."""
    return int(session.ask(Message({"verb": "stats"}, ())).header["value"]["requests"])


# Any of these, once changed, may still be understood.
SEEDS = [
    encode({"protocol": PROTOCOL, "id": "i.1.1", "verb": "list"}),
    encode({"protocol": PROTOCOL, "id": "i.1.2", "verb": "info", "agent": "fuzz"}),
    encode({"protocol": PROTOCOL, "id": "i.1.3", "verb": "run", "agent": "fuzz", "timeout": 1.5, "live": True}, b":"),
    encode({"protocol": PROTOCOL, "id": "i.1.4", "verb": "send", "agent": "fuzz"}, b"x"),
    encode({"protocol": PROTOCOL, "id": "i.1.5", "verb": "wait", "agent": "fuzz", "timeout": 0.001}),
    encode({"protocol": PROTOCOL, "id": "i.1.6", "verb": "cancel", "request": "i.1.1"}),
    encode({"protocol": PROTOCOL, "id": "i.1.7", "verb": "resize", "agent": "fuzz", "columns": 80, "rows": 25}),
    encode({"protocol": PROTOCOL, "id": "i.1.8", "verb": "job_output", "agent": "fuzz", "job": 1, "name": "stdout"}),
]


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Messages that were almost proper, and what is none at all."""
    data = bytearray()
    for piece in draw(st.lists(st.sampled_from(SEEDS) | st.binary(max_size=60), max_size=6)):
        data += piece
    change: Callable[[bytearray, int, bytes], None]
    for change in draw(st.lists(st.sampled_from([overwrite, insert, cut]), max_size=4)):
        change(data, draw(st.integers(0, len(data))), draw(st.binary(min_size=1, max_size=4)))
    return bytes(data)


def overwrite(data: bytearray, at: int, with_: bytes) -> None:
    data[at : at + len(with_)] = with_


def insert(data: bytearray, at: int, what: bytes) -> None:
    data[at:at] = what


def cut(data: bytearray, at: int, size: bytes) -> None:
    del data[at : at + size[0]]


@given(stream=streams(), split=st.integers(0, 400))
def test_whatever_comes_only_coded_errors_go(
    daemon: Daemon, healthy: RemoteSession, place: Path, stream: bytes, split: int
) -> None:
    with Raw(daemon.socket) as raw:
        raw.open("fuzz", place)
        own = f"{raw.hello['incarnation']}.{raw.hello['connection']}.".encode()
        stream = stream.replace(b"i.1.", own)
        with suppress(BrokenPipeError, ConnectionResetError):  # it has heard enough
            raw.socket.sendall(stream[:split])
            raw.socket.sendall(stream[split:])
            raw.socket.shutdown(socket.SHUT_WR)
        with suppress(EOFError, ConnectionResetError):
            while True:
                header = raw.receive().header
                assert "value" in header or "result" in header or header["error"]["code"] in CODES
    assert healthy.run("echo well").stdout == "well\n"
