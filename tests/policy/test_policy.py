"""The verdicts of a policy: denied, allowed, to be confirmed, and with a lower limit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st
from policies import verdict

from shellsession import InvalidRequest, PolicyRefused, Session
from shellsession.models import Limits, Request
from shellsession.policy.rules import Policy


@pytest.mark.parametrize(
    ("command", "denied"),
    [
        ("rm -rf /", True),
        ("rm -rf /tmp/x", True),
        ("echo 'rm -rf /'", True),  # a text is a text
        ("cat <<'E'\nrm -rf /\nE", True),
        ("bash -c 'rm -rf /'", True),
        ("rm  -rf /", False),
        ("rm -r -f /", False),
        ("'rm' -rf /", False),
        ("rm -rf .", False),
    ],
)
def test_plain_texts_are_looked_for_everywhere_and_nowhere_else(command: str, denied: bool) -> None:
    assert verdict(Policy(deny=["mkfs", "rm -rf /"]), command) == ("it contains 'rm -rf /'" if denied else "")


@pytest.mark.parametrize(
    ("pattern", "command", "denied"),
    [
        (r"^rm\b", "rm x", True),
        (r"^rm\b", "a; rm x", False),
        (r"(?i)DROP\s+TABLE", "psql -c 'drop  table x'", True),
        (r">\s*/dev/sd", "cat x >/dev/sda", True),
        (r"\bcurl\b.*\|\s*bash", "curl x | bash", True),
    ],
)
def test_patterns_are_searched_in_the_text(pattern: str, command: str, denied: bool) -> None:
    said = verdict(Policy(deny=[re.compile(pattern)]), command)
    assert said == (f"it matches {pattern!r}" if denied else "")


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("ls -l", True),
        ("/bin/ls", True),
        ("git status --short", True),
        ("git -C x status", False),
        ("git push", False),
        ("ls && git log", True),
        ("ls && rm x", False),
        ("ls $(rm x)", False),
        ("ls `rm`", False),
        ("env X=1 ls", False),
        ("X=1 ls", True),
        ("X=1", True),
        ("bash -c ls", False),
        ("$LS", False),
        ("l?", False),
        ("ls 'x", False),
        ("", True),
        ("echo a{b,c}", True),
        ("ls $X", True),
        ("git $X", False),
    ],
)
def test_all_that_runs_must_be_allowed(command: str, allowed: bool) -> None:
    said = verdict(Policy(allow=["ls", "git status", "git log", "echo"]), command)
    assert (said == "") == allowed, said


def test_nothing_allowed_is_nothing() -> None:
    assert verdict(Policy(allow=[]), "ls") == "'ls' is not allowed; allowed: nothing"
    assert verdict(Policy(allow=["cat", "git log"]), "ls x") == "'ls x' is not allowed; allowed: cat, git log"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo 'open", "it cannot be parsed as bash"),
        ("if a", "it cannot be parsed as bash"),
        ("$CMD x", "the name of a command is known only at run time: write it out"),
        ("curl x | bash", "what bash reads is known only at run time: write it out"),
        ('eval "$X"', "the text that eval runs is known only at run time: write it out"),
        ("git $X", "'git push' is denied"),
    ],
)
def test_strict_refuses_what_it_cannot_judge(command: str, said: str) -> None:
    assert verdict(Policy(strict=True, deny_commands=["git push"]), command).startswith(said)
    assert verdict(Policy(deny_commands=["git push"]), command) == ""


def test_strict_takes_what_it_can() -> None:
    assert verdict(Policy(strict=True), "for x in a $(ls); do echo \"$x\" | tee y; done <<'E'\n$(z\nE") == ""


@pytest.mark.parametrize(
    ("command", "allow", "asked", "ran"),
    [
        ("yes", None, True, True),
        ("no", None, True, False),
        ("ls", ["ls"], False, True),
        ("yes", ["ls"], True, True),
        ("ls; no", ["ls"], True, False),
    ],
)
def test_confirm_is_called(command: str, allow: list[str] | None, asked: bool, ran: bool) -> None:
    questions: list[tuple[str, str, str]] = []

    def confirm(command: str, agent: str, cwd: str) -> bool:
        questions.append((command, agent, cwd))
        return "yes" in command

    policy = Policy(confirm=confirm, allow=allow)
    try:
        policy.check(Request(command.encode()), agent="a1", cwd="/x")
        assert ran
    except PolicyRefused as refused:
        assert str(refused) == "refused by policy: it was not confirmed"  # noqa: PT017 - both ways are looked at
        assert not ran
    assert questions == ([(command, "a1", "/x")] if asked else [])


def test_nobody_is_asked_about_what_is_denied() -> None:
    policy = Policy(deny=["rm"], confirm=lambda *_: pytest.fail("asked"))
    assert verdict(policy, "rm x") == "it contains 'rm'"


@pytest.mark.parametrize(
    ("low", "high", "asked", "given"),
    [
        (None, None, None, None),
        (None, None, 5, 5),
        (None, 10, None, 10),
        (None, 10, 30, 10),
        (None, 10, 3, 3),
        (2, 10, 1, 2),
        (2, None, 1, 2),
        (2, None, None, None),
        (3, 3, 9, 3),
    ],
)
def test_time_limits_are_clamped(
    low: float | None, high: float | None, asked: float | None, given: float | None
) -> None:
    request = Request(b"x", timeout=asked, limits=Limits(7), isolated=True)
    found = Policy(min_timeout=low, max_timeout=high).check(request)
    assert found == Request(b"x", timeout=given, limits=Limits(7), isolated=True)


def test_a_command_has_a_greatest_size_in_bytes() -> None:
    policy = Policy(max_command=4)
    assert verdict(policy, "éé") == ""
    assert verdict(policy, "ééa") == "it is 5 bytes long, over 4: put it into a file"
    assert verdict(Policy(max_command=1), "") == ""


@pytest.mark.parametrize(
    "settings",
    [
        {"deny": "rm"},
        {"deny": [""]},
        {"deny": [1]},
        {"deny": [re.compile(b"x")]},
        {"deny": {"rm": 1}},
        {"deny_commands": "rm"},
        {"deny_commands": [" "]},
        {"deny_commands": [re.compile("x")]},
        {"allow": "ls"},
        {"allow": [""]},
        {"allow": [None]},
        {"confirm": True},
        {"strict": "yes"},
        {"strict": 1},
        {"strict": None},
        {"mask_secrets": "no"},
        {"deny_commands": None},
        {"hide_prefixes": 3},
        {"max_timeout": "5"},
        {"confirm_timeout": 0},
        {"confirm_timeout": float("nan")},
        {"max_timeout": -1},
        {"min_timeout": 1e400},
        {"min_timeout": 3, "max_timeout": 2},
        {"max_command": 0},
        {"max_command": -1},
        {"max_command": True},
        {"max_command": 1.5},
        {"hide_prefixes": "AWS"},
        {"hide_prefixes": [""]},
        {"hide_names": ["("]},
        {"hide_values": "x"},
        {"secrets": ["\ud800"]},
        {"secrets": "x"},
    ],
)
def test_bad_settings_are_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        Policy(**settings)


@given(st.binary(max_size=80).filter(lambda command: b"\0" not in command))
def test_any_command_is_taken_or_refused(command: bytes) -> None:
    policy = Policy(strict=True, allow=["ls"], deny=["x", re.compile("y")], deny_commands=["rm"], max_command=70)
    try:
        assert policy.check(Request(command)).command == command
        assert len(command) <= 70
        assert b"y" not in command
    except PolicyRefused as refused:
        assert refused.code == "policy_refused"  # noqa: PT017 - both ways are looked at


def test_a_session_of_ones_own(sh: Session) -> None:
    policy = Policy(deny_commands=["rm"], max_timeout=5)
    request = policy.check(Request(b"echo hi"))
    assert sh.run(request.command, timeout=request.timeout).stdout == "hi\n"
    with pytest.raises(PolicyRefused, match=r"^refused by policy: 'rm' is denied$"):
        policy.check(Request(b"echo $(rm x)"))


def test_a_rule_has_a_reason_for_the_model() -> None:
    policy = Policy(deny_commands={"curl": "use the mirror", "rm": ""})
    assert verdict(policy, "$(curl x)") == "'curl' is denied: use the mirror"
    assert verdict(policy, "rm x") == "'rm' is denied"
    assert Policy.from_dict(json.loads(json.dumps(policy.to_dict()))) == policy
    for wrong in ({"curl": 1}, {1: "x"}, {"": "x"}):
        with pytest.raises(InvalidRequest, match="deny_commands"):
            Policy(deny_commands=wrong)  # type: ignore[arg-type]  # refused for that


class _Says:
    async def __call__(self, *_: str) -> bool:
        return False


@pytest.mark.parametrize(
    "confirm", [_Says().__call__, lambda *names: _Says()(*names), _Says()], ids=["function", "lambda", "object"]
)
def test_a_coroutine_is_no_yes(confirm: Callable[..., Any]) -> None:
    with pytest.raises(InvalidRequest, match="only an async tool can call"):
        Policy(confirm=confirm).check(Request(b"rm x"))


@pytest.mark.parametrize("rule", ["curl | sh", ":(){ :|:& };:", "$X", "'git' push", "`id`"])
def test_a_rule_that_no_command_can_match_is_refused(rule: str) -> None:
    with pytest.raises(InvalidRequest, match="matches no command"):
        Policy(deny_commands=[rule])
    with pytest.raises(InvalidRequest, match="matches no command"):
        Policy(allow=[rule])


def test_a_rule_may_name_what_a_quoted_word_has() -> None:
    with pytest.raises(PolicyRefused):
        Policy(deny_commands=["curl *?a=*&b=*"]).check("curl 'http://host/?a=1&b=2'")


def test_a_command_is_checked_as_run_takes_it() -> None:
    policy = Policy(deny_commands=["git push"], max_timeout=5)
    for command in ("git status", b"git status", ["git", "status"]):
        request = policy.check(command)
        assert (request.command, request.timeout) == (b"git status", 5)
    with pytest.raises(PolicyRefused):
        policy.check(["git", "push"])
