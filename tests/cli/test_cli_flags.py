"""Flags that make a session, and the rules for its commands: of ``run``, and of the daemon."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pexpect
import pytest
from commands import cli, environment
from daemons import Daemon
from sandboxes import needs_bwrap
from system import PATIENCE, wait_until

from shellsession import InvalidRequest
from shellsession.cli import flags, mcp, run, serve


@pytest.fixture
def agent(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of an agent without a session."""
    yield request.node.name
    cli(daemon.socket, "kill", request.node.name)


@needs_bwrap
def test_run_makes_a_session_in_a_sandbox_and_repeats_it(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    (project := tmp_path / "project").mkdir()
    flags = shlex.split(
        "--sandbox --write . --hide ~/nowhere --missing-ok --memory 512M --cwd project"
        " --pass-env 'AWS_*' --deny 'git push'"
    )
    given = {"API_KEY": "secret", "AWS_REGION": "here"}
    said = "echo $PWD ${API_KEY-none} $AWS_REGION; echo x >file; [[ -w / ]] || echo confined"
    for _ in range(2):
        done = cli(daemon.socket, "run", "-s", agent, *flags, "--", said, env=given, cwd=str(tmp_path))
        assert done.stdout.decode() == f"{project} none here\nconfined\n"
        assert (project / "file").exists()
    done = cli(daemon.socket, "run", "-s", agent, "git -C . push")  # no flags: the session as it is
    assert done.stderr == b"shellsession: refused by policy: 'git push' is denied\n"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--cwd", "/usr"], "which was opened in /tmp"),
        (["--sandbox"], "which is not confined by this sandbox"),
        (["--allow", "ls"], "which does not have this policy"),
        (["--max-chars", "10"], "which has other limits of output"),
        (["--startup", "A=1"], "which began with other commands"),
    ],
)
def test_other_options_than_those_of_an_open_session_are_refused(
    daemon: Daemon, agent: str, flags: list[str], why: str
) -> None:
    assert cli(daemon.socket, "run", "-s", agent, "--cwd", "/tmp", "true").returncode == 0
    done = cli(daemon.socket, "run", "-s", agent, "--json", *flags, "--", "echo run")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (125, "already_open")
    assert f"agent {agent!r} already has a session, {why}: " in error["message"]
    assert cli(daemon.socket, "run", "-s", agent, "--cwd", "/tmp/.", "pwd").stdout == b"/tmp\n"


