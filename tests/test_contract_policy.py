"""A session's policy and redaction: over all kinds of sessions, and whoever its client is."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import kinds
import pytest
from commands import cli
from daemons import Daemon
from system import PATIENCE, wait_until

from shellsession import (
    Agents,
    AlreadyOpen,
    AsyncSession,
    CommandTimeout,
    InvalidRequest,
    Limits,
    Policy,
    PolicyRefused,
    Result,
    Session,
    ShellSessionError,
    aconnect,
    connect,
)
from shellsession.contracts import bashtool, phoenix, spec
from shellsession.integrations.binding import run_to_end
from shellsession.integrations.toolbox import PROGRESS, Toolbox
from shellsession.options import SessionOptions

sh = kinds.sh

_TOKEN = "ghp_" + 40 * "x"
_RULES: dict[str, Any] = {"deny_commands": ["touch"], "write": ["/**/out/*"], "hide_names": ["^HIDDEN"]}
OPTIONS: dict[str, Any] = {
    "policy": Policy(**_RULES),
    "redact": [re.compile("PIN-[0-9]+", re.IGNORECASE)],
    "extra_env": {"HIDDEN": "1", "SHOWN": "2"},
}


def in_a_loop_session(**options: Any) -> Any:
    return kinds.in_a_loop(lambda: AsyncSession(**options))


@pytest.mark.sampled
@pytest.mark.parametrize("verb", ["run", "stream"])
def test_what_the_policy_refuses_does_not_run(sh: Session, place: Path, verb: str) -> None:
    do: Callable[[str], object] = sh.run if verb == "run" else lambda text: list(sh.stream(text))
    with pytest.raises(PolicyRefused, match=r"^refused by policy: 'touch' is denied$"):
        do("echo > /dev/null; bash -c 'touch x'")
    with pytest.raises(PolicyRefused, match="a redirection to 'x' is not allowed"):
        do(": > x")
    do("mkdir -p out; : > out/x")
    sh.run("cd out")
    do(": > y")
    assert sorted(path.name for path in place.rglob("*")) == ["out", "x", "y"]


def test_the_policy_judges_the_directory_and_the_variables_of_one_call() -> None:
    places = list[str]()
    policy = Policy(allow=["echo"], write=["/tmp/**"], confirm=lambda _command, _agent, cwd: places.append(cwd))
    with Session(cwd="/tmp", policy=policy) as sh:
        assert sh.run("echo > /dev/null", cwd="/", env={"A": "1"}).ok
        refused: list[dict[str, Any]] = [
            {"cwd": "/var"},
            {"cwd": "../usr"},
            {"env": {"PATH": "x"}},
            {"env": {"LD_A": "x"}},
        ]
        for options in refused:
            with pytest.raises(PolicyRefused):
                sh.run("echo > x", **options)
    assert places == ["/var", "/tmp/../usr", "/tmp", "/tmp"]


@pytest.mark.sampled
@pytest.mark.parametrize("verb", ["run", "stream"])
def test_queued_command_is_judged_in_the_directory_where_it_runs(sh: Session, place: Path, verb: str) -> None:
    do: Callable[[str], object] = sh.run if verb == "run" else lambda text: list(sh.stream(text))
    sh.run("mkdir out; cd out")
    thread = threading.Thread(target=sh.run, args=("sleep 0.5; cd ..",))
    thread.start()
    wait_until(lambda: sh.state == "running", "the first command")
    with pytest.raises(PolicyRefused, match="a redirection to 'x' is not allowed"):
        do(": > x")
    thread.join()
    assert not (place / "x").exists()
    do(": > out/x")


@pytest.mark.parametrize("kind", [Session, in_a_loop_session])
def test_confirm_gets_the_directory_where_a_queued_command_runs(kind: Callable[..., Any], place: Path) -> None:
    places = list[str]()

    def confirm(_command: str, _agent: str, cwd: str) -> bool:
        places.append(cwd)
        return True

    policy = Policy(write=["/**/out/*"], confirm=confirm)
    with kind(cwd=place, policy=policy, timeout=20) as sh:
        sh.run("mkdir out; cd out")
        thread = threading.Thread(target=sh.run, args=("sleep 0.5; cd ..",))
        thread.start()
        wait_until(lambda: sh.state == "running", "the first command")
        assert sh.run(": > x").ok
        thread.join()
    assert places == [str(place)]
    assert (place / "x").exists()


def test_command_is_judged_in_the_directory_that_startup_leaves(place: Path) -> None:
    (place / "out").mkdir()
    with Session(cwd=place / "out", startup=["cd .."], policy=Policy(write=["/**/out/*"])) as sh:
        with pytest.raises(PolicyRefused):
            sh.run(": > x")
        assert sh.run(": > out/x").ok


def test_bash_lacks_the_variables_that_the_policy_hides(sh: Session) -> None:
    assert sh.run("echo ${HIDDEN-hidden} $SHOWN").stdout == "hidden 2\n"


def test_for_model_redacts_and_the_result_is_exact(sh: Session) -> None:
    result = sh.run(f"echo {_TOKEN} pin-42 pin")
    assert result.stdout == f"{_TOKEN} pin-42 pin\n"
    assert result.for_model(redact=sh.redact) == "*** *** pin"
    assert result.for_model() == f"{_TOKEN} pin-42 pin"
    assert sh.read_output(result.id, redact=sh.redact) == "*** *** pin\n"
    assert sh.read_output(result.id, grep="pin-[0-9]", redact=sh.redact) == ""
    assert sh.read_output(result.id) == result.stdout


def test_error_of_a_tool_shows_no_secret() -> None:
    def refused(text: str) -> str:
        with pytest.raises(ShellSessionError) as error:
            asyncio.run(toolbox.bash(text))
        return str(error.value)

    startup = ["echo the token is tok-424242 >&2; false"]
    mine = Policy(mask_secrets=True, secrets=["tok-424242"])
    with Session(startup=startup) as sh:
        assert "the token is ***'" in spec.tool(sh, policy=mine)({"command": "true"})["error"]
        assert "tok-424242" in spec.tool(sh)({"command": "true"})["error"]
    with Session(startup=startup, policy=mine) as sh:
        toolbox = Toolbox(sh)
        assert "the token is ***'" in refused("true")
    with Session(redact=["PIN-[0-9]+"]) as sh:
        toolbox = Toolbox(sh, policy=Policy(allow=["ls"]))
        assert "'mysql -p***' is not allowed" in refused("mysql -pPIN-77")
        assert (
            "'mysql -p***' is not allowed"
            in spec.tool(sh, policy=Policy(allow=["ls"]))({"command": "mysql -pPIN-77"})["error"]
        )


def test_nothing_beside_the_output_shows_a_secret(sh: Session, place: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert sh.run("true", cwd=f"/{_TOKEN}").for_model(redact=sh.redact).startswith("[not run: cwd= or env= could not")
    assert _TOKEN not in sh.run("true", cwd=f"/{_TOKEN}").for_model(redact=sh.redact)
    os.mkfifo(place / "go")
    with Session(cwd=place, redact=True, shutdown=[f"echo {_TOKEN}; false"]) as own:
        lines = list[str]()

        async def note(_: float, line: str) -> None:
            if not lines:
                (place / "go").write_text("\n")
            lines.append(line)

        async def main() -> str:
            PROGRESS.set(note)
            tools = Toolbox(own, patience=PATIENCE, tick=0.1)
            return await tools.bash(f"echo {_TOKEN}; read x <go; echo {_TOKEN}")

        assert asyncio.run(main()) == "***\n***"
    assert set(lines) == {"***"}
    assert "the shutdown command 'echo ***; false' failed: ***" in caplog.text
    assert _TOKEN not in caplog.text


def test_the_limits_of_the_policy_hold() -> None:
    with Session(policy=Policy(max_timeout=0.1)) as sh, pytest.raises(CommandTimeout):
        sh.run("sleep 100", timeout=None, check=True)
    with Session(policy=Policy(max_timeout=0.1)) as sh:
        assert sh.run("sleep 100", timeout=9, on_timeout="yield").runs_on


def test_a_second_client_cannot_go_around_the_policy(daemon: Daemon) -> None:
    with connect("a", daemon.socket, False, policy=Policy(**_RULES)) as first:
        with connect("a", daemon.socket, False) as second, pytest.raises(PolicyRefused, match="'touch' is denied"):
            second.run("touch x")
        told = cli(daemon.socket, "run", "-s", "a", "--json", "--", "touch x")
        assert (told.returncode, json.loads(told.stdout)["error"]["code"]) == (125, "policy_refused")
        with connect("a", daemon.socket, False, policy=Policy(**_RULES)) as same:
            assert same.run("echo same").stdout == "same\n"
        for other in ({"policy": Policy(deny_commands=["rm"])}, {"redact": True}):
            with pytest.raises(InvalidRequest, match="agent 'a' already has a session, which does not"):
                connect("a", daemon.socket, False, **other)
        first.close()
    with pytest.raises(InvalidRequest, match="confirm= is a function of this process"):
        connect("a", daemon.socket, False, policy=Policy(confirm=lambda *_: True))


def test_other_options_of_a_later_client_are_refused(daemon: Daemon) -> None:
    given: SessionOptions = {"cwd": "/tmp", "env": {"X": "1", "PATH": "/bin"}}
    with connect("a", daemon.socket, False, **given) as first:
        others: tuple[SessionOptions, ...] = (
            {"cwd": "/usr"},
            {"env": {"X": "2"}},
            {"extra_env": {"LATE": "1"}},
            {"limits": Limits(2)},
        )
        for other in others:
            with pytest.raises(AlreadyOpen, match=r"^agent 'a' already has a session, which "):
                connect("a", daemon.socket, False, **other)
        with connect("a", daemon.socket, False, **given) as second:
            assert second.run("echo $PWD $X").stdout == "/tmp 1\n"
            assert (first.opened_here, second.opened_here) == (True, False)
        first.close()


def test_a_session_without_a_policy_gets_none_later(daemon: Daemon) -> None:
    with connect("a", daemon.socket, False) as first:
        with pytest.raises(InvalidRequest, match="which does not have this policy"):
            connect("a", daemon.socket, False, policy=Policy(**_RULES))
        first.close()


def test_confirm_is_asked_in_the_process_of_the_session(tmp_path: Path) -> None:
    asked: list[tuple[str, str, str]] = []

    def confirm(*question: str) -> bool:
        asked.append((question[0], question[1], question[2]))
        return "yes" in question[0]

    async def aconfirm(*question: str) -> bool:
        return confirm(*question)

    async def main(confirm: Any) -> None:
        async with AsyncSession(tmp_path, policy=Policy(allow=["true"], confirm=confirm)) as sh:
            assert (await sh.run("echo yes")).stdout == "yes\n"
            with pytest.raises(PolicyRefused, match="it was not confirmed"):
                await anext(aiter(sh.stream("echo no")))

    with Session(tmp_path, policy=Policy(allow=["true"], confirm=confirm)) as sh:
        assert sh.run("true").ok
        assert sh.run("echo yes").stdout == "yes\n"
        with pytest.raises(PolicyRefused, match="it was not confirmed"):
            sh.run("echo no")
    for one in (confirm, aconfirm):
        asyncio.run(main(one))
    assert asked == [("echo yes", "", str(tmp_path)), ("echo no", "", str(tmp_path))] * 3


def test_no_answer_in_time_refuses_in_asyncio() -> None:
    async def never(*_: str) -> bool:
        await asyncio.Event().wait()
        return True

    async def main() -> None:
        async with AsyncSession(policy=Policy(confirm=never, confirm_timeout=0.05)) as sh:
            with pytest.raises(PolicyRefused, match=r"it was not confirmed within 0\.05 s"):
                await sh.run("true")

    asyncio.run(main())


def test_agents_and_their_tools_are_held_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="shellsession.interaction")
    with Agents(cwd=tmp_path, policy=Policy(deny_commands=["touch"]), redact=True) as agents:
        with pytest.raises(PolicyRefused):
            agents.run("a1", "touch x")
        assert agents.run("a1", f"echo {_TOKEN}").stdout == f"{_TOKEN}\n"
        bash = spec.tool(agents, agent="a1", persistent=True)
        assert bash({"command": f"echo {_TOKEN}"})["stdout"] == "***\n"
        assert "'touch' is denied" in bash({"command": "touch x"})["error"]
        for made in (spec.tool, partial(phoenix.tool, persistent=True)):
            with pytest.raises(InvalidRequest, match="pass the policy to the tool instead of the session"):
                made(agents, agent="a1")
    assert "echo ***" in caplog.text
    assert _TOKEN not in caplog.text
    with Agents(redact=True) as agents:
        assert spec.tool(agents, agent="a1")({"command": f"echo {_TOKEN}"})["stdout"] == "***\n"


def test_a_one_shot_tool_cannot_go_around_the_policy_of_a_session(daemon: Daemon) -> None:
    with connect("a", daemon.socket, False, policy=Policy(**_RULES)) as first:
        with connect("a", daemon.socket, False) as second, pytest.raises(InvalidRequest, match="to the tool instead"):
            spec.tool(second)
        first.close()


@pytest.mark.parametrize("kind", ["async", "async remote"])
def test_a_toolbox_masks_what_its_session_redacts(daemon: Daemon, kind: str) -> None:
    async def masked(session: Any) -> None:
        box = Toolbox(session)
        assert await box.bash(f"echo {_TOKEN}; echo 'x\x1b[1m{_TOKEN}'") == "***\nx***"
        assert _TOKEN not in await box.bash(f"sleep 100 {_TOKEN} & echo") + await box.jobs()

    async def main() -> None:
        if kind == "async":
            async with AsyncSession(redact=True) as session:
                await masked(session)
            return
        async with aconnect("a", daemon.socket, False, redact=True) as first:
            await first.run(f"echo {_TOKEN}")
            with connect("a", daemon.socket, False) as late:
                assert await Toolbox(late).read_output("c1") == "***\n"
            async with aconnect("a", daemon.socket, False) as second:
                await masked(second)
            await first.close()

    asyncio.run(main())


def test_tools_mask_the_secrets_of_a_policy(daemon: Daemon) -> None:
    policy = Policy(secrets=["hunter2"])
    with Session(policy=policy) as sh, connect("a", daemon.socket, False, policy=policy) as remote:
        for one in (sh, remote):
            assert run_to_end(Toolbox(one).bash("echo hunter2")) == "***"
        remote.close()


def test_the_audit_log_redacts(daemon: Daemon) -> None:
    policy = Policy(secrets=["pin-7"])
    with connect("audited", daemon.socket, False, redact=["x-[0-9]"], policy=policy) as sh:
        sh.run(f"echo {_TOKEN} x-1 pin-7 plain")
        sh.close()
    wait_until(lambda: daemon.logged("audited"), "the line")
    assert [entry["command"] for entry in daemon.logged("audited")] == ["echo *** *** *** plain"]


def test_a_policy_crosses_as_plain_data() -> None:
    policy = Policy(
        **_RULES,
        deny=["a", re.compile("b", re.IGNORECASE)],
        allow=(),
        strict=True,
        max_timeout=3,
        mask_secrets=True,
        secrets=["pin"],
    )
    data = json.loads(json.dumps(policy.to_dict()))
    assert Policy.from_dict(data) == policy
    assert Policy().to_dict() == {}
    for wrong in ({"confirm": 1}, {"nonsense": 1}, {"deny": [["(", 0]]}, {"deny": [[1]]}, {"allow": "ls"}, {"deny": 1}):
        with pytest.raises(InvalidRequest):
            Policy.from_dict(wrong)


_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("AKIA" + 16 * "A", "***"),
        (f"x {_TOKEN}, y", "x ***, y"),
        ("sk-ant-" + 30 * "a", "***"),
        ("risk-" + 30 * "a", "risk-" + 30 * "a"),
        ("xoxb-" + 12 * "1", "***"),
        ("AIza" + 35 * "a", "***"),
        ("sk_live_" + 24 * "a", "***"),
        (f"eyJ{10 * 'a'}.eyJ{10 * 'a'}.{10 * 'a'}", "***"),
        ("Authorization: Bearer " + 20 * "a", "Authorization: Bearer ***"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
        ("https://me:pass@host/x", "https://me:***@host/x"),
        ("https://host:80/x@y", "https://host:80/x@y"),
        (f"a\n{_KEY}\nb", "a\n***\nb"),
        (_KEY[:50], "***"),
    ],
)
def test_the_built_in_set(text: str, shown: str) -> None:
    assert Result(text.encode(), b"", 0, None, "/", 0.1, "exited").for_model(redact=True) == shown


def test_what_a_cut_left_is_redacted_on_its_own() -> None:
    text = f"{_TOKEN}\nab\u20accd\n{_TOKEN}".encode()
    cut = Result(text, b"", 0, None, "/", 0.1, "exited", stdout_omitted=9, stdout_cut=len(_TOKEN) + 4)
    assert cut.for_model(redact=True) == "***\n[... 17 bytes omitted ...]\n***"


@pytest.mark.parametrize("wrong", ["x", ["("], [b"x"], [re.compile(b"x")], [""], 1, None])
def test_a_wrong_redaction_is_refused_before_anything_runs(wrong: Any, daemon: Daemon) -> None:
    with pytest.raises(InvalidRequest, match=r"^redact"):
        Session(redact=wrong)
    with pytest.raises(InvalidRequest, match=r"^redact"):
        connect("a", daemon.socket, False, redact=wrong)
    with pytest.raises(InvalidRequest, match=r"^redact"):
        Result(b"", b"", 0, None, "/", 0.1, "exited").for_model(redact=wrong)


def test_a_one_shot_tool_goes_around_no_policy_that_one_session_of_agents_has() -> None:
    with Agents() as agents:
        agents.session("a1", policy=Policy(deny_commands=["date"]))
        with pytest.raises(bashtool.ToolError, match="pass the policy to the tool"):
            bashtool.tool(agents, agent="a1")({"command": "date"})
