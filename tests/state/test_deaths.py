"""Random commands and deaths: each fresh shell has the state of the promised moment, and no command runs twice."""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from daemons import running
from escapes import of_host
from system import PATIENCE, SOAK, descendants, is_alive, unique_seconds, wait_until, with_argument

from shellsession import RemoteSession, Session, connect
from shellsession.daemon.client import admin

pytestmark = pytest.mark.usefixtures("each_bash")

ROUNDS: Final = 1000 if SOAK else 25
SEEDS: Final = range(10 if SOAK else 4)
DAEMONS: Final = 100 if SOAK else 2

State = Mapping[str, Any]
TEXTS: Final = ["", "a b", "*", "$(touch executed)", "'\"\\", "\n x\n", "é\t~", "`touch executed`", "x" * 500]
TRAPS: Final = ("EXIT", "SIGUSR1", "DEBUG", "ERR", "RETURN")
FIRST: Final[State] = {
    **{"x": 0, "text": "none", "exported": "none", "items": (), "keys": "", "function": None, "alias": "none"},
    **{"directories": ("d0",), "options": frozenset(), "umask": "0022", "arguments": (), "fixed": "none"},
    **dict.fromkeys(TRAPS, ""),
}
# It prints what of the state the commands change.
ASK: Final = r"""
printf '<%s>' "$X" "${T-none}" "${E-none}${E+${E@a}}" "${#L[@]}" "${L[@]}" "${M[a b]-}" "${BASH_ALIASES[a]-none}" \
  "${DIRSTACK[@]##*/}" "$#" "$@" "${R-none}"
for one in noclobber noglob nounset pipefail; do [[ -o $one ]] && printf '<%s>' $one; done
printf '<%s>' "${BASH_ALIASES[@]}"; declare -f f; trap -p EXIT USR1 DEBUG ERR RETURN; umask
"""
OPTIONS: Final = ("noclobber", "noglob", "nounset", "pipefail")


def expected(state: State) -> str:
    """What ``ASK`` prints in this state."""
    items, arguments, directories = state["items"], state["arguments"], state["directories"]
    exported = "none" if state["exported"] == "none" else f"{state['exported']}x"
    words = [state["x"], state["text"], exported, len(items), *items, state["keys"], state["alias"]]
    words += [*directories, len(arguments), *arguments, state["fixed"]]
    on = state["options"]
    words += [*sorted(on), "" if state["alias"] == "none" else state["alias"]]
    function = "" if state["function"] is None else f"f () \n{{ \n    echo {state['function']}\n}}\n"
    traps = "".join(f"trap -- '{state[name]}' {name}\n" for name in TRAPS if state[name])
    return "".join(f"<{word}>" for word in words) + function + traps + f"{state['umask']}\n"


def changed(state: State, choose: random.Random) -> tuple[str, State]:
    """A command, and the state after it."""
    text, number = choose.choice(TEXTS), choose.randrange(1000)
    word, on = shlex.quote(text), state["options"]
    items, directories = state["items"], state["directories"]
    option, trap = choose.choice(OPTIONS), choose.choice(TRAPS)
    place = f"d{choose.randrange(3)}"
    below = directories[1:] if len(directories) > 1 else directories
    either: list[tuple[str, State]] = [
        (f"X={number}", {"x": number}),
        (f"T={word}", {"text": text}),
        ("unset T", {"text": "none"}),
        (f"export E={word}", {"exported": text}),
        ("unset E", {"exported": "none"}),
        (f"L+=({word})", {"items": (*items, text)}) if len(items) < 6 else ("L=()", {"items": ()}),
        ("L=()", {"items": ()}),
        (f"M=(['a b']={word})", {"keys": text}),
        (f"f() {{ echo {number}; }}", {"function": number}),
        ("unset -f f", {"function": None}),
        (f"alias a={word}", {"alias": text}),
        ("unalias a 2>&-", {"alias": "none"}),
        (f"cd ../{place}", {"directories": (place, *directories[1:])}),
        (f"pushd ../{place} >&-", {"directories": (place, *directories)}),
        ("popd >&- 2>&-", {"directories": below}),
        (f"set -o {option}", {"options": on | {option}}),
        (f"set +o {option}", {"options": on - {option}}),
        (f"trap ': {number}' {trap}", {trap: f": {number}"}),
        (f"trap - {trap}", {trap: ""}),
        # The owner may read: an ordinary user could not use what it has written.
        (f"umask 00{number % 8}{number % 7}", {"umask": f"00{number % 8}{number % 7}"}),
        (f"set -- {word} {number}", {"arguments": (text, number)}),
        ("readonly R=fixed 2>&-", {"fixed": "fixed"}),
    ]
    command, new = choose.choice(either)
    return command, {**state, **new}


