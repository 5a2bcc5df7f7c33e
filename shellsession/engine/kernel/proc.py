"""What /proc tells of processes, also where the host has no descriptor free.

Law: it looks, and changes nothing.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from _thread import RLock  # what threading has, too; a command line's start does without that

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Final, TypeVar

    T = TypeVar("T")


FULL: Final = {errno.EMFILE, errno.ENFILE}  # no descriptor is left, for this process or for all


class Spare:
    """One descriptor that is kept back while somebody wants it: closed for a look where no other is free."""

    def __init__(self) -> None:
        # One thread looks at a time: another would take what was given up. A signal's handler, or a garbage
        # collection, that ends a session in the middle of a look is in the same thread.
        self._lock = RLock()
        self._wanted: set[object] = set()
        self._fd = -1

    def want(self, who: object) -> None:
        """Keep one for them from now on."""
        with self._lock:
            self._wanted.add(who)
            self._keep()

    def leave(self, who: object) -> None:
        """With the last of them the descriptor goes."""
        with self._lock:
            self._wanted.discard(who)
            if not self._wanted:
                self._give_up()

    def look(self, how: Callable[[], T]) -> T:
        """Do what needs one descriptor for a moment. Raises OSError."""
        with self._lock:
            try:
                return how()
            except OSError as error:
                if error.errno not in FULL:
                    raise
                self._give_up()
                return how()
            finally:
                if self._wanted:
                    self._keep()

    def forget(self) -> None:
        """In a forked child: it has no session yet, and another thread of its parent may have held the lock."""
        self._give_up()
        self.__init__()  # type: ignore[misc]

    def _keep(self) -> None:
        if self._fd < 0:
            try:
                self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return  # the next look tries again

    def _give_up(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


SPARE: Final = Spare()

os.register_at_fork(after_in_child=SPARE.forget)

_AT_ONCE = 1 << 16  # bytes; of what is longer than a page the kernel gives less
_TICKS = os.sysconf("SC_CLK_TCK")  # in a second
_SHORT = 4000  # bytes; what is shorter was given whole: the smallest page has 4096
_LISTINGS = 20  # of all processes; others may come and go all the time
_LINKS = 40  # as many as the kernel follows: what leads round in a circle leads nowhere
_PIDFD_GET_INFO = 0xC040FF0B  # <linux/pidfd.h>: of the first 64 bytes of struct pidfd_info
_PIDFD_INFO_EXIT = 1 << 3


def _pages(path: str, most: int) -> list[bytes]:
    """What so many reads give; nothing where it may not be read."""

    def look() -> list[bytes]:
        # A file object, which a signal's handler that raises cannot leave open: it may strike before any `try`.
        with open(path, "rb", buffering=0) as file:
            pages: list[bytes] = []
            while len(pages) < most and (page := os.read(file.fileno(), _AT_ONCE)):
                pages.append(page)
            return pages

    try:
        return SPARE.look(look)
    except OSError:
        return []


def read(path: str) -> bytes:
    """What is shorter than a page: one read gives it whole."""
    return b"".join(_pages(path, 1))


def names(path: str) -> list[str]:
    """The names in a directory."""
    try:
        return SPARE.look(lambda: os.listdir(path))
    except OSError:
        return []


def lines(path: str) -> list[str]:
    """Of a file that one read may not give whole: of a list, the kernel gives a page at a time."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().split("\n")[:-1]  # a name may hold what else ends a line
    except OSError:
        return []


def available() -> bool:
    """Is there a /proc that shows our own children?"""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat after the name (which may hold anything): state first, then proc(5) field 4 on."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def state(pid: int) -> str:
    """R, S, D, T, Z ... as in ps(1); "" when there is no such process."""
    fields = _stat(pid)
    return fields[0].decode() if fields else ""


def start_time(pid: int) -> int:
    """Clock ticks from boot to the process's start: with the pid it names a process for ever. 0 when it is gone."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def parent(pid: int) -> int:
    """Of a zombie, too; 0 when it is gone."""
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def time_now() -> int:
    """What ``start_time`` is of a process that starts just now."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) * _TICKS // 10**9


def is_gone(pid: int, start: int) -> bool:
    """Has the process that was started at that time ended? Not when we cannot know: without a free descriptor, say."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return not _is_there(pid)  # or /proc hides it
    except OSError:
        return False
    return len(fields) > 19 and (int(fields[19]) != start or _has_ended(fields))


def _is_there(pid: int) -> bool:
    """Is there such a process? Also where /proc hides it (hidepid), as it does one of ours that may not be traced."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def processor_time(pid: int) -> float:
    """Seconds that a process has run (infinite where the kernel keeps no count)."""
    words = read(f"/proc/{pid}/schedstat").split()
    return int(words[0]) / 1e9 if len(words) == 3 else float("inf")


