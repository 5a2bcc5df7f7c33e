"""What ``why`` costs beside the reading of ``stat`` of the same processes, and that it calls no build stuck.

Run it with `python -m benchmarks.why`, or with `builds` for twenty real builds (they need gcc, git, npm and pip).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from shellsession import Session
from shellsession.engine.kernel.why import Scene, look, sample
from shellsession.text import reason_of

_ROUNDS: Final = 300
_CASES: Final = {
    "sleep": "sleep 60",
    "script": "bash -c 'sleep 60; true' | cat",
    "twenty processes": "for i in {1..20}; do sleep 60 & done; wait",
    "busy": "while :; do :; done",
    "question": "mkfifo f; cat f",
    "pipes": "sleep 60 | cat | cat | cat",
    "socket": "python3 -c 'import asyncio; asyncio.run(asyncio.sleep(50))'",
}
_MADE: Final = (
    "mkdir {0} && cd {0} && for i in {{1..6}}; do seq -f 'int f%.0f(int a) {{{{ return a*a; }}}}' 800 >$i.c;"
    ' sed -i "s/int f/int f${{i}}_/" $i.c; done && printf \'o = $(addsuffix .o,$(basename $(wildcard *.c)))\\n'
    "all: $(o)\\n' >Makefile && make -s {1}"
)
_BUILDS: Final = (
    *(
        _MADE.format(f"m{number}", flags)
        for number, flags in enumerate(("-j1", "-j2", "-j4", "CFLAGS=-O2", "-j2 CFLAGS='-O2 -pipe'"))
    ),
    "python3 -m venv v && v/bin/pip install -q attrs",
    "v/bin/pip install -q --no-cache-dir pyyaml",
    "v/bin/pip install -q --target t requests",
    "v/bin/pip wheel -q --no-deps -w w six",
    "v/bin/python -m compileall -q v/lib",
    "mkdir n && cd n && npm init -y >/dev/null && npm install --silent is-odd",
    "mkdir n2 && cd n2 && npm init -y >/dev/null && npm install --silent express",
    "cd n2 && rm -rf node_modules && npm ci --silent",
    "git init -q g && cd g && cp -r ../m1 ../n2 . && git add -A && git -c user.name=a -c user.email=a@b commit -qm a",
    "git clone -q file://$PWD/g g2",
    "cd g2 && git gc -q --aggressive",
    "cd g2 && git grep -c return >/dev/null; git log --stat >/dev/null; git fsck >/dev/null 2>&1",
    "tar cz v n2 | tar xz -C $(mktemp -d)",
    "seq 3000000 | sort -R | sort -n | md5sum",
    "find / -xdev -type f -size -4k 2>/dev/null | xargs -P4 -n200 cat 2>/dev/null | head -c 300M | gzip >/dev/null",
)
# What a build that goes on does not do.
_STUCK: Final = {"lock", "fifo", "terminal", "stopped", "itself", "listen", "signal", "sleep", "output"}


def _cost(call: Callable[[], object]) -> float:
    """Processor time of one call, in microseconds."""
    begin = time.process_time()
    for _ in range(_ROUNDS):
        call()
    return (time.process_time() - begin) / _ROUNDS * 1e6


def costs() -> None:
    for name, command in _CASES.items():
        with tempfile.TemporaryDirectory() as place, Session(cwd=place) as sh:
            sh.run(command, timeout=0.5, on_timeout="yield")
            call, shell = sh.engine.current, sh.engine.shell
            assert call is not None
            assert shell is not None
            pids = [shell.pid, *shell.family.newer(call.older)]
            stat, whole = _cost(lambda pids=pids: sample(pids)), _cost(lambda pids=pids: look(pids, Scene()))  # type: ignore[misc]
            found = _cost(lambda shell=shell, call=call: shell.family.newer(call.older))  # type: ignore[misc]
            print(
                f"{name:18}{len(pids):4} processes  stat {stat:6.0f} us, look {whole:6.0f} us ({whole / stat:.1f} x),"
                f" to find them {found:.0f} us: {look(pids, Scene())}"
            )
            sh.interrupt()


def builds() -> None:
    stuck = list[str]()
    with tempfile.TemporaryDirectory() as place, Session(cwd=place, timeout=0.2, on_timeout="yield") as sh:
        for number, command in enumerate(_BUILDS, 1):
            result, said = sh.run(f"({command})"), Counter[str]()
            begin = time.monotonic()
            while result.still_running:
                why = sh.why()
                said.update((reason_of(result)[1], str(why)))
                if why.kind in _STUCK:
                    stuck.append(str(why))
                result = sh.wait(0.2)
            seconds, often = time.monotonic() - begin, said.most_common(6)
            print(f"{number:2} status {result.exit_code} {seconds:5.1f} s  {command[:50]!r}  {often}", flush=True)
    print("called stuck:", stuck)


if __name__ == "__main__":
    (builds if "builds" in sys.argv else costs)()
