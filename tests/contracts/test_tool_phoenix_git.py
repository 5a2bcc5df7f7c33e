"""Document 004, REQ-BASH-007 and the rebase guard of REQ-BASH-008: real commits in real repositories."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest
import repositories
from phoenixes import Bash
from repositories import TRAILER, Repository, bare, git
from system import wait_until

from shellsession import Agents
from shellsession.contracts import phoenix
from shellsession.contracts.phoenix import ToolResult

pytestmark = repositories.MARKS

pattern, repository, bash = repositories.pattern, repositories.repository, repositories.bash
temporary, isolated = repositories.temporary, repositories.isolated


# What is committed, and the messages that come of it, without the trailer.
COMMITS: Final[dict[str, list[str]]] = {
    "git commit -qm one": ["one"],
    "git commit -qm 'a b' -m two -m \"it's\"": ["a b\n\ntwo\n\nit's"],
    "echo text >../message; git commit -qF ../message": ["text"],
    "git commit -q -F - <<EOF\nsubject\n\nbody $(echo x)\nEOF": ["subject\n\nbody x"],
    "git commit -qm \"$(cat <<'EOF'\nsubject `it's`\n\n$body\nEOF\n)\"": ["subject `it's`\n\n$body"],
    "echo piped | git commit -qF -": ["piped"],
    "git commit -qm a && git commit -q --amend -m b": ["b"],
    "git commit -qm a; git commit -q --amend --no-edit; git commit -q --amend --no-edit": ["a"],
    "git commit -qm a; git commit -qm b --allow-empty; git commit --allow-empty -qm c": ["a", "b", "c"],
    "for i in 1 2 3; do git commit --allow-empty -qm $i; done": ["1", "2", "3"],
    'D=$PWD; cd / && git -C "$D" commit -qm there': ["there"],
    "cd /; git --git-dir $OLDPWD/.git --work-tree $OLDPWD commit -qm far": ["far"],
    "git -c user.name=B -c core.abbrev=9 --no-pager commit -qm set": ["set"],
    "x=$(git commit -m sub); [[ $x == *sub* ]]": ["sub"],
    "if git commit -qm cond; then :; fi": ["cond"],
    'commit() { git commit "$@"; }; commit -qm func': ["func"],
    "(git commit -qm child)": ["child"],
    "git commit -qm job & wait $!": ["job"],
    "GIT_AUTHOR_NAME=Z git commit -qm assigned": ["assigned"],
    "eval 'git commit -qm evaled'": ["evaled"],
    "set -eu -o pipefail; git commit -qm strict | cat": ["strict"],
    "git config alias.ci 'commit -q'; git ci -m aliased": ["aliased"],
    "git config alias.cm 'commit -m'; git cm 'msg one'": ["msg one"],
    "git config alias.again 'commit --amend -C'; git commit -qm one; git again HEAD": ["one"],
    f"git commit -qm 'a\n\n{TRAILER}'": ["a"],
    f"git commit -qm a -m '{TRAILER}'": ["a"],
    f"git commit -qm a --trailer '{TRAILER}'": ["a"],
    f"git commit -qm 'a\n\n{TRAILER.lower()}\nReviewed-by: B <b@c>' && git commit -q --amend --no-edit": ["a"],
    "git commit -qs -m signed": ["signed"],
    "git commit -q --fixup=HEAD": ["fixup! base"],
    "git commit -qam all": ["all"],
    "git commit -q -C HEAD": ["base"],
}
# Where git itself would not see that the trailer is there, or would write it in its own way.
ONCE: Final = [
    f"git commit -qm 't\n\n{TRAILER}\n\nFixes #12'",
    f"git commit -qm t -m '{TRAILER}' -m 'Fixes #12'",
    f"git commit -qm '{TRAILER}'",
    "git config trailer.separators '=#'; git commit -qm t",
    "git config trailer.ifmissing doNothing; git commit -qm t",
    "git commit -qm 'not the line: " + TRAILER + " in a text'",
]
# Whoever starts git, it is one commit with the message "m".
FORMS: Final = [
    "command git commit -qm m",
    "builtin command git commit -qm m",
    "/usr/bin/git commit -qm m",
    "cd / && /usr/bin/git -C $OLDPWD commit -qm m",
    "timeout 60 git commit -qm m",
    "env GIT_AUTHOR_NAME=Z git commit -qm m",
    "env -S 'git commit -qm m'",
    "nice -n 5 git commit -qm m",
    "nohup git commit -qm m",
    "echo m | xargs git commit -qm",
    "echo m | xargs -I@ git commit -qm @",
    "find file -exec git commit -qm m \\;",
    "bash -c 'git commit -qm m'",
    "bash <<'EOF'\ngit commit -qm m\nEOF",
    "exec git commit -qm m",
    "(exec -a x git commit -qm m); exec git status --short",
    "sh -c 'git commit -qm m'",
    "sh -ec 'cd . && git commit -qm \"$1\"' name m",
    "sh <<'E'\ngit commit -qm m\nE",
    'GIT=$(command -v git); "$GIT" commit -qm m',
    "git config alias.ci commit; git ci -qm m",
    "git config alias.x '!git commit'; git x -qm m",
    "printf '#!/bin/sh\\ngit commit -qm m\\n' >../script; chmod +x ../script; ../script",
    "printf 'm:\\n\\tgit commit -qm m\\n' >../Makefile; make -sf ../Makefile",
    'python3 -c \'import subprocess as s; s.run(["git", "commit", "-qm", "m"])\'',
    "git -c alias.ci='!f() { git commit -qm \"$1\"; }; f' ci m",
    "git --no-pager -c x.y=$'commit\\n' --git-dir .git commit -qm m",
    "git commit --no-verify -qm m",
]
# Where the environment of the call does not arrive, or says otherwise: the commit is made as it was asked for.
BEYOND: Final = [
    'env -i PATH="$PATH" HOME="$HOME" git commit -qm m',  # as sudo does
    "git -c core.hooksPath=/dev/null commit -qm m",
    "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=B; git commit -qm m",
    "../script",  # its call does not say "commit"
    "git ci -qm m",
]


# A line that git takes for the end of a message, with which a patch begins; in `git log` it does not.
DIVIDED: Final = [
    "git commit -qm $'a\\n\\n---\\nb'",
    "git commit -q -m a -m $'---\\nb' && git commit -q --amend --no-edit",
    "git commit -qm $'a\\n\\n---\\nb' -m 'Reviewed-by: B <b@c>'",
    f"git commit -qm $'a\\n\\n---\\nb\\n\\n{TRAILER}'",
    "printf 'a\\n\\n---\\nb' | git commit -qF - && git commit -q --amend --no-edit",
]


# Where git keeps lines that begin with "#", they are text; where it strips them, they are gone.
MARKED: Final = [
    "git commit -qm $'Fix crash\\n\\nCloses\\n#12'",
    "git commit -qm $'a\\n# b'",
    "git commit -qm '# a'",
    "git commit -qam $'a\\n\\n#b\\n\\n'",
    "git commit -qm $'a\\n\\nReviewed-by: B <b@c>\\n# b'",
    "git commit -qF - <<'EOF'\na\n\nb\n# c\nEOF",
    "git commit -q --cleanup=verbatim -m $'x\\n# y'",
    "git commit -q --cleanup=verbatim -m $'x\\n\\n# y\\n\\n'",
    "git commit -q --cleanup=whitespace -m $'x\\n# y'",
    "git commit -q --cleanup scissors -m $'x\\n# ------------------------ >8 ------------------------\\ny'",
    "git commit -q --cleanup=strip -m $'x\\n# y'",
    "git config commit.cleanup strip; git commit -qm $'x\\n# y'",
    "git -c commit.cleanup=verbatim commit -qm $'x\\n# y'",
    "git config core.commentChar ';'; git commit -qm $'x\\n# y\\n; z'",
    "git config core.commentChar auto; git commit -qm $'x\\n# y'",
    "git commit -qm $'a\\n# b' && git commit -q --amend --no-edit",
    "git commit -qm $'a\\n# b' && git commit -q --amend -C HEAD",
    "git commit -qm $'a\\n---\\n# b'",
    # an editor is shown comments, which are stripped
    "GIT_EDITOR=true git commit -q -e -m $'x\\n# y'",
    "GIT_EDITOR='sed -i 1,1s/^/x/' git commit -q",
    "GIT_EDITOR=true git commit -q -t <(echo t) -m $'x\\n# y' --edit",
    "git commit -qm x; GIT_EDITOR='sed -i 1s/x/y/' git commit -q --amend",
    "git commit -qm x; GIT_EDITOR=true git commit -q -c HEAD --amend",
    "GIT_EDITOR=true git commit -qem $'x\\n# y' --cleanup=strip",
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", MARKED, ids=range(len(MARKED)))
def test_lines_with_the_mark_of_a_comment_are_where_git_has_them(
    isolated: Bash, repository: Repository, command: str
) -> None:
    subprocess.run(["bash", "-c", command], check=True)
    plain = repository.messages()
    git("reset", "-q", "--soft", "HEAD~1")
    found = isolated({"command": command})
    assert not found.is_error, found
    (message,) = repository.messages()
    assert message.split("\n").count(TRAILER) == 1
    assert re.fullmatch(re.escape(plain[0].rstrip("\n")) + rf"\n\n?{TRAILER}\n+", message), (plain, message)


@pytest.mark.parametrize("command", DIVIDED)
def test_a_divider_does_not_end_the_message(isolated: Bash, repository: Repository, command: str) -> None:
    assert isolated({"command": command}) == ToolResult("")
    (message,) = repository.messages()
    assert message.startswith("a\n\n---\nb\n")
    assert message.count(TRAILER) == 1
    assert git("log", "-1", "--format=%(trailers)").splitlines()[-2] == TRAILER
    assert len(repository.messages()) == 1


@pytest.mark.parametrize("command", ONCE)
def test_the_trailer_is_a_line_once(isolated: Bash, repository: Repository, command: str) -> None:
    assert not isolated({"command": command}).is_error
    (message,) = repository.messages()
    assert message.split("\n").count(TRAILER) == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", COMMITS, ids=range(len(COMMITS)))
def test_a_commit_gets_the_trailer_once(isolated: Bash, repository: Repository, command: str) -> None:
    found = isolated({"command": command})
    assert not found.is_error, found
    assert [bare(message) for message in repository.messages()] == COMMITS[command]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", FORMS, ids=range(len(FORMS)))
def test_a_commit_gets_the_trailer_whoever_starts_git(isolated: Bash, repository: Repository, command: str) -> None:
    found = isolated({"command": command})
    assert not found.is_error, found
    assert [bare(message) for message in repository.messages()] == ["m"]


@pytest.mark.parametrize("state", [":", "set -eux", "set -o posix; set -a", "set -f; readonly GIT_EDITOR=:"])
def test_with_persistent_too(repository: Repository, state: str) -> None:
    some = [form for form in FORMS if re.search("-I@|alias|script|make|/usr|^sh", form)]
    with Agents() as agents:
        bash = phoenix.tool(agents, agent="a1", persistent=True)
        bash({"command": state})
        for form in some:
            assert not bash({"command": f"({form.replace(' -qm', ' --allow-empty -qm')}\n)"}).is_error
        assert bash({"command": "(exit 7)"}).code == "command_failed"
    assert [bare(message) for message in repository.messages()] == ["m"] * len(some)


@pytest.mark.parametrize("command", BEYOND, ids=range(len(BEYOND)))
def test_what_is_not_reached_is_committed_as_asked(bash: Bash, repository: Repository, command: str) -> None:
    git("config", "alias.ci", "commit")
    script = repository.path.parent / "script"
    script.write_text("#!/bin/sh\ngit commit -qm m\n")
    script.chmod(0o755)
    assert bash({"command": command}) == ToolResult("")
    assert repository.messages() == ["m\n"]


def test_in_the_background_too(bash: Bash, repository: Repository) -> None:
    found = bash({"command": "git commit -qm later && git commit -q --allow-empty -F - <<<more", "background": True})
    path = Path(re.findall("<output_file>(.*)</output_file>", found.output)[0])
    wait_until(lambda: path.read_text() == "\n\n[background process completed]\n", "its end")
    assert [bare(message) for message in repository.messages()] == ["later", "more"]


def test_the_trailer_can_be_chosen_or_left_out(repository: Repository) -> None:
    with Agents() as agents:
        for number, trailer in enumerate(('Assisted-by: it\'s a "$(bot)" \\n', None)):
            for persistent in (False, True):
                name = f"{number}{persistent}"
                bash = phoenix.tool(agents, agent=name, trailer=trailer, persistent=persistent)
                bash({"command": f"git commit -q --allow-empty -m {name}"})
                expected = f"{name}\n" + (f"\n{trailer}\n" if trailer else "")
                assert repository.messages()[-1] == expected


# What git commits on its own account; "x" and "y" change the same line of the same file.
OTHERS: Final = [
    "git merge -q --no-ff y -m merged",
    "git merge -q x y -m octopus || :",
    "git merge -q x; git merge y || git checkout -q --ours file; git add file; git merge --continue",
    "git pull -q --no-rebase --no-ff --no-edit . x",
    "git cherry-pick y",
    "git cherry-pick -e -x y",
    "git cherry-pick x y || { echo 3 >file; git add file; git cherry-pick --continue; }",
    "git revert --no-edit HEAD",
    "git revert -e HEAD",
    "git switch -q x; GIT_SEQUENCE_EDITOR='sed -i s/pick/reword/' git rebase -q --interactive HEAD~",
    "git switch -q x; GIT_SEQUENCE_EDITOR='sed -i 2s/pick/squash/' git rebase -q --interactive HEAD~2",
    "git switch -q x; git rebase -q y || { echo 3 >file; git add file; git rebase --continue; }",
    "git switch -q x; git rebase -q --apply --force-rebase HEAD~",
    "git format-patch -q -1 x; git am -q 0001*",
    "echo z >file; git stash -q; git stash list --format=%s",
    "git notes add -m noted; git tag -am tagged tag; git commit-tree -m t 'HEAD^{tree}'",
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", OTHERS, ids=range(len(OTHERS)))
def test_what_git_commits_by_itself_gets_none(isolated: Bash, repository: Repository, command: str) -> None:
    git("commit", "-qm", "second")
    git("branch", "-M", "master")
    for name in ("x", "y"):
        git("switch", "-qc", name, "master")
        (repository.path / "file").write_text(name)
        git("commit", "-qam", name)
    git("switch", "-q", "master")
    (repository.path / "other").touch()
    git("add", "other")
    git("commit", "-qm", "third")
    found = isolated({"command": f"export GIT_EDITOR=true; {command} # no git commit"})
    assert not found.is_error, found
    assert git("log", "--all", "--format=%H%B").count(TRAILER) == 0
    assert git("reflog", "--format=%H").count("\n") > 3


def test_a_merge_that_git_commit_concludes_gets_the_trailer(isolated: Bash, repository: Repository) -> None:
    found = isolated({"command": "git commit -qm a; git switch -qd @~; echo x >file; git commit -qam b"})
    found = isolated({"command": "git merge - || git commit -qam merged"})
    assert "CONFLICT" in found.output
    assert [bare(message) for message in repository.messages()] == ["a", "b", "merged"]


def test_in_a_rebase_a_commit_of_the_command_gets_the_trailer(isolated: Bash, repository: Repository) -> None:
    git("commit", "-qm", "second")
    assert not isolated({"command": "git rebase -q --root -x 'git commit -q --amend --no-edit'"}).is_error
    assert git("log", "--format=%B").count(TRAILER) == 2


def test_the_entry_of_the_configuration_stands_behind_those_of_the_host(
    bash: Bash, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("COUNT", "1"), ("KEY_0", "user.name"), ("VALUE_0", "Host")):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    asked = "git config user.name; env | grep -c '^GIT_CONFIG_[CKV]'; git log -1 --format=%an"
    found = bash({"command": f"git commit -qm m; {asked}"})
    assert found == ToolResult("Host\n5\nHost\n")
    assert (
        bash({"command": "git config user.name; git config core.hooksPath; echo $GIT_CONFIG_COUNT"}).output
        == "Host\n1\n"
    )
    assert [bare(message) for message in repository.messages()] == ["m"]


@pytest.mark.parametrize("persistent", [False, True])
def test_an_interactive_rebase_is_refused_in_the_foreground(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, persistent: bool
) -> None:
    monkeypatch.setenv("GIT_SEQUENCE_EDITOR", "true")
    git("commit", "-qm", "second")
    with Agents() as agents:
        bash = phoenix.tool(agents, agent="a1", persistent=persistent)
        for before in ("", "true; ", "cd . && "):
            found = bash({"command": f"{before}git rebase -i HEAD~1"})
            assert found.is_error
            assert "Interactive rebase requires background=true" in found.output
        assert bash({"command": "git status | head -1; printenv GIT_SEQUENCE_EDITOR"}).output.endswith("\ntrue\n")
        bash({"command": "git rebase --abort"})
        assert not bash({"command": "git rebase --interactive HEAD~1"}).is_error, "that is not the document's text"
        found = bash({"command": "git rebase -i HEAD~1", "background": True})
        path = Path(re.findall("<output_file>(.*)</output_file>", found.output)[0])
        said = wait_until(lambda: (text := path.read_text()).endswith("]\n") and text, "its end")
        assert "requires background" not in str(said)
        assert "[background process completed]" in str(said)