def alive(pid: int) -> bool:
    """Is it there, and more than a zombie?"""
    fields = _stat(pid)
    return fields != [] and not _has_ended(fields)


def _has_ended(fields: list[bytes]) -> bool:
    """Not where only its first thread has: it shows as a zombie then, and runs on in the others."""
    return fields[0] in (b"Z", b"X") and int(fields[17]) <= 1


def children(pid: int) -> list[int]:
    """The children of every thread of a process, zombies too."""
    threads = names(f"/proc/{pid}/task")
    return [child for thread in threads for child in _children(f"/proc/{pid}/task/{thread}/children")]


def open_children(pid: int) -> int:
    """A descriptor of the list of a process's children, those of its first thread. Raises OSError."""
    return os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)


def _children(path: str) -> list[int]:
    """All that a list names which the kernel gives a page at a time, and finds its place in by counting.

    Where some of an earlier page have gone between two reads, as many of the next are passed over (or all, and no next
    page comes). They stand in an earlier page by then: a long list is read again, until that brings nobody new.
    """
    found: dict[bytes, None] = {}
    for _ in range(_LISTINGS):
        known, text = len(found), b"".join(_pages(path, sys.maxsize))
        found.update(dict.fromkeys(text.split()))
        if len(text) < _SHORT or len(found) == known:
            break
    return [int(child) for child in found]


def descendants(pid: int, besides: Iterable[int] = ()) -> list[int]:
    """Everything below a process, nearest first, without the families of ``besides``."""
    return list(below(pid, besides))


def below(pid: int, besides: Iterable[int] = ()) -> Iterator[int]:
    """``descendants``, each as it is found."""
    seen = set(besides)
    queue = [pid]
    while queue:
        for child in children(queue.pop(0)):
            if child not in seen:
                seen.add(child)
                queue.append(child)
                yield child


def lineage(pid: int) -> list[int]:
    """The process, its parent, and so on, up to ours or to the first of all."""
    found: list[int] = []
    while pid > 1 and pid != os.getpid() and pid not in found:
        found.append(pid)
        pid = parent(pid)
    return found


def adopting_lists() -> dict[str, bytes]:
    """The text, by path, of each list of children to which the kernel may append an orphan of a child of ours.

    The orphan goes to the nearest process above that asked for orphans (PR_SET_CHILD_SUBREAPER, which nobody can see),
    or to the first of the PID namespace, and there to the first thread. Of this process all threads are read: a program
    that has replaced a child of ours can give it a sibling (CLONE_PARENT). Each list is read once, so it may lack some:
    see ``_children``. Empty where a list may not be read, or one of these processes has just ended.
    """
    pids: list[int] = []
    pid = os.getpid()
    while pid not in pids:
        fields = _stat(pid)
        if not fields or fields[0] == b"Z":  # its first thread has ended: orphans go to another
            return {}
        pids.append(pid)
        pid = int(fields[1]) or 1  # 0: of the first, or of one that has come in from outside
    if pid != 1 or not available():
        return {}
    paths = [f"/proc/{pids[0]}/task/{thread}/children" for thread in names(f"/proc/{pids[0]}/task")]
    paths += [f"/proc/{pid}/task/{pid}/children" for pid in pids[1:]]
    return {path: b"".join(_pages(path, sys.maxsize)) for path in paths}


def everyone() -> Iterator[int]:
    """All process ids that we can see."""
    for name in names("/proc"):
        if name.isdigit():
            yield int(name)


def tag(pid: int) -> int:
    """Its soft RLIMIT_LOCKS (see ``tags``); -1 when there is none, or it may not be looked at."""
    words = read(f"/proc/{pid}/limits").partition(b"Max file locks")[2].split(maxsplit=1)
    return int(words[0]) if words and words[0].isdigit() else -1


def tagged(low: int, high: int) -> list[int]:
    """Living processes whose tag lies in the range: what a session started, whoever adopted it."""
    return sorted(found_among(everyone, lambda pid: low <= tag(pid) <= high and alive(pid)))


def found_among(listed: Callable[[], Iterable[int]], is_one: Callable[[int], bool]) -> list[int]:
    """Those listed of whom that is true.

    One that forks and ends meanwhile is not seen, and its child was not there yet: before it is said that there is
    none, those who have come since are looked at, too.
    """
    seen: set[int] = set()
    for _ in range(_LISTINGS):
        fresh = [pid for pid in listed() if pid not in seen]
        found = [pid for pid in fresh if is_one(pid)]
        if found or not fresh:
            return found
        seen.update(fresh)
    return []


