"""``shellsession run``: its streams, its exit status, and how it reads its arguments."""

from __future__ import annotations

import base64
import json
import os
import re
import select
import shutil
import signal
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
from commands import cli, environment, finish, line, opened, running
from daemons import Daemon
from system import PATIENCE, is_alive, wait_until
from warm import PROGRAM

from shellsession import Limits, Result, connect

ALL_BYTES = bytes(range(256)) * 400


def test_both_streams_pass_byte_by_byte(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(ALL_BYTES)
    done = cli(daemon.socket, "run", "-s", agent, "--", f"cat {tmp_path}/data; cat {tmp_path}/data >&2; printf end >&2")
    assert (done.stdout, done.stderr, done.returncode) == (ALL_BYTES, ALL_BYTES + b"end", 0)


def test_more_than_a_result_keeps_passes_whole(daemon: Daemon, agent: str) -> None:
    done = cli(daemon.socket, "run", "-s", agent, "--", "head -c 5000000 /dev/zero")
    assert (len(done.stdout), done.stderr) == (5_000_000, b"")


def test_output_comes_while_the_command_runs(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with running(daemon.socket, "run", "-s", agent, "--", f"echo first; cat {fifo}; echo last") as process:
        assert line(process) == b"first\n"
        fifo.write_bytes(b"go\n")
        assert (line(process), line(process)) == (b"go\n", b"last\n")
        assert finish(process) == (0, b"")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--", "true"], 0, ""),
        (["--", "(exit 7)"], 7, ""),
        (
            ["--", "exit 3"],
            3,
            "exit\nshellsession: the command ended the session's bash, with exit status 3; a fresh bash continues in",
        ),
        (["--", "kill -9 $$"], 137, "the session's bash was killed by signal 9 (SIGKILL); the session's state is lost"),
        (["--timeout", "0.2", "--", "sleep 99"], 124, "the time limit passed after "),
        (["--timeout", "0.2", "--", "sleep 99"], 124, "; the session's state is kept\n"),
        (["--idle-timeout", "0.2", "--timeout", "0", "--", "sleep 99"], 124, "no output came for the idle limit after"),
        (["--env", "UID=2", "--", "true"], 125, "UID: cannot unset: readonly variable; nothing was run\n"),
        (["--cwd", "/no/such/place", "--", "true"], 125, "cwd '/no/such/place' is not a directory: make it"),
    ],
)
def test_the_status_is_the_commands_or_says_what_we_did(
    daemon: Daemon, agent: str, words: list[str], status: int, said: str
) -> None:
    done = cli(daemon.socket, "run", "-s", agent, *words)
    assert (done.returncode, done.stdout) == (status, b"")
    assert said in done.stderr.decode() if said else not done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *((["--timeout", bad], f"--timeout: '{bad}' is not a number of") for bad in ("soon", "-1", "1e400", "")),
        (["--idle-timeout", "nan"], "--idle-timeout: 'nan' is not a number of seconds, or too large; 0 means no limit"),
        (["--tmeout"], "unrecognized arguments: --tmeout"),
    ],
)
def test_a_usage_error_exits_with_125(daemon: Daemon, words: list[str], said: str) -> None:
    done = cli(daemon.socket, "run", *words, "--", "true")
    assert done.returncode == 125
    assert done.stderr.startswith(b"usage: shellsession run ")
    assert said in done.stderr.decode()


@pytest.mark.sampled
@pytest.mark.parametrize("words", [["log", "-n"], ["serve", "--max-sessions"]], ids=lambda words: words[0])
@pytest.mark.parametrize("number", ["-1", "x", "9" * 30, "9" * 5000, "1.5", "nan"])
def test_an_invalid_number_is_a_usage_error(daemon: Daemon, words: list[str], number: str) -> None:
    done = cli(daemon.socket, *words, number)
    assert (done.returncode, done.stdout) == (125, b"")
    assert re.search(r"is not a whole number from [01] to \d{19}\n\Z", done.stderr.decode())


def test_an_agent_has_one_name_in_every_locale(daemon: Daemon) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert cli(daemon.socket, "run", "-s", "Zoë", "--", "X=kept").returncode == 0
    assert cli(daemon.socket, "run", "-s", "Zoë", "--", "echo $X", env=ascii_only).stdout == b"kept\n"
    named = {**ascii_only, "SHELLSESSION_AGENT": "Zoë"}
    assert cli(daemon.socket, "run", "--", "echo $X", env=named).stdout == b"kept\n"
    assert b"Zo\\xeb" in cli(daemon.socket, "ls", "--names", env=ascii_only).stdout
    assert cli(daemon.socket, "kill", "Zoë", env=ascii_only).returncode == 0
    assert cli(daemon.socket, "run", "-s", b"\xff", "--", "true").returncode == 125


