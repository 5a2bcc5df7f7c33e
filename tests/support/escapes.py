"""Ways for a process to escape from the shell that started it, and the files that a host may leave."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from system import PYTHON

# Removes the session's tag from the shell that runs this, and from its children, as su(1) does with pam_limits.
SHEDDER: Final = "ulimit -S -x unlimited"
# Each starts one detached `sleep SECONDS`; "{}" is the number.
ESCAPES: Final = {
    "a job": "sleep {} &",
    "disowned": "sleep {} & disown",
    "nohup": "nohup sleep {} >/dev/null 2>&1 &",
    "setsid": "setsid sleep {} &",
    "an orphan": "(sleep {} &)",
    "a twofold orphan": "(setsid sh -c 'sleep {} & exit' &)",
    "without environment": "env -i setsid /bin/sh -c 'exec sleep {}' &",
    "a daemon": f"""{PYTHON} -c 'import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(64):
            try: os.close(fd)
            except OSError: pass
        os.chdir("/")
        os.execvpe("sleep", ["sleep", "{{}}"], {{{{"PATH": os.defpath}}}})
' """,
    "deaf to signals": "(trap '' HUP INT TERM; exec setsid sleep {}) &",
    "without the mark": f"({SHEDDER}; exec setsid sleep {{}}) &",
}


def all_escapes(seconds: str) -> str:
    """One command that starts an escaped process of every kind."""
    return "\n".join(escape.format(seconds) for escape in ESCAPES.values())


def runtime_directories() -> set[str]:
    """The files of this user's hosts, in every possible place."""
    user = os.getuid()
    bases = (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{user}", "/dev/shm", "/tmp")
    found = set[str]()
    for home in (Path(base, f"shellsession-{user}") for base in bases if base):
        with suppress(FileNotFoundError, NotADirectoryError):  # removed by the last host, or never made
            found.update(map(str, home.iterdir()))
    return found


def of_host(pid: int) -> set[str]:
    """The runtime directories of one host."""
    return {name for name in runtime_directories() if f"-{pid}-" in name}