@needs_bwrap
def test_a_sandbox_that_cannot_be_made_leaves_no_session(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    place = tmp_path / "project"
    flags = ("--sandbox", "--write", str(place), "--cwd", str(tmp_path))
    done = cli(daemon.socket, "run", "-s", agent, *flags, "pwd")
    assert (done.returncode, b"does not exist" in done.stderr) == (125, True)
    assert agent.encode() not in cli(daemon.socket, "ls").stdout
    done = cli(daemon.socket, "run", "-s", agent, "--sandbox", "--write", str(tmp_path), "--cwd", str(tmp_path), "pwd")
    assert (done.stdout, done.stderr) == (f"{tmp_path}\n".encode(), b"")


def test_a_tilde_is_the_home_of_the_caller(daemon: Daemon, agent: str) -> None:
    words = ("run", "-s", agent, "--cwd", "~/bin/..", "--", "cd . && pwd -P")
    assert cli(daemon.socket, *words, env={"HOME": "/usr"}).stdout == b"/usr\n"


@pytest.mark.parametrize("verb", [mcp, run, serve], ids=lambda verb: verb.__name__.rpartition(".")[2])
@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("--cwd project", "{here}/project/part"),
        ("--cwd /usr", "/usr/part"),
        ("--cwd ~/lib", "/usr/lib/part"),
        ("", "{here}/part"),
    ],
)
def test_a_relative_path_of_a_sandbox_is_below_the_session_s_directory(
    verb: ModuleType, words: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/usr")
    typed = [*words.split(), "--sandbox", "--write", "part", "--write", "/opt", "--hide", "part", "--hide", "~/secret"]
    sandbox = flags.options_of(verb.own_parser().parse_args(typed))["sandbox"]
    assert sandbox is not None
    part = path.format(here=tmp_path)
    assert sandbox.paths == ((part, "/opt"), (part, "/usr/secret"))


@pytest.mark.parametrize("words", ["--write .", "--write ../x/..", "--write ~", "--write //", "--cwd / --write ./"])
def test_only_a_slash_makes_everything_writable(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    monkeypatch.setenv("HOME", "/")
    with pytest.raises(InvalidRequest, match="is / here, and the whole file system would be writable"):
        flags.options_of(mcp.own_parser().parse_args(["--sandbox", *words.split()]))
    sandbox = flags.options_of(mcp.own_parser().parse_args(["--sandbox", "--write", "/"]))["sandbox"]
    assert sandbox is not None
    assert sandbox.paths == (("/",), ())


@pytest.mark.parametrize("flag", ["--write", "--hide"])
def test_a_sandbox_elsewhere_needs_an_absolute_path(flag: str) -> None:
    words = ["--via", "ssh box", "--sandbox", flag, "part"]
    with pytest.raises(InvalidRequest, match=f"^{flag} is 'part': a session elsewhere"):
        flags.options_of(run.own_parser().parse_args(words))
    sandbox = flags.options_of(run.own_parser().parse_args(["--cwd", "/there", *words]))["sandbox"]
    assert sandbox is not None
    assert ("/there/part",) in sandbox.paths


def test_flags_of_a_sandbox_need_one(daemon: Daemon, agent: str) -> None:
    for words in (["--network"], ["--cpu", "0"], ["--pass-env", "A"], ["--missing-ok"]):
        done = cli(daemon.socket, "run", "-s", agent, *words, "--", "true")
        assert (done.returncode, done.stderr) == (
            125,
            f"shellsession: {words[0]} belongs to a sandbox: add --sandbox\n".encode(),
        )


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        pytest.param(
            ["--sandbox", "--write", "/nope"],
            "--write: '/nope' does not exist: make it first, or leave it out",
            marks=needs_bwrap,
        ),
        pytest.param(
            ["--sandbox", "--write", "/proc"],
            "--write: '/proc' is in a directory that the sandbox makes itself: ",
            marks=needs_bwrap,
        ),
        pytest.param(
            ["--sandbox", "--hide", "/nope"],
            "--hide: '/nope' does not exist: make it first, or add --missing-ok",
            marks=needs_bwrap,
        ),
        (["--sandbox", "--memory", "5Q"], '--memory must be a number of bytes or a text like "512M", not '),
        (["--sandbox", "--cpu", "0"], "--cpu must be a number from 0.01 to 1024; not 0.0"),
        (["--sandbox", "--pass-env", "A=b"], "--pass-env: 'A' is not the name of a variable; values go into --env"),
        (["--cwd", "/nope"], "--cwd '/nope' is not a directory"),
        (["-C", "/nope"], "-C or --env could not be set: cd: /nope: No such file or directory; nothing was run"),
        (["--env", "1A=b"], "--env: '1A' is not the name of a variable"),
        (["--env", "=b"], "argument --env: a variable needs a name"),
        (["--deny", ""], "--deny takes texts, not an empty one"),
        (["--allow", ""], "--allow takes texts, not an empty one"),
        (["--max-chars", "9" * 11], "--max-chars is 99999999999, but over the daemon at most "),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_an_error_names_the_flag_that_was_typed(daemon: Daemon, agent: str, flags: list[str], why: str) -> None:
    done = cli(daemon.socket, "run", "-s", agent, *flags, "--", "true")
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (125, b"")
    assert f"shellsession: {why}" in said


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["a 1", "echo hi"], "if a 1 is an agent, name it with -s: `shellsession run -s 'a 1' -- 'echo hi'`\n"),
        (["--", "a1", "echo hi"], ""),
        (["-s", "default", "a1", "echo hi"], ""),
        (
            ["echo a", "echo b"],
            "several words are a command and its arguments; a script is one word, such as"
            " `shellsession run -- 'echo a; echo b'`\n",
        ),
        (["bash", "-c", "exit 127"], ""),
        (["", "echo"], ""),
        (["a1"], ""),
    ],
)
def test_run_with_an_agent_in_the_place_of_a_command_names_the_right_form(
    daemon: Daemon, words: list[str], hint: str
) -> None:
    done = cli(daemon.socket, "run", *words)
    *_, last = ["", *done.stderr.decode().splitlines(keepends=True)]
    assert done.returncode == 127
    assert last == f"shellsession: {hint}" if hint else "shellsession: " not in last


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["sleep 5", "--timeout", "1"], "--timeout"),
        (["ls", "--timeout=3"], "--timeout"),
        (["-s", "default", "ls", "--no-start"], "--no-start"),
        (["sleep 5", "-s", "a1"], "-s"),
        (["ls", "-s", "/nowhere"], ""),
        (["--", "ls", "--timeout", "3"], ""),
        (["echo", "--timeout", "3"], ""),
    ],
)
def test_an_option_after_the_command_of_run_gets_a_hint(daemon: Daemon, words: list[str], name: str) -> None:
    done = cli(daemon.socket, "run", *words)
    hint = f"shellsession: {name} went to the command: write an option of `shellsession run` before the command"
    assert (hint in done.stderr.decode().splitlines()) == bool(name)
    assert ("went to the command" in done.stderr.decode()) == bool(name)


