"""Reads /proc: processes with their state, children, tags and namespaces, and paths, as another process sees them.

Nothing here acts on a process. ``SPARE`` keeps one descriptor in reserve, so that a read works even if the host has no
descriptor free.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from _thread import RLock  # `threading` has it, too, but slows the start of the command line

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Final, TypeVar

    T = TypeVar("T")


FULL: Final = {errno.EMFILE, errno.ENFILE}  # no descriptor is left, for this process or for all


class Spare:
    """A descriptor in reserve: it is open while somebody needs it, and closed for a call that finds no other free."""

    def __init__(self) -> None:
        # Only one thread at a time may call: another one would take the descriptor that was freed. Reentrant, as a
        # signal handler or a garbage collection may end a session during a call.
        self._lock = RLock()
        self._owners: set[object] = set()
        self._fd = -1

    def reserve(self, owner: object) -> None:
        """Keep a descriptor in reserve until the owner releases it."""
        with self._lock:
            self._owners.add(owner)
            self._open()

    def release(self, owner: object) -> None:
        """The owner needs no reserve any more. With the last owner the descriptor is closed."""
        with self._lock:
            self._owners.discard(owner)
            if not self._owners:
                self._close()

    def call(self, function: Callable[[], T]) -> T:
        """Call a function that needs one descriptor for a moment. Raises its OSError."""
        with self._lock:
            try:
                return function()
            except OSError as error:
                if error.errno not in FULL:
                    raise
                self._close()
                return function()
            finally:
                if self._owners:
                    self._open()

    def reset(self) -> None:
        """Start again in a forked child. It has no session yet, and another thread may have held the lock."""
        self._close()
        self.__init__()  # type: ignore[misc]

    def _open(self) -> None:
        if self._fd < 0:
            try:
                self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return  # the next call tries again

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


SPARE: Final = Spare()

os.register_at_fork(after_in_child=SPARE.reset)

_READ_SIZE = 1 << 16  # bytes; the kernel returns at most a page of a longer file
_TICKS = os.sysconf("SC_CLK_TCK")  # per second
_SHORT = 4000  # bytes; a shorter text is complete, as the smallest page has 4096
_LISTINGS = 20  # at most, of all processes: others may come and go all the time
_LINKS = 40  # the most symbolic links that the kernel follows in one path
_PIDFD_GET_INFO = 0xC040FF0B  # <linux/pidfd.h>: of the first 64 bytes of struct pidfd_info
_PIDFD_INFO_EXIT = 1 << 3


def _pages(path: str, most: int) -> list[bytes]:
    """The data of at most this many reads; empty where the file cannot be read."""

    def read_pages() -> list[bytes]:
        # A file object closes itself if a signal handler raises an exception before any `try`.
        with open(path, "rb", buffering=0) as file:
            pages: list[bytes] = []
            while len(pages) < most and (page := os.read(file.fileno(), _READ_SIZE)):
                pages.append(page)
            return pages

    try:
        return SPARE.call(read_pages)
    except OSError:
        return []


def read(path: str) -> bytes:
    """The content of a file that is shorter than a page: one read returns it all."""
    return b"".join(_pages(path, 1))


def names(path: str) -> list[str]:
    """The names in a directory."""
    try:
        return SPARE.call(lambda: os.listdir(path))
    except OSError:
        return []


def lines(path: str) -> list[str]:
    """The lines of a file of any length."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().split("\n")[:-1]  # not splitlines: a name may contain other line boundaries
    except OSError:
        return []


def available() -> bool:
    """Is there a /proc that shows our own children?"""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat after the name, which may contain anything: the state, then field 4 (proc(5)) on."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def named_stat(pid: int) -> tuple[str, list[bytes]]:
    """The name of a process (comm) and the fields of its stat from the state on; none if it has ended."""
    head, _, tail = read(f"/proc/{pid}/stat").rpartition(b")")
    fields = tail.split()
    return head.partition(b"(")[2].decode("utf-8", "replace"), [] if not fields or _has_ended(fields) else fields


