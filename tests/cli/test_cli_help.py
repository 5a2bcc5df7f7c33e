"""Help of the command line, what a call imports, and how it shows text."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys

import pytest
from commands import cli, environment, finish, running
from daemons import Daemon
from system import PATIENCE

from shellsession import connect
from shellsession.cli import arguments
from shellsession.cli.arguments import VERBS, escaped, parser_of, span
from shellsession.cli.main import main
from shellsession.models import VERSION

# -- help


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_the_bare_word_prints_help(words: list[str]) -> None:
    done = cli("", *words)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [verb for verb in VERBS if f"\n  {verb} " not in done.stdout.decode()] == []
    assert max(map(len, done.stdout.decode().splitlines())) <= 80


def test_help_of_a_verb_is_the_verbs_own() -> None:
    assert cli("", "help", "run").stdout == cli("", "run", "--help").stdout
    assert cli("", "help", "nothing").returncode == 125


def test_help_in_colours_says_the_same() -> None:
    """Python 3.14 has colours for it, and older ones have none."""
    plain, painted = (cli("", "run", "--help", env=env).stdout for env in ({"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}))
    assert b"\x1b" not in plain
    assert (b"\x1b" in painted) is (sys.version_info >= (3, 14))
    assert re.sub(rb"\x1b\[[0-9;]*m", b"", painted) == plain


@pytest.mark.parametrize(("word", "meant"), [("rn", "did you mean run? "), ("ruN", "did you mean run? "), ("xyz", "")])
def test_an_unknown_verb_suggests_a_similar_one(word: str, meant: str) -> None:
    said = f"shellsession: there is no verb '{word}': {meant}`shellsession --help` lists them\n"
    assert cli("", word).stderr.decode() == said


def test_the_version() -> None:
    assert cli("", "--version").stdout.decode() == f"shellsession {VERSION}\n"


@pytest.mark.parametrize(
    ("words", "last"),
    [([], b"`shellsession --help` lists them\n"), (["ls"], rb": unrecognized arguments: \x1b[2Jfrob" + b"\n")],
)
def test_words_that_are_unknown_are_shown_and_nothing_more(words: list[str], last: bytes) -> None:
    done = cli("", *words, "\x1b[2Jfrob")
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"\x1b" not in done.stderr
    assert done.stderr.endswith(last)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("log a1", "unrecognized arguments: a1: to name an agent, write -s a1"),
        ("stop a1", "unrecognized arguments: a1: it ends the daemon; `shellsession kill a1` closes one session"),
        ("ls a1", "unrecognized arguments: a1"),
        ("run --tiemout 5 true", "unrecognized arguments: --tiemout: did you mean --timeout?"),
        ("run --tiemout=5 true", "unrecognized arguments: --tiemout=5: did you mean --timeout?"),
        ("run --xyzzy true", "unrecognized arguments: --xyzzy"),
        (
            "attach a1 --via x",
            "unrecognized arguments: --via x: `shellsession attach` is for the daemon of this machine, so run it there",
        ),
        ("mcp --timeout x", "argument --timeout: 'x' is not a number"),
        ("-s a1 run true", "the verb comes before '-s': `shellsession VERB [OPTIONS]`"),
    ],
)
def test_a_wrong_word_gets_advice(line: str, advice: str) -> None:
    assert cli("", *line.split()).stderr.decode().endswith(f"shellsession: {advice}\n")


@pytest.mark.parametrize("verb", VERBS)
def test_each_example_of_a_help_is_right(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: shellsession {verb}")
    lines = [line.strip() for line in shown.partition("examples:\n")[2].splitlines()]
    examples = [line for line in lines if not line.startswith("#")]
    assert len(examples) >= 2
    for example in examples:
        words = list(shlex.shlex(example, posix=True, punctuation_chars="<>|&;"))
        command = next((words[:at] for at, word in enumerate(words) if word[0] in "<>|&;"), words)
        program, named, *rest = shlex.split(example)[: len(command)]
        assert (program, named) == ("shellsession", verb)
        parser_of(verb).parse_args(rest)


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("wait", "handed back because of --idle-timeout is handed back again"),
        ("send", "waits until they leave; --timeout starts only then"),
        ("run", "together 1 MiB at most unless"),
        ("run", "stdout_base64 and stderr_base64 (exact bytes) if the text is not exact"),
        ("attach", "one is opened (not with --read-only), and closed when you leave without a command."),
        ("attach", "A second person who attaches sees what runs, and is next when you leave."),
        ("attach", "Programs see the TERM of the session"),
        ("attach", "keeps commands unmasked, secrets included, in attach_history"),
    ],
)
def test_help_says_what_else_would_surprise(verb: str, said: str) -> None:
    assert said in " ".join(parser_of(verb).format_help().split())


@pytest.mark.parametrize("words", [["--help"], ["ls"]])
def test_output_without_a_reader_ends_quietly(daemon: Daemon, words: list[str]) -> None:
    connect("unread", daemon.socket, False).disconnect()
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with running(daemon.socket, *words, stdout=writer) as process:
            assert finish(process) == (-signal.SIGPIPE, b"")
    finally:
        os.close(writer)


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_help_that_cannot_be_written_is_no_success(words: list[str], unbuffered: str) -> None:
    with open("/dev/full", "wb") as full, running("", *words, stdout=full, env={"PYTHONUNBUFFERED": unbuffered}) as one:
        status, said = finish(one)
    assert (status, said.startswith(b"shellsession: No space left on device: check ")) == (125, True)


LOADING = """
import os, runpy, signal, sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupted())
runpy.run_module("shellsession", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["typing", "shellsession.cli.main", "argparse"])
def test_ctrl_c_while_it_is_loaded_is_quiet(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", LOADING, module], capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


# -- what a call loads

HEAVY = {
    "asyncio",
    "pydantic",
    "pexpect",
    "ptyprocess",
    "subprocess",
    "logging",
    "shutil",
    "shellsession.engine.bash.shell",
}


@pytest.mark.parametrize(
    "words", ["run --json -s light -- true", "ls", "status", "jobs light", "restart light", "kill light"]
)
def test_a_client_loads_nothing_heavy(daemon: Daemon, words: str) -> None:
    connect("light", daemon.socket, False).disconnect()
    loaded = modules(daemon.socket, words.split())
    assert {"shellsession.daemon.client.session", "_socket", "_json"} <= loaded  # or the next line would say nothing
    assert loaded & {*HEAVY, "dataclasses", "inspect"} == set()  # Python 3.14's argparse has them for its colours


def test_a_plain_run_loads_next_to_nothing(daemon: Daemon) -> None:
    """What each of these takes to load is a tenth to a half of Python's own start."""
    dear = {"argparse", "collections", "contextlib", "enum", "json", "re", "signal", "socket", "threading", "typing"}
    connect("light", daemon.socket, False).disconnect()
    loaded = modules(daemon.socket, ["run", "-s", "light", "--timeout", "60", "--", "echo", "two words"])
    assert "shellsession.daemon.client.exchange" in loaded
    assert loaded & {*HEAVY, *dear, "shellsession.daemon.client.session", "shellsession.models"} == set()


@pytest.mark.parametrize(("words", "used"), [("log --audit /dev/null", "json"), ("--help", "argparse")])
def test_verbs_without_a_daemon_load_no_client(words: str, used: str) -> None:
    loaded = modules("", words.split())
    assert used in loaded
    assert loaded & {*HEAVY, "socket", "_socket", "shellsession.daemon.client.session"} == set()
    assert ("json" in loaded) is (used == "json")


def modules(path: str, words: list[str]) -> set[str]:
    """What is loaded at the end of a call."""
    program = (
        "import sys; from shellsession.cli.main import main; status = main(sys.argv[1:]);"
        " print(*sys.modules, sep='\\n', file=sys.stderr); sys.exit(status)"
    )
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, env=environment(path, {}), timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.decode().splitlines())


