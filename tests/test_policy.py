"""What a policy says to a request: denied, allowed, asked about, clamped; and what is hidden and masked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from shellsession import InvalidRequest, Session
from shellsession.models import Limits, Request, Result
from shellsession.policy.rules import Policy, PolicyRefused
from shellsession.policy.secrets import Secrets

_TOKEN = "s3cr3t-t0ken"


def verdict(policy: Policy, command: str) -> str:
    try:
        policy.check(Request(command.encode()))
    except PolicyRefused as refused:
        return str(refused).removeprefix("refused by policy: ")
    return ""


@pytest.mark.parametrize(
    ("command", "denied"),
    [
        ("rm -rf /", True),
        ("rm -rf /tmp/x", True),
        ("echo 'rm -rf /'", True),  # a text is a text
        ("cat <<'E'\nrm -rf /\nE", True),
        ("bash -c 'rm -rf /'", True),
        ("rm  -rf /", False),
        ("rm -r -f /", False),
        ("'rm' -rf /", False),
        ("rm -rf .", False),
    ],
)
def test_plain_texts_are_looked_for_everywhere_and_nowhere_else(command: str, denied: bool) -> None:
    assert verdict(Policy(deny=["mkfs", "rm -rf /"]), command) == ("it contains 'rm -rf /'" if denied else "")


@pytest.mark.parametrize(
    ("pattern", "command", "denied"),
    [
        (r"^rm\b", "rm x", True),
        (r"^rm\b", "a; rm x", False),
        (r"(?i)DROP\s+TABLE", "psql -c 'drop  table x'", True),
        (r">\s*/dev/sd", "cat x >/dev/sda", True),
        (r"\bcurl\b.*\|\s*bash", "curl x | bash", True),
    ],
)
def test_patterns_are_searched_in_the_text(pattern: str, command: str, denied: bool) -> None:
    said = verdict(Policy(deny=[re.compile(pattern)]), command)
    assert said == (f"it matches {pattern!r}" if denied else "")


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
    assert verdict(Policy(allow=["bash", "eval", "ssh", "trap", "find", "echo", "cat", "man", "a", "b"]), command)


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
    ("rule", "command", "denied"),
    [
        ("git push", "git push origin", True),
        ("git push", "git -C x --no-pager push", True),
        ("git push", "git commit", False),
        ("git push", "git", False),
        ("git push --force*", "git push origin --force-with-lease", True),
        ("git push --force*", "git push origin", False),
        ("mkfs*", "mkfs.ext4 /dev/sda", True),
        ("/usr/bin/git", "git x", False),
        ("/usr/bin/git", "/usr/bin/git x", True),
        ("rm *", "rm", False),
        ("kill -[9K]*", "kill -9 1", True),
        ("kill -[9K]*", "kill -15 1", False),
    ],
)
def test_rules_are_words_in_their_order(rule: str, command: str, denied: bool) -> None:
    assert verdict(Policy(deny_commands=[rule]), command) == (f"{rule!r} is denied" if denied else "")


_SUBCOMMANDS = ("git push", "docker run", "npm publish", "cargo publish", "frob go", "git push --force*")


@pytest.mark.parametrize(
    "command",
    [
        "git stash push",
        "git log --grep push",
        "git checkout push",
        "git diff -- push",
        "git remote add push x",
        "git -C push status",
        "git --git-dir push status",
        "git config push.default simple",
        'git commit -m "$MSG"',
        'git add "$f"',
        'git log "$X"',
        'git -C "$dir" status',
        "git diff $(git merge-base a b)",
        "git commit -m \"$(cat <<'E'\nplease do not\ngit push\nE\n)\"",
        "docker exec x run",
        "docker -H run ps",
        "docker rm run",
        "npm run publish",
        "npm --prefix publish test",
        "frob stop go",
    ],
)
def test_a_subcommand_is_not_any_word(command: str) -> None:
    assert verdict(Policy(deny_commands=_SUBCOMMANDS, strict=True), command) == ""
    assert verdict(Policy(deny_commands=_SUBCOMMANDS), command) == ""


@pytest.mark.parametrize(
    ("command", "when_strict"),
    [
        ("git -C x push", False),
        ("git -C commit push", False),
        ('git -C "$dir" push', False),
        ("git -c a=b --no-pager --git-dir=x push origin", False),
        ("git --git-dir x -p --work-tree y push", False),
        ("git --git-dir= push", False),
        ("git p\\ush", False),
        ("git -c alias.p=push p", False),
        ("git config --global alias.p 'push --force'", False),
        ("git -C x config alias.p push", False),
        ('git "$x" push', False),
        ("git push $x", False),
        ('git "$x"', True),
        ("git -C x $x", True),
        ("docker --context a -DH b run x", False),
        ("npm --prefix x publish", False),
        ("cargo +nightly publish", False),
        ("frob --fast -x go", False),
        ('frob "$x"', True),
    ],
)
def test_a_subcommand_is_found_behind_options(command: str, when_strict: bool) -> None:
    assert verdict(Policy(deny_commands=_SUBCOMMANDS, strict=True), command).endswith("' is denied")
    assert (verdict(Policy(deny_commands=_SUBCOMMANDS), command) == "") == when_strict


@pytest.mark.parametrize(
    ("rule", "command", "denied"),
    [
        ("make install", "make -C b install", True),
        ("make install", "make -j 4 install", True),
        ("make install", "make -f M -C b -k install", True),
        ("make install", "make DESTDIR=/x install", True),
        ("make install", "make -s X=1 -j4 install Y=2", True),
        ("make install", "make all install", False),
        ("make install", "make -C install all", True),  # either may be it
        ("make install", "make -C b all install", False),
        ("make install", "make --directory=b all install", False),
        ("ninja install", "ninja -C b install", True),
        ("gradle publish", "gradle -p a publish", True),
        ("mvn deploy", "mvn -f a deploy", True),
        ("apt-get install", "apt-get -o a=b install x", True),
        ("dnf remove", "dnf -c f remove x", True),
        ("tmux kill-server", "tmux -L s kill-server", True),
        ("ip netns", "ip -n ns netns", True),
        ("az login", "az --subscription s login", True),
        ("pipenv run", "pipenv --python 3 run x", True),
        ("git push", "git --version push", False),
        ("git push", "git --help push", False),
        ("rm", "pipenv --python 3 run rm x", True),
    ],
)
def test_options_of_unknown_programs_may_take_a_word(rule: str, command: str, denied: bool) -> None:
    assert verdict(Policy(deny_commands=[rule]), command) == (f"{rule!r} is denied" if denied else "")


@pytest.mark.parametrize(
    "command",
    [
        *("PATH=/tmp/evil:$PATH ls", "PATH=/tmp/evil; ls", "export PATH=/tmp/evil; ls", "export 'PATH=/tmp/evil'; ls"),
        *("read PATH <<< /tmp/evil; ls", "printf -v PATH /tmp/evil; ls", "LD_LIBRARY_PATH=/tmp ls", "LD_PRELOAD=x ls"),
        *("BASH_ENV=x ls", "ENV=x ls", "PATH+=:/tmp/evil ls", "declare -x PATH=/tmp/evil", "hash -p /tmp/evil ls"),
        *("alias ls=evil", "ls() { evil; }; ls"),
    ],
)
def test_what_changes_the_meaning_of_names_is_not_allowed(command: str) -> None:
    allow = ["ls", "export", "read", "printf", "declare", "hash", "alias"]
    assert verdict(Policy(allow=allow), command)
    assert verdict(Policy(allow=allow), "ls; export X=1; read x; hash -r; ls() { printf a; }") == ""


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


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("ls -l", True),
        ("/bin/ls", True),
        ("git status --short", True),
        ("git -C x status", False),
        ("git push", False),
        ("ls && git log", True),
        ("ls && rm x", False),
        ("ls $(rm x)", False),
        ("ls `rm`", False),
        ("env X=1 ls", False),
        ("X=1 ls", True),
        ("X=1", True),
        ("bash -c ls", False),
        ("$LS", False),
        ("l?", False),
        ("ls 'x", False),
        ("", True),
        ("echo a{b,c}", True),
        ("ls $X", True),
        ("git $X", False),
    ],
)
def test_all_that_runs_must_be_allowed(command: str, allowed: bool) -> None:
    said = verdict(Policy(allow=["ls", "git status", "git log", "echo"]), command)
    assert (said == "") == allowed, said


def test_nothing_allowed_is_nothing() -> None:
    assert verdict(Policy(allow=[]), "ls") == "'ls' is not allowed; nothing is"
    assert verdict(Policy(allow=["cat", "git log"]), "ls x") == "'ls x' is not allowed; cat, git log is"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo 'open", "it cannot be read as bash"),
        ("if a", "it cannot be read as bash"),
        ("$CMD x", "it does not say the name of a command: write that out"),
        ("curl x | bash", "it does not say what bash reads: write that out"),
        ('eval "$X"', "it does not say the text that eval runs: write that out"),
        ("git $X", "'git push' is denied"),
    ],
)
def test_strict_refuses_what_it_cannot_judge(command: str, said: str) -> None:
    assert verdict(Policy(strict=True, deny_commands=["git push"]), command).startswith(said)
    assert verdict(Policy(deny_commands=["git push"]), command) == ""


def test_strict_takes_what_it_can() -> None:
    assert verdict(Policy(strict=True), "for x in a $(ls); do echo \"$x\" | tee y; done <<'E'\n$(z\nE") == ""


@pytest.mark.parametrize(
    ("command", "allow", "asked", "ran"),
    [
        ("yes", None, True, True),
        ("no", None, True, False),
        ("ls", ["ls"], False, True),
        ("yes", ["ls"], True, True),
        ("ls; no", ["ls"], True, False),
    ],
)
def test_somebody_is_asked(command: str, allow: list[str] | None, asked: bool, ran: bool) -> None:
    questions: list[tuple[str, str, str]] = []

    def confirm(command: str, agent: str, cwd: str) -> bool:
        questions.append((command, agent, cwd))
        return "yes" in command

    policy = Policy(confirm=confirm, allow=allow)
    try:
        policy.check(Request(command.encode()), agent="a1", cwd="/x")
        assert ran
    except PolicyRefused as refused:
        assert str(refused) == "refused by policy: it was not confirmed"  # noqa: PT017 - both ways are looked at
        assert not ran
    assert questions == ([(command, "a1", "/x")] if asked else [])


def test_nobody_is_asked_about_what_is_denied() -> None:
    policy = Policy(deny=["rm"], confirm=lambda *_: pytest.fail("asked"))
    assert verdict(policy, "rm x") == "it contains 'rm'"


@pytest.mark.parametrize(
    ("low", "high", "asked", "given"),
    [
        (None, None, None, None),
        (None, None, 5, 5),
        (None, 10, None, 10),
        (None, 10, 30, 10),
        (None, 10, 3, 3),
        (2, 10, 1, 2),
        (2, None, 1, 2),
        (2, None, None, None),
        (3, 3, 9, 3),
    ],
)
def test_time_limits_are_clamped(
    low: float | None, high: float | None, asked: float | None, given: float | None
) -> None:
    request = Request(b"x", timeout=asked, limits=Limits(7), isolated=True)
    found = Policy(min_timeout=low, max_timeout=high).check(request)
    assert found == Request(b"x", timeout=given, limits=Limits(7), isolated=True)


def test_a_command_has_a_greatest_size_in_bytes() -> None:
    policy = Policy(max_command=4)
    assert verdict(policy, "éé") == ""
    assert verdict(policy, "ééa") == "it is 5 bytes long, over 4: put it into a file"
    assert verdict(Policy(max_command=1), "") == ""


def test_the_environment_is_filtered_by_prefix_pattern_and_value() -> None:
    policy = Policy(
        hide_prefixes=["AWS_", "OPENAI_"],
        hide_names=["TOKEN$", re.compile("(?i)secret")],
        hide_values=[r"^ghp_\w+", re.compile("BEGIN .* KEY")],
    )
    kept = {"PATH": "/bin", "TOKENS": "1", "MY_AWS_X": "2", "X": "a ghp_x"}
    gone = {"AWS_X": "1", "OPENAI_KEY": "2", "A_TOKEN": "3", "mySecret": "4", "Y": "ghp_abc", "Z": "-BEGIN A KEY-\nx"}
    assert policy.environment({**kept, **gone}) == kept
    assert Policy().environment({**kept, **gone}) == {**kept, **gone}


def test_hidden_and_named_values_are_secrets_too() -> None:
    policy = Policy(hide_prefixes=["AWS_"], secrets=["named-one"], mask_secrets=True)
    secrets = policy.known_secrets({"AWS_X": "hidden-one", "A_TOKEN": _TOKEN, "X": "plain-one"})
    assert secrets.mask(f"hidden-one {_TOKEN} named-one plain-one") == "*** *** *** plain-one"


@pytest.mark.parametrize("mask_secrets", [False, True])
def test_what_somebody_has_named_a_secret_is_one(mask_secrets: bool) -> None:
    policy = Policy(secrets=["pin", "7"], mask_secrets=mask_secrets)
    secrets = policy.known_secrets({"A_TOKEN": _TOKEN, "B_TOKEN": "short"})
    token = "***" if mask_secrets else _TOKEN
    assert secrets.mask(f"pin 127 {_TOKEN} short") == f"*** 12*** {token} short"


@pytest.mark.parametrize(
    "settings",
    [
        {"deny": "rm"},
        {"deny": [""]},
        {"deny": [1]},
        {"deny": [re.compile(b"x")]},
        {"deny": {"rm": 1}},
        {"deny_commands": "rm"},
        {"deny_commands": [" "]},
        {"deny_commands": [re.compile("x")]},
        {"allow": "ls"},
        {"allow": [""]},
        {"allow": [None]},
        {"confirm": True},
        {"strict": "yes"},
        {"strict": 1},
        {"strict": None},
        {"mask_secrets": "no"},
        {"deny_commands": None},
        {"hide_prefixes": 3},
        {"max_timeout": "5"},
        {"confirm_timeout": 0},
        {"confirm_timeout": float("nan")},
        {"max_timeout": -1},
        {"min_timeout": 1e400},
        {"min_timeout": 3, "max_timeout": 2},
        {"max_command": 0},
        {"max_command": -1},
        {"max_command": True},
        {"max_command": 1.5},
        {"hide_prefixes": "AWS"},
        {"hide_prefixes": [""]},
        {"hide_names": ["("]},
        {"hide_values": "x"},
        {"secrets": ["\ud800"]},
        {"secrets": "x"},
    ],
)
def test_bad_settings_are_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        Policy(**settings)


@given(st.binary(max_size=80).filter(lambda command: b"\0" not in command))
def test_any_command_is_taken_or_refused(command: bytes) -> None:
    policy = Policy(strict=True, allow=["ls"], deny=["x", re.compile("y")], deny_commands=["rm"], max_command=70)
    try:
        assert policy.check(Request(command)).command == command
    except PolicyRefused as refused:
        assert refused.code == "policy_refused"  # noqa: PT017 - both ways are looked at


def test_a_session_of_ones_own(sh: Session) -> None:
    policy = Policy(deny_commands=["rm"], max_timeout=5)
    request = policy.check(Request(b"echo hi"))
    assert sh.run(request.command, timeout=request.timeout).stdout == "hi\n"
    with pytest.raises(PolicyRefused, match=r"^refused by policy: 'rm' is denied$"):
        policy.check(Request(b"echo $(rm x)"))


def result(stdout: bytes, omitted: int = 0, cut: int = 0) -> Result:
    return Result(stdout, b"", 0, None, "/", 0.0, "exited", stdout_omitted=omitted, stdout_cut=cut)


@pytest.mark.parametrize(
    ("came", "shown"),
    [
        (result(b"a s3cr3t-t0ken b"), b"a *** b"),
        (result(b"\xff s3cr3t-t0ken \xe2\x82\xac"), b"\xff *** \xe2\x82\xac"),
        (result(b"nothing"), b"nothing"),
        (result(b"a s3cr3t-t0ken b", 9, 2), b"a *** b"),
        (result(b"head s3cr3t-rest tail", 99, 12), b"head ***rest tail"),
        (result(b"head t0ken tail", 99, 5), b"head *** tail"),
        (result(b"head s3cr3t-tXt0ken tail", 99, 13), b"head ***Xt0ken tail"),
        (result(b"head s3cr3t-t-t0ken tail", 99, 13), b"head ****** tail"),
        (result(b"head s3ken", 99, 7), b"head s3***"),
    ],
)
def test_results_are_masked_also_where_the_middle_was_dropped(came: Result, shown: bytes) -> None:
    found = Secrets({"A_TOKEN": _TOKEN}).mask_result(came)
    assert found.stdout_bytes == shown
    assert found.stdout_omitted == came.stdout_omitted
    assert 0 <= found.stdout_cut <= len(shown)
    assert isinstance(found.stdout, str)


@given(st.text("s3cr-t0ken \n", max_size=30), st.text("s3cr-t0ken \n", max_size=30), st.integers(1, 9))
def test_no_secret_is_shown_on_either_side_of_a_cut(head: str, tail: str, size: int) -> None:
    data = (head + _TOKEN[:size]).encode(), (_TOKEN[size:] + tail).encode()
    found = Secrets({"A_TOKEN": _TOKEN}).mask_result(result(b"".join(data), 5, len(data[0])))
    before, after = found.stdout_bytes[: found.stdout_cut], found.stdout_bytes[found.stdout_cut :]
    assert _TOKEN.encode() not in before
    assert _TOKEN.encode() not in after
    assert size < 3 or not before.endswith(_TOKEN[:size].encode())
    assert len(_TOKEN) - size < 3 or not after.startswith(_TOKEN[size:].encode())


class _Says:
    async def __call__(self, *_: str) -> bool:
        return False


@pytest.mark.parametrize(
    "confirm", [_Says().__call__, lambda *names: _Says()(*names), _Says()], ids=["function", "lambda", "object"]
)
def test_a_coroutine_is_no_yes(confirm: Callable[..., Any]) -> None:
    with pytest.raises(InvalidRequest, match="only by an async tool"):
        Policy(confirm=confirm).check(Request(b"rm x"))


def test_a_policy_does_not_show_its_secrets() -> None:
    assert _TOKEN not in repr(Policy(secrets=[_TOKEN]))
    wrong: Any = [_TOKEN.encode()]
    with pytest.raises(InvalidRequest, match=r"^secrets are texts, not bytes$"):
        Policy(secrets=wrong)
