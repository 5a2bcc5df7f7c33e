"""State over Ray: snapshots go from node to node; branches of the files, and questions, are on the agent's node."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from clusters import LONG

from shellsession import Conflict, Daemon, DaemonUnavailable, Policy
from shellsession.cluster import RayAgents
from shellsession.daemon.protocol.endpoint import socket_path

pytestmark = pytest.mark.timeout(2 * LONG)


def test_snapshot_goes_to_another_agent(cluster: Any) -> None:
    with RayAgents(per_node=1) as agents:  # so that they are on two nodes
        agents.run("a", "cd /usr; X=1; f() { echo f$X; }")
        snapshot = agents.session("a").snapshot()
        assert agents.session("b").restore(snapshot).complete
        assert agents.run("b", "f; pwd").stdout == "f1\n/usr\n"


def test_branch_checkpoint_attempt_fork_and_apply(cluster: Any, place: Path) -> None:
    (base := place / "base").mkdir()
    with RayAgents(cwd=base, branch=base, auto_checkpoints=5) as agents:
        sh = agents.session("a")
        sh.run("echo one >file; X=1")
        first = sh.checkpoint("first")
        sh.run("rm file; X=2")
        assert sh.rollback(first).complete
        assert sh.run("cat file; echo $X").stdout == "one\n1\n"
        sh.run("rm -rf *")
        sh.rollback()
        with sh.attempt("echo two >file; X=3") as one, sh.attempt("echo three >file") as other:
            assert [change.path for change in one.changes] == ["file"]
            one.apply()
            with pytest.raises(Conflict):
                other.apply()
        assert sh.run("cat file; echo $X").stdout == "two\n3\n"
        with sh.fork("b") as child:
            child.run("echo four >file")
        assert sh.read_file("file") == b"two\n"
        assert list(base.iterdir()) == []
        assert [change.path for change in sh.branch.apply()] == ["file"]
    assert (base / "file").read_text() == "two\n"


def test_question_waits_on_the_node_of_the_agent(cluster: Any) -> None:
    with RayAgents(policy=Policy(confirm="queue")) as agents, ThreadPoolExecutor() as pool:
        asker = pool.submit(agents.run, "a", "echo yes")
        found = list[tuple[Daemon, str]]()
        while not found:
            for socket in Path(socket_path()).parent.glob("ray-*"):
                with suppress(DaemonUnavailable):
                    daemon = Daemon(str(socket))
                    found += [(daemon, question["id"]) for question in daemon.approvals("a")]
            sleep(0.05)
        ((daemon, question),) = found
        daemon.answer(question, "accept_rule")
        assert asker.result(LONG).stdout == "yes\n"
        assert agents.run("a", "echo yes").stdout == "yes\n"