# -- small things


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢 😀", "plain é 漢 😀"),
        ("a\tb\x7f\x00", r"a\tb\x7f\x00"),
        ("\u202e\u2028\udcff", r"\u202e\u2028\udcff"),
    ],
)
def test_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


@pytest.mark.parametrize(
    ("most", "shown"),
    [
        (
            40,
            [
                "AGENT     PID    CWD       COMMAND",
                "longlon…  12345  /home/x…  make make ma…",
                "日本      7      /         日日日日日日…",
                "Zoe\u0308       1      /         ls",
            ],
        ),
        (12, ["AGENT     P…", "longlon…  1…", "日本      7…", "Zoe\u0308       1…"]),
    ],
)
def test_a_table_fits_its_terminal(monkeypatch: pytest.MonkeyPatch, most: int, shown: list[str]) -> None:
    """The last column keeps a third of it; wide characters take two columns, accents none."""
    monkeypatch.setattr(arguments, "width", lambda: most)
    rows = [("long" * 64, 12345, f"/home/{'x' * 60}", "make " * 40), ("日本", 7, "/", "日" * 100)]
    assert arguments.table(("AGENT", "PID", "CWD", "COMMAND"), [*rows, ("Zoe\u0308", 1, "/", "ls")]) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "0.0s"), (9.9, "9.9s"), (42, "42s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200_000, "2d")],
)
def test_span(seconds: float, shown: str) -> None:
    assert span(seconds) == shown
