"""Our runtime for SWE-ReX, side by side with SWE-ReX's own LocalRuntime, and where ours does more."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from connects import connect  # noqa: F401 - a fixture
from pydantic import Field
from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    DeploymentNotStartedError,
    NoExitCodeError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
)
from swerex.runtime.abstract import (
    BashAction,
    BashInterruptAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)
from swerex.runtime.local import LocalRuntime
from system import LIMITS, PATIENCE, unique_seconds, until, with_argument

from shellsession import AsyncSession, DaemonUnavailable, SessionBusy
from shellsession.integrations.harness import Connect, local
from shellsession.integrations.swe_rex import Deployment, Runtime

_PYTHON: Final = "python3 -q"


class Action(BashAction):  # type: ignore[misc]
    timeout: float | None = PATIENCE


class Typed(Action):
    """For a program that has the prompt of Python."""

    is_interactive_command: bool = True
    expect: list[str] = Field(default=[">>> "])


# Run one after the other in one session.
_ACTIONS: Final = [
    Action(command="echo one; echo two >&2"),
    Action(command="cd /; x=5; f() { echo $x; }"),
    Action(command="f; pwd"),
    Action(command="\n\n echo one \n\n printf '  two'\n"),
    Action(command="cat <<EOF\na\n  b\nEOF\n# a comment"),
    Action(command=""),
    Action(command="for i in 1 2; do\n echo $i\ndone"),
    Action(command="A=(); [[ $A == $A ]] && echo equal"),
    Action(command=r"printf '\033[31mred\033[0m\n\377\n'"),
    Action(command="[ -t 1 ] && echo a terminal"),
    Action(command="(exit 7)", check="silent"),
    Action(command="false", check="ignore"),
    Action(command="false"),
    Action(command="false", error_msg="it is wrong"),
    Action(command="echo 'unfinished", check="silent"),
    Action(command="no-such-command", check="silent"),
    Typed(command=_PYTHON),
    Typed(command="print('hello')"),
    Typed(command="1 / 0"),
    Action(command="quit()", is_interactive_quit=True),
    Action(command="read -p 'Name? ' name; echo Hi $name", expect=["Nobody", r"Name\? "], check="ignore"),
    Action(command="Bob", is_interactive_command=True),
    Action(command="echo $name; exit_=3"),
    Action(command="sleep 60", timeout=0.2),
    BashInterruptAction(),
    Action(command="echo $x"),
]
_COMMANDS: Final = [
    Command(command=["printf", "%s|", "a b", "", "*"]),
    Command(command="printf %s $0; echo err >&2; exit 4", shell=True),
    Command(command=["sh", "-c", "echo out; echo err >&2"], merge_output_streams=True),
    Command(command="pwd", cwd="/usr"),
    Command(command=["/usr/bin/env"], env={"ONE": "1", "TWO": "a b"}),
    Command(command="printf '\\377\\r\\n'", shell=True),
    Command(command="false", check=True, error_msg="it is wrong"),
    Command(command=["sleep", "60"], timeout=0.2),
]


async def seen(doing: Coroutine[Any, Any, Any]) -> Any:
    """What an action or a command gives. Of an error the type, and the first sentence if it is about the status."""
    try:
        observed = await doing
    except NonZeroExitCodeError as error:
        return str(error).partition(". ")[0]
    except Exception as error:
        return type(error)
    if not hasattr(observed, "output"):
        return observed
    expected = observed.expect_string
    if expected in (
        "SHELLPS1PREFIX",
        "UNIQUESTRING29234",
    ):  # theirs names a string of its own where nothing was expected
        expected = ""
    return observed.output.strip(), observed.exit_code, expected


@asynccontextmanager
async def opened(connect: Connect) -> AsyncIterator[Runtime]:  # noqa: F811
    runtime = Runtime(connect)
    await runtime.create_session(CreateBashSessionRequest())
    try:
        yield runtime
    finally:
        await runtime.close()


async def observations(runtime: Any) -> list[Any]:
    found = [await seen(runtime.run_in_session(action)) for action in _ACTIONS]
    return found + [await seen(runtime.execute(command)) for command in _COMMANDS]


@pytest.fixture(scope="module")
def theirs() -> list[Any]:
    async def main() -> list[Any]:
        runtime = LocalRuntime()
        await runtime.create_session(CreateBashSessionRequest())
        found = await observations(runtime)
        await runtime.close()
        return found

    return asyncio.run(main())


def test_the_same_observations(theirs: list[Any], connect: Connect) -> None:  # noqa: F811
    async def main() -> list[Any]:
        async with opened(connect) as runtime:
            return await observations(runtime)

    for asked, one, other in zip([*_ACTIONS, *_COMMANDS], asyncio.run(main()), theirs, strict=True):
        assert one == other, asked


def test_the_output_is_exact_and_whatever_runs_on_is_said() -> None:
    async def main() -> None:
        async with opened(local) as runtime:
            run = runtime.run_in_session
            assert (await run(Action(command=r"printf '\n  x\n\n'"))).output == "\n  x\n\n"
            assert (await run(Action(command="cat; read x", check="silent"))).exit_code == 1  # no input, no wait
            assert (await runtime.execute(Command(command=["no-such-command"]))).exit_code == 127
            asked = Action(command="echo one; read x; echo $x; exit_() { return 5; }; exit_", expect=["o.e"])
            with pytest.raises(NoExitCodeError, match=r"has printed 'o\.e', and runs on"):
                await run(asked)
            with pytest.raises(SessionBusy, match="interrupt"):
                await run(Action(command="echo two"))
            answer = await run(Action(command="three", is_interactive_command=True))
            assert (answer.output, answer.expect_string) == ("", "")  # "three", which is what was typed
            quick = await run(Action(command="echo a; echo two; (exit 3)", expect=["two", "a"], check="silent"))
            assert (quick.output, quick.expect_string, quick.exit_code) == ("", "a", 3)

    asyncio.run(main())


def test_a_time_limit_ends_the_command_and_keeps_the_shell(connect: Connect) -> None:  # noqa: F811
    async def main() -> None:
        async with opened(connect) as runtime:
            seconds = unique_seconds()
            await runtime.run_in_session(Action(command="x=5"))
            for limit in LIMITS:
                with pytest.raises(
                    CommandTimeoutError, match=rf"timeout after {limit:.1f} seconds .* are kept"
                ) as error:
                    await runtime.run_in_session(Action(command=f"echo before; sleep {seconds}", timeout=limit))
                if error.value.__cause__.result.stdout:
                    break
            assert error.value.__cause__.result.stdout == "before\n"
            assert not with_argument(seconds)
            assert (await runtime.run_in_session(BashInterruptAction())).exit_code == 0
            assert (await runtime.run_in_session(Action(command="echo $x"))).output == "5\n"
            with pytest.raises(CommandTimeoutError):
                await runtime.execute(Command(command=["sleep", seconds], timeout=0.2))
            assert not with_argument(seconds)

    asyncio.run(main())


def test_an_interrupt_from_another_task(connect: Connect) -> None:  # noqa: F811
    async def main() -> None:
        async with opened(connect) as runtime:
            seconds = unique_seconds()
            command = Action(command=f"sleep {seconds}", check="silent")
            running = asyncio.create_task(runtime.run_in_session(command))
            await until(lambda: with_argument(seconds))
            await runtime.run_in_session(BashInterruptAction())
            assert (await running).exit_code == 130

    asyncio.run(main())


def test_an_interrupt_may_leave_a_program_at_its_prompt(connect: Connect) -> None:  # noqa: F811
    async def main() -> None:
        async with opened(connect) as runtime:
            run = runtime.run_in_session
            await run(Typed(command=_PYTHON))
            await run(Typed(command="kept = 5"))
            with pytest.raises(CommandTimeoutError, match="the command runs on"):
                await run(Typed(command="while True: pass\n", timeout=0.5, expect=["never"]))
            ended = await run(BashInterruptAction(expect=[r"KeyboardInterrupt\s+>>> "], timeout=PATIENCE))
            assert ended.expect_string.startswith("KeyboardInterrupt")
            assert (await run(Typed(command="print(kept)"))).output == "5"
            await run(BashInterruptAction())  # expects nothing, so it ends the program
            assert (await run(Action(command="echo on"))).output == "on\n"

    asyncio.run(main())


def test_a_shell_that_exits_is_replaced() -> None:
    async def main() -> None:
        async with opened(local) as runtime:
            gone = await runtime.run_in_session(Action(command="exit 3", check="silent"))
            assert (gone.exit_code, bool(gone.failure_reason)) == (3, True)
            assert (await runtime.run_in_session(Action(command="echo on"))).output == "on\n"

    asyncio.run(main())


def test_sessions_by_name(tmp_path: Path) -> None:
    (tmp_path / "rc").write_text("x=5; echo sourced; PS1='? '")
    (tmp_path / "slow").write_text("sleep 60")
    made: list[AsyncSession] = []

    def kept(name: str) -> AsyncSession:
        made.append(local(name))
        return made[-1]

    async def main() -> None:
        async with opened(kept) as runtime:
            request = CreateBashSessionRequest(session="two", startup_source=[str(tmp_path / "rc")])
            assert (await runtime.create_session(request)).output == "sourced\n"
            with pytest.raises(SessionExistsError, match="'two' already exists"):
                await runtime.create_session(request)
            assert (await runtime.run_in_session(Action(command="echo $x", session="two"))).output == "5\n"
            assert (await runtime.run_in_session(Action(command="echo $x"))).output == "\n"
            await runtime.close_session(CloseBashSessionRequest(session="two"))
            assert made[-1].closed
            with pytest.raises(SessionDoesNotExistError, match="'two' does not exist"):
                await runtime.run_in_session(Action(command="echo", session="two"))
            slow = CreateBashSessionRequest(session="s", startup_source=[str(tmp_path / "slow")], startup_timeout=0.2)
            with pytest.raises(CommandTimeoutError):
                await runtime.create_session(slow)

    asyncio.run(main())


def test_bad_syntax_runs_nothing(place: Path) -> None:
    async def main() -> None:
        async with opened(local) as runtime:
            with pytest.raises(BashIncorrectSyntaxError, match="syntax error near") as error:
                await runtime.run_in_session(Action(command=f"touch {place}/made\necho (", check="ignore"))
            assert set(error.value.extra_info) == {"bash_stdout", "bash_stderr"}

    asyncio.run(main())
    assert not list(place.iterdir())


def test_files(connect: Connect, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "new dir" / "it's"

    async def main() -> tuple[str, str]:
        async with opened(connect) as runtime:
            await runtime.write_file(WriteFileRequest(path=str(path), content="ä\r\n-"))
            requests = (
                ReadFileRequest(path=str(path)),
                ReadFileRequest(path=str(path), encoding="cp437", errors="strict"),
            )
            texts = [(await runtime.read_file(request)).content for request in requests]
            for wrong, kind in (("none", FileNotFoundError), (".", IsADirectoryError), ("new dir/it's/x", OSError)):
                with pytest.raises(kind) as error:
                    await runtime.read_file(ReadFileRequest(path=str(tmp_path / wrong)))
                assert str(tmp_path / wrong) in str(error.value)
            with pytest.raises(FileExistsError):
                await runtime.write_file(WriteFileRequest(path=f"{path}/x", content=""))
            return texts[0], texts[1]

    assert asyncio.run(main()) == (path.read_text(), path.read_text("cp437"))
    assert path.read_bytes() == "ä\r\n-".encode()


def test_uploads(connect: Connect, tmp_path: Path) -> None:  # noqa: F811
    source, target = tmp_path / "source", tmp_path / "a b" / "target"
    (source / "below").mkdir(parents=True)
    (source / "below" / "run").write_bytes(b"\0binary")
    (source / "below" / "run").chmod(0o751)
    (source / "link").symlink_to("below/run")

    async def main() -> None:
        async with opened(connect) as runtime:
            for what, where in ((source, target), (source / "link", target), (source / "link", target / "as")):
                await runtime.upload(UploadRequest(source_path=str(what), target_path=str(where)))

    asyncio.run(main())
    assert (target / "link").read_bytes() == (target / "as").read_bytes() == b"\0binary"
    assert (target / "below" / "run").stat().st_mode & 0o777 == (target / "as").stat().st_mode & 0o777 == 0o751
    assert os.readlink(target / "link") == "below/run"


def test_a_deployment_as_swe_agent_uses_it(connect: Connect) -> None:  # noqa: F811
    """SWE-agent gives each call an event loop of its own."""
    deployment, steps = Deployment(connect), list[str]()
    with pytest.raises(DeploymentNotStartedError):
        _ = deployment.runtime
    assert not asyncio.run(deployment.is_alive())

    class Hook:
        def on_custom_step(self, message: str) -> None:
            steps.append(message)

    deployment.add_hook(Hook())
    asyncio.run(deployment.start())
    runtime, seconds = deployment.runtime, unique_seconds()
    asyncio.run(
        runtime.create_session(CreateBashSessionRequest(startup_source=["/root/.bashrc"], startup_timeout=PATIENCE))
    )
    asyncio.run(runtime.run_in_session(Action(command=f"x=5; sleep {seconds} &", check="silent")))
    assert asyncio.run(runtime.run_in_session(Action(command="echo $x"))).output == "5\n"
    assert asyncio.run(runtime.execute(Command(command=["echo", "apart"]))).stdout == "apart\n"
    assert asyncio.run(deployment.is_alive(timeout=PATIENCE))
    asyncio.run(deployment.stop())
    asyncio.run(until(lambda: not with_argument(seconds)))
    assert steps == ["Starting runtime"]


def test_what_is_not_alive_says_why() -> None:
    def nowhere(name: str) -> Any:
        raise DaemonUnavailable("there is no daemon")

    assert asyncio.run(Runtime(nowhere).is_alive()).message == "there is no daemon"


def test_a_check_fails_with_the_output() -> None:
    async def main() -> None:
        async with opened(local) as runtime:
            with pytest.raises(NonZeroExitCodeError, match=r"^why: Command 'echo no; false' failed .* code 1\."):
                await runtime.run_in_session(Action(command="echo no; false", error_msg="why"))

    asyncio.run(main())
