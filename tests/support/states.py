"""The state of a bash as bash itself prints it, to compare two sessions without shellsession's own parser."""

from __future__ import annotations

import re
from typing import Final

from shellsession import Session

# Each listing is one that a person would use. `$-` and $PS1 come apart from the rest, as prompts differ.
_LISTINGS: Final = (
    *("declare -p", "declare -f", "declare -F", "alias -p", "trap -p", "set +o", "shopt -p", "enable -n", "dirs -l -p"),
    *("umask", "ulimit -Sa", 'printf "<%s>" "$#" "$@"', "pwd"),
)
# They are about the process, or about the listing itself.
_OWN: Final = re.compile(
    rb"^declare -\S+ (?:BASH|BASHOPTS|BASHPID|BASH_ARGC|BASH_ARGV|BASH_ARGV0|BASH_COMMAND|BASH_EXECUTION_STRING"
    rb"|BASH_LINENO|BASH_SOURCE|BASH_SUBSHELL|BASH_VERSION|BASH_XTRACEFD|EPOCH\w+|FUNCNAME|HISTCMD|LINENO|PIPESTATUS"
    rb"|PPID|RANDOM|SECONDS|SRANDOM|_)(?:=.*)?\n"
    rb"|^file locks .*\n",  # the tag of a session is a limit of the kernel that has no effect
    re.MULTILINE,
)
# The elements of an associative array come in an order of bash's own.
_UNORDERED: Final = re.compile(rb"^declare -\w*A\w* .*?(?=\ndeclare -|\Z)", re.MULTILINE | re.DOTALL)


def listed(session: Session) -> list[bytes]:
    """What bash prints about its state, one listing after the other."""
    came = []
    for listing in _LISTINGS:
        result = session.run(f"\\builtin {listing} 2>&1" if not listing.startswith("set +o") else "set +o", tty=False)
        came.append(_UNORDERED.sub(lambda found: bytes(sorted(found[0])), _OWN.sub(b"", result.stdout_bytes)))
    completions = session.run("complete -p", tty=False).stdout_bytes
    return [*came, b"\n".join(sorted(completions.splitlines()))]
