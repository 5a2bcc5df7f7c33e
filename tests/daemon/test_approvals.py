"""Questions that wait in the daemon: who may answer, what an answer does, and what outlives what."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from commands import cli, running as command
from daemons import Daemon, Raw, running, served
from gates import Gate
from persons import Sits
from questions import POLICY, answered, asked, decide, in_thread, waiting
from sandboxes import needs_bwrap
from system import PATIENCE, PYTHON, wait_until

from shellsession import (
    TTY,
    Daemon as Watcher,
    DaemonUnavailable,
    InvalidRequest,
    Policy,
    PolicyRefused,
    RemoteSession,
    Result,
    Sandbox,
    ShellSessionError,
    connect,
)
from shellsession.daemon.client import admin

PROGRAM = str(Path(sys.executable).with_name("shellsession"))


@pytest.fixture
def sh(daemon: Daemon, agent: str, place: Path) -> Iterator[RemoteSession]:
    """A session whose commands wait for a yes."""
    with connect(agent, daemon.socket, False, cwd=place, policy=POLICY, extra_env={"API_TOKEN": "opensesame"}) as sh:
        yield sh
        sh.close()
    admin.forget(agent, daemon.socket)


def last(raw: Raw) -> dict[str, Any]:
    """The header of the reply, after the event that a person is asked."""
    assert raw.receive().header["event"] == "asks"
    return raw.receive().header


def test_command_runs_once_somebody_has_accepted_it(sh: RemoteSession, daemon: Daemon, place: Path) -> None:
    with in_thread(lambda: sh.run("echo x >> f; cat f")) as result:
        question = asked(daemon, sh.agent)
        assert (question["command"], question["cwd"], question["proposal"]) == ("echo x >> f; cat f", str(place), "")
        assert not (place / "f").exists()
        decide(daemon, question["id"])
        assert result.result().stdout == "x\n"
    assert waiting(daemon, sh.agent) == []


def test_yes_lets_one_call_run_and_no_equal_one_that_came_meanwhile(
    sh: RemoteSession, daemon: Daemon, place: Path
) -> None:
    gate = Gate(place)
    with in_thread(lambda: sh.run(gate.text)) as first:
        decide(daemon, asked(daemon, sh.agent)["id"])
        wait_until(lambda: sh.state == "running", "the first command")
        others = [connect(sh.agent, daemon.socket, False) for _ in range(2)]
        with in_thread(lambda: others[0].run("echo x >> f")) as one:
            decide(daemon, asked(daemon, sh.agent)["id"])
            found = Event()
            others[1].on_wait = lambda _: found.set()
            with in_thread(lambda: others[1].run("echo x >> f")) as two:
                assert found.wait(PATIENCE)  # it has the same yes, and waits for its turn
                gate.open()
                assert one.exception() is None
                with pytest.raises(PolicyRefused, match="used by another call of the same command"):
                    two.result()
        assert first.result().exit_code is not None
    assert (place / "f").read_text() == "x\n"


def test_yes_whose_time_passes_while_the_session_is_busy_says_so(
    raw: Raw, daemon: Daemon, agent: str, place: Path
) -> None:
    gate = Gate(place)
    with connect(agent, daemon.socket, False, cwd=place, policy=Policy(confirm="queue", confirm_timeout=0.5)) as sh:
        raw.say("run", gate.text.encode(), agent=agent, patience=None)
        decide(daemon, asked(daemon, agent)["id"])
        gate.until_begun()
        with in_thread(lambda: sh.run("echo x >> f")) as result:
            decide(daemon, (question := asked(daemon, agent))["id"])
            wait_until(lambda: time.time() > question["until"], "the end of its time")
            gate.open()
            with pytest.raises(PolicyRefused, match=r"begin within 0\.5 s, as the session was busy: call again when"):
                result.result()
        assert not (place / "f").exists()
        assert last(raw)["result"]["exit_code"] == 0
        sh.close()


@pytest.mark.parametrize(
    ("decision", "told"),
    [("decline", "a person declined it: use the mirror"), ("cancel", "a person cancelled it: use the mirror")],
)
def test_decline_gives_the_reason_and_the_session_goes_on(
    decision: str, told: str, sh: RemoteSession, daemon: Daemon
) -> None:
    with pytest.raises(PolicyRefused, match=told):
        answered(sh, daemon, decision, "curl example.org", "use the mirror")
    assert answered(sh, daemon, "accept", "echo on").stdout == "on\n"


def test_second_answer_is_refused_and_names_the_first(sh: RemoteSession, daemon: Daemon) -> None:
    with in_thread(lambda: sh.run("true")) as result:
        id = asked(daemon, sh.agent)["id"]
        answers = [cli(daemon.socket, "approvals", "accept", id) for _ in range(2)]
        assert [one.returncode for one in answers] == [0, 125]
        assert b"is accepted already by" in answers[1].stderr
        assert result.result().exit_code == 0
    with pytest.raises(InvalidRequest, match="no question 'abc' waits here"):
        decide(daemon, "abc")


def test_accept_for_the_session_holds_for_the_same_text_until_close(sh: RemoteSession, daemon: Daemon) -> None:
    text = "bash -c 'echo $0'"
    answered(sh, daemon, "accept_session", text)
    assert sh.run(text).stdout == "bash\n"
    for other in (text + " ", "cd /"):
        with pytest.raises(PolicyRefused, match=r"nobody has answered within 0\.01 s"):
            sh.run(other, patience=0.01)
    with pytest.raises(PolicyRefused):  # elsewhere
        sh.run(text, cwd="/", patience=0.01)
    with pytest.raises(PolicyRefused):  # with another variable
        sh.run(text, env={"X": "1"}, patience=0.01)
    place = sh.cwd
    sh.close()
    with connect(sh.agent, daemon.socket, False, cwd=place, policy=POLICY) as again:
        with pytest.raises(PolicyRefused):
            again.run(text, patience=0.01)
        again.close()


def test_rule_holds_for_its_words_in_each_session_until_it_is_removed(sh: RemoteSession, daemon: Daemon) -> None:
    answered(sh, daemon, "accept_rule", "echo one && true")
    assert sh.run("true; echo 'one'", cwd="/").stdout == "one\n"
    with pytest.raises(PolicyRefused):
        sh.run("echo one two", patience=0.01)
    sh.close()
    with connect(sh.agent, daemon.socket, False, policy=POLICY) as again:
        assert again.run("echo one").stdout == "one\n"
        answered(again, daemon, "accept_rule", "true; echo two")
        mine = [one for one in admin.remembered(daemon.socket) if one["agent"] == sh.agent]
        rules = {one["text"]: one["id"] for one in mine}
        assert sorted(rules) == sorted(one["text"] for one in mine) == ["echo one", "echo two", "true"]
        assert cli(daemon.socket, "approvals", "rules", "--remove", rules["echo one"]).returncode == 0
        with pytest.raises(PolicyRefused):
            again.run("echo one", patience=0.01)
        again.close()
    assert admin.forget(sh.agent, daemon.socket) == 1
    assert sh.agent not in {one["agent"] for one in admin.remembered(daemon.socket)}


def test_rule_that_was_not_proposed_cannot_be_accepted(sh: RemoteSession, daemon: Daemon) -> None:
    with in_thread(lambda: sh.run("echo $HOME")) as result:
        id = asked(daemon, sh.agent)["id"]
        with pytest.raises(InvalidRequest, match="no rule is proposed"):
            decide(daemon, id, "accept_rule")
        decide(daemon, id)
        assert result.result().exit_code == 0


def test_question_shows_no_secret_and_proposes_no_rule_with_one(sh: RemoteSession, daemon: Daemon) -> None:
    with in_thread(lambda: sh.run("echo opensesame")) as result:
        question = asked(daemon, sh.agent)
        assert (question["command"], question["rules"]) == ("echo ***", [])
        decide(daemon, question["id"], "decline", "not opensesame")
        with pytest.raises(PolicyRefused, match=r"not \*\*\*"):
            result.result()


def test_question_is_shown_whole_and_escaped(sh: RemoteSession, daemon: Daemon) -> None:
    text = "echo safe\n" + "true\n" * 60 + "rm x #\x1b[2K\r\x1b[1A ‮ ls"
    with in_thread(lambda: sh.run(text)) as result:
        id = asked(daemon, sh.agent)["id"]
        shown = cli(daemon.socket, "approvals", "-s", sh.agent).stdout.decode()
        assert shown.count("  | true\n") == 60
        assert "  | rm x #\\x1b[2K\\r\\x1b[1A \\u202e ls\n" in shown
        decide(daemon, id, "decline")
        with pytest.raises(PolicyRefused):
            result.result()


def test_others_pass_while_a_question_waits(sh: RemoteSession, daemon: Daemon) -> None:
    answered(sh, daemon, "accept_rule", "echo other")
    with in_thread(lambda: sh.run("true")) as result:
        id = asked(daemon, sh.agent)["id"]
        with connect(sh.agent, daemon.socket, False) as other:
            assert other.run("echo other").stdout == "other\n"
            with pytest.raises(ShellSessionError, match="no running command"):
                other.interrupt()
        decide(daemon, id)
        assert result.result().exit_code == 0


def test_command_is_asked_about_anew_where_the_directory_has_changed(sh: RemoteSession, daemon: Daemon) -> None:
    answered(sh, daemon, "accept_rule", "cd /usr")
    answered(sh, daemon, "accept", "cd /")
    with in_thread(lambda: sh.run("pwd")) as result:
        first = asked(daemon, sh.agent)
        with connect(sh.agent, daemon.socket, False) as other:
            other.run("cd /usr")
        decide(daemon, first["id"])
        second = asked(daemon, sh.agent)
        assert second["cwd"] == "/usr"
        decide(daemon, second["id"])
        assert result.result().stdout == "/usr\n"


def test_equal_commands_that_wait_at_once_need_a_yes_each(sh: RemoteSession, daemon: Daemon, place: Path) -> None:
    with connect(sh.agent, daemon.socket, False) as other, in_thread(lambda: sh.run("echo x >> f")) as first:
        asked(daemon, sh.agent)
        with in_thread(lambda: other.run("echo x >> f")) as second:
            asked(daemon, sh.agent, 2)
            one, two = waiting(daemon, sh.agent)
            decide(daemon, one["id"])
            assert first.result().exit_code == 0
            assert [left["id"] for left in waiting(daemon, sh.agent)] == [two["id"]]
            decide(daemon, two["id"], "decline")
            assert isinstance(second.exception(), PolicyRefused)
    assert (place / "f").read_text() == "x\n"


def test_accepted_command_waits_while_somebody_holds_the_session(
    sh: RemoteSession, daemon: Daemon, place: Path
) -> None:
    answered(sh, daemon, "accept_rule", "true")
    with in_thread(lambda: sh.run("echo x >> f")) as result, Raw(daemon.socket) as person:
        id = asked(daemon, sh.agent)["id"]
        person.ask("hold", agent=sh.agent, holder="me")
        decide(daemon, id)
        person.run(sh.agent, "true", holder="me")  # it would run before this one
        assert not (place / "f").exists()
        person.close()
        assert result.result().exit_code == 0


def test_agent_that_asks_too_much_is_refused(sh: RemoteSession, daemon: Daemon, raw: Raw) -> None:
    with pytest.raises(PolicyRefused, match="over 16384 characters, too many to ask a person about"):
        sh.run(f"true {'x' * 16384}")
    for number in range(100):
        assert raw.ask("run", b"true %d" % number, agent=sh.agent, ask_only=True).header["value"]["state"] == "open"
    with pytest.raises(
        InvalidRequest, match=f"100 questions of agent '{sh.agent}' wait for a person: answer or cancel"
    ):
        sh.run("true")
    decide(daemon, asked(daemon, sh.agent)["id"], "cancel")
    with pytest.raises(PolicyRefused, match="nobody has answered"):
        sh.run("true", patience=0.01)


def test_question_that_nobody_answers_in_time_is_over_also_without_its_asker(daemon: Daemon, agent: str) -> None:
    with connect(agent, daemon.socket, False, policy=Policy(confirm="queue", confirm_timeout=0.5)) as sh:
        with Raw(daemon.socket) as raw:
            id = raw.ask("run", b"true", agent=agent, ask_only=True).header["value"]["id"]
        wait_until(lambda: not waiting(daemon, agent), "its end")
        with pytest.raises(InvalidRequest, match=f"question {id} is expired already"):
            decide(daemon, id)
        sh.close()


def test_close_cancels_the_question(sh: RemoteSession, daemon: Daemon) -> None:
    with in_thread(lambda: sh.run("true")) as result:
        asked(daemon, sh.agent)
        cli(daemon.socket, "kill", sh.agent)
        with pytest.raises(ShellSessionError, match="the session was closed"):
            result.result()
    assert waiting(daemon, sh.agent) == []


def test_audit_names_the_decision_the_rule_and_the_process(sh: RemoteSession, daemon: Daemon) -> None:
    answered(sh, daemon, "accept_rule", "echo x")
    sh.run("echo x")
    with pytest.raises(PolicyRefused):
        answered(sh, daemon, "decline", "false")
    wait_until(lambda: len(daemon.logged(sh.agent)) == 3, "the lines")
    first, second, third = (line["approval"] for line in daemon.logged(sh.agent))
    by = {"pid": os.getpid(), "uid": os.getuid(), "comm": Path("/proc/self/comm").read_text().strip()}
    assert (first["decision"], first["rule"], first["by"]) == ("accept_rule", "echo x", by)
    assert second == {"decision": "rule", "rule": "echo x"}
    assert (third["decision"], third["by"]) == ("decline", by)
    assert daemon.logged(sh.agent)[-1]["outcome"] == "refused"


def test_follow_shows_each_question_and_its_answer(sh: RemoteSession, daemon: Daemon) -> None:
    changes = admin.follow_approvals(daemon.socket, sh.agent)
    with in_thread(lambda: sh.run("true")) as result:
        asked(daemon, sh.agent)
        first = next(changes)
        decide(daemon, first["id"])
        seen = [first["state"]]
        while seen[-1] == "open":
            seen.append(next(changes)["state"])
        assert seen[-1] == "accepted"
        assert result.result().exit_code == 0
    changes.close()  # type: ignore[attr-defined]


def test_watcher_is_told_of_the_question(raw: Raw, sh: RemoteSession, daemon: Daemon) -> None:
    raw.ask("watch", agent=sh.agent)
    answered(sh, daemon, "accept", "true")
    assert (event := raw.receive()).header["event"] == "asks"
    assert event.header["question"]["command"] == "true"


# -- what outlives what


def test_question_outlives_its_asker_and_gives_the_answer_to_the_next(
    raw: Raw, sh: RemoteSession, daemon: Daemon, place: Path
) -> None:
    program = f"from shellsession import connect\nconnect({sh.agent!r}, {daemon.socket!r}, False).run('echo x >> f')"
    asker = os.posix_spawn(sys.executable, [sys.executable, "-c", program], os.environ)
    id = asked(daemon, sh.agent)["id"]
    os.kill(asker, signal.SIGKILL)
    os.waitpid(asker, 0)
    wait_until(lambda: served(raw) == 1, "the end of its request: its client has not come back")
    decide(daemon, id)
    assert not (place / "f").exists()
    sh.run("echo x >> f")  # the same again: it has its yes
    with pytest.raises(PolicyRefused):  # once
        sh.run("echo x >> f", patience=0.01)
    assert (place / "f").read_text() == "x\n"


def test_caller_that_cannot_wait_finds_its_question_again(sh: RemoteSession, daemon: Daemon) -> None:
    with Raw(daemon.socket) as raw:
        raw.say("run", b"true", agent=sh.agent, turn_within=0.05)
        error = last(raw)["error"]
        assert (error["code"], "has not answered yet" in error["message"]) == ("busy", True)
    first = asked(daemon, sh.agent)
    with in_thread(lambda: sh.run("true")) as result:
        decide(daemon, first["id"])
        assert result.result().exit_code == 0
    assert waiting(daemon, sh.agent) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_question_outlives_the_daemon_and_nothing_runs_without_a_yes(number: int, tmp_path: Path) -> None:
    file = tmp_path / "ran"
    with running(tmp_path / "d") as daemon:
        with (
            connect("a", daemon.socket, cwd=tmp_path, policy=POLICY) as sh,
            in_thread(lambda: sh.run("echo x >> ran")) as result,
        ):
            id = asked(daemon, "a")["id"]
            daemon.stop(number)
            with pytest.raises(DaemonUnavailable, match=r"not run|nothing was run, and the question still waits"):
                result.result()
        admin.shutdown(daemon.socket)  # the one that the client has started to ask about its question
    with running(tmp_path / "d") as daemon, connect("a", daemon.socket, False, cwd=tmp_path, policy=POLICY) as sh:
        assert [one["id"] for one in waiting(daemon)] == [id]
        assert not file.exists()
        with in_thread(lambda: sh.run("echo x >> ran")) as result:
            decide(daemon, id)
            assert result.result().exit_code == 0
        assert file.read_text() == "x\n"
        with pytest.raises(PolicyRefused):
            sh.run("echo x >> ran", patience=0.01)


def test_forgotten_agent_has_neither_questions_nor_rules_in_any_later_daemon(tmp_path: Path) -> None:
    with running(tmp_path / "d") as daemon, connect("a", daemon.socket, False, policy=POLICY) as sh:
        answered(sh, daemon, "accept_rule", "echo x")
        with in_thread(lambda: sh.run("true")) as result:
            asked(daemon, "a")
            daemon.stop(signal.SIGKILL)
            assert isinstance(result.exception(), ShellSessionError)
    with running(tmp_path / "d") as daemon:
        assert (len(waiting(daemon)), len(admin.remembered(daemon.socket))) == (1, 1)
        assert cli(daemon.socket, "forget", "a").returncode == 0
        assert (waiting(daemon), admin.remembered(daemon.socket)) == ([], [])
    with running(tmp_path / "d") as daemon:
        assert (waiting(daemon), admin.remembered(daemon.socket)) == ([], [])


def test_session_whose_question_waits_is_not_closed_for_being_idle(daemon: Daemon, agent: str) -> None:
    def leave_idle() -> None:
        connect(agent, daemon.socket, False, idle_ttl=0.2).disconnect()
        other = connect(agent + "idle", daemon.socket, False, idle_ttl=0.2)  # it is idle for a shorter time
        other.disconnect()
        wait_until(lambda: other.agent not in {one["agent"] for one in admin.agents(daemon.socket)}, "its end")

    with connect(agent, daemon.socket, False, policy=POLICY) as sh:
        with in_thread(lambda: sh.run("echo hi")) as result:
            id = asked(daemon, agent)["id"]
            leave_idle()
            decide(daemon, id)
            assert result.result().stdout == "hi\n"
        wait_until(lambda: agent not in {one["agent"] for one in admin.agents(daemon.socket)}, "its end for being idle")
    with connect(agent, daemon.socket, False, policy=POLICY) as sh, Raw(daemon.socket) as raw:
        raw.say("run", b"echo ho", agent=sh.agent, turn_within=0.05)  # it will come again
        assert last(raw)["error"]["code"] == "busy"
        decide(daemon, asked(daemon, agent)["id"])
        leave_idle()
        assert sh.run("echo ho").stdout == "ho\n"


def test_command_over_a_pipe_waits_for_a_yes_too(daemon: Daemon, agent: str) -> None:
    with connect(agent, daemon.socket, via=("env",), remote=PROGRAM, policy=POLICY) as sh:
        with (
            in_thread(lambda: sh.run("echo hi")) as result,
            Watcher(daemon.socket, via=("env",), remote=PROGRAM) as there,
        ):
            id = asked(daemon, agent)["id"]
            assert [one["id"] for one in there.approvals(agent)] == [id]
            there.answer(id, "accept_session")
            assert result.result().stdout == "hi\n"
        assert sh.run("echo hi").stdout == "hi\n"
        with pytest.raises(PolicyRefused, match="nobody has answered"):
            sh.run("echo ho", patience=0.01)
        sh.close()


def test_prefix_holds_for_what_begins_with_it_also_in_the_next_daemon(tmp_path: Path) -> None:
    with running(tmp_path / "d") as daemon, connect("a", daemon.socket, False, policy=POLICY) as sh:
        with in_thread(lambda: sh.run("echo one two")) as result:
            id = asked(daemon, "a")["id"]
            for wrong in ("echo two", "echo; ls", "'"):
                done = cli(daemon.socket, "approvals", "accept", id, "--prefix", wrong)
                assert (done.returncode, b"is not the beginning of" in done.stderr) == (125, True)
            done = cli(daemon.socket, "approvals", "accept", id, "--prefix", "echo one")
            assert done.stderr.decode().endswith(", with the rule echo one ...\n")
            assert result.result().stdout == "one two\n"
        assert sh.run("echo one three").stdout == "one three\n"
    with running(tmp_path / "d") as daemon, connect("a", daemon.socket, False, policy=POLICY) as sh:
        assert sh.run("echo one four").stdout == "one four\n"
        for other in ("echo two", "echo one >f", "echo one; ls"):
            with pytest.raises(PolicyRefused):
                sh.run(other, patience=0.01)
        (rule,) = admin.remembered(daemon.socket)
        assert rule["text"] == "echo one ..."


def test_secret_of_the_request_itself_is_shown_nowhere(sh: RemoteSession, daemon: Daemon) -> None:
    with in_thread(lambda: sh.run("echo letmein1", env={"DB_PASSWORD": "letmein1"}, stdin="letmein1")) as result:
        question = asked(daemon, sh.agent)
        assert "letmein1" not in str(question)
        assert (question["command"], question["given"][0]) == ("echo ***", "DB_PASSWORD=***")
        decide(daemon, question["id"])
        assert result.result().exit_code == 0


def test_question_shows_what_else_the_command_gets_and_has_no_rule_then(sh: RemoteSession, daemon: Daemon) -> None:
    """A rule is about words: with other variables or input the same words do something else."""
    answered(sh, daemon, "accept_rule", "sort")
    env, stdin = {"LC_ALL": "C", "DB_PASSWORD": "letmein1", "LD_PRELOAD": "x" * 999}, "b\nopensesame" + "y" * 999
    with in_thread(lambda: sh.run("sort", env=env, stdin=stdin)) as result:
        question = asked(daemon, sh.agent)
        assert question["given"] == [
            "DB_PASSWORD=***",
            "LC_ALL=C",
            "LD_PRELOAD=" + "x" * 200 + "...",
            "stdin, 1011 bytes: b\n***" + "y" * 195 + "...",
        ]
        shown = cli(daemon.socket, "approvals", "-s", sh.agent).stdout.decode()
        assert "  | sort\n  with DB_PASSWORD=***\n  with LC_ALL=C\n" in shown
        assert "  with stdin, 1011 bytes: b\\n***yyy" in shown
        assert "  no rule: it starts other programs, gets variables or input, or is not plain words\n" in shown
        decide(daemon, question["id"])
        assert result.result().exit_code == 0


def test_answer_for_a_command_does_not_hold_where_the_agent_types_its_input(sh: RemoteSession, daemon: Daemon) -> None:
    """Nobody judges what is typed into a program that runs already."""
    answered(sh, daemon, "accept_rule", "cat")
    answered(sh, daemon, "accept_session", "cat $X")
    for text in ("cat", "cat $X"):
        assert sh.run(text).stdout == ""
        with pytest.raises(PolicyRefused, match="nobody has answered"):
            sh.run(text, stdin=TTY, patience=0.01)
    with in_thread(lambda: sh.run("cat", stdin=TTY)) as result:
        question = asked(daemon, sh.agent)
        assert (question["given"], question["proposal"]) == (["stdin, a terminal: the agent types into it later"], "")
        decide(daemon, question["id"], "accept_session")
        assert result.result().still_running
    assert sh.send("", keys=["C-d"]).exit_code == 0
    assert sh.run("cat", stdin=TTY).still_running
    sh.interrupt()


# -- an agent cannot approve itself


_ANSWERS = {
    "plain": "{answer}",
    "setsid": "setsid -w {answer}",
    "nohup": "nohup {answer} </dev/null >&2",
    "env -i": "env -i {answer}",
    "no tag": "( ulimit -S -x 1000; {answer} )",
    "no tag, setsid": "( ulimit -S -x 1000; setsid -w {answer} )",
    "double fork": "( ( setsid {answer}; echo $? >done ) & ); until [ -s done ]; do sleep 0.02; done; rm done",
    "double fork, no tag": (
        "( ulimit -S -x 1000; ( setsid {answer}; echo $? >done ) & ); until [ -s done ]; do sleep 0.02; done; rm done"
    ),
}


@pytest.mark.parametrize("how", _ANSWERS)
def test_answer_from_inside_a_session_is_refused(how: str, sh: RemoteSession, daemon: Daemon, place: Path) -> None:
    program = place / "answer.py"
    program.write_text(
        "import sys\nfrom shellsession import Daemon\nfrom shellsession.daemon.client import admin\n"
        "for ask in (lambda: Daemon(sys.argv[2]).answer(sys.argv[1], 'accept'),"
        " lambda: admin.remembered(sys.argv[2])):\n"
        "    try: print('done', ask())\n"
        "    except Exception as error: print(error)\n"
    )
    with connect(sh.agent + "free", daemon.socket, False, cwd=place) as free, in_thread(lambda: sh.run("true")) as own:
        id = asked(daemon, sh.agent)["id"]
        answer = f"{PYTHON} {program} {id} {daemon.socket} >>said 2>&1"
        free.run(_ANSWERS[how].format(answer=answer))
        said = (place / "said").read_text()
        assert said.count("was asked for inside the session of agent") == 2, said
        assert asked(daemon, sh.agent)["id"] == id
        decide(daemon, id, "decline")
        assert own.exception() is not None
        free.close()


_ENDS = """
import json, os, select, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
hello = json.loads((file := s.makefile("rb")).readline())
def ask(number, **fields):
    number = f"{hello['incarnation']}.{hello['connection']}.{number}"
    s.sendall(json.dumps({"protocol": hello["protocol"], "id": number, **fields}).encode() + b"\\n")
    return file.readline().decode()
