"""The cases of CASES.md, which break other agent shells: each as calls of one session, and their expected results.

Not here: 81's "restart and command in one call" and the shortened views of 75 and 76 (contracts); 87 (a memory limit:
policy and sandbox), 89 (secrets: policy), 90 (the deny list: policy). Cases that need more than a table are in
test_cases.py.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import Final

from bashes import SYNTAX_ERROR
from system import PYTHON


@dataclass(frozen=True, slots=True)
class Call:
    """One command, its exact output (a pattern where bash versions differ), and its status."""

    text: str
    stdout: str | re.Pattern[str] = ""
    stderr: str | re.Pattern[str] = ""
    code: int = 0
    outcome: str = "exited"


@dataclass(frozen=True, slots=True)
class Case:
    """Calls of one session, in order."""

    name: str
    calls: tuple[Call, ...]

    def __str__(self) -> str:
        return self.name


def _case(name: str, *calls: Call) -> Case:
    return Case(name, calls)


def _one(name: str, text: str, stdout: str = "", stderr: str | re.Pattern[str] = "", code: int = 0) -> Case:
    """One call. After it the session must work as before."""
    return Case(name, (Call("kept=1"), Call(text, stdout, stderr, code), Call("echo $? [$kept]", f"{code} [1]\n")))


def _heredoc(lines: int) -> Case:
    body = "".join(f"line {number}\n" for number in range(lines))
    return _case(f"17 heredoc of {lines} lines", Call(f"cat <<'EOF' | wc -l\n{body}EOF", f"{lines}\n"))


def _long_line(length: int) -> Case:
    return _case(f"21 a line of {length} characters", Call(f"echo {'x' * length} | wc -c", f"{length + 1}\n"))


def _broken(number: int, text: str, said: str) -> Case:
    status = SYNTAX_ERROR
    calls = (Call("kept=1"), Call(text, "", re.compile(said), status), Call("echo $? $kept", f"{status} 1\n"))
    return Case(f"{number} {text!r}", (*calls, Call("true")))


def _ends(name: str, text: str, code: int, stderr: str | re.Pattern[str] = "") -> Case:
    """The call ends the shell and returns its true status. The next call gets a fresh shell."""
    calls = (Call("kept=1"), Call(text, "", stderr, code, "shell_exited"), Call("echo $? [$kept]", "0 []\n"))
    return Case(name, calls)


_BAD = r"\Abash: .*(syntax error|unexpected)[^/]*\n\Z"  # without a path of ours
_NOT_FOUND = re.compile(r"\Abash: doesnotexist: command not found\n\Z")

CASES: Final = (
    # Basics
    _one("1 echo of nothing", "echo ''", "\n"),
    _one("2 a newline first", r"printf '\nx'", "\nx"),
    _one("2 newlines around", r"printf '\n\nx\n\n\n'", "\n\nx\n\n\n"),
    _one("2 blanks first", "printf '  x'", "  x"),
    _one("3 no newline at the end", "printf hello", "hello"),
    *(
        _case(f"4 nothing: {blank!r}", Call("kept=1"), Call(blank), Call("echo $kept", "1\n"))
        for blank in ("", "\n", "  \n", "# only a comment")
    ),
    _one("5 not found", "doesnotexist", "", _NOT_FOUND, 127),
    _one("6 false and", "false && true", code=1),
    _one("6 false or", "false || true"),
    _one("6 subshell", "(exit 7)", code=7),
    _one("6 function", "f(){ return 5;}; f", code=5),
    _one("7 both streams", "echo out; echo err >&2", "out\n", "err\n"),
    _case("10 directory", Call("cd /tmp"), Call("pwd", "/tmp\n"), Call("cd -", re.compile("/.*\n"))),
    _case("10 export", Call("export V=1"), Call("sh -c 'echo $V'", "1\n")),
    _case("10 function", Call("f() { echo f; }"), Call("f", "f\n")),
    _case("10 alias", Call("alias hi='echo hello'"), Call("hi you", "hello you\n")),
    _case("11 the last status", Call("false", code=1), Call("echo $?", "1\n"), Call("echo $?", "0\n")),
    _one("13 beyond ascii", "echo 'héllo 世界 🎉'", "héllo 世界 🎉\n"),
    # Multi-line
    _one("14 two lines", "echo a\necho b", "a\nb\n"),
    _one("14 blank lines between", "echo a\n\n\necho b\n\n", "a\nb\n"),
    _one("14 blank lines first", "\n\n  \necho a", "a\n"),
    _one("15 heredoc", "v=1; cat <<EOF\na $v\n  b\nEOF", "a 1\n  b\n"),
    _one("15 quoted heredoc", "cat <<'EOF'\na $v `x`\nEOF", "a $v `x`\n"),
    _one("15 heredoc without tabs", "cat <<-EOF\n\t\ta\n\tEOF\necho after", "a\nafter\n"),
    _one("15 two heredocs", "cat <<A; cat <<B\na\nA\nb\nB", "a\nb\n"),
    _one("15 heredoc and another command", "cat <<E\na\nE\necho b", "a\nb\n"),
    *(_heredoc(lines) for lines in (20, 21, 60, 300, 5000)),
    _one("18 a comment after", "echo hi # comment", "hi\n"),
    _one("20 double brackets and an array", "[[ a == a ]] && A=(1 2) && echo ${A[1]}", "2\n"),
    _one("20 an empty array", "A=(); false", code=1),
    *(_long_line(length) for length in (5_000, 100_000, 200_000, 1_000_000)),
    _one("22 a tab inside quotes", "printf '%s' 'a\tb'", "a\tb"),
    _one("22 exclamation marks", 'echo A!B "C!D" !!', "A!B C!D !!\n"),
    _one("22 backslashes", r"printf '%s\n' \\ '\' \a 'a\b'", "\\\n\\\na\na\\b\n"),
    _one("22 backticks and ansi quotes", r"echo `echo t` $'a\tb\'c'", "t a\tb'c\n"),
    # Syntax errors
    _broken(23, 'echo "abc', _BAD),
    _broken(24, "echo 'abc", _BAD),
    _broken(28, "if then", _BAD),
    _broken(29, ")", _BAD),
    _broken(31, "for", _BAD),
    _case(
        "26 unfinished heredoc",
        Call("cat <<EOF\nabc", "abc\n", re.compile(r"bash: warning: here-document.*wanted `EOF'\)\n")),
        Call("echo fine", "fine\n"),
    ),
    # Shell-state hazards
    _ends("33 exit", "exit 3", 3, "exit\n"),
    _ends("34 exec true", "exec true", 0),
    _ends("34 exec bash", "exec bash", 0),
    _ends("35 errexit", "trap : ERR; set -e; false", 1),
    _case(
        "36 nounset",
        Call("set -u; echo $NOPE; echo no", "", "bash: NOPE: unbound variable\n", 1),
        Call("set +u; echo [$NOPE]", "[]\n"),
    ),
    _ends("38 killed", "kill -9 $$", 137),
    _case(
        "40 xtrace",
        Call("set -x; echo hi", "hi\n", re.compile(r"\A\++ echo hi\n\Z")),
        Call("echo ho", "ho\n", re.compile(r"\A\++ echo ho\n\Z")),
        Call("set +x", "", re.compile(r"\A\++ set \+x\n\Z")),
        Call("echo he", "he\n"),
    ),
    _case("40 verbose", Call("set -v"), Call("echo a", "a\n", "echo a\n"), Call("set +v", "", "set +v\n"), Call(":")),
    _one("41 noexec", "set -n; echo still", "still\n"),
    _case(
        "42 prompts",
        Call("PS1='$ '; PS2='? '; PROMPT_COMMAND='echo PC'"),
        Call("echo a\necho b", "a\nb\n"),
        Call("echo c", "c\n"),
    ),
    _case(
        "42 a virtual environment",
        Call(f"{PYTHON} -m venv --without-pip v && . v/bin/activate"),
        Call("command -v python | grep -c /v/bin/python", "1\n"),
        Call("deactivate; echo [$VIRTUAL_ENV]", "[]\n"),
    ),
    _case("43 no PATH", Call("PATH="), Call("echo a; cd /; pwd", "a\n/\n"), Call("/bin/echo b", "b\n")),
    _case("44 functions", Call("echo(){ :; }; printf(){ :; }"), Call("echo x; unset -f echo; echo y", "y\n")),
    _case("44 alias", Call("alias echo=false"), Call("echo x", code=1), Call("unalias echo; cd /; pwd", "/\n")),
    _case("44 disabled builtin", Call("enable -n echo"), Call("type -t echo", "file\n"), Call("echo x", "x\n")),
    _case("45 exec to nowhere", Call("exec >/dev/null; echo no"), Call("echo yes", "yes\n")),
    _case("45 exec closes", Call("exec 1>&-"), Call("echo yes", "yes\n")),
    _case("45 exec of stderr", Call("exec 2>/dev/null; nope", code=127), Call("echo yes >&2", "", "yes\n")),
    *(
        _case(f"47 {text}", Call(text), Call(r"printf 'a\nb\n'; cat", "a\nb\n"))
        for text in (*(f"stty -F /dev/tty {mode}" for mode in ("echo", "raw", "sane")), "reset </dev/tty 2>/dev/null")
    ),
    _case(
        "49 no directory", Call("mkdir d; cd d; rmdir ../d"), Call("echo still", "still\n"), Call("cd /; pwd", "/\n")
    ),
    # stdin and interactivity
    _one("51 cat", "cat"),
    _one("51 read", "read x", code=1),
    _one("51 input()", f"{PYTHON} -c 'input()' 2>&1 | tail -1", "EOFError: EOF when reading a line\n"),
    _one("52 a pipe", "echo hi | cat", "hi\n"),
    _one("52 a broken pipe", "yes | head -1", "y\n"),
    # Output
    _one("75 carriage returns", r"printf '1%%\r2%%\r3%%\n'", "1%\r2%\r3%\n"),
    _one("76 colours", r"printf '\33[31mr\33[0m'", "\33[31mr\33[0m"),
    _one("76 links", r"printf '\33]8;;x\33\\l\33]8;;\33\\'", "\33]8;;x\33\\l\33]8;;\33\\"),
)

# 56: programs that use a pager on a terminal, where they are installed: the command, and what it shows.
PAGERS: Final = tuple(
    (program, command, shown)
    for program, command, shown in (
        ("git", "git init -q; git -c user.name=n -c user.email=e commit -q --allow-empty -m first; git log", "first"),
        ("man", "man man 2>&1", ""),
        ("less", "seq 500 >f; less f", ""),
        ("less", "seq 500 | less", ""),
    )
    if shutil.which(program)
)