def identity(file: str | int) -> tuple[int, int]:
    """What tells a file from all others: its device and inode; zeros for one that is gone, or may not be looked at."""
    try:
        found = os.stat(file)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def run_the_same(pid: int, other: int) -> bool:
    """Is it the same file that both run, or another of its name? No when one has ended, or may not be looked at."""
    ours, theirs = f"/proc/{pid}/exe", f"/proc/{other}/exe"
    return identity(ours) == identity(theirs) != (0, 0) or _program(ours) == _program(theirs) != ""


def _program(link_to_it: str) -> str:
    return os.path.basename(link(link_to_it)).removesuffix(" (deleted)")  # by an upgrade


def namespace() -> str:
    """Names our PID namespace: what another one calls a pid tells nothing here."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"


def is_confined(pid: int) -> bool:
    """Is it in a PID namespace below ours, and another user namespace, as what is in a sandbox is?

    What has ended counts as confined, and so does what /proc hides; 0, a process above or beside us, does not.
    """
    if pid == 0 or len(_numbers(pid)) == 1:
        return False
    ours = _user_namespace("self")
    return ours != 0 and _user_namespace(pid) != ours and not _has_all_users(pid)


def _numbers(pid: int) -> list[bytes]:
    """Its number in each of its PID namespaces, from ours on; none of one that has ended.

    Where /proc hides it (hidepid), its pidfd tells.
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


def _user_namespace(pid: int | str) -> int:
    try:
        return os.stat(f"/proc/{pid}/ns/user").st_ino
    except OSError:
        return 0


def _has_all_users(pid: int) -> bool:
    """Is it in the first user namespace, or in one that only root can make? Of all that may not be traced, too."""
    return read(f"/proc/{pid}/uid_map").split() == [b"0", b"0", b"4294967295"]


def link(path: str) -> str:
    """Where a symbolic link points; "" when it may not be read."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def resolve(path: str, root: str = "") -> tuple[str, list[str]]:
    """An existing path as it is without symbolic links, and those that it leads through, for who has that root."""
    here, ahead = "/", path.split("/")
    links: list[str] = []
    while ahead and len(links) <= _LINKS:
        there = os.path.normpath(os.path.join(here, ahead.pop(0)))
        if (target := link(root + there)) == "":
            here = there
            continue
        links.append(there)
        ahead = target.split("/") + ahead
        here = "/" if target.startswith("/") else here
    return os.path.join(here, *ahead), links  # the rest leads round in a circle, and so nowhere


def exit_status(pidfd: int) -> int | None:
    """How a process ended that somebody else has reaped, as wait(2) has it; None before Linux 6.15, which tells it."""
    import fcntl  # a command line's start does without them
    import struct

    if pidfd < 0:
        return None
    info = bytearray(struct.pack("Q", _PIDFD_INFO_EXIT).ljust(64, b"\0"))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    told, status = struct.unpack_from("Q", info)[0], struct.unpack_from("i", info, 60)[0]
    return int(status) if told & _PIDFD_INFO_EXIT else None


def umask() -> int:
    """This process's; os.umask can only ask by changing it, under the feet of other threads."""
    return int(field("self", b"Umask") or b"22", 8)


def environment(pid: int) -> dict[str, str]:
    """With which it was started; empty where that may not be seen, or it has ended."""
    text = os.fsdecode(b"".join(_pages(f"/proc/{pid}/environ", sys.maxsize)))
    entries = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, equals, value in entries if equals}


def filters() -> bytes:
    """How many filters of system calls are over this thread (seccomp(2)), where that is told; empty without any."""
    filtered = field("thread-self", b"Seccomp") == b"2"
    return (field("thread-self", b"Seccomp_filters") or b"some") if filtered else b""


def tracer(pid: int) -> int:
    """The thread that traces a process; 0 when none does."""
    return int(field(pid, b"TracerPid") or b"0")


def field(pid: int | str, name: bytes) -> bytes:
    """A field of /proc/PID/status, which everybody may read."""
    return _line(f"/proc/{pid}/status", name)


def _line(path: str, name: bytes) -> bytes:
    """What a file says behind that name."""
    return read(path).partition(b"\n%b:" % name)[2].partition(b"\n")[0].strip()


def root() -> int:
    """The owner of root's files as we see it: the overflow id, in a user namespace that does not map root."""
    try:
        return os.stat("/proc/sys").st_uid
    except OSError:
        return 0
