"""Real workflows: a C project, a Python package in a new venv, a data pipeline with a server, a long day's work."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from pathlib import Path
from typing import Final

import pytest
from commands import cli, running as command
from daemons import Daemon

from shellsession import Session, Workflow

_C: Final = r"""
name: C project
env: {CFLAGS: -O1 -Wall -Werror}
steps:
- name: sources
  run: |
    mkdir -p project/src && cd project
    cat > src/sum.c <<'END'
    #include <stdio.h>
    #include <stdlib.h>
    int main(int count, char **words) {
        long sum = 0;
        for (int at = 1; at < count; at++) sum += strtol(words[at], NULL, 10);
        printf("%ld\n", sum);
        return sum < 0;
    }
    END
    printf 'sum: src/sum.c\n\tcc $(CFLAGS) -o $@ $<\n' > Makefile
- {id: build, run: make sum, timeout: 60}
- name: helper
  run: check() { [[ $(./sum "${@:2}") == "$1" ]] || { echo "sum ${*:2} is not $1"; return 1; }; }
- {name: adds, run: "check 6 1 2 3; check 0; check 12 5 7"}
- {name: fails below zero, run: ./sum -5, expect: {exit-code: 1, output: "-5"}}
- name: does not compile
  run: |
    sed -i 's/return sum < 0/return smu < 0/' src/sum.c
    make -B sum
  expect: {exit-code: 2, output-matches: "error: .*smu"}
- {name: wrong, id: wrong, run: check 7 1 2 3, continue-on-error: true}
- {run: pwd, if: steps.wrong.outcome == 'failure'}
finally:
- {name: clean, run: rm -f sum && ls}
"""


@pytest.mark.skipif(not (shutil.which("cc") and shutil.which("make")), reason="no C compiler")
def test_c_project_is_built_and_tested(sh: Session, place: Path) -> None:
    report = Workflow.loads(_C).run(sh)
    assert report.ok, report.to_markdown()
    assert [one.outcome for one in report.steps] == [*["success"] * 6, "failure", "success", "success"]
    assert [one.output for one in report.steps[6:]] == ["sum 1 2 3 is not 7\n", f"{place}/project\n", "Makefile\nsrc\n"]


_PACKAGE: Final = """
name: Python package
inputs: {python: {description: the interpreter}}
steps:
- name: new venv
  run: |
    "$PYTHON" -m venv --without-pip venv
    . venv/bin/activate
  env: {PYTHON: "${{ inputs.python }}"}
  timeout-minutes: 2
- name: package
  run: |
    mkdir pkg && cd pkg && mkdir greeting
    echo 'def greet(name): return f"hello {name}"' > greeting/__init__.py
    cat > build_backend.py <<'END'
    import zipfile
    def build_wheel(directory, config_settings=None, metadata_directory=None):
        name = "greeting-1.0-py3-none-any.whl"
        with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
            wheel.write("greeting/__init__.py")
            info = "greeting-1.0.dist-info"
            wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: greeting\\nVersion: 1.0\\n")
            about = "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
            wheel.writestr(f"{info}/WHEEL", about)
            wheel.writestr(f"{info}/RECORD", "")
        return name
    END
    printf '[build-system]\\nrequires = []\\nbuild-backend = "build_backend"\\nbackend-path = ["."]\\n' > pyproject.toml
- name: install
  run: '"$PYTHON" -m pip --python "$VIRTUAL_ENV" install --quiet --no-index --disable-pip-version-check .'
  env: {PYTHON: "${{ inputs.python }}"}
  timeout-minutes: 2
- {run: cd .., id: up}
- id: version
  run: VERSION=$(python -c 'import importlib.metadata as m; print(m.version("greeting"))'); deactivate
  outputs: [VERSION]
- run: declare -F deactivate
  expect: {exit-code: 1}
- run: venv/bin/python -c 'import greeting, sys; print(greeting.greet(sys.argv[1]))' "$V"
  env: {V: "v${{ steps.version.outputs.VERSION }}"}
  expect: {output: hello v1.0}
