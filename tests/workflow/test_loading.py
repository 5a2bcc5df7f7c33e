"""Files of workflows: what they mean, and the line of each mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from shellsession import InvalidWorkflow, Step, Workflow

_STEP: Final = "steps:\n- run: a\n"
# A file, the line of its mistake, and a part of what is said.
_BROKEN: Final[dict[str, tuple[str, int, str]]] = {
    "empty": ("", 1, "not be empty"),
    "only a comment": ("# x\n", 1, "not be empty"),
    "a list": ("- run: a\n", 1, "must be a mapping with steps:, not a list"),
    "a text": ("hello\n", 1, "must be a mapping with steps:, not a text"),
    "no steps": ("name: x\n", 1, "steps: is missing"),
    "empty steps": ("name: x\nsteps: []\n", 2, "at least one step"),
    "steps are a mapping": ("steps:\n  run: a\n", 1, "steps: must be a list, not a mapping"),
    "steps are a text": ("steps: a\n", 1, "steps: must be a list, not 'a'"),
    "a step is a text": ("steps:\n- run: a\n- b\n", 3, "steps[2]: must be a mapping, not 'b'"),
    "no run": ("steps:\n- run: a\n- name: b\n", 3, "steps[2].run: is missing"),
    "empty run": ("steps:\n- name: b\n  run:\n", 3, "steps[1].run: must be text, not nothing"),
    "blank run": ('steps:\n- name: b\n  run: "  "\n', 3, "must have a command"),
    "run is a list": ("steps:\n- run:\n  - a\n", 2, "steps[1].run: must be text, not a list"),
    "NUL in run": ('steps:\n- run: "a\\0"\n', 2, "NUL"),
    "expression in run": ("steps:\n- run: |\n    a\n    echo ${{ env.X }}\n", 4, "must not be in run"),
    "uses": ("steps:\n- name: c\n  uses: actions/checkout@v4\n", 3, "uses: is not supported: actions"),
    "matrix": (_STEP + "strategy:\n  matrix: {a: [1]}\n", 3, "strategy: is not supported: there is no matrix"),
    "services": (_STEP + "services: {}\n", 3, "a step with background: true"),
    "jobs": ("jobs:\n  a: {}\nsteps:\n- run: a\n", 1, "jobs: is not supported: a file is one job"),
    "on": ("on: push\n" + _STEP, 1, "on: is not supported"),
    "unknown field": (_STEP + "  nmae: x\n", 3, "steps[1].nmae: is no field here: did you mean name?"),
    "unknown top field": (_STEP + "step: x\n", 3, "step: is no field here: did you mean steps?"),
    "underscore": (_STEP + "  working_directory: /\n", 3, "did you mean working-directory?"),
    "internal field": (_STEP + "  line: 3\n", 3, "line: is no field here"),
    "other shell": (_STEP + "  shell: python\n", 3, "steps[1].shell: must be bash or sh, not 'python'"),
    "default shell": (_STEP + "defaults:\n  run:\n    shell: pwsh\n", 5, "defaults.run.shell: must be bash or sh"),
    "timeout is no number": (_STEP + "  timeout: soon\n", 3, "steps[1].timeout: must be a positive number of seconds"),
    "timeout is 0": (_STEP + "  timeout: 0\n", 3, "not 0"),
    "sexagesimal timeout": (_STEP + "  timeout: 22:22\n", 3, "not '22:22'"),
    "minutes": (_STEP + "  timeout-minutes: 5m\n", 3, "timeout-minutes: must be a positive number of minutes"),
    "two timeouts": (_STEP + "  timeout: 1\n  timeout-minutes: 1\n", 2, "must not both be given"),
    "yes": (_STEP + "  continue-on-error: yes\n", 3, "continue-on-error: must be true or false, not 'yes'"),
    "bad if": (_STEP + "  if: steps.x.outcome ==\n", 3, "steps[1].if: "),
    "if of a later step": (
        _STEP + "  if: steps.b.outcome == 'x'\n- id: b\n  run: b\n",
        3,
        "no earlier step has this id",
    ),
    "unknown output": (
        "steps:\n- run: a\n  id: a\n  outputs: [V]\n- run: b\n  if: steps.a.outputs.W\n",
        6,
        "steps.a.outputs.W: the step has no such output; there is V",
    ),
    "expression in a place": (_STEP + "  working-directory: ${{ env.D }}\n", 3, "must not be here: it is for if, env"),
    "unknown input": (_STEP + "  env:\n    A: ${{ inputs.v }}\n", 4, "inputs.v: there is no such input"),
    "unknown context": (_STEP + "  if: github.ref == 'x'\n", 3, "github.ref: names are env.X"),
    "secret in env": (_STEP + "env:\n  A: ${{ secrets.T }}\n", 4, "a secret is a variable of each step"),
    "open expression": (_STEP + "env:\n  A: '${{ env.B'\n", 4, "is missing"),
    "variable name": (_STEP + "env:\n  A-B: x\n", 4, "must be the name of a variable"),
    "env is a list": (_STEP + "env: [A]\n", 3, "env: must be a mapping of names to values, not a list"),
    "id": (_STEP + "  id: 1a\n", 3, "steps[1].id: must begin with a letter"),
    "same id": (_STEP + "  id: a\n- run: b\n  id: a\n", 5, "steps[2].id: must be the only one"),
    "exit code": (_STEP + "  expect: {exit-code: 300}\n", 3, "steps[1].expect.exit-code: must be an exit status"),
    "pattern": (_STEP + "  expect:\n    output-matches: (\n", 4, "is not a regular expression"),
    "retry": (_STEP + "  retry: {count: 0}\n", 3, "steps[1].retry.count: must be a whole number from 1 to 1000"),
    "ready alone": (_STEP + "  ready: {port: 80}\n", 2, "ready needs background: true"),
    "two ready": (
        _STEP + "  background: true\n  ready: {port: 80, file: x}\n",
        4,
        "exactly one of port, file and",
    ),
    "port": (_STEP + "  background: true\n  ready: {port: 99999}\n", 4, "must be a port"),
    "background retry": (_STEP + "  background: true\n  retry: 2\n", 2, "background: true cannot have retry"),
    "outputs of a subshell": (_STEP + "  isolated: true\n  outputs: [A]\n", 2, "outputs are variables of the shell"),
    "output name": (_STEP + "  outputs: [A B]\n", 3, "steps[1].outputs[1]: must be the name of a variable"),
    "twice": (_STEP + "  name: a\n  name: b\n", 4, "steps[1].name: must be here once"),
    "tag": ("steps:\n- run: !!python/object:os.system x\n", 2, "the tag"),
    "key is a list": (_STEP + "? [a]\n: b\n", 3, "a name must be one word"),
    "not YAML": ("steps:\n- run: a\n  b: [\n", 4, "this is not YAML"),
    "tab": ("steps:\n\t- run: a\n", 2, "this is not YAML"),
    "two documents": (_STEP + "---\na: b\n", 3, "this is not YAML"),
    "control character": ("steps:\n- run: a\x01\n", 2, "this is not YAML"),
    "deep": ("[" * 5000, 1, "at most 20 deep"),
    "circle": ("steps: &a\n- *a\n", 1, "values"),
}


@pytest.mark.parametrize("case", _BROKEN)
def test_broken_file_is_refused_with_line_and_field(case: str) -> None:
    text, line, said = _BROKEN[case]
    with pytest.raises(InvalidWorkflow) as error:
        Workflow.loads(text, "w.yml")
    lines = str(error.value).splitlines()
    assert any(one.startswith(f"w.yml:{line}: ") and said in one for one in lines), lines


def test_all_mistakes_of_a_file_are_named_in_their_order() -> None:
    with pytest.raises(InvalidWorkflow) as error:
        Workflow.loads("on: x\nsteps:\n- run: a\n  timeout: x\n- uses: y\n", "w.yml")
    assert [line.split(":")[1] for line in str(error.value).splitlines()] == ["1", "4", "5", "5"]


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["a: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(InvalidWorkflow, match="values"):
        Workflow.loads("\n".join(lines))


def test_file_that_is_not_utf8_is_refused_with_its_line(place: Path) -> None:
    (place / "w.yml").write_bytes(b"steps:\n- run: \xff\n")
    with pytest.raises(InvalidWorkflow, match=r"w\.yml:2: the file must be UTF-8"):
        Workflow.load(place / "w.yml")


def test_values_are_those_of_yaml_1_2() -> None:
    found = Workflow.loads(
        "env: {ON: on, NO: no, TIME: 22:22, MODE: 0755, NUMBER: 1.50, EMPTY: , NULL: ~, TRUE: true}\n"
        "steps:\n- run: true\n  id: yes\n  timeout: 1.5\n  background: true\n- {run: 5, retry: 2, timeout: 5m}\n"
    )
    assert dict(found.env) == {
        **{"ON": "on", "NO": "no", "TIME": "22:22", "MODE": "0755", "NUMBER": "1.50", "EMPTY": "", "NULL": ""},
        "TRUE": "true",
    }
    first, second = found.steps
    assert (first.run, first.id, first.timeout, first.background, first.line) == ("true", "yes", 1.5, True, 3)
    assert (second.run, second.retry and second.retry.count, second.timeout, second.line) == ("5", 2, 300, 7)


def test_input_may_have_the_name_of_a_field() -> None:
    text = "inputs: {port: 8080, timeout: 1.50, required: true, env: {required: false, default: x}}\n" + _STEP
    found = {name: (one.default, one.required) for name, one in Workflow.loads(text).inputs.items()}
    assert found == {
        **{"port": ("8080", True), "timeout": ("1.50", True), "required": ("true", True)},
        "env": ("x", False),
    }


def test_workflow_in_python_is_that_of_a_file() -> None:
    made = Workflow(steps=[Step(run="make", working_directory="/tmp", if_="always()", expect={"exit_code": 2})])  # type: ignore[arg-type]  # pydantic makes the parts
    read = Workflow.loads(
        "steps:\n- run: make\n  working-directory: /tmp\n  if: always()\n  expect: {exit-code: 2}\n", ""
    )
    assert made.steps[0] == read.steps[0].model_copy(update={"line": 0})
    with pytest.raises(ValueError, match=r"steps\[1\]\.if: steps\.x\.outcome: no earlier step"):
        Workflow(steps=(Step(run="a", if_="steps.x.outcome == 'success'"),))


@pytest.mark.parametrize(
    ("make", "values", "said"),
    [
        (Step, {"run": 5}, "run: must be text, not 5"),
        (Step, {"run": "x", "timout": 3}, "timout: is no field here: did you mean timeout? allowed are run, id,"),
        (Step, {"run": "x", "timeout": "soon"}, "timeout: must be a positive number of seconds, or such as 30s"),
        (Step, {"run": "x", "ready": {"port": 80}}, "ready needs background: true"),
        (Workflow, {}, "steps: is missing"),
        (Workflow, {"steps": [{"run": "x", "retry": {"often": 2}}]}, "steps[1].retry.often: is no field here: allow"),
        (Workflow, {"steps": [{"run": "x"}, {"uses": "x"}]}, "steps[2].uses: is not supported: actions of others"),
        (Workflow, {"steps": [{"run": "x", "if": "steps.a.outcome"}]}, "steps[1].if: steps.a.outcome: no earlier"),
    ],
)
def test_wrong_values_in_python_are_named_with_their_field(
    make: Callable[..., object], values: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        make(**values)
    assert said in str(caught.value)