def state(pid: int) -> str:
    """The state of a process, R, S, D, T, Z ... as in ps(1); "" if there is no such process."""
    fields = _stat(pid)
    return fields[0].decode() if fields else ""


def start_time(pid: int) -> int:
    """The start of a process, in clock ticks since boot; 0 if it has ended. With the pid, this identifies a process."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def parent(pid: int) -> int:
    """The parent of a process or zombie; 0 if it has gone."""
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def process_group(pid: int) -> int:
    """The process group of a process or zombie; 0 if it has gone."""
    fields = _stat(pid)
    return int(fields[2]) if len(fields) > 2 else 0


def time_now() -> int:
    """The ``start_time`` of a process that starts now."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) * _TICKS // 10**9


def is_gone(pid: int, start: int) -> bool:
    """Has the process with that start time ended? False if we cannot know, for example without a free descriptor."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return not _exists(pid)  # /proc may hide it
    except OSError:
        return False
    return len(fields) > 19 and (int(fields[19]) != start or _has_ended(fields))


def _exists(pid: int) -> bool:
    """Is there such a process? Works if /proc hides it (hidepid), as it may hide our own that cannot be traced."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def processor_time(pid: int) -> float:
    """The processor time of a process in seconds; infinite if the kernel does not count it."""
    words = read(f"/proc/{pid}/schedstat").split()
    return int(words[0]) / 1e9 if len(words) == 3 else float("inf")


def alive(pid: int) -> bool:
    """Does the process exist, and is it not a zombie?"""
    fields = _stat(pid)
    return fields != [] and not _has_ended(fields)


def _has_ended(fields: list[bytes]) -> bool:
    """Is the process a zombie? One whose first thread has ended looks like a zombie, but its other threads run on."""
    return fields[0] in (b"Z", b"X") and int(fields[17]) <= 1


def children(pid: int) -> list[int]:
    """The children of every thread of a process, zombies too."""
    threads = names(f"/proc/{pid}/task")
    return [child for thread in threads for child in _children(f"/proc/{pid}/task/{thread}/children")]


def open_children(pid: int) -> int:
    """A descriptor of the list of a process's children, those of its first thread. Raises OSError."""
    return os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)


def _children(path: str) -> list[int]:
    """The pids in a list of children.

    The kernel returns such a list in pages, and finds the start of the next page by counting. If processes of an
    earlier page end between two reads, the next read skips as many others, or ends early. Those skipped are on an
    earlier page by then. So a long list is read again, until a reading brings no new pid.
    """
    found: dict[bytes, None] = {}
    for _ in range(_LISTINGS):
        known, text = len(found), b"".join(_pages(path, sys.maxsize))
        found.update(dict.fromkeys(text.split()))
        if len(text) < _SHORT or len(found) == known:
            break
    return [int(child) for child in found]


def descendants(pid: int, besides: Iterable[int] = ()) -> list[int]:
    """All processes below a process, nearest first, without those in ``besides`` and everything below them."""
    return list(below(pid, besides))


def below(pid: int, besides: Iterable[int] = ()) -> Iterator[int]:
    """Yield the ``descendants``, each as soon as it is found."""
    seen = set(besides)
    queue = [pid]
    while queue:
        for child in children(queue.pop(0)):
            if child not in seen:
                seen.add(child)
                queue.append(child)
                yield child


def lineage(pid: int) -> list[int]:
    """The process, its parent, and so on, up to this process or the first of all, both excluded."""
    found: list[int] = []
    while pid > 1 and pid != os.getpid() and pid not in found:
        found.append(pid)
        pid = parent(pid)
    return found


