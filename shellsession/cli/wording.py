"""``for_cli``: messages of the library in the words of the command line, where flags and verbs take the place of names.

Tests of the flags fail if the library's wording changes.
"""

from __future__ import annotations

from typing import Final

_PHRASES: Final = {
    "wait(), poll(), send() or interrupt() it first, or restart()": (
        "`shellsession wait`, `send` or `interrupt` it first, or `restart`"
    ),
    "connect again for a new one": "`shellsession run` opens a new one",
    "the host's own working directory is gone": "the directory that this runs in was removed",
    "name the program with remote=": "name the program in SHELLSESSION_REMOTE",
    "run it with stdin=TTY": "start it with `shellsession run -i`",
    "cwd= or env= could not be": "-C or --env could not be",
    "(patience=,": "(--patience,",
    "sandbox.write": "--write",
    "sandbox.hide": "--hide",
    "sandbox.memory": "--memory",
    "sandbox.cpu": "--cpu",
    "sandbox.pass_env": "--pass-env",
    ", or None for no limit; not": "; not",
    "pass missing_ok=True": "add --missing-ok",
    "values go into extra_env=": "values go into --env",
    "leave it out of write and hide": "leave it out of --write and --hide",
    "add it to the sandbox's write, or pass another cwd=": "add --write for it, or name another --cwd",
    "or leave out sandbox=": "or leave out --sandbox",
    "or leave out branch=": "or leave out --branch",
    "open it with branch=": "open it with --branch",
    "with branch_dir=": "with XDG_STATE_HOME, and start the daemon anew",
    "kill it, or pass end_jobs=True": "kill it, or add --end-jobs",
    "all with overwrite=True": "all with --overwrite",
    "a session with auto_checkpoints=N": "a session with --auto-checkpoints",
    ": name a spill for more": "",
    "lines is (first, last), from 1 on, with None for the end": "--lines is FIRST:LAST or FIRST:, from 1 on",
    "bytes is (first, last), from 0 on, with None for the end": "--bytes is FIRST:END or FIRST:, from 0 on",
    "; tail names the last lines": "; --tail names the last lines",
    "bytes names a part of the stream by itself: leave out lines and grep": (
        "--bytes names a part of the stream by itself: leave out --lines and --grep"
    ),
}
# Names of options at the start of a message. Elsewhere they may be words of the user.
_NAMES: Final = {
    "cwd ": "--cwd ",
    "env: ": "--env: ",
    "deny_commands ": "--deny ",
    "allow ": "--allow ",
    "limits: max_output ": "--max-chars ",
    "max_chars ": "--max-chars ",
    "timeout ": "--timeout ",
    "patience ": "--patience ",
    "until: ": "--until: ",
    "grep: ": "--grep: ",
}


def for_cli(message: str) -> str:
    for name, flag in _NAMES.items():
        if message.startswith(name):
            message = flag + message.removeprefix(name)
            break
    for phrase, words in _PHRASES.items():
        message = message.replace(phrase, words)
    return message
