"""Facts about processes and about this machine. Only this file of the benchmarks reads /proc."""

import contextlib
import os
import platform
import subprocess
import time
from pathlib import Path

MEBIBYTE = 1 << 20


def _field(path: str, name: str) -> str:
    """The text after `name:` in a /proc file of fields, or ""."""
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
    """Pss: the process's own memory and its part of shared memory; 0 if it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return _kibibytes(f"/proc/{pid}/smaps_rollup", "Pss")
    return 0


def processor_time(pid: int) -> float:
    """Seconds of processor time that all threads of a process have used."""
    return time.clock_gettime(~pid << 3 | 2)  # the clock that clock_getcpuclockid(3) gives


def process_count() -> int:
    return sum(name.isdecimal() for name in os.listdir("/proc"))


def open_files(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def command_lines() -> dict[int, list[str]]:
    """The words of each process's command line."""
    found = dict[int, list[str]]()
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                text = Path(f"/proc/{name}/cmdline").read_text(encoding="utf-8", errors="replace")
                found[int(name)] = text.split("\0")
    return found


def parent(pid: int) -> int:
    """Raises FileNotFoundError or ProcessLookupError if the process is gone."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(text.rpartition(")")[2].split()[1])


def descendants(root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children.setdefault(parent(int(name)), []).append(int(name))
    found, todo = set[int](), [root]
    while todo:
        fresh = [pid for pid in children.get(todo.pop(), []) if pid not in found]
        found.update(fresh)
        todo += fresh
    return found


def carriers(entry: bytes) -> set[int]:
    """The processes that started with this NAME=VALUE in their environment."""
    found = set[int]()
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with contextlib.suppress(OSError):  # gone, or not ours to read
                if entry in (path / "environ").read_bytes().split(b"\0"):
                    found.add(int(path.name))
    return found


def describe() -> str:
    """One line about the machine, to compare tables by."""
    processor = _field("/proc/cpuinfo", "model name") or platform.machine()
    memory = _kibibytes("/proc/meminfo", "MemTotal") / (1 << 30)
    kernel = platform.release().partition("-")[0]  # without the name of its build
    version = "echo ${BASH_VERSION%%(*}"
    bash = subprocess.run(["bash", "-c", version], capture_output=True, text=True, check=True).stdout.strip()
    return (
        f"{os.cpu_count()} x {processor}, {memory:.0f} GiB, {platform.system()} {kernel}, "
        f"bash {bash}, {platform.python_implementation()} {platform.python_version()}"
    )
