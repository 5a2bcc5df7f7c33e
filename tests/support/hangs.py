"""Commands that hang, each with what it waits for.

The name of a ``Hang`` in ``CHOSEN`` comes from reports of hanging tools, and was chosen before any code was written.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

PY: Final = "python3 -c"


class Hang(NamedTuple):
    """A command, the kinds that name its wait right, and what the line must contain."""

    command: str
    kinds: str
    words: str = ""
    asks: bool = False  # it gets the terminal


class Peers:
    """What hangs need on the other side: servers that accept and never answer, or accept no more."""

    def __init__(self, stack: ExitStack, place: Path) -> None:
        self.fields: dict[str, object] = {"place": place}
        for name, family, host in (("v4", socket.AF_INET, "127.0.0.1"), ("v6", socket.AF_INET6, "::1")):
            silent = stack.enter_context(socket.socket(family))
            silent.bind((host, 0))
            silent.listen(50)
            full = stack.enter_context(socket.socket(family))
            full.bind((host, 0))
            full.listen(0)
            stack.enter_context(socket.create_connection(full.getsockname()[:2]))
            self.fields[name], self.fields[f"full_{name}"] = silent.getsockname()[1], full.getsockname()[1]
        dark = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        dark.bind(("127.0.0.1", 0))
        self.fields["udp"] = dark.getsockname()[1]
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        local.bind(str(place / "sock"))
        local.listen(0)
        os.chmod(place / "sock", 0o777)
        stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(place / "sock"))


@contextmanager
def peers(place: Path) -> Iterator[dict[str, object]]:
    """The values that the texts of the commands name in braces."""
    with ExitStack() as stack:
        yield Peers(stack, place).fields


_CONNECT: Final = "import socket; s=socket.create_connection(('127.0.0.1',{v4}))"
OWN: Final = {
    "sleep": Hang("sleep 50", "sleep", "sleep sleeps"),
    "sleep in a script": Hang("bash -c 'sleep 50; true'", "sleep", "sleep sleeps"),
    "sleep in a function": Hang("f() {{ sleep 50; }}; f | cat", "sleep", "sleep sleeps"),
    "sleep in dash": Hang("sh -c '(sleep 50; true) | cat | cat; true'", "sleep", "sleep sleeps"),
    "sleep of python": Hang(f"{PY} 'import time; time.sleep(50)'", "sleep", "python3 sleeps"),
    "sleep of a thread": Hang(
        f"{PY} 'import threading,time; t=threading.Thread(target=time.sleep,args=(50,)); t.start(); t.join()'",
        "sleep",
        "python3 sleeps",
    ),
    "sleep of asyncio": Hang(f"{PY} 'import asyncio; asyncio.run(asyncio.sleep(50))'", "sleep", "python3 sleeps"),
    "sleep of select": Hang(f"{PY} 'import select; select.select([],[],[],50)'", "sleep", "python3 sleeps"),
    "sleep of perl": Hang("perl -e 'select(undef,undef,undef,50)'", "sleep", "perl sleeps"),
    "busy shell": Hang("while :; do :; done", "cpu", "bash uses the CPU"),
    "busy child": Hang("sh -c 'while :; do :; done'", "cpu", "sh uses the CPU"),
    "busy crowd": Hang("for i in 1 2 3 4; do sh -c 'while :; do :; done' & done; wait", "cpu", "4 x sh use the CPU"),
    "busy thread": Hang(
        f"{PY} 'import threading\ndef f():\n while 1: pass\nthreading.Thread(target=f).start()'", "cpu", "python3 uses"
    ),
    "busy pipe": Hang("yes >/dev/null", "cpu", "yes uses the CPU"),
    "flock": Hang(
        "(exec 9>{place}/l; flock 9; exec sleep 50) & sleep .3; flock {place}/l true", "lock", "{place}/l, held by "
    ),
    "flock of python": Hang(
        f'{PY} \'import fcntl,os; a=open("{{place}}/m","w"); b=open("{{place}}/m","w"); fcntl.flock(a,2);'
        " fcntl.flock(b,2)'",
        "lock",
        "{place}/m, held by ",
    ),
    "shared flock": Hang(
        "(exec 9>{place}/n; flock -x 9; exec sleep 50) & sleep .3; flock -s {place}/n true", "lock", "held by "
    ),
    "lockf": Hang(
        f'{PY} \'import fcntl,time; a=open("{{place}}/o","w"); fcntl.lockf(a,2); time.sleep(50)\' & sleep .7;'
        f' {PY} \'import fcntl; a=open("{{place}}/o","w"); fcntl.lockf(a,2)\'',
        "lock",
        "{place}/o, held by ",
    ),
    "read of a FIFO": Hang("mkfifo {place}/a; cat {place}/a", "fifo", "cat opens the FIFO {place}/a, which nobody"),
    "FIFO by relative name": Hang("cd {place}; mkfifo b; cat b", "fifo", "cat opens the FIFO b, which nobody writes"),
    "FIFO of the shell": Hang("mkfifo {place}/c; read x <{place}/c", "fifo", "opens the FIFO {place}/c"),
    "FIFO without a writer": Hang("mkfifo {place}/d; cat <>{place}/d", "fifo", "{place}/d, which nobody else writes"),
    "pipe to itself": Hang(f"{PY} 'import os; r,w=os.pipe(); os.read(r,1)'", "pipe", "reads a pipe, which nobody else"),
    "pipes in a circle": Hang("cd {place}; mkfifo p q; cat <>p >q & cat <q >p", "pipe fifo", "cat "),
    "connection v6": Hang(
        f"{PY} \"import socket; s=socket.create_connection(('::1',{{v6}})); s.recv(1)\"", "network", "[::1]:{v6}"
    ),
    "no answer v6": Hang(
        f"{PY} \"import socket; socket.create_connection(('::1',{{full_v6}}))\"",
        "network",
        "[::1]:{full_v6}, no answer",
    ),
    "no answer": Hang("exec 5<>/dev/tcp/127.0.0.1/{full_v4}", "network", "127.0.0.1:{full_v4}, no answer to SYN"),
    "shell reads a connection": Hang("exec 5<>/dev/tcp/127.0.0.1/{v4}; read x <&5", "network", "127.0.0.1:{v4}"),
    "peer that takes no more": Hang(
        f'{PY} "{_CONNECT}\nwhile 1: s.send(bytes(65536))"', "network", "sends to 127.0.0.1:{v4}"
    ),
    "epoll of a connection": Hang(
        f'{PY} "{_CONNECT}; import select; e=select.epoll(); e.register(s,1); e.poll()"', "network", "data from 127"
    ),
    "udp": Hang(
        f"{PY} \"import socket; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.connect(('127.0.0.1',{{udp}}));"
        ' s.recv(1)"',
        "network",
        "127.0.0.1:{udp} (UDP)",
    ),
    "accept": Hang(
        f"{PY} \"import socket; s=socket.socket(); s.bind(('127.0.0.1',0)); s.listen(); s.accept()\"",
        "listen",
        "waits for connections at 127.0.0.1:",
    ),
    "accept on a unix socket": Hang(
        f"{PY} \"import socket; s=socket.socket(socket.AF_UNIX); s.bind('{{place}}/u'); s.listen(); s.accept()\"",
        "listen",
        "connections at the socket {place}/u",
    ),
    "full unix socket": Hang(
        f"{PY} \"import socket\nfor i in range(9): s=socket.socket(socket.AF_UNIX); s.connect('{{place}}/sock')\"",
        "socket",
        "the socket {place}/sock, which takes no more",
    ),
    "stopped": Hang("sh -c 'kill -STOP $$'", "stopped", "sh is stopped"),
    "inotify": Hang("touch {place}/t; tail -f {place}/t", "files", "tail waits for changes"),
    "question of the shell": Hang("read -p 'Continue? [Y/n] ' x", "terminal", 'after "Continue? [Y/n]"', True),
    "question of python": Hang(
        f"{PY} 'input(\"name? \")'", "terminal", 'python3 reads the terminal after "name?"', True
    ),
    "password": Hang(
        f"{PY} 'import getpass; getpass.getpass(\"Secret: \")'",
        "terminal",
        'python3 reads the terminal after "Secret:"',
        True,
    ),
    "signal": Hang(f"{PY} 'import signal; signal.pause()'", "signal", "python3 waits for a signal"),
    "another process": Hang(
        f"{PY} 'import os,select; p=select.poll(); p.register(os.pidfd_open(os.getppid()),1); p.poll()'",
        "children",
        "python3 waits for a process",
    ),
    "output that nobody reads": Hang(
        f"{PY} 'import pty,os; m,s=pty.openpty(); os.write(s,bytes(10**6))'",
        "output",
        "python3 waits until its output is read",
    ),
    "a message queue": Hang(
        f'{PY} \'import ctypes,os; c=ctypes.CDLL(None); q=c.mq_open(b"/shellsession",66,384,None);'
        ' c.mq_unlink(b"/shellsession"); c.mq_receive(q,bytes(8192),8192,None)\'',
        "unknown",
        "unknown: /proc does not say what python3 waits for",
    ),
}
CHOSEN: Final = {
    "a pipe that Popen.wait never reads": Hang(
        f'{PY} \'import subprocess as s; p=s.Popen(["seq","1","1000000"],stdout=s.PIPE); p.wait()\'',
        "pipe",
        "seq writes a pipe that python3 can read",
    ),
    "cat without a file": Hang("cat", "terminal", "cat reads the terminal", True),
    "grep without a file": Hang("grep pattern", "terminal", "grep reads the terminal", True),
    "a server that holds the pipe": Hang("bash -c 'sleep 50 & echo started' | cat", "pipe sleep", "sleep "),
    "a server in Node.js": Hang(
        "node -e 'require(\"http\").createServer().listen(0)'", "listen", "node waits for connections"
    ),
    "http.server": Hang("python3 -m http.server 0", "listen", "python3 waits for connections at 0.0.0.0:"),
    "a database that is locked": Hang(
        f"cd {{place}}; sqlite3 db 'create table t(x)'; {PY} 'import sqlite3,time; c=sqlite3.connect(\"db\");"
        " c.execute(\"begin exclusive\"); time.sleep(50)' & sleep .7; sqlite3 -cmd '.timeout 60000' db 'insert into t"
        " values(1)'",
        "sleep lock",
    ),
    "curl to a server that never answers": Hang(
        "curl -s http://127.0.0.1:{v4}/", "network", "curl waits for data from"
    ),
    "curl to a host that drops packets": Hang(
        "curl -s http://127.0.0.1:{full_v4}/", "network", "curl waits for 127.0.0.1"
    ),
    "git clone from such a server": Hang(
        "git clone -q http://127.0.0.1:{v4}/x {place}/x", "network", "waits for data from 127.0.0.1:{v4}"
    ),
    "git commit with an editor": Hang(
        "cd {place}; git init -q r; cd r; GIT_EDITOR=vi git -c user.name=a -c user.email=a@b commit --allow-empty",
        "terminal",
        "reads the terminal",
        True,
    ),
    "ssh to a server that never answers": Hang("ssh -p {v4} 127.0.0.1", "network", "ssh waits for data from 127"),
    "psql to a server that never answers": Hang("psql -h 127.0.0.1 -p {v4}", "network", "psql waits for data from 127"),
    "a thread that locks twice": Hang(
        f"{PY} 'import threading; l=threading.Lock(); l.acquire(); l.acquire()'", "itself", "python3 waits"
    ),
    "a task that awaits nothing": Hang(
        f"{PY} 'import asyncio; asyncio.run(asyncio.Event().wait())'", "itself", "python3 waits"
    ),
    "wait for a job": Hang("sleep 50 & wait", "sleep", "sleep sleeps"),
    "a recipe of make": Hang(
        "cd {place}; mkfifo z; printf 'all:\\n\\tcat z\\n' >Makefile; make -s -j2", "fifo", "cat opens the FIFO z"
    ),
    "a loop that waits for a port": Hang(
        "until (exec 3<>/dev/tcp/127.0.0.1/1) 2>/dev/null; do sleep 5; done", "sleep", "sleep sleeps"
    ),
    "a pager": Hang("seq 1000 | less", "terminal", "less reads the terminal", True),
    "write to a FIFO": Hang("mkfifo {place}/w; echo x >{place}/w", "fifo", "{place}/w, which nobody reads"),
}
HANGS: Final = OWN | CHOSEN