if sys.argv[3:]:
    assert '"value":false' in ask(1, verb="cancel", request="x").replace(" ", "")
process = os.pidfd_open(os.getpid())
if os.fork():
    os._exit(0)
select.select([process], [], [])
print(ask(2, verb="answer", question=sys.argv[2], decision="accept"))
"""


@pytest.mark.parametrize("known", ["", "known"])
def test_answer_over_the_connection_of_a_process_that_has_ended_is_refused(
    known: str, sh: RemoteSession, daemon: Daemon, place: Path
) -> None:
    (place / "ends.py").write_text(_ENDS)
    with in_thread(lambda: sh.run("true")) as own:
        id = asked(daemon, sh.agent)["id"]
        words = [sys.executable, "ends.py", daemon.socket, id, *known.split()]
        said = subprocess.run(words, cwd=place, capture_output=True, text=True, check=True)
        assert "has ended" in said.stdout
        decide(daemon, id, "decline")
        assert own.exception() is not None


@pytest.mark.parametrize(
    "words",
    [
        *("kill VICTIM", "restart VICTIM", "interrupt VICTIM", "send VICTIM x", "fork VICTIM copy"),
        *("forget gone", "forget --all", "stop", "snapshot VICTIM snap", "approvals rules", "approvals accept x"),
        "restore VICTIM file",
    ],
)
def test_agent_cannot_change_another_one(words: str, daemon: Daemon, agent: str, place: Path) -> None:
    victim = agent + "v"
    with connect(agent, daemon.socket, False, cwd=place) as sh, connect(victim, daemon.socket, False) as other:
        other.run("X=1; sleep 1000", timeout=0.1, on_timeout="yield")
        sh.snapshot().save(place / "file")
        line = words.replace("VICTIM", victim)
        done = sh.run(f"{PYTHON} -m shellsession {line.replace(' ', f' --socket {daemon.socket} ', 1)}".rstrip())
        if " " not in line:
            done = sh.run(f"{PYTHON} -m shellsession {line} --socket {daemon.socket}")
        assert done.exit_code, done
        assert "inside the session of agent" in done.stderr, done.stderr
        assert other.state == "running"
        other.close()
        sh.close()


_OF_OTHERS = """
import sys
from shellsession import InvalidRequest, connect
from shellsession.daemon.client.admin import Visit