@pytest.mark.parametrize("started", ["", "C", "POSIX"], ids=["unset", "C", "POSIX"])
def test_a_session_does_not_inherit_the_locale_that_python_sets(daemon: Daemon, agent: str, started: str) -> None:
    """PEP 538: it sets LC_CTYPE for itself and all that it starts, where the locale is C."""
    env = {"LC_CTYPE": started} if started else {}
    words = [*PROGRAM, "run", "--socket", daemon.socket, "-s", agent, "--", "echo ${LC_CTYPE-unset}"]
    done = subprocess.run(words, capture_output=True, env=env, check=False)
    assert done.stdout.decode() == f"{started or 'unset'}\n"


def test_what_cannot_be_run_is_refused(daemon: Daemon, agent: str) -> None:
    done = cli(daemon.socket, "run", "-s", agent, "-", stdin=b"echo a\0b")
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"NUL" in done.stderr


def test_no_name_is_refused(daemon: Daemon) -> None:
    unnamed = cli(daemon.socket, "run", "-s", "", "--", "true")
    assert (unnamed.returncode, b"an agent's name is text" in unnamed.stderr) == (125, True)


def from_nowhere(daemon: Daemon, place: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run it in a directory that was removed."""
    script = ["bash", "-c", f'cd {place} && rmdir {place} && "$@"', "bash", *PROGRAM, *words]
    env = environment(daemon.socket, {})
    return subprocess.run(script, capture_output=True, env=env, timeout=PATIENCE, check=False)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "was removed: change to another one, or name one with cwd= or --cwd"),
        (["--cwd", "there"], "was removed, and 'there' is relative to it"),
    ],
)
def test_no_directory_is_refused(daemon: Daemon, place: Path, options: list[str], why: str) -> None:
    done = from_nowhere(daemon, place, "run", "-s", "x", *options, "--", "true")
    assert (done.returncode, done.stderr.decode()) == (125, f"shellsession: the directory that this runs in {why}\n")


def test_a_session_that_is_there_needs_no_directory(daemon: Daemon, agent: str, place: Path) -> None:
    with opened(agent, daemon):
        done = from_nowhere(daemon, place, "run", "-s", agent, "--", "pwd")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"/\n", b"")
        done = cli(daemon.socket, "run", "-s", agent, "--cwd", "/tmp", "pwd")
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"already has a session, which was opened in /: leave these options out" in done.stderr


def test_an_output_limit_of_the_session_ends_the_command(daemon: Daemon, agent: str) -> None:
    with opened(agent, daemon, limits=Limits(max_output=10, on_overflow="kill")):
        done = cli(daemon.socket, "run", "-s", agent, "--", "yes")
    assert done.returncode == 125
    assert done.stderr == b"shellsession: the output went over the limit; the session's state is kept\n"


def test_a_command_that_was_not_run_is_125(daemon: Daemon, agent: str) -> None:
    with opened(agent, daemon) as sh:
        sh.run("true")
        assert sh.pid is not None
        os.kill(pid := sh.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), "its end")
    (row,) = [one for one in json.loads(cli(daemon.socket, "ls", "--json").stdout) if one["agent"] == agent]
    assert (row["state"], row["pid"]) == ("new", None)
    done = cli(daemon.socket, "run", "-s", agent, "--", "touch /never")
    assert done.returncode == 125
    assert b"which was not run" in done.stderr
    (_, entry) = wait_until(lambda: len(logged := daemon.logged(agent)) == 2 and logged, "the log")  # type: ignore[misc]
    assert entry["ran"] is False
    shown = cli(daemon.socket, "log", "-s", agent, "--audit", str(daemon.audit)).stdout.decode()
    assert "not run" in shown.splitlines()[-1]


def test_the_terminal_and_our_stdin_are_not_both_the_commands(daemon: Daemon, agent: str) -> None:
    assert cli(daemon.socket, "run", "-i", "--stdin", "-s", agent, "--", "cat").returncode == 125


def test_words_reach_the_command_as_they_are(daemon: Daemon, agent: str) -> None:
    words = [b"a b", b"it's", b"$HOME", b"*", b"", b"--", b"-x", "é".encode(), b"\xff", b"new\nline"]
    done = cli(daemon.socket, "run", "-s", agent, "--", "printf", "%s|", *words)
    assert done.stdout == b"".join(word + b"|" for word in words)


def test_options_end_at_the_first_word_of_the_command(daemon: Daemon, agent: str) -> None:
    done = cli(daemon.socket, "run", "-s", agent, "printf", "%s|", "-s", "--json", "--", "--help")
    assert done.stdout == b"-s|--json|--|--help|"


def test_one_word_is_a_script(daemon: Daemon, agent: str) -> None:
    done = cli(daemon.socket, "run", "-s", agent, "--", "a='x y'; for w in 1 2; do echo $w $a; done | tac")
    assert done.stdout == b"2 x y\n1 x y\n"


@pytest.mark.parametrize("words", [[], ["-"], ["--"], ["--", "-"]])
def test_a_script_from_stdin(daemon: Daemon, agent: str, words: list[str]) -> None:
    done = cli(daemon.socket, "run", "-s", agent, *words, stdin=b"echo one\nfalse\necho $?\n(exit 4)\n")
    assert (done.stdout, done.stderr, done.returncode) == (b"one\n1\n", b"", 4)


def test_stdin_for_the_command(daemon: Daemon, agent: str) -> None:
    assert cli(daemon.socket, "run", "-s", agent, "--stdin", "--", "cat", stdin=ALL_BYTES).stdout == ALL_BYTES
    assert cli(daemon.socket, "run", "-s", agent, "--", "cat", stdin=b"not for it").stdout == b""
    both = cli(daemon.socket, "run", "-s", agent, "--stdin", "-", stdin=b"cat")
    assert (both.returncode, both.stdout) == (125, b"")
    assert b"stdin cannot be both" in both.stderr


@pytest.mark.parametrize("words", [["-"], ["--stdin", "--", "touch ran"]], ids=["script", "stdin"])
def test_stdin_without_end_is_refused(daemon: Daemon, agent: str, place: Path, words: list[str]) -> None:
    with open("/dev/zero", "rb") as endless:
        done = subprocess.run(
            ["prlimit", f"--as={2 << 30}", *PROGRAM, "run", "-s", agent, *words],
            stdin=endless,
            capture_output=True,
            env=environment(daemon.socket, {}),
            cwd=place,
            check=False,
            timeout=PATIENCE,
        )
    assert (done.returncode, done.stdout) == (125, b"")
    assert re.search(rb"^shellsession: stdin holds more than \d+ bytes, and nothing was run: put ", done.stderr)
    assert os.listdir(place) == []


def test_a_script_comes_whole_or_not_at_all(daemon: Daemon, agent: str) -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    with running(daemon.socket, "run", "-s", agent, "-", stdin=read) as process, open(read, "rb") as unread:
        with open(write, "wb", buffering=0) as script:
            script.write(b"echo one\n")
            wait_until(lambda: not select.select([unread], [], [], 0)[0], "its first half to be read")
            script.write(b"echo two\n")
        assert process.stdout is not None
        assert process.stdout.read() == b"one\ntwo\n"
        assert finish(process) == (0, b"")


def test_json_has_every_field_of_the_result(daemon: Daemon, agent: str) -> None:
    done = cli(daemon.socket, "run", "-s", agent, "--json", "--", r"printf 'a\xff\n'; echo err >&2; cd /tmp; (exit 3)")
    told = json.loads(done.stdout)
    assert set(told) == {field.name.removesuffix("_bytes") for field in fields(Result)} | {
        "still_running",
        "runs_on",
        "stdout_base64",
    }
    assert (told["stdout"], told["stderr"], told["exit_code"], told["cwd"]) == ("a\ufffd\n", "err\n", 3, "/tmp")
    assert (told["outcome"], told["state_kept"], told["killed"]) == ("exited", True, [])
    assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (3, b"", 1)


def test_json_has_the_exact_bytes_of_what_is_no_text(daemon: Daemon, agent: str) -> None:
    told = json.loads(cli(daemon.socket, "run", "-s", agent, "--json", "--", r"printf 'a\xff'; echo ü >&2").stdout)
    assert base64.b64decode(told["stdout_base64"]) == b"a\xff"
    assert (told["stdout"], told["stderr"], "stderr_base64" in told) == ("a\ufffd", "ü\n", False)


def test_json_is_json_to_strict_readers(daemon: Daemon, agent: str, place: Path) -> None:
    odd = os.fsdecode(os.fsencode(place) + b"/b\xff\xf0\x9f\x92\x80")
    os.mkdir(odd)
    with connect(agent, daemon.socket, False, cwd=odd) as session:
        session.open()
        (told,) = json.loads(cli(daemon.socket, "ls", "--json").stdout.decode("ascii"))
    assert told["cwd"] == f"{place}/b\ufffd\N{SKULL}"


def test_json_says_a_timeout_itself(daemon: Daemon, agent: str) -> None:
    for limit in ("0.2", "10"):  # the second one for a machine that has printed nothing by then
        done = cli(daemon.socket, "run", "-s", agent, "--json", "--timeout", limit, "--", "echo part; sleep 99")
        if (told := json.loads(done.stdout))["stdout"]:
            break
    assert (told["outcome"], told["stdout"], done.returncode, done.stderr) == ("timed_out", "part\n", 124, b"")


def test_bytes_are_bytes_in_any_locale(tmp_path: Path) -> None:
    made = ["localedef", "-i", "en_US", "-f", "ISO-8859-1", str(tmp_path / "en_US.ISO-8859-1")]
    if shutil.which("localedef") is None or subprocess.run(made, capture_output=True, check=False).returncode:
        pytest.skip("no other locale can be made here")
    latin = {"LOCPATH": str(tmp_path), "LC_ALL": "en_US.ISO-8859-1", "V": "\udce9", "XDG_STATE_HOME": str(tmp_path)}
    socket, place = str(tmp_path / "run" / "socket"), os.fsencode(tmp_path) + b"/\xc3\xa9\xe9"
    os.mkdir(place)
    try:
        command = b"printf '\xe9\xc3\xa9|%s|%s' $V ${PWD##*/}"
        done = subprocess.run(
            [*PROGRAM, "run", "--", command],
            capture_output=True,
            env=environment(socket, latin),
            cwd=place,
            check=False,
        )
        assert done.stdout == b"\xe9\xc3\xa9|\xe9|\xc3\xa9\xe9", done.stderr
    finally:
        cli(socket, "stop")


@pytest.mark.parametrize(
    ("options", "command", "stdout"),
    [
        ([], "[ -t 1 ] && echo terminal || echo pipe", b"pipe\n"),
        (["--tty"], "[ -t 1 ] && echo terminal || echo pipe", b"terminal\n"),
        (["--merge-stderr"], "echo one; echo two >&2; echo three", b"one\ntwo\nthree\n"),
        (["--cwd", "/usr"], "pwd", b"/usr\n"),
        (["-C", "usr", "--env", "A=1=2", "--env", "B="], "pwd; printenv A B", b"/usr\n1=2\n\n"),
        ([], "pwd", b"/\n"),
    ],
)
def test_options(daemon: Daemon, agent: str, options: list[str], command: str, stdout: bytes) -> None:
    assert cli(daemon.socket, "run", "-s", agent, *options, "--", command).stdout == stdout


def test_state_stays_from_process_to_process_unless_isolated(daemon: Daemon, agent: str) -> None:
    cli(daemon.socket, "run", "-s", agent, "--", "X=kept; cd /tmp")
    cli(daemon.socket, "run", "-s", agent, "--isolated", "--", "X=lost; cd /")
    assert cli(daemon.socket, "run", "-s", agent, "--", "echo $X $PWD").stdout == b"kept /tmp\n"


def test_whose_session_it_is(daemon: Daemon, agent: str) -> None:
    cli(daemon.socket, "run", "-s", agent, "--", "WHO=named")
    cli(daemon.socket, "run", "--", "WHO=default")
    named = {"SHELLSESSION_AGENT": agent}
    assert cli(daemon.socket, "run", "--", "echo $WHO", env=named).stdout == b"named\n"
    assert cli(daemon.socket, "run", "-s", "default", "--", "echo $WHO", env=named).stdout == b"default\n"
    elsewhere = cli("/no/such/socket", "run", "--socket", daemon.socket, "-s", agent, "--", "echo $WHO")
    assert elsewhere.stdout == b"named\n"


def test_key_of_a_command_that_was_handed_back_prints_all_of_its_output(
    daemon: Daemon, agent: str, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words = ["run", "-s", agent, "--idempotency-key", "k", "--on-timeout", "yield", "--timeout"]
    command = f"echo first; cat {fifo}; head -c 5000000 /dev/zero"
    assert cli(daemon.socket, *words, "0.2", "--", command).returncode == 124
    with running(daemon.socket, *words, str(PATIENCE), "--", command) as process:
        assert line(process) == b"first\n"
        fifo.write_bytes(b"go\n")
        rest, said = process.communicate(timeout=PATIENCE)
    assert (rest, process.returncode) == (b"go\n" + bytes(5_000_000), 0)
    assert b"missing" not in said
