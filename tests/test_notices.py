"""``events``: in sessions of every kind what happens comes as notices; and ``Notices``, which makes them."""

from __future__ import annotations

import math
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import kinds
import pytest
from gates import Gate
from hypothesis import given, strategies as st
from system import PATIENCE, wait_until

from shellsession import TTY, InvalidRequest, Limits, Notice, Policy, Session, SessionClosed, notices as notices_module
from shellsession.notices import WATCHES, Notices, Watch

sh = kinds.sh

pytestmark = pytest.mark.usefixtures("company")


def first(sh: Session, kind: str, **options: Any) -> Notice:
    """Return the next notice of that kind."""
    return next(notice for notice in sh.events(timeout=PATIENCE, **options) if notice.kind == kind)


def test_events_job_prints_a_pattern_and_ends_each_comes_once(sh: Session, place: Path) -> None:
    gate = Gate(place)
    before = time.time()
    sh.run(f"({gate.text}; exit 3) 2>&1 &")
    events = sh.events(pattern="^be.un|^ended", timeout=PATIENCE)
    printed = next(events)
    gate.open()
    rest = [next(events), next(events)]
    assert [(one.number, one.kind, one.id, one.text) for one in (printed, *rest)] == [
        (1, "printed", "j1", "begun"),
        (2, "printed", "j1", "ended"),
        (3, "ended", "j1", "exit status 3"),
    ]
    assert (printed.watch, rest[1].exit_code) == ("^be.un|^ended", 3)
    assert before - 1 < printed.time < time.time() + 1
    assert list(sh.events(timeout=0.05)) == []  # each once
    assert [one.number for one in sh.events(after=1, timeout=0.05)] == [3]  # the pattern was of another reader
    assert [one.number for one in sh.events(pattern="^be.un|^ended", after=0, timeout=0.05)] == [1, 2, 3]


def test_events_job_that_ended_before_the_first_reader_comes(sh: Session, place: Path) -> None:
    gate = Gate(place)
    sh.run(f"({gate.text}; exit 4) &")
    gate.open()
    wait_until(lambda: not sh.jobs()[-1].running, "the end of the job")
    assert first(sh, "ended").id == "j1"


def test_events_command_handed_back_is_silent_asks_and_ends(sh: Session) -> None:
    result = sh.run("read -p 'Name? ' name; echo hi; exit 5", stdin=TTY, on_timeout="yield")
    assert result.outcome == "input"
    asked = first(sh, "input")
    assert (asked.id, asked.text) == (result.id, "Name?")
    assert first(sh, "silent", silence=0.05).id == result.id
    sh.send("ann\n")
    lost = first(sh, "lost")
    assert (lost.id, lost.exit_code) == (result.id, 5)
    assert "exit status 5" in lost.text


def test_events_command_asks_while_nobody_waits_for_it_comes(sh: Session, place: Path) -> None:
    gate = Gate(place)
    result = sh.run(f"{gate.text}; read -p 'Sure? ' x", stdin=TTY, timeout=0.1, on_timeout="yield")
    assert result.outcome == "running"
    events = sh.events(timeout=PATIENCE)
    gate.open()
    assert [(one.kind, one.text) for one in [next(events)]] == [("input", "Sure?")]
    sh.send("y\n")
    assert next(events).kind == "ended"


def test_events_limit_comes_and_ordinary_commands_do_not(sh: Session) -> None:
    events = sh.events(timeout=PATIENCE)
    sh.run("echo a")
    sh.run("sleep 99", timeout=0.05)
    sh.run("yes", limits=Limits(max_output=1000, on_overflow="kill"))
    assert [(one.kind, one.id) for one in (next(events), next(events))] == [("limit", "c2"), ("limit", "c3")]


def test_events_bash_that_dies_while_idle_is_lost(sh: Session, place: Path) -> None:
    gate = Gate(place)
    events = sh.events(timeout=PATIENCE)
    sh.run(f"({gate.text}; kill -9 $$) & disown")
    gate.open()
    assert "lost" in {next(events).kind, next(events).kind}  # the job ends as well


