"""Document 000: a command that bash could not run is an error, also in a bash that does not print English."""

from __future__ import annotations

import pytest

from shellsession.contracts import spec
from shellsession.models import Result


@pytest.mark.parametrize(
    ("said", "exit_code"),
    [
        ("Zeile 1: nope: Kommando nicht gefunden.", 127),
        ("Zeile 12: /etc/passwd: Keine Berechtigung", 126),
        ("ligne 1: nope : commande introuvable", 127),
        ("ligne 1 : exec: nope : non trouvé", 127),
        ("1. sor: exec: nope: nem található", 127),
        ("行 1: /etc/passwd: 許可がありません", 126),
        ("第 1 行\uff1aexec: nope: 未找到", 127),
    ],
)
def test_bash_is_known_in_other_languages_too(said: str, exit_code: int) -> None:
    line = f"/bin/bash: {said}"
    for text, error in (
        (f"{line}\n", line),
        (f"before\n{line}", line),
        (f"{line}\nand more\n", None),
        (f"before {line}\n", None),
        (f"{said}\n", None),
    ):
        stderr = spec.render(Result(b"", text.encode(), exit_code, None, "/", 0.0, "exited"))
        stdout = spec.render(Result(text.encode(), b"", exit_code, None, "/", 0.0, "exited"))
        assert (stderr.get("error"), stdout.get("error")) == (error, error)
    assert "error" not in spec.render(Result(b"", line.encode(), 1, None, "/", 0.0, "exited"))


@pytest.mark.parametrize(
    "said",
    [
        "/bin/bash: Zeile 1: cd: /nowhere: Datei oder Verzeichnis nicht gefunden",
        "/bin/bash: ligne 1 : pushd: /nowhere: Aucun fichier ou dossier de ce type",
        "/bin/bash: 第 1 行\uff1acd: /nowhere: 没有那个文件或目录",
        "bash: Zeile 1: nope: Kommando nicht gefunden.",
        "/bin/bash: line 1: y: parameter null or not set",
        "/bin/bash: warning: setlocale: LC_ALL: cannot change locale (de_DE): No such file or directory",
        "/bin/bash: warning: shell level (1000) too high, resetting to 1",
    ],
)
def test_what_bash_says_of_other_things_is_no_such_error(said: str) -> None:
    assert "error" not in spec.render(Result(b"", said.encode(), 127, None, "/", 0.0, "exited"))
