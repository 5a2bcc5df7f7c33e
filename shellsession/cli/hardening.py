"""Protect this process against other processes of the same user.

Only our own programs call this. A program that imports the library is not changed.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Final


_PR_SET_DUMPABLE: Final = 4  # <linux/prctl.h>


def forbid_inspection() -> None:
    """Keep other processes of this user from opening our descriptors through /proc, reading our memory, or tracing us.

    A command runs as the same user. It could otherwise write a forged result to our output pipe, which an MCP client or
    the caller of ``run`` reads. prctl(2) prevents that; execve(2) undoes it in our children, so bash is unchanged.

    Every start pays for this call, so only the extension module below ctypes is loaded: 0.25 ms instead of 1.3. A
    seccomp filter may forbid the call; then this process is as accessible as any other.
    """
    from _ctypes import call_function, dlopen, dlsym

    program = dlopen(None, 0)  # type: ignore[arg-type]  # typeshed does not know that None is allowed
    call_function(dlsym(program, "prctl"), (_PR_SET_DUMPABLE, 0, 0, 0, 0))
