"""phoenix's co-author trailer: git hooks that add it, and the environment variables that make git run these hooks.

The environment of a call sets ``core.hooksPath``. Every ``git commit`` in it runs the hooks, whether a loop,
``xargs``, a script, a Makefile or a git alias starts it. A hook adds the trailer only if its parent process is a
``git commit``, so a merge, cherry-pick, revert or rebase gets none. Each hook runs the repository's own hook as git
would: with the same arguments, input and status, and without our setting.

* If nobody edits the message, ``prepare-commit-msg`` adds the trailer; ``--no-verify`` does not skip that hook.
* If an editor writes the message, ``commit-msg`` adds it, before the repository's own hook reads the message.
* A message that git refuses as empty gets no trailer.

Only calls whose text has the word "commit" get the setting, as it disturbs tools that install hooks:
``pre-commit install`` and ``git lfs install`` refuse to work with it, and Git LFS cannot add its ``pre-push`` to a
fresh clone.

The setting is an entry of ``GIT_CONFIG_COUNT`` (git 2.31), after those that exist already.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

from .contract import Programs

_PREFIX: Final = "phoenix-git."
_COMMIT: Final = re.compile(r"(?<![\w.-])commit(?![\w-])")
_HOOK: Final = Path(__file__).with_name("phoenix_git.sh").read_text("utf-8")
# All hooks that git looks for, except four. ``push-to-checkout`` and ``proc-receive`` replace an action of git if they
# exist. The other two (see ``_LINKS``) would be started for each change of the index or of a reference.
_NAMES: Final = (
    *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg"),
    *("commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-receive", "update"),
    *("post-receive", "post-update", "pre-auto-gc", "post-rewrite", "sendemail-validate", "p4-changelist"),
    *("p4-prepare-changelist", "p4-post-changelist", "p4-pre-submit"),
)
# Links to the repository's own hooks: git runs these two at the top of the working tree. A dangling link is not a hook,
# and costs nothing.
_LINKS: Final = tuple(
    (name, f"/proc/self/cwd/.git/hooks/{name}") for name in ("post-index-change", "reference-transaction")
)
# Exports an entry, which does nothing until GIT_CONFIG_COUNT includes it.
_ENTRY: Final = r"""_phoenix_count=0
[[ ! -x %(path)s/commit-msg ]] || {
_phoenix_count=${GIT_CONFIG_COUNT:-0}
\builtin export "GIT_CONFIG_KEY_$_phoenix_count=core.hooksPath" "GIT_CONFIG_VALUE_$_phoenix_count="%(path)s
(( ++_phoenix_count ))
}
"""
# An assignment that makes git read our entry, and all entries that others have added since.
COUNTED: Final = (
    "GIT_CONFIG_COUNT=$(( ${_phoenix_count-0} > ${GIT_CONFIG_COUNT:-0} ? _phoenix_count : ${GIT_CONFIG_COUNT:-0} ))"
)


def may_commit(command: str) -> bool:
    """Does the command contain the word "commit"?"""
    return _COMMIT.search(command) is not None


def hooks(trailer: str) -> Programs:
    """The hooks that add this trailer to commits."""
    return Programs(_PREFIX, _NAMES, f"#!/bin/sh\ntrailer={shlex.quote(trailer)}\n{_HOOK}", _LINKS)


def entry(directory: str) -> str:
    """Bash text after which ``COUNTED`` makes git run the hooks in this directory, if they are visible there."""
    return _ENTRY % {"path": shlex.quote(directory)}
