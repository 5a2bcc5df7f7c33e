"""``shellsession completion``: print a script that completes verbs, options, and names of agents in bash, zsh or fish.

The scripts are files of the package. docs/generate.py makes them from the parsers of the verbs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from . import arguments
from .arguments import show

EXAMPLES: Final = (
    ("shellsession completion bash >> ~/.bash_completion", "for your shells"),
    ("shellsession completion bash > /etc/bash_completion.d/shellsession", "for all users of this machine"),
    (
        "shellsession completion zsh > ~/.zfunc/_shellsession",
        "for zsh, with fpath+=~/.zfunc above compinit in .zshrc",
    ),
    ("shellsession completion fish > ~/.config/fish/completions/shellsession.fish", "for fish"),
)
_DESCRIPTION: Final = "Print a script that makes your shell complete verbs, options, and the names of agents."
_SHELLS: Final = ("bash", "zsh", "fish")


def script(shell: str) -> Path:
    """Where the script for this shell is."""
    return Path(__file__).parent / "completions" / f"shellsession.{shell}"


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("completion", "SHELL", _DESCRIPTION, EXAMPLES)
    parser.add_argument("shell", metavar="SHELL", choices=_SHELLS, help=f"{', '.join(_SHELLS[:-1])} or {_SHELLS[-1]}")
    return parser


def main(words: Sequence[str]) -> int:
    given = own_parser().parse_args(words)
    show(script(given.shell).read_text(encoding="utf-8").rstrip())
    return 0
