"""What one call promises: bash's own bytes and status, and state that lasts from call to call."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shellsession import CommandFailed, InvalidRequest, Limits, Session
from shellsession.models import MAX_COMMAND

pytestmark = pytest.mark.usefixtures("company")

Make = Callable[..., Session]

STATE = {
    "cwd": ("mkdir sub; cd sub", "basename $PWD", "sub\n"),
    "variable": ("X=1", "echo $X", "1\n"),
    "export": ("export X=2", "sh -c 'echo $X'", "2\n"),
    "array": ("a=(1 '2 3')", "echo ${a[1]}", "2 3\n"),
    "associative array": ("declare -A m=([k]=v)", "echo ${m[k]}", "v\n"),
    "function": ("f() { echo in f; }", "f", "in f\n"),
    "alias": ("alias hi='echo aliased'", "hi", "aliased\n"),
    "option": ("set -o pipefail", "false | true; echo $?", "1\n"),
    "shopt": ("shopt -s nullglob", "echo a*", "\n"),
    "positional": ("set -- a 'b c'", "echo $2 $#", "b c 2\n"),
    "umask": ("umask 027", "umask", "0027\n"),
    "trap": ("trap 'echo usr' USR1", "kill -USR1 $$; :", "usr\n"),
    "descriptor": ("exec 7>kept; echo one >&7", "echo two >&7; cat kept", "one\ntwo\n"),
    "one that bash would keep its own at": (
        "exec 10>kept 12>&10; echo one >&10",
        "echo two >&12; cat kept",
        "one\ntwo\n",
    ),
    "one that a function opens": ("f() { exec 10>kept; }", "f; echo in >&10; cat kept", "in\n"),
    "one that only looks like that": (
        "test \"exec('x=1'); print(10>5)\"; : exec; : 11</dev/null",
        "ls /proc/self/fd | wc -l",
        "4\n",
    ),
    "one that was closed again": ("exec 11>kept", "exec 11>&-; echo end", "end\n"),
    "history of directories": ("pushd / >/dev/null", "dirs | tr ' ' '\\n' | head -1", "/\n"),
    "resource limit": ("ulimit -S -c 0", "ulimit -c", "0\n"),
    "last background pid": ("true & echo", "wait $!; echo $?", "0\n"),
    "readonly": ("readonly R=5", "echo $R", "5\n"),
    "completion of half a line": ("X='two\nlines'", 'echo "$X"', "two\nlines\n"),
    "exec of streams ends with its call": ("exec >nowhere 2>&1", "echo back", "back\n"),
    "exec of stdin ends with its call": ("exec <<<typed", "cat; echo end", "end\n"),
}


@pytest.mark.parametrize(("first", "second", "expected"), STATE.values(), ids=STATE)
def test_state_lives_from_call_to_call(sh: Session, first: str, second: str, expected: str) -> None:
    assert sh.run(first).outcome == "exited"
    result = sh.run(second)
    assert (result.stdout, result.stderr, result.outcome, result.state_kept) == (expected, "", "exited", True)


@pytest.mark.sampled
@pytest.mark.parametrize("status", [0, 1, 2, 3, 126, 127, 128, 130, 141, 200, 255])
@pytest.mark.parametrize(
    "blank", ["", "   ", "# only a comment", "\n\t\n"], ids=["empty", "spaces", "comment", "lines"]
)
def test_the_last_status_is_carried_on(sh: Session, status: int, blank: str) -> None:
    assert sh.run(f"(exit {status})").exit_code == status
    assert sh.run("echo $?").stdout == f"{status}\n"
    sh.run(f"(exit {status})")
    nothing = sh.run(blank)
    assert (nothing.exit_code, nothing.stdout, nothing.stderr, nothing.outcome) == (0, "", "", "exited")


def test_a_comment_that_is_none_has_a_status(sh: Session) -> None:
    sh.run("shopt -u interactive_comments")
    assert sh.run("# c").exit_code == 127
    assert sh.run("echo $?").stdout == "127\n"


@pytest.mark.parametrize("hidden", ["builtin() { :; }", "enable -n builtin"])
@pytest.mark.parametrize("long", ["", "\n" + "# long\n" * 300])
def test_the_last_status_is_carried_on_where_builtin_is_hidden(sh: Session, hidden: str, long: str) -> None:
    sh.run(hidden)
    sh.run("(exit 7)")
    assert sh.run(f"echo $?{long}").stdout == "7\n"


@pytest.mark.parametrize("blank", ["", " \t ", "# nothing", "\n", "\n\n# a\n  # b\n"], ids=range(5))
def test_a_command_of_nothing_does_nothing(sh: Session, blank: str) -> None:
    result = sh.run(blank)
    assert (result.stdout_bytes, result.stderr_bytes, result.exit_code, result.outcome) == (b"", b"", 0, "exited")
    assert result.state_kept
    assert result.ok


@pytest.mark.parametrize(
    ("setting", "question", "answer"),
    [
        ("set -u", "echo $-", "u"),
        ("set -f", "echo $-", "f"),
        ("set -v; set -x", "set +vx; echo $-", ""),
        ("set -e", "echo $-; set +e", "e"),
        ("set -o noclobber", "echo $-", "C"),
    ],
    ids=["-u", "-f", "-v and -x", "-e", "-C"],
)
def test_options_are_the_users(sh: Session, setting: str, question: str, answer: str) -> None:
    sh.run(setting)
    flags = sh.run(question).stdout
    assert answer in flags
    assert "v" not in flags
    assert "x" not in flags


def test_traps_are_the_users(sh: Session) -> None:
    before = sh.run("trap").stdout
    assert before == ""
    sh.run("trap 'echo err $?' ERR; trap 'echo int' INT")
    assert sh.run("(exit 4)").stdout == "err 4\n"
    assert sh.run("trap").stdout == "trap -- 'echo int' SIGINT\ntrap -- 'echo err $?' ERR\n"


def test_a_call_says_where_it_left_the_shell(sh: Session, place: Path) -> None:
    assert sh.run("true").cwd == str(place)
    assert sh.run("mkdir 'a b'; cd 'a b'").cwd == str(place / "a b")
    assert sh.run("cd / && false").cwd == "/"


LIES = {
    "a lie": ("PWD=/usr", "/etc"),
    "a relative one": ("PWD=x", "/etc"),
    "none": ("unset PWD", "/etc"),
    "a lie that does not change": ("cd /usr; readonly PWD; cd /etc", "/etc"),
    "a lie of an earlier truth": ("cd /usr; PWD=/etc; cd /usr; PWD=$HERE", "/usr"),
    "a place that is not": ("cd /usr; PWD=/nowhere", "/usr"),
    "a local one": ("f() { local PWD; cd /usr; }; f", "/usr"),
    "a place that was renamed": ('cd "$HERE"; mkdir old; cd old; mv ../old ../new', "new"),
    "no stack": ("unset DIRSTACK", "/etc"),
    "a stack that lies": ("cd /; unset DIRSTACK; DIRSTACK=/; cd /usr", "/usr"),
    "at home, where bash 4.4 says ~": ('mkdir "$HERE/in"; HOME=$HERE; cd "$HERE/in"', "in"),
    "a link, which is the truth": ('ln -s /etc "$HERE/link"; cd "$HERE/link"', "link"),
}


@pytest.mark.parametrize(("text", "where"), LIES.values(), ids=LIES)
def test_the_cwd_is_true_whatever_pwd_says(sh: Session, place: Path, text: str, where: str) -> None:
    sh.run("HERE=$PWD; cd /etc")
    assert sh.run(text).cwd == str(place / where)
    assert sh.run("true").cwd == sh.cwd == str(place / where)
    assert sh.run("cd /").cwd == sh.cwd == "/"


def test_a_strange_directory_name_comes_back_as_it_is(sh: Session, place: Path) -> None:
    name = b"\xff\n\x1e it's"
    result = sh.run(b"mkdir -- $'\\xff\\n\\x1e it\\'s'; cd -- $'\\xff\\n\\x1e it\\'s'")
    assert os.fsencode(result.cwd) == bytes(place) + b"/" + name


def test_both_streams_and_both_views(sh: Session) -> None:
    result = sh.run("printf 'out\\xff'; printf 'err\\n' >&2; exit_with() { return 3; }; exit_with")
    assert (result.stdout_bytes, result.stderr_bytes) == (b"out\xff", b"err\n")
    assert (result.stdout, result.stderr) == ("out�", "err\n")
    assert (result.exit_code, result.signal, result.ok, result.reason) == (3, None, False, "")
    assert 0 < result.duration < 20


def test_output_comes_with_the_line_ends_it_had(sh: Session) -> None:
    assert sh.run("printf 'a\\nb\\r\\n\\tc\\e[1m'").stdout_bytes == b"a\nb\r\n\tc\x1b[1m"


@pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])
def test_tty_says_what_stdout_is(sh: Session, tty: bool) -> None:
    result = sh.run("[ -t 1 ] && echo terminal || echo pipe; [ -t 0 ]; echo $?; [ -t 2 ]; echo $?", tty=tty)
    assert result.stdout == ("terminal" if tty else "pipe") + "\n1\n1\n"


@pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])
def test_merged_streams_keep_their_order(sh: Session, tty: bool) -> None:
    result = sh.run("for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done", merge_stderr=True, tty=tty)
    assert result.stdout == "".join(f"o{i}\ne{i}\n" for i in range(1, 6))
    assert result.stderr_bytes == b""


def test_isolated_sees_the_state_and_leaves_none(sh: Session, place: Path) -> None:
    sh.run("X=1; f() { echo f$X; }")
    result = sh.run("f; X=2; cd /; set -u; f; exit 3", isolated=True)
    assert (result.stdout, result.exit_code, result.outcome, result.state_kept) == ("f1\nf2\n", 3, "exited", True)
    assert sh.run("echo $X $-").stdout.startswith("1 ")
    assert sh.run("pwd").stdout == f"{place}\n"


def test_isolated_has_the_sessions_process_id_and_its_last_status(sh: Session) -> None:
    sh.run("(exit 9)")
    result = sh.run("echo $? $$", isolated=True)
    assert result.stdout == f"9 {sh.pid}\n"


def test_isolated_can_be_killed_from_within(sh: Session) -> None:
    result = sh.run("kill -9 $BASHPID; echo not reached", isolated=True)
    assert (result.exit_code, result.stdout, result.outcome) == (137, "", "exited")
    assert sh.run("echo alive").stdout == "alive\n"


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("echo a\0b", "NUL byte"),
        (b"\0", "NUL byte"),
        ("\ud800", "UTF-8"),
        (17, "str, bytes or a list of words, not int"),
        (None, "str, bytes or a list of words, not NoneType"),
    ],
    ids=["nul in text", "nul alone", "surrogate", "number", "none"],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(sh: Session, command: str, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        sh.run(command)
    assert sh.pid is None


def test_a_command_that_is_too_long_is_refused_before_anything_runs(sh: Session) -> None:
    """No parameter, of which 16 MB would be there for as long as the tests run."""
    with pytest.raises(InvalidRequest, match="bytes long"):
        sh.run(b"#" * (MAX_COMMAND + 1))
    assert sh.pid is None


def test_the_longest_command_is_accepted(sh: Session) -> None:
    result = sh.run(b"#" * (MAX_COMMAND - 8) + b"\necho ok")
    assert (result.stdout, result.exit_code) == ("ok\n", 0)


def test_check_raises_with_the_result(sh: Session) -> None:
    with pytest.raises(CommandFailed, match="status 3") as caught:
        sh.run("echo partial; (exit 3)", check=True)
    assert (caught.value.result.stdout, caught.value.result.exit_code) == ("partial\n", 3)
    assert sh.run("true", check=True).ok


def test_restart_gives_a_fresh_shell(sh: Session, place: Path) -> None:
    sh.run("X=1; cd /; export Y=2; set -u; (exit 3)")
    old = sh.pid
    sh.restart()
    assert sh.pid not in (old, None)
    assert sh.run('echo "$? [${X-}${Y-}] $PWD"').stdout == f"0 [] {place}\n"


def test_a_session_never_opened_can_be_closed() -> None:
    with Session() as session:
        assert session.pid is None
        assert "open" in repr(session)
    assert "closed" in repr(session)


def test_limits_of_the_session_hold_for_its_calls(new_session: Make) -> None:
    session = new_session(limits=Limits(max_output=4))
    assert session.run("echo 123456789").stdout_bytes == b"129\n"
    assert session.run("echo 12345", limits=Limits()).stdout_bytes == b"12345\n"


@pytest.mark.parametrize(
    ("command", "stderr", "exit_code"),
    [
        ("-n x", "bash: -n: command not found\n", 127),
        ("-- echo hi", "bash: --: command not found\n", 127),
        ("-", "bash: -: command not found\n", 127),
        ("--help", "bash: --help: command not found\n", 127),
    ],
)
@pytest.mark.parametrize("isolated", [False, True])
def test_text_that_begins_with_a_dash_is_text(
    sh: Session, command: str, stderr: str, exit_code: int, isolated: bool
) -> None:
    result = sh.run(command, isolated=isolated)
    assert (result.stdout, result.stderr, result.exit_code) == ("", stderr, exit_code)


@pytest.mark.sampled
@pytest.mark.parametrize("more", [0, 900, 1100, 70_000])
@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("before", ["(exit 7)", "set -e; (exit 7) || (exit 7) && :", "set -x; (exit 7)"])
def test_the_last_status_is_there_for_a_text_of_any_length(sh: Session, more: int, isolated: bool, before: str) -> None:
    sh.run(before)
    result = sh.run(f"echo $?; echo $?{' ' * more}", isolated=isolated)
    assert result.stdout == "7\n0\n"


def test_a_debug_trap_that_speaks_everywhere_does_not_get_into_a_long_text(sh: Session) -> None:
    sh.run("set -T; trap 'echo spoken' DEBUG; (exit 7)")
    result = sh.run("echo begun" + " " * 2000 + "; trap - DEBUG")
    assert (result.exit_code, "command not found" in result.stderr) == (0, False)


def test_a_list_of_words_is_quoted(sh: Session) -> None:
    words = ["a b", "$HOME", "it's", "", "-n", "*"]
    assert sh.run(["printf", "%s|", *words]).stdout == "".join(f"{word}|" for word in words)
    for word in ("A=1", "time", "if", "function", "coproc"):
        assert sh.run([word, "x"]).exit_code == 127  # there is no such program
    for wrong in ([], ["echo", b"x"], ["echo", 3]):
        with pytest.raises(InvalidRequest, match="list of str"):
            sh.run(wrong)  # type: ignore[arg-type]


def test_the_error_of_a_command_that_failed_says_which_and_why(sh: Session) -> None:
    with pytest.raises(CommandFailed) as failed:
        sh.run("echo first >&2; ls /nonexistent", check=True)
    assert str(failed.value).startswith(
        "exit status 2: echo first >&2; ls /nonexistent\nThe end of stderr:\nfirst\nls: "
    )
    with pytest.raises(CommandFailed, match="The end of stdout:\nFAILED test_x"):
        sh.run("echo FAILED test_x; false", check=True)
