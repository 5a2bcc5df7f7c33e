"""What redirections may write: ``Policy(write=...)``, and ``allow`` without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from policies import verdict

from shellsession import Agents, InvalidRequest, PolicyRefused
from shellsession.contracts import spec
from shellsession.models import Request
from shellsession.policy.rules import Policy

_POLICY = Policy(write=["/work/*.log", "/work/out/**"])


def reason(policy: Policy, command: str, cwd: str = "/work") -> str:
    try:
        policy.check(Request(command.encode()), cwd=cwd)
    except PolicyRefused as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize(
    "command",
    [
        "a > /work/x.log 2>&1",
        "a >> x.log",
        "cat < /etc/passwd",
        "a &> out/deep/x",
        "a > ./out//x >| out/y 2> /work/out/../z.log",
        "a > /dev/null 2> /dev/stderr >&2 3>&- 2>&1- > /dev/fd/3 &> /dev/tty",
        "a > >(tee x.log)",
        "a 'x > y' # > y",
        "[[ a > b ]] && (( 2 > 1 ))",
        "cat <<'E'\na > b\nE",
        "bash -c 'a > /work/out/x'",
    ],
)
def test_what_matches_may_be_written(command: str) -> None:
    assert reason(_POLICY, command) == ""


@pytest.mark.parametrize("operator", [">", ">>", ">|", "&>", "&>>", ">&", "2>", "{fd}>", "<>", "3<>"])
@pytest.mark.parametrize("around", ["a %s", "{ a; b; } %s", "if a; then b; fi %s", "f() { a; } %s", "a | x=1 %s", "%s"])
def test_nothing_else_may_be_written(operator: str, around: str) -> None:
    assert reason(_POLICY, around % f"{operator} /work/evil") != ""


@pytest.mark.parametrize(
    "command",
    [
        *("a > /etc/x.log", "a > /work/deep/x.log", "a > /work/out/../../etc/x", "a > ../x.log", "a >& x", "[ a > b ]"),
        *("echo $(a > x)", "echo `a > x`", "a > >(tee > x)", "cat <<E\n$(a > x)\nE", "bash -c 'a > /x'", '\\a>"x"'),
    ],
)
def test_another_file_is_named_in_the_reason(command: str) -> None:
    assert "a redirection to '" in reason(_POLICY, command) or "which file the redirection" in reason(_POLICY, command)


@pytest.mark.parametrize(
    "command",
    [
        *('a > "$X"', "a > /work/out/$X", "a > *.log", "a > ~/x.log", "a > {x,y}.log", "a >& $X"),
        *("cd / && a > x.log", "pushd /; a > x.log", ". y; a > x.log", "command cd /; a > x.log", "$X; a > x.log"),
        *("env -C / bash -c 'a > x.log'", "eval 'a > x.log'"),
    ],
)
def test_what_is_known_only_at_run_time_matches_nothing(command: str) -> None:
    assert "it is not known which file the redirection to" in reason(_POLICY, command)
    assert "it is not known" in reason(_POLICY, "a > x.log", cwd="")


def test_allow_lets_redirections_write_no_file() -> None:
    policy = Policy(allow=["echo", "cat"])
    assert verdict(policy, "echo evil >> /tmp/x") == (
        "a redirection to '/tmp/x' is not allowed; files that can be written: none"
    )
    assert "it is not known which file" in verdict(policy, "cat > ~/.bashrc <<E\nx\nE")
    assert verdict(policy, "echo fine 2>/dev/null >&2") == ""
    assert verdict(Policy(allow=["echo"], write=["/tmp/*"]), "echo x >> /tmp/x") == ""
    asking = Policy(allow=["echo"], confirm=lambda *_: True)
    assert asking.judge(Request(b"echo x >> /tmp/x")).question == "echo x >> /tmp/x"
    assert asking.judge(Request(b"echo x 2>/dev/null")).question == ""


def test_confirm_is_asked_about_a_redirection_as_about_a_command() -> None:
    asked: list[str] = []

    def confirm(command: str, *_: str) -> bool:
        asked.append(command)
        return "yes" in command

    policy = Policy(allow=["echo"], write=["/tmp/*"], confirm=confirm)
    assert [verdict(policy, text) for text in ("echo x > /tmp/x", "echo yes > /x", "echo x > /x")] == [
        *("", "", "it was not confirmed")
    ]
    assert asked == ["echo yes > /x", "echo x > /x"]


def test_a_tool_judges_from_the_directory_of_its_session(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    bash = spec.tool(agents, agent="a1", persistent=True, policy=Policy(write=[f"{tmp_path}/out/**"]))
    assert "refused by policy: a redirection to 'x'" in bash({"command": "echo > x"})["error"]
    assert bash({"command": "cd out"})["exitCode"] == 0
    assert bash({"command": "echo > x"})["exitCode"] == 0
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["out", "out/x"]


@pytest.mark.parametrize("path", ["x", "~/x", ""])
def test_a_pattern_is_an_absolute_path(path: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^write"):
        Policy(write=[path])
