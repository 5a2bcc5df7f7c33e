"""The resource limits of a sandbox: fork bombs, memory and busy loops are bounded, and the session lives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sandboxes
from sandboxes import needs_bwrap, run_as, sandboxed
from system import descendants, unique_seconds, with_argument

import shellsession
from shellsession import SandboxUnavailable, Session
from shellsession.engine.bash import cgroups

pytestmark = needs_bwrap
user, mine, ours = sandboxes.user, sandboxes.mine, sandboxes.ours


def limited(place: Path, **limits: Any) -> Session:
    """A session with limits; where root may make no control group, that is said, and nothing is run."""
    session = sandboxed(place, **limits)
    try:
        session.open()
    except SandboxUnavailable as error:
        held = {controller for group in cgroups.own_groups() for controller in group.controllers}
        if held & {"pids", "memory", "cpu"} and os.getuid() == 0:
            raise
        pytest.skip(str(error))
    return session


def test_a_storm_of_forks_is_bounded(user: str, mine: Path) -> None:
    seconds = unique_seconds()

    def scenario() -> None:
        with limited(mine, processes=20) as sh:
            sh.run("kept=7")
            result = sh.run(f"for i in {{1..60}}; do sleep {seconds} & done 2>/dev/null; wait", timeout=1)
            assert result.outcome == "timed_out"
            assert 10 <= len(result.killed) <= 20
            assert with_argument(seconds) == []
            sh.run("f() { f & f & wait; }; f & f", timeout=1)
            assert len(descendants(sh.pid or 0)) <= 20
            assert sh.run("echo $kept").stdout == "7\n"

    run_as(user, scenario)


def test_what_runs_outside_does_not_count(user: str, mine: Path) -> None:
    def scenario() -> None:
        others = [subprocess.Popen(["sleep", "50"]) for _ in range(12)]
        try:
            with limited(mine, processes=10) as sh:
                assert sh.run("sleep 0.01 & sleep 0.01 & wait; echo fine").stdout == "fine\n"
        finally:
            for one in others:
                one.kill()
                one.wait()

    run_as(user, scenario)


def test_a_hog_of_memory_dies_and_the_session_lives(user: str, mine: Path) -> None:
    def scenario() -> None:
        with limited(mine, memory="128M") as sh:
            sh.run("kept=7")
            assert sh.run("head -c 400000000 /dev/zero | tail -n 1 | wc -c; echo ${PIPESTATUS[1]}").stdout[:2] == "0\n"
            assert sh.run("head -c 400000000 /dev/zero >/tmp/full").exit_code == 1
            assert sh.run("echo $kept; ls -s /tmp/full >/dev/null").stdout == "7\n"

    run_as(user, scenario)


def test_a_memory_kill_is_reported(ours: Path) -> None:
    """Of a command's process, of a process that the command survives, and of bash itself; but not of an older one."""
    hog = "head -c 200000000 /dev/zero | tail -n 1"
    with limited(ours, memory="64M") as sh:
        if not sh.engine.live().launch.groups:
            pytest.skip("no control group limits memory here")
        died = sh.run(f"set -o pipefail; {hog}")
        assert (died.outcome, died.exit_code, died.reason) == ("exited", 137, "killed: memory limit 64M")
        assert died.for_model() == "[exit status 137 (128 + SIGKILL), killed: memory limit 64M]"
        assert sh.run("kill -9 $BASHPID &>/dev/null & wait $!").reason == ""
        survived = sh.run(f"({hog}) || exit 3", isolated=True)
        assert (survived.exit_code, survived.reason) == (3, "a process of the session was killed: memory limit 64M")
        assert (sh.run("false").reason, sh.run("true").reason) == ("", "")
        ended = sh.run("x=$(head -c 100000000 /dev/zero | tr '\\0' a)")
        assert (ended.outcome, ended.reason) == ("shell_exited", "killed: memory limit 64M")
        assert sh.run("(exit 137)").reason == ""


def test_memory_kills_are_read_from_groups_of_both_versions(tmp_path: Path) -> None:
    texts = {"one/memory.oom_control": "under_oom 0\noom_kill 2\n", "two/memory.events": "oom 9\noom_kill 3\n"}
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(text)
    groups = [str(tmp_path / name) for name in ("one", "two", "none")]
    assert cgroups.memory_kills(groups) == 5


def test_a_share_of_the_processor(ours: Path) -> None:
    if os.getuid() != 0:
        with pytest.raises(SandboxUnavailable, match="cpu"):
            sandboxed(ours, cpu=0.1).run("true")
        return
    with limited(ours, cpu=0.1) as sh:
        ran = sh.run("TIMEFORMAT='%U %S'; time timeout 1 bash -c 'while :; do :; done'")
        assert sum(map(float, ran.stderr.split())) < 0.5
        groups = sh.engine.live().launch.groups
        assert any("nr_throttled 0" not in Path(group, "cpu.stat").read_text() for group in groups)


def test_limits_leave_no_groups_behind(user: str, mine: Path) -> None:
    def scenario() -> None:
        with limited(mine, memory="200M", processes=50) as sh:
            groups = list(sh.engine.live().launch.groups)
            assert all(map(os.path.isdir, groups))
            sh.run("sleep 60 & (setsid sleep 60 &)")
            sh.restart()
            assert not any(map(os.path.isdir, groups))
            groups += sh.engine.live().launch.groups
            sh.run("kill -9 $$")
            assert not any(map(os.path.isdir, groups))
            sh.open()
            groups += sh.engine.live().launch.groups
        assert not any(map(os.path.isdir, groups))

    run_as(user, scenario)


def test_a_limit_that_cannot_be_enforced_is_refused_before_anything_runs(
    ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "own_groups", list)
    if os.getuid() == 0:
        with pytest.raises(SandboxUnavailable, match=r"processes.*does not limit root") as caught:
            sandboxed(ours, processes=20).run(f"touch {ours}/ran")
        assert caught.value.code == "sandbox_unavailable"
    with pytest.raises(SandboxUnavailable, match="cpu"):
        sandboxed(ours, cpu=1).run(f"touch {ours}/ran")
    assert not list(ours.iterdir())
    with sandboxed(ours, memory="128M") as sh:
        assert sh.run("ulimit -v").stdout == f"{128 << 10}\n"


@pytest.mark.skipif(os.getuid() != 0, reason="mounting takes root")
def test_the_groups_are_found_among_many_mounts(tmp_path: Path) -> None:
    """With names as anybody may give them to a mount of FUSE."""
    if not cgroups.own_groups():
        pytest.skip("no control groups here")
    script = (
        f"cd '{tmp_path}'\n"
        "for i in {1..99}; do mkdir $'\\v - '$i && mount -t tmpfs none $'\\v - '$i || exit; done\n"
        "mount --rbind /sys/fs/cgroup /sys/fs/cgroup\n"  # so that they come after the others
        """exec "$0" -c 'from shellsession.engine.bash import cgroups; print(len(cgroups.own_groups()))'"""
    )
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script, sys.executable], check=True, capture_output=True, text=True,
        cwd=Path(shellsession.__file__).parents[1],
    )  # fmt: skip
    assert int(done.stdout) == 2 * len(cgroups.own_groups())
