"""What switches line editing on or off ends an interactive bash that has none: our session keeps its shell."""

from __future__ import annotations

import pytest
from system import PATIENCE

from shellsession import Session

WRAPPER = 'strictly() { local kept=$(set +o); set -eu; "$@"; eval "$kept"; }'

# What is run, one after the other, and what the last of it prints.
IDIOMS = [
    (['eval "$(set +o)"; echo kept'], "kept\n"),
    (['old=$(set +o); set -f; eval "$old"; echo *'], "{}\n"),
    (["old=$(set +o); set -f", 'eval "$old"; echo *'], "{}\n"),
    ([WRAPPER, "strictly echo strict; echo $-"], "strict\nhiBs\n"),
    ([f"function {WRAPPER}", "strictly echo strict; echo $-"], "strict\nhiBs\n"),
    (['eval "$(shopt -po)"; echo kept'], "kept\n"),
    (['eval "$(shopt -p -o)"; echo kept'], "kept\n"),
    (["set +o emacs; echo kept"], "kept\n"),
    (["set -o vi; echo kept", "set +o vi; set -o emacs; echo kept"], "kept\n"),
    (["set -eo emacs; set +e; echo kept"], "kept\n"),
    (["shopt -so vi; shopt -uo vi; echo kept"], "kept\n"),
    (["mapfile -t -C 'set +o emacs;:' -c 1 lines <<< one; echo kept"], "kept\n"),
    (['find . -exec true \\;; eval "$(set +o)"; env -i ls | grep -c exec; echo kept'], "0\nkept\n"),
    (["set +o | grep -c noglob; set -e", "set +e; echo kept"], "kept\n"),
    (["set +o >kept", "while read -r line; do $line; done <kept; echo kept"], "kept\n"),
    (["mapfile -t kept < <(set +o)", 'for line in "${kept[@]}"; do $line; done; echo kept'], "kept\n"),
    (['back() { eval "$1"; }', "kept=$(set +o)", 'back "$kept"; echo kept'], "kept\n"),
    (["shopt -po >kept", ". ./kept; echo kept"], "kept\n"),
    (["PS1='venv> '", 'kept=$(set +o); eval "$kept"; echo kept'], "kept\n"),
    (["PS0='zz '; PROMPT_COMMAND='echo prompt'", 'eval "$(set +o)"; echo kept'], "kept\n"),
    (["set -o 'vi'; echo kept", 'set +o "vi"; echo kept'], "kept\n"),
    (["f() { local -; set -f; }; f; echo kept"], "kept\n"),
    (["f() { local x -; set -f; }", "f; echo kept"], "kept\n"),
    (['mode=vi; set -o "$mode"; set +o $mode; echo kept'], "kept\n"),
]


@pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize(("commands", "printed"), IDIOMS, ids=[" / ".join(commands) for commands, _ in IDIOMS])
def test_the_shell_lives_and_keeps_its_state(sh: Session, commands: list[str], printed: str, tty: bool) -> None:
    sh.run("x=5; mkdir inside; cd inside; : >{}")
    for command in commands:
        result = sh.run(command, tty=tty)
        assert (result.outcome, result.stderr, result.state_kept) == ("exited", "", True)
    assert result.stdout == printed
    assert sh.run("echo $x; pwd -P | grep -c inside").stdout == "5\n1\n"


def test_where_no_file_can_be_sourced_texts_are_run_all_the_same(sh: Session) -> None:
    sh.run("kept=$(set +o); enable -n .; enable -n source")
    assert sh.run("echo on; (exit 3)").exit_code == 3
    assert sh.run("echo on").stdout == "on\n"


@pytest.mark.parametrize(
    "text", ["shopt -o pipefail", "shopt -so pipefail", "set -o pipefail", "set +o 'nounset'", "set -o"]
)
def test_what_only_names_other_options_is_run_as_ever(sh: Session, text: str) -> None:
    sh.run(text)
    assert sh.run("return 3").stderr == "bash: return: can only `return' from a function or sourced script\n"


@pytest.mark.parametrize("back", ['eval "$(set +o)"', "while read -r line; do $line; done <kept"])
def test_what_stands_on_stdin_is_never_run(sh: Session, back: str) -> None:
    sh.run("set +o >kept")
    result = sh.run(f'{back}; read line; echo "data: $line"', stdin=b"echo run as code\n")
    assert result.stdout == "data: echo run as code\n"


# What is run in the same shell behind such an idiom, and what comes of it.
BEHIND = [
    ("false; false", "", "", 1),
    ("echo $?", "3\n", "", 0),
    ("set -e; false || echo on; (exit 7) && :; set +e", "on\n", "", 0),
    ("nope", "", "bash: nope: command not found\n", 127),
    ("echo 'two\nlines' \\\n# none", "two\nlines\n", "", 0),
    ("f() { return 4; }; f", "", "", 4),
    ("exec nope; echo on", "on\n", "bash: exec: nope: not found\n", 0),
    ("if :; then exec nope; fi; echo on", "on\n", "bash: exec: nope: not found\n", 0),
    ("true && command exec nope\necho on", "on\n", "bash: exec: nope: not found\n", 0),
    ("alias hi='echo hello'\nhi", "hello\n", "", 0),
    ("(exit 9)", "", "", 9),
    ("cat; echo none", "none\n", "", 0),
    ("trap 'echo trapped' USR1; kill -USR1 $$", "trapped\n", "", 0),
    ("echo \"$(set +o | grep -c .)\" | grep -qx '2[0-9]' && echo options", "options\n", "", 0),
    ("set +e; kill -INT $$; echo on", "", "", 130),
]


@pytest.mark.parametrize(("command", "stdout", "stderr", "status"), BEHIND, ids=[repr(row[0]) for row in BEHIND])
def test_later_commands_are_run_as_ever(sh: Session, command: str, stdout: str, stderr: str, status: int) -> None:
    sh.run(f"{WRAPPER}; (exit 3)")
    result = sh.run(command)
    assert (result.stdout, result.stderr, result.exit_code, result.state_kept) == (stdout, stderr, status, True)
    assert sh.run("declare -F strictly").exit_code == 0


@pytest.mark.parametrize("text", ["sleep 1000 | cat", "while :; do :; done", "while :; do sleep 0.01; done"])
def test_a_time_limit_keeps_it_as_well(sh: Session, text: str) -> None:
    sh.run(WRAPPER)
    result = sh.run(f"{text}; echo on", timeout=0.2)
    assert (result.outcome, result.stdout, result.state_kept) == ("timed_out", "", True)
    assert result.duration < PATIENCE
    assert sh.run("strictly echo strict").stdout == "strict\n"
