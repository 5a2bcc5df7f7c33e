"""A workflow that fails at its third step, is repaired, and goes on there: nothing that was done runs again.

Run:     python examples/resume_a_workflow.py
Needs:   the extra workflow
Prints:  built 1.2 in 1 build, tested by Ann
"""

import os
import tempfile
from pathlib import Path

from shellsession import Workflow, connect

FILE = """\
name: release
env: {WHO: Ann}
steps:
  - name: prepare
    run: |
      mkdir -p out && cd out
      check() { grep -q "$1" built; }
  - id: build
    run: |
      echo build >> builds
      VERSION=1.2; echo "built $VERSION" > built
    outputs: [VERSION]
  - id: test
    run: check "$WANTED"
    env: {WANTED: "2.0"}
  - run: echo "built $VERSION in $(wc -l < builds) build, tested by $WHO"
"""

with tempfile.TemporaryDirectory() as directory:
    path = Path(directory, "release.yml")
    path.write_text(FILE, encoding="utf-8")
    agent = f"release-{os.getpid()}"

    # The daemon keeps the shell and the journal of the run. This process could end after it.
    with connect(agent, cwd=directory, recover=True) as session:
        report = Workflow.load(path).run(session, durable=True)
    for number, title, how, _ in report.rows():
        print(number, title, how, sep="  ")

    # The mistake is mended in the file. The run goes on with the shell as it was before the step that failed.
    path.write_text(FILE.replace('"2.0"', '"${{ steps.build.outputs.VERSION }}"'), encoding="utf-8")
    with connect(agent, cwd=directory, recover=True) as session:
        report = Workflow.load(path).run(session, resume=True)
        session.close()
    print(report.steps[-1].output.strip())
