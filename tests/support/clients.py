"""A client of an agent that only this test uses, and the command that it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from shellsession import RemoteSession


@pytest.fixture
def sh(remote: RemoteSession) -> RemoteSession:
    return remote


def begin(place: Path) -> str:
    return "echo one; echo >begun; until [ -e open ]; do sleep 0.05; done; echo two; echo >done"