def test_events_closed_session_ends_the_loop(sh: Session) -> None:
    events = sh.events()
    threading.Timer(0.1, sh.close).start()  # as a rule while the loop waits, but it may be before
    assert [one for one in events if one.kind != "lost"] == []
    with pytest.raises(SessionClosed):
        sh.events()


def test_events_slow_reader_gets_the_number_of_dropped_notices(sh: Session, place: Path) -> None:
    """A flood of matches is rate limited, and the last one comes even so."""
    gate = Gate(place)
    events = sh.events(pattern="^[0-9]+$", timeout=PATIENCE)
    sh.run(f"({gate.text}; seq 3000; sleep 9) &")  # what is printed before the call returns is in its result
    gate.open()
    seen = 0
    for notice in events:
        seen += 1 + notice.dropped
        if notice.text == "3000":
            break
    assert seen == 3000
    assert notice.number < 100


def test_events_handed_back_command_ends_with_its_status(sh: Session, place: Path) -> None:
    gate = Gate(place)
    result = sh.run(f"{gate.text}; (exit 7)", timeout=0.1, on_timeout="yield")
    events = sh.events(timeout=PATIENCE)
    gate.open()
    ended = next(events)
    assert (ended.kind, ended.id, ended.exit_code, ended.text) == ("ended", result.id, 7, "exit status 7")


