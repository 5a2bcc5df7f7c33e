"""What a snapshot has, what it leaves out, and where it may be restored."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from sandboxes import needs_bwrap
from states import listed
from system import PATIENCE, is_alive, wait_until

from shellsession import (
    Agents,
    AsyncSession,
    InvalidRequest,
    Policy,
    Sandbox,
    Session,
    ShellUnavailable,
    Snapshot,
    SnapshotUnavailable,
    StartupFailed,
)
from shellsession.engine.io.control_socket import ControlSocket
from shellsession.engine.verbs import state
from shellsession.models import Changes
from shellsession.state import dump
from shellsession.state.values import Function, Variable

pytestmark = pytest.mark.usefixtures("each_bash")

_SETUP = """
cd /usr; X=1; export Y='a b'; l=(1 2); declare -A m=([k]=v); f() { echo "f $X"; }; alias ll='ls -l'
set -o pipefail; shopt -s extglob; trap 'echo trapped' USR1; set -- one 'two words'; umask 027
"""


def test_snapshot_has_the_state() -> None:
    with Session() as sh:
        sh.run(_SETUP)
        snap = sh.snapshot()
    assert (snap.cwd, snap.umask, snap.arguments) == ("/usr", 0o027, ("one", "two words"))
    assert (snap.variables["X"], snap.variables["Y"]) == (("1", ""), ("a b", "x"))
    assert (snap.variables["l"], snap.variables["m"]) == (({"0": "1", "1": "2"}, "a"), ({"k": "v"}, "A"))
    assert snap.functions["f"].text == 'f () \n{ \n    echo "f $X"\n}\n'
    assert (snap.aliases, snap.traps) == ({"ll": "ls -l"}, {"USR1": "echo trapped"})
    assert ("pipefail" in snap.options, "extglob" in snap.shopts) == (True, True)
    with pytest.raises(AttributeError):
        cast(Any, snap).cwd = "/"
    with pytest.raises(TypeError):
        cast(Any, snap.variables)["X"] = 1
    assert pickle.loads(pickle.dumps(snap)) == snap


def test_snapshot_leaves_no_trace_in_its_shell() -> None:
    with Session() as sh:
        sh.run(_SETUP + "trap 'echo each >>/dev/null' DEBUG; set -eu; (exit 3) || true")
        before = listed(sh)
        first = sh.snapshot()
        assert listed(sh) == before
        assert sh.snapshot().__replace__(at=first.at) == first


def test_other_tasks_go_on_while_a_large_state_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    began, others = threading.Event(), threading.Event()

    def parse(data: bytes, *singly: bytes) -> Snapshot:
        began.set()
        assert others.wait(PATIENCE), "the loop is blocked"
        return dump.parse(data, *singly)

    async def take() -> Snapshot:
        async with AsyncSession() as sh:
            await sh.run("printf -v large '%500000s' x")
            taking = asyncio.create_task(sh.snapshot())
            await asyncio.to_thread(began.wait, PATIENCE)
            others.set()
            return await taking

    monkeypatch.setattr(state, "parse", parse)
    assert asyncio.run(take()).variables["large"].value == "x".rjust(500_000)


def test_status_survives_a_snapshot() -> None:
    with Session() as sh:
        sh.run("(exit 7)")
        sh.snapshot()
        assert sh.run("echo $?").stdout == "7\n"


def test_debug_trap_that_prints_is_restored() -> None:
    with Session() as sh:
        sh.run("trap 'echo each' DEBUG")
        snap = sh.snapshot()
        assert snap.traps == {"DEBUG": "echo each"}
        assert sh.run("X=1").stdout == "each\n"
        report = sh.restore(snap)
        assert (report.not_restored, sh.run("X=1").stdout) == ((), "each\n")


def test_excluded_names_and_secret_values_are_left_out_and_named() -> None:
    with Session() as sh:
        sh.run("A_TOKEN=1; l=(x hunter2hunter2); f() { echo hunter2hunter2; }; alias a='login hunter2hunter2'; X=kept")
        sh.run("trap 'echo hunter2hunter2' USR1; set -- hunter2hunter2; g() { :; }; TOKEN_f() { :; }")
        snap = sh.snapshot(exclude=["*TOKEN*"], secrets=["hunter2hunter2"])
        assert b"hunter2" not in snap.to_bytes()
        assert {tuple(one) for one in snap.left_out} == {
            *{("variable", "A_TOKEN"), ("function", "TOKEN_f"), ("variable", "l"), ("function", "f"), ("alias", "a")},
            *{("trap", "USR1"), ("arguments", "$@")},
        }
        assert sh.restore(snap).complete
        assert sh.run("echo $X $#; declare -F; declare -p l").stdout == "kept 0\ndeclare -f g\n"


@pytest.mark.parametrize(
    "wrong", [{"exclude": "*TOKEN*"}, {"exclude": [1]}, {"secrets": "x"}, {"secrets": [""]}], ids=str
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with Session() as sh, pytest.raises(InvalidRequest, match=next(iter(wrong))):
        sh.snapshot(**wrong)


def test_session_refuses_another_value_as_its_snapshot() -> None:
    with pytest.raises(InvalidRequest, match="must be a Snapshot"):
        Session(snapshot=cast(Snapshot, "x"))


def test_restore_runs_the_startup_commands_first(tmp_path: Path) -> None:
    startup = (
        "set -eu; STARTED=1; X=startup; alias ll=no; readonly FIXED=1; trap ': t' DEBUG; f() { echo startup; }; cd /"
    )
    with Session(cwd=tmp_path) as one, Session(cwd=tmp_path, startup=[startup]) as sh:
        one.run(_SETUP)
        report = sh.restore(one.snapshot())
        names = {(one.kind, one.name) for one in report.not_restored}
        assert names == {("variable", "FIXED")}
        assert sh.run("f; echo ${STARTED-none} $-; alias; pwd").stdout == "f 1\nnone hiBs\nalias ll='ls -l'\n/usr\n"


def test_every_bash_of_a_session_begins_with_its_snapshot() -> None:
    with Session() as one:
        one.run(_SETUP)
        with Session(snapshot=one.snapshot()) as sh:
            assert sh.run("echo $X; X=2").stdout == "1\n"
            sh.restart()
            assert sh.run("echo $X; exit").stdout == "1\n"
            sh.run("true")
            assert sh.run("echo $X").stdout == "1\n"


def test_what_the_next_start_passes_wins() -> None:
    env = {"PATH": "/usr/bin:/bin", "SAME": "old", "CHANGED": "old", "GONE": "old"}
    with Session(env=env) as one:
        one.run("CHANGED=mine; unset GONE; PATH=/mine:$PATH")
        snap = one.snapshot()
    assert (set(snap.inherited), set(snap.removed)) == ({"SAME"}, {"GONE"})
    with Session(env={**env, "SAME": "new", "CHANGED": "new", "NEW": "new"}, snapshot=snap) as sh:
        assert sh.run("echo $SAME $CHANGED ${GONE-gone} $NEW $PATH").stdout == "new mine gone new /mine:/usr/bin:/bin\n"
        assert sh.restored.complete


def test_directory_that_is_gone_is_reported(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    with Session(cwd=tmp_path) as sh:
        sh.run("cd gone; X=1")
        snap = sh.snapshot()
        (tmp_path / "gone").rmdir()
        report = sh.restore(snap)
        assert [(one.kind, one.name) for one in report.not_restored] == [("cwd", str(tmp_path / "gone"))]
        assert sh.run("pwd; echo $X").stdout == f"{tmp_path}\n1\n"
        assert sh.cwd == str(tmp_path)


def test_function_that_bash_prints_wrongly_is_named_and_not_defined() -> None:
    with Session() as sh:
        # Up to 5.2, bash prints the coprocess with another name, so that its command would be another one.
        sh.run("f() { coproc cat; }; g() { if cat <<E\nx\nE\nthen :; fi; }; h() { echo h; }; i() { X=1; }")
        report = sh.restore(sh.snapshot())
        lost = {one.name for one in report.not_restored}
        assert lost <= {"f", "g"}
        assert {one.kind for one in report.not_restored} <= {"function"}
        there = set(sh.run("declare -F | cut -d' ' -f3").stdout.split())
        assert there == {"f", "g", "h", "i"} - lost


def test_function_named_builtin_is_not_restored() -> None:
    with Session() as sh:
        sh.run('builtin() { command builtin "$@"; }; X=1')
        report = sh.restore(sh.snapshot())
        assert [(one.kind, one.name) for one in report.not_restored] == [("function", "builtin")]
        assert sh.run("echo $X; type -t builtin").stdout == "1\nbuiltin\n"


@pytest.mark.parametrize("setup", ["enable -n printf", "ulimit -f 1", "enable -n eval"])
def test_shell_that_cannot_list_its_state_says_so(setup: str) -> None:
    with Session() as sh:
        sh.run(f"{setup}; X=kept")
        with pytest.raises(SnapshotUnavailable):
            sh.snapshot()
        assert sh.run("echo $X").stdout == "kept\n"


@pytest.mark.parametrize("name", ["ja_JP.SJIS", "zh_TW", "zh_HK@x", "zh_CN.gbk"])
def test_locale_with_backslashes_in_characters_is_refused(name: str, tmp_path: Path) -> None:
    with Session(cwd=tmp_path) as sh:
        sh.run(f"LC_ALL={name} 2>/dev/null")
        with pytest.raises(SnapshotUnavailable, match=name):
            sh.snapshot()
        with pytest.raises(SnapshotUnavailable, match=name):
            sh.run("touch never", changes=True)
        assert list(tmp_path.iterdir()) == []


def test_what_the_old_bash_has_listed_is_no_state_of_the_new_one() -> None:
    with Session() as sh:
        sh.run("X=1")
        sh.snapshot()
        sh.restart()
        assert sh.run("Y=2", changes=True).changes == Changes(added=(("variable", "Y"),))


def test_failed_startup_still_fails() -> None:
    with Session() as one, Session(startup=["false"], snapshot=one.snapshot()) as sh, pytest.raises(StartupFailed):
        sh.open()


def test_variables_that_the_policy_hides_are_not_restored() -> None:
    with Session() as one:
        one.run("export AWS_KEY=k; X=1")
        snap = one.snapshot()
    with Session(policy=Policy(hide_prefixes=["AWS_"]), snapshot=snap) as sh:
        assert sh.run("echo ${AWS_KEY-hidden} $X").stdout == "hidden 1\n"
        assert ("variable", "AWS_KEY", "the session's policy hides it") in sh.restored.not_restored


@pytest.mark.parametrize("rule", ["policy", pytest.param("sandbox", marks=needs_bwrap)])
def test_snapshot_of_a_confined_session_needs_a_confined_one(rule: str, tmp_path: Path) -> None:
    rules: Any = {"policy": Policy(), "sandbox": Sandbox(write=[str(tmp_path)])}
    options = {rule: rules[rule]}
    with Session(cwd=tmp_path, **options) as confined, Session() as free:
        confined.run(_SETUP)
        snap = confined.snapshot()
        with pytest.raises(InvalidRequest, match=f"give this session {rule}="):
            free.restore(snap)
        with pytest.raises(InvalidRequest, match=f"give this session {rule}="):
            Session(snapshot=snap)
        report = confined.restore(snap)
        assert report.complete
        assert confined.run("f; pwd").stdout == "f 1\n/usr\n"


def test_agents_begin_with_a_snapshot() -> None:
    with Session() as one:
        one.run(_SETUP)
        with Agents(snapshot=one.snapshot()) as agents:
            assert agents.run("a1", "f").stdout == agents.run("a2", "f").stdout == "f 1\n"


def test_first_commands_after_a_restore_are_framed_as_before(tmp_path: Path) -> None:
    with Session(cwd=tmp_path) as sh:
        sh.run("PS1='(venv) '; PROMPT_COMMAND='echo prompt >&2'; trap 'echo bye' EXIT")
        report = sh.restore(sh.snapshot())
        assert report.complete
        for _ in range(3):
            result = sh.run("echo out; echo err >&2")
            assert (result.stdout, result.stderr) == ("out\n", "err\n")


_CODE = "$(touch executed)"


@pytest.mark.parametrize(
    "hostile",
    [
        {"variables": {"x;touch executed": Variable("1")}},
        {"variables": {"x": Variable({f"a[{_CODE}]": "1"}, "a")}},
        {"variables": {"x": Variable("1", "i; touch executed")}},
        {"variables": {"x": Variable({"k": "v"})}},
        {"options": frozenset({"pipefail; touch executed"})},
        {"shopts": frozenset({_CODE})},
    ],
    ids=str,
)
def test_snapshot_with_impossible_names_is_refused(hostile: dict[str, Any], tmp_path: Path) -> None:
    with Session(cwd=tmp_path) as sh, pytest.raises(InvalidRequest, match="names that bash accepts"):
        sh.restore(Snapshot(**hostile))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "hostile",
    [
        {"functions": {"f": Function("f () \n{ \n    :\n}\ntouch executed\n")}},
        {"functions": {"f": Function("f () { :; }; touch executed")}},
        {"functions": {"f": Function("f () { :; }\n\\builtin printf x >executed\n")}},
        {
            "functions": {
                "f": Function(f"f () {{ :; }}; x={_CODE}; for x in 1; do touch executed; done; (touch executed)\n")
            }
        },
        {"functions": {"f": Function("f () {\n"), "g": Function("g () { :; }\n touch executed | touch executed &\n")}},
        {"functions": {f"f; touch executed; {_CODE}": Function("f () \n{ \n    :\n}\n", _CODE)}},
        {"aliases": {f"a='{_CODE}'; touch executed; '": f"'; {_CODE}"}, "arguments": ("'; touch executed '", _CODE)},
        {"cwd": f"/{_CODE}'; touch executed; '", "directories": (_CODE, "\n touch executed\n")},
        {"completions": (("-W", "'; touch executed; '", _CODE),), "disabled": ("x; touch executed", _CODE)},
        {"traps": {"USR1; touch executed": "x", "USR2": f"'; {_CODE}"}, "limits": {_CODE: 1}},
        {"variables": {"UID": Variable(f"a[{_CODE}]", "i"), "IFS": Variable("x")}},
        {"facts": {"named": ("x",), "trapping": "yes"}},
    ],
    ids=str,
)
def test_hostile_snapshot_runs_nothing(hostile: dict[str, Any], tmp_path: Path) -> None:
    with Session(cwd=tmp_path) as sh:
        fresh = sh.snapshot()
        sh.restore(fresh.__replace__(**hostile))
        assert list(tmp_path.iterdir()) == []
        assert sh.run("echo $((6 * 7))").stdout == "42\n"


def test_environment_with_names_of_no_variable_is_left_alone(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "x;touch executed": "1", "A.B": "2", "BASH_FUNC_f%%": "() { echo f; }"}
    with Session(cwd=tmp_path, env=env) as sh:
        sh.run("unset -f f; X=1")
        report = sh.restore(sh.snapshot())
        assert report.complete
        assert sh.run("type -t f; env | grep -c A.B; echo $X").stdout == "1\n1\n"
        assert list(tmp_path.iterdir()) == []


def test_interrupted_snapshot_leaves_the_session_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    with Session() as sh:
        sh.run("X=kept; trap 'echo each >/dev/null' DEBUG")
        for module, name in ((state, "parse"), (ControlSocket, "read"), (ControlSocket, "note_mark")):
            with monkeypatch.context() as patch:
                patch.setattr(module, name, cut)
                with pytest.raises(KeyboardInterrupt):
                    sh.snapshot()
            result = sh.run("echo $X; (exit 3)")
            assert (result.stdout, result.exit_code, result.state_kept) == ("kept\n", 3, True)
        assert sh.snapshot().traps == {"DEBUG": "echo each >/dev/null"}


def test_death_of_the_shell_before_a_snapshot_is_reported_by_the_next_command() -> None:
    with Session() as sh:
        sh.run("true")
        assert sh.pid is not None
        os.kill(sh.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(sh.pid or 0), "the end of bash")
        with pytest.raises(ShellUnavailable):
            sh.snapshot()
        assert sh.run("true").state_kept is False
        assert sh.run("echo fresh").stdout == "fresh\n"
