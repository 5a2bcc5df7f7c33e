"""The steps of the demo: each a command, and what is promised of its result."""

from dataclasses import dataclass

from shellsession import Result

# Far longer than any step takes: a machine may be slow, a demo may not hang.
PATIENCE = 120.0


@dataclass(frozen=True)
class Step:
    """One call, and what has to come back from it."""

    title: str
    command: str
    output: tuple[str, ...] = ()  # each has to be found in stdout or stderr
    status: int | None = 0  # None: a command that was stopped, whose status is not the point
    outcome: str = "exited"
    state_kept: bool = True
    background: bool = False
    timeout: float = PATIENCE
    restart: bool = False

    def broken_promises(self, result: Result) -> list[str]:
        """In words, what did not come out as promised; nothing when all did."""
        broken = [f"no {text!r} in the output" for text in self.output if text not in result.stdout + result.stderr]
        if self.status is not None and result.exit_code != self.status:
            broken.append(f"status {result.exit_code}, not {self.status}")
        if result.outcome != self.outcome:
            broken.append(f"outcome {result.outcome}, not {self.outcome}")
        if result.state_kept != self.state_kept:
            broken.append(f"state_kept {result.state_kept}, not {self.state_kept}")
        if bool(result.background) != self.background:
            broken.append(f"background processes: {result.background}")
        return broken


STEPS = (
    Step(
        "go to the project, set a variable, define a function",
        'cd tally && export MODE=release\nshorter() { "$@" 2>&1 | tail -n 4; }\nls -p',
        output=("Makefile", "tally/"),
    ),
    Step("build it: the next call is where the last one left off", "make build", output=("zipapp",)),
    Step("run what was built", '"$PYTHON" dist/tally.pyz --top 3 data/log.txt', output=("5 command", "a\n")),
    Step("run its tests, through the function", "set -o pipefail; shorter make test", output=("Ran 4 tests", "OK")),
    Step(
        "break the program: the failure is reported, with make's own status",
        "sed -i.good 's/-pair/pair/' tally/count.py\nshorter make test",
        output=("FAILED",),
        status=2,
    ),
    Step("`$?` of that call is still there", 'echo "the tests gave $?"', output=("the tests gave 2",)),
    Step(
        "mend it, and test again",
        "mv tally/count.py.good tally/count.py && shorter make test",
        output=("Ran 4 tests", "OK"),
    ),
    Step(
        "a command that never ends: it dies after 1 s, with everything it started",
        "make soak",
        output=("soaking",),
        status=None,
        outcome="timed_out",
        timeout=1.0,
    ),
    Step(
        "... and the session lives: variable, directory, function, option",
        'echo "MODE=$MODE in ${PWD##*/}"; declare -F shorter; shopt -o pipefail',
        output=("MODE=release in tally\n", "shorter\n", "on\n"),
    ),
    Step(
        "start a server in the background: the call returns at once",
        '"$PYTHON" -u -m http.server 0 --bind 127.0.0.1 --directory dist >server.log 2>&1 &\nserver=$!',
        background=True,
    ),
    Step(
        "ask it for the build, in the next call",
        "until port=$(sed -n 's/.* port \\([0-9]*\\).*/\\1/p' server.log) && [[ $port ]]; do sleep 0.05; done\n"
        'fetch="import sys, urllib.request as u; r = u.urlopen(sys.argv[1]); print(r.status, len(r.read()))"\n'
        '"$PYTHON" -c "$fetch" "http://127.0.0.1:$port/tally.pyz"\n'
        "kill $server; wait $server 2>/dev/null; tail -n 1 server.log",
        output=("200 ", '"GET /tally.pyz HTTP/1.1" 200'),
        timeout=20.0,
    ),
    Step(
        "`exit 3` ends the shell: said at once, with its status",
        'echo "leaving"; exit 3',
        output=("leaving\n",),
        status=3,
        outcome="shell_exited",
        state_kept=False,
    ),
    Step(
        "the next call has a fresh shell: the first directory, no variable",
        'echo "MODE=${MODE:-unset}"; ls -p',
        output=("MODE=unset\n", "tally/"),
    ),
    Step(
        "restart on purpose, and check the build once more",
        "cd tally && make clean build && ls dist",
        output=("tally.pyz\n",),
        restart=True,
    ),
)
