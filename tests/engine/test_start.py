"""How a session starts bash: environment, directory, size, and which bash."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from system import PATIENCE, PYTHON, descendants, wait_until, with_argument

from shellsession import InvalidRequest, Session, ShellUnavailable
from shellsession.engine.io.control_socket import ControlSocket
from shellsession.engine.wire import MarkFinder

Make = Callable[..., Session]

# What bash itself puts into any environment.
BASHS_OWN = {"PWD", "SHLVL", "_", "OLDPWD", "PS1", "PS2"}
# What the issue promises of the set for programs without a person.
EDITORS = ("GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "EDITOR", "VISUAL")
AGENT_ENV = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


def environment(session: Session) -> dict[str, str]:
    said = session.run("env -0", tty=False).stdout
    return dict(entry.split("=", 1) for entry in said.split("\0") if entry)


def test_the_environment_is_inherited_with_what_agents_need(new_session: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "it's\nmine")
    monkeypatch.setenv("PAGER", "less")
    found = environment(new_session())
    assert found["MINE"] == "it's\nmine"
    assert {name: found[name] for name in AGENT_ENV} == AGENT_ENV


@pytest.mark.parametrize("tty", [True, False])
def test_git_opens_no_editor_that_waits(new_session: Make, monkeypatch: pytest.MonkeyPatch, tty: bool) -> None:
    for name in EDITORS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    sh = new_session(tty=tty)
    sh.run("git init -qb master r; cd r; git config user.name A; git config user.email a@b", check=True)
    sh.run("for n in 1 2; do echo $n >f; git add f; git commit -qm c$n; done; git branch other HEAD~", check=True)
    assert sh.run("git commit --amend --allow-empty && git log -1 --format=%s").stdout.endswith("c2\n")
    rebased = sh.run("git rebase -i HEAD~")
    assert (rebased.outcome, rebased.exit_code) == ("exited", 1)
    assert "no editor opens here" in rebased.stderr
    assert sh.run("git checkout -q other; echo 3 >f; git commit -qam c3; git rebase master; git status").exit_code == 0
    assert sh.run("git add f; git rebase --continue && git log -1 --format=%s").stdout.endswith("c3\n")
    assert sh.run("git tag -a v1").outcome == "exited"  # git itself refuses an empty message


@pytest.mark.parametrize("mine", ["", "screen"])
@pytest.mark.parametrize(("tty", "without"), [(True, "xterm-256color"), (False, "dumb")])
def test_the_terminal_has_a_type_with_which_programs_work(
    new_session: Make, monkeypatch: pytest.MonkeyPatch, mine: str, tty: bool, without: str
) -> None:
    monkeypatch.delenv("TERM", raising=False)
    if mine:
        monkeypatch.setenv("TERM", mine)
    session = new_session(tty=tty)
    assert session.run("echo $TERM").stdout == (mine or without) + "\n"
    assert session.run("clear > /dev/null && tput cols").ok == (tty or mine != "")


def test_a_python_that_its_time_limit_ends_has_shown_what_it_printed(new_session: Make) -> None:
    program = f"{PYTHON} -c 'import time; print(42); time.sleep(100)'"
    session = new_session(tty=False)
    printed = [session.run(program, timeout=0.2, on_timeout="yield").stdout]

    def has_printed() -> bool:
        printed.append(session.wait(0.1).stdout)
        return "42\n" in printed

    wait_until(has_printed, "what it prints")


def test_agent_env_false_adds_nothing_at_all(new_session: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in AGENT_ENV:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("MAIL", raising=False)  # a login sets it; bash would announce mail between two commands
    monkeypatch.setenv("PAGER", "less")
    found = environment(new_session(agent_env=False))
    expected = {**os.environ}
    assert {name: value for name, value in found.items() if name not in BASHS_OWN} == {
        name: value for name, value in expected.items() if name not in BASHS_OWN
    }


def test_a_prompt_of_the_hosts_own_shell_is_nobodys(new_session: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours must be empty, and an exported one of ours would be seen by all commands."""
    monkeypatch.setenv("PS1", "(venv) ")
    assert "PS1" not in environment(new_session())


def test_a_mapping_replaces_the_environment(new_session: Make) -> None:
    found = environment(new_session(env={"PATH": os.environ["PATH"], "ONLY": "1"}))
    assert set(found) - BASHS_OWN == {"PATH", "ONLY"}


def test_extra_env_adds_and_wins(new_session: Make) -> None:
    found = environment(new_session(extra_env={"TERM": "xterm", "MORE": "1"}))
    assert (found["TERM"], found["MORE"], found["PAGER"]) == ("xterm", "1", "cat")
    found = environment(new_session(env={"PATH": os.environ["PATH"], "A": "1"}, extra_env={"A": "2"}))
    assert found["A"] == "2"


