"""What keeps other processes of the same user out of this one.

Law: for our own programs alone; a program that imports the library stays as it is.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Final


_PR_SET_DUMPABLE: Final = 4  # <linux/prctl.h>


def shut_out_others() -> None:
    """Let no other process of this user open our descriptors through /proc, read our memory or trace us: prctl(2).

    A command runs as the same user. It could write a result of its own choice to the pipe on which an MCP client, or
    whoever reads what ``run`` prints, waits for ours. execve(2) undoes it in our children, so bash is as it was.

    A start pays for it: only the extension below ctypes is loaded, which takes 0.25 ms, not 1.3. A filter of system
    calls (seccomp) may forbid the call; then we are as open as any other program.
    """
    from _ctypes import call_function, dlopen, dlsym

    program = dlopen(None, 0)  # type: ignore[arg-type]  # typeshed does not know that of None
    call_function(dlsym(program, "prctl"), (_PR_SET_DUMPABLE, 0, 0, 0, 0))
