"""Document 004, REQ-BASH-007 and the rebase guard of REQ-BASH-008: real commits in real repositories."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest
import repositories
from phoenixes import Bash
from repositories import TRAILER, Repository, bare, git
from support import wait_until

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
    "git commit -q --message=long": ["long"],
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
    "x=`git commit -m sub`": ["sub"],
    "if git commit -qm cond; then :; fi": ["cond"],
    'commit() { git commit "$@"; }; commit -qm func': ["func"],
    "(git commit -qm child)": ["child"],
    "git commit -qm job & wait $!": ["job"],
    "GIT_AUTHOR_NAME=Z git commit -qm assigned": ["assigned"],
    "GIT=git; $GIT commit -qm variable": ["variable"],
    "eval 'git commit -qm evaled'": ["evaled"],
    "set -eu -o pipefail; git commit -qm strict | cat": ["strict"],
    "git config alias.ci 'commit -q'; git ci -m aliased": ["aliased"],
    "git config alias.ci 'commit -q'; git -C . ci -m aliased": ["aliased"],
    "git config alias.cm 'commit -m'; git cm 'msg one'": ["msg one"],
    "git config alias.cm 'commit -qam'; git -C . cm 'msg one'": ["msg one"],
    "git config alias.again 'commit --amend -C'; git commit -qm one; git again HEAD": ["one"],
    "git config alias.wip 'commit -m wip --'; git wip file": ["wip"],
    "git commit -qm 'do not git commit -m this'": ["do not git commit -m this"],
    f"git commit -qm 'a\n\n{TRAILER}'": ["a"],
    f"git commit -qm a -m '{TRAILER}'": ["a"],
    f"git commit -qm a --trailer '{TRAILER}'": ["a"],
    f"git commit -qm 'a\n\n{TRAILER.lower()}\nReviewed-by: B <b@c>' && git commit -q --amend --no-edit": ["a"],
    "git commit -qs -m signed": ["signed"],
    "git commit -q --fixup=HEAD": ["fixup! base"],
    "git commit -q --fixup HEAD -m ''": ["fixup! base"],
    "git commit -qm only -- file": ["only"],
    "git commit -qam all": ["all"],
    "git commit -qm -- && git status --short": ["--"],
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
# Where somebody else starts git: reached where nothing is left behind by it.
BEHIND: Final = [
    "command git commit -qm m",
    "/usr/bin/git commit -qm m",
    "cd / && /usr/bin/git -C $OLDPWD commit -qm m",
    "timeout 60 git commit -qm m",
    "timeout -k 5 1m git commit -qm m",
    "env GIT_AUTHOR_NAME=Z git commit -qm m",
    'env -i PATH="$PATH" HOME="$HOME" git commit -qm m',
    "nice -n 5 git commit -qm m",
    "nohup git commit -qm m",
    "echo m | xargs git commit -qm",
    "echo m | xargs -I {} git commit -qm {}",
    "bash -c 'git commit -qm m'",
    "bash <<'EOF'\ngit commit -qm m\nEOF",
    "nohup bash -c 'cd . && git commit -qm m' >/dev/null",
    "exec git commit -qm m",
    "(exec -a x git commit -qm m); exec git status --short",
    "time git commit -qm m",
    "timeout -s KILL 60 git commit -qm m",
    "env -u X Y=1 git commit -qm m",
    "sh -c 'git commit -qm m'",
    "sh -ec 'cd . && git commit -qm \"$1\"' name m",
    "/bin/sh -c 'echo \"it'\\''s\"; git commit -qm m'",
    "timeout 60 sh -c 'git commit -qm m'",
    'GIT=$(command -v git); "$GIT" commit -qm m',
    "$(which git) -C . commit -qm m",
    '[ -x "$(command -v git)" ] && git commit -qm m',
    "GIT=`type -p git`; timeout 60 $GIT commit -qm m",
    "PATH=$PWD/../bin:$PATH; sudo git commit -qm m",
    "PATH=$PWD/../bin:$PATH; sudo -u root -n A=1 git commit -qm m",
    "PATH=$PWD/../bin:$PATH; sudo sh -c 'git commit -qm m'",
]
# As sudo does it: with another environment, and without functions.
SUDO: Final = """#!/bin/sh
while :; do case $1 in -u) shift 2 ;; -* | *=*) shift ;; *) break ;; esac; done
exec env -i PATH="$PATH" HOME="$HOME" "$@"
"""
# Known not to be reached (see phoenix_git): the commit is made as it was asked for.
BEYOND: Final = [
    "find file -exec git commit -qm m \\;",
    "builtin command git commit -qm m",
    "git config alias.x '!git commit'; git x -qm m",
    "printf '#!/bin/sh\\ngit commit -qm m\\n' >../script; chmod +x ../script; ../script",
    'python3 -c \'import subprocess as s; s.run(["git", "commit", "-qm", "m"])\'',
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
    "git commit -q -m a -m '#1' -m '#2'",
    "git commit -qam $'a\\n\\n#b\\n\\n'",
    "git commit -qm $'a\\n\\nReviewed-by: B <b@c>\\n# b'",
    "git commit -q --message $'a\\n#b' file",
    "git commit -qF - <<'EOF'\na\n\nb\n# c\nEOF",
    "printf 'a\\n#b\\n' >../message; git commit -q --file=../message",
    "printf 'a\\n#b\\n' | git commit -q --file -",
    "git commit -q --cleanup=verbatim -m $'x\\n# y'",
    "git commit -q --cleanup=verbatim -m $'x\\n\\n# y\\n\\n'",
    "git commit -q --cleanup=whitespace -m $'x\\n# y'",
    "git commit -q --cleanup scissors -m $'x\\n# ------------------------ >8 ------------------------\\ny'",
    "git commit -q --cleanup=strip -m $'x\\n# y'",
    "git commit -q -m $'x\\n# y\\nz\\n# a' --cleanup strip",
    "git commit -q --clean=strip -m $'x\\n# y'",
    "git config commit.cleanup strip; git commit -qm $'x\\n# y'",
    "git config commit.cleanup strip; git commit -q --cleanup=default -m $'x\\n# y'",
    "git -c commit.cleanup=verbatim commit -qm $'x\\n# y'",
    "git config core.commentChar ';'; git commit -qm $'x\\n# y\\n; z'",
    "git config core.commentChar auto; git commit -qm $'x\\n# y'",
    "git commit -qm '--cleanup=strip' -m '# y'",
    "git commit -qm $'x\\n# y' -- file",
    "git commit --author 'm <m@n>' -qm $'x\\n# y'",
    "git commit -qm $'a\\n# b' && git commit -q --amend --no-edit",
    "git commit -qm $'a\\n# b' && git commit -q --amend -C HEAD",
    "git commit -qm $'a\\n---\\n# b'",
    "git config alias.cm 'commit -qm'; git cm $'a\\n# b'",
    # an editor is shown comments, which are stripped
    "GIT_EDITOR=true git commit -q -e -m $'x\\n# y'",
    "GIT_EDITOR='sed -i 1,1s/^/x/' git commit -q",
    "GIT_EDITOR=true git commit -q -t <(echo t) -m $'x\\n# y' --edit",
    "git commit -qm x; GIT_EDITOR='sed -i 1s/x/y/' git commit -q --amend",
    "git commit -qm x; GIT_EDITOR=true git commit -q -c HEAD --amend",
    "GIT_EDITOR=true git commit -qem $'x\\n# y' --cleanup=strip",
]


@pytest.mark.parametrize("command", MARKED, ids=range(len(MARKED)))
def test_lines_with_the_mark_of_a_comment_are_where_git_has_them(
    bash: Bash, repository: Repository, command: str
) -> None:
    subprocess.run(["bash", "-c", command], check=True)
    plain = repository.messages()
    git("reset", "-q", "--soft", "HEAD~1")
    found = bash({"command": command})
    assert not found.is_error, found
    (message,) = repository.messages()
    assert message.split("\n").count(TRAILER) == 1
    assert re.fullmatch(re.escape(plain[0].rstrip("\n")) + rf"\n\n?{TRAILER}\n+", message), (plain, message)


@pytest.mark.parametrize("command", DIVIDED)
def test_a_divider_does_not_end_the_message(bash: Bash, repository: Repository, command: str) -> None:
    assert bash({"command": command}) == ToolResult("")
    (message,) = repository.messages()
    assert message.startswith("a\n\n---\nb\n")
    assert message.count(TRAILER) == 1
    assert git("log", "-1", "--format=%(trailers)").splitlines()[-2] == TRAILER
    assert len(repository.messages()) == 1


@pytest.mark.parametrize("command", ONCE)
def test_the_trailer_is_a_line_once(bash: Bash, repository: Repository, command: str) -> None:
    assert not bash({"command": command}).is_error
    (message,) = repository.messages()
    assert message.split("\n").count(TRAILER) == 1


@pytest.mark.parametrize("command", COMMITS, ids=range(len(COMMITS)))
def test_a_commit_gets_the_trailer_once(bash: Bash, repository: Repository, command: str) -> None:
    found = bash({"command": command})
    assert not found.is_error, found
    assert [bare(message) for message in repository.messages()] == COMMITS[command]


@pytest.mark.parametrize("command", BEHIND, ids=range(len(BEHIND)))
def test_a_commit_behind_another_name_gets_the_trailer(isolated: Bash, repository: Repository, command: str) -> None:
    sudo = repository.path.parent / "bin/sudo"
    sudo.parent.mkdir()
    sudo.write_text(SUDO)
    sudo.chmod(0o755)
    found = isolated({"command": command})
    assert not found.is_error, found
    assert [bare(message) for message in repository.messages()] == ["m"]


@pytest.mark.parametrize("command", BEYOND, ids=range(len(BEYOND)))
def test_what_is_not_reached_is_committed_as_asked(bash: Bash, repository: Repository, command: str) -> None:
    found = bash({"command": command})
    assert not found.is_error, found
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


def test_hooks_see_and_may_refuse_the_message(isolated: Bash, repository: Repository) -> None:
    hook = repository.path / ".git/hooks/commit-msg"
    hook.write_text('#!/bin/sh\ncat "$1"\nexit 1\n')
    hook.chmod(0o755)
    found = isolated({"command": "git commit -qm refused"})
    assert found == ToolResult(f"[command failed: exit code 1]\nrefused\n\n{TRAILER}\n", True, "command_failed")


OLD_GIT: Final = """#!/bin/bash
# git as it was before 2.32: commit knows no --trailer
[[ $1 == version ]] && echo 'git version 2.30.2' && exit
for word; do
  [[ $word == --trailer && $* != *interpret-trailers* ]] && echo "error: unknown option \\`trailer'" >&2 && exit 129
