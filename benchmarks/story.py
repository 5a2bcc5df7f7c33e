"""The steps of the demo: each is a command, and what its result must be."""

from dataclasses import dataclass

from shellsession import Result

# Far longer than any step takes: a machine may be slow, but the demo must not hang.
PATIENCE = 120.0


@dataclass(frozen=True)
class Step:
    """One call, and what its result must be."""

    title: str
    command: str
    output: tuple[str, ...] = ()  # each must be in stdout or stderr
    status: int | None = 0  # None: not checked, as the command was stopped
    outcome: str = "exited"
    state_kept: bool = True
    background: bool = False
    timeout: float = PATIENCE
    restart: bool = False

    def broken_promises(self, result: Result) -> list[str]:
        """What differs from the promise, in words; empty if nothing does."""
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
    Step("build it: the next call continues where the last one ended", "make build", output=("zipapp",)),
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
        "fix it, and test again",
        "mv tally/count.py.good tally/count.py && shorter make test",
        output=("Ran 4 tests", "OK"),
    ),
    Step(
        "a command that never ends: after 1 s it is killed, with all that it started",
        "make soak",
        output=("soaking",),
        status=None,
        outcome="timed_out",
        timeout=1.0,
    ),
    Step(
        "the session lives on: variable, directory, function and option are kept",
        'echo "MODE=$MODE in ${PWD##*/}"; declare -F shorter; shopt -o pipefail',
        output=("MODE=release in tally\n", "shorter\n", "on\n"),
    ),
    Step(
        "start a server in the background: the call returns at once",
        '"$PYTHON" -u -m http.server 0 --bind 127.0.0.1 --directory dist >server.log 2>&1 &\nserver=$!',
        background=True,
    ),
    Step(
        "download the build from it, in the next call",
        "until port=$(sed -n 's/.* port \\([0-9]*\\).*/\\1/p' server.log) && [[ $port ]]; do sleep 0.05; done\n"
        'fetch="import sys, urllib.request as u; r = u.urlopen(sys.argv[1]); print(r.status, len(r.read()))"\n'
        '"$PYTHON" -c "$fetch" "http://127.0.0.1:$port/tally.pyz"\n'
        "kill $server; wait $server 2>/dev/null; tail -n 1 server.log",
        output=("200 ", '"GET /tally.pyz HTTP/1.1" 200'),
        timeout=20.0,
    ),
    Step(
        "`exit 3` ends the shell: the result says so at once, with the status",
        'echo "leaving"; exit 3',
        output=("leaving\n",),
        status=3,
        outcome="shell_exited",
        state_kept=False,
    ),
    Step(
        "the next call runs in a fresh shell, which has the state of the last one (`recover=True`)",
        'echo "MODE=$MODE in ${PWD##*/}"; declare -F shorter; shopt -o pipefail',
        output=("MODE=release in tally\n", "shorter\n", "on\n"),
    ),
    Step(
        "restart the session, and check the build once more",
        "cd tally && make clean build && ls dist",
        output=("tally.pyz\n",),
        restart=True,
    ),
)