socket, victim = sys.argv[1:]
with connect(victim, socket, False) as other, Visit(victim, socket) as visit:
    (job,) = other.jobs()
    changes = {
        "kill_job": job.kill,
        "release_job": job.release,
        "write_file": lambda: other.write_file("file", b"x"),
        "resize": lambda: other.resize(40, 10),
        "type": lambda: other.type("x"),
        "branch": other.checkpoint,
        "checkpoint": lambda: visit.ask(visit.message("checkpoint")),
        "hold": lambda: visit.ask(visit.message("hold")),
        "take_over": lambda: visit.ask(visit.message("take_over", fork=victim)),
    }
    for verb, change in changes.items():
        try:
            change()
        except InvalidRequest as error:
            assert f"{verb} was asked for inside the session of agent" in str(error), error
        else:
            sys.exit(f"{verb} is not refused")
print("all refused")
"""


def test_agent_cannot_change_jobs_files_or_the_terminal_of_another_one(daemon: Daemon, agent: str, place: Path) -> None:
    victim = agent + "v"
    (place / "others.py").write_text(_OF_OTHERS, encoding="utf-8")
    with (
        connect(agent, daemon.socket, False, cwd=place) as sh,
        connect(victim, daemon.socket, False, cwd=place) as other,
    ):
        other.run("sleep 1000 &")
        done = sh.run(f"{PYTHON} others.py {daemon.socket} {victim}")
        assert (done.stdout, done.stderr) == ("all refused\n", "")
        assert [job.exit_code for job in other.jobs()] == [None]
        assert not (place / "file").exists()
        other.close()
        sh.close()


_CANCELS = """
import sys
from shellsession.daemon.client.admin import Visit
from shellsession.daemon.protocol.wire import Message

