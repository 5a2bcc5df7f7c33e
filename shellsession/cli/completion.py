"""``shellsession completion``: print a bash script that completes verbs, options, and names of agents.

The script is generated from the parsers of the verbs, so it has all their options.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from . import arguments
from .arguments import show

EXAMPLES: Final = (
    ("shellsession completion bash >> ~/.bash_completion", "for your shells"),
    ("shellsession completion bash > /etc/bash_completion.d/shellsession", "for all users of this machine"),
)
_DESCRIPTION: Final = "Print a script that makes bash complete verbs, options, and the names of agents."

# The bash script has a case for each verb. If COMPREPLY stays empty, bash offers files. Bash splits words at each
# character of COMP_WORDBREAKS, a colon among them, and a completion replaces only the last part. The script therefore
# joins the words again, and removes from each completion the parts that are already on the line.
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
    parser = arguments.parser("completion", "SHELL", _DESCRIPTION, EXAMPLES)
    parser.add_argument("shell", metavar="SHELL", choices=("bash",), help="bash")
    return parser


def main(words: Sequence[str]) -> int:
    own_parser().parse_args(words)
    cases = [f"    {case}" for verb in arguments.VERBS for case in _cases(verb, arguments.parser_of(verb))]
    show(_SCRIPT.replace("@VERBS@", " ".join(arguments.VERBS)).replace("@CASES@", "\n".join(cases)).rstrip())
    return 0


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
