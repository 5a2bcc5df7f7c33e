"""The commands in a bash text: the corpus, nesting of every kind, and unreadable texts."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, strategies as st
from policy_corpus import BROKEN, CASES, MISREAD, STARTED, STARTS_NOTHING, UNREADABLE, Case

from shellsession import Policy, PolicyRefused
from shellsession.models import Request
from shellsession.policy.commands import analyze, one_line


@pytest.mark.parametrize("case", CASES, ids=[repr(case.text) for case in CASES])
def test_the_commands_of_a_text_are_found(case: Case) -> None:
    analysis = analyze(case.text)
    assert sorted(map(one_line, analysis.commands)) == sorted(case.commands)
    assert bool(analysis.unknown) == case.unknown
    assert not analysis.fault


def test_bash_takes_the_corpus() -> None:
    texts = [*UNREADABLE, *(case.text for case in CASES)]
    script = "".join(f"bash -n -c {shlex.quote(text)} || echo {shlex.quote(repr(text))}\n" for text in texts)
    done = subprocess.run(["bash", "-O", "extglob", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["'ls !(*.py)'"], done.stderr  # which needs extglob in the shell that reads it


def _names(text: str) -> set[str]:
    return {words[0].rpartition("/")[2] for words in analyze(text).commands}


@pytest.mark.parametrize("text", STARTED)
def test_a_command_is_found_after_the_program_that_starts_it(text: str) -> None:
    assert "rm" in _names(text)


@pytest.mark.parametrize("text", STARTS_NOTHING)
def test_other_words_are_not_taken_for_a_command(text: str) -> None:
    assert "rm" not in _names(text)
    assert not analyze(text).unknown
    assert not analyze(text).fault


@pytest.mark.parametrize("text", MISREAD)
def test_what_the_grammar_misreads_is_found_and_bash_runs_it(text: str, tmp_path: Path) -> None:
    assert "rm" in _names(text)
    program = tmp_path / "rm"
    program.write_text(f"#!/bin/sh\necho ran >> {tmp_path}/marked\n")
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(
        ["bash", "-c", f"{text}\nwait"], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        check=False, timeout=20,
    )  # fmt: skip
    assert (tmp_path / "marked").exists()


@pytest.mark.parametrize("text", [*BROKEN, *UNREADABLE])
def test_a_text_that_cannot_be_parsed_has_a_fault(text: str) -> None:
    analysis = analyze(f"rm x\n{text}")
    assert analysis.fault.startswith("line ")


_SEED: Final = "rm x y"
# Each makes a text that runs the one that it is given.
_AROUND: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: f"a && {text}",
    lambda text: f"a || ! {text} | b",
    lambda text: f"(a; {text}) >out",
    lambda text: f"{{ {text}; }} 2>&1",
    lambda text: f"# it's a comment\n{text} # and 'another\nb",
    lambda text: f'echo "x $({text}) y"',
    lambda text: f"X=$({text}) a",
    lambda text: f"export X=$({text})",
    lambda text: f"a=(1 $({text}))",
    lambda text: f"diff <({text}) b",
    lambda text: f"if a; then {text}; elif b; then c; fi >out",
    lambda text: f"while {text}; do a; done",
    lambda text: f"for x in $({text}); do a; done",
    lambda text: f"for ((i = 0; i < 3; i++)); do {text}; done",
    lambda text: f"case x in a | b) c ;& *) {text} ;; esac",
    lambda text: f"[[ $({text}) == x ]] && a",
    lambda text: f'echo "$((1 + $({text})))" ${{x:-$({text})}}',
    lambda text: f"f() {{ {text}; }}",
    lambda text: f"{text} &\nwait",
    lambda text: f"cat <<-E{len(text)}\n\tit's $({text})\n\tE{len(text)}",
    lambda text: text if "\n" in text else f"cat <<'E' | {text}\n'\nE",
    lambda text: f"sudo -u me env -i X=1 bash -c {shlex.quote(text)}",
    lambda text: f"find . -exec sh -c {shlex.quote(text)} \\;",
    lambda text: f"ls | xargs -n 1 bash -c {shlex.quote(text)}",
    lambda text: f"eval {shlex.quote(text)}",
    lambda text: f"trap {shlex.quote(text)} EXIT",
    lambda text: f"bash <<'E{len(text)}'\n{text}\nE{len(text)}",
    lambda text: f"bash <<< {shlex.quote(text)}",
)
# Each makes a text that only mentions the one that it is given.
_MENTIONS: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: f"echo {shlex.quote(text)}",
    lambda text: f"cat <<'E'\n{text}\nE",
    lambda text: f"a # {text}",
    lambda text: f"X={shlex.quote(text)} a",
    lambda text: f"git commit -m {shlex.quote(text)}",
)


@given(st.lists(st.sampled_from(_AROUND), max_size=4))
def test_however_deep_it_is_found_or_the_text_is_unreadable(around: list[Callable[[str], str]]) -> None:
    text = _SEED
    for one in around:
        text = one(text)
    analysis = analyze(text)
    assert _SEED in map(one_line, analysis.commands) or (analysis.fault and len(around) > 1), text


@pytest.mark.parametrize("number", range(len(_MENTIONS)))
@pytest.mark.parametrize("text", [_SEED, "a; rm x y", "$(rm x y)", "`rm x y`"])
def test_what_is_only_mentioned_is_not_found(number: int, text: str) -> None:
    analysis = analyze(_MENTIONS[number](text))
    assert not any(words[0] == "rm" for words in analysis.commands)
    assert not analysis.fault


@given(st.text(max_size=200) | st.text("abx \n'\"`$(){}<>|&;\\#=EOF", max_size=60))
def test_any_text_is_read(text: str) -> None:
    assert all(analyze(text).commands)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "mark", ["(", "$(", '"$(', "`", "{a,", "$((", "${", "[[ ", "eval ", "a&&", "a|", "find -exec "]
)
def test_a_text_of_one_thing_again_and_again_is_read_soon(mark: str) -> None:
    analyze(mark * 3000 + "a")


def test_what_is_too_long_or_too_deep_is_not_read() -> None:
    assert analyze("a " * (1 << 15) + "b").unread == "over 65536 bytes without here-documents"
    assert not analyze("eval " * 7 + "rm x").unread
    assert analyze("eval " * 10 + "rm x").unread == "over 8 texts nested in each other"
    analysis = analyze("cat > f <<'E'\n" + "a\n" * (1 << 16) + "E\nrm x")
    assert (analysis.commands, analysis.unread) == ([("cat",), ("rm", "x")], "")
    assert analyze("cat > f <<'E'\n" + "a\n" * (1 << 20) + "E\nrm x").unread


def test_a_missing_parser_is_reported_in_one_line() -> None:
    program = (
        "import sys; sys.modules['tree_sitter'] = None\n"
        "from shellsession import MissingExtra\n"
        "from shellsession.policy.rules import Policy\n"
        "from shellsession.models import Request\n"
        "Policy(deny=['rm']).check(Request(b'ls'))\n"
        "try: Policy(strict=True)\n"
        "except MissingExtra as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "a policy about commands needs a parser of bash: pip install 'shellsession[policy]'\n"


# What stands around the operator of a here-document, and may make it none.
_OPERATORS: Final = (
    "cat <<E",
    "cat <<-E",
    "cat <<'E'",
    'cat <<"E"',
    "cat <<\\E",
    "cat 0<<E",
    "# cat <<E",
    ": x # <<E",
    ": x#y <<E",
    "'<<E '",
    'echo "<<E "',
    "echo $'\\'<<E '",
    "echo \\<<E",
    "echo \\\\<<E",
    "echo $((1 <<E ))",
    "cat <<<E",
    'cat <<< "<<E "',
    "echo `cat <<E",
    "echo $(cat <<E",
    'echo "$(cat <<E',
    'echo "a $(cat <<E',
    "echo ${x#<<E }",
    'echo "${x:-<<E }"',
    "cat <<E <<F",
    "cat <<E | cat <<F",
    "cat <<E # <<F",
    "cat <<E '<<F '",
    "# <<E <<F",
    "bash -c 'cat <<E",
    "{ cat <<E",
    "(cat <<E",
    'cat <<E "a',
    "cat <<E 'a",
    "cat <<E $(echo",
    "cat <<E \\",
    "[[ a == b ]] <<E",
    "(( 1 <<E ))",
    'echo "',
    "echo '",
)
_LINES: Final = (
    "E",
    "\tE",
    "F",
    "mark",
    "mark; cat <<E",
    "$(mark)",
    "`mark`",
    ")",
    ')"',
    '"',
    "'",
    "`",
    "}",
    "# a 'b",
    "a",
)


@given(st.lists(st.one_of(st.sampled_from(_OPERATORS), st.sampled_from(_LINES)), min_size=1, max_size=9))
def test_here_documents_of_any_quoting_hide_no_command_that_bash_runs(lines: list[str]) -> None:
    text = "\n".join(line.replace("mark", f"mark{number}") for number, line in enumerate(lines))
    analysis = analyze(text)
    if analysis.fault:
        return  # allow and strict refuse it
    markers = "".join(f"mark{number}() {{ echo mark{number} >&9; }}\n" for number in range(len(lines)))
    done = subprocess.run(
        ["bash", "-c", f'{markers}exec 9>&1 >/dev/null 2>&1\neval "$0"', text], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    assert set(done.stdout.split()) <= {words[0] for words in analysis.commands}, text


@pytest.mark.parametrize(
    "text",
    [
        'git commit -m "explain the <<EOF syntax"\nrm -rf build\ncat > f <<EOF\na\nEOF',
        "# write it with cat <<EOF\nrm -rf build\ncat > f <<EOF\na\nEOF",
        "ls # <<E\nrm x\nE",
        "echo \\<<E\nrm x\nE",
        'cat <<E "a\nx"; rm y; echo "\nE\n"\nE',
        "# <<E\n" * 20 + "rm x\nE",
    ],
)
def test_an_operator_in_a_comment_or_in_quotes_hides_no_command(text: str) -> None:
    assert "rm" in _names(text)


@pytest.mark.parametrize("text", ["<<E\n" * 100_000, "a=(" * 20_000, "((a" * 20_000, "cat <<E\nE\n" * 60_000])
def test_a_text_that_the_parser_takes_long_for_is_refused_soon(text: str) -> None:
    before = time.thread_time()
    with pytest.raises(PolicyRefused, match=r"too long to be parsed \((it takes|over)"):
        Policy(deny_commands=["sudo"]).judge(Request(text.encode()), clock=time.thread_time)
    assert time.thread_time() - before < 10  # it was 20 s and more
