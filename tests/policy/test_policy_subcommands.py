"""Rules of several words: a subcommand is found behind options, and no other word is taken for it."""

from __future__ import annotations

import pytest
from policies import verdict

from shellsession.policy.rules import Policy


@pytest.mark.parametrize(
    ("rule", "command", "denied"),
    [
        ("git push", "git push origin", True),
        ("git push", "git commit", False),
        ("git push", "git", False),
        ("git push", "git --version push", False),
        ("git push --force*", "git push origin --force-with-lease", True),
        ("git push --force*", "git push origin", False),
        ("mkfs*", "mkfs.ext4 /dev/sda", True),
        ("/usr/bin/git", "git x", False),
        ("/usr/bin/git", "/usr/bin/git x", True),
        ("rm *", "rm", False),
        ("kill -[9K]*", "kill -9 1", True),
        ("kill -[9K]*", "kill -15 1", False),
        ("rm -rf", "rm -fr x", True),
        ("rm -rf", "rm x -r -v -f", True),
        ("rm -rf", "rm -r x; rm -f x", False),
        ("rm -rf", "rm -i -r x", False),
        ("find -delete", "find . -depth -links 2 -type d", False),
        ("find -delete", "find . -delete", True),
        # a program that the table does not know: each option may take a word
        ("make install", "make -C b install", True),
        ("make install", "make -f M -C b -k install", True),
        ("make install", "make DESTDIR=/x install", True),
        ("make install", "make all install", False),
        ("make install", "make -C b all install", False),
        ("make install", "make -C install all", True),
    ],
)
def test_rules_are_words_in_their_order(rule: str, command: str, denied: bool) -> None:
    assert verdict(Policy(deny_commands=[rule]), command) == (f"{rule!r} is denied" if denied else "")


_RULES = ("git push", "docker run", "npm publish", "cargo publish", "frob go")


@pytest.mark.parametrize(
    "command",
    [
        *("git stash push", "git --no-pager log push", "git checkout push", "git -C push status", 'git log "$X"'),
        *('git commit -m "$MSG"', 'git -C "$dir" status', "git diff $(git merge-base a b)", "docker exec x run"),
        *("docker -H run ps", "npm run publish", "npm --prefix publish test", "frob stop go"),
        "git commit -m \"$(cat <<'E'\nplease do not\ngit push\nE\n)\"",
    ],
)
def test_a_subcommand_is_not_any_word(command: str) -> None:
    assert verdict(Policy(deny_commands=_RULES, strict=True), command) == ""
    assert verdict(Policy(deny_commands=_RULES), command) == ""


@pytest.mark.parametrize(
    ("command", "when_strict"),
    [
        ("git -C x push", False),
        ('git -C "$dir" push', False),
        ("git -c a=b --no-pager --git-dir=x push origin", False),
        ("git --git-dir x -p --work-tree y push", False),
        ("git p\\ush", False),
        ('git "$x" push', False),
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
    assert verdict(Policy(deny_commands=_RULES, strict=True), command).endswith("' is denied")
    assert (verdict(Policy(deny_commands=_RULES), command) == "") == when_strict
