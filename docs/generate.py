"""Writes the files that are made from the parsers of the command line: completion scripts and the man page.

``make generated`` runs it. A test compares the files with what this module makes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import shtab
from argparse_manpage.manpage import Manpage

from shellsession.cli import arguments, small
from shellsession.models import VERSION

TOP: Final = Path(__file__).parent.parent
_SUMMARY: Final = "one bash that stays open for each agent"
_NOTE: Final = "made from the parsers by `make generated`"

# -- bash: a script of our own. shtab's takes no `--option=value`, no name with a colon, and no name with a blank.

# The bash script has a case for each verb. If COMPREPLY stays empty, bash offers files. Bash splits words at each
# character of COMP_WORDBREAKS, a colon among them, and a completion replaces only the last part. The script therefore
# joins the words again, and removes from each completion the parts that are already on the line.
_BASH: Final = """\
# bash completion of shellsession, @NOTE@
_shellsession() {
    local line=$COMP_LINE words=() part word before verb choices= name kept option index
    COMPREPLY=()
    for part in "${COMP_WORDS[@]:0:COMP_CWORD + 1}"; do
        if [[ ! ${words-} || $line == [[:space:]]* ]]; then words+=("$part"); else words[-1]+=$part; fi
        line=${line#"${line%%[![:space:]]*}"}
        line=${line#"$part"}
    done
    word=${words[-1]} before=${words[-2]} verb=${words[1]}
    for ((index = 2; index < ${#words[@]} - 1; index++)); do
        [[ ${words[index]} == -- ]] && return # a command of its own follows
    done
    kept=${word%"${word##*[$COMP_WORDBREAKS]}"} option=
    if [[ $word == --*=* ]]; then before=${word%%=*} option=${word%%=*}= word=${word#*=}; fi
    case "$verb $before" in
    "$verb ${words[0]}") choices='@VERBS@' ;;
@CASES@
    esac
    if [[ $choices == AGENTS ]]; then
        while IFS= read -r name; do
            [[ $name == "$word"* ]] && COMPREPLY+=("$option$(printf %q "$name")")
        done < <("${words[0]}" ls --names 2>/dev/null)
    elif [[ $choices ]]; then
        mapfile -t COMPREPLY < <(compgen -P "$option" -W "$choices" -- "$word")
    fi
    COMPREPLY=("${COMPREPLY[@]#"$kept"}")
}
complete -o default -F _shellsession shellsession
"""
_AGENTS: Final = "AGENTS"


def _bash() -> str:
    cases = [f"    {case}" for verb in arguments.VERBS for case in _cases(verb, arguments.parser_of(verb))]
    replaced = {"@NOTE@": _NOTE, "@VERBS@": " ".join(arguments.VERBS), "@CASES@": "\n".join(cases)}
    return re.sub("|".join(replaced), lambda found: replaced[found[0]], _BASH)


def _cases(verb: str, of_verb: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the bash cases of a verb: what can follow each of its options, and what can be anywhere else."""
    options: list[str] = []
    after: dict[str, list[str]] = {}
    place = ""
    for action in of_verb._actions:  # argparse has no public way to list the arguments; all completers use this one
        values = _AGENTS if action.metavar == "AGENT" else " ".join(map(str, action.choices or ()))
        if not action.option_strings:
            place = place or values
        elif action.help != argparse.SUPPRESS:
            options += action.option_strings
            if action.nargs != 0:
                after.setdefault(values, []).extend(f"'{verb} {name}'" for name in action.option_strings)
    for values, asked in after.items():
        yield f"{' | '.join(asked)}) choices='{values}' ;;"
    yield f"'{verb} '*) if [[ $word == -* ]]; then choices='{' '.join(options)}'; else choices='{place}'; fi ;;"


# -- zsh and fish, by shtab

# What a shell offers for an argument, by the name of its value in the help.
_COMPLETERS: Final[dict[str, dict[str, Any]]] = {
    "AGENT": {"zsh": "_shellsession_agents", "fish": "(shellsession ls --names 2>/dev/null)"},
    "PATH": shtab.FILE,
    "DIR": shtab.DIRECTORY,
    "COMMAND": {**shtab.FILE, "zsh": "_normal"},  # zsh completes the words of another command as at its own prompt
}
_ZSH: Final = """\
_shellsession_agents() {
  local -a names=(${(f)"$(shellsession ls --names 2>/dev/null)"})
  compadd -a names
}"""


def _whole(described: bool) -> argparse.ArgumentParser:
    """One parser with those of all verbs in it. If not ``described``, it has only short texts, for menus."""

    def of_verb(prog: str, **_: object) -> argparse.ArgumentParser:
        verb = prog.rpartition(" ")[2]
        parser = arguments.parser_of(verb)
        if not described:
            parser.description = arguments.VERBS[verb]
            for action in parser._actions:
                action.help = action.help and re.split(r"[:;(]", action.help)[0].strip()
                if completer := _COMPLETERS.get(str(action.metavar)):
                    action.complete = completer  # type: ignore[attr-defined]  # shtab looks for it
        return parser

    # No line is wrapped, or the files would differ from one terminal to another.
    whole = argparse.ArgumentParser(
        "shellsession",
        usage="shellsession VERB [OPTIONS] ...",
        description="The daemon that holds the sessions starts when it is first needed.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=1_000_000),
    )
    whole.add_argument("--version", action="version", help="show the version")
    made: Any = of_verb  # argparse takes any callable, and typeshed only a class
    verbs = whole.add_subparsers(title="commands", metavar="VERB", parser_class=made)
    for verb, what in arguments.VERBS.items():
        verbs.add_parser(verb, help=what)
    return whole


def _by_shtab(shell: str, preamble: str = "") -> str:
    """The script of shtab, with our note instead of its own, which tells to copy the script from there."""
    script = shtab.complete(_whole(described=False), shell, preamble=preamble)
    note = f"# {shell} completion of shellsession, {_NOTE}\n\n"
    script = re.sub(r"^# AUTOMATICALLY.*?\n\n+", note, script, count=1, flags=re.DOTALL | re.MULTILINE)
    return "\n".join(line.rstrip() for line in script.strip().splitlines()) + "\n"


def _zsh() -> str:
    # shtab completes only the first of several arguments, and takes `--` for an argument.
    return _by_shtab("zsh", _ZSH).replace('"(*)::', '"*:').replace("_arguments -C -s ", "_arguments -C -s -S ")


# -- the man page


def _man() -> str:
    data: dict[str, Any] = {
        "description": _SUMMARY,
        "project_name": "shellsession",
        "version": VERSION,
        "manual_title": "User Commands",
    }
    page = Manpage(_whole(described=True), data, format="single-commands-section")
    page.date = ""  # or the page would differ from day to day
    page.add_section("examples", "=", "\n".join(_examples()))
    return str(page)


def _examples() -> Iterator[str]:
    for verb in arguments.VERBS:
        (shown,) = re.findall(r"^examples:\n(.*)", arguments.parser_of(verb).epilog or "", re.DOTALL)
        for what, line in re.findall(r"  # (.*)\n  (.*)", shown):
            escaped = line.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
            yield f".PP\n.B {verb}:\n{what}\n.EX\n    {escaped}\n.EE"


def generated() -> dict[Path, str]:
    """The text of each file."""
    scripts = {"bash": _bash(), "zsh": _zsh(), "fish": _by_shtab("fish")}
    files = {Path(small.script(shell)): text for shell, text in scripts.items()}
    return {**files, TOP / "docs" / "shellsession.1": _man()}


def main() -> int:
    for path, text in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
