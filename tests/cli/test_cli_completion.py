"""Completion in bash, zsh and fish, and the man page: files that are made from the parsers."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pexpect
import pytest
from daemons import Daemon
from system import PATIENCE
from warm import PROGRAM

from docs.generate import generated
from shellsession import connect
from shellsession.cli.arguments import VERBS

_FILES = generated()


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.name)
def test_a_file_is_what_the_parsers_make_of_it(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == _FILES[path], "run `make generated`"


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_the_man_page_is_rendered_without_a_warning() -> None:
    page = next(path for path in _FILES if path.suffix == ".1")
    words = ["man", "--warnings", "--local-file", str(page)]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "MANWIDTH": "80"}, check=True)
    assert done.stderr == ""
    assert [verb for verb in VERBS if f"\n   shellsession {verb}\n" not in done.stdout] == []


@pytest.fixture(scope="module")
def program(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``shellsession``, as it would be found in PATH."""
    path = tmp_path_factory.mktemp("bin") / "shellsession"
    path.write_text(f'#!/bin/sh\nSHELLSESSION_SOCKET={daemon.socket} exec {shlex.join(PROGRAM)} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("", list(VERBS)),
        ("sta", ["status"]),
        ("s", ["send", "snapshot", "status", "serve", "stop"]),
        ("ls --", ["--help", "--names", "--json", "--socket", "--via"]),
        ("serve --log-level ", ["debug", "info", "warning", "error"]),
        ("kill ag", [r"agent\ \'2\'", "agent-1"]),
        ("run -s agent-", ["agent-1"]),
        ("run --timeout ", []),
        ("run -s agent-1 ", []),
        ("run -- ls --", []),
        ("attach --others ", ["wait", "refuse"]),
        ("attach ag", [r"agent\ \'2\'", "agent-1"]),
        ("attach --others=", ["wait", "refuse"]),
        ("attach --others=w", ["wait"]),
        ("kill pro", ["pro:ject:1"]),
        ("kill pro:", ["ject:1"]),
        ("run -s pro:ject:", ["1"]),
        ("attach pro:j", ["ject:1"]),
        ("kill pro::", []),
        ("completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_bash_completes(daemon: Daemon, program: Path, words: str, offered: list[str]) -> None:
    assert completed(daemon, program, words) == offered


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("kill pro:", ["pro:ject:1"]),
        ("run --session=ag", [r"--session=agent\ \'2\'", "--session=agent-1"]),
        ("attach --others=w", ["--others=wait"]),
    ],
)
def test_bash_completes_where_it_takes_no_word_apart(
    daemon: Daemon, program: Path, words: str, offered: list[str]
) -> None:
    assert completed(daemon, program, words, breaks="") == offered


def completed(daemon: Daemon, program: Path, words: str, breaks: str = ":=") -> list[str]:
    """What bash is offered, which takes words apart at blanks and at these."""
    for name in ("agent-1", "agent '2'", "other", "pro:ject:1"):
        connect(name, daemon.socket, False).disconnect()
    line = f"{program} {words}"
    parts = re.findall(rf"[\0{breaks}]+|[^\0\s{breaks}]+|(?<=\s)$", line)
    script = f"""
        set -u
        eval "$({program} completion bash)" && complete -p shellsession >/dev/null || exit
        COMP_WORDBREAKS=$' \\t\\n'{shlex.quote(breaks)}
        COMP_LINE={shlex.quote(line)} COMP_WORDS=({shlex.join(parts)}) COMP_CWORD={len(parts) - 1}
        _shellsession
        ((${{#COMPREPLY[@]}})) && printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_name_with_a_colon_is_completed_at_a_prompt(daemon: Daemon, program: Path) -> None:
    connect("house:room", daemon.socket, False).disconnect()
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "$ ", "INPUTRC": "/dev/null"}
    bash: pexpect.spawn[str] = pexpect.spawn("bash", ["--norc"], env=env, encoding="utf-8", timeout=PATIENCE)
    try:
        bash.sendline('eval "$(shellsession completion bash)"; echo re""ady')
        bash.expect("ready")
        bash.send("shellsession kill house:\t")
        bash.expect("kill house:room ")
    finally:
        bash.close(force=True)


# -- zsh and fish


@pytest.fixture
def path(daemon: Daemon, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts ``shellsession`` on PATH, with agents to complete."""
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for name in ("agent-1", "agent '2'", "house:room"):
        connect(name, daemon.socket, False).disconnect()


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.usefixtures("path")
def test_fish_completes(tmp_path: Path) -> None:
    asked = {
        "sta": ["status"],
        "kill ag": ["agent-1", "agent '2'"],
        "kill other house": ["house:room"],
        "run -s agent-": ["agent-1"],
        "ls --na": ["--names"],
        "attach --others=w": ["--others=wait"],
        "serve --log-level d": ["debug"],
    }
    lines = [f"complete -C {shlex.quote(f'shellsession {words}')}; echo ." for words in asked]
    script = "shellsession completion fish | source\n" + "\n".join(lines)
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(["fish", "-c", script], capture_output=True, text=True, env=env, timeout=PATIENCE, check=True)
    assert done.stderr == ""
    found = [[line.partition("\t")[0] for line in part.splitlines()] for part in done.stdout.split(".\n")]
    assert dict(zip(asked, found, strict=False)) == asked


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.usefixtures("path")
def test_zsh_completes_at_its_prompt(tmp_path: Path) -> None:
    env = {**os.environ, "TERM": "dumb", "HOME": str(tmp_path)}
    zsh: pexpect.spawn[str] = pexpect.spawn("zsh", ["-f"], env=env, encoding="utf-8", timeout=PATIENCE)
    try:
        zsh.sendline('PS1="> "; autoload -Uz compinit; compinit -D')
        zsh.sendline('eval "$(shellsession completion zsh)"; echo re""ady')
        zsh.expect("ready")
        for typed, completed in {
            "sta": "status ",
            "kill other house": "kill other house:room ",
            "run -s agent-": "run -s agent-1 ",
            r"wait agent\ ": r"wait agent\ \'2\' ",
            "ls --na": "ls --names ",
            "serve --log-level d": "serve --log-level debug ",
            "run -- basena": "run -- basename ",
        }.items():
            zsh.send(f"shellsession {typed}\t")
            zsh.expect_exact(f"shellsession {completed}")
            zsh.sendcontrol("u")
    finally:
        zsh.close(force=True)
