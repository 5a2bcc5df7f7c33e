"""The verbs as models call them: time limits hold, and the end of each command is reported."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from system import PATIENCE, until, wait_until

from shellsession import (
    TTY,
    Agents,
    AsyncSession,
    InvalidRequest,
    Limits,
    NotRunning,
    Policy,
    PolicyRefused,
    Session,
    SessionBusy,
    ShellSessionError,
    aconnect,
)
from shellsession.integrations import toolbox
from shellsession.integrations.toolbox import PROGRESS, Toolbox, describe
from shellsession.models import Result
from shellsession.signatures import kept_streams

Story = Callable[[AsyncSession, Toolbox], Awaitable[None]]


# What a job or a command waits for in its directory.
GO = "until [ -e go ]; do sleep 0.02; done"


def play(story: Story, place: Path) -> None:
    """With a session in which a command runs that was handed back. It prints as soon as ``place`` has a file ``go``."""

    async def main() -> None:
        async with AsyncSession(cwd=place) as session:
            tools = Toolbox(session, patience=0.2, timeout=1000, tick=0.05)
            assert "still running" in await tools.bash(f"{GO}; echo more; touch printed; sleep 1000")
            tools._patience = PATIENCE
            await story(session, tools)

    asyncio.run(main())


async def time_passes(seconds: float = 1000) -> None:
    """Have the clock of the running loop go forward."""
    loop = asyncio.get_running_loop()
    clock = loop.time
    loop.time = lambda: clock() + seconds  # type: ignore[method-assign]
    await asyncio.sleep(0)


async def ended(session: AsyncSession) -> None:
    await time_passes()
    await asyncio.to_thread(wait_until, lambda: session.state != "running", "the end that its time limit gives it")


def test_a_model_types_keys() -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            tools = Toolbox(session)
            await tools.bash("cat; echo $?", interactive=True)
            with pytest.raises(InvalidRequest, match="no key 'Ctrl-C'; the names are: C-x"):
                await tools.call("send", {"keys": ["Ctrl-C"]})
            assert await tools.call("send", {"text": "a", "keys": ["BSpace", "b", "Enter", "C-d"]}) == "b\n0"

    asyncio.run(main())


def test_a_session_for_threads_gets_keys_and_ends_what_a_cancelled_call_waits_for() -> None:
    async def main() -> None:
        with Session() as session:
            tools = Toolbox(session, patience=0.2)
            await tools.bash("cat; sleep 1000", interactive=True)
            assert "still running" in await tools.send("a", keys=["Enter", "C-d"])
            tools._patience = tools._tick = 1000
            call = asyncio.ensure_future(tools.wait())
            await asyncio.to_thread(wait_until, session.is_in_use, "the wait")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(call), PATIENCE)
            assert session.state == "idle"

    asyncio.run(main())


def test_a_call_that_is_refused_leaves_the_time_limit(place: Path) -> None:
    async def story(session: AsyncSession, tools: Toolbox) -> None:
        with pytest.raises(SessionBusy):
            await tools.bash("echo never", timeout=1000)
        with pytest.raises(ShellSessionError, match="not given the terminal"):
            await tools.send("x")
        await ended(session)

    play(story, place)


def test_a_call_that_is_given_up_leaves_the_time_limit(place: Path) -> None:
    async def fail(_: float, __: str) -> None:
        raise ConnectionError("nobody listens")

    async def story(session: AsyncSession, tools: Toolbox) -> None:
        token = PROGRESS.set(fail)
        with pytest.raises(ConnectionError):
            await tools.wait()
        PROGRESS.reset(token)
        assert session.state == "running"
        await ended(session)

    play(story, place)


@pytest.mark.parametrize("verb", ["wait", "interrupt"])
def test_a_call_after_the_time_limit_returns_the_end(verb: str, place: Path) -> None:
    async def story(session: AsyncSession, tools: Toolbox) -> None:
        (place / "go").touch()
        await until((place / "printed").exists)
        await ended(session)
        said = await getattr(tools, verb)()
        assert said.startswith("more\n[ended by its time limit after ")
        with pytest.raises(NotRunning):
            await tools.wait()
        assert await tools.bash("echo on") == "on"

    play(story, place)


def test_one_call_at_a_time(place: Path) -> None:
    async def story(session: AsyncSession, tools: Toolbox) -> None:
        async with tools._exclusive():  # as another call would be
            tools._patience = 0.2
            with pytest.raises(SessionBusy, match="another call still waits for its command"):
                await tools.wait()

    play(story, place)


def test_a_command_is_not_started_if_no_time_is_left_when_the_session_is_free() -> None:
    """It would be handed back when the patience of its client has ended."""

    async def main() -> None:
        async with AsyncSession() as session:
            tools = Toolbox(session, patience=1000, tick=400)
            async with tools._exclusive():  # as another call would be
                late = asyncio.create_task(tools.bash("X=begun"))
                await until(lambda: tools._line is not None and len(tools._line.places) == 2)
                await time_passes(700)
                await asyncio.wait({late}, timeout=PATIENCE)
            with pytest.raises(SessionBusy, match="another call still waits for its command"):
                await late
            assert await tools.bash("echo ${X-never}") == "never"

    asyncio.run(main())


def test_all_that_is_not_shown_is_counted(place: Path) -> None:
    async def main() -> None:
        async with AsyncSession(cwd=place) as session:
            tools = Toolbox(session, max_chars=1000)
            for size in (3500, 100_000):
                said = await tools.bash(f"printf %{size}s")
                assert len(said) <= 1000
                assert (mark := re.search(r"\[\.\.\. ([\d ]+) bytes omitted; read_output.* shows them \.\.\.\]", said))
                assert int(mark[1].replace(" ", "")) + len(said) - len(mark[0]) == size
            await tools.bash(f"{{ {GO}; printf %2000000s; echo end; }} &")
            (place / "go").touch()
            await asyncio.to_thread(wait_until, lambda: session.jobs()[0].stdout.endswith("end\n"), "its last word")
            assert re.search(r"\d bytes( \(.* lines\))? omitted \.\.\.\]", await tools.jobs())

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["here", "daemon"])
@pytest.mark.parametrize("max_chars", [500, 5000, 30_000])
def test_jobs_show_and_count_all_that_was_printed(
    kind: str, max_chars: int, place: Path, request: pytest.FixtureRequest
) -> None:
    sizes = {"j1": 48_894, "j2": 588_896, "j3": 30}  # of seq; the second is cut by its own limit, too

    async def main() -> None:
        where = (
            AsyncSession(cwd=place)
            if kind == "here"
            else await aconnect(f"counting-{max_chars}", request.getfixturevalue("daemon").socket, cwd=place)
        )
        async with where as session:
            tools = Toolbox(session, max_chars=max_chars)
            for command in ("seq 10000", "seq 100000; printf 1", "seq -f %08.0f 3; printf abc"):
                await tools.bash(f"{{ {GO}; {command}; sleep 1000; }} &")
            (place / "go").touch()

            def printed() -> list[int]:
                return [sum(len(data) + omitted for _, data, omitted, _ in kept_streams(job)) for job in session.jobs()]

            await asyncio.to_thread(wait_until, lambda: printed() == [*sizes.values()], "all output")
            for job, size in sizes.items():
                said = await tools.jobs(job)
                assert len(said) <= max_chars
                assert shown_and_told(said.partition("\n")[2]) in (size, size - 1)  # without the last newline
            said = await tools.jobs()
            assert len(said) <= max_chars
            for part, size in zip(re.split(r"\[j\d, running: .*\]\n", said)[1:], sizes.values(), strict=True):
                assert shown_and_told(part) in (size, size - 1, size + 1)

    asyncio.run(main())


def shown_and_told(text: str) -> int:
    """How many bytes of output a text has, with those that it says are missing."""
    marks = re.findall(r"(\[\.\.\. ([\d ]+) bytes.* omitted \.\.\.\]\n?)", text)
    told = sum(int(number.replace(" ", "")) for _, number in marks)
    return len(text) - sum(len(mark) for mark, _ in marks) + told


def test_a_list_of_many_jobs_names_them_all_or_says_how_many_more(place: Path) -> None:
    async def main() -> None:
        async with AsyncSession(cwd=place) as session:
            tools = Toolbox(session, max_chars=2000)
            for _ in range(14):
                await tools.bash(f"{{ {GO}; seq 3000; sleep 1000; }} &")
            (place / "go").touch()
            await until(lambda: all(job.stdout.endswith("3000\n") for job in session.jobs()))
            said = await tools.jobs()
            more = re.search(r"\n\[(\d+) more: name a job\]$", said)
            assert len(re.findall(r"^\[j\d+, running: ", said, re.MULTILINE)) + (int(more[1]) if more else 0) == 14
            assert len(said) <= 2000

    asyncio.run(main())


def test_one_job_is_shown_waited_for_and_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolbox, "_END_OF_JOB", PATIENCE)

    async def main() -> None:
        async with AsyncSession(cwd=tmp_path) as session:
            tools = Toolbox(session)
            await tools.bash(f"({GO}; echo 'Ready (80)'; exit 3) &")
            started = await tools.bash("sleep 1000 &")
            (pid,) = re.findall(r"process (\d+); see `jobs`", started)
            assert (await tools.jobs(pid)).startswith("[j2, running: ")
            assert "[it has not printed 'Ready (80)']" in await tools.jobs("j1", until="Ready (80)", seconds=0.01)
            (tmp_path / "go").touch()
            assert (await tools.jobs("j1", until="Ready (80)")).endswith("]\nReady (80)")
            assert re.match(
                r"\[j1, ended, exit status 3: process \d+: .*\]\nReady", await tools.jobs("j1", seconds=PATIENCE)
            )
            assert "[j2, ended, exit status 137: " in await tools.jobs("j2", kill=True)
            assert (await tools.jobs()).count("[j") == 2
            for wrong in ({"job": "j9"}, {"kill": True}):
                with pytest.raises(InvalidRequest, match="call jobs without arguments"):
                    await tools.call("jobs", wrong)

    asyncio.run(main())


def test_what_is_not_shown_can_be_read(place: Path) -> None:
    async def go(_: float, __: str) -> None:
        (place / "go").touch()

    async def main() -> None:
        async with AsyncSession(cwd=place) as session:
            tools = Toolbox(session, max_chars=1000, tick=0.1)
            PROGRESS.set(go)
            said = await tools.bash(f"seq 5000; {GO}; seq 5001 10000")  # in several results of the session
            assert 'omitted; read_output("c1", ...) shows them ...]' in said
            assert await tools.call("read_output", {"id": "c1", "lines": [4999, 5001]}) == "4999\n5000\n5001\n"
            assert await tools.call("read_output", {"id": "c1", "grep": "^9*$"}) == "9:9\n99:99\n999:999\n9999:9999\n"
            assert len(await tools.call("read_output", {"id": "c1", "bytes": [9, None]})) <= 1000
            assert await tools.call("read_output", {"id": "c1", "stream": "stderr"}) == (
                "[nothing: there is no such part, or no line matches]"
            )
            for wrong in ({"id": "c9"}, {"id": "c1", "lines": [3]}, {"id": "c1", "grep": "("}, {"id": 1}):
                with pytest.raises(ShellSessionError):
                    await tools.call("read_output", wrong)

    asyncio.run(main())


def test_a_pattern_that_backtracks_without_end_holds_up_nobody() -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            tools = Toolbox(session)
            await tools.bash("printf %040000d 0; echo; echo last")
            search = asyncio.create_task(tools.call("read_output", {"id": "c1", "grep": "(0+)+$b"}))
            await tools.bash("true")
            assert not search.done()
            with pytest.raises(InvalidRequest, match=r"'\(0\+\)\+\$b' takes too long: simplify the pattern"):
                await search
            assert await tools.call("read_output", {"id": "c1", "grep": "^l"}) == "2:last\n"

    asyncio.run(main())


def test_wait_returns_once_the_command_has_printed_a_text(place: Path) -> None:
    async def main() -> None:
        with Session(cwd=place) as threaded:
            async with AsyncSession(cwd=place) as session:
                for one in (session, threaded):
                    tools = Toolbox(one, patience=0.2, tick=0.1)
                    assert "Ready (8" not in await tools.bash(f"{GO}; rm go; echo 'Ready (80)'; sleep 1000")
                    (place / "go").touch()
                    tools._patience = PATIENCE
                    said = await tools.wait(until="Ready (80)")
                    assert "Ready (80)\n[it has printed the text of `until`, and is still running: " in said
                    assert "still running after" in await tools.wait(0.3, until="never")
                    await tools.interrupt()

    asyncio.run(main())


def test_a_page_shows_no_secret() -> None:
    async def main() -> None:
        async with AsyncSession(redact=["hunter[0-9]"]) as session:
            tools = Toolbox(session)
            await tools.bash("echo a; echo password hunter2; printf %5000d 1")
            assert await tools.read_output("c1", grep="pass") == "2:password ***\n"
            assert (
                await tools.read_output("c1", grep="hunter|2") == "[nothing: there is no such part, or no line matches]"
            )
            assert await tools.read_output("c1", bytes=[0, 14]) == "a\npassword ***"
            few = Toolbox(session, max_chars=1000)
            assert 'read_output("c1", bytes=[' in await few.read_output("c1", lines=[3, 3])
            assert "1" in await few.read_output("c1", bytes=[4900, None])

    asyncio.run(main())


def test_what_a_cut_left_of_a_secret_is_masked() -> None:
    secret = "a-very-long-secret-0123456789"
    options: Any = {"policy": Policy(mask_secrets=True), "extra_env": {"API_TOKEN": secret}}
    with Session(limits=Limits(max_output=1600), **options) as sh:
        result = sh.run("printf %600s; printf $API_TOKEN%.0s {1..400}")
        assert secret[-8:] in result.stdout
        said = describe([result], 400, secrets=sh.secrets)
    assert re.fullmatch(r" +\[\.\.\. .* \.\.\.\]\*+", said)


@pytest.mark.parametrize("setting", ["patience", "timeout", "tick"])
@pytest.mark.parametrize("value", [0, -1, None, "3", True, float("nan")])
def test_bad_limits_are_refused_at_once(setting: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Toolbox(AsyncSession(), **{setting: value})
    assert str(refused.value) == f"{setting} must be a positive number of seconds (at most 1000000000)"


@pytest.mark.parametrize("value", [-1, None, "3", True, 1.5])
def test_bad_amounts_of_output_are_refused_at_once(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="max_chars must be a number of characters"):
        Toolbox(AsyncSession(), max_chars=value)


def test_errors_do_not_suggest_to_run_without_a_limit() -> None:
    """None, which JSON calls null, is the usual one."""

    async def main() -> None:
        tools = Toolbox(AsyncSession(), timeout=90)
        said = "timeout must be a positive number of seconds (at most 1000000000); by default it is 90"
        with pytest.raises(InvalidRequest, match=re.escape(said)):
            await tools.call("bash", {"command": "echo never", "timeout": 0})
        with pytest.raises(
            InvalidRequest, match=r"^seconds must be a positive number of seconds \(at most 1000000000\)$"
        ):
            await tools.call("wait", {"seconds": -1})

    asyncio.run(main())


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0004, "0.0004"), (0.04, "0.04"), (0.41, "0.4"), (9.94, "9.9"), (10.2, "10")]
)
def test_durations_are_shown_without_rounding_to_zero(seconds: float, said: str) -> None:
    result = Result(b"", b"", None, None, "/", seconds, "timed_out", reason="the time limit passed")
    assert describe([result]).startswith(f"[ended by its time limit after {said} s; ")


@pytest.mark.parametrize(
    ("text", "more", "typed"), [("ab", {}, "ab\\n"), ("ab\n", {}, "ab\\n"), ("abc", {"enter": False}, "abc")]
)
def test_enter_is_pressed_once_unless_the_model_says_no(text: str, more: dict[str, bool], typed: str) -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            tools = Toolbox(session)
            keys = "stty -icanon -echo; IFS= read -rN 3 x; printf %s \"${x//$'\\n'/\\\\n}\""
            assert "waits for input" in await tools.bash(keys, interactive=True)
            assert await tools.call("send", {"text": text, **more}) == typed

    asyncio.run(main())


def test_what_a_model_reads_names_its_own_tools() -> None:
    async def main() -> None:
        session = AsyncSession()
        tools = Toolbox(session, patience=0.2, tick=0.05)

        async def said(verb: str, **arguments: object) -> str:
            try:
                text = await tools.call(verb, arguments)
            except ShellSessionError as error:
                text = str(error)
            assert not re.search(r"stdin=|TTY|None|\w\(\)|connect", text)
            return text

        for verb in ("wait", "interrupt"):
            assert "`bash` runs a command" in await said(verb)
        asks = await Toolbox(session).bash("read x </dev/tty")
        assert "run it again with interactive=true, then call `send`" in asks
        assert "`interrupt` ends it" in await said("bash", command="sleep 1000", timeout=60)
        assert "run it again with interactive=true" in await said("send", text="x")
        refused = await said("bash", command="true")
        assert "`wait` for it" in refused
        assert "start it again with `&`" in refused
        lines = "lines is [first, last], such as [200, 300]; [200, null] goes to the end; "
        for wrong in ([2, 1], [5], "200:300", 5):
            assert (await said("read_output", id="c1", lines=wrong)).startswith(lines)
        assert "bytes is [first, end], such as [0, 4096]; " in await said("read_output", id="c1", bytes="0:9")
        assert "leave out lines and grep" in await said("read_output", id="c1", bytes=[0, 9], grep="x")
        await said("restart")
        others = asyncio.create_task(session.run("sleep 1000", timeout=60))
        await asyncio.sleep(0)
        assert "call again when that call has returned" in await said("send", text="x")
        await said("interrupt")
        await others
        await session.close()
        for verb, more in (("wait", {}), ("interrupt", {}), ("restart", {}), ("read_output", {"id": "c1"})):
            assert "no tool can open another one" in await said(verb, **more)

    asyncio.run(main())


@pytest.mark.parametrize("wrong", [Agents(), "a1", None], ids=["agents without a name", "name", "none"])
def test_what_is_no_session_is_refused_at_construction(wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"pass its name|AsyncSession"):
        Toolbox(wrong)


@pytest.mark.parametrize("name", ["nope", "Bash", "", "checked"])
def test_a_tool_that_a_model_invents_is_refused(name: str) -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            with pytest.raises(InvalidRequest, match="the tools are bash, send, wait"):
                await Toolbox(session).call(name, {})

    asyncio.run(main())


@pytest.mark.parametrize(("given", "meant"), [(120_000, "33 hours: did you mean 120?"), (1.8e6, "mean 1800?")])
def test_timeout_in_milliseconds_is_refused(given: float, meant: str) -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            tools = Toolbox(session)
            with pytest.raises(InvalidRequest, match=re.escape(meant)):
                await tools.call("bash", {"command": "echo never", "timeout": given})
            assert await tools.call("bash", {"command": "echo a day", "timeout": 86_400}) == "a day"

    asyncio.run(main())


@pytest.mark.parametrize("kind", [AsyncSession, Session])
def test_arguments_of_other_tools_are_accepted_where_they_are_plain(kind: Callable[[], Any], tmp_path: Path) -> None:
    async def main() -> None:
        session = kind()
        tools = Toolbox(session)
        call = {"command": "pwd; kept=1", "description": "Show the directory", "workdir": str(tmp_path)}
        assert await tools.call("bash", call) == str(tmp_path)
        assert await tools.call("bash", {"command": '[ "$PWD" = ' + str(tmp_path) + " ]; echo $? $kept"}) == "1 1"
        os.mkfifo(fifo := tmp_path / "fifo")
        # The last line is a comment: nothing may be added to it.
        started = {"command": f"read x <{fifo}; echo $x # then", "run_in_background": True}
        assert "left running in the background" in await tools.call("bash", started)
        assert await tools.call("bash", {"command": "echo meanwhile", "run_in_background": False}) == "meanwhile"
        await asyncio.to_thread(fifo.write_text, "done\n")
        assert "]\ndone" in await tools.call("jobs", {"job": "j1", "seconds": 30})
        assert "background" in await tools.call("bash", {"command": "sleep 60 \\", "run_in_background": True})
        with pytest.raises(InvalidRequest, match="workdir: should be a valid string"):
            await tools.call("bash", {"command": "true", "workdir": 1})
        with pytest.raises(InvalidRequest, match="cwd: is unknown; the arguments are command, timeout"):
            await tools.call("bash", {"command": "true", "cwd": "/"})
        await asyncio.to_thread(session.close) if kind is Session else await session.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["AsyncSession", "Session", "daemon"])
def test_background_command_that_ends_at_once_says_so(kind: str, daemon: Any) -> None:
    async def main() -> None:
        session: Any = Session() if kind == "Session" else AsyncSession()
        if kind == "daemon":
            session = await aconnect("at-once", daemon.socket)
        tools = Toolbox(session)
        said = "[left running"
        while "[left running" in said:  # it had not ended when the call returned
            said = await tools.call("bash", {"command": "echo out; exit 7", "run_in_background": True})
        assert said.startswith("[stdout]\nout\n")
        assert "[it has ended already: `wait $!` returns its exit status]" in said
        assert "[exit status 7]" in await tools.bash("wait $!")
        await asyncio.to_thread(session.close) if kind == "Session" else await session.close()

    asyncio.run(main())


@pytest.mark.parametrize("text", ["", "# nothing to do", "\n # nothing\n\n"])
def test_background_command_of_comments_alone_runs_nothing(text: str) -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            assert await Toolbox(session).call("bash", {"command": text, "run_in_background": True}) == "[no output]"

    asyncio.run(main())


def test_workdir_is_where_the_policy_judges(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            tools = Toolbox(session, policy=Policy(write=[f"{tmp_path}/*"]))
            await tools.call("bash", {"command": "echo >here", "workdir": str(tmp_path)})
            with pytest.raises(PolicyRefused):
                await tools.call("bash", {"command": "echo >there", "workdir": "/tmp"})

    asyncio.run(main())
    assert (tmp_path / "here").exists()


@pytest.mark.parametrize("kind", ["AsyncSession", "Session", "daemon"])
def test_session_with_a_terminal_as_stdin_asks_the_model(kind: str, daemon: Any) -> None:
    async def main() -> None:
        session: Any = Session(stdin=TTY) if kind == "Session" else AsyncSession(stdin=TTY)
        if kind == "daemon":
            session = await aconnect("asks", daemon.socket, stdin=TTY)
        tools = Toolbox(session)
        asks = await tools.bash("read -p 'sure? ' x; echo got $x")
        assert "it waits for input: `send` answers it" in asks
        assert "got yes" in await tools.send("yes")
        await asyncio.to_thread(session.close) if kind == "Session" else await session.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["AsyncSession", "Session", "daemon"])
def test_end_of_a_job_is_told_once(kind: str, tmp_path: Path, daemon: Any) -> None:
    async def main() -> None:
        session: Any = Session() if kind == "Session" else AsyncSession()
        if kind == "daemon":
            session = await aconnect("ends", daemon.socket)
        tools = Toolbox(session)
        fifos = [tmp_path / name for name in "abc"]
        for number, fifo in enumerate(fifos):
            os.mkfifo(fifo)
            said = await tools.bash(f"(read x <{fifo}; exit {number}) &")
            assert said.endswith(f"; see `jobs` (j{number + 1})]")

        async def end(number: int) -> None:
            await asyncio.to_thread(fifos[number].write_text, "\n")
            (job,) = [job for job in session.jobs() if job.id == f"j{number + 1}"]
            await asyncio.to_thread(wait_until, lambda: not job.running, "the job's end")

        await end(1)
        assert await tools.bash("echo on") == "on\n[ended in the background: job j2 (exit status 1)]"
        assert await tools.bash("echo on") == "on"
        await end(0)
        assert "j1, ended" in await tools.call("jobs", {})
        assert await tools.bash("echo on") == "on"
        await end(2)
        assert "j3, ended" in await tools.call("jobs", {"job": "j3"})
        assert await tools.bash("echo on") == "on"
        await asyncio.to_thread(session.close) if kind == "Session" else await session.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["AsyncSession", "Session", "daemon"])
def test_end_of_a_job_without_room_in_the_list_is_told_later(kind: str, tmp_path: Path, daemon: Any) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")

    async def main() -> None:
        session: Any = Session() if kind == "Session" else AsyncSession()
        if kind == "daemon":
            session = await aconnect("crowded", daemon.socket)
        tools = Toolbox(session, max_chars=200)
        await tools.bash("for n in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done")
        await tools.bash(f"(read x <{fifo}; exit 7) &")
        await asyncio.to_thread(fifo.write_text, "\n")
        *_, last = session.jobs()
        await asyncio.to_thread(wait_until, lambda: not last.running, "the job's end")
        assert "more: name a job" in await tools.jobs()
        ended = f"on\n[ended in the background: job {last.id} (exit status 7)]"
        assert [await tools.bash("echo on") for _ in range(2)] == [ended, "on"]
        await asyncio.to_thread(session.close) if kind == "Session" else await session.close()

    asyncio.run(main())


def test_end_of_a_job_is_told_while_a_command_is_handed_back(tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")

    async def main() -> None:
        async with AsyncSession() as session:
            tools = Toolbox(session)
            await tools.bash(f"(read x <{fifo}; exit 7) &")
            tools._patience = 0.2
            assert "still running" in await tools.bash("sleep 1000")
            await asyncio.to_thread(fifo.write_text, "\n")
            (job,) = session.jobs()
            await asyncio.to_thread(wait_until, lambda: not job.running, "the job's end")
            assert "ended in the background: job j1" in await tools.wait()
            assert "job j1" not in await tools.interrupt()

    asyncio.run(main())


def test_jobs_that_a_restart_ends_are_not_told() -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            tools = Toolbox(session)
            await tools.bash("sleep 1000 &")
            await tools.restart()
            assert await tools.bash("echo on") == "on"

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["AsyncSession", "Session", "daemon"])
def test_model_reads_only_what_is_new_of_a_job(
    kind: str, tmp_path: Path, daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolbox, "_END_OF_JOB", PATIENCE)
    go, on = tmp_path / "go", tmp_path / "on"
    os.mkfifo(go)
    os.mkfifo(on)

    async def main() -> None:
        session: Any = Session(redact=["PIN-[0-9]+"]) if kind == "Session" else AsyncSession(redact=["PIN-[0-9]+"])
        if kind == "daemon":
            session = await aconnect("reads", daemon.socket, redact=["PIN-[0-9]+"])
        tools = Toolbox(session)

        async def read(**arguments: object) -> str:
            return await tools.call("read_output", {"id": "j1", "stream": "stderr", **arguments})

        await tools.bash(f"(read x <{go}; echo PIN-123 >&2; read x <{on}; echo two >&2; sleep 1000) &")
        await asyncio.to_thread(go.write_text, "\n")
        await tools.call("jobs", {"job": "j1", "until": "PIN", "seconds": 30})
        assert await read() == "***\n[since=8 shows only what is new]"
        assert await read(since=4) == "***\n[since=8 shows only what is new]"
        nothing = "[nothing new; since=0 shows only what is new]"
        assert await read(stream="stdout") == f'{nothing}\n[stream="stderr" has some]'
        await asyncio.to_thread(on.write_text, "\n")
        await tools.call("jobs", {"job": "j1", "until": "two", "seconds": 30})
        assert await read(since=8) == "two\n[since=12 shows only what is new]"
        with pytest.raises(InvalidRequest, match="tail and since each name"):
            await read(since=8, grep="x")
        await tools.call("jobs", {"job": "j1", "kill": True})
        assert await read(tail=1) == "two\n"
        assert (await read(since=12)).startswith("[nothing")
        await asyncio.to_thread(session.close) if kind == "Session" else await session.close()

    asyncio.run(main())
