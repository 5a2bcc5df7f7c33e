"""Our sandbox for Inspect AI: Inspect's own checks of a sandbox, an evaluation, and what these do not look at."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import pytest
from connects import connect  # noqa: F401 - a fixture
from daemons import Daemon
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate, solver, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import SandboxUnavailableError, SandboxUserUnsupportedError, sandbox
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from sandboxes import run_as
from system import PATIENCE, is_alive, unique_seconds, until, wait_until, with_argument

from shellsession import AsyncSession, CommandError, DaemonUnavailable, Sandbox as Limit, aconnect
from shellsession.integrations import harness
from shellsession.integrations.harness import Connect
from shellsession.integrations.inspect_ai import InspectSandbox, register

# Inspect leaves streams unclosed. Python says so in whichever test collects them.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

# Nothing is closed to root, so these run as an ordinary user.
_CLOSED: Final = {name for name in self_check.__all__ if "not_allowed" in name or "without_permissions" in name}
_OTHERS: Final = sorted(set(self_check.__all__) - _CLOSED)


@asynccontextmanager
async def sample(kind: str = "shellsession") -> AsyncIterator[Any]:
    """The sandbox of a sample. Inspect's checks give it 2 seconds, and wait for 5 seconds: both take a tenth here."""
    environment = registry_find_sandboxenv(kind)
    environments = await environment.sample_init("a task", None, {})
    made = environments["default"]
    execute = made.exec
    made.exec = lambda cmd, timeout=None, **options: execute(cmd, timeout=0.2 if timeout == 2 else timeout, **options)
    try:
        yield made
    finally:
        await environment.sample_cleanup("a task", None, environments, False)


async def checked(name: str, kind: str = "shellsession") -> None:
    async with sample(kind) as environment:
        await getattr(self_check, name)(environment)


async def no_sleep(_: float) -> None:
    """Our time limits have ended all when they raise, so there is nothing to wait for."""


