"""What every session promises: ``Session``, ``AsyncSession``, both of them over the daemon, and through a pipe."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, cast

import kinds
import pexpect
import pytest
from gates import Gate
from system import PATIENCE, is_alive, unique_seconds, wait_until, with_argument

from shellsession import (
    TTY,
    CommandFailed,
    CommandTimeout,
    InvalidRequest,
    KeyConflict,
    Limits,
    NoSuchOutput,
    NotRunning,
    Result,
    Session,
    SessionBusy,
    SessionClosed,
    Snapshot,
)
from shellsession.inner import InnerHere
from shellsession.models import Changes
from shellsession.state.values import Variable

sh = kinds.sh

pytestmark = pytest.mark.usefixtures("company")

SOON = 0.3
ENOUGH = 1.0  # for bash to have printed what the result of a cut command has


def test_state_and_status_live_from_call_to_call(sh: Session) -> None:
    sh.run("cd /; X=1; f() { echo f$X; }; (exit 3)")
    result = sh.run("echo $?; pwd; f; echo err >&2")
    assert (result.stdout, result.stderr, result.exit_code) == ("3\n/\nf1\n", "err\n", 0)
    assert (result.cwd, result.outcome, result.state_kept) == ("/", "exited", True)


def test_idempotency_key_runs_a_command_once_or_is_refused_with_the_reason(sh: Session, tmp_path: Path) -> None:
    text = f"echo ran >>{tmp_path}/log; echo out; (exit 3)"
    if isinstance(sh, Session | kinds.Blocking) and not hasattr(sh, "agent"):  # in this process
        with pytest.raises(InvalidRequest, match=r"use connect\(\)"):
            sh.run(text, idempotency_key="k")
        assert not (tmp_path / "log").exists()
        return
    first = sh.run(text, idempotency_key="k")
    again = sh.run(text, idempotency_key="k")
    assert again == first.__replace__(replayed=True, output_kept=False)
    with pytest.raises(KeyConflict):
        sh.run("true", idempotency_key="k")
    assert (tmp_path / "log").read_text() == "ran\n"


def test_result_names_its_command(sh: Session) -> None:
    assert sh.run("echo a").command == "echo a"
    assert sh.run(b"printf '\\xe9' # \xe9").command == "printf '\\xe9' # \ufffd"
    assert sh.run(["echo", "a b"]).command == "echo 'a b'"
    assert len(sh.run("true #" + "x" * 10_000).command) == 4096
    result = sh.run("sleep 99", timeout=0.1, on_timeout="yield")
    assert (result.command, sh.interrupt().command) == ("sleep 99", "sleep 99")
    assert sh.run("exit 3").command == "exit 3"


def test_the_first_line_has_the_same_number(sh: Session) -> None:
    with Session() as local:
        assert sh.run("echo $LINENO").stdout == local.run("echo $LINENO").stdout


@pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])
def test_bytes_pass_unchanged_both_ways(sh: Session, tty: bool) -> None:
    data = bytes(range(256)) * 400
    result = sh.run("tee /dev/stderr", stdin=data, tty=tty)
    assert (result.stdout_bytes, result.stderr_bytes) == (data, data)


def test_a_time_limit_interrupts_and_keeps(sh: Session) -> None:
    seconds = unique_seconds()
    sh.run("X=1")
    result = sh.run(f"echo partial; sleep {seconds}", timeout=ENOUGH)
    assert (result.stdout, result.outcome, result.state_kept) == ("partial\n", "timed_out", True)
    assert with_argument(seconds) == []
    assert sh.run("echo $X").stdout == "1\n"


def test_a_time_limit_kills_when_asked(sh: Session) -> None:
    result = sh.run("echo partial; sleep 100", timeout=ENOUGH, on_timeout="kill")
    assert (result.stdout, result.outcome, result.state_kept, result.signal) == ("partial\n", "timed_out", False, 9)
    assert sh.run("echo fresh").stdout == "fresh\n"


def test_why_and_each_result_say_what_the_command_waits_for(sh: Session) -> None:
    assert (sh.why().kind, str(sh.why())) == ("nothing", "no command runs")
    os.mkfifo(fifo := f"{sh.cwd}/f")
    said = f"cat opens the FIFO {fifo}, which nobody writes"
    handed_back = sh.run(["cat", fifo], timeout=ENOUGH, on_timeout="yield")
    assert handed_back.reason == f"the time limit passed: {said}"
    assert handed_back.for_model().endswith(f"s ({said})]")
    with ThreadPoolExecutor(1) as threads:  # while another caller waits on the command, too
        waiting = threads.submit(sh.wait, 60)
        why = sh.why()
        assert (why.kind, str(why), why.comm) == ("fifo", said, "cat")
        assert sh.interrupt().outcome == waiting.result().outcome == "interrupted"
    ended = sh.run("read -p 'Continue? [Y/n] ' x", stdin=TTY)
    assert ended.for_model().endswith(' (bash reads the terminal after "Continue? [Y/n]")]')
    sh.interrupt()
    assert sh.run("sleep 99", timeout=ENOUGH).reason == "the time limit passed: sleep sleeps"
    assert sh.why().kind == "nothing"


def test_a_time_limit_hands_back_when_asked(sh: Session, place: Path) -> None:
    first = sh.run("echo a; echo >said; sleep 100", timeout=SOON, on_timeout="yield")
    assert first.outcome == "running"
    with pytest.raises(SessionBusy):
        sh.run("echo never")
    wait_until((place / "said").exists, "the words")
    assert first.stdout + sh.poll().stdout == "a\n"
    assert (sh.poll().stdout, sh.wait(0.05).outcome) == ("", "running")
    assert sh.interrupt().outcome == "interrupted"
    for verb in (sh.poll, sh.wait, sh.interrupt):
        with pytest.raises(NotRunning):
            verb()
    assert sh.run("echo free").stdout == "free\n"


@pytest.mark.sampled
@pytest.mark.parametrize("verb", ["run", "stream"])
@pytest.mark.parametrize("limit", [{"patience": SOON}, {"timeout": SOON}], ids=["patience", "timeout"])
def test_a_command_whose_patience_ends_in_the_queue_is_refused(
    sh: Session, gate: Gate, verb: str, limit: dict[str, float]
) -> None:
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(sh.run, gate.text)
        gate.until_begun()
        with pytest.raises(SessionBusy, match="for as long as this one may wait"):
            [*getattr(sh, verb)("touch never", **limit)]
        gate.open()
        assert first.result(PATIENCE).stdout == "begun\nended\n"
    assert sh.run("echo *").stdout == "count open\n"


def test_a_command_waits_for_its_turn_longer_than_its_time_limit_if_it_may(sh: Session, gate: Gate) -> None:
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(sh.run, gate.text)
        gate.until_begun()
        second = threads.submit(sh.run, "echo here", timeout=ENOUGH, patience=None)
        with pytest.raises(SessionBusy):
            sh.run("echo never", patience=1.2 * ENOUGH)
        gate.open()
        assert first.result(PATIENCE).ok
        assert second.result(PATIENCE).stdout == "here\n"


def test_silence_has_its_limit(sh: Session) -> None:
    result = sh.run("echo a; sleep 100", idle_timeout=ENOUGH)
    assert (result.stdout, result.outcome) == ("a\n", "idle")


def test_check_raises_with_the_result(sh: Session) -> None:
    with pytest.raises(CommandFailed) as failed:
        sh.run("echo out; (exit 3)", check=True)
    assert failed.value.result.exit_code == 3
    with pytest.raises(CommandTimeout) as late:
        sh.run("echo out; sleep 100", check=True, timeout=ENOUGH)
    assert late.value.result.stdout == "out\n"
    with pytest.raises(CommandFailed, match="exit status 0") as cut:
        sh.run("echo out; exit 0; touch never", check=True)
    assert (cut.value.result.outcome, cut.value.result.ok) == ("shell_exited", False)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "5", True], ids=repr)
def test_bad_arguments_are_refused(sh: Session, timeout: Any) -> None:
    with pytest.raises(InvalidRequest):
        sh.run("echo never", timeout=timeout)
    with pytest.raises(InvalidRequest):
        sh.run("echo never", patience=timeout)
    with pytest.raises(InvalidRequest):
        sh.run("a\0b")
    wrong: Any = "no"
    with pytest.raises(InvalidRequest, match="check is True or False, not 'no'"):
        sh.run("echo never", check=wrong)
    for name in ("tty", "merge_stderr", "isolated", "echo"):
        with pytest.raises(InvalidRequest, match=rf"^{name} is True or False, not 1$"):
            sh.run("echo never", **cast(dict[str, Any], {name: 1}))
    assert sh.pid is None


def test_a_dialogue_on_the_terminal(sh: Session) -> None:
    first = sh.run("read -p 'Name? ' n; read -p 'Age? ' a; echo $n $a; (exit 6)", stdin=TTY)
    assert (first.outcome, first.stderr) == ("input", "Name? ")
    sh.type("Zoë\n")
    assert sh.expect(["never", "Ag(.)"]) == 1
    assert (sh.match.group(1), sh.after) == ("e", "Age")
    with pytest.raises(pexpect.TIMEOUT):
        sh.expect_exact("never", timeout=0.05)
    last = sh.send("7\n")
    assert (last.stdout, last.exit_code, last.outcome) == ("Zoë 7\n", 6, "exited")


def test_a_command_without_the_terminal_never_hangs_on_it(sh: Session) -> None:
    result = sh.run("read x </dev/tty; echo never")
    assert (result.outcome, result.stdout) == ("interrupted", "")
    assert "input" in result.reason


def test_the_end_of_the_shell_is_reported(sh: Session) -> None:
    result = sh.run("echo partial; exit 3")
    assert (result.stdout, result.outcome, result.exit_code) == ("partial\n", "shell_exited", 3)
    assert not result.state_kept
    assert sh.run("echo $?").stdout == "0\n"


def test_limits_hold(sh: Session) -> None:
    result = sh.run("seq 20000", limits=Limits(max_output=10))
    assert (result.stdout_bytes, result.stdout_omitted) == (b"1\n2\n39999\n"[:5] + b"0000\n", 108894 - 10)
    result = sh.run("yes", limits=Limits(max_output=10, on_overflow="kill"))
    assert (result.outcome, result.state_kept) == ("overflow", True)


def test_a_cut_output_is_read_by_pages(sh: Session) -> None:
    result = sh.run("seq 100000; echo err >&2", limits=Limits(max_output=1000))
    assert (result.id, result.stdout_omitted) == ("c1", 588895 - 1000)
    assert 'omitted; read_output("c1", ...) shows them ...]' in result.for_model(2000)
    assert sh.read_output("c1", lines=(70000, 70002)) == "70000\n70001\n70002\n"
    assert sh.read_output("c1", grep="^9*$", lines=(10, None)) == "99:99\n999:999\n9999:9999\n99999:99999\n"
    assert sh.read_output("c1", bytes=(588883, None)) == "9999\n100000\n"
    assert sh.read_output("c1", "stderr") == "err\n"
    assert sh.read_output("c1", lines=(100001, None)) == sh.read_output("c1", grep="x") == ""


@pytest.mark.sampled
@pytest.mark.parametrize("by", ["lines", "bytes"])
def test_the_marks_of_the_pages_lead_through_the_whole_output(sh: Session, by: str) -> None:
    """A character is never split, and no page is longer than requested."""
    result = sh.run("for i in {1..3000}; do echo ä€$i; done", limits=Limits(max_output=1000))
    read, part = "", {by: (1, None) if by == "lines" else (0, None)}
    while part:
        shown = sh.read_output(result.id, max_chars=500, **cast(Any, part))
        assert len(shown) <= 500
        text, _, mark = shown.partition("[... more follows")
        found = re.search(rf"{by}=\((\d+), None\)\) shows the next \.\.\.\]$", mark)
        read, part = read + text, {by: (int(found[1]), None)} if found else {}
    assert read == "".join(f"ä€{number}\n" for number in range(1, 3001))


def test_the_last_outputs_are_kept_and_an_error_names_them(sh: Session) -> None:
    """A short one and a long one do not displace each other."""
    assert sh.run("echo first").id == "c1"
    sh.run("seq 10000")
    for number in range(20):
        assert sh.run(f"echo {number}").id == f"c{number + 3}"
    with pytest.raises(NoSuchOutput, match=r"output 'c1' is not kept .*; kept outputs: c2, c3, .*, c22; "):
        sh.read_output("c1")
    assert sh.read_output("c3") == "0\n"
    sh.restart()
    assert sh.run("echo after").id == "c23"
    assert sh.read_output("c2", lines=(10000, None)) == "10000\n"
    for wrong in ({"lines": (0, 1)}, {"grep": "("}, {"bytes": (3, 1)}, {"bytes": (0, 1), "lines": (1, 2)}):
        with pytest.raises(InvalidRequest):
            sh.read_output("c2", **cast(Any, wrong))


def test_a_command_that_was_handed_back_has_one_output(sh: Session, place: Path) -> None:
    os.mkfifo(place / "fifo")
    first = sh.run("seq 5000; read x <fifo; seq 5001 10000", timeout=SOON, on_timeout="yield")
    assert sh.wait(until="^5000$").matched
    assert sh.read_output(first.id, grep="5000") == "5000:5000\n"
    (place / "fifo").write_text("on\n")
    last = sh.wait()
    assert (first.id, last.id, last.stdout[:5]) == ("c1", "c1", "5001\n")
    assert sh.read_output("c1", lines=(4999, 5002)) == "4999\n5000\n5001\n5002\n"


def test_who_hears_output_may_ask_how_the_session_is(sh: Session) -> None:
    seen = list[object]()
    sh.run("echo a", on_output=lambda *_: seen.append((sh.cwd, sh.size, sh.jobs())))
    assert seen == [(sh.cwd, sh.size, [])]


def test_output_is_received_and_streamed(sh: Session) -> None:
    heard: list[tuple[str, bytes]] = []
    sh.run("echo a; echo b >&2", on_output=lambda *piece: heard.append(piece))
    assert sorted(heard) == [("stderr", b"b\n"), ("stdout", b"a\n")]
    *pieces, last = sh.stream("echo a; (exit 4)")
    assert pieces == [("stdout", b"a\n")]
    assert isinstance(last, Result)
    assert last.exit_code == 4


def test_behind_its_own_stream_nothing_is_run(sh: Session) -> None:
    pieces = sh.stream("echo a; sleep 1000")
    assert next(pieces) == ("stdout", b"a\n")
    with pytest.raises(SessionBusy):
        sh.run("echo never")
    sh.interrupt()
    last = list(pieces)[-1]
    assert isinstance(last, Result)
    assert last.outcome == "interrupted"
    assert sh.run("echo now").stdout == "now\n"
    with pytest.raises(InvalidRequest):
        sh.stream("a\0b")
    with pytest.raises(InvalidRequest, match="run\\(stdin=TTY\\)"):
        sh.stream("read x", stdin=TTY)  # type: ignore[arg-type]  # refused for that


def test_behind_the_result_of_a_stream_the_session_is_free(sh: Session) -> None:
    outcomes = [sh.run("true").outcome for item in sh.stream("echo a") if isinstance(item, Result)]
    assert outcomes == ["exited"]


def test_stream_at_its_time_limit_keeps_the_shell(sh: Session) -> None:
    sh.run("X=kept")
    *_, last = sh.stream("sleep 1000", timeout=SOON)
    assert isinstance(last, Result)
    assert (last.outcome, last.state_kept, sh.run("echo $X").stdout) == ("timed_out", True, "kept\n")


def test_leaving_a_stream_interrupts_the_command(sh: Session) -> None:
    seconds = unique_seconds()
    stream = sh.stream(f"echo a; sleep {seconds}")
    assert next(stream) == ("stdout", b"a\n")
    stream.close()
    assert with_argument(seconds) == []
    assert sh.run("echo free").stdout == "free\n"


def test_a_job_is_read_while_nobody_calls(sh: Session, place: Path) -> None:
    result = sh.run("{ head -c 3000000 /dev/zero | tr '\\0' x; echo >done; } &")
    assert len(result.background) == 1
    wait_until((place / "done").exists, "the job's end")
    (job,) = sh.jobs()
    wait_until(lambda: not job.running, "the job's end")
    kept, omitted = job.output("stdout")
    # What came before the mark is in the call's own result.
    assert len(result.stdout_bytes) + result.stdout_omitted + len(kept) + omitted == 3_000_000
    assert sh.run("echo mine").stdout == "mine\n"


def test_a_job_is_killed(sh: Session) -> None:
    seconds = unique_seconds()
    sh.run(f"sleep {seconds} &")
    assert sh.jobs()[0].kill()
    wait_until(lambda: not with_argument(seconds), "the end of the job")


def test_restart_and_close(sh: Session) -> None:
    seconds = unique_seconds()
    sh.run(f"X=1; sleep {seconds} &")
    sh.restart()
    assert with_argument(seconds) == []
    assert sh.run("echo [$X]").stdout == "[]\n"
    sh.close()
    sh.close()
    assert (sh.closed, sh.pid, sh.jobs()) == (True, None, [])


def test_errexit_ends_a_command_at_its_first_failure_and_no_other(sh: Session) -> None:
    result = sh.run("f() { ls /nope; echo never; }; X=1; f; echo never", errexit=True)
    assert (result.stdout, result.exit_code, result.outcome, result.state_kept) == ("", 2, "exited", True)
    assert sh.run("false; echo $X").stdout == "1\n"
    *pieces, end = sh.stream("echo a; false; echo never", errexit=True)
    assert (len(pieces), isinstance(end, Result) and end.exit_code) == (1, 1)
    assert sh.run("set -o errexit; true", errexit=True).ok
    assert sh.run("false; echo on").stdout == "on\n"
    with pytest.raises(InvalidRequest, match="errexit"):
        sh.run("true", errexit=cast(bool, "yes"))


def test_restart_keeps_the_state_if_asked(sh: Session) -> None:
    seconds = unique_seconds()
    sh.run(f"cd /usr; X='a b'; f() {{ echo $X; }}; set -o pipefail; sleep {seconds} &")
    pid = sh.pid
    report = sh.restart(keep_state=True)
    assert (report.not_restored, sh.restored, sh.pid != pid) == ((), report, True)
    assert with_argument(seconds) == []
    assert sh.run("f; pwd; set -o | grep pipefail").stdout.split() == ["a", "b", "/usr", "pipefail", "on"]
    sh.run("sleep 100", timeout=0.1, on_timeout="yield")
    with pytest.raises(SessionBusy):
        sh.restart(keep_state=True)
    sh.interrupt()
    with pytest.raises(InvalidRequest, match="keep_state"):
        sh.restart(keep_state=cast(bool, 1))
    assert sh.run("f").stdout == "a b\n"


def test_snapshot_is_restored_after_the_end_of_the_shell(sh: Session) -> None:
    sh.run(r"""cd /usr; X=$'\xff'; f() { printf %s "$X"; }; T_TOKEN=1; l=(secret-1 2); set -o pipefail""")
    snap = sh.snapshot(exclude=["*_TOKEN"], secrets=["secret-1"])
    assert {tuple(one) for one in snap.left_out} == {("variable", "T_TOKEN"), ("variable", "l")}
    assert not sh.run("exit 3").state_kept
    report = sh.restore(snap)
    assert (report.not_restored, sh.restored) == ((), report)
    result = sh.run("f; echo ${T_TOKEN-none} ${l-none}; set -o | grep pipefail")
    assert result.stdout_bytes.split() == [b"\xffnone", b"none", b"pipefail", b"on"]
    assert (result.cwd, sh.snapshot().functions) == ("/usr", snap.functions)


def test_changes_of_a_command_are_listed_by_name(sh: Session) -> None:
    first = sh.run("X=1; f() { :; }; alias a=b; cd /usr; umask 077; set -o pipefail; trap : USR1", changes=True).changes
    assert first is not None
    assert set(first.added) == {("variable", "X"), ("function", "f"), ("alias", "a"), ("trap", "USR1")}
    assert first.changed == (("option", "pipefail"), ("cwd", "/usr"), ("umask", "0077"))
    second = sh.run("X=2; unset -f f; (Y=1; cd /); echo $RANDOM", changes=True).changes
    assert second == Changes(changed=(("variable", "X"),), removed=(("function", "f"),))
    sh.run("Z=1")
    assert sh.run("true", changes=True).changes == Changes()
    result = sh.run("Y='a secret'; (exit 3)", changes=True)
    assert (result.changes, result.exit_code) == (Changes(added=(("variable", "Y"),)), 3)
    assert Result.from_json(result.to_json()) == result
    assert sh.run("sleep 9", changes=True, timeout=0.1, on_timeout="yield").changes is None
    sh.interrupt()
    assert sh.run("X=4; sleep 99", changes=True, timeout=ENOUGH).changes == Changes(changed=(("variable", "X"),))
    assert sh.run("exit 3", changes=True).changes is None
    assert sh.run("true").changes is None
    with pytest.raises(InvalidRequest, match="changes"):
        sh.run("true", changes=cast(bool, 1))


def test_snapshot_that_is_none_changes_nothing(sh: Session) -> None:
    sh.run("X=kept")
    for wrong in (None, b"x", {"cwd": "/"}):
        with pytest.raises(InvalidRequest, match="must be a Snapshot"):
            sh.restore(cast(Snapshot, wrong))
    with pytest.raises(InvalidRequest, match="exclude must be"):
        sh.snapshot(exclude="X")
    assert sh.run("echo $X").stdout == "kept\n"


def test_snapshot_and_running_command_exclude_each_other(sh: Session) -> None:
    sh.run("sleep 100", timeout=0.1, on_timeout="yield")
    with pytest.raises(SessionBusy):
        sh.snapshot()
    assert sh.restore(Snapshot(cwd="/usr", variables={"X": Variable("1")})).complete
    assert sh.run("pwd; echo $X").stdout == "/usr\n1\n"


_VERBS: Final[dict[str, Callable[[Session], object]]] = {
    "open": lambda sh: sh.open(),
    "run": lambda sh: sh.run("true"),
    "stream": lambda sh: next(iter(sh.stream("true"))),
    "wait": lambda sh: sh.wait(),
    "poll": lambda sh: sh.poll(),
    "why": lambda sh: sh.why(),
    "interrupt": lambda sh: sh.interrupt(),
    "send": lambda sh: sh.send("x"),
    "type": lambda sh: sh.type("x"),
    "expect": lambda sh: sh.expect("x"),
    "expect_exact": lambda sh: sh.expect_exact("x"),
    "restart": lambda sh: sh.restart(),
    "snapshot": lambda sh: sh.snapshot(),
    "restore": lambda sh: sh.restore(Snapshot()),
    "checkpoint": lambda sh: sh.checkpoint(),
    "rollback": lambda sh: sh.rollback("x"),
    "checkpoints": lambda sh: sh.checkpoints(),
    "drop_checkpoint": lambda sh: sh.drop_checkpoint("x"),
    "attempt": lambda sh: sh.attempt("true"),
    "resize": lambda sh: sh.resize(99, 33),
    "events": lambda sh: sh.events(),
    "read_output": lambda sh: sh.read_output("c1"),
    "read_file": lambda sh: sh.read_file("file"),
    "write_file": lambda sh: sh.write_file("file", b""),
}


def test_every_verb_of_a_closed_session_says_the_same(sh: Session) -> None:
    sh.run("true")
    sh.close()
    said = set()
    for verb in _VERBS.values():
        with pytest.raises(SessionClosed, match=r"is closed: .* new one") as caught:
            verb(sh)
        said.add(str(caught.value))
    assert len(said) == 1


def test_every_verb_is_among_these() -> None:
    verbs = {name for name in dir(Session) if callable(getattr(Session, name)) and not name.startswith("_")}
    others = {"close", "jobs", "fork", "fork_many"}  # answered when closed, or only here
    inner = {*dir(InnerHere), *InnerHere.__annotations__, *InnerHere.__mro__[1].__annotations__}
    assert verbs - others - inner == _VERBS.keys()


def test_a_restart_does_not_wait_for_what_queues_which_is_run_in_the_fresh_shell(sh: Session, place: Path) -> None:
    seconds = unique_seconds()
    with ThreadPoolExecutor(5) as threads:
        running = threads.submit(sh.run, f"N=7; sleep {seconds}")
        wait_until(lambda: with_argument(seconds), "the command")
        queued = [threads.submit(sh.run, f"N=$((N+1)); : {i}; echo $N; until [ -e go ]; do :; done") for i in range(3)]
        wait_until(lambda: all(one.running() for one in queued), "the threads")
        threads.submit(sh.restart).result(10)
        (place / "go").touch()
        assert running.result(10).outcome == "shell_exited"
        assert sorted(one.result(10).stdout for one in queued) == ["1\n", "2\n", "3\n"]
    assert sh.run("echo $N").stdout == "3\n"


def test_a_failing_callback_keeps_the_shell(sh: Session) -> None:
    def fail(*_: object) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError):
        sh.run("X=1; echo a; sleep 100", on_output=fail)
    assert sh.run("echo $X").stdout == "1\n"


def test_a_new_size_is_seen(sh: Session) -> None:
    sh.resize(99, 33)
    assert sh.run("stty size <&1").stdout == "33 99\n"


@pytest.mark.sampled
@pytest.mark.parametrize("check", [False, True], ids=["unchecked", "checked"])
@pytest.mark.parametrize(("end", "status"), [(signal.SIGKILL, 128 + signal.SIGKILL), (signal.SIGTERM, 0)], ids=str)
def test_a_command_that_was_not_run_is_reported_as_that(
    sh: Session, place: Path, end: int, status: int, check: bool
) -> None:
    """The status is that of the shell's end, which may be 0."""
    sh.run("trap 'exit 0' TERM")
    pid = sh.pid
    assert pid is not None
    os.kill(pid, end)
    wait_until(lambda: not is_alive(pid), "the end of the shell")
    if check:
        with pytest.raises(CommandFailed, match="not run") as failed:
            sh.run("touch here", check=True)
        lost = failed.value.result
    else:
        lost = sh.run("touch here")
    assert (lost.ran, lost.outcome, lost.state_kept) == (False, "shell_exited", False)
    assert lost.exit_code == status
    assert not (place / "here").exists()
    assert sh.run("touch here").ran
