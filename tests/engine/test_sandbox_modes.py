"""No setuid bit, setgid bit or file capability comes out of a sandbox, and ordinary work needs none."""

from __future__ import annotations

import os
import shlex
import signal
import stat
import struct
import sys
import tarfile
from pathlib import Path

import pytest
import sandboxes
from sandboxes import needs_bwrap, run_as, sandboxed

from shellsession import Sandbox, SandboxUnavailable, Session
from shellsession.engine.bash import seccomp

user, mine, ours = sandboxes.user, sandboxes.mine, sandboxes.ours

FORBIDDEN = (
    "chmod 4755 file",
    "chmod u+s file",
    "chmod g+s file",
    "chmod g+s directory",
    "install -m 4755 /bin/true new",
    "tar -xpf set.tar new",
)
ALLOWED = """
    set -e; trap 'echo "$BASH_COMMAND"' ERR
    mkdir -m 1777 sticky && mkdir -p deep/er && echo x >deep/file && chmod +x deep/file && chmod -R u+rwX,go-w deep
    cp -a deep copy && tar -cf deep.tar deep && mkdir out && tar -xpf deep.tar -C out && [[ -x out/deep/file ]]
    install -m 755 /bin/true tool && ./tool && mknod fifo p && ln tool linked && mv linked moved && touch moved
    git init -q repo && git -C repo -c user.name=a -c user.email=a@b commit -q --allow-empty -m x
    git clone -q repo clone && git -C clone log >log
"""
# Each is one call with the bits in its mode; what it was answered is printed. The numbers are those of x86_64.
CALLS = r"""
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
here, fd = -100, os.open("file", os.O_RDWR)
how = struct.pack("QQQ", os.O_CREAT | os.O_RDWR, 0o4755, 0)
def call(number, *arguments):
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    print(0 if libc.syscall(ctypes.c_long(number), *words) >= 0 else ctypes.get_errno())
for x32 in 0, 1 << 30:
    for mode in 0o4755, 0o2755:
        call(2 | x32, b"new", os.O_CREAT | os.O_RDWR, mode)
        call(2 | x32, b".", os.O_TMPFILE | os.O_RDWR, mode)
        call(85 | x32, b"new", mode)
        call(90 | x32, b"file", mode)
        call(91 | x32, fd, mode)
        call(133 | x32, b"new", 0o100000 | mode, 0)
        call(257 | x32, here, b"new", os.O_CREAT | os.O_RDWR, mode)
        call(259 | x32, here, b"new", 0o100000 | mode, 0)
        call(268 | x32, here, b"file", mode)
        call(452 | x32, here, b"file", mode, 0)
    call(437 | x32, here, b"new", how, len(how))
    call(425 | x32, 8, ctypes.create_string_buffer(120))
call(188, b"file", b"security.capability", struct.pack("<5I", 1 << 25 | 1, 1 << 7, 0, 0, 0), 20, 0)
call(2, b"file", os.O_RDONLY, 0o6000)  # no mode: nothing is made
call(83, b"made", 0o6755)
os.chmod("file", 0o1755)
"""
ANSWERS = [*["1"] * 20, *["38"] * 24, "1", "0", "0"]
# The i386 way to call chmod, which every process of x86_64 has.
OTHER = r"""
import ctypes, mmap, struct
memory = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, 7)  # MAP_32BIT
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
memory[100:105] = b"file\0"
code = b"\x53\xb8" + struct.pack("<I", 15) + b"\xbb" + struct.pack("<I", at + 100)
code += b"\xb9" + struct.pack("<I", 0o4755) + b"\xcd\x80\x5b\xc3"
memory[:len(code)] = code
ctypes.CFUNCTYPE(None)(at)()
"""


def prepare(place: Path) -> None:
    """A file and a directory of its owner, and an archive of a file that has a bit."""
    (place / "file").write_text("")
    (place / "directory").mkdir()
    with tarfile.open(place / "set.tar", "w") as archive:
        member = tarfile.TarInfo("new")
        member.mode = 0o4755
        archive.addfile(member)
    for name in ("file", "directory"):
        os.chown(place / name, place.stat().st_uid, place.stat().st_gid)


