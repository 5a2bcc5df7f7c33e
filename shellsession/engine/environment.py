"""The environment that bash starts with.

Law: pure but for a look at the host's own.
"""

from __future__ import annotations

import os

from ..models import Options

# For programs without a person: no pagers, no colours by default, no questions.
AGENT_ENV = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GH_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}
# They steer an interactive bash itself and would act at our lines too, or end an idle shell (TMOUT).
_DROPPED = (
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "TMOUT",
    "MAIL",
    "MAILPATH",
    "POSIXLY_CORRECT",
    "BASHOPTS",
    "SHELLOPTS",
    "HISTFILE",
)


def inherited() -> dict[str, str]:
    """The host's environment, also while another thread changes it (a plain copy raises KeyError then)."""
    return {name: value for name in list(os.environ) if (value := os.environ.get(name)) is not None}


def environment(options: Options) -> dict[str, str]:
    """The environment bash starts with."""
    env = dict(inherited() if options.env is None else options.env)
    if options.agent_env and options.env is None:
        env.update(AGENT_ENV)
    env.update(options.extra_env or {})
    return {name: value for name, value in env.items() if name not in _DROPPED}
