"""What a shell that ends by itself saves of its state: also what its last command has changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from system import PATIENCE

from shellsession import Session

# A text that ends its shell, and what A, the directory's name, and G are then.
ENDS = {
    "exit": ("A=1; cd sub; exit 3", "1 sub"),
    "a function": ("A=1; die() { local A=9 loc=5; G=new; exit 4; }; die x", "1 here new"),
    "two functions": ("A=1; f() { local A=7 G=0; g; }; g() { local A=8; local -a G=(1 2); cd sub; exit; }; f", "1 sub"),
    "locals of every kind": (
        "A=1; f() { local -A A=([k]=v); local -i G=5; local IFS=,; g; }; g() { exit; }; f",
        "1 here",
    ),
    "a local one of a name that is unset": ("A=1; unset U; f() { local U=4; exit; }; f", "1 here"),
    "set -eu": ("A=1; set -eu; : $nope", "1 here"),
    "set -e in a function": ("A=1; set -e; f() { local A=3; : ${x?no}; }; f", "1 here"),
    "a sourced file": ("A=1; echo 'A=2; exit 5' >file; . ./file", "0 here"),  # it might look at the traps
    "SIGHUP": ("A=1; kill -HUP $$; while :; do :; done", "1 here"),
    "noclobber, closed streams, IFS": ("A=1; set -C; IFS=0123; exec 1>&- 2>&-; exit 3", "1 here"),
    "functions for builtins": ("A=1; printf() { :; }; declare() { :; }; command() { :; }; exit", "1 here"),
    "posix": ("A=1; set -o posix; exit", "1 here"),
    "xtrace": ("A=1; set -x; exit", "1 here"),
}
ASKED = "\\printf '%s ' $A ${PWD##*/} ${G-}"


@pytest.fixture
def sh(tmp_path: Path) -> Iterator[Session]:
    (place := tmp_path / "here").mkdir()
    (place / "sub").mkdir()
    with Session(cwd=place, tty=False, timeout=PATIENCE, recover=True) as session:
        session.run("A=0; U='a b'")
        yield session


@pytest.mark.parametrize(("text", "expected"), ENDS.values(), ids=ENDS)
def test_shell_that_ends_by_itself_keeps_what_its_last_command_changed(sh: Session, text: str, expected: str) -> None:
    result = sh.run(text)
    moment = "from before the last command" if ". ./" in text else "from after the last command"
    assert f"with the state {moment}" in result.recovered
    assert "__names" not in result.stderr
    assert "not restored" not in result.recovered
    for name in ("printf", "declare"):
        sh.run(f"unset -f {name}; set +ux")
    assert sh.run("IFS=' '; unset -f printf; " + ASKED).stdout.strip() == expected
    assert sh.run("echo ${U-unset} ${loc-none}").stdout == ("unset none\n" if "unset U" in text else "a b none\n")
    assert "__" not in sh.run("compgen -v; compgen -A function").stdout


def test_exit_trap_of_the_user_runs_with_its_status_and_is_the_only_one_to_see(sh: Session) -> None:
    sh.run("trap 'echo bye $? $A $#' EXIT; set -- p q")
    assert sh.run("trap -p EXIT; trap").stdout.splitlines() == ["trap -- 'echo bye $? $A $#' EXIT"] * 2
    result = sh.run("A=5; exit 7")
    assert (result.stdout, result.exit_code) == ("bye 7 5 2\n", 7)
    assert "from after the last command" in result.recovered
    assert sh.run("echo $A $*; trap -p").stdout == "5 p q\ntrap -- 'echo bye $? $A $#' EXIT\n"
    assert sh.run("set -e; A=6; : ${nope?}").stdout == "bye 1 6 2\n"
    assert sh.run("trap 'exit 9' EXIT").ok
    assert sh.run("A=7; exit 3").exit_code == 9
    assert sh.run("trap - EXIT; echo $A").stdout == "7\n"


@pytest.mark.parametrize(
    "text",
    [
        "trap -p",
        "trap",
        "(trap -p)",
        "eval 'tr''ap -p'",
        "builtin trap -p EXIT",
        "echo 'trap -p' >file; . ./file",
        "source /dev/stdin <<<'trap -p'",
        "f() { trap -p; }; f",
        "alias t='trap -p'",
    ],
)
def test_nothing_sees_the_exit_trap(sh: Session, text: str) -> None:
    assert sh.run(text).stdout == ""
    assert sh.run(text, isolated=True).stdout == ""
    sh.run("true")
    assert sh.run("[[ $(type -t f) ]] && f").stdout == ""
    assert "EXIT" not in sh.snapshot().traps


@pytest.mark.parametrize("option", ["-v", "-x"])
def test_option_that_prints_what_runs_does_not_print_the_exit_trap(sh: Session, option: str) -> None:
    sh.run(f"set {option}")
    for text in ("A=1; exit 3", "true"):
        assert "builtin" not in sh.run(text).stderr


def test_shell_whose_functions_use_traps_goes_back_to_before_the_last_command(sh: Session) -> None:
    sh.run("f() { trap -p; }")
    sh.restart(keep_state=True)
    sh.run("A=1")
    assert sh.run("f").stdout == ""
    assert "from before the last command" in sh.run("A=2; exit").recovered
    assert sh.run("echo $A").stdout == "1\n"


@pytest.mark.parametrize(
    "text",
    [
        "find . -maxdepth 0; Z=1; exit 4",
        "ls -d .; Z=1; exit 4",
        "git diff -- . || { Z=1; exit 4; }",
        "Z=1; cd . && ls -d . .; exit 4",
        "# eval the model\nZ=1; exit 4",
        "echo eval, source . x; A=3 find . -name source; Z=1; exit 4",
        "Z=1; grep -rn 'trap' .; exit 4",
        "echo bootstrap --trap ./trap trap.txt; Z=1; exit 4",
    ],
)
def test_text_that_mentions_a_word_for_traps_keeps_what_it_changed(sh: Session, text: str) -> None:
    assert "from after the last command" in sh.run(text).recovered
    assert sh.run("echo $Z").stdout == "1\n"


def test_shell_whose_functions_and_traps_mention_the_word_keeps_what_it_changed(sh: Session, tmp_path: Path) -> None:
    sh.run(f"trap 'touch {tmp_path}/nc_trap_1' EXIT; bootstrap() {{ echo my_trap bootstrap; }}; alias b=bootstrap")
    sh.restart(keep_state=True)  # a snapshot, as a pause brings it
    sh.run("true")
    assert "from after the last command" in sh.run("Z=1; exit 4").recovered
    assert sh.run("echo $Z").stdout == "1\n"
    assert (tmp_path / "nc_trap_1").exists()


@pytest.mark.parametrize(
    "text",
    [
        "'trap' -p",
        '"trap"',
        "true; 'trap' -p",
        "\\trap -p",
        "! trap -p",
        "A=1 B='x y' trap -p",
        ">&1 trap -p",
        "if trap -p; then :; fi",
        "case x in x) trap -p;; esac",
        "echo $(trap -p) | tr -d '\\n'",
        "time -p trap 2>/dev/null",
        "w=trap; $w -p",
        "set -- 'trap' -p; \"$@\"",
        "w=('trap' -p); \"${w[@]}\"",
        'g() { "$@"; }; g trap -p',
        "g() { eval \"$1\"; }; g 'trap -p'",
        "printf 'tra''p -p' >file; A=1 B='x y' . ./file",
        "printf 'tra''p -p' >file; if ! \\. ./file; then :; fi",
        "printf 'tra''p -p' >file; >&1 source file",
        "printf 'tra''p -p' >file; case x in x) 'source' ./file;; esac",
        "printf 'tra''p -p' >file; command -p \".\" ./file",
        "while eval tr''ap -p; do break; done",
        "{ eval tr''ap; }",
        "A=$(echo x) eval tr''ap",
    ],
)
def test_exit_trap_stays_hidden_wherever_a_command_can_begin(sh: Session, text: str) -> None:
    assert sh.run(text).stdout.strip() == ""


def test_exit_trap_that_the_last_command_sets_is_the_one_that_runs(sh: Session) -> None:
    result = sh.run("trap 'echo mine $?' EXIT; A=1; exit 3")
    assert (result.stdout, result.exit_code) == ("mine 3\n", 3)
    assert "from before the last command" in result.recovered


def test_exit_trap_is_no_change_and_in_no_snapshot_and_no_fork(sh: Session) -> None:
    changes = sh.run("B=1", changes=True).changes
    assert changes is not None
    assert changes.added == (("variable", "B"),)
    sh.run("trap 'echo bye' EXIT")
    sh.run("true")
    assert dict(sh.snapshot().traps) == {"EXIT": "echo bye"}
    with sh.fork() as child:
        assert child.run("trap -p; exit").stdout == "trap -- 'echo bye' EXIT\nbye\n"


@pytest.mark.parametrize("then", ["true", "trap -p EXIT", "trap 'echo sig' USR1", "exit 3"])
@pytest.mark.parametrize("is_kept", [False, True])
def test_exit_trap_of_a_file_that_a_function_reads_stays(tmp_path: Path, then: str, is_kept: bool) -> None:
    (tmp_path / "file").write_text(f"trap 'echo bye >>{tmp_path}/log' EXIT\n")
    with Session(cwd=tmp_path, tty=False, timeout=PATIENCE, recover=True) as session:
        session.run('load() { . "$1"; }')
        session.run("load ./file")
        if is_kept:
            session.snapshot()
        result = session.run(then)
        assert "log' EXIT" in result.stdout or then != "trap -p EXIT"
        assert "builtin" not in result.stdout
    assert "bye\n" in (tmp_path / "log").read_text()


def test_exit_trap_of_the_startup_commands_stays(tmp_path: Path) -> None:
    with Session(cwd=tmp_path, tty=False, startup=["trap 'echo bye $?' EXIT"], recover=True) as sh:
        assert sh.run("A=1").ok
        assert sh.run("A=2; exit 4").stdout == "bye 4\n"
        assert sh.run("echo $A").stdout == "2\n"


def test_first_command_that_ends_its_shell_loses_nothing(tmp_path: Path) -> None:
    with Session(cwd=tmp_path, recover=True) as sh:
        assert "from after the last command" in sh.run("A=1; exit").recovered
        assert sh.run("echo $A").stdout == "1\n"


def test_directory_and_variables_of_one_command_are_not_brought_back(sh: Session) -> None:
    sh.run("E=old")
    result = sh.run("A=1; exit", cwd="sub", env={"E": "new"})
    assert "from before the last command" in result.recovered
    assert sh.run("echo $A $E ${PWD##*/}").stdout == "0 old here\n"


def test_forged_state_that_is_too_large_is_not_read(sh: Session) -> None:
    find = r"""w=tra; w+=p; ends=$("$w" -p EXIT); file=${ends##*>|}; file=${file%%;*}; file=${file//[\\\' ]/}"""
    assert sh.run(find + "; echo $file").stdout.endswith("-end\n")
    result = sh.run("A=1; truncate -s 4T $file; kill -9 $$")
    assert "with the state from before the last command" in result.recovered
    assert sh.run("echo $A").stdout == "0\n"


def test_subshell_that_ends_saves_nothing(sh: Session) -> None:
    sh.run("(A=1; exit 3); x=$(A=2; exit 4); { A=3; exit 2; } & wait")
    assert "from after the last command" in sh.run("A=4; exit").recovered
    assert sh.run("A=5; exit 6", isolated=True).exit_code == 6
    assert sh.run("echo $A").stdout == "4\n"


def test_state_that_ends_each_shell_gives_way_to_the_one_before(sh: Session) -> None:
    result = sh.run("A=1; PS0='$(kill -9 $$)'; exit")
    assert "from before the last command" in result.recovered
    assert sh.run("echo $A").stdout == "0\n"


def test_trap_of_errexit_is_not_brought_back(sh: Session) -> None:
    assert sh.run("A=1; : ${nope?}", errexit=True).recovered.endswith("from after the last command")
    assert sh.run("false; trap; case $- in *[eE]*) echo on;; esac; echo $A").stdout == "1\n"


def test_closing_runs_the_exit_trap_of_the_user_alone(tmp_path: Path) -> None:
    with Session(cwd=tmp_path, tty=False, recover=True) as sh:
        sh.run(f"trap 'echo $? >{tmp_path}/bye' EXIT")
        sh.run("true")
    assert re.fullmatch(r"\d+\n", (tmp_path / "bye").read_text())
