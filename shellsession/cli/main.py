"""The entry point of the command line: it runs the verb, and turns exceptions into messages and exit statuses.

Data goes to stdout, messages go to stderr. Every call pays for the imports here, so they include neither asyncio nor
pydantic.
"""

from __future__ import annotations

import os
import sys

from ..errors import InvalidRequest, ShellSessionError
from .words import INTERRUPTED, REFUSED, ErrorFormat

TYPE_CHECKING = False

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable, Sequence
    from typing import Final


_PR_SET_DUMPABLE: Final = 4  # <linux/prctl.h>
# The exit status of bash if there is no such command.
_NOT_FOUND: Final = 127
# The code of the JSON error after Ctrl-C. No error of the library has it.
_INTERRUPTED_CODE: Final = "interrupted"

# The values that Python gives LC_CTYPE in a C locale (PEP 538).
_COERCED: Final = ("C.UTF-8", "C.utf8", "UTF-8")
# Advice to append to errors of the library, by code.
_HINTS: Final = {
    "already_open": "`shellsession kill` closes it",
    "no_such_agent": "`shellsession ls` shows the agents that have one",
    "no_such_output": "`shellsession run --json` shows the id of each result",
    "not_running": "`shellsession ls` shows what runs, `shellsession log` how commands ended",
}


def main(arguments: Sequence[str] | None = None, begin: Callable[[], object] = lambda: None) -> int:
    """Run one verb and return its exit status. Without ``arguments`` this is the program itself, and exits.

    ``begin`` is called when everything is loaded, before the verb does anything.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if os.environ.get("LC_CTYPE") in _COERCED:
        _restore_locale()
    if arguments is None:
        _forbid_inspection()  # after _restore_locale, which reads our environment in /proc
    _open_missing_descriptors()
    status = _run_guarded(words, begin)
    if arguments is None and words[:1] != ["serve"]:
        os._exit(status)  # skips Python's cleanup of modules, 7 ms of 50; there is nothing else to clean up
    return status


def _restore_locale() -> None:
    """Undo Python's change of LC_CTYPE in a C locale (PEP 538), which a new session would inherit."""
    from ..engine.kernel.proc import environment

    del os.environ["LC_CTYPE"]
    os.environ.update({name: value for name, value in environment(os.getpid()).items() if name == "LC_CTYPE"})


def _forbid_inspection() -> None:
    """Keep other processes of this user from opening our descriptors through /proc, reading our memory, or tracing us.

    A command runs as the same user. It could otherwise write a forged result to our output pipe, which an MCP client or
    the caller of ``run`` reads. prctl(2) prevents that; execve(2) undoes it in our children, so bash is unchanged.
    A program that imports the library is not changed.

    Every start pays for this call, so only the extension module below ctypes is loaded: 0.25 ms instead of 1.3. A
    seccomp filter may forbid the call; then this process is as accessible as any other.
    """
    from _ctypes import call_function, dlopen, dlsym

    program = dlopen(None, 0)  # type: ignore[arg-type]  # typeshed does not know that None is allowed
    call_function(dlsym(program, "prctl"), (_PR_SET_DUMPABLE, 0, 0, 0, 0))


def _run_guarded(words: Sequence[str], begin: Callable[[], object]) -> int:
    """Run the verb and return its exit status. For an exception, print the error and return its status."""
    try:
        try:
            status = _run(words, begin)
        except SystemExit as end:  # argparse has printed the help
            status = end.code if isinstance(end.code, int) else 0
        sys.stdout.flush()
        return status
    except ShellSessionError as error:
        from .arguments import tell_error
        from .wording import for_cli

        hint, text = _HINTS.get(error.code), for_cli(str(error))
        tell_error(error.code, f"{text}; {hint}" if hint else text)
    except KeyboardInterrupt as interrupt:
        if ErrorFormat.json:  # for programs, which expect an object; a person knows what they pressed
            from .arguments import tell_error

            # `wait` and `send` may leave the command running, or not have typed anything yet.
            done = "left" if words[0] in ("wait", "send") else "ended"
            tell_error(_INTERRUPTED_CODE, str(interrupt) or f"{done} by Ctrl-C")
        return INTERRUPTED
    except BrokenPipeError:
        _die_of_sigpipe()
    except OSError as error:
        from .arguments import tell_error

        text = f"{error.strerror or error}: check what stdin and stdout are connected to"
        tell_error(ShellSessionError.code, text)
    return REFUSED


