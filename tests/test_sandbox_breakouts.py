"""What commands do to have more than their sandbox gives: now, or at the session's next start."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import sandboxes
from sandboxes import needs_bwrap, open_place, run_as, sandboxed

from shellsession import InvalidRequest, Sandbox, Session

pytestmark = needs_bwrap
user, mine, ours = sandboxes.user, sandboxes.mine, sandboxes.ours


def fill(place: Path, *directories: str, **files: str) -> None:
    """Make them, for the owner of the place."""
    for name in directories:
        (place / name).mkdir()
        shutil.chown(place / name, place.stat().st_uid)
    for name, text in files.items():
        (place / name).write_text(text)


def test_what_leads_to_a_hidden_file_stays_where_it_is(user: str, mine: Path) -> None:
    """Else the next start, which an `exit` brings about, would hide another file."""
    fill(mine, "etc", "etc/deep")
    fill(mine / "etc" / "deep", key="secret")

    def scenario() -> None:
        with sandboxed(mine, hide=[mine / "etc" / "deep" / "key"]) as sh:
            for name in ("etc", "etc/deep"):
                sh.run(f"mv {name} moved && mkdir -p etc/deep && touch etc/deep/key; exit")
                result = sh.run("cat moved/key moved/deep/key etc/deep/key; rm -rf moved")
                assert result.stdout == "", name
            assert sh.run("echo x >etc/deep/new && mv etc/deep/new etc/new && cat etc/new").stdout == "x\n"

    run_as(user, scenario)


def test_what_leads_to_a_writable_directory_stays_where_it_is(user: str, mine: Path) -> None:
    fill(mine, "etc", "etc/deep")

    def scenario() -> None:
        with open_place("us") as outside:
            sandbox = Sandbox(write=[mine, mine / "etc" / "deep"])
            with Session(cwd=mine, timeout=20, sandbox=sandbox) as sh:
                sh.run(f"mv etc moved && mkdir etc && ln -s {outside} etc/deep; exit")
                sh.run(f"echo x >{outside}/new")
            assert not (outside / "new").exists()

    run_as(user, scenario)


LINKS: dict[str, Callable[[Path, Path], Sandbox]] = {
    "hidden": lambda place, outside: Sandbox(write=[place], hide=[place / "link"]),
    "written": lambda place, outside: Sandbox(write=[place, place / "link"]),
    "on the way": lambda place, outside: Sandbox(write=[place], hide=[place / "link" / "in"]),
    "behind another link": lambda place, outside: Sandbox(write=[place], hide=[outside / "back"]),
}


@pytest.mark.parametrize("make", LINKS.values(), ids=LINKS)
def test_a_link_that_can_be_changed_inside_is_refused(ours: Path, make: Callable[[Path, Path], Sandbox]) -> None:
    with open_place("us") as outside:
        (outside / "in").mkdir()
        (ours / "link").symlink_to(outside)
        (outside / "back").symlink_to(f"../{ours.name}/link/in")
        with pytest.raises(InvalidRequest, match=r"leads through .*/link'"):
            Session(cwd=ours, sandbox=make(ours, outside)).run("true")
        with Session(cwd=outside, sandbox=Sandbox(write=[ours / "link"])) as sh:
            assert sh.run(f"echo x >{outside}/new").exit_code == 0
        assert os.listdir(ours) == ["link"]
