"""phoenix's co-author trailer: git adds it itself, in hooks that ``core.hooksPath`` names in the environment of a call.

Each ``git commit`` runs these hooks, whoever starts it: a loop, ``xargs``, a script, a Makefile, a git alias. The hook
adds the trailer where its parent is a ``git commit``, so a merge, pick, revert or rebase gets none. All hooks run the
repository's own hook as git would: with the same arguments, input and status, and without our setting.

* A message that nobody edits gets the trailer from ``prepare-commit-msg``, which ``--no-verify`` does not skip.
* A message that an editor leaves gets it from ``commit-msg``, before the repository's own one reads it.
* A message that git refuses as empty gets none.

Only calls whose text has the word "commit" get the setting, as it is in the way of tools that install hooks:
``pre-commit install`` and ``git lfs install`` refuse it, and Git LFS cannot add its ``pre-push`` to a fresh clone.

The setting is an entry of ``GIT_CONFIG_COUNT`` (git 2.31), behind those that are there already.
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
# All that git looks for, but four. Of these ``push-to-checkout`` and ``proc-receive`` replace what git does, where they
# exist; the other two would be started for each change of the index or of a reference.
_NAMES: Final = (
    *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg"),
    *("commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-receive", "update"),
    *("post-receive", "post-update", "pre-auto-gc", "post-rewrite", "sendemail-validate", "p4-changelist"),
    *("p4-prepare-changelist", "p4-post-changelist", "p4-pre-submit"),
)
# A link that leads nowhere is no hook, and costs nothing. Git runs these two at the top of the working tree.
_LINKS: Final = tuple(
    (name, f"/proc/self/cwd/.git/hooks/{name}") for name in ("post-index-change", "reference-transaction")
)
# An entry does nothing until it is counted.
_ENTRY: Final = r"""_phoenix_count=0
[[ ! -x %(path)s/commit-msg ]] || {
_phoenix_count=${GIT_CONFIG_COUNT:-0}
\builtin export "GIT_CONFIG_KEY_$_phoenix_count=core.hooksPath" "GIT_CONFIG_VALUE_$_phoenix_count="%(path)s
(( ++_phoenix_count ))
}
"""
# An assignment: git reads the entry, and all that others have added since.
COUNTED: Final = (
    "GIT_CONFIG_COUNT=$(( ${_phoenix_count-0} > ${GIT_CONFIG_COUNT:-0} ? _phoenix_count : ${GIT_CONFIG_COUNT:-0} ))"
)


def may_commit(command: str) -> bool:
    """Does the text have the word "commit"?"""
    return _COMMIT.search(command) is not None


def hooks(trailer: str) -> Programs:
    """The hooks by which commits get this trailer."""
    return Programs(_PREFIX, _NAMES, f"#!/bin/sh\ntrailer={shlex.quote(trailer)}\n{_HOOK}", _LINKS)


def entry(directory: str) -> str:
    """Bash text: ``COUNTED`` now makes git run the hooks of this directory, where it can be seen."""
    return _ENTRY % {"path": shlex.quote(directory)}
