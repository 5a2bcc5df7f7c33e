"""The programs of examples/ that need an SDK run as their heads say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from documents import own_daemon
from example_programs import EXAMPLES, Example, check


@pytest.fixture(scope="module", autouse=True)
def daemon_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_daemon(tmp_path_factory.mktemp("examples")):
        yield


@pytest.mark.parametrize("example", [one for one in EXAMPLES if one.needs_sdk], ids=str)
def test_an_example_prints_what_it_says(example: Example) -> None:
    check(example)
