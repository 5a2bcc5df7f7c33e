"""``shellsession completion``: a script by which bash completes verbs, options, and the names of agents.

Law: it is made from the verbs' own parsers, so that it knows what they know.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from . import arguments
from .arguments import show

EXAMPLES: Final = (
    ("shellsession completion bash >> ~/.bash_completion", "for every bash from now on"),
    ("shellsession completion bash > /etc/bash_completion.d/shellsession", "for everybody here"),
)
_DESCRIPTION: Final = "Print a script that makes bash complete the verbs, their options, and the agents that are there."

# In bash, a case for each verb; where COMPREPLY stays empty, bash offers files. Bash takes words apart at each of
# COMP_WORDBREAKS, a colon among them, and what it puts in is for the last part alone: hence the words are put together
# again, and of what is found, what is there already is left out.
_SCRIPT: Final = """\
# bash completion of shellsession, printed by `shellsession completion bash`
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


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("completion", "SHELL", _DESCRIPTION, EXAMPLES)
    own.add_argument("shell", metavar="SHELL", choices=("bash",), help="bash")
    return own


def main(words: Sequence[str]) -> int:
    own_parser().parse_args(words)
    cases = [f"    {case}" for verb in arguments.VERBS for case in _cases(verb, arguments.parser_of(verb))]
    show(_SCRIPT.replace("@VERBS@", " ".join(arguments.VERBS)).replace("@CASES@", "\n".join(cases)).rstrip())
    return 0


def _cases(verb: str, of_verb: argparse.ArgumentParser) -> Iterator[str]:
    """What may follow each option of a verb, and what may stand elsewhere."""
    options: list[str] = []
    after: dict[str, list[str]] = {}
    place = ""
    for action in of_verb._actions:  # argparse has no public way to look at a parser; all completers go this one
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
