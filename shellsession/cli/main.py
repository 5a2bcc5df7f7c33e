"""The start of the command line: which verb, and what its errors look like.

Law: data to stdout, talk to stderr; the start imports neither asyncio nor pydantic, as each call pays for it.
"""

from __future__ import annotations

import os
import sys

from ..errors import InvalidRequest, ShellSessionError
from .hardening import shut_out_others
from .words import INTERRUPTED, REFUSED, Asked

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Final


# The error's code, which no error of the library has.
_INTERRUPTED_CODE: Final = "interrupted"

# To what Python changes the locale of programs where that is C.
_COERCED: Final = ("C.UTF-8", "C.utf8", "UTF-8")
# What to do, where an error of the library does not say it in words of the command line.
_HINTS: Final = {
    "no_such_agent": "`shellsession ls` shows the agents that have one",
    "not_running": "`shellsession ls` shows what runs, `shellsession log` how it ended",
}
# What the library says in Python, in words of the command line. (The tests of the command line have them all: who says
# it otherwise there is told.)
_IN_WORDS: Final = {
    "wait(), poll(), send() or interrupt() it first, or restart()": (
        "`shellsession wait`, `send` or `interrupt` it first, or `restart`"
    ),
    "connect again for a new one": "`shellsession run` opens a new one",
    "the host's own working directory is gone": "the directory that this runs in was removed",
    "run it with stdin=TTY": "start it with `shellsession run -i`",
}


def main(arguments: Sequence[str] | None = None, begin: Callable[[], object] = lambda: None) -> int:
    """Run one verb; its exit status. As the program itself (without ``arguments``) it ends there.

    ``begin`` is called when all is loaded, before the verb does anything.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if os.environ.get("LC_CTYPE") in _COERCED:
        _be_as_started()
    if arguments is None:
        shut_out_others()  # not before: what we were started with cannot be read then
    _complete_descriptors()
    status = _guarded(words, begin)
    if arguments is None and words[:1] != ["serve"]:
        os._exit(status)  # to put away all modules takes Python 7 ms of 50, and there is nothing else to put away
    return status


def _be_as_started() -> None:
    """In a C locale Python sets LC_CTYPE (PEP 538): a session that we open would have what its client never had."""
    from ..engine.kernel.proc import environment

    del os.environ["LC_CTYPE"]
    os.environ.update({name: value for name, value in environment(os.getpid()).items() if name == "LC_CTYPE"})


def _guarded(words: Sequence[str], begin: Callable[[], object]) -> int:
    """The verb's exit status, or that of what went wrong, which is told."""
    try:
        try:
            status = _run(words, begin)
        except SystemExit as end:  # argparse has told its help
            status = end.code if isinstance(end.code, int) else 0
        sys.stdout.flush()
        return status
    except ShellSessionError as error:
        hint, text = _HINTS.get(error.code), str(error)
        for said, meant in _IN_WORDS.items():
            text = text.replace(said, meant)
        from .arguments import tell_error

        tell_error(error.code, f"{text}; {hint}" if hint else text)
    except KeyboardInterrupt as interrupt:
        if Asked.json:  # a program reads that, and is told of every end; a person has pressed it
            from .arguments import tell_error

            # Who only joins a command may leave it running, or have typed nothing yet.
            done = "left" if words[0] in ("wait", "send") else "ended"
            tell_error(_INTERRUPTED_CODE, str(interrupt) or f"{done} by Ctrl-C")
        return INTERRUPTED
    except BrokenPipeError:
        _end_as_others_do()
    except OSError as error:
        from .arguments import tell_error

        text = f"{error.strerror or error}: see where its input comes from, and where its output goes"
        tell_error(ShellSessionError.code, text)
    return REFUSED


def _run(words: Sequence[str], begin: Callable[[], object]) -> int:
    if words[:1] == ["run"]:
        from . import plain

        if (status := plain.run(words[1:], begin)) is not None:
            return status
    import importlib

    from .arguments import VERBS, show

    Asked.json = "--json" in words  # until the parser knows better: Ctrl-C may come before that
    if words[:1] == ["help"] and len(words) > 1:
        words = [words[1], "--help"]
    if not words or words[0] in ("-h", "--help", "help"):
        show(*_help())
        return 0
    if words[0] == "--version":
        from ..models import VERSION

        show(f"shellsession {VERSION}")
        return 0
    if words[0] not in VERBS:
        from difflib import get_close_matches  # seldom needed

        meant = "".join(f"did you mean {verb}? " for verb in get_close_matches(words[0], VERBS, 1))
        raise InvalidRequest(f"there is no verb {words[0]!r}: {meant}`shellsession --help` lists them")
    verb = importlib.import_module(f".{words[0]}", __package__)
    begin()
    return int(verb.main(words[1:]))


def _help() -> list[str]:
    from .arguments import VERBS

    return [
        "usage: shellsession VERB [OPTIONS] ...",
        "",
        "One bash that stays open for each agent, shared by every process of yours.",
        "",
        *(f"  {verb:<12}{what}" for verb, what in VERBS.items()),
        "",
        "examples:",
        "  # two commands, two processes, one bash: the second prints /tmp hello",
        "  shellsession run -- 'cd /tmp; word=hello'",
        "  shellsession run -- 'echo $PWD $word'",
        "",
        "`shellsession VERB --help` tells more of each. The daemon behind it is started",
        "when it is first needed.",
    ]


def _complete_descriptors() -> None:
    """What was closed (``>&-``) becomes /dev/null, or the connection to the daemon would get its number."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            setattr(sys, name, os.fdopen(fd, "w" if fd else "r", encoding="utf-8", closefd=False))


def _end_as_others_do() -> None:
    """Who reads our output has gone (``| head -1``): die of SIGPIPE, which Python ignores, and say nothing."""
    import signal

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
