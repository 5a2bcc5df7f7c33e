"""Snapshots of sessions in the daemon: who may ask, and where they go."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from commands import cli
from daemons import Daemon
from system import PYTHON

from shellsession import AlreadyOpen, InvalidRequest, Policy, PolicyRefused, Session, Snapshot, StartupFailed, connect

_ASK: Final = """
from shellsession import InvalidRequest, Snapshot, connect
with connect({agent!r}, {socket!r}, False) as sh:
    for ask in (sh.snapshot, lambda: sh.restore(Snapshot())):
        try:
            print(ask())
        except InvalidRequest as error:
            print(error)
"""


@pytest.mark.parametrize("agent", ["other", "own"])
def test_snapshot_from_inside_a_session_is_refused(agent: str, daemon: Daemon, tmp_path: Path) -> None:
    with connect("own", daemon.socket, False) as sh, connect("other", daemon.socket, False) as other:
        other.run("SECRET=1; cd /usr")
        (tmp_path / "ask.py").write_text(_ASK.format(agent=agent, socket=str(daemon.socket)))
        result = sh.run(f"{PYTHON} {tmp_path}/ask.py")
        assert result.stdout.count("was asked for inside the session of agent 'own'") == 2
        assert (other.cwd, other.run("echo $SECRET").stdout) == ("/usr", "1\n")
        other.close()
        sh.close()


def test_snapshot_goes_from_a_session_here_to_the_daemon_and_back(daemon: Daemon, tmp_path: Path) -> None:
    text = "x" * 2_000_000  # more than a header has room for
    with Session(cwd=tmp_path) as here, connect("a1", daemon.socket, False, cwd=tmp_path) as there:
        here.run(f"X={text}; f() {{ echo f; }}")
        assert there.restore(here.snapshot()).complete
        assert there.run("f; echo ${#X}").stdout == "f\n2000000\n"
        there.run("cd /usr")
        there.snapshot().save(tmp_path / "file")
        here.restore(Snapshot.load(tmp_path / "file"))
        assert here.run("f; pwd").stdout == "f\n/usr\n"
        there.close()


def test_rules_of_an_agent_stay_whatever_is_restored(daemon: Daemon) -> None:
    policy = Policy(deny_commands=["rm"])
    with Session() as free, connect("a1", daemon.socket, False, policy=policy) as confined:
        with pytest.raises(InvalidRequest, match="give this session policy="):
            free.restore(confined.snapshot())
        assert confined.restore(free.snapshot()).complete
        with pytest.raises(Exception, match="rm"):
            confined.run("rm x")
        confined.close()
    with pytest.raises(InvalidRequest, match="connect without it"):
        connect("a1", daemon.socket, False, snapshot=Snapshot())


def test_recover_named_for_a_session_without_it_is_refused(daemon: Daemon) -> None:
    with connect("b0", daemon.socket, False) as sh:
        with pytest.raises(AlreadyOpen, match="which was opened without recover=True"):
            connect("b0", daemon.socket, False, recover=True)
        with connect("b0", daemon.socket, False, recover=False) as same:
            assert not same.opened_here
        done = cli(daemon.socket, "run", "-s", "b0", "--json", "--", "true")  # there it is a default
        assert done.returncode == 0
        sh.close()


def test_fork_with_the_name_of_its_session_is_refused(daemon: Daemon) -> None:
    with connect("s1", daemon.socket, False) as sh:
        with pytest.raises(InvalidRequest, match="a fork needs another name"):
            sh.fork("s1")
        assert sh.run("echo lives").stdout == "lives\n"
        sh.close()


def test_fork_is_another_agent_with_the_same_state_and_rules(daemon: Daemon, tmp_path: Path) -> None:
    policy = Policy(deny_commands=["rm"])
    with connect("parent", daemon.socket, False, cwd=tmp_path, policy=policy, timeout=7) as parent:
        parent.run("cd /usr; A=1; f() { echo $A; }")
        with parent.fork("child") as child:
            assert child.run("f; pwd").stdout == "1\n/usr\n"
            with pytest.raises(PolicyRefused):
                child.run("rm x")
            child.run("A=2; cd /")
            assert parent.run("f; pwd").stdout == "1\n/usr\n"
            with pytest.raises(AlreadyOpen, match="use another name"):
                parent.fork("child")
            child.close()
        with parent.fork("child") as again:  # nothing is known of it any more
            assert again.run("f").stdout == "1\n"
            again.close()
        parent.close()


def test_fork_that_cannot_start_leaves_nothing_known_of_its_agent(daemon: Daemon, tmp_path: Path) -> None:
    startup = [f"echo x >>{tmp_path}/count; [ $(wc -l <{tmp_path}/count) != 2 ]"]
    with connect("parent", daemon.socket, False, cwd=tmp_path, startup=startup) as parent:
        parent.run("A=1")
        with pytest.raises(StartupFailed):
            parent.fork("child")
        with parent.fork("child") as child:
            assert child.run("echo $A").stdout == "1\n"
            child.close()
        parent.close()
