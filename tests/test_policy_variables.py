"""Variables, and settings of bash, whose value runs: it is judged, and what is ordinary in them is not refused."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from policies import verdict

from shellsession.policy.rules import Policy

# What a prompt runs, or not: bash is asked, too.
_PROMPTS = [
    ("$(rm f)", True),
    ("`rm f`", True),
    (r"\u@\h$(rm f)\$ ", True),
    (r"\044(rm f)", True),
    (r"\140rm f\140", True),
    (r"\\\$(ls)\\\\$(rm f)", True),
    (r"\[\e[1m\]$(true; rm f)\[\e[0m\]", True),
    ("'$(rm f)'", True),
    ("${x:-$(rm f)}", True),
    ("$((1 + $(rm f; echo 1)))", True),
    (r"\$(rm f) ", False),
    (r"\\$(rm f)", False),
    (r"\`rm f\`", False),
    (r"\u@\h:\w\$ ", False),
    (r"\[\033[01;32m\]\u@\h\[\033[00m\]:\[\033[01;34m\]\w\[\033[00m\]\$ ", False),
    (r"\D{%H:%M} rm; f ", False),
    ("rm x> ", False),
    ("(rm) <(rm x) ", False),
]


@pytest.mark.parametrize(("prompt", "runs"), _PROMPTS)
def test_a_prompt_is_judged_by_what_bash_runs_in_it(prompt: str, runs: bool) -> None:
    program = 'rm() { echo ran >&2; }; : "${1@P}"'
    done = subprocess.run(["bash", "-c", program, "bash", prompt], capture_output=True, check=True, timeout=20)
    assert (done.stderr != b"") == runs
    for name in ("PS0", "PS1", "PS2", "PS4"):
        for command in (f"{name}={shlex.quote(prompt)}", f"export A=b {shlex.quote(f'{name}={prompt}')}"):
            for strict in (False, True):
                said = verdict(Policy(deny_commands=["rm"], strict=strict), command)
                assert said == ("'rm' is denied" if runs else "")
        assert (verdict(Policy(allow=["ls", "true", "echo"]), f"{name}={shlex.quote(prompt)}") != "") == runs


# As venv's activate has it.
_ACTIVATE = """
if [ -n "${_OLD_VIRTUAL_PS1:-}" ] ; then
    PS1="${_OLD_VIRTUAL_PS1:-}"
    export PS1
    unset _OLD_VIRTUAL_PS1
fi
if [ -z "${VIRTUAL_ENV_DISABLE_PROMPT:-}" ] ; then
    _OLD_VIRTUAL_PS1="${PS1:-}"
    PS1="(venv) ${PS1:-}"
    export PS1
fi
"""


@pytest.mark.parametrize(
    "command", ['PS1="(venv) $PS1"', _ACTIVATE, 'PS1="$(basename $VIRTUAL_ENV) $PS1"', 'export PS4="+$x "']
)
def test_a_prompt_that_is_known_in_part_is_judged_by_that(command: str) -> None:
    assert verdict(Policy(deny_commands=["rm"]), command) == ""
    assert "does not say the text that PS" in verdict(Policy(deny_commands=["rm"], strict=True), command)
    assert verdict(Policy(deny_commands=["rm"]), command.replace('$PS1"', '$PS1 \\$(rm f)"')) == (
        "'rm' is denied" if '$PS1"' in command else ""
    )


# These run rm, now or when bash or a program looks at it.
_RUN = [
    ": ${PROMPT_COMMAND:=rm x}",
    'echo "${PS1=\\$(rm x)}"',
    "PROMPT_COMMAND+=';rm x'",
    "PROMPT_COMMAND+=('rm x')",
    "MAILPATH='/f?$(rm x)'",
    "BASH_ENV='$(rm x)' bash -c ls",
    "ENV='`rm x`' sh -ic ls",
    "env 'BASH_FUNC_ls%%=() { rm x; }' bash -c ls",
    "env 'BASH_FUNC_ls%%=() { rm x; }' ls",
    "LESSOPEN='|rm %s' less x",
    "LESSOPEN='||- rm %s' less x",
    "AWS_PAGER='rm x' aws s3 ls",
    "KUBE_EDITOR='rm x' kubectl edit y",
    "HGEDITOR='rm x' hg commit",
    "SUDO_ASKPASS=/bin/rm sudo -A ls",
    "CVS_RSH=rm cvs update",
    "SVN_SSH='rm x' svn update",
    "fc -e 'rm x'",
    # values that arithmetic computes
    *("printf -v x %s 'a[$(rm x)]'; echo $((x))", "printf -vx '%s%s' 'a[' '$(rm x)]'; ((x))"),
    *("printf -v x 'a[%s]' '`rm x`'; ((x))", "printf -v x 'a[\\44(rm x)]'; ((x))", "read x <<< 'a[\\$(rm x)]'; ((x))"),
    *("bash -c 'echo $(($1))' _ 'a[$(rm x)]'", "env sh -ec 'echo $(($0))' 'a[$(rm x)]'", "getopts x: y '-xa[$(rm x)]'"),
    *("bash -s 'a[$(rm x)]' <<< 'echo $(($1))'", "mapfile -t x <<< 'a[$(rm x)]'; ((x))", "set -- 'a[$(rm x)]'; (($1))"),
    "history -s rm x",
    "history -s 'ls; rm x'",
    'bind -x \'"\\C-x\\"y": rm x\'',
    "bind -x '\\C-x:rm x'",
]


@pytest.mark.parametrize("command", _RUN)
def test_what_a_variable_or_a_setting_makes_run_is_found(command: str) -> None:
    assert verdict(Policy(deny_commands=["rm"]), command) == "'rm' is denied"


@pytest.mark.parametrize(
    "command",
    [
        *("declare -n r=PROMPT_COMMAND; r=a", "mapfile -t PROMPT_COMMAND <<< a", "read PS1 <<< a", "printf -v PS1 a"),
        *("fc -s a=b", "fc", "enable -f ./a.so b", "PS1='${a@P}'", "PS1='$(a'"),
    ],
)
def test_what_comes_out_only_when_it_runs_is_not_allowed(command: str) -> None:
    assert verdict(Policy(strict=True), command).startswith("it does not say ")
    assert verdict(Policy(deny_commands=["rm"]), command) == ""


@pytest.mark.parametrize(
    "command",
    [
        *("printf -v x '%s [%d]' rm 1", "printf -v x '\\e[%dm' 31", "bash -c 'echo $1' _ rm", "printf '$(rm) a[%s]' x"),
        *("ENV=rm ./run", 'ENV="$X" ./run', "AWS_PAGER= aws s3 ls", "LESSOPEN='| /usr/bin/lesspipe %s' less rm"),
        *(": ${X:=rm x} ${Y=rm}", "declare -n r=x; r=rm", "mapfile -t lines <<< rm", "read line <<< rm"),
        *("history 5; history -c; history -a rm", "fc -l; fc -ln -5 -1", "enable -n rm; enable -a", "bind -p"),
        *(
            "bind 'set editing-mode vi'",
            "MAILPATH='/f?rm x'",
            "MAILCHECK=rm",
            "export 'PS1=(rm) \\u'",
            "DISABLE_PAGERS=rm EDITORS=rm x",
        ),
    ],
)
def test_what_is_ordinary_is_not_refused(command: str) -> None:
    assert verdict(Policy(deny_commands=["rm"], strict=True), command) == ""
