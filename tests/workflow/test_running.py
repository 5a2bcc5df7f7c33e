"""Workflows in sessions of every kind: what runs, what each step sees, and what the report says."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from kinds import BRIDGE
from system import unique_seconds, with_argument

from shellsession import (
    AsyncSession,
    InvalidRequest,
    InvalidWorkflow,
    MissingExtra,
    Policy,
    Session,
    Step,
    Workflow,
    aconnect,
    connect,
)
from shellsession.workflow.report import Event, Report, StepOutput

Run = Callable[..., Report]

pytestmark = pytest.mark.usefixtures("company")


def loads(text: str) -> Workflow:
    return Workflow.loads(textwrap.dedent(text))


@pytest.fixture(params=["sync", "async", "remote", "async remote", "via"])
def run(request: pytest.FixtureRequest, place: Path) -> Iterator[Run]:
    """Runs a workflow in a new session of each kind."""
    options: dict[str, Any] = {"cwd": place, "timeout": 20}
    if request.param in ("async", "async remote"):
        socket = request.getfixturevalue("daemon").socket if request.param == "async remote" else ""

        def run(workflow: Workflow, **given: Any) -> Report:
            async def main() -> Report:
                made = await aconnect(request.node.name, socket, False, **options) if socket else None
                async with made or AsyncSession(**options) as session:
                    try:
                        return await workflow.run(session, **given)
                    finally:
                        await session.close()

            return asyncio.run(main())

        yield run
        return
    if request.param == "sync":
        session: Any = Session(**options)
    else:
        elsewhere: Any = {"via": ["env"], "remote": BRIDGE} if request.param == "via" else {}
        socket = request.getfixturevalue("daemon").socket
        session = connect(request.node.name, socket, False, **options, **elsewhere)
    yield lambda workflow, **given: workflow.run(session, **given)
    session.close()


def outcomes(report: Report) -> list[str]:
    return [one.outcome for one in report.steps]


_ONE_SHELL: Final = """
    name: one shell
    env: {MODE: fast, WHO: "${{ inputs.who }}"}
    inputs: {who: Ann}
    secrets: [PIN]
    steps:
    - id: first
      run: |
        mkdir sub; cd sub
        export KEPT=kept
        greet() { echo "hello $1"; }
        VERSION=$'1.2 "x"\\n'
        echo "pin $PIN"
      outputs: [VERSION]
    - run: greet "$WHO"; echo "$KEPT $MODE $V"; pwd
      env: {V: "<${{ steps.first.outputs.VERSION }}>"}
    - run: pwd; cd /; X=inside
      working-directory: /usr
    - run: pwd; echo "${V-none} $X"
    - run: X=other; echo stderr >&2; exit 0
      isolated: true
    - run: echo "$X"
      if: env.MODE == 'fast' && steps.first.outcome == 'success'
    - run: never
      if: failure()
    """


def test_steps_share_one_shell_and_have_their_own_values(run: Run, place: Path) -> None:
    events: list[Event] = []
    report = run(loads(_ONE_SHELL), inputs={"who": "Ben"}, secrets={"PIN": "pin-4711"}, on_event=events.append)
    assert report.ok, report.to_markdown()
    sub = place / "sub"
    assert [one.output for one in report.steps] == [
        "pin ***\n",
        f'hello Ben\nkept fast <1.2 "x"\n>\n{sub}\n',
        "/usr\n",
        f"{sub}\nnone inside\n",
        "stderr\n",
        "inside\n",
        "",
    ]
    assert report["first"].outputs == {"VERSION": '1.2 "x"\n'}
    assert (report.steps[-1].outcome, report.steps[-1].reason) == ("skipped", "its condition is false")
    assert [one.kind for one in events[:4]] == ["workflow_started", "step_started", "step_output", "step_ended"]
    assert events[-1].kind == "workflow_ended"
    assert "pin-4711" not in str([one.to_dict() for one in events])


def test_step_ends_at_its_first_failing_command_and_the_shell_lives(run: Run) -> None:
    report = run(
        loads("""
        steps:
        - run: |
            X=1
            cd /usr
            false
            echo never
          continue-on-error: true
        - run: echo $X $PWD; false | true
        - run: false | true; echo never
          shell: bash
          continue-on-error: true
        - run: false | true; echo ok
        - run: false; echo on
          errexit: false
        - run: |
            [[ $X == 1 ]] && return 3
            echo never
          expect: {exit-code: 3}
        - run: (exit 4)
        - run: never
        - run: echo $X
          if: failure()
        finally:
        - run: echo last $X
        """)
    )
    ended = "failure success failure success success success failure skipped success success"
    assert outcomes(report) == ended.split()
    assert [one.output for one in report.steps if one.output] == ["1 /usr\n", "ok\n", "on\n", "1\n", "last 1\n"]
    assert [one.step for one in report.failed] == [7]
    assert report.steps[6].reason == "exit status 4"
    assert not report.ok


@pytest.mark.sampled(2)
def test_time_limit_ends_the_step_and_keeps_the_shell(run: Run) -> None:
    seconds = unique_seconds()
    report = run(
        loads(f"""
        steps:
        - run: X=kept; echo begun; sleep {seconds}
          timeout: 300ms
          continue-on-error: true
        - run: echo $X
        """)
    )
    assert report.ok
    assert report.steps[0].reason == "the time limit of 0.3 s was over"
    assert [one.output for one in report.steps] == ["begun\n", "kept\n"]
    assert with_argument(seconds) == []


@pytest.mark.sampled(2)
def test_retry_runs_the_step_again_in_the_same_shell(run: Run) -> None:
    events: list[Event] = []
    report = run(
        loads("""
        steps:
        - run: ((++TRIES == 3))
          retry: {count: 3, wait: 0.01}
        - run: ((++MORE == 9))
          retry: 1
        """),
        on_event=events.append,
    )
    assert [(one.outcome, one.attempts) for one in report.steps] == [("success", 3), ("failure", 2)]
    assert [one.kind for one in events].count("step_retried") == 3


@pytest.mark.parametrize(
    ("expect", "reason"),
    [
        ("{exit-code: 0, output-contains: [one, two]}", ""),
        ("{output-contains: three}", "the output does not contain 'three'"),
        ("{output-matches: '^t.o$'}", ""),
        ("{output-matches: '^t.$'}", "the output does not match '^t.$'"),
        ("{exit-code: 1}", "exit status 0, not 1"),
        ('{output: "one\\n...\\nfo* (glob)\\n"}', ""),
        ('{output: "one\\nt.. (regex)\\nfour"}', ""),
        ('{output: "one\\nthree"}', "line 2 of the output must be 'three', not 'two'"),
        ('{output: "one"}', "the output must end before line 2: 'two'"),
    ],
)
def test_expectation_decides(sh: Session, expect: str, reason: str) -> None:
    report = loads(f"steps: [{{run: 'printf \"one\\ntwo\\nfour\\n\"', expect: {expect}}}]").run(sh)
    assert report.steps[0].reason == reason
    assert report.ok is (reason == "")


@pytest.mark.sampled(2)
def test_background_step_is_waited_for_used_and_ended(run: Run, place: Path) -> None:
    seconds = unique_seconds()
    report = run(
        loads(f"""
        steps:
        - name: server
          run: |
            echo "ready on 1" > log
            cat log
            exec sleep {seconds}
          background: true
          ready: {{output: "^ready on"}}
        - run: (sleep 0.2; touch there) & exec sleep {seconds}
          background: true
          ready: {{file: there}}
        - run: cat log; ls there
        """)
    )
    assert report.ok, report.to_markdown()
    assert [one.output for one in report.steps] == ["ready on 1\n", "", "ready on 1\nthere\n"]
    assert with_argument(seconds) == []


@pytest.mark.sampled(2)
def test_background_step_that_is_not_ready_fails(run: Run) -> None:
    seconds = unique_seconds()
    report = run(
        loads(f"""
        steps:
        - run: sleep 0.1; echo broken; exit 3
          background: true
          ready: {{port: 1}}
          continue-on-error: true
        - run: sleep {seconds}
          background: true
          ready: {{port: 1, timeout: 0.2}}
        """)
    )
    assert outcomes(report) == ["failure", "failure"]
    assert report.steps[0].reason.startswith("it ended")
    assert report.steps[0].output == "broken\n"
    assert report.steps[1].reason == "it was not ready after 0.2 s"
    assert with_argument(seconds) == []


def test_exit_ends_the_workflow_unless_the_state_comes_back(new_session: Callable[..., Session]) -> None:
    workflow = loads("""
        steps:
        - run: X=1
        - run: exit 3
          continue-on-error: true
        - run: echo "$X"
        finally:
        - run: echo bye
        """)
    report = workflow.run(new_session())
    assert outcomes(report) == ["success", "failure", "skipped", "success"]
    assert "use `return`" in report.steps[1].reason
    report = workflow.run(new_session(recover=True))
    assert (report.ok, report.steps[2].output) == (True, "1\n")


def test_exit_0_is_success_where_the_state_comes_back(new_session: Callable[..., Session]) -> None:
    report = loads("steps: [{run: X=1}, {run: 'X=2; exit 0'}, {run: echo $X}]").run(new_session(recover=True))
    assert (report.ok, report.steps[2].output) == (True, "2\n")
    assert "a fresh bash continues" in report.steps[1].reason


def test_ctrl_c_ends_the_step_and_the_last_steps_run(sh: Session) -> None:
    events: list[Event] = []

    def interrupt(event: Event) -> None:
        events.append(event)
        if event.kind == "step_output" and "begun" in str(event):
            raise KeyboardInterrupt

    seconds = unique_seconds()
    with pytest.raises(KeyboardInterrupt):
        loads(f"""
        steps:
        - run: echo begun; sleep {seconds}
        - run: never
        finally:
        - run: echo cleaned
        """).run(sh, on_event=interrupt)
    report: Any = events[-1]
    assert report.kind == "workflow_ended"
    assert outcomes(report.report) == ["cancelled", "skipped", "success"]
    assert with_argument(seconds) == []
    assert sh.run("echo lives").ok


def test_cancelled_task_ends_the_step_and_the_last_steps_run(place: Path) -> None:
    seconds = unique_seconds()
    workflow = loads(f"""
        steps:
        - run: sleep {seconds}
          background: true
        - run: echo begun; sleep {seconds}
        finally:
        - run: touch cleaned
        """)

    async def main() -> None:
        begun = asyncio.Event()

        async def look(event: Event) -> None:
            if event.kind == "step_output":
                begun.set()

        async with AsyncSession(cwd=place) as session:
            task = asyncio.create_task(workflow.run(session, on_event=look))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await session.run("ls")).stdout == "cleaned\n"

    asyncio.run(main())
    assert with_argument(seconds) == []


def test_secret_that_comes_in_parts_is_masked_in_a_long_line_and_in_a_reason(sh: Session) -> None:
    workflow = loads(r"""
        secrets: [PIN]
        steps:
        - run: printf %08190d; printf %s "${PIN:0:9}"; sleep 0.2; printf '%sü%09000d\n' "${PIN:9}"
        - run: printf '%0190d%s\n' 0 "$PIN"
          expect: {output: other}
    """)
    events: list[Event] = []
    report = workflow.run(sh, secrets={"PIN": "sesame-open-4711"}, on_event=events.append)
    texts = "".join(one.text for one in events if isinstance(one, StepOutput) and one.step == 1)
    assert texts == f"{'0' * 8190}***ü{'0' * 9000}\n"
    assert "sesame" not in report.steps[1].reason


def test_outputs_between_which_a_trap_prints_fail_the_step(sh: Session) -> None:
    report = loads("steps: [{run: \"trap 'echo D' DEBUG; X=1\", outputs: [X]}]").run(sh)
    assert (report.ok, report.steps[0].outputs) == (False, {})
    assert report.steps[0].reason.startswith("outputs: they could not be read: D")


def test_outputs_that_are_too_long_fail_the_step(sh: Session) -> None:
    report = loads("steps: [{run: \"printf -v X '%02000000d' 0\", outputs: [X]}]").run(sh)
    assert (report.ok, "bytes longer than a call may print" in report.steps[0].reason) == (False, True)


def test_step_that_exits_must_print_and_set_what_is_expected(new_session: Callable[..., Session]) -> None:
    report = loads("""
        steps:
        - run: echo a; exit 0
          expect: {output-contains: b}
          continue-on-error: true
        - run: X=1; exit 0
          expect: {output-contains: ""}
          outputs: [X]
        - run: exit 0
          outputs: [Y]
    """).run(new_session(recover=True))
    assert outcomes(report) == ["failure", "success", "failure"]
    assert report.steps[0].reason == "the output does not contain 'b'"
    assert report.steps[1].outputs == {"X": "1"}
    assert report.steps[2].reason == "outputs: the step has not set the variable Y"


def test_error_of_the_callback_ends_the_workflow(sh: Session) -> None:
    def fail(event: Event) -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        loads("steps: [{run: 'touch never'}]\nfinally: [{run: 'touch last'}]").run(sh, on_event=fail)
    assert sh.run("ls").stdout == "last\n"


def test_policy_of_the_session_refuses_a_step(new_session: Callable[..., Session]) -> None:
    report = loads("steps: [{run: 'echo secretive'}, {run: never}]").run(new_session(policy=Policy(deny=["secretive"])))
    assert outcomes(report) == ["failure", "skipped"]
    assert "secretive" in report.steps[0].reason


def test_chosen_steps_run_alone(sh: Session) -> None:
    workflow = loads("steps: [{id: a, run: echo a}, {name: B b, run: echo b}, {run: echo c}]\nfinally: [{run: echo z}]")

    def ran(**asked: Any) -> str:
        return "".join(one.output for one in workflow.run(sh, **asked).steps).replace("\n", "")

    assert ran() == "abcz"
    assert ran(only=["B b", "1"]) == "ab"
    assert ran(begin="B b") == "bcz"
    assert ran(begin="a", until="2") == "abz"
    with pytest.raises(InvalidWorkflow, match="there is no step 'x': there are a, B b, 3, 4"):
        workflow.run(sh, only=["x"])
    with pytest.raises(InvalidWorkflow, match="nothing to run"):
        workflow.run(sh, begin="3", until="a")


def test_missing_values_are_refused_before_anything_runs(sh: Session) -> None:
    workflow = loads("inputs: {v: {description: the version}}\nsecrets: [T_T]\nsteps: [{run: touch never}]")
    with pytest.raises(InvalidWorkflow, match="'v' must be given: the version"):
        workflow.run(sh)
    with pytest.raises(InvalidWorkflow, match="no input 'w': there are v"):
        workflow.run(sh, inputs={"v": "1", "w": "2"})
    with pytest.raises(InvalidWorkflow, match="the secret T_T must be given"):
        workflow.run(sh, inputs={"v": "1"})
    with pytest.raises(InvalidRequest, match="session must be a session"):
        workflow.run(5, inputs={"v": "1"}, secrets={"T_T": "x"})  # type: ignore[call-overload]
    assert sh.run("ls").stdout == ""


def test_input_that_is_not_required_is_empty(sh: Session) -> None:
    text = "inputs: {V: {required: false}}\nsteps: [{run: 'echo \"<$V>\"', env: {V: '${{ inputs.V }}'}}]"
    assert Workflow.loads(text).run(sh).steps[0].output == "<>\n"


def test_output_that_is_not_set_fails_the_step(sh: Session) -> None:
    report = loads("steps: [{run: 'set -u; A=1', outputs: [A, NOT_SET]}]").run(sh)
    assert report.steps[0].reason == "outputs: the step has not set the variable NOT_SET"


def test_expressions_cannot_inject(sh: Session) -> None:
    report = loads("""
        inputs: {title: x}
        steps:
        - run: echo "$TITLE"
          env: {TITLE: "${{ inputs.title }}"}
        """).run(sh, inputs={"title": "$(touch pwned); `touch pwned` ${{ env.X }}"})
    assert report.steps[0].output == "$(touch pwned); `touch pwned` ${{ env.X }}\n"
    assert sh.run("ls").stdout == ""


def test_reports_are_complete(sh: Session) -> None:
    report = loads("""
        name: a|b <x>
        steps:
        - {name: "x ]]> \\u0001", run: "printf 'a\\\\001\\\\033[31mred\\\\n````\\\\n'; false"}
        - run: never
        """).run(sh)
    from xml.etree import ElementTree

    suite = ElementTree.fromstring(report.to_junit()).find("testsuite")
    assert suite is not None
    assert {name: suite.get(name) for name in ("tests", "failures", "skipped")} == {
        **{"tests": "2", "failures": "1", "skipped": "1"}
    }
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert (failure.get("message"), failure.text) == ("exit status 1", "ared\n````\n")
    markdown = report.to_markdown()
    assert "| 2 | never | skipped: an earlier step failed |" in markdown
    assert "\n`````\n" in markdown
    assert Report.model_validate_json(report.model_dump_json()) == report


def test_same_steps_as_one_script_give_the_same(sh: Session, place: Path) -> None:
    """What ``bash -e`` prints and leaves for all texts in one script."""
    texts = [
        "mkdir -p out && cd out; export N=3",
        "for i in $(seq $N); do echo line $i | tee -a all; done",
        "count() { wc -l < all; }\nprintf '%s lines\\n' \"$(count)\" >&2",
        "cat <<END > doc\n$N `count`\nEND\nif ! grep -q none all; then echo none; fi",
        "set -- a 'b c'; printf '<%s>' \"$@\"; echo; (cd /; pwd); x=$(false) || echo failed",
        "echo $PWD ${#FUNCNAME[@]}; declare -a list=(1 2); list+=(3); echo ${list[@]}",
        "ls | sort; cat doc; test -e missing; echo never",
        "echo never",
    ]
    report = Workflow(steps=tuple(Step(run=text) for text in texts)).run(sh)
    ours = "".join(one.output for one in report.steps)
    shutil.rmtree(place / "out")
    streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    plain = subprocess.run(["bash", "-ec", "\n".join(texts)], cwd=place, check=False, **streams)
    assert (ours, outcomes(report)) == (plain.stdout, ["success"] * 6 + ["failure", "skipped"])
    assert plain.returncode == report.steps[6].exit_code == 1


@pytest.mark.parametrize(("module", "name"), [("yaml", "w.yml"), ("markdown_it", "w.md")])
def test_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"pip install 'shellsession\[workflow\]'"):
        Workflow.loads("steps: [{run: a}]", name)


def test_workflow_needs_no_yaml_until_a_file_is_read() -> None:
    program = "import shellsession, sys; shellsession.Workflow; print('yaml' in sys.modules, 'asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
