"""Nothing of ours is visible inside the shell: no line, no name and no mark."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from marks import NONCE, answers, no_word_of_ours
from reference import ENVIRONMENT, typed

from shellsession import Session

NewSession = Callable[..., Session]
# In a clone under our own name PATH, OLDPWD and others may hold that name.
NAMELESS = ENVIRONMENT | {"PATH": os.defpath}


@pytest.mark.parametrize("padding", [0, 700, 1100, 1500, 3000])
def test_the_shell_cannot_read_our_lines_from_its_descriptors(padding: int, sh: Session, place: Path) -> None:
    steal = 'while IFS= read -r -t 0.01 -u $fd x; do echo "$fd: $x" >>stolen; done'
    sh.run(f"for fd in {{3..40}}; do {steal}; done 2>/dev/null; : {'x' * padding}; (exit 5)", timeout=3)
    stolen = place / "stolen"
    if stolen.exists():
        no_word_of_ours(stolen.read_bytes())
    answers(sh)


SPIES = {
    "debug trap": "trap 'echo \"$BASH_COMMAND\" >>log' DEBUG",
    "debug trap in functions": "set -T; trap 'echo \"$BASH_COMMAND ${FUNCNAME[*]} $(caller)\" >>log' DEBUG",
    "debug trap with extdebug": "shopt -s extdebug; trap 'echo \"$BASH_COMMAND ${BASH_ARGV[*]}\" >>log; true' DEBUG",
    "error trap": "trap 'echo \"$BASH_COMMAND $LINENO ${FUNCNAME[*]}\" >>log' ERR; set -E",
    "return trap": "trap 'echo \"$BASH_COMMAND ${FUNCNAME[*]}\" >>log' RETURN; set -T",
    "exit trap": "trap 'echo \"$BASH_COMMAND $_\" >>log' EXIT",
    "xtrace to a file": "exec 7>>log; BASH_XTRACEFD=7; set -x",
    "xtrace with a prompt": "exec 7>>log; BASH_XTRACEFD=7; PS4='+$BASH_COMMAND $_ ${FUNCNAME[*]}:'; set -x",
    "verbose": "exec 2>>log; set -v",
    "prompt command": "PROMPT_COMMAND='echo \"$BASH_COMMAND $_\" >>log'",
    "prompts": "shopt -s promptvars; PS0='$(echo \"$BASH_COMMAND\" >>log)'; PS1=$PS0 PS2=$PS0",
    "signals": "trap 'echo \"$BASH_COMMAND $_ ${!s*}\" >>log' USR1; (for i in {1..300}; do kill -USR1 $$; done) &",
    "not found": 'command_not_found_handle() { echo "$* ${FUNCNAME[*]}" >>log; return 127; }',
}
SHADOWS = ("eval", "builtin", "command", "declare", "unset", "return", "printf", "exec", "set", "trap", ":", "local")
# What is run under their eyes: successes, failures, and what calls them.
WATCHED = ("/bin/true", "/bin/false", "/bin/echo hi", "(exit 3)", "kill -USR1 $$", "nosuchcommand", "x=1", "/bin/true")


@pytest.mark.parametrize(
    "spy",
    [*SPIES.values(), *(f'{name}() {{ echo "$* ${{FUNCNAME[*]}}" >>log; }}' for name in SHADOWS)],
    ids=[*SPIES, *(f"function {name}" for name in SHADOWS)],
)
def test_code_inside_the_shell_sees_no_nonce(spy: str, sh: Session, place: Path) -> None:
    (place / "log").touch()
    sh.run(spy)
    for text in WATCHED:
        assert sh.run(text, timeout=10).outcome in ("exited", "shell_exited")
    sh.restart()
    log = (place / "log").read_bytes()
    assert not NONCE.search(log), log


@pytest.mark.parametrize("before", ["true", "false"])
@pytest.mark.parametrize(
    "look",
    [
        "declare -p",
        "declare -f; declare -F",
        "set",
        "env",
        "compgen -v; compgen -A function; compgen -A export",
        "jobs -l; alias; trap -p; hash",
        'echo "$_" "$BASH_COMMAND" "${FUNCNAME[*]}" "$BASH_EXECUTION_STRING" "$PS1$PS2$PS4"',
        "caller; echo ${BASH_SOURCE[*]} ${BASH_ARGV[*]}",
        "tr '\\0' '\\n' </proc/$$/environ",
        "complete -p; bind -p 2>/dev/null; enable -p; ulimit -a; dirs",
    ],
)
def test_nothing_of_ours_is_in_what_the_shell_tells_of_itself(look: str, before: str, new_session: NewSession) -> None:
    sh = new_session(env=NAMELESS, agent_env=False)
    sh.run(before)
    said = sh.run(look)
    assert said.outcome == "exited"
    assert not NONCE.search(said.stdout_bytes + said.stderr_bytes), said
    assert b"shellsession" not in said.stdout_bytes + said.stderr_bytes, said


@pytest.mark.parametrize(
    "question", ["declare -p", "declare -f", "env", "alias", "jobs", "trap", "set", "shopt -p", "hash"]
)
def test_nothing_of_ours_is_to_be_seen(new_session: NewSession, question: str) -> None:
    """Save the word in `$_`, which need not be the user's between calls."""
    sh = new_session(env=NAMELESS)
    sh.run("(exit 3)")
    result = sh.run(question)
    said = (result.stdout + result.stderr).replace('_="builtin"', "").replace("\n_=builtin\n", "\n")
    for ours in ("NONCE", "shellsession", "builtin", "PIPESTATUS[0]", "<_"):
        assert ours not in said
    assert not re.search("[0-9a-f]{20}", said)


def test_no_name_is_ours(new_session: NewSession, place: Path) -> None:
    look = "compgen -v; compgen -A function; alias; trap -p; declare -F"
    sh = new_session(env=ENVIRONMENT, agent_env=False)
    sh.run("false")
    ours = set(sh.run(look).stdout.split())
    bash = set(typed(look.encode(), place, on_terminal=True).stdout.decode().split())
    assert ours - bash <= {"COLUMNS", "LINES"}  # the reference's terminal has no size
    assert bash - ours <= {"HISTFILE", "MAILCHECK", "PIPESTATUS"}  # unset at the start; set by what came before


def test_the_history_holds_the_lines_that_we_type(sh: Session) -> None:
    sh.run("set -o history; history -c")
    assert sh.run("echo first").stdout == "first\n"
    listed = sh.run("history")
    assert (listed.exit_code, listed.stderr) == (0, "")
    assert "eval -- $'echo first'" in listed.stdout


@pytest.mark.parametrize("option", ["-x", "-v", "-xv"])
def test_tracing_shows_the_users_words_only(option: str, sh: Session) -> None:
    sh.run(f"set {option}")
    for _ in range(2):
        sh.run("false")
        said = sh.run("echo hi; /bin/true a")
        lines = [line.lstrip("+ ") for line in said.stderr.splitlines()]
        assert set(lines) <= {"echo hi", "/bin/true a", "echo hi; /bin/true a"}
        assert said.stdout == "hi\n"


def test_bash_does_not_grow_by_what_sets_the_status_again(sh: Session) -> None:
    """It keeps each name that a function ever had: 1.3 KB for each command behind one that failed."""

    def resident() -> int:
        return int(Path(f"/proc/{sh.pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")

    for _ in range(100):
        sh.run("false")
    before = resident()
    for _ in range(1500):
        sh.run("false")
    assert resident() - before < 1 << 20
