"""Where a filter of system calls kills who traces, a host lives on; a copy of it finds out."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shellsession.engine import vfork

# Installs a filter (seccomp(2), BPF) that kills who calls ptrace(2), as SystemCallFilter of systemd does.
_HOST = """
import ctypes, os, struct, sys
from shellsession import Session

number = {"x86_64": 101, "aarch64": 117}[os.uname().machine]
load, jump_if_equal, give = 0x20, 0x15, 0x06
rules = [(load, 0, 0, 0), (jump_if_equal, 0, 1, number), (give, 0, 0, 0x80000000), (give, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code))
libc = ctypes.CDLL(None)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    sys.exit("no filter to be had")
with Session() as sh:
    result = sh.run("v=7; sleep 100; echo went on", timeout=0.1)
    print(result.outcome, result.stdout, sh.run("echo $v").stdout, sep="")
"""


@pytest.mark.skipif(not vfork.is_possible(), reason="no copy can try it on this machine")
def test_a_host_that_would_be_killed_for_tracing_does_not_trace() -> None:
    done = subprocess.run([sys.executable, "-c", _HOST], capture_output=True, text=True, timeout=60, check=False)
    if "no filter to be had" in done.stderr:
        pytest.skip("this machine has no filters of system calls")
    assert (done.returncode, done.stdout, done.stderr) == (0, "timed_out7\n\n", "")


@pytest.mark.skipif(not vfork.is_possible(), reason="no copy can try it on this machine")
def test_a_copy_tells_what_kills() -> None:
    assert vfork.survives([("getpid", ())])
    assert not vfork.survives([("raise", (9,))])
