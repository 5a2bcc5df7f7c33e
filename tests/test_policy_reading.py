"""What runs in a text, wherever it stands: a denied program is found there, and one that is only mentioned is not."""

from __future__ import annotations

import re
import subprocess
from typing import Final

import pytest
from policies import verdict

from shellsession.policy.commands import commands
from shellsession.policy.rules import Policy


def test_with_the_grammar_patterns_are_searched_in_each_command_too() -> None:
    policy = Policy(deny=[re.compile(r"^(\S*/)?rm( .*)? -\w*r")], deny_commands=["mkfs*"])
    for command in ("rm -rf x", "a && /bin/rm x -fr", "bash -c '\"rm\" -r x'", "echo $(\\rm x -r)"):
        assert verdict(policy, command).startswith("it matches "), command
    assert verdict(policy, "echo 'rm -rf x'; rm x") == ""


_PLACES = (
    "{}",
    "a && {}",
    "a | {}",
    "echo $({})",
    "echo `{}`",
    'echo "x $({})"',
    "diff <({}) b",
    "X=1 {}",
    "env X=1 {}",
    "bash -c '{}'",
    "sudo -n timeout 5 {}",
    "if a; then {}; fi",
    "f() {{ {}; }}",
    "bash <<'E'\n{}\nE",
    "cat <<E\n$({})\nE",
    "eval {}",
    "a | xargs {}",
    "(a; {}) &",
)


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("name", ["rm", "/bin/rm", "\\rm", '"rm"', "r''m"])
def test_a_denied_command_is_found_wherever_it_runs(place: str, name: str) -> None:
    quoted = "'" in place and "'" in name
    command = place.format("rm x" if quoted else f"{name} x")
    assert verdict(Policy(deny_commands=["rm"]), command) == "'rm' is denied"


@pytest.mark.parametrize(
    ("command", "denied"),
    [
        ('bash -c "cd $D && rm -rf x"', True),
        ('bash -c "rm $x"', True),
        ('bash -c "ssh h \\"rm \\$x\\""', True),
        ('ssh h "cd $D; rm y"', True),
        ('find . -exec sh -c "rm $x" \\;', True),
        ('trap "rm -f $tmp" EXIT', True),
        ('bash <<< "rm $x"', True),
        ('PAGER="rm $x" man y', True),
        ("eval rm $x", True),
        ('tar --to-command="rm $x" -xf a', True),
        ('git rebase --exec="rm $x" HEAD', True),
        ('rsync --rsh="rmdir $x" a b', False),
        ('eval "a `b`; rm"', True),
        ("$HOME/bin/rm x", True),
        ('"${D:-/usr}"/bin/env rm x', True),
        ("bash -c 'rm'$x", False),  # it may be rmdir
        ("bash -c r${x}m", False),
        ('bash -c "$x"', False),
        ('bash -c "echo rm $x"', False),
        ('bash -c "echo \\"rm $x\\""', False),
        ("trap \"echo 'rm $x'\" EXIT", False),
        ('ssh h "cat >f <<E\nrm $x\nE"', False),
        ('eval "$x"; echo "rm $x"', False),
        ("$rm/x y", False),
    ],
)
def test_a_text_that_is_known_in_part_is_read_for_that(command: str, denied: bool) -> None:
    assert verdict(Policy(deny_commands=["rm"]), command) == ("'rm' is denied" if denied else "")
    assert verdict(Policy(deny_commands=["rm"], strict=True), command)
    assert verdict(
        Policy(allow=["bash", "eval", "ssh", "trap", "find", "echo", "cat", "man", "tar", "git", "a", "b"]), command
    )


