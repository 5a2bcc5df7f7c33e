"""The programs of examples/ run as their heads say, are short, and are listed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from documents import own_daemon, read
from example_programs import EXAMPLES, Example, check

_LINES_MAX = 60


@pytest.fixture(scope="module", autouse=True)
def daemon_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_daemon(tmp_path_factory.mktemp("examples")):
        yield


@pytest.mark.parametrize("example", [one for one in EXAMPLES if not one.needs_cluster], ids=str)
def test_an_example_prints_what_it_says(example: Example) -> None:
    check(example)


def test_without_an_answer_no_command_is_approved() -> None:
    (example,) = (one for one in EXAMPLES if str(one) == "approve_commands.py")
    example.skip_if_it_cannot_run()
    done = example.run(typed="")
    assert (done.returncode, done.stderr) == (0, "")
    assert "'b.tmp'" in done.stdout.splitlines()[-1]


def test_every_example_is_short() -> None:
    lines = {str(one): len(one.path.read_text(encoding="utf-8").splitlines()) for one in EXAMPLES}
    assert {name: count for name, count in lines.items() if count > _LINES_MAX} == {}


def test_the_page_lists_every_example_with_its_needs() -> None:
    rows = re.findall(r"^\| \[(.+)\]\(\1\) \| .+ \| (.*)\| (.*)\|$", read("examples/README.md"), re.MULTILINE)
    listed = sorted((name, needs.strip(), has_model.strip()) for name, needs, has_model in rows)
    assert listed == [(str(one), _needs(one), "yes" if one.has_model else "") for one in EXAMPLES]


def _needs(example: Example) -> str:
    kinds = ("extra", "package", "program")
    return ", ".join(f"{kind} `{needed}`" for kind in kinds if (needed := getattr(example, kind)))
