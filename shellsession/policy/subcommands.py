"""Subcommands: which word of a command says what its program is to do (``push`` of ``git -C x push origin``).

Law: it is the first word that is no option, nor the word of one, nor ``NAME=value``; one row for each program whose
options before it take words. An option that is not here, or of a program that is not, may take a word or not: both are
told.
"""

from __future__ import annotations

import re
from typing import Final

from .words import Word

_CONTAINERS: Final = "c config context H host l log-level tlscacert tlscert tlskey connection identity url root"
_CLUSTER: Final = (
    "n namespace s server context cluster user kubeconfig token as as-group as-uid cache-dir certificate-authority"
    " client-certificate client-key kube-context kube-token kube-apiserver request-timeout tls-server-name v"
)
_NODE: Final = "C prefix cwd dir registry userconfig cache loglevel w workspace otp tag filter F"
_PACKAGES: Final = "o option c config-file t target-release a host-architecture"
# Letters, and names, of options that take a word.
_OPTIONS: Final = {
    name: frozenset(options.split())
    for name, options in {
        "git": "C c git-dir work-tree namespace super-prefix config-env attr-source shallow-file",
        "hg": "R repository cwd config encoding encodingmode color pager",
        "svn": "username password config-dir config-option",
        **dict.fromkeys(("docker", "podman", "nerdctl"), _CONTAINERS),
        "docker-compose": "f file p project-name profile env-file project-directory c context H host ansi progress",
        **dict.fromkeys(("kubectl", "helm", "oc"), _CLUSTER),
        **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), _NODE),
        **dict.fromkeys(("apt", "apt-get", "aptitude"), _PACKAGES),
        **dict.fromkeys(("pip", "pip3"), "python log proxy retries timeout exists-action trusted-host cert cache-dir"),
        "uv": "directory project config-file cache-dir color allow-insecure-host",
        "poetry": "C directory P project",
        "cargo": "C Z color config explain",
        "go": "C",
        "gh": "R repo",
        "aws": "profile region output endpoint-url query ca-bundle color cli-read-timeout cli-connect-timeout",
        "gcloud": "project account configuration format verbosity billing-project flags-file",
        "systemctl": "H host M machine t type p property n lines o output s signal state job-mode root image",
    }.items()
}
# Names of options of these that take none.
_TAKING_NONE: Final = (
    "paginate bare literal-pathspecs glob-pathspecs noglob-pathspecs icase-pathspecs html-path man-path info-path"
    " exec-path quiet verbose debug noninteractive non-interactive trust-server-cert debugger traceback time tls"
    " tlsverify remote syslog trace debug-full insecure-registry experimental all-resources compatibility dry-run"
    " skip-hostname-check insecure-skip-tls-verify match-server-version warnings-as-errors disable-compression"
    " alsologtostderr logtostderr add-dir-header one-output skip-headers skip-log-headers"
    " kube-insecure-skip-tls-verify silent global long json parseable force save-dev save save-exact workspaces"
    " include-workspace-root if-present ignore-scripts production prefer-offline offline recursive parallel stream"
    " frozen-lockfile legacy-peer-deps workspace-root yes version help assume-yes simulate just-print download-only"
    " fix-broken purge reinstall isolated require-virtualenv disable-pip-version-check native-tls preview ansi locked"
    " frozen list cli-auto-prompt log-http user-output-enabled user system all full failed now runtime wait reverse"
    " after before with-dependencies plain value show-types show-transaction mkdir marked read-only firmware-setup"
    " ignore-inhibitors"
)
_FLAGS: Final = frozenset(_TAKING_NONE.split())
_FLAGS_BEGIN: Final = ("no-", "allow-")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
# What stands for names of files, where it has no quotes.
PATTERN: Final = re.compile(r"[*?]|\[.+\]", re.DOTALL)


def subcommands(words: tuple[Word, ...], known: bool) -> list[int]:
    """Where it may stand among the words, the likeliest first; their number where it does not. ``known``: it is one
    that the text tells; else a word that is known at run time only may be it, too."""
    name = (words[0] or "").rpartition("/")[2]
    takes = _OPTIONS.get(name)
    found: list[int] = []
    at, may_be_taken = 1, False
    while at < len(words):
        word = words[at]
        if takes is not None and word in ("--help", "--version"):
            break  # it looks at nothing else
        is_option = word is None or (word[:1] in ("-", "+") and word != "-")  # a toolchain has a plus (cargo +nightly)
        if not known if word is None else not (is_option or _ASSIGNMENT.match(word)):
            if name == "git" and word is not None and words[at + 1 : at + 2] == ("--help",):
                break  # git makes `git help commit` of it; as a later word it may be a message
            found.append(at)
            if not may_be_taken:
                break
        may_be_taken = word is not None and is_option and _may_take_a_word(word, takes)
        at += 2 if word is not None and takes and _takes_a_word(word, takes) else 1
    return found or [len(words)]


def without_patterns(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words; a subcommand that is a pattern (``git pus?``) is known at run time only: it is what it matches."""
    if (words[0] or "").rpartition("/")[2] not in _OPTIONS:
        return words
    at = subcommands(words, known=True)[0]
    is_known = not any(PATTERN.search(word or "") for word in words[at : at + 1])
    return words if is_known else (*words[:at], None, *words[at + 1 :])


def _may_take_a_word(option: str, takes: frozenset[str] | None) -> bool:
    """Is it not known whether the next word is this option's?"""
    if takes is None:
        return "=" not in option and len(option) > 1
    name = option.removeprefix("--")
    is_known = name in takes or name in _FLAGS or name.startswith(_FLAGS_BEGIN)
    return name not in ("", option) and "=" not in name and not is_known


def _takes_a_word(option: str, takes: frozenset[str]) -> bool:
    """Is the next word this option's?"""
    if option.startswith("--"):
        return option[2:] in takes
    taken = [at for at, letter in enumerate(option) if letter in takes]
    return bool(taken) and taken[0] == len(option) - 1  # what follows the letter is its word