@pytest.mark.parametrize(
    ("command", "denied"),
    [
        ("echo 'rm x' | bash", True),
        ('echo -e "ls\\nrm $x" | sh', True),
        ("printf 'ls\\nrm %s\\n' x | sudo bash -s", True),
        ("printf %s 'rm x' | tee f | bash", True),
        ("cat <<'E' | bash\nrm x\nE", True),
        ("cat <<'E' | sed s/a/b/ | ssh h\nrm x\nE", True),
        ("cat <<< 'rm x' | bash 2>&1", True),
        ("echo 'rm x' | at now", True),
        ("ssh h bash -s <<'E'\nrm x\nE", True),
        ("ssh h 'cd x && sudo bash' <<'E'\nrm x\nE", True),
        ("echo 'rm x' | ssh h sh", True),
        ("echo 'rm x' | ssh h 'cat >f'", False),
        ("echo 'rm x' | tee f", False),
        ("cat <<'E' | bash -c cat\nrm x\nE", False),
        ("echo ls rm | bash", False),
        ("echo 'echo rm' | bash", False),
        ("echo 'rm x' && bash", False),
        ("bash <<'E' | cat\nls\nE", False),
    ],
)
def test_what_is_piped_into_a_shell_is_read(command: str, denied: bool) -> None:
    assert verdict(Policy(deny_commands=["rm"]), command) == ("'rm' is denied" if denied else "")


@pytest.mark.parametrize("command", ["echo ls | bash", "ssh h bash <<'E'\nls\nE", "echo ls | sed s/ls/rm/ | bash"])
def test_what_is_passed_on_may_be_something_else(command: str) -> None:
    said = "it does not say all that bash reads"
    assert verdict(Policy(strict=True), command) == f"{said}: write that out"
    assert verdict(Policy(allow=["bash", "ssh", "echo", "sed", "ls"]), command) == said


@pytest.mark.parametrize(
    "command", ["echo rm", "echo 'a; rm x'", "cat <<'E'\nrm x\nE", "# rm x\nls", "rmdir x", "./norm", "X=rm a", "ls rm"]
)
def test_what_is_only_mentioned_is_not_denied(command: str) -> None:
    assert verdict(Policy(deny_commands=["rm"], strict=True), command) == ""


@pytest.mark.parametrize(
    "command",
    [
        *("PATH=/tmp/evil:$PATH ls", "PATH=/tmp/evil; ls", "export PATH=/tmp/evil; ls", "export 'PATH=/tmp/evil'; ls"),
        *(
            "read PATH <<< /tmp/evil; ls",
            "printf -v PATH /tmp/evil; ls",
            "printf -vPATH /tmp/evil; ls",
            "read -raPATH <<< x; ls",
            "LD_LIBRARY_PATH=/tmp ls",
            "LD_PRELOAD=x ls",
        ),
        *(
            'export "PATH=/tmp/evil:$PATH"; ls',
            'declare -gx "PATH=$X"; ls',
            "export 'PA'TH=\"$X\"; ls",
            'export "LD_X=$X"; ls',
        ),
        *("BASH_ENV=x ls", "ENV=x ls", "PATH+=:/tmp/evil ls", "declare -x PATH=/tmp/evil", "hash -p /tmp/evil ls"),
        *("alias ls=evil", "ls() { evil; }; ls"),
    ],
)
def test_what_changes_the_meaning_of_names_is_not_allowed(command: str) -> None:
    allow = ["ls", "export", "read", "printf", "declare", "hash", "alias"]
    assert verdict(Policy(allow=allow), command)
    assert verdict(Policy(allow=allow), "ls; export X=1; read x; hash -r; ls() { printf a; }") == ""
    assert verdict(Policy(allow=allow), 'export "X=$PATH" Y="PATH=$X" "$Z=$X"') == ""


@pytest.mark.parametrize(
    "command",
    ["# " + "x" * 66000 + "\nsudo y", "eval " * 10 + "sudo y", "cat <<'E'\n" + "a\n" * (1 << 20) + "E\nsudo y"],
)
def test_what_is_too_much_to_be_looked_at_is_refused_where_something_is_denied(command: str) -> None:
    for policy in (Policy(deny_commands=["sudo"]), Policy(strict=True)):
        assert verdict(policy, command).startswith("it is too much to be looked at (")
    assert verdict(Policy(allow=["cat", "eval", "sudo"]), command).startswith("not all was read: ")
    assert verdict(Policy(deny=["nothing"]), command) == ""
    written = "cat > f <<'E'\n" + "a\n" * 66000 + "E\n"
    assert verdict(Policy(deny_commands=["sudo"], strict=True, allow=["cat"]), written) == ""
    assert verdict(Policy(deny_commands=["sudo"]), written + "sudo y") == "'sudo' is denied"


