"""The MCP server, driven by the official client against a real server process."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import ElicitResult
from sandboxes import needs_bwrap
from system import LIMITS, until

from shellsession import AsyncDaemon, PolicyRefused, connect

_ERROR = "refused by policy: "


class Talk:
    """A client of one server, and the progress that it was told of: seconds and last lines of output."""

    def __init__(self, client: Any) -> None:
        self.client, self.progress, self.lines = client, list[float](), list[str | None]()

    async def call(self, name: str, **arguments: object) -> tuple[str, bool]:
        async def tell(progress: float, total: float | None, message: str | None) -> None:
            self.progress.append(progress)
            self.lines.append(message)

        result = await self.client.call_tool(name, arguments, progress_callback=tell)
        return "\n".join(part.text for part in result.content), bool(result.is_error)

    async def until(self, wanted: str, name: str, **arguments: object) -> str:
        """The first text that has this, of a call or of the waits that follow it."""
        text, _ = await self.call(name, **arguments)
        while wanted not in text:
            assert "[still running" in text
            text, _ = await self.call("wait")
        return text


@asynccontextmanager
async def serving(
    *options: str, client: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[Talk]:
    words = ["-m", "shellsession", "mcp", *options]
    server = StdioServerParameters(command=sys.executable, args=words, env={**os.environ, **(env or {})})
    async with Client(stdio_client(server), **(client or {})) as connected:
        yield Talk(connected)


def talk(story: Callable[[Talk], Awaitable[None]], *options: str, **environment: str) -> None:
    async def main() -> None:
        async with serving(*options, env=environment) as talk:
            await story(talk)

    asyncio.run(main())


def test_the_tools_are_the_verbs() -> None:
    async def story(talk: Talk) -> None:
        tools = {tool.name: tool for tool in (await talk.client.list_tools()).tools}
        assert sorted(tools) == ["bash", "interrupt", "jobs", "read_output", "restart", "send", "wait"]
        assert all(tool.description for tool in tools.values())
        lines = [line for tool in tools.values() for line in tool.description.split("\n")]
        assert lines == [line.strip() for line in lines]  # models are not shown how our source is indented
        properties = tools["bash"].input_schema["properties"]
        assert sorted(properties) == ["command", "interactive", "timeout"]
        assert all(described["description"] for described in properties.values())
        assert tools["bash"].input_schema["required"] == ["command"]

    talk(story)


def test_state_persists_and_streams_and_status_are_returned(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        assert await talk.call("bash", command=f"cd {tmp_path}; word=hello") == ("[no output]", False)
        text, failed = await talk.call("bash", command="echo $PWD $word; echo oh >&2; false")
        assert (text, failed) == (f"[stdout]\n{tmp_path} hello\n[stderr]\noh\n[exit status 1]", False)
        assert await talk.call("restart") == ("[a fresh bash was started]", False)
        assert (await talk.call("bash", command="echo ${word-gone}"))[0] == "gone"

    talk(story)


def test_bash_never_holds_the_protocols_descriptors() -> None:
    async def story(talk: Talk) -> None:
        text, _ = await talk.call("bash", command="cat; readlink /proc/self/fd/0 /proc/$$/fd/* | sort -u")
        assert text.startswith("/dev/null\n")
        text, _ = await talk.call("bash", command="for fd in /proc/$PPID/fd/{0,1}; do readlink $fd; done")
        protocols = set(text.splitlines())
        assert "/dev/null" in protocols  # the SDK diverts 0; its own copies are elsewhere
        text, _ = await talk.call("bash", command="echo broken >&1; echo '{\"jsonrpc\": 1}'; python3 -c 'print(1)'")
        assert text == 'broken\n{"jsonrpc": 1}\n1'

    talk(story)


def test_a_long_command_is_handed_back_in_time_and_goes_on(tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")

    async def story(talk: Talk) -> None:
        text = await talk.until("begun", "bash", command=f"echo begun; read word <{fifo}; echo $word")
        assert re.match(r"begun\n\[still running after [0-9.]+ s\b.*: `wait`", text)
        text, failed = await talk.call("bash", command="echo too early")
        assert failed
        assert "still running" in text
        with fifo.open("w") as pipe:
            pipe.write("released\n")
        assert await talk.until("released", "wait") == "released"
        assert await talk.until("on", "bash", command="echo on") == "on"

    talk(story, "--patience", "0.3")


def test_progress_is_reported_while_a_call_waits(tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")

    async def main() -> None:
        program = "from shellsession.integrations.mcp import serve; serve(tick=0.1)"
        server = StdioServerParameters(command=sys.executable, args=["-c", program], env=dict(os.environ))
        async with Client(stdio_client(server)) as client:
            talk = Talk(client)
            command = f"printf 'compiled 1\\ncompiled 2\\n'; read x <{fifo}; echo done"
            call = asyncio.create_task(talk.call("bash", command=command))
            await until(lambda: talk.lines.count("compiled 2") > 2)
            await asyncio.to_thread(fifo.write_text, "go\n")
            assert (await call)[0] == "compiled 1\ncompiled 2\ndone"
            assert {line for line in talk.lines if line} == {"compiled 2"}
            assert 0.1 <= talk.progress[0] < talk.progress[1] < talk.progress[2]

    asyncio.run(main())


def test_the_time_limit_ends_the_command_and_keeps_the_shell() -> None:
    async def story(talk: Talk) -> None:
        await talk.call("bash", command="kept=1")
        for limit in LIMITS:
            text, failed = await talk.call("bash", command="echo begun; sleep 1000", timeout=limit)
            if "begun" in text:
                break
        assert (found := re.match(r"begun\n\[ended by its time limit after ([0-9.]+) s; the shell", text))
        assert float(found[1]) >= limit
        assert not failed
        assert (await talk.call("bash", command="echo $kept"))[0] == "1"

    talk(story)


def test_a_handed_back_command_that_nobody_comes_back_for_is_ended_by_its_limit(tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")

    async def story(talk: Talk) -> None:
        # the end of the writer, seen here, is the end of the command
        command = f"exec 9>{fifo}; echo $BASHPID >&9; sleep 1000"
        reader = asyncio.create_task(asyncio.to_thread(fifo.read_text))
        text, _ = await talk.call("bash", command=f"bash -c '{command}'", timeout=5)
        assert "still running" in text
        assert (await reader).strip().isdigit()

    talk(story, "--patience", "0.2")


def test_interactive_commands_are_answered() -> None:
    async def story(talk: Talk) -> None:
        text, _ = await talk.call("bash", command="read -p 'name? ' name; echo hi $name", interactive=True)
        assert text.startswith("[stderr]\nname? \n[it waits for input: `send` answers it, `interrupt` ends it")
        assert (await talk.call("send", text="Ada\n"))[0].endswith("hi Ada")

    talk(story)


def test_interrupt_and_jobs() -> None:
    async def story(talk: Talk) -> None:
        assert "still running" in (await talk.call("bash", command="echo x; sleep 1000"))[0]
        text, failed = await talk.call("interrupt")
        assert "interrupted" in text
        assert not failed
        text, failed = await talk.call("interrupt")
        assert failed
        assert "no running command" in text
        await talk.until("left running in the background: process", "bash", command="{ echo job; sleep 1000; } &")
        assert "[j1, running: process" in (await talk.call("jobs"))[0]

    talk(story, "--patience", "0.3")


_BAD: list[tuple[dict[str, object], str]] = [
    ({}, "command: is missing; the arguments are command, timeout (optional), interactive (optional)"),
    ({"command": 7}, "command: should be a valid string; the arguments are command, "),
    ({"command": "true", "cwd": "/"}, "cwd: is unknown; the arguments are command, "),
    ({"command": "a\0b"}, "NUL"),
    ({"command": "true", "timeout": -1}, "positive number of seconds"),
    ({"command": "true", "timeout": 1e300}, "positive number of seconds"),
    ({"command": "true", "timeout": True}, "timeout: should be a valid number; the arguments are command, "),
    ({"command": "true", "timeout": "1"}, "timeout: should be a valid number; the arguments are command, "),
    ({"command": "true", "interactive": "yes"}, "interactive: should be a valid boolean; the arguments are "),
    ({"command": "true", "interactive": 1}, "interactive: should be a valid boolean; the arguments are "),
]


def test_bad_arguments_are_errors_that_the_model_can_read() -> None:
    async def story(talk: Talk) -> None:
        for arguments, said in _BAD:
            text, failed = await talk.call("bash", **arguments)
            assert (failed, said in text) == (True, True), (arguments, text)
            assert "Traceback" not in text
            assert "\n" not in text
        assert (await talk.call("bash", command="echo on"))[0] == "on"

    talk(story)


def test_the_end_of_the_client_is_the_end_of_all(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        await talk.call("bash", command=f"sleep 1000 & echo $! >{tmp_path}/pid")

    talk(story)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_named_agents_session_is_the_daemons(tmp_path: Path) -> None:
    socket = tmp_path / "home" / "socket"
    socket.parent.mkdir(mode=0o700)

    async def story(talk: Talk) -> None:
        await talk.call("bash", command="word=gone")
        with connect("builder", socket=socket) as session:
            session.close()
        for verb, arguments, said in (
            (
                "bash",
                {"command": "echo $word"},
                "closed meanwhile: its directory, variables and jobs are lost; call again",
            ),
            ("bash", {"command": "echo [$word]"}, "[]"),
        ):
            assert said in str(await talk.call(verb, **arguments))
        await talk.call("bash", command="word=shared")

    try:
        talk(story, "-s", "builder", "--socket", str(socket))
        with connect("builder", socket=socket) as session:
            assert session.run("echo $word").stdout == "shared\n"
    finally:
        stop = [sys.executable, "-m", "shellsession", "stop", "--socket", str(socket)]
        subprocess.run(stop, check=False, capture_output=True)


@pytest.mark.parametrize("options", [[], ["-s", "gives-up"]], ids=["its own", "the daemon's"])
def test_a_client_that_gives_up_ends_its_command_and_keeps_the_shell(tmp_path: Path, options: list[str]) -> None:
    socket = tmp_path / "home" / "socket"
    socket.parent.mkdir(mode=0o700)

    async def story(talk: Talk) -> None:
        await talk.call("bash", command="kept=1; cd /")
        with pytest.raises(Exception, match="timed out"):
            await talk.client.call_tool("bash", {"command": "sleep 1000"}, read_timeout_seconds=0.5)
        assert await talk.call("bash", command="echo $kept $PWD") == ("1 /", False)

    try:
        talk(story, *options, "--socket", str(socket))
    finally:
        stop = [sys.executable, "-m", "shellsession", "stop", "--socket", str(socket)]
        subprocess.run(stop, check=False, capture_output=True)


def test_calls_at_the_same_time_are_served_one_after_the_other() -> None:
    async def story(talk: Talk) -> None:
        calls = [talk.call("bash", command=f"sleep 0.05; echo {number}") for number in range(4)]
        assert await asyncio.gather(*calls) == [(str(number), False) for number in range(4)]

    talk(story)


def test_nulls_are_arguments_that_were_left_out() -> None:
    async def story(talk: Talk) -> None:
        assert await talk.call("bash", command="echo hi", timeout=None, interactive=None) == ("hi", False)

    talk(story)


@needs_bwrap
def test_the_flags_make_its_session(tmp_path: Path) -> None:
    (project := tmp_path / "project").mkdir()
    said = "echo $PWD $GIVEN ${API_KEY-none} $AWS_REGION; echo x >file; [[ -w / ]] || echo confined"

    async def story(talk: Talk) -> None:
        text, _ = await talk.call("bash", command=said)
        assert text == f"{project} given none here\nconfined"
        text, failed = await talk.call("bash", command="cd / && sudo ls")
        assert (text, failed) == (f"{_ERROR}'sudo' is denied", True)
        text, _ = await talk.call("bash", command="seq 100000")
        assert len(text) <= 300

    flags = ["--sandbox", "--write", str(project), "-C", str(project), "--env", "GIVEN=given", "--pass-env", "AWS_*"]
    talk(story, *flags, "--deny", "sudo", "--max-chars", "300", API_KEY="secret", AWS_REGION="here")


@pytest.mark.parametrize("agent", [(), ("-s", "a1")], ids=["its own", "an agent's"])
def test_a_session_that_cannot_be_made_ends_the_server_at_its_start(tmp_path: Path, agent: tuple[str, ...]) -> None:
    env = {**os.environ, "SHELLSESSION_SOCKET": str(tmp_path / "run" / "socket")}
    line = [sys.executable, "-m", "shellsession"]
    flags = ["--sandbox", "--write", "/nope"]
    done = subprocess.run([*line, "mcp", *agent, *flags], env=env, input=b"", capture_output=True, check=False)
    subprocess.run([*line, "stop"], env=env, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (125, b"")
    expected = b"--write: '/nope' does not exist: make it first, or leave it out\n"
    if shutil.which("bwrap") is None:
        expected = b"no `bwrap` on PATH: install the package bubblewrap, or leave out --sandbox\n"
    assert done.stderr == b"shellsession: " + expected


def test_flags_with_bad_values_are_named_as_typed() -> None:
    for flag, why in (
        ("--timeout", b"must be a positive number"),
        ("--patience", b"must be a"),
        ("--max-chars", b"must be a number"),
    ):
        words = [sys.executable, "-m", "shellsession", "mcp", flag, "-1" if flag != "--max-chars" else "5"]
        done = subprocess.run(words, input=b"", capture_output=True, check=False)
        assert done.returncode == 125
        assert done.stderr.startswith(b"shellsession: %b %b" % (flag.encode(), why))


def test_the_daemon_holds_the_rules_of_an_agents_session(tmp_path: Path) -> None:
    socket = tmp_path / "home" / "socket"
    socket.parent.mkdir(mode=0o700)
    place = ["-s", "builder", "--socket", str(socket)]

    async def story(talk: Talk) -> None:
        assert await talk.call("bash", command="sudo ls") == (f"{_ERROR}'sudo' is denied", True)

    try:
        talk(story, *place, "--deny", "sudo")
        talk(story, *place, "--deny", "sudo")  # the same again
        with connect("builder", socket=socket) as session, pytest.raises(PolicyRefused):
            session.run("sudo ls")
        for flags, said in (
            (["--deny", "su"], b"does not have this policy"),
            (["--env", "A=1"], b"without these variables"),
        ):
            words = [sys.executable, "-m", "shellsession", "mcp", *place, *flags]
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            assert (done.returncode, said in done.stderr) == (125, True)
    finally:
        stop = [sys.executable, "-m", "shellsession", "stop", "--socket", str(socket)]
        subprocess.run(stop, check=False, capture_output=True)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_confirm_asks_the_user_of_the_client(tmp_path: Path, mode: str) -> None:
    asked = list[str]()

    async def answer(_: object, question: Any) -> ElicitResult:
        asked.append(question.message)
        return (
            ElicitResult(action="accept", content={}) if "mkdir" in question.message else ElicitResult(action="decline")
        )

    async def story() -> None:
        options = ("--confirm", "--allow", "ls", "--deny", "sudo", "-C", str(tmp_path))
        async with serving(*options, client={"elicitation_callback": answer, "mode": mode}) as talk:
            assert await talk.call("bash", command="mkdir made") == ("[no output]", False)
            assert await talk.call("bash", command="rmdir made") == (f"{_ERROR}it was not confirmed", True)
            assert await talk.call("bash", command="sudo ls") == (f"{_ERROR}'sudo' is denied", True)
            assert await talk.call("bash", command="ls") == ("made", False)
        async with serving("--confirm", client={"mode": mode}) as talk:
            text, failed = await talk.call("bash", command=f"touch {tmp_path}/never")
            assert (failed, text.endswith("this client cannot ask them (MCP elicitation)")) == (True, True)

    asyncio.run(story())
    assert asked == ["Run this command?\n\nmkdir made", "Run this command?\n\nrmdir made"]
    assert os.listdir(tmp_path) == ["made"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_question_of_the_daemon_is_put_to_the_user_of_the_client(tmp_path: Path, mode: str) -> None:
    from shellsession.daemon.client import admin

    socket, seen = str(tmp_path / "socket"), list[str]()
    daemon = AsyncDaemon(socket)

    async def answer(_: object, question: Any) -> ElicitResult:
        (waits,) = await daemon.approvals()  # others can answer it, too
        seen.append(f"{waits['command']} in {waits['cwd']}")
        assert "\nWith ".join([f"?\n\n{waits['command']}", *waits["given"]]) in question.message
        assert waits["given"] == ["stdin, a terminal: the agent types into it later"] * ("read" in waits["command"])
        if "first" in question.message:
            await daemon.answer(waits["id"], "decline", "not now")
        return (
            ElicitResult(action="decline") if "rmdir" in question.message else ElicitResult(action="accept", content={})
        )

    async def story() -> None:
        options = ("-s", "asked", "--socket", socket, "--approvals", "--allow", "ls", "-C", str(tmp_path))
        async with serving(*options, client={"elicitation_callback": answer, "mode": mode}) as talk:
            assert await talk.call("bash", command="mkdir made") == ("[no output]", False)
            assert await talk.call("bash", command="rmdir made") == (f"{_ERROR}a person declined it", True)
            assert await talk.call("bash", command="true first") == (f"{_ERROR}a person declined it: not now", True)
            assert await talk.call("bash", command="ls -d made") == ("made", False)
            text, failed = await talk.call("bash", command="read -p 'name? ' x", interactive=True)
            assert (failed, "name? " in text) == (False, True)
            assert await talk.call("send", text="Ann") == ("[no output]", False)
        assert await daemon.approvals() == []
        async with serving(*options, "--patience", "1.5", client={"mode": mode}) as talk:
            text, failed = await talk.call("bash", command="touch never")
            assert (failed, "a person has not answered yet" in text) == (True, True)
            await daemon.answer((await daemon.approvals())[0]["id"], "accept")
        async with serving(*options, client={"mode": mode}) as talk:
            assert await talk.call("bash", command="touch never") == ("[no output]", False)

    try:
        asyncio.run(story())
    finally:
        admin.shutdown(socket)
    commands = "mkdir made", "rmdir made", "true first", "read -p 'name? ' x"
    assert seen == [f"{one} in {tmp_path}" for one in commands]
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize("is_shared", [False, True], ids=["own session", "an agent's session"])
def test_rules_of_the_command_line_apply_to_a_client(tmp_path: Path, is_shared: bool) -> None:
    socket, out = tmp_path / "socket", tmp_path / "out"
    out.mkdir()

    async def story(talk: Talk) -> None:
        async def refusal(command: str) -> str:
            text, failed = await talk.call("bash", command=command)
            assert (failed, text[: len(_ERROR)]) == (True, _ERROR)
            return text[len(_ERROR) :]

        assert await talk.call("bash", command=f"echo one >{out}/log") == ("[no output]", False)
        assert "files that can be written" in await refusal(f"echo two >>{tmp_path}/other")
        assert "is not allowed; allowed: echo, cat" in await refusal(f"rm {out}/log")
        assert "'rm ***' is not allowed" in await refusal("rm AKIAIOSFODNN7EXAMPLE")
        assert "is known only at run time" in await refusal("$cmd now")
        assert await talk.call("bash", command=f"cat {out}/log; echo AKIAIOSFODNN7EXAMPLE") == ("one\n***", False)

    rules = ("--redirect", f"{out}/*", "--strict", "--redact", "--allow", "echo", "--allow", "cat")
    try:
        talk(story, *rules, *(("-s", "ruled", "--socket", str(socket)) if is_shared else ()))
    finally:
        if is_shared:
            stop = [sys.executable, "-m", "shellsession", "stop", "--socket", str(socket)]
            subprocess.run(stop, check=True, capture_output=True)
    assert os.listdir(out) == ["log"]
    assert not (tmp_path / "other").exists()


def test_the_user_is_asked_with_the_directory_of_the_command(tmp_path: Path) -> None:
    asked = list[str]()

    async def answer(_: object, question: Any) -> ElicitResult:
        asked.append(question.message)
        return ElicitResult(action="accept", content={})

    async def story() -> None:
        async with serving("--confirm", client={"elicitation_callback": answer}) as talk:
            assert await talk.call("bash", command="pwd", workdir=str(tmp_path)) == (str(tmp_path), False)
            assert (await talk.call("bash", command="pwd"))[0] == os.getcwd()

    asyncio.run(story())
    assert asked == [f"Run this command in {tmp_path}?\n\npwd", "Run this command?\n\npwd"]