@pytest.mark.parametrize(
    "hostile",
    [
        {"PROMPT_COMMAND": "echo pwned"},
        {"PS0": "pwned"},
        {"PS1": "pwned"},
        {"PS4": "$(echo pwned >&2)"},
        {"TMOUT": "1"},
        {"BASH_ENV": "/dev/stdin"},
        {"ENV": "/dev/stdin"},
        {"POSIXLY_CORRECT": "1"},
        {"SHELLOPTS": "xtrace:verbose"},
        {"BASHOPTS": "extdebug"},
        {"HISTFILE": "/dev/full"},
        {"MAILPATH": "/dev/null?pwned", "MAILCHECK": "0"},
        {"BASH_FUNC_eval%%": "() { echo pwned; }"},
        {"BASH_FUNC_builtin%%": "() { echo pwned; }"},
        {"LC_ALL": "tr_TR.UTF-8"},
        {"LANG": "nonsense"},
        {"IFS": "0123456789/ "},
        {"PIPESTATUS": "0"},
    ],
    ids=lambda hostile: next(iter(hostile)),
)
def test_no_variable_of_the_host_disturbs_the_session(new_session: Make, hostile: dict[str, str]) -> None:
    session = new_session(extra_env=hostile)
    for _ in range(2):
        result = session.run("printf '%s\\n' hi; (exit 3)")
        assert (result.stdout, result.exit_code) == ("hi\n", 3)
        assert "pwned" not in result.stderr


@pytest.mark.sampled
@pytest.mark.parametrize("bad", [{"A": "x\0y"}, {"A\0": "x"}, {"A=B": "x"}, {"": "x"}, {"A": 5}], ids=repr)
@pytest.mark.parametrize("way", ["env", "extra_env"])
def test_an_environment_that_cannot_be_given_is_refused(bad: object, way: str) -> None:
    """In a process of its own: what exec refuses must not let a copy of the host run on."""
    program = f"""
import shellsession
try:
    shellsession.Session({way}={bad!r}).run("true")
except shellsession.InvalidRequest:
    print("refused")
print("once")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=10, check=False)
    assert done.stdout == "refused\nonce\n"


def test_it_starts_where_it_is_asked_to(new_session: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "a b\n'c'"
    there.mkdir()
    assert new_session(cwd=str(there)).run("true").cwd == str(there)
    monkeypatch.chdir(there)
    assert new_session(cwd=None).run("true").cwd == str(there)


@pytest.mark.parametrize("cwd", ["/no/such/place", "/etc/passwd", ""], ids=["missing", "a file", "empty"])
def test_a_directory_that_is_none_is_refused(cwd: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a directory"):
        Session(cwd=cwd)


def test_a_directory_that_went_away_is_a_clear_error(new_session: Make, tmp_path: Path) -> None:
    there = tmp_path / "gone"
    there.mkdir()
    session = new_session(cwd=there)
    there.rmdir()
    with pytest.raises((InvalidRequest, ShellUnavailable), match="gone"):
        session.run("true")
    there.mkdir()
    assert session.run("pwd").stdout == f"{there}\n"


def test_open_starts_bash_and_run_does_so_too(new_session: Make) -> None:
    session = new_session()
    assert session.pid is None
    assert session.open() is session
    first = session.pid
    assert first is not None
    assert session.open().pid == first
    assert session.run("echo $$").stdout == f"{first}\n"


def test_it_is_an_interactive_bash_without_anybodys_files(new_session: Make, tmp_path: Path) -> None:
    for name in (".bashrc", ".profile", ".bash_profile", ".inputrc", ".bash_login"):
        (tmp_path / name).write_text("echo from a file; X=1\n")
    session = new_session(extra_env={"HOME": str(tmp_path)})
    result = session.run('case $- in *i*) echo interactive "[$X]";; esac')
    assert (result.stdout, result.stderr) == ("interactive []\n", "")
    session.run("echo hi")
    session.close()
    assert not (tmp_path / ".bash_history").exists()


def script(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_missing_bash_is_a_clear_error(new_session: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ShellUnavailable, match=r"'/no/bash'.*4\.4"):
        new_session(bash="/no/bash").run("true")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "defpath", str(tmp_path))
    with pytest.raises(ShellUnavailable, match=r"no 'bash' on PATH"):
        new_session().run("true")


def test_an_old_bash_is_a_clear_error_that_says_what_was_found(new_session: Make, tmp_path: Path) -> None:
    """BASH_VERSINFO is readonly, so the question for it is changed on its way; `cat` takes it whole, `sed -u` by bytes.

    The watcher gets a plain bash: a child of the script would outlive it, and with it the test.
    """
    old = script(
        tmp_path / "bash",
        "#!/bin/sh\n"
        'case "$*" in *watcher.bash*) exec /bin/bash "$@";; esac\n'
        "cat | sed -u 's/BASH_VERSINFO.0./4/; s/BASH_VERSINFO.1./3/' | /bin/bash \"$@\"\n",
    )
    with pytest.raises(ShellUnavailable, match=r"bash 4\.3 is too old: pass bash=<path> of bash 4\.4 or newer"):
        new_session(bash=old).run("true")
    wait_until(lambda: not with_argument(str(os.getpid())), "the end of the watcher")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("#!/bin/sh\necho 'I am no bash' >&2; exit 1\n", "I am no bash"),
        ("#!/bin/sh\nexit 0\n", "ended at its start"),
        ("#!/bin/sh\necho so far >&2; kill -9 $$\n", "was killed at its start, by SIGKILL: .* it said: so far"),
        ("#!/no/such/interpreter\n", "could not be started|ended at its start"),
        ("neither script nor program\x01\n", "could not be started|ended at its start"),
        ("#!/usr/bin/env python3\nimport sys; sys.exit('Python here')\n", "Python here"),
    ],
    ids=["complains", "ends", "is killed", "no interpreter", "no program", "python"],
)
def test_what_is_no_bash_is_a_clear_error(new_session: Make, tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ShellUnavailable, match=complaint):
        new_session(bash=script(tmp_path / "bash", text)).run("true")


def test_the_last_output_of_a_command_without_a_reader_is_received() -> None:
    """The kernel tells of what it left unread first: ECONNRESET, once."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control, finder = ControlSocket(ours), MarkFinder(b"nonce")
    control.send(b"typed to it")
    theirs.send(b"I am no bash")
    theirs.close()
    assert [control.read(finder), control.read(finder)] == [b"I am no bash", b""]
    assert finder.noise == b"I am no bash"
    control.close()


