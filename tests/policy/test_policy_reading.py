"""A policy finds a denied command wherever it runs, but not where the text only mentions it."""

from __future__ import annotations

import re
import subprocess

import pytest
from policies import verdict
from policy_corpus import UNREADABLE

from shellsession.policy.commands import analyze
from shellsession.policy.rules import Policy


def test_patterns_are_searched_in_each_command_too() -> None:
    policy = Policy(deny=[re.compile(r"^(\S*/)?rm( .*)? -\w*r")], deny_commands=["mkfs*"])
    for command in ("rm -rf x", "a && /bin/rm x -fr", "bash -c '\"rm\" -r x'", "echo $(\\rm x -r)"):
        assert verdict(policy, command).startswith("it matches "), command
    assert verdict(policy, "echo 'rm -rf x'; rm x") == ""


_PLACES = (
    *("{}", "a && {}", "a|{}", "echo $({})", "echo `{}`", 'echo "x $({})"', "diff <({}) b", "X=1 {}", "env X=1 {}"),
    *("cd /tmp && env X=1 bash -c '{}'", "sudo -n timeout 5 {}", "if a; then {}; fi", "while a; do {}; done"),
    *("f() {{ {}; }}", "alias a='{}'", "bash <<'E'\n{}\nE", "cat <<E\n$({})\nE", 'eval "{}"', "a | xargs {}"),
    *("find . -exec {} {{}} \\;", "(a; {}) &", "[ -f x ] || {}"),
)


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("name", ["rm", "/bin/rm", "\\rm", '"rm"', "r''m"])
def test_a_denied_command_is_found_wherever_it_runs(place: str, name: str) -> None:
    quoted = ("'" in place and "'" in name) or ('"{}' in place and '"' in name)
    command = place.format("rm x" if quoted else f"{name} x")
    assert verdict(Policy(deny_commands=["rm"]), command) == "'rm' is denied"


@pytest.mark.parametrize(
    ("command", "denied"),
    [
        ('bash -c "cd $D && rm -rf x"', True),
        ('bash -c "ssh h \\"rm \\$x\\""', True),
        ('find . -exec sh -c "rm $x" \\;', True),
        ('trap "rm -f $tmp" EXIT', True),
        ('bash <<< "rm $x"', True),
        ("eval rm $x", True),
        ("$HOME/bin/rm x", True),
        ("bash -c 'rm'$x", False),  # it may be rmdir
        ('bash -c "$x"', False),
        ('bash -c "echo rm $x"', False),
        ('ssh h "cat >f <<E\nrm $x\nE"', False),
        ("$rm/x y", False),
    ],
)
def test_a_text_that_is_known_in_part_is_read_for_that(command: str, denied: bool) -> None:
    assert verdict(Policy(deny_commands=["rm"]), command) == ("'rm' is denied" if denied else "")
    assert verdict(Policy(deny_commands=["rm"], strict=True), command)
    assert verdict(Policy(allow=["bash", "eval", "ssh", "trap", "find", "echo", "cat", "rm", "cd", "sh"]), command)


@pytest.mark.parametrize(
    "command", ["echo rm", "echo 'a; rm x'", "cat <<'E'\nrm x\nE", "# rm x\nls", "rmdir x", "./norm", "X=rm a", "ls rm"]
)
def test_what_is_only_mentioned_is_not_denied(command: str) -> None:
    assert verdict(Policy(deny_commands=["rm"], strict=True), command) == ""


@pytest.mark.parametrize("command", ["ls <> w", "ls <>w", "exec 3<>w", "ls <>w >v"])
def test_redirection_for_reading_and_writing_is_refused_by_its_name(command: str) -> None:
    for policy in (Policy(strict=True), Policy(allow=["ls", "exec"])):
        assert "(line 1, near '<>', a redirection that no rule covers)" in verdict(policy, command)


@pytest.mark.parametrize("text", UNREADABLE)
def test_an_unreadable_text_is_refused_if_it_may_break_a_rule(text: str) -> None:
    said = r"it cannot be parsed as bash \(line \d, near .*\)"
    rewrite = "split it, or write it more simply"
    for policy in (Policy(strict=True), Policy(allow=["exec", "ls", "echo", "cat"])):
        assert re.fullmatch(f"{said}: {rewrite}", verdict(policy, text))
    deny = Policy(deny_commands=["sudo", "git push", "mkfs*"])
    for harmless in (text, f"echo pseudo push git pushed\n{text}", f"git log\n{text}"):
        assert verdict(deny, harmless) == ""
    for named in (f"{text} # su''do", f"X='a;/bin/sudo x'\n{text}"):
        assert re.fullmatch(f"{said}, and it names 'sudo', which is denied: {rewrite}", verdict(deny, named))
    assert "it names 'git push'" in verdict(deny, f": git -C x push\n{text}")
    assert "it names 'mkfs*'" in verdict(deny, f": mkfs.ext4\n{text}")
    assert verdict(deny, f"sudo x\n{text}") == "'sudo' is denied"


@pytest.mark.parametrize(
    "command",
    [
        *("PATH=/tmp/evil:$PATH ls", "PATH=/tmp/evil; ls", "PATH+=:/tmp/evil ls", "env PATH=/tmp/evil ls"),
        *("export PATH=/tmp/evil; ls", 'export "PATH=/tmp/evil:$PATH"; ls', "declare -x PATH=/tmp/evil"),
        *("LD_PRELOAD=x ls", "BASH_ENV=x ls", "ENV=x ls", "alias ls=evil", "ls() { evil; }; ls"),
    ],
)
def test_what_changes_the_meaning_of_names_is_not_allowed(command: str) -> None:
    allow = ["ls", "export", "declare", "alias", "env"]
    assert verdict(Policy(allow=allow), command)
    assert verdict(Policy(allow=allow), 'ls; export X=1 Y="PATH=$X"; MYPATH=2 ls') == ""


@pytest.mark.parametrize(
    "command",
    ["# " + "x" * 66000 + "\nsudo y", "eval " * 10 + "sudo y", "cat <<'E'\n" + "a\n" * (1 << 20) + "E\nsudo y"],
)
def test_what_is_too_much_to_be_read_is_refused(command: str) -> None:
    for policy in (Policy(deny_commands=["sudo"]), Policy(strict=True), Policy(allow=["cat", "eval", "sudo"])):
        assert verdict(policy, command).startswith("it is too long to be parsed")
    assert verdict(Policy(deny=["nothing"]), command) == ""


_ANSI = (r"\163udo", r"sudo\0zzz", r"\x73udo", r"\u73udo", r"\U00000073udo", r"\'sudo\"", r"su\\do", r"\xc3\xa9sudo")


@pytest.mark.parametrize("text", _ANSI)
def test_a_word_in_ansi_quotes_is_what_bash_makes_of_it(text: str) -> None:
    word = f"$'{text}'"
    printed = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout
    assert analyze(f"{word} x").commands[0] == (printed.decode("utf-8", "surrogateescape"), "x")
