"""Changes of a branch that Ctrl-C or a cancellation meets, and files of others beside it: nothing is lost."""

from __future__ import annotations

import _thread
import asyncio
import gc
import json
import os
import shutil
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shellsession import AsyncSession, BranchUnavailable, InvalidRequest, Session, SessionBusy, ShellSessionError
from shellsession.branch import apply, branch, mounts
from shellsession.branch.mounts import fault
from shellsession.engine.io import threads
from shellsession.engine.verbs import shell_end, state

if reason := fault():
    pytest.skip(reason, allow_module_level=True)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (base := tmp_path / "base").mkdir()
    return base


@pytest.fixture
def options(base: Path, tmp_path: Path) -> dict[str, Any]:
    return {"cwd": base, "branch": base, "branch_dir": tmp_path / "layers", "timeout": 20}


def test_apply_that_is_cancelled_goes_on_and_loses_nothing_that_is_written_later(
    base: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        begun, loop = asyncio.Event(), asyncio.get_running_loop()

        def told(*given: Any, **named: Any) -> Any:
            loop.call_soon_threadsafe(begun.set)
            return apply.apply(*given, **named)

        monkeypatch.setattr(branch, "apply", told)
        async with AsyncSession(**options) as sh:
            await sh.run("touch {1..300}", check=True)
            task = asyncio.ensure_future(sh.branch.apply())
            await begun.wait()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert len(os.listdir(base)) == 300
            assert (await sh.run("echo n >keep; cat keep")).stdout == "n\n"
            assert [one.path for one in await sh.branch.diff()] == ["keep"]

    asyncio.run(main())


@pytest.mark.parametrize("verb", ["checkpoint", "discard", "fork"])
def test_ctrl_c_between_mount_and_record_leaves_bash_in_the_layer_that_is_kept(
    verb: str, base: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any) -> None:
        stack(*given)
        if armed:
            armed.clear()
            signal.raise_signal(signal.SIGINT)

    stack, armed = mounts.stack, list[bool]()
    monkeypatch.setattr(mounts, "stack", interrupted)
    with Session(**options) as sh:
        sh.run("echo 1 >a", check=True)
        armed.append(True)
        with pytest.raises(KeyboardInterrupt):
            sh.branch.discard() if verb == "discard" else getattr(sh, verb)()
        sh.run(f"echo 2 >b; echo 3 >{base}/c", check=True)
        expected = ["b", "c"] if verb == "discard" else ["a", "b", "c"]
        assert [one.path for one in sh.branch.diff()] == expected
        assert len(sh.checkpoints()) == (verb == "checkpoint")
        sh.checkpoint()
        assert sh.run("ls").stdout.split() == expected


@pytest.mark.parametrize("verb", ["apply", "discard", "rollback"])
def test_ctrl_c_before_bash_has_left_the_old_layer_loses_nothing_that_is_written_later(
    verb: str, base: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any) -> Any:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)
        yield

    with Session(**options) as sh:
        sh.checkpoint("c")
        sh.run("mkdir d; cd d; cd ..; echo 1 >a", check=True)
        monkeypatch.setattr(state, "change_directory", interrupted)
        change = partial(sh.rollback, "c", files_only=True) if verb == "rollback" else getattr(sh.branch, verb)
        with pytest.raises(KeyboardInterrupt):
            change()
        assert sh.run(f"echo 2 >b; cat {base}/b; echo $OLDPWD").stdout == f"2\n{base}/d\n"
        assert "b" in [one.path for one in sh.branch.diff()]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_ctrl_c_while_a_thread_starts_to_apply_is_raised_once_all_is_applied(
    moment: str, base: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any) -> None:
        monkeypatch.setattr(threads, "start_new_thread", start)
        if moment == "after":
            start(*given)
        signal.raise_signal(signal.SIGINT)

    start = _thread.start_new_thread
    with Session(**options) as sh:
        sh.run("touch {1..300}", check=True)
        monkeypatch.setattr(threads, "start_new_thread", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sh.branch.apply()
        assert len(os.listdir(base)) == 300
        assert sh.branch.diff() == ()


@pytest.mark.parametrize("moment", ["made", "removed"])
def test_ctrl_c_when_a_fork_is_made_or_removed_leaves_nothing_of_it(
    moment: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any) -> Any:
        monkeypatch.undo()
        done = do(*given)
        signal.raise_signal(signal.SIGINT)
        return done

    with Session(**options) as sh:
        sh.fork().close()
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        where, name = (branch.Branch, "fork") if moment == "made" else (branch, "remove_fork")
        do = getattr(where, name)
        monkeypatch.setattr(where, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            sh.fork().close()
        gc.collect()
        assert os.listdir(Path(options["branch_dir"]) / "forks") == []
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("recover", [False, True])
@pytest.mark.parametrize(("moment", "expected"), [("end", "new"), ("stack", "old"), ("fault", "new")])
def test_rollback_that_is_interrupted_leaves_bash_the_state_of_its_files(
    moment: str, expected: str, recover: bool, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any) -> Any:
        monkeypatch.undo()
        if moment == "fault":
            raise OSError(28, "no space")
        signal.raise_signal(signal.SIGINT)
        return do(*given)

    where, name = (shell_end, "destroy") if moment == "end" else (mounts, "stack")
    do = getattr(where, name)
    with Session(**options, recover=recover) as sh:
        sh.run("X=old; echo old >f", check=True)
        sh.checkpoint("c")
        sh.run("X=new; echo new >f", check=True)
        monkeypatch.setattr(where, name, interrupted)
        with pytest.raises(BranchUnavailable if moment == "fault" else KeyboardInterrupt):
            sh.rollback("c")
        if moment == "end":
            assert sh.run("true").outcome == "shell_exited"
        assert sh.run("cat f; echo $X").stdout.split() == [expected] * 2


def test_fork_takes_part_in_no_command_that_is_taken_back(options: dict[str, Any]) -> None:
    with Session(**options, auto_checkpoints=5) as sh:
        sh.run("echo 1 >a; X=1", check=True)
        sh.write_file("b", b"x")
        sh.fork().close()
        sh.rollback()
        assert sh.run("ls; echo $X").stdout == "a\n1\n"


def test_attempt_of_a_session_that_writes_at_its_end_can_be_applied(options: dict[str, Any]) -> None:
    with Session(**options, shutdown=["echo bye >>log"]) as sh:
        sh.run("X=1", check=True)
        with sh.attempt("echo 2 >f; X+=2") as trial:
            trial.apply()
        assert sh.run("cat f; echo $X").stdout == "2\n12\n"


@pytest.mark.parametrize("name", ["apply.sh", "reserve", "branch.json.bak"])
def test_directory_with_files_of_others_is_refused_and_stays_as_it_is(
    name: str, base: Path, options: dict[str, Any]
) -> None:
    (directory := Path(options["branch_dir"])).mkdir(0o755)
    (directory / name).write_text("theirs")
    before = directory.stat().st_mode
    with Session(**options) as sh, pytest.raises(BranchUnavailable, match="is not empty"):
        sh.run("true")
    assert [(one.name, one.read_text()) for one in directory.iterdir()] == [(name, "theirs")]
    assert directory.stat().st_mode == before


def test_path_at_which_nothing_has_changed_is_refused(base: Path, options: dict[str, Any]) -> None:
    with Session(**options) as sh:
        sh.run("mkdir d; echo >d/f; echo >g", check=True)
        for wrong in ("base/g", "h", "d/g"):
            with pytest.raises(InvalidRequest, match=f"nothing has changed at '{wrong}'"):
                sh.branch.apply(["g", wrong])
        assert list(base.iterdir()) == []
        assert [one.path for one in sh.branch.apply(["d"])] == ["d", "d/f"]


@pytest.mark.parametrize(("verb", "given"), [("checkpoints", ()), ("drop_checkpoint", ("c",))])
def test_verb_on_checkpoints_takes_its_turn(verb: str, given: tuple[str, ...], options: dict[str, Any]) -> None:
    refused = list[SessionBusy]()

    def meanwhile(*_: object) -> None:
        try:
            getattr(sh, verb)(*given)
        except SessionBusy as error:
            refused.append(error)

    async def main() -> None:
        async with AsyncSession(**options) as sh:
            running = asyncio.ensure_future(sh.run("sleep 0.1"))
            await asyncio.sleep(0)
            await getattr(sh, verb)(*given)
            assert running.done()

    with Session(**options) as sh:
        sh.checkpoint("c")
        sh.run("echo", on_output=meanwhile)
        assert len(refused) == 1
    asyncio.run(main())


@pytest.mark.parametrize("verb", ["rollback", "attempt", "attempt beside a part of an apply"])
def test_new_bash_that_cannot_start_leaves_the_old_one(verb: str, options: dict[str, Any], tmp_path: Path) -> None:
    (first := tmp_path / "first").mkdir()
    with Session(**options | {"cwd": first}) as sh:
        sh.checkpoint("c")
        sh.run(f"cd {tmp_path}; X=kept", check=True)
        trial = None if verb == "rollback" else sh.attempt("echo 1 >base/a")
        if verb.endswith("apply"):
            (tmp_path / "layers" / apply.JOURNAL).write_text("{}")
        else:
            first.rmdir()
        reason = "an apply was interrupted" if verb.endswith("apply") else "is not a directory"
        with pytest.raises(ShellSessionError, match=reason):
            sh.rollback("c") if trial is None else trial.apply()
        assert sh.run("echo $X").stdout == "kept\n"
        if verb.endswith("apply"):
            (tmp_path / "layers" / apply.JOURNAL).unlink()
        else:
            first.mkdir()
        sh.rollback("c") if trial is None else trial.apply()
        assert sh.run("echo $X").stdout == ("\n" if trial is None else "kept\n")


@pytest.mark.parametrize("froze", [False, True])
def test_what_was_applied_alone_can_be_removed_on_the_branch(froze: bool, base: Path, options: dict[str, Any]) -> None:
    with Session(**options) as sh:
        sh.run("mkdir -p n/m o; echo 1 >n/m/y; echo 2 >n/z; echo >o/x; cd n; X=1", check=True)
        if froze:
            sh.checkpoint("c")
        assert [one.path for one in sh.branch.apply(["n"])] == ["n", "n/m", "n/m/y", "n/z"]
        sh.run("rm -r m z; echo 3 >w", check=True)
        assert [(one.kind, one.path) for one in sh.branch.diff()] == [
            *(("removed", "n/m"), ("removed", "n/m/y"), ("added", "n/w"), ("removed", "n/z")),
            *(("added", "o"), ("added", "o/x")),
        ]
        sh.checkpoint()
        assert sh.run("ls; echo $X $PWD").stdout == f"w\n1 {base}/n\n"
        sh.branch.apply()
    assert sorted(str(one.relative_to(base)) for one in base.rglob("*")) == ["n", "n/w", "o", "o/x"]


def test_rollback_to_before_some_was_applied_shows_the_directory_with_it(options: dict[str, Any]) -> None:
    with Session(**options) as sh:
        sh.run("echo 1 >one", check=True)
        sh.checkpoint("c")
        sh.run("echo 2 >one; echo 2 >two; echo 2 >three", check=True)
        sh.branch.apply(["one", "two"])
        sh.rollback("c")
        assert sh.run("grep . *").stdout == "one:1\ntwo:2\n"


def test_another_directory_in_place_of_the_base_is_neither_compared_nor_written(
    base: Path, options: dict[str, Any]
) -> None:
    (base / "f").write_text("one")
    (other := base.parent / "other").mkdir()
    (other / "f").write_text("other")
    with Session(**options) as sh:
        sh.run("echo two >f; echo >new", check=True)
        base.rename(old := base.parent / "old")
        for verb in (sh.branch.diff, partial(sh.branch.diff, patch=True), sh.branch.apply):
            with pytest.raises(BranchUnavailable, match="is gone; its changes are still on the branch"):
                verb()
        other.rename(base)
        for verb in (sh.branch.diff, partial(sh.branch.diff, patch=True), partial(sh.branch.apply, overwrite=True)):
            with pytest.raises(BranchUnavailable, match="is not the directory that the branch was made of"):
                verb()
        assert [(one.name, one.read_text()) for one in base.iterdir()] == [("f", "other")]
        base.rename(other)
        old.rename(base)
        assert [one.path for one in sh.branch.apply()] == ["f", "new"]


def test_base_that_was_made_anew_is_refused_for_what_was_written_on_the_old_one(
    base: Path, options: dict[str, Any]
) -> None:
    with Session(**options) as sh:
        sh.run("echo 1 >f", check=True)
    base.rmdir()
    base.mkdir()  # it may get the same inode
    with Session(**options) as sh, pytest.raises(BranchUnavailable, match="that one was moved or made anew"):
        sh.run("true")
    record = json.loads((path := Path(options["branch_dir"], "branch.json")).read_text())
    path.write_text(json.dumps({key: value for key, value in record.items() if key != "identity"}))
    with Session(**options) as sh:  # as an earlier version has written it
        assert [one.path for one in sh.branch.apply()] == ["f"]


def test_base_that_was_made_anew_is_no_trouble_if_nothing_was_written(base: Path, options: dict[str, Any]) -> None:
    layers, left = Path(options["branch_dir"]), base.parent / "left"
    with Session(**options) as sh:
        sh.run("true")
        shutil.copytree(layers, left, ignore=shutil.ignore_patterns("work"))  # as a killed program leaves it
    base.rmdir()
    base.mkdir()
    with Session(**options | {"branch_dir": left}) as sh:
        sh.run("echo 2 >g", check=True)
        assert [one.path for one in sh.branch.apply()] == ["g"]