def raised(place: Path) -> list[str]:
    """What has a bit or a capability that it should not have."""
    return [
        path.name
        for path in place.rglob("*")
        if stat.S_IMODE(path.lstat().st_mode) & 0o6000 or "security.capability" in os.listxattr(path)
    ]


@needs_bwrap
def test_no_bit_and_no_capability_can_be_set(user: str, mine: Path) -> None:
    prepare(mine)

    def scenario() -> None:
        with sandboxed(mine) as sh:
            for command in FORBIDDEN:
                assert "Operation not permitted" in sh.run(command).stderr, command
                assert raised(mine) == [], command

    run_as(user, scenario)


@needs_bwrap
def test_ordinary_work_goes_on(user: str, mine: Path) -> None:
    def scenario() -> None:
        with sandboxed(mine) as sh:
            result = sh.run(f"bash -c {shlex.quote(ALLOWED)}")
            assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")

    run_as(user, scenario)


@needs_bwrap
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of the system calls")
def test_no_system_call_sets_a_bit(ours: Path) -> None:
    prepare(ours)
    python = shlex.quote(os.path.realpath(sys.executable))
    with sandboxed(ours) as sh:
        result = sh.run(f"{python} -I -c {shlex.quote(CALLS)}")
        assert (result.stdout.split(), result.stderr) == (ANSWERS, "")
        # Without support for i386 in the kernel there is no such call.
        other = sh.run(f"{python} -I -c {shlex.quote(OTHER)}").exit_code or 0
        assert other - 128 in (signal.SIGSYS, signal.SIGSEGV)
    assert raised(ours) == []


def answer(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What the filter says to a call, as the kernel reads it."""
    data = struct.pack("<iIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    at, word = 0, 0
    while True:
        code, then, otherwise, value = struct.unpack_from("<HBBI", program, at * 8)
        at += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            (word,) = struct.unpack_from("<I", data, value)
        else:
            passed = {0x15: word == value, 0x25: word > value, 0x45: word & value != 0}[code]
            at += then if passed else otherwise


EPERM, ENOSYS, ALLOW, KILL = 0x50001, 0x50026, 0x7FFF0000, 0x80000000
AARCH64: dict[tuple[int, ...], int] = {
    (52, 5, 0o4755): EPERM,
    (53, 5, 0, 0o2755): EPERM,
    (452, 5, 0, 0o4755): EPERM,
    (33, 5, 0, 0o104755): EPERM,
    (56, 5, 0, os.O_CREAT, 0o4755): EPERM,
    (56, 5, 0, 0o20000000, 0o4755): EPERM,
    (53, 5, 0o6000, 0o1777): ALLOW,
    (56, 5, 0, os.O_RDWR, 0o4755): ALLOW,
    (56, 5, 0, os.O_CREAT, 0o755): ALLOW,
    (34, 5, 0, 0o6755): ALLOW,
    (437,): ENOSYS,
    (425,): ENOSYS,
    (426,): ENOSYS,
    (427,): ENOSYS,
    (470,): ENOSYS,
}


def test_the_filter_of_aarch64() -> None:
    program = seccomp.program("aarch64")
    assert {call: answer(program, 0xC00000B7, *call) for call in AARCH64} == AARCH64


def test_no_call_of_another_architecture_passes() -> None:
    assert answer(seccomp.program("aarch64"), 0x40000028, 15) == KILL  # chmod of arm
    assert answer(seccomp.program("x86_64"), 0x40000003, 15) == KILL  # of i386
    assert answer(seccomp.program("x86_64"), 0xC000003E, 1 << 30 | 90, 5, 0o4755) == ENOSYS  # of x32


@needs_bwrap
def test_no_sandbox_on_a_machine_whose_numbers_are_unknown(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "here", "6.1", "#1", "riscv64")))
    with pytest.raises(SandboxUnavailable, match="none for riscv64, only for x86_64 and aarch64"):
        Session(cwd=ours, sandbox=Sandbox()).open()
