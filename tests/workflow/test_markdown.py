"""Pages in Markdown as workflows: their blocks, attributes and dialogues."""

from __future__ import annotations

import textwrap
from typing import Final

import pytest

from shellsession import InvalidWorkflow, Session, Workflow


def page(text: str) -> Workflow:
    return Workflow.loads(textwrap.dedent(text), "page.md")


_PAGE: Final = """\
    # A page

    ```bash {name=prepare timeout=30}
    cd /usr
    false
    X=kept
    ```

    ```python
    print("not run")
    ```

    1. In a list:

       ```sh
       echo "$X"
       cat <<'END'
       ```no fence
       END
       ```

    ```bash {"id": "json", "errexit": true}
    false || true; echo json
    ```

    ```bash {skip}
    touch never
    ```

    <!-- no-run: it would take long -->

    ```bash
    touch never
    ```

    ```console
    $ echo "$X in $PWD"
    kept in /usr
    $ for i in 1 2 3; do
    >   echo line $i
    > done
    line 1
    ...
    line [0-9] (glob)
    $ seq 3 | tail -1; (exit 3)
    \\d (regex)
    [3]
    $ echo not compared

    ```
    """


def test_blocks_run_in_order_in_one_shell(sh: Session) -> None:
    workflow = page(_PAGE)
    assert workflow.name == "A page"
    assert [one.line for one in workflow.steps] == [3, 15, 22, 26, 32, 37, 39, 45, 48]
    report = workflow.run(sh)
    assert report.ok, report.to_markdown()
    assert [one.output for one in report.steps] == [
        *("", "kept\n```no fence\n", "json\n", "", "", "kept in /usr\n", "line 1\nline 2\nline 3\n", "3\n"),
        "not compared\n",
    ]
    assert report["json"].title == "json"
    assert report.steps[0].title == "prepare"
    assert [one.step for one in report.steps if one.outcome == "skipped"] == [4, 5]
    assert report.steps[3].reason == report.steps[4].reason == "it is not to be run"


def test_output_other_than_shown_fails_at_its_line(sh: Session) -> None:
    report = page("""\
        ```console
        $ echo one; echo two
        one
        three
        $ (exit 2)
        ```
        ```console
        $ echo shown; (exit 3)
        shown
        ```
        """).run(sh)
    assert report.steps[0].reason == "line 2 of the output must be 'three', not 'two'"
    assert (report.steps[0].line, report.steps[1].reason) == (2, "an earlier step failed")


def test_block_stops_at_a_failure_only_if_asked(sh: Session) -> None:
    report = page("```bash\nfalse\necho on\n```\n```bash {errexit}\nfalse\necho never\n```\n").run(sh)
    assert [one.outcome for one in report.steps] == ["success", "failure"]
    assert report.steps[0].output == "on\n"


def test_attributes_reach_the_step() -> None:
    (step,) = page(
        "```bash {name='a b', timeout: 10s retry=2 isolated continue-on-error=false exit-code=3 id=x}\nexit 3\n```\n"
    ).steps
    assert (step.name, step.timeout, step.retry and step.retry.count, step.isolated) == ("a b", 10, 2, True)
    assert (step.continue_on_error, step.expect.exit_code, step.id) == (False, 3, "x")
    quoted = page("```bash {id=a}\ntrue\n```\n```bash {if=\"steps.a.outcome != 'failure'\"}\ntrue\n```\n")
    assert quoted.steps[1].if_ == "steps.a.outcome != 'failure'"
    assert page("```bash title='x' linenums=1\ntrue\n```\n").steps[0].run == "true"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("# Title\n\ntext\n", 1, "must have a block of bash, sh or console"),
        ("# T\n```bash {timout=3}\na\n```\n```sh\na\n```\n", 2, "timout is no attribute of a block: allowed are name"),
        ("\n\n```bash {timeout=soon}\na\n```\n", 3, "steps[1].timeout: must be a positive number"),
        ("```bash {skip=perhaps}\na\n```\n", 1, "skip: must be true or false, not 'perhaps'"),
        ("```bash {name}\na\n```\n", 1, "name: must have a value"),
        ("```bash {?}\na\n```\n", 1, "must be attributes such as"),
        ("```bash {exit-code=x}\na\n```\n", 1, "exit-code"),
        ("```console\n$ a\nb\n$ c\n( (regex)\n```\n", 4, "steps[2].expect.output: output: '(?:()\\\\Z' is not a"),
        ("```bash\na\necho ${{ env.X }}\n```\n", 3, "must not be in run"),
        ("```bash {id=a}\na\n```\n```bash {id=a}\na\n```\n", 4, "steps[2].id: must be the only one"),
    ],
)
def test_broken_page_is_refused_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(InvalidWorkflow) as error:
        Workflow.loads(text, "page.md")
    assert str(error.value).startswith(f"page.md:{line}: "), error.value
    assert said in str(error.value)
