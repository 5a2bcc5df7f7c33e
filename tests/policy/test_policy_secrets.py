"""What a policy hides from commands, and masks in their output."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from shellsession import InvalidRequest
from shellsession.models import Result
from shellsession.policy.rules import Policy
from shellsession.policy.secrets import Secrets

_TOKEN = "s3cr3t-t0ken"


def test_the_environment_is_filtered_by_prefix_pattern_and_value() -> None:
    policy = Policy(
        hide_prefixes=["AWS_", "OPENAI_"],
        hide_names=["TOKEN$", re.compile("(?i)secret")],
        hide_values=[r"^ghp_\w+", re.compile("BEGIN .* KEY")],
    )
    kept = {"PATH": "/bin", "TOKENS": "1", "MY_AWS_X": "2", "X": "a ghp_x"}
    gone = {"AWS_X": "1", "OPENAI_KEY": "2", "A_TOKEN": "3", "mySecret": "4", "Y": "ghp_abc", "Z": "-BEGIN A KEY-\nx"}
    assert policy.environment({**kept, **gone}) == kept
    assert Policy().environment({**kept, **gone}) == {**kept, **gone}


def test_hidden_and_named_values_are_secrets_too() -> None:
    policy = Policy(hide_prefixes=["AWS_"], secrets=["named-one"], mask_secrets=True)
    secrets = policy.known_secrets({"AWS_X": "hidden-one", "A_TOKEN": _TOKEN, "X": "plain-one"})
    assert secrets.mask(f"hidden-one {_TOKEN} named-one plain-one") == "*** *** *** plain-one"


@pytest.mark.parametrize("mask_secrets", [False, True])
def test_a_named_value_is_a_secret(mask_secrets: bool) -> None:
    policy = Policy(secrets=["pin", "7"], mask_secrets=mask_secrets)
    secrets = policy.known_secrets({"A_TOKEN": _TOKEN, "B_TOKEN": "short"})
    token = "***" if mask_secrets else _TOKEN
    assert secrets.mask(f"pin 127 {_TOKEN} short") == f"*** 12*** {token} short"


def result(stdout: bytes, omitted: int = 0, cut: int = 0) -> Result:
    return Result(stdout, b"", 0, None, "/", 0.0, "exited", stdout_omitted=omitted, stdout_cut=cut)


@pytest.mark.parametrize(
    ("came", "shown"),
    [
        (result(b"a s3cr3t-t0ken b"), b"a *** b"),
        (result(b"\xff s3cr3t-t0ken \xe2\x82\xac"), b"\xff *** \xe2\x82\xac"),
        (result(b"nothing"), b"nothing"),
        (result(b"a s3cr3t-t0ken b", 9, 2), b"a *** b"),
        (result(b"head s3cr3t-rest tail", 99, 12), b"head ***rest tail"),
        (result(b"head t0ken tail", 99, 5), b"head *** tail"),
        (result(b"head s3cr3t-tXt0ken tail", 99, 13), b"head ***Xt0ken tail"),
        (result(b"head s3cr3t-t-t0ken tail", 99, 13), b"head ****** tail"),
        (result(b"head s3ken", 99, 7), b"head s3***"),
    ],
)
def test_results_are_masked_also_where_the_middle_was_dropped(came: Result, shown: bytes) -> None:
    found = Secrets({"A_TOKEN": _TOKEN}).mask_result(came)
    assert found.stdout_bytes == shown
    assert found.stdout_omitted == came.stdout_omitted
    assert 0 <= found.stdout_cut <= len(shown)
    assert isinstance(found.stdout, str)


def test_what_was_recovered_is_masked() -> None:
    told = f"a fresh bash continues in /home/{_TOKEN} with the state from after the last command"
    found = Secrets({"A_TOKEN": _TOKEN}).mask_result(result(b"").__replace__(recovered=told))
    assert found.recovered == told.replace(_TOKEN, "***")


@given(st.text("s3cr-t0ken \n", max_size=30), st.text("s3cr-t0ken \n", max_size=30), st.integers(1, 9))
def test_no_secret_is_shown_on_either_side_of_a_cut(head: str, tail: str, size: int) -> None:
    data = (head + _TOKEN[:size]).encode(), (_TOKEN[size:] + tail).encode()
    found = Secrets({"A_TOKEN": _TOKEN}).mask_result(result(b"".join(data), 5, len(data[0])))
    before, after = found.stdout_bytes[: found.stdout_cut], found.stdout_bytes[found.stdout_cut :]
    assert _TOKEN.encode() not in before
    assert _TOKEN.encode() not in after
    assert size < 3 or not before.endswith(_TOKEN[:size].encode())
    assert len(_TOKEN) - size < 3 or not after.startswith(_TOKEN[size:].encode())


@pytest.mark.parametrize(
    ("head", "tail", "shown"),
    [
        (rb'X="a\"b', rb"x", b'X="***x'),
        (rb'X="a\"b\$c', rb"x", b'X="***x'),
        (rb"", rb"\$c\`d\\e ", b"*** "),
        (rb"", rb"\`d\\e ", b"*** "),
        (rb'{"X": "a\"b', rb"`d\\ef", b'{"X": "******f'),
    ],
)
def test_what_a_cut_left_of_a_spelling_is_masked(head: bytes, tail: bytes, shown: bytes) -> None:
    found = Secrets({"A_TOKEN": 'a"b$c`d\\e'}).mask_result(result(head + tail, 5, len(head)))
    assert found.stdout_bytes == shown


def test_a_policy_does_not_show_its_secrets() -> None:
    assert _TOKEN not in repr(Policy(secrets=[_TOKEN]))
    wrong: Any = [_TOKEN.encode()]
    with pytest.raises(InvalidRequest, match=r"^secrets takes texts, not bytes$"):
        Policy(secrets=wrong)
