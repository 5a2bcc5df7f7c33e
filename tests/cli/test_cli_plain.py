"""The fast path of ``run`` skips the parser, but means the same and sends the same."""

from __future__ import annotations

import builtins
import shlex
from typing import Any, Final

import commands
import pytest
from daemons import Daemon
from hypothesis import given, strategies as st

from shellsession import Result
from shellsession.cli import plain
from shellsession.cli.main import main
from shellsession.cli.run import own_parser
from shellsession.cli.words import quoted, script
from shellsession.daemon.client.exchange import CancelOutcome, Exchange
from shellsession.daemon.protocol.wire import Message
from shellsession.models import check_seconds

agent = commands.agent

# What decides how words are taken, more often than chance would have it.
_WORDS: Final = st.sampled_from(
    [
        *("-s", "--session", "--timeout", "--", "-", "--json", "--tty", "-i", "--help", "-sx", "--session=x", "--cwd"),
        *("--timeout=3", "--sess", "-h", "-1", "", "a", "make", "b c", "-x=1", "\udce9", "-s a", "@x"),
        *("5", "0", "00", "1e3", "2.5", "-5", "\u0663", "999999999", "1000000000", "inf"),
    ]
)


@given(st.lists(_WORDS, max_size=7))
def test_what_it_understands_the_parser_understands_so(words: list[str]) -> None:
    call = plain.parse(words)
    if call is None:
        return
    usual = vars(own_parser().parse_args(["--", "x"]))
    parsed = own_parser().parse_args(words)
    command = parsed.command[1:] if parsed.command[:1] == ["--"] else parsed.command
    timeout = ... if call.timeout is None else call.timeout
    assert (call.agent, timeout, call.command) == (parsed.session, parsed.timeout, command)
    assert vars(parsed) == {**usual, "session": call.agent, "timeout": timeout, "command": parsed.command}
    check_seconds("timeout", call.timeout)


@pytest.mark.parametrize(
    "line", ["true", "-- true", "-s a -- make test", "--timeout 5 -s a -- -x", "-- ''", "a --json"]
)
def test_it_understands_the_common_call(line: str) -> None:
    assert plain.parse(shlex.split(line)) is not None


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=2))
def test_words_are_quoted_as_shlex_does(words: list[str]) -> None:
    assert script(words) == shlex.join(words).encode()
    assert quoted(b"\xe9") == b"'\xe9'"


@pytest.mark.parametrize("line", ["-- echo hi", "--timeout 7 -- printf %s 'two words' \"it's\"", "-- exit 3"])
def test_it_sends_what_run_sends(daemon: Daemon, agent: str, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    sent = list[Any]()
    made = Exchange.__init__

    def noted(
        self: Exchange, backend: Any, transport: Any, request: Any, expected: str = "", start: bool = False
    ) -> None:
        sent.append((str(transport), request, expected, start))
        made(self, backend, transport, request, expected, start)

    monkeypatch.setattr(Exchange, "__init__", noted)
    monkeypatch.setenv("SHELLSESSION_SOCKET", daemon.socket)
    words = ["run", "-s", agent, *shlex.split(line)]
    status = main(words)
    plainly, sent[:] = sent.copy(), []
    monkeypatch.setattr(plain, "parse", lambda words: None)
    assert main(words) == status
    assert plainly == sent
    assert [request.header["verb"] for _, request, *_ in sent] == ["open", "run"]


def test_a_late_result_of_a_cancelled_command_is_not_shown(
    daemon: Daemon, agent: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """To load what would show it takes long enough for that, and a second Ctrl-C has said that nobody waits for it."""
    outcomes, ask, load = list[CancelOutcome](), Exchange.next, builtins.__import__

    class Noted(CancelOutcome):
        def __init__(self) -> None:
            super().__init__()
            outcomes.append(self)

    async def interrupted(exchange: Exchange) -> Message:
        if outcomes:
            raise KeyboardInterrupt
        return await ask(exchange)

    def loaded(name: str, *rest: Any) -> Any:
        if outcomes:
            outcomes[0].result = Result(b"late", b"", 130, 2, "/", 0.1, "interrupted")
        return load(name, *rest)

    monkeypatch.setenv("SHELLSESSION_SOCKET", daemon.socket)
    monkeypatch.setattr(plain, "CancelOutcome", Noted)
    monkeypatch.setattr(Exchange, "next", interrupted)
    monkeypatch.setattr(builtins, "__import__", loaded)
    with pytest.raises(KeyboardInterrupt):
        plain.run(["-s", agent, "true"], lambda: None)
    assert capfd.readouterr().out == ""