def test_startup_commands_run_first(daemon: Daemon, agent: str) -> None:
    flags = ["--startup", "A=1; B() { echo $A; }", "--startup", "cd /usr"]
    for _ in range(2):
        done = cli(daemon.socket, "run", "-s", agent, *flags, "--", "B; pwd")
        assert (done.stdout, done.stderr) == (b"1\n/usr\n", b"")
    assert cli(daemon.socket, "run", "-s", agent, "--", "B").stdout == b"1\n"
    failing = cli(daemon.socket, "run", "-s", f"{agent}-failing", "--startup", "(exit 3)", "--", "echo never")
    assert (failing.returncode, failing.stdout) == (125, b"")
    assert b"(exit 3)" in failing.stderr


def test_an_idle_ttl_closes_the_session(daemon: Daemon, agent: str) -> None:
    assert cli(daemon.socket, "run", "-s", agent, "--idle-ttl", "0.05", "--", "true").returncode == 0
    wait_until(lambda: agent.encode() not in cli(daemon.socket, "ls").stdout, "its close")


def test_an_idle_ttl_of_mcp_needs_an_agent(daemon: Daemon) -> None:
    refused = cli(daemon.socket, "mcp", "--idle-ttl", "5")
    assert (refused.returncode, b"name one with -s" in refused.stderr) == (125, True)


@pytest.mark.parametrize("verb", [run, mcp, serve])
def test_startup_is_an_option_of_each_verb_that_makes_sessions(verb: ModuleType) -> None:
    assert flags.options_of(verb.own_parser().parse_args(["--startup", "A=1", "--startup", "B=2"])) == {
        "startup": ["A=1", "B=2"]
    }


