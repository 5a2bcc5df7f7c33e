"""`make picture`: draws pictures from real runs: of the demo, of a workflow while it runs, of `top`, of a branch."""

import io
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from benchmarks.served import served
from shellsession import TTY, Daemon, Policy, Session, Step, Workflow, connect
from shellsession.cli.progress import Live
from shellsession.cli.top import Top
from shellsession.workflow.model import Ready, Retry
from shellsession.workflow.report import Event, StepOutput

DOCS = Path(__file__).parent.parent / "docs"
SHOWN = ("1", "8", "9", "12", "15", "16")  # the numbers of the steps
COLUMNS = 88
WIDE = 116
# rich loads its font from a server. The picture takes a font of the reader's instead.
LOADED_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


WORKFLOW = Workflow(
    name="build",
    steps=(
        Step(name="prepare", run="cp -r benchmarks/demo_project $PLACE && cd $PLACE"),
        Step(name="new venv", run="python3 -m venv --without-pip venv && . venv/bin/activate; export MODE=test"),
        Step(name="server", run="python -u -m http.server $PORT", background=True, ready=Ready(port=18765)),
        Step(
            name="fetch",
            run="curl -sf localhost:$PORT/README.md -o /dev/null || ((++TRIES == 2))",
            retry=Retry(count=2),
        ),
        Step(name="lint", run="python -m compileall -q . && test -e setup.cfg", continue_on_error=True),
        Step(name="test", run="for n in 1 2 3; do echo test_$n ... ok in $PWD with $MODE; sleep 0.3; done"),
        Step(name="package", run="tar -cf package.tar ."),
    ),
    finally_=(Step(name="clean", run="rm -rf $PLACE"),),
)


AGENTS = {
    "release": "exec 9>build.lock; flock 9; echo uploading 4 files; sleep 1000",
    "build": "n=0; while sleep 0.2; do echo [$((n += 1))/80] cc -O2 -c src/part$n.c; done",
    "tests": "mkfifo out.fifo; for t in parse wire; do echo test_$t ... ok; done; timeout 99 cat ./out.fifo",
    "package": "echo waiting for the other build; flock build.lock tar -cf package.tar .",
    "deploy": "echo 3 hosts; read -p 'Deploy to all? [y/N] ' answer",
    "review": "echo '12 files changed, 340 insertions(+), 25 deletions(-)'",
    "docs": "echo 'site built in 1.9 s'",
}

ASKED = "docker image prune --all"

BRANCH = """
shellsession run -s a1 --branch app 'cd app; MODE=test; sed -i s/v1/v2/ main.py'
shellsession checkpoint a1 good
shellsession run -s a1 'rm -r data; unset MODE; cd /'   # a mistake
shellsession rollback a1 good
shellsession run -s a1 'ls; cat main.py; echo "MODE is $MODE"'
cat app/main.py   # the directory itself is as it was
shellsession branch diff a1
shellsession branch apply a1
cat app/main.py
"""


def main() -> None:
    draw_demo()
    draw_workflow()
    draw_top()
    draw_branch()


def draw_workflow() -> None:
    """The table of a run, at the moment when its sixth step has printed its third line."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    live = Live(Console(width=COLUMNS, file=io.StringIO(), force_terminal=True))

    def look(event: Event) -> None:
        live(event)
        if isinstance(event, StepOutput) and "test_3" in event.text:
            console.print(Text("$ shellsession workflow run build.yml"))
            console.print(live.table())

    with TemporaryDirectory() as directory, Session() as session:
        WORKFLOW.model_copy(update={"env": {"PLACE": f"{directory}/build", "PORT": "18765"}}).run(
            session, on_event=look
        )
    save(console, "workflow", "shellsession workflow")


def draw_top() -> None:
    """The table of some agents, when it has been asked what their commands wait for; and a question on top."""
    console = Console(record=True, width=WIDE, file=io.StringIO())
    with served() as daemon, TemporaryDirectory() as directory, ThreadPoolExecutor() as pool:
        for agent, command in AGENTS.items():
            with connect(agent, daemon.socket, cwd=directory) as session:
                session.run(command, timeout=0.5, on_timeout="yield", stdin=TTY if "read" in command else None)
        asks = connect("cleanup", daemon.socket, policy=Policy(confirm="queue"), cwd="/tmp")
        asker = pool.submit(asks.run, ASKED, timeout=60)
        time.sleep(3)
        top = Top(Daemon(daemon.socket), daemon.socket, "runs", "")
        top.look()
        while top.ask_why(top.rows):
            pass
        console.print(Text("$ shellsession top"))
        top.selected = "package"
        console.print(top.picture(WIDE, len(AGENTS) + 9))
        Daemon(daemon.socket).answer(top.questions[0]["id"], "decline")
        asker.exception()
    save(console, "top", "shellsession top")


def draw_branch() -> None:
    """Commands of a terminal, and what they print."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with served() as daemon, TemporaryDirectory() as directory:
        (app := Path(directory, "app")).mkdir()
        (app / "data").mkdir()
        (app / "main.py").write_text("print('v1')\n", encoding="utf-8")
        with Session(cwd=directory, extra_env={"PATH": path, "SHELLSESSION_SOCKET": daemon.socket}) as session:
            for command in BRANCH.strip().splitlines():
                console.print(Text.assemble(("$ " + command, "bold")))
                if said := session.run(command, check=True).stdout:
                    console.print(Text(said.rstrip("\n")))
    save(console, "branch", "a branch of the files")


def draw_demo() -> None:
    with Session(extra_env={"TERM": "xterm-256color"}, size=(COLUMNS, 50)) as session:
        demo = session.run([sys.executable, "-m", "benchmarks.demo"], check=True)
    steps = re.split(r"\n(?=\n\x1b\[1m *\d+/)", "\n" + demo.stdout)
    shown = [step.strip("\n") for step in steps if (found := re.search(r"(\d+)/", step)) and found[1] in SHOWN]
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi("\n\n".join(shown).replace("\n\n\n", "\n\n")))
    save(console, "demo", "make demo")


def save(console: Console, name: str, title: str) -> None:
    """Write what was printed as an SVG."""
    svg = console.export_svg(title=title, theme=MONOKAI, unique_id=name)
    svg = LOADED_FONT.sub("", svg).replace("Fira Code", "Menlo, Consolas, DejaVu Sans Mono")
    (DOCS / f"{name}.svg").write_text(re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE), encoding="utf-8")


if __name__ == "__main__":
    main()