def adopting_lists() -> dict[str, bytes]:
    """The lists of children to which the kernel may add an orphan of a child of ours: their text by path.

    The kernel gives the orphan to the nearest ancestor that asked for orphans (PR_SET_CHILD_SUBREAPER, which is not
    visible), or to the first process of the PID namespace; there always to the first thread. Of this process all
    threads are read, as a program in a child of ours can start a sibling (CLONE_PARENT). Each list is read only once,
    so it may be incomplete: see ``_children``. Empty if a list may not be read, or if one of the processes just ended.
    """
    pids: list[int] = []
    pid = os.getpid()
    while pid not in pids:
        fields = _stat(pid)
        if not fields or fields[0] == b"Z":  # its first thread has ended: another one gets the orphans
            return {}
        pids.append(pid)
        pid = int(fields[1]) or 1  # 0: this is the first process, or its parent is outside of the namespace
    if pid != 1 or not available():
        return {}
    paths = [f"/proc/{pids[0]}/task/{thread}/children" for thread in names(f"/proc/{pids[0]}/task")]
    paths += [f"/proc/{pid}/task/{pid}/children" for pid in pids[1:]]
    return {path: b"".join(_pages(path, sys.maxsize)) for path in paths}


def everyone() -> Iterator[int]:
    """Yield all visible process ids."""
    for name in names("/proc"):
        if name.isdigit():
            yield int(name)


def tag(pid: int) -> int:
    """The tag of a process (see ``family``): its soft RLIMIT_LOCKS. -1 if it has none, or we may not look."""
    words = read(f"/proc/{pid}/limits").partition(b"Max file locks")[2].split(maxsplit=1)
    return int(words[0]) if words and words[0].isdigit() else -1


def tagged(low: int, high: int) -> list[int]:
    """The living processes whose tag is in the range, wherever they are."""
    return sorted(found_among(everyone, lambda pid: low <= tag(pid) <= high and alive(pid)))


def found_among(listed: Callable[[], Iterable[int]], matches: Callable[[int], bool]) -> list[int]:
    """The listed processes that match.

    One scan misses a process that forks and ends during it, and its child as well. So if none matches, the list is
    scanned again for processes that are new since, until there are none.
    """
    seen: set[int] = set()
    for _ in range(_LISTINGS):
        fresh = [pid for pid in listed() if pid not in seen]
        found = [pid for pid in fresh if matches(pid)]
        if found or not fresh:
            return found
        seen.update(fresh)
    return []


def identity(file: str | int) -> tuple[int, int]:
    """The device and inode of a file, which identify it; zeros if it does not exist, or we may not look."""
    try:
        found = os.stat(file)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def mode(path: str, follow: bool = True) -> int:
    """The type and the permissions of a file; 0 if it does not exist, or we may not look.

    Not ``follow``: those of the link itself. For a descriptor in /proc they say whether it is open to read or write.
    """
    try:
        return os.stat(path, follow_symlinks=follow).st_mode
    except OSError:
        return 0


def protocol(path: str) -> str:
    """The protocol of a socket, such as "TCPv6", as the kernel names it; "" if it does not, or we may not look."""
    try:
        return os.getxattr(path, "system.sockprotoname").rstrip(b"\0").decode("ascii", "replace")
    except OSError:
        return ""


def run_the_same(pid: int, other: int) -> bool:
    """Do both processes run the same program: the same file, or files of one name? False if we may not look."""
    ours, theirs = f"/proc/{pid}/exe", f"/proc/{other}/exe"
    return identity(ours) == identity(theirs) != (0, 0) or _program(ours) == _program(theirs) != ""


def _program(path: str) -> str:
    return os.path.basename(link(path)).removesuffix(" (deleted)")  # deleted by an upgrade


def namespace(kind: str = "pid") -> str:
    """The id of our namespace of that kind, "pid" or "mnt". Pids and paths of another one mean nothing here.

    Where /proc does not show it, the identity of our root directory stands for it. gVisor shows an invented number for
    each process; stat(2) then has another one.
    """
    path = f"/proc/self/ns/{kind}"
    number = link(path).partition("[")[2].rstrip("]")
    if number and number == str(identity(path)[1]):
        return number
    return "{}.{}".format(*identity("/"))


def namespaces() -> str:
    """The ids of our mount and PID namespaces, together."""
    return f"{namespace('mnt')}-{namespace('pid')}"


