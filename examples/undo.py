"""An agent that writes on a branch: what one of its commands has destroyed is taken back, files and shell.

Run:     python examples/undo.py
Prints:  after rollback: main.py notes.txt, VERSION=2
"""

import tempfile
from pathlib import Path

from shellsession import Session

COMMANDS = (
    "VERSION=2; echo 'version 2' >notes.txt",
    "cd /; VERSION=; rm -rf ~-/*",  # a model's mistake
)


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        project = Path(directory) / "project"
        project.mkdir()
        (project / "main.py").write_text("print('hello')\n")
        with Session(cwd=project, branch=project, branch_dir=Path(directory) / "layers", auto_checkpoints=10) as sh:
            for command in COMMANDS:
                sh.run(command)
            print("after the mistake:", sh.run("echo $PWD $(ls ~-), VERSION=$VERSION").stdout, end="")
            sh.rollback()
            print("after rollback:", sh.run("echo $(ls), VERSION=$VERSION").stdout, end="")
        print("the project itself:", *(path.name for path in project.iterdir()))


if __name__ == "__main__":
    main()