DEATHS: Final = {
    "exit": "exit 3",
    "exit in a function": "g() { local X=8 T=9 L=7; exit 4; }; g",
    "exit in a file": "echo exit 5 >file; . ./file",
    "set -eu": "set -eu; : $unset_name",
    "exec": "exec true",
    "SIGKILL": "kill -9 $$",
    "SIGKILL while it waits": "(kill -9 $$) & wait",
    "SIGSEGV": "kill -SEGV $$",
    "SIGHUP": "kill -HUP $$; while :; do :; done",
    "set -r": "set -r",
    "descriptors": "ulimit -n 9",
    "descriptors closed": 'for n in 10 11 12; do eval "exec $n>&-"; done',
    "memory": "ulimit -v 30000; printf -v big %99999999d 1",
    "exit with a job": "sleep {seconds} & exit 6",
    "exit with another session's job": "setsid sleep {seconds} & exit 7",
    "exit in an EXIT trap of the command's": "trap 'X=5; exit 9' EXIT; exit 8",
}
# These end bash by itself.
SAVING: Final = [DEATHS[name] for name in ("exit", "exit in a function", "set -eu", "SIGHUP", "exit with a job")]
IDLE: Final = "SIGKILL between two commands"
LIMIT: Final = "trap '' INT; while :; do :; done"  # at a time limit, so it is rare


def missing(recovered: str) -> int:
    """How many commands the state lacks."""
    if "with the state from after the last command" in recovered:
        return 0
    found = re.search(r"from before the last (?:(\d+) commands|command)", recovered)
    assert found, recovered
    return int(found[1] or 1)


class Story:
    """Runs commands in a session, and knows the state before each of them."""

    def __init__(
        self, session: Session | RemoteSession, place: Path, choose: random.Random, version: tuple[int, int]
    ) -> None:
        self.version = version
        self.session, self.place, self.choose = session, place, choose
        self.seconds = unique_seconds()
        self.state: State = FIRST
        self.before: list[State] = []  # the state before each command since the last death, and of the last moment
        self.ran: list[str] = []

    def run(self, text: str, state: State, **options: object) -> str:
        """Run a command that leads to this state, and return what it has printed."""
        self.before.append(self.state)
        self.ran.append(str(len(self.ran)))
        self.text = text
        noted = f"builtin echo {self.ran[-1]} >>{shlex.quote(str(self.place / 'log'))}; {text}"
        result = self.session.run(noted, **options)  # type: ignore[arg-type]  # a table of options
        self.recovered = result.recovered
        assert result.state_kept == (not self.recovered), result
        if result.state_kept:
            self.state = state
            return result.stdout
        if not result.ran:  # the shell was gone before
            self.ran.pop()
            self.before.pop()
        return ""

    def change(self) -> None:
        self.run(*changed(self.state, self.choose))

    def die(self, death: str) -> None:
        """End the shell, and expect the state that the result promises."""
        if death == IDLE:
            pid = self.session.pid
            assert pid
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not is_alive(pid), "its end")
            self.run(":", state := self.state)
        else:
            text, state = changed(self.state, self.choose)
            if death == DEATHS["set -eu"]:
                state = {**state, "options": state["options"] | {"nounset"}}
            # The arguments of a function hide those of the shell; before 5.2, bash leaves it first.
            if death == DEATHS["exit in a function"] and self.version >= (5, 2):
                state = {**state, "arguments": self.state["arguments"]}
            limit = {"timeout": 0.2, "on_timeout": "kill"} if death == LIMIT else {}
            self.run(f"{text}; {death.replace('{seconds}', self.seconds)}", state, **limit)
        assert self.recovered, f"{death} has not ended the shell"
        lacks = missing(self.recovered)
        # A shell that ends by itself keeps what the last command has changed, if nothing can see how.
        sees = "trap" in self.text or self.state["DEBUG"] or self.state["RETURN"]
        assert not lacks or death not in SAVING or sees, self.recovered
        self.state = (*self.before, state)[-1 - lacks]
        self.before = []
        assert self.run(ASK, self.state) == expected(self.state), (death, self.recovered)


