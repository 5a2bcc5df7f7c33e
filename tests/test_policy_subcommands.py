"""Rules of several words: a subcommand is found behind options, and is not any word that reads like it."""

from __future__ import annotations

import pytest
from policies import verdict

from shellsession.policy.rules import Policy


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
        ("git push", "git push --help", False),
        ("git push", "git -C x push --help origin", False),
        ("git push", "git push origin --help", True),
        ("git commit", "git commit -m --help", True),
        ("yarn test", "yarn test --help", True),  # a script of that name may run
        ("rm", "pipenv --python 3 run rm x", True),
    ],
)
def test_options_of_unknown_programs_may_take_a_word(rule: str, command: str, denied: bool) -> None:
    assert verdict(Policy(deny_commands=[rule]), command) == (f"{rule!r} is denied" if denied else "")


@pytest.mark.parametrize(
    ("rule", "command", "denied"),
    [
        ("npm publish", "npm --access public publish", True),
        ("npm publish", "npm --scope @x --otp 1 publish", True),
        ("npm publish", "npm --silent run publish", False),
        ("npm publish", "npm --no-audit run publish", False),
        ("npm publish", "npm --foo run publish", True),  # either may be it
        ("npm publish", "npm --foo=bar run publish", False),
        ("npm publish", "npm -s run publish", False),
        ("kubectl delete", "kubectl --username u --password p delete x", True),
        ("kubectl delete", "kubectl --insecure-skip-tls-verify get delete", False),
        ("kubectl delete", "kubectl -n x -- get delete", False),
        ("helm uninstall", "helm --registry-config f uninstall y", True),
        ("helm uninstall", "helm --debug get uninstall", False),
        ("systemctl stop", "systemctl --when 5 stop x", True),
        ("systemctl stop", "systemctl --user --now status stop", False),
        ("cargo publish", "cargo +nightly --manifest-path x publish", True),
        ("cargo publish", "cargo +nightly --locked test publish", False),
        ("git push", "git --paginate --no-optional-locks stash push", False),
        ("git push", "git --no-pager log push", False),
        ("docker run", "docker --tls rm run", False),
        ("apt-get remove", "apt-get -y --allow-downgrades install remove", False),
        ("rm", "docker --foo bar exec c rm x", True),
    ],
)
def test_options_that_are_not_known_may_take_a_word(rule: str, command: str, denied: bool) -> None:
    assert verdict(Policy(deny_commands=[rule]), command) == (f"{rule!r} is denied" if denied else "")


@pytest.mark.parametrize(
    ("command", "denied"),
    [
        ("alias g=git\ng push", True),
        ("alias g='git -C x' p=g\np push origin", True),
        ("alias g='cd x && git'\ng push", True),
        ("alias git='git -c a=b'\ngit push", True),
        ('alias g="git -C $x"\ng push', True),
        ("alias g=git\nls; (g 'push')", True),
        ("alias a=b b=a\na push", False),
        ("alias n='true;'\nn git push", True),
        ("alias n='A=1'\nn git push", True),
        ("alias n='! A=1 env'\nn git push", True),
        ("alias n='>/dev/null'\nn git push", True),
        ("alias n='true |'\nn git push", True),
        ("alias n='('\nn git push)", True),
        ("alias n='if true; then'\nn git push; fi", True),
        ("alias n='for x in 1; do'\nn git push; done", True),
        ("alias n='echo a #'\nn git push", False),
        ("alias g=git\ng status push; echo g push", False),
        ("alias ls='ls -l' x=\nls push; x push", False),
    ],
)
def test_an_alias_of_the_text_is_what_it_stands_for(command: str, denied: bool) -> None:
    assert verdict(Policy(deny_commands=["git push"]), command) == ("'git push' is denied" if denied else "")