@pytest.mark.parametrize("name", _OTHERS)
def test_a_check_of_inspect(name: str, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    if name == "test_exec_as_user" and (os.getuid() != 0 or shutil.which("adduser") is None):
        pytest.skip("only root can make a user")
    monkeypatch.setattr(anyio, "sleep", no_sleep)
    asyncio.run(checked(name, register("checked", connect)))


@pytest.mark.parametrize("name", sorted(_CLOSED))
def test_a_check_of_inspect_about_permissions(name: str) -> None:
    run_as("an ordinary user", lambda: asyncio.run(checked(name)))


def script(calls: Sequence[dict[str, str]]) -> Any:
    """A model that makes these calls of the tool ``bash``, and is done."""
    name = "mockllm/model"
    outputs = [ModelOutput.for_tool_call(name, "bash", call) for call in calls]
    outputs.append(ModelOutput.from_content(name, "done"))
    for output in outputs:
        output.usage = ModelUsage()  # otherwise Inspect loads a tokenizer from the network
    return get_model(name, custom_outputs=outputs)


@pytest.mark.filterwarnings("ignore")  # of Inspect's own code
def test_an_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    seconds, execute = unique_seconds(), InspectSandbox.exec

    def hasty(self: InspectSandbox, cmd: list[str], **options: Any) -> Any:
        if f"sleep {seconds}" in cmd:
            options["timeout"] = 1
        return execute(self, cmd, **options)

    monkeypatch.setattr(InspectSandbox, "exec", hasty)
    commands = ["cat given made; pwd", f"sleep {seconds}", "echo a\0b", f"sleep {seconds} >/dev/null 2>&1 & exit 3"]
    task = Task(
        dataset=[Sample(input="go", files={"given": "one\n"}, setup="echo two >made")],
        solver=[use_tools(bash(timeout=int(PATIENCE))), generate()],
        sandbox="shellsession",
    )
    model = script([{"command": command} for command in commands])
    (log,) = eval(task, model=model, log_dir=str(tmp_path / "logs"), display="none")
    assert log.status == "success", log.error
    said = [(one.text, one.error and one.error.type) for one in log.samples[0].messages if one.role == "tool"]
    place = said[0][0].split("\n")[2]
    assert said == [(f"one\ntwo\n{place}\n", None), ("", "timeout"), ("", "parsing"), ("", None)]
    assert Path(place).parent == tmp_path
    assert not Path(place).exists()
    assert not with_argument(seconds)


def reads() -> Any:
    async def solve(state: Any, _: Any) -> Any:
        state.output.completion = (await sandbox().exec(["cat", "what"])).stdout
        return state

    return solve


@pytest.mark.filterwarnings("ignore")  # of Inspect's own code
def test_register_each_sample_gets_its_own_place_which_is_closed(tmp_path: Path) -> None:
    """As with an image for each sample: ``connect`` starts its container, and ``close`` removes it."""
    opened, closed = dict[str, tuple[str, str, str]](), list[str]()

    async def box(name: str, config: str, *, metadata: dict[str, str], task_name: str) -> AsyncSession:
        opened[name] = (metadata["__sample_id__"], task_name, config)
        image = tmp_path / metadata["image"]
        image.mkdir(exist_ok=True)
        (image / "what").write_text(metadata["image"])
        return AsyncSession(cwd=image)

    async def close(name: str) -> None:
        closed.append(name)

    task = Task(
        name="images",
        dataset=[Sample(input="go", id=id, metadata={"image": f"image of {id}"}) for id in ("one", "two")],
        solver=[solver(reads)()],
        sandbox=(register("per sample", box, ".", close), config := str(tmp_path / "config")),
    )
    (log,) = eval(task, model=script([]), log_dir=str(tmp_path / "logs"), display="none")
    assert log.status == "success", log.error
    assert sorted(set(opened.values())) == [("one", "images", config), ("two", "images", config)]
    assert sorted(closed) == sorted(opened)
    assert [one.output.completion for one in log.samples] == ["image of one", "image of two"]


_FACTS: Final[dict[str, Any]] = {"task_name": "a task", "metadata": {"key": "value"}}


@pytest.mark.parametrize(
    ("function", "config", "expected"),
    [
        (lambda _, config="default": config, None, "default"),
        (lambda _, config="default": config, "named", "named"),
        (lambda _, config: config, None, None),
        (lambda _, **facts: facts, None, _FACTS),
        (lambda _, **facts: facts, "named", {**_FACTS, "config": "named"}),
    ],
)
def test_register_function_gets_the_facts_that_there_are(function: Any, config: str | None, expected: Any) -> None:
    got = list[Any]()

    @functools.wraps(function)
    def recorded(*arguments: Any, **facts: Any) -> AsyncSession:
        got.append(function(*arguments, **facts))
        return AsyncSession()

    async def main() -> None:
        environment = registry_find_sandboxenv(register("facts", recorded))
        made = await environment.sample_init(_FACTS["task_name"], config, _FACTS["metadata"])
        await environment.sample_cleanup(_FACTS["task_name"], config, made, False)

    asyncio.run(main())
    assert got
    assert all(one == expected for one in got)


@pytest.mark.filterwarnings("ignore")  # of Inspect's own code
@pytest.mark.parametrize("kind", ["shellsession", register("takes no config", harness.local)])
def test_config_that_nothing_takes_is_refused(kind: str, tmp_path: Path) -> None:
    task = Task(dataset=[Sample(input="go")], solver=[generate()], sandbox=(kind, "/a/config"))
    (log,) = eval(task, model=script([]), log_dir=str(tmp_path / "logs"), display="none")
    assert log.status == "error"
    assert "nothing takes the config '/a/config'" in log.error.message


@pytest.mark.parametrize("fails", ["connect", "setup", "cancelled"])
def test_register_close_is_called_after_a_failed_beginning(fails: str) -> None:
    opened, closed, scopes = list[str](), list[str](), list[anyio.CancelScope]()

    async def box(name: str) -> AsyncSession:
        opened.append(name)
        if fails == "connect":
            raise DaemonUnavailable("there is no daemon")
        if fails == "cancelled":
            scopes[0].cancel()
            await anyio.sleep_forever()
        return AsyncSession()

    async def close(name: str) -> None:
        await anyio.lowlevel.checkpoint()
        closed.append(name)

    async def main() -> None:
        kind = register("closed", box, "/no/such/directory" if fails == "setup" else None, close)
        scopes.append(anyio.CancelScope())
        with scopes[0]:
            await registry_find_sandboxenv(kind).sample_init("a task", None, {})

    with pytest.raises((SandboxUnavailableError, CommandError)) if fails != "cancelled" else nullcontext():
        asyncio.run(main())
    assert opened
    assert closed == opened


def test_commands_run_side_by_side_and_leave_no_state(connect: Connect, place: Path) -> None:  # noqa: F811
    async def main() -> None:
        async with sample(register("pair", connect, str(place))) as environment:
            os.mkfifo(place / "fifo")
            both = [environment.exec(["sh", "-c", command]) for command in ("cat fifo", "echo x >fifo")]
            assert all(one.success for one in await asyncio.gather(*both))
            await environment.exec(["cd", "/"])
            assert (await environment.exec(["pwd"])).stdout == f"{place}\n"

    asyncio.run(main())
    assert place.exists()  # it was not made for the sample


def test_cancelling_ends_the_command(connect: Connect, started: Path) -> None:  # noqa: F811
    async def main() -> None:
        async with sample(register("cancelled", connect)) as environment:
            seconds = unique_seconds()
            async with anyio.create_task_group() as group:
                group.start_soon(environment.exec, ["sh", "-c", f"echo >{started}; sleep {seconds}"])
                await asyncio.to_thread(started.read_text)
                group.cancel_scope.cancel()
            await until(lambda: not with_argument(seconds))
            assert (await environment.exec(["echo", "on"])).stdout == "on\n"

    asyncio.run(main())


def test_a_named_pipe_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with sample() as environment:
            await environment.exec(["mkfifo", "pipe"])
            monkeypatch.setattr(harness, "_PATIENCE", 0.2)
            with pytest.raises(TimeoutError, match="pipe"):
                await environment.read_file("pipe")

    asyncio.run(main())


def test_what_is_unavailable_is_an_error_of_inspect() -> None:
    async def main() -> None:
        async with sample() as environment:
            with pytest.raises(SandboxUnavailableError, match="SIGKILL"):
                await environment.exec(["sh", "-c", "kill -9 $PPID; sleep 9"])
            assert (await environment.exec(["echo", "on"])).stdout == "on\n"
            idle = int((await environment.exec(["sh", "-c", "echo $PPID"])).stdout)
            os.kill(idle, signal.SIGKILL)
            await until(lambda: not is_alive(idle))
            assert (await environment.exec(["echo", "on"])).stdout == "on\n"  # nothing had run: it is run in a new one
            assert (await environment.exec(["pwd"], cwd="none")).stderr.endswith("none: No such file or directory\n")

    asyncio.run(main())

    async def nowhere(name: str) -> AsyncSession:
        raise DaemonUnavailable("there is no daemon")

    with pytest.raises(SandboxUnavailableError, match="there is no daemon"):
        asyncio.run(checked("test_exec_output", register("nowhere", nowhere)))


def test_all_sessions_of_a_sample_are_at_one_place(daemon: Daemon) -> None:
    """In a cluster the next name may belong to another machine."""
    names = list[str]()

    def once(name: str) -> Any:
        names.append(name)
        return aconnect(f"one-{name}", daemon.socket, False)

    async def main() -> None:
        async with sample(register("one", once)) as environment:
            await asyncio.gather(environment.exec(["true"]), environment.exec(["true"]))

    asyncio.run(main())
    (first,) = names
    for agent in (f"one-{first}", f"one-{first.removesuffix('1')}2"):
        wait_until(functools.partial(daemon.logged, agent), "the log of its commands")


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed (apt install bubblewrap)")
def test_sessions_may_be_confined(place: Path) -> None:
    async def main() -> None:
        def session(name: str) -> AsyncSession:
            # Its own directory: where we are may be below /tmp, which is hidden in the sandbox.
            return AsyncSession(cwd=place, sandbox=Limit(write=[place]))

        async with sample(register("confined", session, str(place))) as environment:
            await environment.write_file("below/file", "text")
            found = await environment.exec(
                ["sh", "-c", "cat file; echo $ONE; echo >/etc/x"], cwd="below", env={"ONE": "1"}
            )
            assert (found.stdout, found.returncode) == ("text1\n", 2)
            assert "Read-only" in found.stderr

    asyncio.run(main())


def test_an_ordinary_user_cannot_become_another() -> None:
    async def main() -> None:
        async with sample() as environment:
            with pytest.raises(SandboxUserUnsupportedError, match="'root': only root can change that"):
                await environment.exec(["id"], user="root")
            assert (await environment.exec(["id", "-u"], user=str(os.getuid()))).success

    run_as("an ordinary user", lambda: asyncio.run(main()))


def test_the_base_class_is_what_inspect_finds_by_name() -> None:
    assert registry_find_sandboxenv("shellsession") is InspectSandbox