done
exec /usr/bin/git "$@"
"""


@pytest.mark.parametrize(
    ("command", "messages"),
    [
        ("git commit -qm one", ["one"]),
        ("git commit -qm one && git commit -q --amend --no-edit", ["one"]),
        (f"git commit -qm 'one\n\n{TRAILER}'", ["one"]),
        ("git commit -q -F - <<<'# kept\n\nbody' --cleanup=verbatim", ["# kept\n\nbody"]),
        ("echo 3 >other; git add other; git commit -qm only file; git diff --cached --name-only", ["only"]),
        ("cd /; git -C $OLDPWD commit -qm far", ["far"]),
        ("git commit --dry-run -qm x", []),
        ("git commit -qm x --nonsense || true", []),
    ],
)
def test_with_a_git_before_trailers(
    bash: Bash, repository: Repository, monkeypatch: pytest.MonkeyPatch, command: str, messages: list[str]
) -> None:
    shim = repository.path.parent / "bin"
    shim.mkdir()
    (shim / "git").write_text(OLD_GIT)
    (shim / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim}:{os.environ['PATH']}")
    found = bash({"command": f"PATH={shim}:$PATH; {command}"})
    assert not found.is_error, found
    assert [bare(message) for message in repository.messages()] == messages
    assert git("log", "--format=%B", "--max-parents=0", cwd=repository.path) == "base\n\n"
    if "only file" in command:
        assert found.output == "other\n"


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