def is_on_branch() -> bool:
    """Whether we are in a session on a branch of its files: only there an overlay of this name is mounted."""
    return any(" - overlay shellsession " in line for line in lines("/proc/self/mountinfo"))


def is_below(pid: int) -> bool:
    """Is the process in a PID namespace below ours, as in a sandbox or a container?

    A process that has ended, or that /proc hides, counts as below. 0, a process outside our namespace, does not.
    """
    return pid != 0 and len(_numbers(pid)) != 1 and bool(_numbers(os.getpid()))


def inner_pid(pid: int) -> int:
    """The pid of a process in its own PID namespace; 0 if it has ended."""
    return int((_numbers(pid) or [b"0"])[-1])


def _numbers(pid: int) -> list[bytes]:
    """The pids of a process, in our PID namespace and each one below it; empty if it has ended.

    If /proc hides the process (hidepid), they come from a pidfd.
    """
    if numbers := field(pid, b"NSpid").split():
        return numbers
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return []
    try:
        return _line(f"/proc/self/fdinfo/{pidfd}", b"NSpid").split()
    finally:
        os.close(pidfd)


def link(path: str) -> str:
    """The target of a symbolic link; "" if it cannot be read."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def resolve(path: str, root: str = "") -> tuple[str, list[str]]:
    """An existing path without symbolic links, and the links that it led through; for a process with that root."""
    resolved, rest = "/", path.split("/")
    links: list[str] = []
    while rest and len(links) <= _LINKS:
        following = os.path.normpath(os.path.join(resolved, rest.pop(0)))
        if (target := link(root + following)) == "":
            resolved = following
            continue
        links.append(following)
        rest = target.split("/") + rest
        resolved = "/" if target.startswith("/") else resolved
    return os.path.join(resolved, *rest), links  # ``rest`` is not empty if the links form a circle


def exit_status(pidfd: int) -> int | None:
    """The wait(2) status of a process that somebody else has reaped; None before Linux 6.15."""
    import fcntl  # imported here, as the start of the command line does not need them
    import struct

    if pidfd < 0:
        return None
    info = bytearray(struct.pack("Q", _PIDFD_INFO_EXIT).ljust(64, b"\0"))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    filled, status = struct.unpack_from("Q", info)[0], struct.unpack_from("i", info, 60)[0]
    return int(status) if filled & _PIDFD_INFO_EXIT else None


def umask() -> int:
    """The umask of this process. os.umask can read it only by changing it, which other threads would notice."""
    return int(field("self", b"Umask") or b"22", 8)


def environment(pid: int) -> dict[str, str]:
    """The environment with which a process was started; empty if we may not look, or it has ended."""
    text = os.fsdecode(b"".join(_pages(f"/proc/{pid}/environ", sys.maxsize)))
    entries = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, equals, value in entries if equals}


def oom_score(pid: int) -> int:
    """What the kernel adds to the badness of a process when memory runs out: proc(5), oom_score_adj."""
    return int(read(f"/proc/{pid}/oom_score_adj"))


def set_oom_score(score: int) -> None:
    """Set ``oom_score`` of this process. Raises PermissionError for less than root has allowed."""
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(score))


def filters() -> bytes:
    """The number of seccomp filters of this thread, as text: "some" where the kernel does not count, empty if none."""
    filtered = field("thread-self", b"Seccomp") == b"2"
    return (field("thread-self", b"Seccomp_filters") or b"some") if filtered else b""


def tracer(pid: int) -> int:
    """The thread that traces a process; 0 if none does."""
    return int(field(pid, b"TracerPid") or b"0")


def field(pid: int | str, name: bytes) -> bytes:
    """A field of /proc/PID/status, which every user may read."""
    return _line(f"/proc/{pid}/status", name)


def _line(path: str, name: bytes) -> bytes:
    """The value of the line that starts with that name and a colon."""
    return read(path).partition(b"\n%b:" % name)[2].partition(b"\n")[0].strip()


def root() -> int:
    """The owner that root's files have here. In a user namespace that does not map root, it is the overflow id."""
    try:
        return os.stat("/proc/sys").st_uid
    except OSError:
        return 0
