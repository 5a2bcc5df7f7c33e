"""The verdict of a policy, and what a tool under that policy prints."""

from __future__ import annotations

from shellsession.contracts import bashtool
from shellsession.errors import PolicyRefused
from shellsession.models import Request
from shellsession.policy.rules import Policy


def verdict(policy: Policy, command: str) -> str:
    """Why the policy refuses the command; "" if it does not."""
    try:
        policy.check(Request(command.encode()))
    except PolicyRefused as refused:
        return str(refused).removeprefix("refused by policy: ")
    return ""


def text_of(payload: bashtool.BashToolPayload) -> str:
    return payload["content"][0]["text"].partition("\n")[2]
