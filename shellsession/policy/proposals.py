"""The rules that a person may remember for a command, and what they cover.

A rule is the exact words of one command, or the first of them. It covers such commands again, in any directory, and
nothing else. Only plain text has rules: words and quotes that bash takes as they are written, and nothing that expands,
redirects or assigns. So two texts with the same words mean the same to bash. What a prefix covers must itself be a
command that could have a rule.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from .approval import Rule, Words
from .programs import ASSIGNMENT, SHELLS, base_name, starter_of

# Bash takes each of these as it is written. Redirections to /dev/null neither read nor write a file. A number before
# another one is no word.
_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t]+)
    |(?P<separator>&&|\|\||;(?![;&])|\|(?!&)|\n)
    |(?P<harmless>(?:(?:[12]?>|&>)[ \t]*/dev/null|2>&1)(?=[ \t\n;&|]|\Z))
    |(?P<word>(?![0-9]+>)(?:[A-Za-z0-9_@%+=:,./-]+|'[^']*'|"[^"$`\\!]*")+)""",
    re.VERBOSE,
)
_QUOTE: Final = re.compile(r"""'([^']*)'|"([^"]*)\"""")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words of bash that are no commands, that change what the next commands mean, or run what is in an argument, such as
# the index in `test -v 'a[$(ls)]'`.
_OF_BASH: Final = _words(
    """
    alias bind builtin case command compgen complete compopt coproc declare do done elif else enable esac eval
    exec exit export fc fi for function getopts hash history if in jobs let local logout mapfile printf read
    readarray readonly return select set shift shopt source test then time trap typeset ulimit unalias unset
    until wait while [ . :
    """
)
# Programs beside those of ``STARTERS`` that run what their arguments, their input or a file of the project say.
_RUNNERS: Final = _words(
    """
    ansible ansible-playbook ant asdf at awk batch bazel bun bunx bwrap capsh cargo chrt cmake coverage cpan
    cpulimit crontab dbus-run-session dc deno direnv dotenv dumb-init ed emacs ex expect fakeroot faketime firejail
    flatpak ftp gawk gdb gem gh gnuplot go gosu gradle gradlew guile guix hg hyperfine ip irb java julia just less
    lftp lldb logrotate ltrace lua luajit lxc lxc-attach m4 machinectl mail make man mawk meson mise mocha more most
    mutt mvn mysql nano nawk nc ncat netcat ninja nix nix-shell node nodejs nox npm nsenter numactl nvim octave
    pager perf perl pg php pnpm pre-commit prlimit proot psql puppet pyenv rake rbenv rscript rsync ruby run-parts
    runuser scons scp screen sed setpriv sftp sg shellsession snap socat sqlite3 ssh-agent sshpass start-stop-daemon
    svn systemd-nspawn tar task tclsh tcpdump telnet tini tmux toolbox tox ts-node tsx unbuffer unshare valgrind vi
    view vim w3m wget wish xterm yarn zip
    """
)
_SYSTEM: Final = ("/bin/", "/sbin/", "/usr/")
_VERSIONED: Final = re.compile(r"(?:python|pypy|pip|perl|ruby|lua|node|php|tclsh|ipython|awk)[0-9.]*[a-z]?")
# The subcommands of git that no alias can replace, and that start no program that their arguments name.
_OF_GIT: Final = _words(
    """
    add blame branch cat-file checkout cherry-pick clean commit describe diff fetch init log ls-files merge mv
    pull push reset restore revert rev-parse rm show shortlog stash status switch tag worktree
    """
)
# Options by which a program starts another one, or git writes a file. They may be written shorter.
_STARTING: Final = {
    "git": ("--exec", "--ext-diff", "--output", "--receive-pack", "--textconv", "--upload-pack"),
    "rg": ("--hostname-bin", "--pre"),
    "sort": ("--compress-program",),
    "split": ("--filter",),
}


def plain(text: str) -> list[Words] | None:
    """The words of each command of a plain text; None for any other text."""
    commands: list[list[str]] = [[]]
    at, may_end = 0, True
    while at < len(text):
        if (token := _TOKEN.match(text, at)) is None:
            return None
        at = token.end()
        if token.lastgroup == "word":
            commands[-1].append(_QUOTE.sub(lambda quoted: quoted[1] or quoted[2] or "", token[0]))
            may_end = True
        elif token.lastgroup == "separator" and commands[-1]:
            commands.append([])
            may_end = token[0] in (";", "\n")
        elif token.lastgroup == "separator" and token[0] != "\n":
            return None
    if not commands[-1]:
        commands.pop()
    return [tuple(words) for words in commands] if commands and may_end else None


def proposed(text: str) -> tuple[Words, ...]:
    """The rule of each command of a text. None of them if one has none, so that the rules together cover the text."""
    commands = plain(text)
    if commands is None or not all(map(_may_have_rule, commands)):
        return ()
    return tuple(dict.fromkeys(commands))


def covered(text: str, rules: Collection[Rule]) -> tuple[Rule, ...]:
    """The rules that cover the whole text; () if they do not."""
    found = [next((rule for rule in rules if rule.covers(words)), None) for words in proposed(text)]
    return () if None in found else tuple(dict.fromkeys(rule for rule in found if rule is not None))


def _may_have_rule(words: Words) -> bool:
    """Whether the command is one program of a known name that starts no other."""
    program, name = words[0], base_name(words[0])
    if not all(word.isprintable() for word in words) or not re.fullmatch(r"[A-Za-z0-9_.+/\[-]+", program):
        return False
    if ASSIGNMENT.match(program):
        return False
    if name != program and (not program.startswith(_SYSTEM) or ".." in program.split("/")):
        return False  # the agent may have written it, and could write another
    if name in SHELLS | _OF_BASH | _RUNNERS or _VERSIONED.fullmatch(name) or starter_of(words)[0] is not None:
        return False
    if any(_is_short_for(word, option) for word in words[1:] for option in _STARTING.get(name, ())):
        return False
    return name != "git" or (len(words) > 1 and words[1] in _OF_GIT)


def _is_short_for(word: str, option: str) -> bool:
    """Whether the word may be that option, with or without a value."""
    given = word.partition("=")[0]
    return len(given) > 2 and (option.startswith(given) or given.startswith(option))