@pytest.mark.parametrize("seed", SEEDS)
def test_after_any_death_the_state_is_that_of_the_promised_moment(
    tmp_path: Path, seed: int, each_bash: tuple[int, int]
) -> None:
    choose, before = random.Random(seed), descendants(os.getpid())
    for number in range(3):
        (tmp_path / f"d{number}").mkdir()
    with Session(cwd=tmp_path / "d0", tty=False, timeout=PATIENCE, recover=True) as session:
        story = Story(session, tmp_path, choose, each_bash)
        story.run("declare -i X=0; declare -A M; L=(); umask 022", FIRST)
        for _ in range(ROUNDS):
            for _ in range(choose.randrange(5)):
                story.change()
                if not choose.randrange(3):
                    time.sleep(0.02)  # a pause, after which the state is kept
            story.die(LIMIT if not choose.randrange(100) else choose.choice([IDLE, *DEATHS.values()]))
    assert (tmp_path / "log").read_text().split() == story.ran
    assert list(tmp_path.rglob("executed")) == []
    wait_until(lambda: not with_argument(story.seconds), "the end of the jobs")
    wait_until(lambda: descendants(os.getpid()) <= before, "the end of all processes")
    assert of_host(os.getpid()) == set()


def at(state: State, directory: object) -> State:
    """The state in another directory."""
    return {**state, "directories": (directory, *state["directories"][1:])}


def is_kept(socket: str) -> bool:
    """Whether the daemon has written a state of each shell."""
    return all(one["state_age"] is not None for one in admin.agents(socket))


def test_after_the_death_of_its_daemon_a_shell_has_a_state_from_shortly_before_in_the_last_directory(
    tmp_path: Path, each_bash: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    choose, ran, killed = random.Random(1), list[str](), 0.0
    moments: list[tuple[float, State]] = []  # each state, and when it began
    for number in range(3):
        (tmp_path / f"d{number}").mkdir()
    for _ in range(DAEMONS):
        with (
            running(tmp_path, "--patience", "0") as daemon,
            connect("a", daemon.socket, False, tty=False, timeout=PATIENCE, recover=True) as session,
        ):
            story = Story(session, tmp_path, choose, each_bash)
            story.ran = ran
            if moments:
                came, last = session.run(ASK), moments[-1][1]["directories"][0]
                found = [number for number, (_, one) in enumerate(moments) if expected(at(one, last)) == came.stdout]
                assert found, (came, moments[-1])
                assert came.recovered
                assert all(killed - begun < PATIENCE for begun, _ in moments[found[-1] + 1 :])
                story.state = at(moments[found[-1]][1], last)
            else:
                story.run(f"cd {shlex.quote(str(tmp_path))}/d0; declare -i X=0; declare -A M; L=(); umask 022", FIRST)
                wait_until(partial(is_kept, daemon.socket), "the first state in the store")
            moments = [(time.monotonic(), story.state)]
            end = moments[0][0] + 3 * choose.random()
            while time.monotonic() < end:
                story.change()
                moments.append((time.monotonic(), story.state))
                time.sleep(choose.choice([0, 0, 0.2]))
            killed = time.monotonic()
            daemon.stop(signal.SIGKILL)
    assert (tmp_path / "log").read_text().split() == ran
    assert list(tmp_path.rglob("executed")) == []
