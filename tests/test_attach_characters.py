"""attach and characters: what is typed reaches bash as it is, and what is shown ends nothing, whatever the locale."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from persons import UP, Sits

# PYTHONIOENCODING: Python's streams as they are in a locale that need not be here (en_US.UTF-8, de_DE.ISO-8859-1).
LOCALES = [
    {"LC_ALL": "C"},
    {"LANG": "C"},
    {"LC_ALL": "C.UTF-8"},
    *({"PYTHONIOENCODING": e} for e in ("utf-8", "latin1")),
]


@pytest.mark.parametrize("text", ["é", "日本", "a\t\xa0\u3000b", "\udcff\udcfe", "a\udca0b"], ids=ascii)
@pytest.mark.parametrize("env", LOCALES, ids=lambda env: "{}={}".format(*env, *env.values()))
def test_bash_gets_what_is_typed_byte_for_byte(sits: Sits, tmp_path: Path, env: dict[str, str], text: str) -> None:
    """Typed at the prompt, recalled there, shown anew when something disturbs it, and typed ahead."""
    person = sits(**env)
    person.prompt()
    line = f"printf %s '{text}' >>got"
    person.runs(line)
    person.runs(UP)
    person.types(line)
    person.sees(">>got")
    os.kill(person.pid, signal.SIGCONT)
    person.prompt()
    person.sees(">>got")
    person.types("\r")
    person.prompt()
    person.types("echo u''p; until [ -e go ]; do sleep 0.05; done\r")
    person.sees("up\r\n")
    person.types(f"{line}\r{line}")
    person.sees(">>got.*>>got")
    (tmp_path / "go").touch()
    person.prompt()
    person.prompt()
    person.sees(">>got")
    person.types("\r")
    person.prompt()
    person.leaves()
    assert (tmp_path / "got").read_bytes() == text.encode("utf-8", "surrogateescape") * 5
    assert (tmp_path / "state/shellsession/attach_history").read_bytes().count(b">>got") == 2


def test_a_prompt_that_its_locale_cannot_show(sits: Sits, tmp_path: Path) -> None:
    (tmp_path / "日本").mkdir()
    person = sits(PYTHONIOENCODING="latin1")
    person.prompt()
    person.types("cd [^a-z]*\r")
    person.sees(r"/\\u65e5\\u672c\$ ")
    assert person.runs("pwd").encode("utf-8", "surrogateescape").endswith("/日本\r\n".encode())