"""


def test_python_package_is_installed_in_a_new_venv(sh: Session) -> None:
    report = Workflow.loads(_PACKAGE).run(sh, inputs={"python": sys.executable})
    assert report.ok, report.to_markdown()
    assert report["version"].outputs == {"VERSION": "1.0"}


_PIPELINE: Final = """
name: data pipeline
inputs: {port: {}, python: {}}
env: {PORT: "${{ inputs.port }}", PYTHON: "${{ inputs.python }}"}
secrets: [API_KEY]
steps:
- name: data
  run: |
    mkdir data out
    for day in 1 2 3; do seq $day 3 90 | sed "s/^/day$day,/" > data/$day.csv; done
- name: server
  run: cd data && exec "$PYTHON" -u -m http.server "$PORT" --bind 127.0.0.1
  background: true
  ready: {port: PORT_NUMBER, timeout: 50}
- name: functions
  run: |
    fetch() {
      exec 3<>"/dev/tcp/127.0.0.1/$PORT"
      printf 'GET /%s HTTP/1.0\\r\\nX-Key: %s\\r\\n\\r\\n' "$1" "$API_KEY" >&3
      sed '1,/^\\r$/d' <&3
      exec 3>&-
    }
- name: fetch
  run: for day in 1 2 3; do fetch $day.csv > out/$day.csv; done
  retry: {count: 2, wait: 100ms}
- name: sum
  shell: bash
  run: cat out/*.csv | cut -d, -f2 | paste -sd+ | bc > out/sum || awk -F, '{s+=$2} END {print s}' out/*.csv > out/sum
- name: same
  run: cmp <(cat data/*.csv) <(cat out/*.csv); TOTAL=$(< out/sum)
  outputs: [TOTAL]
  id: same
- run: echo "key $API_KEY, total $TOTAL"
  if: steps.same.outputs.TOTAL == 4095
finally:
- run: rm -r data out
"""


def test_data_pipeline_uses_its_background_server(sh: Session, place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    workflow = Workflow.loads(_PIPELINE.replace("PORT_NUMBER", str(port)))
    given = {"port": str(port), "python": sys.executable}
    report = workflow.run(sh, inputs=given, secrets={"API_KEY": "sesame-4095x"})
    assert report.ok, report.to_markdown()
    assert report.steps[6].output == "key ***, total 4095\n"
    assert report.steps[1].output.count("200") == 3
    assert list(place.iterdir()) == []
    assert sh.jobs() == [] or not any(job.running for job in sh.jobs())


_TEN: Final = "name: ten steps\nsteps:\n" + "".join(
    f"- id: s{number}\n  run: |\n    echo step {number}; V{number}=$((V{number - 1} + {number}))\n"
    f"    cd PLACE; sleep 0.05; echo {number} >> log\n"
    for number in range(1, 11)
)


def test_ten_steps_with_a_mistake_and_a_killed_process_end_as_one_run(
    daemon: Daemon, place: Path, tmp_path: Path
) -> None:
    """As in the documentation: step 6 fails, is mended and resumed, and the process is killed in step 8."""
    held = f"echo step 8; until [[ -e {place}/go ]]; do sleep 0.02; done;"
    text = _TEN.replace("PLACE", str(place)).replace("echo step 8;", held)
    (path := place / "ten.yml").write_text(text.replace("echo step 6;", "echo step 6; test -e nowhere;"))
    env, words = {"XDG_STATE_HOME": str(tmp_path)}, ["workflow", "run", str(path), "--json"]
    assert cli(daemon.socket, *words, env=env).returncode == 1
    path.write_text(text)
    with command(daemon.socket, *words, "--resume", env=env) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line) == {"event": "step_output", "step": 8, "text": "step 8\n"}:
                process.kill()
    (place / "go").touch()
    done = cli(daemon.socket, *words, "--resume", env=env)
    assert done.returncode == 0, done.stdout
    assert (place / "log").read_text().split() == [str(number) for number in range(1, 11)]
