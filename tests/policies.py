"""What a policy says, in a word: for the tests of what it reads and of what it decides."""

from __future__ import annotations

from shellsession.models import Request
from shellsession.policy.rules import Policy, PolicyRefused


def verdict(policy: Policy, command: str) -> str:
    """Why it refuses the command; "" where it does not."""
    try:
        policy.check(Request(command.encode()))
    except PolicyRefused as refused:
        return str(refused).removeprefix("refused by policy: ")
    return ""
