"""What the kernel says of processes and of this machine; the one file here that reads /proc."""

import contextlib
import os
import platform
import subprocess
import time
from pathlib import Path

MEBIBYTE = 1 << 20


def _field(path: str, name: str) -> str:
    """The text behind `name:` in a /proc file of fields, or nothing."""
    for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _kibibytes(path: str, name: str) -> int:
    return int(_field(path, name).split()[0]) * 1024


def resident(pid: int | str = "self") -> int:
    return _kibibytes(f"/proc/{pid}/status", "VmRSS")


def peak_resident(pid: int | str = "self") -> int:
    return _kibibytes(f"/proc/{pid}/status", "VmHWM")


def forget_peak(pid: int | str = "self") -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def proportional(pid: int) -> int:
    """Pss: a process's own memory and its share of what it shares; 0 when it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return _kibibytes(f"/proc/{pid}/smaps_rollup", "Pss")
    return 0


def processor_time(pid: int) -> float:
    """The seconds that all threads of a process have run."""
    return time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid(3) makes it


def process_count() -> int:
    return sum(name.isdecimal() for name in os.listdir("/proc"))


def open_files(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def descendants(root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                after_name = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
                children.setdefault(int(after_name.split()[1]), []).append(int(entry.name))
    found, todo = set[int](), [root]
    while todo:
        fresh = [pid for pid in children.get(todo.pop(), []) if pid not in found]
        found.update(fresh)
        todo += fresh
    return found


def carriers(entry: bytes) -> set[int]:
    """Processes that were started with this NAME=VALUE in their environment."""
    found = set[int]()
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with contextlib.suppress(OSError):  # gone, or not ours to read
                if entry in (path / "environ").read_bytes().split(b"\0"):
                    found.add(int(path.name))
    return found


def describe() -> str:
    """One line about the machine, for whoever compares two tables."""
    processor = _field("/proc/cpuinfo", "model name") or platform.machine()
    memory = _kibibytes("/proc/meminfo", "MemTotal") / (1 << 30)
    version = "echo ${BASH_VERSION%%(*}"
    bash = subprocess.run(["bash", "-c", version], capture_output=True, text=True, check=True).stdout.strip()
    return (
        f"{os.cpu_count()} x {processor}, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"bash {bash}, {platform.python_implementation()} {platform.python_version()}"
    )