def test_a_bash_that_may_not_be_run_is_a_clear_error(new_session: Make, tmp_path: Path) -> None:
    with pytest.raises(ShellUnavailable):
        new_session(bash=script(tmp_path / "bash", "#!/bin/sh\n", 0o644)).run("true")


def test_a_bash_by_another_name_is_a_bash(new_session: Make, tmp_path: Path) -> None:
    (tmp_path / "my bash").symlink_to("/bin/bash")
    assert new_session(bash=str(tmp_path / "my bash")).run("echo hi").stdout == "hi\n"


def test_failed_starts_leave_nothing_behind(new_session: Make, tmp_path: Path) -> None:
    session = new_session(bash=script(tmp_path / "bash", "#!/bin/sh\nexit 1\n"))
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(ShellUnavailable):
            session.run("true")
    assert set(os.listdir("/proc/self/fd")) == before
    assert session.pid is None


@pytest.mark.parametrize("size", [(1, 1), (80, 24), (500, 500)])
def test_the_size_reaches_bash(new_session: Make, size: tuple[int, int]) -> None:
    assert new_session(size=size).run("stty size <&1").stdout == f"{size[1]} {size[0]}\n"


def test_a_host_without_its_first_three_descriptors(tmp_path: Path) -> None:
    program = (
        "import os, sys; from shellsession import Session; os.closerange(0, 3)\n"
        "with Session(timeout=20) as sh: said = sh.run('echo hi; cat').stdout\n"
        f"open({str(tmp_path / 'said')!r}, 'w').write(said)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)
    assert (tmp_path / "said").read_text() == "hi\n"


def test_a_shell_that_cannot_be_taken_over_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(24, "Too many open files")

    before = sorted(os.listdir("/proc/self/fd"))
    children = descendants(os.getpid())
    monkeypatch.setattr(os, "eventfd", fail)
    with pytest.raises(ShellUnavailable, match="Too many open files"):
        Session().open()
    assert descendants(os.getpid()) == children
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_life_of_a_shell_follows_its_commands(new_session: Make, place: Path) -> None:
    seen = list[str]()
    session = new_session(startup=["until [ -e go ]; do sleep 0.01; done", "cd ."])

    def life() -> str:
        return session.engine.shell.life if session.engine.shell else ""

    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(session.open)
        wait_until(lambda: life() == "starting", "a startup command")
        assert session.engine.live().busy
        (place / "go").touch()
        opening.result(PATIENCE)
        seen.append(life())
        running = threads.submit(session.run, "until [ -e on ]; do sleep 0.01; done")
        wait_until(lambda: life() == "busy", "the command")
        (place / "on").touch()
        running.result(PATIENCE)
    seen.append(life())
    shell = session.engine.live()
    session.close()
    assert (seen, shell.life) == (["ready", "ready"], "closing")
