"""Here-documents in what a policy reads: whatever bash itself runs of a text was seen in it, or the text is doubted."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Final

import pytest

from shellsession.policy.commands import commands
from shellsession.policy.heredocs import Document
from shellsession.policy.lexer import cut, end_of_substitution

# No program can be found, so that each name that is none of bash's own only says that it was run.
_RUN: Final = """exec 9>ran
PATH=/nonexistent
command_not_found_handle() { case $1 in *[!m0-9]*) ;; *) printf '%s\\n' "$1" >&9 ;; esac }
eval "$1"
"""
_DELIMITERS: Final = (("E", "E"), ("'E'", "E"), ('"E F"', "E F"), ("\\E", "E"), ("E-1", "E-1"), ("'E;'", "E;"))
_LINES: Final = (
    *("it's", 'a "b', "$x", "# c", ")", "E x", " E", "a\\", "\\", "\\\\", "; NAME", "NAME", "`NAME`", "$(NAME)"),
    *("\\$(NAME)", "${x:-$(NAME)}", "$((1 + $(NAME)))", "$(echo ')' # ')\nNAME\n)", "$(cat <<G\n)\nG\nNAME)"),
    *("$(case x in x) NAME ;; esac)", "$\\\n(NAME)", "$(cat <<'G'\n$(\nG\n)NAME"),
)
_WORDS: Final = (
    *("a", "'b c'", "-", "$x", "a#b", "'#'", "case", '"it\'s"', "$((1<<2))", "${#x}", '"a\nb"', "\\\n", "$'a\\'b'"),
    *("> f", "2>&1", "< /dev/null", "<<< a", "$(SUB)", '"a $(SUB)"', "${x:-$(SUB)}", '"${x:-$(SUB)}"', "<(SUB)"),
)
_COMPOUNDS: Final = (
    *("(SUB)", "{ SUB; }", "if SUB; then SUB; fi", "for q in 1; do SUB; done", "case x in x) SUB ;; esac"),
    *("(( 1 << 2 ))", "[[ a =~ (a|b) ]]", "eval 'NAME'", "until SUB || true; do SUB; done"),
)


class _Texts:
    """Texts with here-documents, at random: the same for the same number."""

    def __init__(self, number: int) -> None:
        self._random = random.Random(number)
        self._names = 0
        self._bodies: list[str] = []

    def text(self) -> str:
        return f"{self._commands(0)}\n{self._flush()}{self._filled('NAME', 0)}\n"

    def broken(self) -> str:
        text = self.text()
        for _ in range(2):
            at = self._random.randrange(len(text))
            text = text[:at] + self._random.choice(";\n'\"\\()# `&") + text[at + self._random.randint(0, 1) :]
        return text

    def _commands(self, depth: int) -> str:
        text = self._command(depth)
        for _ in range(self._random.randint(0, 2 - min(depth, 2))):
            between = self._random.choice((";", " && ", "&&", " || ", " | ", "|", "\n", " # <<Z it's\n"))
            text += between + (self._flush() if between.endswith("\n") else "") + self._command(depth)
        return text

    def _command(self, depth: int) -> str:
        if depth < 3 and self._random.random() < 0.3:
            return self._filled(self._random.choice(_COMPOUNDS), depth, inside=False)
        words = [self._random.choice(("cat", "NAME", "X=1 NAME", "read y", "! NAME"))]
        for _ in range(self._random.randint(0, 3)):
            document = self._random.random() < 0.4
            words.append(self._document() if document else self._random.choice(_WORDS[: None if depth < 3 else 16]))
        return self._filled(" ".join(words), depth)

    def _filled(self, text: str, depth: int, inside: bool = True) -> str:
        while "NAME" in text:
            text = text.replace("NAME", f"m{self._names}", 1)
            self._names += 1
        while "SUB" in text:
            outer, self._bodies = self._bodies, [] if inside else self._bodies
            found = self._commands(depth + 1)
            if inside:
                found += f"\n{self._flush()}" if self._bodies else ""
                self._bodies = outer
            text = text.replace("SUB", found, 1)
        return text

    def _document(self) -> str:
        written, delimiter = self._random.choice(_DELIMITERS)
        tab = self._random.choice(("", "\t"))
        lines = [self._filled(self._random.choice(_LINES), 9) for _ in range(self._random.randint(0, 3))]
        self._bodies.append("".join(f"{tab}{line}\n" for line in (*lines, delimiter)))
        return f"{self._random.choice(('', '0', '3'))}<<{'-' if tab else ''}{self._random.choice(('', ' '))}{written}"

    def _flush(self) -> str:
        bodies, self._bodies = self._bodies, []
        return "".join(bodies)


def ran(text: str, place: Path) -> set[str]:
    """The names that bash ran."""
    confined = ["unshare", "--user", "--map-root-user", "--fork", "--pid", "--kill-child"]
    able = subprocess.run([*confined, "true"], capture_output=True, check=False).returncode == 0
    line = [*(confined if able else []), "bash", "-c", _RUN, "bash", text]
    subprocess.run(line, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
    return set((place / "ran").read_text().split())


@pytest.mark.parametrize("number", range(40))
def test_what_bash_runs_was_seen_or_the_text_is_doubted(number: int, tmp_path: Path) -> None:
    texts = _Texts(number)
    for text in (texts.text(), texts.broken()):
        run = commands(text.encode())
        overlooked = ran(text, tmp_path) - {words[0] for words in run.commands}
        assert not overlooked or run.fault, text


def test_most_of_these_texts_are_not_doubted() -> None:
    """Else the test before this one would say little."""
    doubted = [number for number in range(40) if commands(_Texts(number).text().encode()).fault]
    assert len(doubted) < 20


@pytest.mark.parametrize(
    ("text", "rest", "documents"),
    [
        ("a <<E; b\n$x\nE\nc", "a <d0 ; b\nc", [Document("$x\n", False)]),
        ("a <<-'E F'&& b\n\tx\n\tE F\n", "a <d0 && b\n", [Document("x\n", True)]),
        ("a <<A <<\\B\n1\nA\n2\nB\n", "a <d0  <d1 \n", [Document("1\n", False), Document("2\n", True)]),
        ("a <<E\nb\\\nE\n\\\nE\nc", "a <d0 \nc", [Document("bE\n", False)]),
        ("a 'b <<E' \"<<E\" # <<E\n$((1<<E)) \\<\\<E", "a 'b <<E' \"<<E\" # <<E\n$((1<<E)) \\<\\<E", []),
        ("a <<<E b 3<<<$x", "a  98765432<E b  987654323<$x", []),
        ("a {x}<b 3<>c !(d|*.e); ! ! b; time -p { c", "a 10<b 3<c *;   b; time -p ; { c", []),
        ("! (a); c !(b) $(c)!(d) @($x)", " (a); c * $(c)* @($x)", []),
        ("a $(b <<E\n1\nE) <<E\n2\nE\n", "a $(b <d0 \n) <d1 \n", [Document("1\n", False), Document("2\n", False)]),
    ],
)
def test_here_documents_are_taken_out(text: str, rest: str, documents: list[Document]) -> None:
    found = cut(text, "d")
    assert (found.text, list(found.documents.values()), found.doubt) == (rest, documents, "")


@pytest.mark.parametrize(
    "text",
    [
        "a <<E\nb",  # bash warns, and takes the rest
        "a <<$(b)\nc\nE\n",
        "a <<`b`\nc\nE\n",
        "a <<$'E'\nb\nE\n",
        "a $(b <<E) c\nd\nE\n",
        "a $(b <<E\nc\nE; d)\nE\n)",
        "a <<E $(b\nc)\nd\nE\n",
        "((a <<E\nb\nE\n); c)",
        "a <((#'\n{}))<<'E;';{{\n'))\nrm x\nE;\n}\n}",
        'a "${x:-\'"}" <<E \'"\nb\nE\n',
    ],
)
def test_what_is_not_certain_is_doubted(text: str) -> None:
    assert commands(text.encode()).fault


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("$(a)b", 4),
        ("$(a ')' \")\" \\) `)` ${x:-)} $(b) (c) # )\n)d", 41),
        ("$(case x in (x) a ;; y) b ;; esac)c", 34),
        ("$((1 + (2)))b", 12),
        ("$(a", None),
        ("$(a ')", None),
    ],
)
def test_the_end_of_a_substitution_is_found(text: str, end: int | None) -> None:
    assert end_of_substitution(text, 0) == end


def test_a_delimiter_with_a_parenthesis_at_the_end_of_the_text_is_read() -> None:
    """It cost an IndexError, where bash reads on behind the delimiter of a substitution's here-document."""
    text = "echo $(cat <<'a)b'\nfoo\na)b  "
    assert commands(text.encode()).commands[0][0] == "echo"