def _run(words: Sequence[str], begin: Callable[[], object]) -> int:
    if words[:1] == ["run"]:
        from . import plain

        if (status := plain.run(words[1:], begin)) is not None:
            return _hint(words, status)
    from .arguments import VERBS, show, verb_of

    ErrorFormat.json = "--json" in words  # until the parser has run: Ctrl-C may come before that
    if words[:1] == ["help"] and len(words) > 1:
        words = [words[1], "--help"]
    if not words or words[0] in ("-h", "--help", "help"):
        show(*_help())
        return 0
    if words[0] == "--version":
        from ..models import VERSION

        show(f"shellsession {VERSION}")
        return 0
    if words[0].startswith("-"):
        raise InvalidRequest(f"the verb comes before {words[0]!r:.40}: `shellsession VERB [OPTIONS]`")
    if words[0] not in VERBS:
        from difflib import get_close_matches  # rarely needed

        guess = "".join(f"did you mean {verb}? " for verb in get_close_matches(words[0], VERBS, 1))
        raise InvalidRequest(f"there is no verb {words[0]!r}: {guess}`shellsession --help` lists them")
    verb = verb_of(words[0])
    begin()
    return _hint(words, int(verb.main(words[1:])))


def _hint(words: Sequence[str], status: int) -> int:
    """Return the status. After a `run` that failed, say what its words may have been meant to be."""
    if status in (0, INTERRUPTED) or words[0] != "run" or len(words) < 3:
        return status
    from .run import own_parser

    parser = own_parser()
    command = parser.parse_args(words[1:]).command
    if (hint := _option_after(command, parser) or _agent_as_command(words, command, status)) != "":
        from .arguments import talk

        talk(hint)
    return status


def _option_after(command: Sequence[str], parser: ArgumentParser) -> str:
    """The hint at an option of `run` among the arguments of the command; none after ``--``, where it is meant."""
    for word in command[1:] if command[:1] != ["--"] else ():
        name = word.partition("=")[0]
        # A script takes no arguments. A program may have an option with one letter of its own.
        if name in parser._option_string_actions and (name.startswith("--") or _is_script(command[0])):
            return f"{name} went to the command: write an option of `shellsession run` before the command"
    return ""


def _agent_as_command(words: Sequence[str], command: Sequence[str], status: int) -> str:
    """The hint after ``run a1 'cmd'`` or ``run 'cmd 1' 'cmd 2'`` found no such command."""
    if status != _NOT_FOUND or list(command) != list(words[1:]) or len(command) < 2 or command[0][:1] in "-/.":
        return ""
    from shlex import join
    from shutil import which

    if _is_script(command[0]):
        line = join(["shellsession", "run", "--", "; ".join(command)])
        return f"several words are a command and its arguments; a script is one word, such as `{line}`"
    if which(command[0]) is not None:
        return ""
    line = join(["shellsession", "run", "-s", command[0], "--", *command[1:]])
    return f"if {command[0]} is an agent, name it with -s: `{line}`"


def _is_script(word: str) -> bool:
    """Is it more than one word for bash, the first of which is a command?"""
    from shutil import which

    first, *others = word.split() or [""]
    return bool(others) and which(first) is not None


def _help() -> list[str]:
    from .arguments import VERBS

    return [
        "usage: shellsession VERB [OPTIONS] ...",
        "",
        "One bash that stays open for each agent, shared by all your processes.",
        "",
        *(f"  {verb:<12}{what}" for verb, what in VERBS.items()),
        "",
        "examples:",
        "  # two commands, two processes, one bash: the second prints /tmp hello",
        "  shellsession run -- 'cd /tmp; word=hello'",
        "  shellsession run -- 'echo $PWD $word'",
        "",
        "`shellsession VERB --help` explains a verb. The daemon that holds the sessions",
        "starts when it is first needed.",
    ]


def _open_missing_descriptors() -> None:
    """Open /dev/null for each closed standard stream (``>&-``), so that no other file gets its descriptor."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is fd
            setattr(sys, name, os.fdopen(fd, "w" if fd else "r", encoding="utf-8", closefd=False))


def _die_of_sigpipe() -> None:
    """Die of SIGPIPE without a message, as other programs do when the reader has gone (``| head -1``)."""
    import signal

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
