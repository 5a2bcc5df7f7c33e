"""What a text of bash runs, by the grammar: the corpus, nesting of every kind, and texts that are none."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import pytest
from bashes import VERSION
from hypothesis import given, strategies as st
from policy_corpus import BROKEN, CASES, TAKEN, UNTOLD, Case
from policy_elsewhere import STARTED_ELSEWHERE, STARTS_NOTHING_ELSEWHERE
from policy_options import STARTED_BEHIND_OPTIONS, STARTS_NOTHING_BEHIND_OPTIONS, UNTOLD_BEHIND_OPTIONS
from policy_starters import STARTED, STARTS_NOTHING

from shellsession.policy.commands import commands, shown
from shellsession.policy.grammar import MAX_READ
from shellsession.policy.lexer import cut
from shellsession.policy.words import substitutions

_SEED: Final = "rm x y"


@pytest.mark.parametrize("case", CASES, ids=[repr(case.text) for case in CASES])
def test_the_commands_of_a_text_are_found(case: Case) -> None:
    run = commands(case.text.encode())
    assert bool(run.fault) == case.refused, run.fault
    if not case.refused:
        assert sorted(shown(run)) == sorted(case.commands)
        assert bool(run.unknown) == case.unknown


@pytest.mark.parametrize("text", [*STARTED, *STARTED_ELSEWHERE, *STARTED_BEHIND_OPTIONS])
def test_a_command_is_found_behind_the_one_that_starts_it(text: str) -> None:
    assert "rm" in {words[0].rpartition("/")[2] for words in commands(text.encode()).commands if words[0]}


@pytest.mark.parametrize("text", [*UNTOLD, *UNTOLD_BEHIND_OPTIONS])
def test_what_the_text_does_not_tell_is_unknown(text: str) -> None:
    assert commands(text.encode()).unknown


@pytest.mark.parametrize("text", [*STARTS_NOTHING, *STARTS_NOTHING_ELSEWHERE, *STARTS_NOTHING_BEHIND_OPTIONS])
def test_what_starts_nothing_is_not_taken_for_a_starter(text: str) -> None:
    run = commands(text.encode())
    assert "rm" not in {words[0] for words in run.commands}
    assert not run.unknown


@pytest.mark.timeout(20)
@pytest.mark.parametrize("start", ["find . -exec ", "git bisect run ", "sudo ", "watch ", "find -exec $X "])
def test_commands_within_commands_without_end_are_unread_soon(start: str) -> None:
    """Each way to read them would take time, memory or stack without end."""
    assert commands(start.encode() * 3000 + b"ls").unread
    run = commands(start.encode() * 20 + b"sh -c '" + b"ls;" * 3000 + b"'")
    assert run.unread or run.unknown or ("ls",) in run.commands


def test_words_and_starters_within_starters_are_read_soon() -> None:
    assert not commands(b"docker " + b"container " * 6000).unknown
    assert ("rm", "x") in commands(b"find . -exec find . -exec sudo git bisect run rm x ;").commands


def test_bash_itself_takes_the_corpus() -> None:
    script = "".join(f"bash -n -c {shlex.quote(case.text)} || echo {shlex.quote(repr(case.text))}\n" for case in CASES)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    refused = [repr(case.text) for case in CASES if case.since > VERSION]
    assert (done.stdout.splitlines(), bool(done.stderr)) == (refused, bool(refused)), done.stderr


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_bash_is_told(text: str) -> None:
    assert subprocess.run(["bash", "-n", "-c", text], capture_output=True, check=False).returncode != 0
    assert commands(text.encode()).fault


@pytest.mark.parametrize("case", TAKEN, ids=[repr(case.text) for case in TAKEN])
def test_what_is_no_bash_and_taken_all_the_same_hides_nothing(case: Case) -> None:
    assert subprocess.run(["bash", "-n", "-c", case.text], capture_output=True, check=False).returncode != 0
    assert sorted(shown(commands(case.text.encode()))) == sorted(case.commands)


def _backticks(text: str) -> str:
    for mark in ("\\", "`", "$"):
        text = text.replace(mark, "\\" + mark)
    return f"echo `{text}`"


# Other ways to write it.
_SEEDS: Final = (
    *(_SEED, "\\rm x y", "'rm' x y", '"rm" x y', "$'r\\x6d' x y", "  rm  x\ty", "r\\\nm x y", "rm x \\\n  y"),
    *(">o rm x y", "rm >o x 2>&1 y", "2>&1 <i rm x y", "X=1 Y=$Z rm x y", "rm <<< 'a b' x y"),
)
# Each makes a text that runs the one that it is given.
_AROUND: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: f"a && {text}",
    lambda text: f"a; {text} | b",
    lambda text: f"a || ! {text}",
    lambda text: f"(a; {text}) >out",
    lambda text: f"{{ {text}; }} >out",
    lambda text: f"a\n{text}\nb",
    lambda text: f"echo $({text})",
    lambda text: f'echo "x $({text}) y"',
    lambda text: f'echo "x `{text}` y"' if not set(text) & set("`\\$\"'") else f'echo "$({text})"',
    _backticks,
    lambda text: f"X=$({text}) a",
    lambda text: f"export X=$({text})",
    lambda text: f"a=(1 $({text}))",
    lambda text: f"diff <({text}) b",
    lambda text: f"a > >({text})",
    lambda text: f"if a; then {text}; fi",
    lambda text: f"while {text}; do a; done",
    lambda text: f"for x in $({text}); do a; done",
    lambda text: f"case $({text}) in x) a ;; esac",
    lambda text: f"case x in x) {text} ;; esac",
    lambda text: f"[[ $({text}) == x ]] && a",
    lambda text: f"echo $((1 + $({text})))",
    lambda text: f"((x = 10#$({text})0$y))",
    lambda text: f"echo ${{x:-$({text})}}",
    lambda text: f"f() {{ {text}; }}",
    lambda text: f"until ! {text}; do a; done 2>&1 | b",
    lambda text: f"for ((i = 0; i < 3; i++)); do {text}; done",
    lambda text: f"select x in a b; do {text}; done",
    lambda text: f"function f {{\n{text}\n}}\nf",
    lambda text: f"# it's a comment\n{text} # and 'another",
    lambda text: f"{text} &\nwait",
    lambda text: f"x=${{y:=$({text})}} a",
    lambda text: f'echo "${{x:-"$({text})"}}"',
    lambda text: f"a[$({text})]=1",
    lambda text: f'echo "$(( $({text}) + 1 ))"',
    lambda text: f"cat < <({text})",
    lambda text: f'printf %s x >"$({text})"',
    lambda text: f'if [ "$({text})" ]; then a; else b; fi',
    lambda text: f"if a; then b; elif {text}; then c; fi >out",
    lambda text: f"case x in a | b) c ;& *) {text} ;; esac",
    lambda text: f"cat <<-E{len(text)}\n\tit's $({text})\n\tE{len(text)}",
    lambda text: text if "\n" in text else f"cat <<E | {text}\n'\nE",
    lambda text: f"echo a\\\n b && \\\n{text}",
    lambda text: f"sudo -u me env -i X=1 bash -c {shlex.quote(text)}",
    lambda text: f"time -p bash -c {shlex.quote(text)}",
    lambda text: f"find . -exec sh -c {shlex.quote(text)} \\;",
    lambda text: f"ls | xargs -n 1 bash -c {shlex.quote(text)}",
    lambda text: f"bash -c {shlex.quote(text)}",
    lambda text: f"/bin/sh -ec {shlex.quote(text)}",
    lambda text: f"env X=1 bash -c {shlex.quote(text)}",
    lambda text: f"eval {shlex.quote(text)}",
    lambda text: f"trap {shlex.quote(text)} EXIT",
    lambda text: f"cat <<E{len(text)}\n$({text})\nE{len(text)}\nb",
    lambda text: f"cat <<E{len(text)}\n\n  a\n  it's $(echo ')') $({text}) b\nE{len(text)}\nb",
    lambda text: f"bash <<'E{len(text)}'\n{text}\nE{len(text)}",
    lambda text: f"bash <<< {shlex.quote(text)}",
)
# Each makes a text that only mentions the one that it is given.
_MENTIONS: Final[tuple[Callable[[str], str], ...]] = (
    lambda text: f"echo {shlex.quote(text)}",
    lambda text: f"cat <<'E'\n{text}\nE",
    lambda text: f"a # {text}",
    lambda text: f"X={shlex.quote(text)} a",
    lambda text: f"cat <<< {shlex.quote(text)}",
    lambda text: f"git commit -m {shlex.quote(text)}",
)


@pytest.mark.parametrize("seed", _SEEDS)
def test_however_it_is_written_it_is_found(seed: str) -> None:
    run = commands(seed.encode())
    assert list(shown(run)) == [_SEED]
    assert not run.fault


@pytest.mark.parametrize("number", range(len(_AROUND)))
def test_one_level_deep_it_is_found(number: int) -> None:
    run = commands(_AROUND[number](_SEED).encode())
    assert _SEED in list(shown(run))
    assert not run.fault


@given(st.sampled_from(_SEEDS), st.lists(st.sampled_from(_AROUND), min_size=1, max_size=4))
def test_however_deep_it_is_found_or_the_text_is_doubted(seed: str, around: list[Callable[[str], str]]) -> None:
    text = seed
    for one in around:
        text = one(text)
    run = commands(text.encode())
    assert _SEED in list(shown(run)) or run.fault, text


@pytest.mark.parametrize("number", range(len(_MENTIONS)))
@pytest.mark.parametrize("text", [_SEED, "a; rm x y", "$(rm x y)", "`rm x y`"])
def test_what_is_only_mentioned_is_not_found(number: int, text: str) -> None:
    run = commands(_MENTIONS[number](text).encode())
    assert not any(line.startswith("rm") for line in shown(run))
    assert not run.fault


@given(st.binary(max_size=200) | st.text("abx \n'\"`$(){}<>|&;\\#=EOF", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_doubted(source: bytes) -> None:
    run = commands(source)
    assert all(words for words in run.commands)
    assert all(isinstance(line, str) for line in shown(run))


@pytest.mark.parametrize("body", ["$(a", "$(echo 'a) b", '$(echo "a) b', "`a", "x `a\\`", "$(a $(b)"])
def test_a_substitution_without_an_end_is_told(body: str) -> None:
    assert substitutions(body) is None
    assert commands(f"cat <<E\n x {body}\nE\n".encode()).fault


def test_what_is_too_long_or_too_deep_is_not_read() -> None:
    assert "over 65536 bytes" in commands(b"a " * MAX_READ).unread
    assert not commands(b"eval " * 7 + b"rm x").unread
    assert commands(b"eval " * 10 + b"rm x").unread
    run = commands(b"cat > f <<'E'\n" + b"a\n" * MAX_READ + b"E\nrm x")  # here-documents are not the grammar's
    assert (list(shown(run)), run.unread) == (["cat", "rm x"], "")
    assert commands(b"cat > f <<'E'\n" + b"a\n" * (1 << 20) + b"E\nrm x").unread


@pytest.mark.parametrize("mark", ["(", "$(", '"$(', "`", "{a,", "<", ";", "$((", "[[ ", "eval ", "a\\\n"])
def test_a_text_of_one_thing_again_and_again_ends(mark: str) -> None:
    commands((mark * 3000).encode())


@pytest.mark.timeout(20)
@pytest.mark.parametrize("mark", ["(\n", "$(\n", '"a"<', "<<E $(", "time  ", "a*(", "((", "<<E\n", "case "])
def test_the_outlines_of_long_texts_are_found_soon(mark: str) -> None:
    assert cut(mark * ((1 << 16) // len(mark)), "d").text


# Of which the grammar takes two for one.
_LINES: Final = ("a|b|c\nd e 2>f\n", "a ==\n", "a\n\\b\n", "a $\n")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "mark", ["a|", "a&&", "a;", "a <b ", "[[ '$(' ]]&&", "[[ a && ", '"a"', "! a|", "a[1]=", *_LINES]
)
def test_long_texts_are_read_soon(mark: str) -> None:
    """Each way to a node from the root of its tree would take minutes of them."""
    assert not commands((mark * (MAX_READ // 2 // len(mark)) + " a").encode()).unread


@pytest.mark.timeout(60)
def test_what_a_pipe_brings_is_looked_for_once() -> None:
    eighth = MAX_READ // 8
    assert not commands(b"echo " + b"w " * eighth + b"|a" * eighth).unread


def test_a_missing_parser_is_told_in_one_line() -> None:
    program = (
        "import sys; sys.modules['tree_sitter'] = None\n"
        "from shellsession import InvalidRequest\n"
        "from shellsession.policy.rules import Policy\n"
        "from shellsession.models import Request\n"
        "Policy(deny=['rm']).check(Request(b'ls'))\n"
        "try: Policy(strict=True)\n"
        "except InvalidRequest as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "a policy about commands needs a parser of bash: pip install 'shellsession[policy]'\n"
