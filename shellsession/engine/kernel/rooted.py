"""Opens files below a root directory, as a process with that root would: no link leads out of it."""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Final

from .vfork import LIBC

_OPENAT2: Final = 437  # the same number on every machine (Linux 5.6)
# <linux/openat2.h>: a link to "/" leads to the root, and one of /proc/PID leads nowhere.
_NO_MAGIC_LINKS, _IN_ROOT = 0x02, 0x10


def open_below(root: int, path: str, flags: int, mode: int = 0) -> int:
    """Open a file as os.open does. ``root``: a descriptor of the root directory."""
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, _NO_MAGIC_LINKS | _IN_ROOT)
    number = ctypes.c_long(_OPENAT2), ctypes.c_long(root)
    fd = int(LIBC.syscall(*number, os.fsencode(path), how, ctypes.c_long(len(how))))
    if fd < 0:
        raise OSError(code := ctypes.get_errno(), os.strerror(code), path)
    return fd
