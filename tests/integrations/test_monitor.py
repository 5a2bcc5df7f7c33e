"""The tool ``monitor``: notices come at the beginning of a later result, once; over MCP a resource has them, too."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from daemons import Daemon
from gates import Gate
from stories import KINDS, Call, Play, player
from system import PATIENCE
from test_mcp import serving

from shellsession import AsyncSession, InvalidRequest
from shellsession.integrations.toolbox import Toolbox

_SERVER = "shellsession://notices"


@pytest.fixture(params=KINDS)
def play(request: pytest.FixtureRequest, daemon: Daemon, place: Path) -> Play:
    """Plays a story with the tools of a session."""
    return player(request.param, request.node.name, daemon.socket, {"cwd": place}, monitor=True, max_chars=4000)


# A job prints once there is a monitor: the result of ``monitor`` has the notices that are due already.
def until_made(path: str | Path) -> str:
    return f"until [ -e {path} ]; do sleep 0.05; done"


async def texts_until(call: Call, wanted: str) -> list[str]:
    """The results of calls, up to one with this text."""
    found = [""]
    async with asyncio.timeout(PATIENCE):
        while wanted not in found[-1]:
            found.append(await call("bash", command="sleep 0.05; echo done"))
    return found


async def notices_until(call: Call, wanted: str) -> list[str]:
    """The notices before the results of calls, up to a result with this text."""
    lines = "\n".join(await texts_until(call, wanted)).split("\n")
    return [line for line in lines if line.startswith("[notice: ")]


def test_monitor_notices_come_before_a_later_result_once(play: Play, place: Path) -> None:
    printed, silent = "[notice: job j1 has printed: port 80 is open]", "[notice: job j1 has printed nothing for 0.05 s]"

    async def story(call: Call) -> None:
        job = f"({until_made('go')}; echo port 80 is open; {until_made('end')}; exit 3) &"
        await call("bash", command=job)
        texts = [await call("monitor", job="j1", text="is open", silence=0.05, most=4)]
        if silent not in texts[0]:
            texts += await texts_until(call, silent)
        (place / "go").touch()
        texts += await texts_until(call, printed)
        assert texts[-1].index(printed) < texts[-1].index("done")
        (place / "end").touch()
        texts += await texts_until(call, "exit status 3")
        lines = "\n".join(texts).split("\n")
        assert lines.count(printed) == 1
        assert lines.count(silent) in (1, 2)  # before it prints, and after
        assert len([line for line in lines if "exit status 3" in line]) == 1  # in whichever form
        assert await call("bash", command="echo c") == "c"

    play(story)


def test_monitor_text_is_no_pattern(play: Play, place: Path) -> None:
    async def story(call: Call) -> None:
        await call("bash", command=f"({until_made('go')}; echo 'axb('; echo 'a.b('; sleep 99) &")
        await call("monitor", text="a.b(", most=1)
        (place / "go").touch()
        assert await notices_until(call, "last notice") == [
            "[notice: job j1 has printed: a.b(; this was the last notice of this monitor]"
        ]

    play(story)


def test_monitor_ends_after_most_notices_and_is_of_one_job(play: Play, place: Path) -> None:
    async def story(call: Call) -> None:
        for name in ("first", "second"):
            await call("bash", command=f"({until_made('go')}; seq -f '{name} %g' 5; sleep 99) &")
        await call("monitor", job="j2", text="d", most=2)
        await call("monitor", text="t 5")
        (place / "go").touch()
        found = await notices_until(call, "last notice")
        found += [] if any("t 5" in line for line in found) else await notices_until(call, "t 5")
        assert sorted(found) == [
            "[notice: job j1 has printed: first 5]",
            "[notice: job j2 has printed: second 1]",
            "[notice: job j2 has printed: second 2; this was the last notice of this monitor]",
        ]

    play(story)


def test_monitor_masks_secrets_and_escapes_controls_before_it_cuts(place: Path) -> None:
    async def main() -> None:
        async with AsyncSession(cwd=place, redact=["PIN-[0-9]+"]) as session:
            tools = Toolbox(session, monitor=True)
            job = f"({until_made('go')}; printf '\\u202e%290s PIN-{'1' * 20} b\\n' a; sleep 99) &"
            await tools.call("bash", {"command": job})
            await tools.call("monitor", {"text": "PIN-1"})
            (place / "go").touch()
            (line,) = await notices_until(lambda verb, **call: tools.call(verb, call), "has printed")
            assert line.endswith(" a *** ...]")
            assert "has printed: \\u202e " in line

    asyncio.run(main())


def test_monitor_wrong_argument_is_refused(play: Play) -> None:
    async def story(call: Call) -> None:
        with pytest.raises(InvalidRequest, match="there is no job 'j9': the jobs are none"):
            await call("monitor", job="j9")
        with pytest.raises(InvalidRequest, match="most must be a positive number of notices, not 0"):
            await call("monitor", most=0)

    play(story)


def test_monitor_is_offered_only_if_asked_for() -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            assert "monitor" not in Toolbox(session).verbs
            with pytest.raises(InvalidRequest, match="there is no tool 'monitor'"):
                await Toolbox(session).call("monitor", {})

    asyncio.run(main())


def test_mcp_resource_of_notices_can_be_subscribed_to(place: Path) -> None:
    async def main() -> None:
        async with serving("--monitor") as talk, asyncio.timeout(PATIENCE):
            assert "monitor" in {tool.name for tool in (await talk.client.list_tools()).tools}
            async with talk.client.listen(resource_subscriptions=[_SERVER]) as updates:
                await talk.call("bash", command=f"({until_made(place / 'go')}; echo ready; sleep 99) &")
                await talk.call("monitor", text="ready")
                (place / "go").touch()
                assert (await anext(aiter(updates))).uri == _SERVER
            found = await talk.client.read_resource(_SERVER)
            (notice,) = json.loads(found.contents[0].text)
            assert (notice["kind"], notice["id"], notice["text"]) == ("printed", "j1", "ready")
            assert (await talk.call("bash", command="echo a"))[0] == "[notice: job j1 has printed: ready]\na"

    asyncio.run(main())


@pytest.mark.parametrize("agent", [False, True])
def test_mcp_resource_has_the_notices_of_each_monitor(agent: bool, daemon: Daemon, place: Path) -> None:
    """Each once, also those of a monitor that has ended; a monitor of one job has no lines of another."""
    gate = Gate(place)

    async def main() -> None:
        options = ["--session", "many-monitors", "--socket", daemon.socket] if agent else []
        async with serving("--monitor", *options) as talk, asyncio.timeout(PATIENCE):

            async def listed() -> list[tuple[str, str, str]]:
                found = await talk.client.read_resource(_SERVER)
                notices = json.loads(found.contents[0].text)
                assert len({one["number"] for one in notices}) == len(notices)
                return [(one["kind"], one["id"], one["watch"]) for one in notices]

            await talk.call("bash", command=f"({gate.text}; echo begun 2; echo second) &")
            await talk.call("bash", command="(sleep 99; echo second) &")
            async with talk.client.listen(resource_subscriptions=[_SERVER]) as updates:
                told = aiter(updates)
                await talk.call("monitor", job="j1", text="begun", most=1)
                await anext(told)
                await talk.call("monitor", text="second")
                await talk.call("monitor", job="j2", silence=0.05)
                await talk.call("monitor", silence=0.1)
                while len(await listed()) < 4:
                    await anext(told)
                gate.open()
                while ("printed", "j1", "second") not in await listed():
                    await anext(told)
            found = [one for one in await listed() if one[0] != "ended"]
            assert found.count(("printed", "j1", "begun")) == 1  # that monitor has ended
            assert sorted(set(found)) == [
                ("printed", "j1", "begun"),
                ("printed", "j1", "second"),
                ("silent", "j1", "0.1"),
                ("silent", "j2", "0.05"),
                ("silent", "j2", "0.1"),
            ]

    asyncio.run(main())