with Visit("", sys.argv[1]) as visit:
    visit.ask(Message({"verb": "cancel", "request": sys.argv[2]}, ()))
    if sys.argv[3:]:
        visit.ask(Message({"verb": "answer", "question": sys.argv[3], "decision": "accept"}, ()))
"""


def test_agent_cannot_cancel_the_question_of_another_one(
    raw: Raw, sh: RemoteSession, daemon: Daemon, place: Path
) -> None:
    (place / "cancels.py").write_text(_CANCELS, encoding="utf-8")
    request = raw.say("run", b"true", agent=sh.agent)
    id = asked(daemon, sh.agent)["id"]
    with connect(sh.agent + "free", daemon.socket, False, cwd=place) as free:
        done = free.run(f"{PYTHON} cancels.py {daemon.socket} {request}")
        assert "cancel was asked for inside the session of agent" in done.stderr, done
        free.close()
    decide(daemon, id)
    assert last(raw)["result"]["exit_code"] == 0


@pytest.mark.parametrize(
    "how", ["-m shellsession approvals accept {id} --socket {socket}", "cancels.py {socket} unknown {id}"]
)
def test_answer_of_what_a_session_has_left_is_refused(
    how: str, sh: RemoteSession, daemon: Daemon, agent: str, place: Path
) -> None:
    """Neither its bash nor a session of this daemon is among its ancestors any more: the tag tells."""
    other = agent + "left"
    (place / "cancels.py").write_text(_CANCELS, encoding="utf-8")
    with in_thread(lambda: sh.run("echo hi")) as result, connect(other, daemon.socket, False, cwd=place) as left:
        id = asked(daemon, sh.agent)["id"]
        answer = f"{PYTHON} {how.format(id=id, socket=daemon.socket)}"
        wait = f"until [ -e go ]; do sleep 0.02; done; {answer} >said 2>&1; echo $? >done"
        left.run(f"setsid bash -c {shlex.quote(wait)} >out 2>&1 </dev/null &")
        (job,) = left.jobs()
        job.release()
        left.close()
        (place / "go").touch()
        wait_until((place / "done").exists, "the answer")
        assert "by a process of a session, or that a session has left" in (place / "said").read_text()
        decide(daemon, id)
        assert result.result().stdout == "hi\n"


def test_agent_can_still_end_its_own_session(daemon: Daemon, agent: str) -> None:
    with connect(agent, daemon.socket, False) as sh:
        done = sh.run(f"{PYTHON} -m shellsession restart --socket {daemon.socket} {agent}")
        assert done.outcome == "shell_exited"
        sh.close()


@needs_bwrap
def test_sandbox_hides_the_questions_and_the_daemon(tmp_path: Path) -> None:
    state = Path(os.environ["XDG_STATE_HOME"])
    policy = Policy(confirm="queue", allow=["ls", "python3"])
    with (
        running(tmp_path / "d") as daemon,
        connect("a", daemon.socket, False, cwd=tmp_path, policy=policy, sandbox=Sandbox(write=[tmp_path])) as sh,
        in_thread(lambda: sh.run("true")) as own,
    ):
        id = asked(daemon, "a")["id"]
        with connect("a", daemon.socket, False) as other:
            assert other.run(f"ls {state}/shellsession").stdout == ""
            assert list((state / "shellsession").glob("state-*.db"))
            program = (
                f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({daemon.socket!r}); print(s.recv(9))"
            )
            told = other.run(["python3", "-c", program])
            assert told.stdout in ("", "b''\n"), told
        decide(daemon, id, "decline")
        assert isinstance(own.exception(), PolicyRefused)
        other.close()


# -- the command line


def test_flag_has_commands_wait_and_the_command_line_answers(daemon: Daemon, agent: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(cli, daemon.socket, "run", "-s", agent, "--approvals", "--", "echo hi")
        question = asked(daemon, agent)
        listed = json.loads(cli(daemon.socket, "approvals", "--json", "-s", agent).stdout)
        assert listed == [question]
        (row,) = [
            line for line in cli(daemon.socket, "ls").stdout.decode().splitlines() if line.startswith(agent + " ")
        ]
        assert f" new, asks {question['id']} " in row
        assert f"asks a person: question {question['id']}" in cli(daemon.socket, "top", "--once").stdout.decode()
        assert cli(daemon.socket, "approvals", "accept", question["id"], "--rule").returncode == 0
        done = ran.result()
    assert (done.stdout, done.returncode) == (b"hi\n", 0)
    assert f"approvals accept {question['id']}".encode() in done.stderr
    assert b"echo hi" in cli(daemon.socket, "approvals", "rules").stdout
    assert cli(daemon.socket, "run", "-s", agent, "--", "echo hi").stdout == b"hi\n"
    assert cli(daemon.socket, "approvals", "-s", agent).stderr == b"shellsession: no command waits for an answer\n"


def test_command_line_has_each_answer(daemon: Daemon, sh: RemoteSession) -> None:
    def answer(command: str, *words: str) -> Future[Result]:
        with in_thread(lambda: sh.run(command)) as result:
            action, *more = words
            assert cli(daemon.socket, "approvals", action, asked(daemon, sh.agent)["id"], *more).returncode == 0
        return result

    assert answer("echo $0", "accept", "--session").result().exit_code == sh.run("echo $0").exit_code == 0
    with pytest.raises(PolicyRefused, match="a person declined it: use the mirror"):
        answer("curl x", "decline", "--reason", "use the mirror").result()
    with pytest.raises(PolicyRefused, match="a person cancelled it"):
        answer("curl y", "cancel").result()
    for wrong in (
        ["cancel", "x", "--reason", "y"],
        ["--prefix", "ls"],
        ["accept"],
        ["accept", "x", "--rule", "--session"],
    ):
        assert cli(daemon.socket, "approvals", *wrong).returncode == 125


def test_command_line_follows_each_question_and_its_answer(sh: RemoteSession, daemon: Daemon, place: Path) -> None:
    shown, expected = list[str](), list[str]()
    with command(daemon.socket, "approvals", "--follow", "-s", sh.agent) as follower:
        assert follower.stdout is not None
        for decision, told in (("accept", "accepted"), ("decline", "declined"), ("accept", "accepted")):
            with in_thread(lambda: sh.run("true")) as result:
                id = asked(daemon, sh.agent)["id"]
                shown += [follower.stdout.readline().decode() for _ in range(3)]
                decide(daemon, id, decision)
                wait([result])
            shown.append(follower.stdout.readline().decode().partition(" by ")[0] + "\n")
            who = f"{id}  agent '{sh.agent}'"
            expected += [f"{who} is to run in {place}:\n", "  | true\n", "  rule: true\n", f"{who}: {told}\n"]
    assert shown == expected


def test_ctrl_c_withdraws_the_question(sh: RemoteSession, daemon: Daemon) -> None:
    with Raw(daemon.socket) as asker, Raw(daemon.socket) as other:
        request = asker.say("run", b"true", agent=sh.agent)
        asked(daemon, sh.agent)
        assert other.ask("cancel", request=request).header["value"]
        assert "cancelled" in last(asker)["error"]["message"]
    assert waiting(daemon, sh.agent) == []


# -- attach


def test_person_sees_the_agents_question_and_answers_their_own_by_typing(
    sits: Sits, daemon: Daemon, agent: str, place: Path
) -> None:
    with (
        connect(agent, daemon.socket, False, cwd=place, policy=POLICY) as sh,
        in_thread(lambda: sh.run("echo $((6 * 7))")) as result,
    ):
        id = asked(daemon, agent)["id"]
        person = sits()
        assert rf"{id}  agent '{agent}' is to run in {place}:" in (shown := person.prompt())
        assert "| echo $((6 * 7))" in shown
        assert person.runs("echo $((40 + 4))") == "44\r\n"
        person.leaves()
        decide(daemon, id)
        assert result.result().stdout == "42\n"
