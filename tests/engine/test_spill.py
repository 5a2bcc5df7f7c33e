"""Output beyond the limit is written completely to the path that the caller named, and nowhere else."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from sandboxes import needs_bwrap
from system import PYTHON, wait_until

from shellsession import InvalidRequest, Limits, Sandbox, Session
from shellsession.engine.bash.shell import Shell
from shellsession.engine.verbs import submit
from shellsession.engine.verbs.call import Typed

STREAMS = pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])

NUMBERS = "".join(f"{i}\n" for i in range(1, 20001)).encode()


@STREAMS
def test_the_spill_holds_everything(sh: Session, place: Path, tty: bool) -> None:
    spill = place / "spill"
    spill.mkdir()
    result = sh.run("seq 20000; seq 20000 >&2", limits=Limits(max_output=10, spill=str(spill)), tty=tty)
    assert result.stdout_file is not None
    assert result.stderr_file is not None
    assert {Path(result.stdout_file).parent, Path(result.stderr_file).parent} == {spill}
    assert Path(result.stdout_file).read_bytes() == Path(result.stderr_file).read_bytes() == NUMBERS
    assert Path(result.stdout_file).stat().st_mode & 0o777 == 0o600


def test_each_call_has_its_own_spill_files(sh: Session, place: Path) -> None:
    limits = Limits(max_output=1, spill=str(place))
    first, second = (sh.run(f"echo call {i}", limits=limits).stdout_file for i in (1, 2))
    assert first
    assert second
    assert [Path(first).read_text(), Path(second).read_text()] == ["call 1\n", "call 2\n"]


def test_a_spill_may_be_a_file(sh: Session, place: Path) -> None:
    spill = place / "all"
    spill.write_text("old")
    result = sh.run("echo out; echo err >&2", limits=Limits(max_output=1, spill=str(spill)))
    assert (result.stdout_file, result.stderr_file) == (str(spill), f"{spill}.stderr")
    assert spill.read_text() == "out\n"
    assert Path(f"{spill}.stderr").read_text() == "err\n"


def test_no_file_is_made_for_output_that_fits(sh: Session, place: Path) -> None:
    result = sh.run("echo out", limits=Limits(spill=str(place)))
    assert (result.stdout_file, list(place.iterdir())) == (None, [])


@pytest.mark.parametrize("room", [0, 1, 1000])
def test_the_spill_is_capped(sh: Session, place: Path, room: int) -> None:
    result = sh.run("seq 20000", limits=Limits(max_output=10, spill=str(place), spill_max=room))
    assert result.stdout_file
    assert Path(result.stdout_file).read_bytes() == NUMBERS[:room]
    assert result.stdout_omitted == len(NUMBERS) - 10
    assert (result.outcome, "longer than limits.spill_max" in result.reason) == ("exited", True)


def test_a_spill_that_just_holds_it_is_whole(sh: Session, place: Path) -> None:
    result = sh.run("seq 20000", limits=Limits(max_output=10, spill=str(place), spill_max=len(NUMBERS)))
    assert result.stdout_file
    assert (Path(result.stdout_file).read_bytes(), result.reason) == (NUMBERS, "")


@pytest.mark.parametrize("spill", ["nowhere/file", "file/in/a/file", "/proc/1/spill"])
def test_a_spill_that_cannot_be_is_refused_before_anything_runs(sh: Session, place: Path, spill: str) -> None:
    limits = Limits(max_output=10, spill=str(place / spill))
    with pytest.raises(InvalidRequest, match="spill"):
        sh.run("touch ran", limits=limits)
    assert not (place / "ran").exists()
    with pytest.raises(InvalidRequest, match="spill"):
        Session(limits=limits)


def test_a_disk_that_takes_no_more_is_reported_and_the_command_is_whole(sh: Session, place: Path) -> None:
    sh.run("true", tty=False)
    before, (soft, hard) = len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_FSIZE)
    limits = Limits(max_output=10, spill=str(place / "spill"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        result = sh.run("seq 20000; echo done >&2", limits=limits, tty=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (result.outcome, result.exit_code, result.stderr) == ("exited", 0, "done\n")
    assert result.stdout_omitted == len(NUMBERS) - 10
    assert f"{place}/spill: File too large" in result.reason
    assert len(os.listdir("/proc/self/fd")) == before


SOCKET = f"{PYTHON} -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"spill\")'"


@pytest.mark.parametrize(
    ("put", "why"),
    [
        ("mkfifo spill", "it is not a regular file"),
        ("mkfifo spill; exec 7<>spill", "it is not a regular file"),
        (SOCKET, "it is not a regular file"),
        ("ln -s /dev/tty spill", "it is not a regular file"),
        ("ln -s /dev/full spill", "it is not a regular file"),
        ("mkdir spill", "Is a directory"),
        ("ln -s spill spill", "it is not a regular file"),
    ],
    ids=["a FIFO", "a FIFO with a reader", "a socket", "a terminal", "a device", "a directory", "a circle"],
)
def test_what_a_command_puts_in_the_place_of_its_spill_holds_nobody_up(
    sh: Session, place: Path, put: str, why: str
) -> None:
    sh.run("true", tty=False)
    before = len(os.listdir("/proc/self/fd"))
    limits = Limits(max_output=10, spill=str(place / "spill"))
    result = sh.run(f"{put}; seq 20000", limits=limits, tty=False)
    assert (result.outcome, result.exit_code, result.stdout_omitted) == ("exited", 0, len(NUMBERS) - 10)
    assert result.reason == f"the output could not be written completely to {place}/spill: {why}"
    assert result.stdout_file is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_a_quick_command_puts_there_is_never_taken_for_a_place_of_ours(
    sh: Session, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill, send = place / "spill", submit._send

    def send_and_be_overtaken(shell: Shell, typed: Typed) -> None:
        send(shell, typed)
        wait_until(spill.is_dir, "the command's directory")

    monkeypatch.setattr(submit, "_send", send_and_be_overtaken)
    result = sh.run("mkdir spill; seq 20000", limits=Limits(max_output=10, spill=str(spill)), tty=False)
    assert result.reason == f"the output could not be written completely to {spill}: Is a directory"
    assert list(spill.iterdir()) == []


def test_a_spill_may_be_a_link_to_a_file(sh: Session, place: Path) -> None:
    (place / "spill").symlink_to("elsewhere")
    result = sh.run("seq 20000", limits=Limits(max_output=10, spill=str(place / "spill")), tty=False)
    assert (result.reason, (place / "elsewhere").read_bytes()) == ("", NUMBERS)


def test_a_spill_that_is_no_regular_file_is_refused_before_anything_runs(sh: Session, place: Path) -> None:
    os.mkfifo(place / "fifo")
    for spill in (str(place / "fifo"), "/dev/full"):
        with pytest.raises(InvalidRequest, match="spill"):
            sh.run("touch ran", limits=Limits(max_output=10, spill=spill))
    assert not (place / "ran").exists()


def test_the_spill_of_a_command_that_is_handed_back_is_whole(sh: Session, place: Path) -> None:
    sh.run("mkfifo go")
    limits = Limits(max_output=100, spill=str(place))
    sh.run("seq 20; read x <go; seq 20000", limits=limits, timeout=0.15, on_timeout="yield")
    (place / "go").write_text("\n")
    result = sh.wait()
    assert result.outcome == "exited"
    assert result.stdout_file
    assert Path(result.stdout_file).read_bytes() == b"".join(b"%d\n" % i for i in range(1, 21)) + NUMBERS


# What a command puts in the way of what it prints, and what is then said of that.
IN_THE_WAY = {
    "a link": ("spill", "ln -s {victim} spill; seq 99", "it is not a regular file"),
    "a link for a file that was begun": ("spill", "{begun}; ln -sf {victim} spill; seq 99", "it is not a regular file"),
    "another file": ("spill", "{begun}; mv spill kept; echo other >spill; seq 99", "another file has taken its place"),
    "no file": ("spill", "{begun}; rm spill; seq 99", "No such file or directory"),
    "a link for its directory": ("out/victim", "rmdir out; ln -s {victims} out; seq 99", "Not a directory"),
}
SANDBOXED = [pytest.param(False, id="outside"), pytest.param(True, id="in a sandbox", marks=needs_bwrap)]


@pytest.mark.parametrize("in_sandbox", SANDBOXED)
@pytest.mark.parametrize(("spill", "text", "why"), IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_nothing_that_a_command_puts_in_the_way_leads_elsewhere(
    place: Path, tmp_path: Path, in_sandbox: bool, spill: str, text: str, why: str
) -> None:
    victims = tmp_path / "victims"
    victims.mkdir()
    (place / "out").mkdir()
    victim = victims / "victim"
    victim.write_text("precious")
    limits = Limits(max_output=10, spill=str(place / spill))
    begun = "seq 99; until [ -s spill ]; do sleep 0.01; done"
    with Session(cwd=place, sandbox=Sandbox(write=[place]) if in_sandbox else None, timeout=30, tty=False) as sh:
        result = sh.run(text.format(begun=begun, victim=victim, victims=victims), limits=limits)
    assert (result.outcome, result.exit_code) == ("exited", 0)
    assert result.reason == f"the output could not be written completely to {limits.spill}: {why}"
    assert victim.read_text() == "precious"


@needs_bwrap
def test_a_link_that_a_sandbox_can_change_names_no_place(place: Path, tmp_path: Path) -> None:
    with Session(cwd=place, sandbox=Sandbox(write=[place])) as sh:
        sh.run(f"ln -s {tmp_path} link; ln -s {tmp_path}/file file")
        for spill in ("link", "link/file", "file"):
            with pytest.raises(InvalidRequest, match=r"leads through .*, a link in the sandbox's write="):
                sh.run("seq 99", limits=Limits(max_output=10, spill=str(place / spill)))


def test_a_place_is_the_same_wherever_the_host_goes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place)
    with Session(limits=Limits(max_output=10, spill="out"), tty=False) as sh:
        monkeypatch.chdir("elsewhere")
        assert sh.run("seq 20000").stdout_file == str(place / "out")
        result = sh.run("seq 20000", limits=Limits(max_output=10, spill="here"), on_output=lambda *_: os.chdir("/"))
    assert result.stdout_file == str(place / "elsewhere" / "here")
    assert (place / "out").read_bytes() == Path(result.stdout_file).read_bytes() == NUMBERS


def test_links_that_lead_round_in_a_circle_lead_nowhere(sh: Session, place: Path) -> None:
    (place / "spill").symlink_to("spill")
    result = sh.run("seq 20000", limits=Limits(max_output=10, spill=str(place / "spill")))
    assert result.reason == f"the output could not be written completely to {place}/spill: it is not a regular file"
    assert result.stdout_file is None


as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
OTHER = 65534


@as_root
def test_another_users_file_is_refused_before_anything_runs(sh: Session, place: Path) -> None:
    (theirs := place / "theirs").write_text("precious")
    os.chown(theirs, OTHER, OTHER)
    with pytest.raises(InvalidRequest, match=f"belongs to user {OTHER}, not you; name a file that you own"):
        sh.run("touch ran", limits=Limits(max_output=10, spill=str(theirs)))
    assert not (place / "ran").exists()


@as_root
def test_another_users_file_gets_nothing(sh: Session, place: Path) -> None:
    """Beside the one that was named, or put there while the command runs."""
    spill = place / "spill"
    (theirs := place / "spill.stderr").write_text("precious")
    os.chown(theirs, OTHER, OTHER)
    result = sh.run("seq 99 >&2; (exit 3)", limits=Limits(max_output=10, spill=str(spill)))
    why = f"the output could not be written completely to {theirs}: it belongs to user {OTHER}, not you"
    assert (result.exit_code, result.reason, result.stderr_file) == (3, why, None)
    assert theirs.read_text() == "precious"


@pytest.mark.parametrize("mode", [0o644, 0o666])
def test_a_file_of_ours_is_made_private(sh: Session, place: Path, mode: int) -> None:
    (spill := place / "spill").write_text("old")
    spill.chmod(mode)
    assert sh.run("seq 99; echo more", limits=Limits(max_output=10, spill=str(spill))).reason == ""
    assert (spill.stat().st_mode & 0o777, spill.read_text().splitlines()[-1]) == (0o600, "more")