def test_events_reader_is_told_how_many_notices_are_gone(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setattr(notices_module, "_KEPT", 2000)
    os.mkfifo(go := place / "go")
    with Session() as sh:
        events = sh.events(pattern="^[0-9]+$", timeout=PATIENCE)
        sh.run(f"(read x <{go}; seq 15; sleep 99) &")
        go.write_text("\n")
        wait_until(
            lambda: [one.text for one in sh.events(after=0, pattern="^[0-9]+$", timeout=0.01)][-1:] == ["15"], "15"
        )
        oldest, *rest = [next(events) for _ in range(5)]
        assert oldest.dropped > 5
        assert int(oldest.text) == oldest.dropped + 1
        assert [one.dropped for one in rest] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": "("}, "pattern: '\\('"),
        ({"silence": 0}, "silence must be a positive number of seconds"),
        ({"after": -1}, "after must be the number of a notice, or 0, not -1"),
        ({"timeout": "1"}, "timeout must be a positive number of seconds"),
    ],
)
def test_events_wrong_option_is_refused(sh: Session, options: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        sh.events(**options)


def test_events_text_shows_no_secret_whole_or_cut(place: Path) -> None:
    """Patterns are searched for in what was printed; what is told of it is masked, and then cut."""
    value = "hunter2" * 3
    os.mkfifo(go := place / "go")
    with Session(policy=Policy(secrets=[value])) as sh:
        events = sh.events(pattern="x$", timeout=PATIENCE)
        sh.run(f"(read x <{go}; printf '%490s {value} x\\n' a; sleep 99) &")
        go.write_text("\n")
        assert next(events).text.endswith(" a *** x")
        sh.run(f"(read x <{go}; printf {value}; printf %4090s q; sleep 99) &")
        events = sh.events(pattern="2  ", timeout=PATIENCE)
        go.write_text("\n")
        assert next(events).text.startswith("*** ")
        sh.run(f'read -p "{value} $(printf %490s b) ?" a', stdin=TTY, on_timeout="yield")
        assert first(sh, "input").text.endswith("b ?")
        assert str(sh.why()).endswith('b ?"')
        assert not any("unter" in one.text for one in sh.events(pattern=".", after=0, timeout=0.1))


# -- the machine


def texts(notices: Notices, watch: Watch, after: int = 0) -> list[str]:
    return [notice.text for notice in notices.read(after, watch)[1]]


@given(st.lists(st.sampled_from([b"a", b"b", b"\r\n", b"\n", "é".encode()]), max_size=30), st.data())
def test_notices_each_line_that_matches_comes_once_however_it_is_cut(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    pattern = data.draw(st.sampled_from(["^a|éb", "b$", r"\Aa", "(?<!a)b$", "ab*", r"[^x]+b\b"]))
    if "$" in pattern or "*" in pattern or "+" in pattern:  # a line that is cut there may match earlier
        cuts = []
    notices, watch = Notices(0.0), Watch(re.compile(pattern))
    notices.watch(watch, 0.0)
    notices.follow("j1", 0.0)
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        notices.output("j1", "stdout", whole[start:end], float(end))
    lines = [line for line in whole.decode().split("\n") if re.search(pattern, line.rstrip("\r"))]
    found = texts(notices, watch)
    assert len(found) == len(lines)
    assert all(line.startswith(text) for line, text in zip(lines, found, strict=True))


def test_notices_rate_is_limited_and_what_is_suppressed_is_counted() -> None:
    notices, watch = Notices(1000.0), Watch(re.compile("x"))
    notices.watch(watch, 0.0)
    notices.follow("j1", 0.0)
    notices.output("j1", "stdout", b"".join(b"x%d\n" % at for at in range(1000)), 1.0)
    assert len(texts(notices, watch)) == 20
    assert notices.next_moment == pytest.approx(1.2)
    notices.tick(1.25)
    last = notices.read(0, watch)[1][-1]
    assert (last.text, last.dropped, last.time) == ("x999", 979, 1001.25)
    assert notices.next_moment == math.inf
    notices.output("j1", "stdout", b"x\n" * 100, 2.26)
    assert len(texts(notices, watch)) == 21 + 5  # of a second
    notices.tick(99.0)
    notices.output("j1", "stdout", b"x\n" * 100, 199.0)
    assert len(texts(notices, watch)) == 21 + 5 + 1 + 20  # not more after a long time


def test_notices_line_that_is_longer_than_what_is_kept_keeps_its_beginning() -> None:
    notices, watch = Notices(0.0, lambda text: text.replace("secret", "***")), Watch(re.compile("end|bar$"))
    notices.watch(watch, 0.0)
    notices.follow("j1", 0.0)
    for part in (
        b"the secret ",
        b"." * 4500,
        b"." * 40_000,
        b" end",
        b"\n",
        b"10 %\r90 %",
        b" bar\r\n\x07end\ta\xe2\x80\xaeb\n",
    ):
        notices.output("j1", "stdout", part, 1.0)
    assert texts(notices, watch) == ["90 % bar", "end a\\u202eb"]  # a line is searched up to 4096 characters
    for part in (b"bar\r", b"no\rbar", b"\r\nbar\n"):
        notices.output("j1", "stdout", part, 1.5)
    assert texts(notices, watch)[2:] == ["bar", "bar"]  # once for each line, however often it is written
    notices.output("j1", "stdout", b"the end, " + b"secret " * 500, 2.0)
    assert texts(notices, watch)[-1] == f"the end,{' ***' * 123} ..."


def test_notices_silence_comes_once_until_the_next_output() -> None:
    notices, watch = Notices(0.0), Watch(silence=5.0)
    notices.watch(watch, 0.0)
    notices.follow("j1", 0.0)
    assert notices.next_moment == 5.0
    for moment in (4.9, 5.0, 9.0):
        notices.tick(moment)
    notices.output("j1", "stdout", b"a", 10.0)
    notices.output("j1", "stdout", b"b", 16.0)  # nobody has looked in between
    assert len(texts(notices, watch)) == 2
    assert texts(notices, Watch(silence=6.0)) == texts(notices, Watch()) == []


def test_notices_full_buffer_drops_the_oldest_and_counts_them() -> None:
    notices = Notices(0.0)
    for at in range(10_000):
        notices.follow(f"j{at}", 0.0)
        notices.end("ended", f"j{at}", "exit status 0", 0.0, 0)
    dropped, kept = notices.read(0, Watch())
    assert dropped + len(kept) == 10_000
    assert 500 < len(kept) < 2000
    assert notices.read(10_001, Watch()) == (dropped, kept)  # a number of an earlier session


def test_notices_watches_are_bounded_and_expire() -> None:
    notices, first = Notices(0.0), Watch(re.compile("0"))
    assert notices.watch(first, 0.0)
    assert not notices.watch(first, 1.0)
    for at in range(WATCHES):
        notices.watch(Watch(re.compile(f"{at + 1}")), 2.0)
    assert notices.watch(first, 3.0)
    notices.tick(4000.0)
    assert notices.watch(first, 4000.0)
