"""Says what a command waits for: which of its processes explains the rest, and what the kernel knows of that one.

Everything is read from /proc, and nothing acts on a process. What /proc does not say is "unknown", never a guess. A
text names processes (comm) and files, and no arguments.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import struct
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, get_args

from ...models import Why, WhyKind
from ...text import escaped
from . import activity, proc

# The system calls that wait, by the kernel's tables (asm/unistd_64.h, asm-generic/unistd.h).
_READS, _WRITES, _POLLS = "read", "write", "poll"
_CALLS: Final[dict[int, str]] = {
    "x86_64": {
        **dict.fromkeys((0, 17, 19, 43, 45, 47, 275, 288, 299), _READS),
        **dict.fromkeys((1, 18, 20, 44, 46), _WRITES),
        **dict.fromkeys((7, 23, 232, 270, 271, 281, 441), _POLLS),
        **{2: "open", 257: "openat", 42: "connect", 40: "sendfile", 72: "fcntl", 73: "flock", 219: "restart"},
        **{35: "sleep", 230: "sleep", 202: "futex", 449: "futex", 61: "children", 247: "children"},
        **{34: "signal", 128: "signal", 130: "signal", 56: "fork", 58: "fork", 435: "fork", 74: "sync", 75: "sync"},
    },
    "aarch64": {
        **dict.fromkeys((63, 65, 67, 76, 202, 207, 212, 242, 243), _READS),
        **dict.fromkeys((64, 66, 68, 206, 211), _WRITES),
        **dict.fromkeys((22, 72, 73, 441), _POLLS),
        **{56: "openat", 203: "connect", 71: "sendfile", 25: "fcntl", 32: "flock", 128: "restart"},
        **{101: "sleep", 115: "sleep", 98: "futex", 449: "futex", 95: "children", 260: "children"},
        **{133: "signal", 137: "signal", 220: "fork", 435: "fork", 82: "sync", 83: "sync"},
    },
}.get(os.uname().machine, {})
# Of fcntl(2): F_SETLKW and F_OFD_SETLKW.
_SETLKW: Final = (7, 38)
_AT_FDCWD: Final = -100
_SIGINT: Final = 1 << signal.SIGINT - 1
_AF_UNIX: Final = 1
_RANK: Final[dict[WhyKind, int]] = {kind: rank for rank, kind in enumerate(get_args(WhyKind))}
# At most: threads of a process and descriptors of a poll that are looked at, and characters of a name.
_MANY: Final = 64
_LONGEST: Final = 200
_PAGE: Final = 4096
_TICKS: Final = os.sysconf("SC_CLK_TCK")
# A process that is seen at work counts as using the processor if it has used this part of its life: one that only wakes
# up from time to time has not. Young ones cannot be told apart.
_SHARE, _YOUNG = 0.03, 0.5
# One look may see a program between two pieces of work: of one that works that much, these kinds say nothing.
_AT_WORK: Final = 0.3
_PAUSES: Final = {"sleep", "itself"}
# States of TCP in /proc/net/tcp (net/tcp_states.h).
_ESTABLISHED, _SYN_SENT, _CLOSE_WAIT, _LISTEN = "01", "02", "08", "0A"
# The tables of sockets, by the protocol for which the kernel has them, and what a text says of the protocol.
_TABLES: Final = {
    **{"TCP": "tcp", "TCPv6": "tcp6", "UDP": "udp", "UDPv6": "udp6", "PING": "icmp", "PINGv6": "icmp6"},
    **{"RAW": "raw", "RAWv6": "raw6", "UNIX": "unix", "UNIX-STREAM": "unix"},
}
_NOTES: Final = {"udp": " (UDP)", "icmp": " (ICMP)", "raw": " (raw IP)"}


class Process(NamedTuple):
    """What ``stat`` says of a process. ``ticks``: of the processor, and ``start`` since boot. ``ignored``: signals."""

    pid: int
    comm: str
    state: str
    parent: int
    session: int
    terminal: int
    ticks: int
    threads: int
    start: int
    ignored: int


class Scene(NamedTuple):
    """What the session knows of its command.

    ``asks``: it has seen that the command waits for the terminal. ``question``: what the command has printed last.
    """

    asks: bool = False
    question: Callable[[], str] = str


class _Wait(NamedTuple):
    """What one process waits for. ``by``: the processes of the command that explain it, if there are some.

    ``is_vague``: it says nothing if the process waits for other descriptors as well. Many programs have such a pipe or
    socket to wake themselves up.
    """

    kind: WhyKind
    text: str
    by: frozenset[int] = frozenset()
    is_vague: bool = False


# In a poll, the kinds that a process with many descriptors always has.
_VAGUE: Final = {"unknown", "itself", "output", "sleep", "signal", "disk"}
_UNKNOWN: Final = _Wait("unknown", "")
_ITSELF: Final = _Wait("itself", "waits for something within its own process")
_SLEEPS: Final = _Wait("sleep", "sleeps")


def sample(pids: Iterable[int]) -> dict[int, Process]:
    """What ``stat`` says of those processes that live."""
    found = dict[int, Process]()
    for pid in pids:
        comm, fields = proc.named_stat(pid)
        if len(fields) > 30:
            parent, session, terminal = (int(fields[at]) for at in (1, 3, 4))
            ticks, threads = int(fields[11]) + int(fields[12]), int(fields[17])
            found[pid] = Process(
                pid,
                _first_word(comm),
                fields[0].decode(),
                parent,
                session,
                terminal,
                ticks,
                threads,
                start=int(fields[19]),
                ignored=int(fields[30]),
            )
    return found


def look(pids: Sequence[int], scene: Scene, before: Mapping[int, Process] | None = None) -> Why:
    """Say what a command waits for. ``pids``: bash, then the processes of the command, nearest first.

    ``before``: a ``sample`` of a tenth of a second ago. Without it, what uses the processor shows in its whole life.
    """
    return _Look(sample(pids), scene, before).why()


class _Look:
    """One look at the processes of a command."""

    def __init__(self, found: dict[int, Process], scene: Scene, before: Mapping[int, Process] | None) -> None:
        self._all, self._scene, self._before = found, scene, before
        self._hidden = set[int]()
        self._tables = dict[tuple[int, str], list[list[str]]]()
        self._targets = dict[int, dict[str, str]]()  # of each process, its descriptors and their names
        self._found = _foreground(found)
        self._children: dict[int, set[int]] = {}
        for one in self._found.values():
            self._children.setdefault(one.parent, set()).add(one.pid)

    def why(self) -> Why:
        """Return the answer."""
        processes = list(self._found.values())
        if not processes:
            return Why("unknown", "unknown: its processes have just ended")
        stopped = [one for one in processes if one.state in "Tt"]
        if stopped and not self._scene.asks:
            return _named(stopped[-1], _Wait("stopped", "is stopped"))
        if not self._scene.asks and (busy := [one for one in processes if one.state == "R" and self._is_busy(one)]):
            return _busy(busy)
        waits = {one.pid: self._wait(one) for one in processes}
        if self._scene.asks and (reader := self._at_terminal(waits)) is not None:
            return reader
        if busy := [self._found[pid] for pid, wait in waits.items() if wait.kind == "cpu"]:
            return _busy(busy)
        free = {pid: wait for pid, wait in waits.items() if not wait.by}
        # Where all wait for each other, it is for a pipe.
        free = free or {pid: wait for pid, wait in waits.items() if wait.kind == "pipe"} or waits
        best = min(_RANK[wait.kind] for wait in free.values())
        pid = [pid for pid, wait in free.items() if _RANK[wait.kind] == best][-1]
        pauses = free[pid].kind in _PAUSES and self._before is None and self._share(self._found[pid]) >= _AT_WORK
        return _named(self._found[pid], _UNKNOWN if pauses else free[pid])

    def _at_terminal(self, waits: Mapping[int, _Wait]) -> Why | None:
        """The answer where the session has seen that the command waits for the terminal."""
        pids = [pid for pid, wait in waits.items() if wait.kind == "terminal"]
        # The kernel stops a process of the background that wants the terminal. Others may hide what they do.
        hidden = (
            one for one in self._found.values() if one.state in "Tt" or (one.pid in self._hidden and one.state != "R")
        )
        if not (pids := pids or [one.pid for one in hidden]):
            return None
        return _named(self._found[pids[-1]], _Wait("terminal", f"reads the terminal{self._after()}"))

    def _after(self) -> str:
        question = _shown(self._scene.question())
        return f' after "{question}"' if question else ""

    def _is_busy(self, one: Process) -> bool:
        """Does a process that runs now use the processor, or has it only just woken up?"""
        if self._before is not None and (before := self._before.get(one.pid)) is not None:
            return before.state == "R" or self._has_worked(one)
        return proc.time_now() - one.start < _YOUNG * _TICKS or self._share(one) >= _SHARE

    def _share(self, one: Process) -> float:
        """Which part of its life it has used the processor."""
        return one.ticks / max(1, proc.time_now() - one.start)

    def _has_worked(self, one: Process) -> bool:
        """Has it used the processor since the sample before?"""
        before = None if self._before is None else self._before.get(one.pid)
        return before is not None and one.ticks - before.ticks >= 2

    # -- what one process waits for

    def _wait(self, one: Process) -> _Wait:
        """What a process waits for: what its first thread does, unless that waits for nothing but the others."""
        if self._has_worked(one):
            return _Wait("cpu", "uses the CPU")
        first = self._thread(one, one.pid)
        if one.threads == 1 or _RANK[first.kind] < _RANK["sleep"] or first.by or one.pid in self._hidden:
            return first
        others = [self._thread(one, thread) for thread in activity.threads(one.pid)[1:_MANY]]
        return min((first, *others), key=lambda wait: (_RANK[wait.kind], wait is not first))

    def _thread(self, one: Process, thread: int) -> _Wait:
        call = activity.system_call(one.pid, thread)
        if not call:
            self._hidden.add(one.pid)
            return _UNKNOWN
        if call == activity.RUNS:
            return _Wait("cpu", "uses the CPU") if self._is_busy(one) else _UNKNOWN
        kind = _CALLS.get(call[0], "")
        wait = self._of_call(one, thread, kind, call) if len(call) > 4 else _UNKNOWN
        if wait.kind == "unknown" and one.state == "D" and thread == one.pid:
            return _Wait("disk", "waits for the disk")
        return wait

    def _of_call(self, one: Process, thread: int, kind: str, call: tuple[int, ...]) -> _Wait:
        first = call[1]
        match kind:
            case "read" | "write":
                return self._descriptor(one, first, kind == "read")
            case "sendfile":
                return self._descriptor(one, first, False)
            case "poll":
                return self._poll(one, call)
            case "connect":
                return self._connect(one, call)
            case "children" | "fork":
                return self._for_children(one, _Wait("children", "waits for a child process"))
            case "signal":
                return self._for_children(one, _Wait("signal", "waits for a signal"))
            case "sleep":
                return _SLEEPS
            case "futex":
                return _ITSELF
            case "sync":
                return _Wait("disk", f"waits until {_file(one.pid, first)} is on the disk")
            case "flock":
                return self._lock(one, first)
            case "fcntl" if call[2] in _SETLKW:
                return self._lock(one, first)
            case "open":
                return _opening(one, _AT_FDCWD, first, call[2])
            case "openat":
                return _opening(one, first, call[2], call[3])
            case "restart":  # it was stopped meanwhile, and its arguments are gone
                return _SLEEPS if b"nanosleep" in proc.read(f"/proc/{one.pid}/task/{thread}/wchan") else _UNKNOWN
        return _UNKNOWN

    def _for_children(self, one: Process, otherwise: _Wait) -> _Wait:
        children = self._children.get(one.pid)
        return otherwise._replace(by=frozenset(children)) if children else otherwise

    def _descriptor(self, one: Process, fd: int, reading: bool, polls: bool = False) -> _Wait:
        """What a process waits for that reads, or writes, a descriptor. ``polls``: perhaps among others."""
        path = f"/proc/{one.pid}/fd/{fd}"
        target = proc.link(path)
        if target.startswith("socket:"):
            return self._socket(one, path, target[8:-1], reading)
        if target.startswith(("pidfd:", "anon_inode:[pidfd]")):  # newer kernels, and older ones
            return self._for_children(one, _Wait("children", "waits for a process"))
        if target.startswith("anon_inode:"):
            return self._anonymous(one, target)
        if target.endswith("/ptmx"):
            return self._for_children(one, _UNKNOWN)
        mode = stat.S_IFIFO if target.startswith("pipe:") else proc.mode(path)
        if stat.S_ISFIFO(mode):
            return self._pipe(one, path, target, reading, polls)
        if target.startswith("/dev/pts/") or target in ("/dev/tty", "/dev/console"):
            if not reading:
                return _Wait("output", "waits until its output is read")
            bash = next(iter(self._all.values()))
            other = f" {target}" if one.terminal != bash.terminal else ""
            return _Wait("terminal", f"reads the terminal{other}{self._after()}")
        if stat.S_ISREG(mode):
            return _Wait("disk", f"{'reads' if reading else 'writes'} the file {_shown(target)}")
        return _UNKNOWN

    def _anonymous(self, one: Process, target: str) -> _Wait:
        if "notify" in target:
            return _Wait("files", "waits for changes of files")
        if "timerfd" in target:
            return _SLEEPS
        if "signalfd" in target:
            return self._for_children(one, _Wait("signal", "waits for a signal"))
        return _ITSELF if "eventfd" in target else _UNKNOWN

    def _pipe(self, one: Process, path: str, target: str, reading: bool, polls: bool) -> _Wait:
        """What a process waits for that reads, or writes, a pipe or FIFO: who has the other end."""
        verb = "reads" if reading else "writes"
        is_named = not target.startswith("pipe:")
        what = f"the FIFO {_shown(target)}" if is_named else "a pipe"
        there = "writes" if reading else "reads"  # what has it open may do that; whether it does is not known
        # Bash comes last: it has many descriptors, and seldom this one.
        ours = (pid for pid in reversed(self._all) if pid != one.pid)
        if (peer := next(self._ends(ours, path, target, reading), 0)) in self._found:
            text = f"{verb} {what} that {_shown(self._found[peer].comm)} can {there[:-1]}"
            return _Wait("pipe", text, frozenset({peer}))
        if not (peer or reading) and any(self._ends([os.getpid()], path, target, False)):
            return _Wait("output", "waits until its output is read")
        is_own = any(self._ends([one.pid], path, target, reading))
        if is_own and polls and not peer and not is_named:
            return _UNKNOWN  # with such a pipe a program wakes itself up; to look at all processes takes milliseconds
        peer = peer or next(self._ends(_others(self._all), path, target, reading), 0)
        if peer:
            return _Wait("pipe", f"{verb} {what} that {_who(peer)} can {there[:-1]}")
        if hidden := frozenset(pid for pid in self._found if pid != one.pid and not activity.may_look(pid)):
            return _Wait("pipe", f"{verb} {what}", hidden)
        nobody = f"{verb} {what}, which nobody {'else ' * is_own}{there}"
        return _Wait("fifo", nobody) if is_named else _Wait("pipe", nobody, is_vague=True)

    def _ends(self, pids: Iterable[int], path: str, target: str, writing: bool) -> Iterator[int]:
        """Yield each process that has a pipe, given by its path in /proc, open for writing, or else for reading."""
        mode, is_named = stat.S_IWUSR if writing else stat.S_IRUSR, not target.startswith("pipe:")
        # The name of a pipe is the same everywhere; that of a FIFO is not, and takes longer to compare.
        file = proc.identity(path) if is_named else (0, 0)
        for pid in pids:
            if (targets := self._targets.get(pid)) is None:
                fds = (f"/proc/{pid}/fd/{fd}" for fd in proc.names(f"/proc/{pid}/fd"))
                self._targets[pid] = targets = {fd: proc.link(fd) for fd in fds}
            for fd, name in targets.items():
                is_same = "/" in name and proc.identity(fd) == file if is_named else name == target
                if is_same and proc.mode(fd, follow=False) & mode:
                    yield pid
                    break

    # -- sockets

    def _socket(self, one: Process, path: str, inode: str, reading: bool) -> _Wait:
        if not (protocol := proc.protocol(path)):
            tables = [*dict.fromkeys(_TABLES.values())]
        else:  # to read all takes milliseconds
            tables = [_TABLES[protocol]] if protocol in _TABLES else []
        for table in tables:
            at = 6 if table == "unix" else 9
            if line := next((line for line in self._table(one.pid, table) if line[at : at + 1] == [inode]), None):
                return _of_unix(line) if table == "unix" else _of_internet(line, table.rstrip("6"), reading)
        return _UNKNOWN

    def _table(self, pid: int, name: str) -> list[list[str]]:
        """A table of sockets in the network of the process."""
        if (pid, name) not in self._tables:
            self._tables[pid, name] = [line.split() for line in proc.lines(f"/proc/{pid}/net/{name}")[1:]]
        return self._tables[pid, name]

    def _connect(self, one: Process, call: tuple[int, ...]) -> _Wait:
        _, fd, address, size, *_ = call
        family = activity.memory(one.pid, address, 2)
        if family == struct.pack("H", _AF_UNIX):
            path = activity.memory(one.pid, address, min(size, 110))[2:].partition(b"\0")[0]
            name = f"the socket {_shown(os.fsdecode(path))}" if path else "a unix socket"
            return _Wait("socket", f"waits for {name}, which takes no more connections")
        return self._descriptor(one, fd, True)

    # -- polls

    def _poll(self, one: Process, call: tuple[int, ...]) -> _Wait:
        """What a process waits for that polls descriptors."""
        found = list[_Wait]()
        for events, reading in ((select.POLLIN, True), (select.POLLOUT, False)):
            for fd in [*activity.awaited(one.pid, call, events)][:_MANY]:
                found.append(self._descriptor(one, fd, reading, polls=True))
        telling = [wait for wait in found if not wait.is_vague and wait.kind not in _VAGUE]
        if self._scene.asks and (reads := [wait for wait in telling if wait.kind == "terminal"]):
            return reads[0]
        if telling:
            return min(telling, key=lambda wait: (not wait.by, _RANK[wait.kind]))
        if any(wait.kind == "sleep" for wait in found):
            return _SLEEPS
        return self._for_children(one, _SLEEPS if activity.has_limit(one.pid, call) else _ITSELF)

    # -- locks

    def _lock(self, one: Process, fd: int) -> _Wait:
        name = f"waits for the lock {_file(one.pid, fd)}"
        listed = [line.split() for line in proc.lines("/proc/locks")]
        mine = [words for words in listed if len(words) > 6 and words[1] == "->" and words[5] == str(one.pid)]
        numbers = {words[0] for words in mine}
        pids = [int(words[4]) for words in listed if words[0] in numbers and len(words) > 5 and words[1] != "->"]
        holders = [pid for pid in pids if pid > 0 and proc.alive(pid)]
        if not holders:  # whoever took it has ended, and others have the file open
            file = proc.identity(f"/proc/{one.pid}/fd/{fd}")
            everyone = sorted(pid for pid in proc.everyone() if pid != one.pid)
            holders = [*activity.lock_holders((*self._all, *everyone), file)][:1]
            holders = [pid for pid in holders if pid != one.pid]
        return _Wait("lock", f"{name}, held by {_who(holders[0])}" if holders else name)


def _foreground(found: dict[int, Process]) -> dict[int, Process]:
    """The processes for which bash waits: without those in its background, if there are others.

    Bash lets what it starts with ``&`` ignore SIGINT. A daemon has left its session.
    """
    bash = next(iter(found), 0)
    roots = [one for one in found.values() if one.parent == bash]
    if len(roots) < 2 or len({one.comm for one in roots}) < 2:
        return found
    front = [one for one in roots if one.session == found[bash].session] or roots
    front = [one for one in front if not one.ignored & _SIGINT] or front
    if len(front) == len(roots):
        return found
    kept = {bash, *(one.pid for one in front)}
    for one in found.values():
        if one.parent in kept and one.parent != bash:
            kept.add(one.pid)
    return {pid: one for pid, one in found.items() if pid in kept}


def _busy(busy: Sequence[Process]) -> Why:
    """The answer where some processes use the processor: how many have the most frequent name."""
    (comm, count), *_ = Counter(one.comm for one in reversed(busy)).most_common(1)
    last = next(one for one in reversed(busy) if one.comm == comm)
    name = _shown(comm)
    return Why("cpu", f"{count} x {name} use the CPU" if count > 1 else f"{name} uses the CPU", last.pid, comm)


def _named(one: Process, wait: _Wait) -> Why:
    name = _shown(one.comm)
    if wait.kind == "unknown":
        return Why("unknown", f"unknown: /proc does not say what {name} waits for", one.pid, one.comm)
    return Why(wait.kind, f"{name} {wait.text}", one.pid, one.comm)


def _who(pid: int) -> str:
    comm, _ = proc.named_stat(pid)
    return f"{pid} {_shown(_first_word(comm))}".rstrip()


def _first_word(comm: str) -> str:
    """The name of a process without what it may have put behind it: npm names itself "npm install ..."."""
    return comm.partition(" ")[0] or comm


def _others(pids: Container[int]) -> list[int]:
    """All processes but these, the youngest first."""
    return sorted((pid for pid in proc.everyone() if pid not in pids), reverse=True)


def _shown(name: str) -> str:
    """A name in one line, and not too long."""
    return escaped(name if len(name) <= _LONGEST else f"...{name[-_LONGEST:]}")


def _file(pid: int, fd: int) -> str:
    return _shown(proc.link(f"/proc/{pid}/fd/{fd}")) or "a file"


def _opening(one: Process, directory: int, address: int, flags: int) -> _Wait:
    """What a process waits for that opens a file: the other end of a FIFO."""
    name = _text(one.pid, address)
    base = "cwd" if directory & 0xFFFFFFFF == _AT_FDCWD & 0xFFFFFFFF else f"fd/{directory}"
    path = f"/proc/{one.pid}/root{name}" if name.startswith("/") else f"/proc/{one.pid}/{base}/{name}"
    if not name or not stat.S_ISFIFO(proc.mode(path)):
        return _UNKNOWN
    missing = "reads" if flags & os.O_ACCMODE == os.O_WRONLY else "writes"
    return _Wait("fifo", f"opens the FIFO {_shown(name)}, which nobody {missing}")


def _text(pid: int, address: int) -> str:
    """The text at an address of a process, which ends with a NUL; "" where we may not look."""
    data = activity.memory(pid, address, _PAGE - address % _PAGE)
    if b"\0" not in data:
        data += activity.memory(pid, address + len(data), _PAGE)
    return os.fsdecode(data.partition(b"\0")[0]) if b"\0" in data else ""


def _of_unix(line: Sequence[str]) -> _Wait:
    """What waits for the unix socket in this line of its table."""
    name = f"the socket {_shown(' '.join(line[7:]))}" if len(line) > 7 else ""
    if int(line[3], 16) & 0x10000:
        return _Wait("listen", f"waits for connections at {name or 'a unix socket'}")
    return _Wait("socket", f"waits for {name or 'a unix socket'}", is_vague=not name)


def _of_internet(line: Sequence[str], table: str, reading: bool) -> _Wait:
    """What waits for the socket in this line of another table."""
    local, remote, state = _address(line[1]), _address(line[2]), line[3]
    if note := _NOTES.get(table):
        return _Wait("network", f"waits for data {f'from {remote}' if remote else f'at {local}'}{note}")
    if state == _SYN_SENT:
        return _Wait("network", f"waits for {remote}, no answer to SYN")
    if state == _LISTEN:
        return _Wait("listen", f"waits for connections at {local}")
    if state in (_ESTABLISHED, _CLOSE_WAIT) and not reading:
        return _Wait("network", f"sends to {remote}, which takes no more")
    return _Wait("network", f"waits for data from {remote}") if state == _ESTABLISHED else _UNKNOWN


def _address(text: str) -> str:
    """An address in a table of sockets, as people write it; "" for none."""
    host, _, port = text.partition(":")
    # The kernel prints words of the machine's own byte order.
    packed = b"".join(struct.pack("=I", int(host[at : at + 8], 16)) for at in range(0, len(host), 8))
    number = int(port, 16)
    if not any(packed) and not number:
        return ""
    if len(packed) == 16 and packed[:12] == bytes(10) + b"\xff\xff":
        packed = packed[12:]
    if len(packed) == 4:
        return f"{'.'.join(map(str, packed))}:{number}"
    from ipaddress import IPv6Address  # rarely needed

    return f"[{IPv6Address(packed)}]:{number}"