def test_serve_has_the_defaults_of_its_sessions(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "socket")
    flags = [
        "-C",
        "/tmp",
        "--env",
        "A=daemon",
        "--env",
        "B=daemon",
        "--deny",
        "sudo",
        "--startup",
        "C=daemon",
        "--timeout",
        "1",
        "--max-chars",
        "10",
    ]
    try:
        assert cli(path, "serve", "--detach", "--audit", "off", *flags).returncode == 0
        done = cli(path, "run", "--timeout", "20", "echo $PWD $A $B $C")
        assert (done.returncode, done.stdout) == (0, b"/tmp daemon daemon daemon\n")
        assert cli(path, "run", "sleep 1000").returncode == 124
        assert b"'sudo' is denied" in cli(path, "run", "sudo ls").stderr
        assert json.loads(cli(path, "run", "--json", "seq 100").stdout)["stdout_omitted"] == 282
        done = cli(path, "run", "-s", "own", "--cwd", "/usr", "--deny", "su", "--", "echo $PWD $A $B")
        assert done.stdout == b"/usr daemon daemon\n"
        assert b"'su' is denied" in cli(path, "run", "-s", "own", "su").stderr
    finally:
        cli(path, "stop")
    done = cli(path, "serve", "-C", "/nowhere")
    assert (done.returncode, done.stderr) == (125, b"shellsession: -C '/nowhere' is not a directory\n")
    done = cli(path, "serve", "--sandbox", "--write", "/nope")
    assert (done.returncode, done.stderr) == (
        125,
        b"shellsession: --write: '/nope' does not exist: make it first, or leave it out\n",
    )


@pytest.mark.parametrize(("answer", "status"), [("y", "0"), ("n", "125"), ("", "125")])
def test_run_asks_at_the_terminal(daemon: Daemon, agent: str, tmp_path: Path, answer: str, status: str) -> None:
    words = [
        sys.executable,
        "-m",
        "shellsession",
        "run",
        "-s",
        agent,
        "--cwd",
        str(tmp_path),
        "--confirm",
        "--allow",
        "ls",
    ]
    person = pexpect.spawn(
        "bash",
        ["-c", f"{shlex.join(words)} -- 'touch made; ls' >/dev/null </dev/null; echo status $?"],
        env=environment(daemon.socket, {}),
        timeout=PATIENCE,
        encoding="utf-8",
        dimensions=(24, 300),
    )
    person.expect_exact(f"is to run in {tmp_path}:\r\n  touch made; ls\r\nrun it? [y/N] ")
    person.sendline(answer)
    person.expect_exact(f"status {status}")
    person.expect_exact(pexpect.EOF)
    assert (tmp_path / "made").exists() is (status == "0")
    assert cli(daemon.socket, "run", "-s", agent, "--confirm", "--allow", "true", "true").returncode == 0


def test_run_cannot_ask_without_a_terminal(daemon: Daemon, agent: str) -> None:
    done = cli(daemon.socket, "run", "-s", agent, "--confirm", "true")
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr == b"shellsession: --confirm asks at the terminal, and this process has none: nothing was run\n"


def test_run_with_allow_writes_only_files_that_redirect_names(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    flags = ["--allow", "echo", "--redirect", "*.log", "--strict", "--redact"]

    def run(command: str, *more: str) -> subprocess.CompletedProcess[bytes]:
        return cli(daemon.socket, "run", "-s", agent, *flags, *more, "--", command, cwd=str(tmp_path))

    assert run(f"echo fine > {tmp_path}/x.log 2>/dev/null").returncode == 0
    refused = run(f"echo evil > {tmp_path}/x.sh")
    assert (refused.returncode, (tmp_path / "x.sh").exists()) == (125, False)
    assert f"a redirection to '{tmp_path}/x.sh' is not allowed".encode() in refused.stderr
    assert b"is known only at run time" in run("$CMD x").stderr


def test_run_with_confirm_asks_about_a_redirection(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    flags = ["--confirm", "--allow", "echo", "--redirect", f"{tmp_path}/*.log"]
    assert cli(daemon.socket, "run", "-s", agent, *flags, "--", f"echo x > {tmp_path}/x.log").returncode == 0
    done = cli(daemon.socket, "run", "-s", agent, *flags, "--", f"echo x > {tmp_path}/x.sh")
    assert (done.returncode, (tmp_path / "x.sh").exists()) == (125, False)  # there is no terminal to ask at