@pytest.mark.parametrize("command", ["git -C x config alias.x '!rm y'", "git config --global alias.x '!rm y'"])
def test_what_git_is_told_to_run_is_found_behind_options(command: str) -> None:
    assert verdict(Policy(deny_commands=["rm"]), command) == "'rm' is denied"


_ANSI: Final = (
    *(r"\163udo", r"\563udo", r"sudo\0zzz", r"sudo\x00zzz", r"\x{73}udo", r"\x{1073}udo", r"\x{}sudo", r"\x73udo"),
    *(
        r"\u73udo",
        r"\U00000073udo",
        r"su\8do",
        r"su\zdo",
        r"\'sudo\"",
        r"su\\do",
        r"su\c@do",
        r"\xc3\xa9sudo",
        r"\cbsudo",
    ),
)


@pytest.mark.parametrize("text", _ANSI)
def test_a_word_in_ansi_quotes_is_what_bash_makes_of_it(text: str) -> None:
    word = f"$'{text}'"
    printed = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout
    name = printed.decode("utf-8", "surrogateescape")
    assert commands(f"{word} x".encode()).commands[0] == (name, "x")


@pytest.mark.parametrize("command", ['"sud"-$"o" x', '"apt"-$"get" x', 'git push -$"f"', 'a\\$"b"'])
def test_what_the_grammar_takes_for_a_dollar_is_not_left_out(command: str) -> None:
    assert verdict(Policy(allow=["aptget", "sudo", "git push f", "ab"], strict=True), command) != ""


@pytest.mark.parametrize("blank", ["\v", "\f", "\r"])
def test_what_only_the_grammar_takes_for_a_blank_ends_no_name(blank: str) -> None:
    assert verdict(Policy(allow=["ls"], strict=True), f"ls{blank}/../evil") != ""
    assert verdict(Policy(allow=["ls"], strict=True), "ls \t/../evil") == ""


@pytest.mark.parametrize("text", ["{" * 40_000, "{a," * 13_000, "}{" * 20_000, "{.." * 13_000])
def test_a_text_full_of_braces_is_read_in_time(text: str) -> None:
    """The time is that of pytest-timeout: a pattern took the square of it, 40 s and more."""
    assert verdict(Policy(deny_commands=["sudo"]), f"ls {text}; sudo x") == "'sudo' is denied"


@pytest.mark.parametrize(
    "command",
    [
        *("systemd-run -t rm x", "unshare --propagation private rm x", "unshare --map-user 0 rm x"),
        *("unshare --setgroups deny rm x", "perf stat -r 3 rm x", "strace -b execve rm x", "strace --trace open rm x"),
        *("docker run --memory-reservation 1g i rm x", "docker run --cpu-count 2 i rm x", "ls | entr -rs 'rm x'"),
        *("setpriv --seccomp-filter f rm x", "su --session-command 'rm x'", "dumb-init rm x"),
    ],
)
def test_what_an_option_takes_hides_no_command(command: str) -> None:
    assert verdict(Policy(deny_commands=["rm"]), command) == "'rm' is denied"


@pytest.mark.parametrize(
    "command",
    [
        *("""grep "'" f""", """git commit -m 'don'"'"'t'""", """python -c 'print('"'"'x'"'"')'""", """echo "'$x'" """),
        *("cat - <<< x", "python3 - <<< 'print(1)'", 'kubectl apply -f - <<< "$x"', "tee - - <<<x"),
    ],
)
def test_what_is_right_is_not_refused_as_unreadable(command: str) -> None:
    assert verdict(Policy(strict=True), command) == ""
    assert verdict(Policy(strict=True, deny_commands=["rm"]), f"{command}\nrm x") == "'rm' is denied"
