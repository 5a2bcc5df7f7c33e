"""What a policy says, in a word, and what a tool under it prints."""

from __future__ import annotations

from shellsession.contracts import bashtool
from shellsession.models import Request
from shellsession.policy.rules import Policy, PolicyRefused


def verdict(policy: Policy, command: str) -> str:
    """Why it refuses the command; "" where it does not."""
    try:
        policy.check(Request(command.encode()))
    except PolicyRefused as refused:
        return str(refused).removeprefix("refused by policy: ")
    return ""


def text_of(payload: bashtool.Payload) -> str:
    return payload["content"][0]["text"].partition("\n")[2]
