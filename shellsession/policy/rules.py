"""Policy: what may run, for how long, with what of the environment, and what of it is shown.

Law: a command is refused before it runs or not at all, and the reason is told; nothing here touches the system.
"""

from __future__ import annotations

import fnmatch
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

from ..errors import InvalidRequest, ShellSessionError
from ..models import Request, check_flag, check_seconds, to_bytes
from .commands import Run, commands, shown
from .secrets import Secrets, secret_values
from .subcommands import subcommands
from .words import Word

Pattern = str | re.Pattern[str]
UNCONFIRMED: Final = "it was not confirmed"
_COROUTINE: Final = "a coroutine function can be asked only by an async tool: bind it to AsyncSession or AsyncAgents"
_SHOWN: Final = 80  # characters of a command that a reason quotes


class PolicyRefused(ShellSessionError):
    """The policy does not let this command run; nothing was run. The message says why."""

    code = "policy_refused"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The request as it may run; where ``question`` is not empty, only if ``confirm`` says yes to it."""

    request: Request
    question: str = ""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What may run. It catches mistakes and asks people; it is not a security boundary: what may run may do anything.

    ``deny``: texts that no command may contain, wherever they stand (also in quotes), and regular expressions
    (``re.compile(...)``) that are searched in the text and, with any of the next three, in each command of it.
    ``deny_commands``, ``allow``: commands by name, as ``"sudo"`` or ``"git push"``; words may be patterns (``*``,
    ``?``, ``[...]``). They are about what the text runs, in ``a && b``, ``$(b)``, ``<(b)``, ``env X=1 b`` and ``bash -c
    'b'``, and behind what else starts others (``sudo``, ``ssh``, ``docker exec``: ``policy.starters``), not about what
    it only mentions, in quotes or here-documents. A variable that makes bash or a program run something is read, too
    (``PS1``, ``PAGER``: ``policy.variables``). What an interpreter runs (``perl -e``, ``awk``, ``make``, ``gdb -ex``,
    and by its own variables, as ``NODE_OPTIONS``) is not looked into, nor is a file with its words (``sed -f``,
    ``apt-get -c``): an allow list without it refuses it. A script of sed is read, but an expansion in its patterns and
    texts (``"s/a/$B/"``) is taken for a part of these. A name without a slash means every path to it; what an alias or
    a function of an earlier text stands for is not known. An allowed command begins with these words. Of a denied one,
    a second word that begins with a letter is the subcommand, which is the
    first word that is no option (``policy.subcommands`` knows which options take a word; one that is not there may, or
    not, and both are denied): "git push" is not about ``git stash push``, nor is "rm x" about ``rm y x``,
    and "make install" is not about ``make all install``. Any other second word (``--force``, ``/etc``, ``*``), and each
    further one, may stand anywhere after it, in this order.
    ``allow``: every command must be allowed, or it is refused; with ``confirm``, somebody is asked.
    ``confirm``: a function, for async tools also a coroutine function, of (command, agent, cwd), all texts: it is asked
    about every command, or with ``allow`` about every other one; unless it says yes, and within ``confirm_timeout``
    seconds (None: whenever it does), the command is refused.
    ``PATH=``, ``ENV=`` and ``LD_*=`` make names mean other programs: what has them is not allowed.
    Of a text, 65536 bytes beside its here-documents are looked at, and 2^20 bytes of all that it runs. What is over
    that is refused, with ``deny_commands`` and ``strict``, and never allowed.
    ``strict``: refuse what cannot be read as bash, and what runs something that the text does not tell (``$CMD x``,
    ``curl x | bash``). Without it such parts are not denied; they are never allowed. Of a text with expansions in it
    (``ssh h "cd $X && sudo y"``) the rest is read, and may be denied. What arithmetic computes is read where the text
    gives it to a variable or an argument in one word (``x='a[$(y)]'``, ``printf -v``, ``read <<<``, ``bash -c``), not
    where a command prints it, a loop reads it, or other variables put it together.
    ``max_command``: bytes. ``min_timeout``, ``max_timeout``: every time limit is brought between these, in seconds.
    ``hide_prefixes``, ``hide_names``, ``hide_values``: the beginning of a name, patterns in a name, patterns in a value
    of variables that are not in the environment of an agent's bash.
    ``mask_secrets``: in results and logs of tools, ``***`` stands for the secrets of the host's environment (known by
    names, as TOKEN, and passwords in URLs) and for what is hidden, where these have six characters or more.
    ``secrets``: values for which it always does, with ``mask_secrets`` or without, however short they are.
    Files are left as they are, also the output file of a phoenix command in the background.
    Raises InvalidRequest, also where a parser of bash is needed and missing (the extra ``policy``).
    """

    deny: Sequence[Pattern] = ()
    deny_commands: Sequence[str] = ()
    allow: Sequence[str] | None = None
    confirm: Callable[[str, str, str], Any] | None = None
    confirm_timeout: float | None = 60.0
    strict: bool = False
    max_command: int | None = None
    min_timeout: float | None = None
    max_timeout: float | None = None
    hide_prefixes: Sequence[str] = ()
    hide_names: Sequence[Pattern] = ()
    hide_values: Sequence[Pattern] = ()
    mask_secrets: bool = False
    secrets: Sequence[str] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for name in ("deny", "hide_names", "hide_values"):
            _check_texts(name, getattr(self, name), (str, re.Pattern))
        for name in ("deny_commands", "hide_prefixes", "secrets"):
            _check_texts(name, getattr(self, name), (str,))
        if self.allow is not None:
            _check_texts("allow", self.allow, (str,))
        for rule in (*self.deny_commands, *(self.allow or ())):
            if not rule.split():
                raise InvalidRequest(f"{rule!r} names no command")
        for secret in self.secrets:
            to_bytes("secrets", secret)
        for name in ("strict", "mask_secrets"):
            check_flag(name, getattr(self, name))
        if self.confirm is not None and not callable(self.confirm):
            raise InvalidRequest(f"confirm is a function of (command, agent, cwd), not {self.confirm!r}")
        for name in ("confirm_timeout", "min_timeout", "max_timeout"):
            check_seconds(name, getattr(self, name))
        if self.min_timeout is not None and self.max_timeout is not None and self.min_timeout > self.max_timeout:
            raise InvalidRequest(f"min_timeout {self.min_timeout} is over max_timeout {self.max_timeout}")
        size = self.max_command
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise InvalidRequest(f"max_command is a number of bytes, 1 or more, or None for no limit, not {size!r}")
        for name in ("hide_names", "hide_values"):
            object.__setattr__(self, name, tuple(_compiled(name, one) for one in getattr(self, name)))
        if self._reads:
            commands(b"")  # a missing parser is told here

    @property
    def _reads(self) -> bool:
        return bool(self.deny_commands) or self.allow is not None or self.strict

    def check(self, request: Request, agent: str = "", cwd: str = "") -> Request:
        """The request as it may run, with its time limit. For sessions that are used without a tool:

            session.run((request := policy.check(Request(b"make"))).command, timeout=request.timeout)

        ``confirm`` is asked here and now, for as long as it takes. Raises PolicyRefused; InvalidRequest where
        ``confirm`` is a coroutine function, which only async tools can ask.
        """
        verdict = self.judge(request)
        if verdict.question and (self.confirm is None or not yes(ask(self.confirm, (verdict.question, agent, cwd)))):
            raise refused(UNCONFIRMED)
        return verdict.request

    def judge(self, request: Request) -> Verdict:
        """What is to be said without asking anybody. Raises PolicyRefused."""
        if self.max_command is not None and len(request.command) > self.max_command:
            raise refused(f"it is {len(request.command)} bytes long, over {self.max_command}: put it into a file")
        limited = replace(request, timeout=self._limit(request.timeout))
        text = request.command.decode("utf-8", "surrogateescape")
        if not text:
            return Verdict(limited)  # it runs nothing
        run = commands(request.command) if self._reads else Run(())
        self._deny(text, run)
        objection = self._objection(run)
        if objection and self.confirm is None:
            raise refused(objection)
        asks = self.confirm is not None and (self.allow is None or bool(objection))
        return Verdict(limited, text if asks else "")

    def _deny(self, text: str, run: Run) -> None:
        lines = [text, *shown(run)]
        for pattern in self.deny:
            if isinstance(pattern, str):
                if pattern in text:
                    raise refused(f"it contains {pattern!r}")
            elif any(map(pattern.search, lines)):
                raise refused(f"it matches {pattern.pattern!r}")
        if run.unread and (self.strict or self.deny_commands):
            raise refused(f"it is too much to be looked at ({run.unread}): put it into a file")
        if self.strict and run.fault:
            raise refused(f"it cannot be read as bash ({run.fault}): write it in a simpler way")
        if self.strict and run.unknown:
            raise refused(f"it does not say {run.unknown[0]}: write that out")
        for rule in self.deny_commands:
            if any(_denies(rule.split(), words, self.strict) for words in run.commands):
                raise refused(f"{rule!r} is denied")

    def _objection(self, run: Run) -> str:
        """Why not all of it is allowed; "" when it is."""
        if self.allow is None:
            return ""
        for words, line in zip(run.commands, shown(run), strict=True):
            if not any(_allows(rule.split(), words) for rule in self.allow):
                return f"{line[:_SHOWN]!r} is not allowed; {', '.join(self.allow) or 'nothing'} is"
        if run.unread or run.renaming:
            return f"{run.renaming} says what names mean" if run.renaming else f"not all was read: {run.unread}"
        if run.fault:
            return f"it cannot be read as bash ({run.fault})"
        return f"it does not say {run.unknown[0]}" if run.unknown else ""

    def _limit(self, timeout: float | None) -> float | None:
        if self.max_timeout is not None:
            timeout = self.max_timeout if timeout is None else min(timeout, self.max_timeout)
        return timeout if timeout is None or self.min_timeout is None else max(timeout, self.min_timeout)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment without what is hidden: what tools over Agents give to an agent's bash."""
        return {name: value for name, value in environ.items() if not self._hides(name, value)}

    def _hides(self, name: str, value: str) -> bool:
        return (
            name.startswith(tuple(self.hide_prefixes))
            or any(_compiled("", pattern).search(name) for pattern in self.hide_names)
            or any(_compiled("", pattern).search(value) for pattern in self.hide_values)
        )

    def known_secrets(self, *environs: Mapping[str, str]) -> Secrets:
        """What is masked, by these environments."""
        if not self.mask_secrets:
            return Secrets({}, named=self.secrets)
        hidden = [value for environ in environs for name, value in environ.items() if self._hides(name, value)]
        return Secrets({}, [*hidden, *chain.from_iterable(map(secret_values, environs))], self.secrets)


def ask(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """A function's answer, here and now. Raises InvalidRequest for a coroutine function: a coroutine is no answer, and
    would count as a yes."""
    if not inspect.iscoroutinefunction(function):
        answer = function(*arguments)
        if not inspect.isawaitable(answer):
            return answer
        if inspect.iscoroutine(answer):
            answer.close()  # nobody will await it
    raise InvalidRequest(_COROUTINE)


def yes(answer: object) -> bool:
    """An answer. Raises InvalidRequest for what is neither True nor False: "no" would count as a yes."""
    if answer and answer is not True:
        raise InvalidRequest(f"who was asked for a yes or no said {answer!r:.60}: return True or False")
    return bool(answer)


def refused(reason: str) -> PolicyRefused:
    """The error for this reason."""
    return PolicyRefused(f"refused by policy: {reason}")


def _compiled(name: str, pattern: Pattern) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidRequest(f"{name}: {pattern!r} is no regular expression: {error}") from None


def _check_texts(name: str, values: object, kinds: tuple[type, ...]) -> None:
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InvalidRequest(f"{name} is a list, not {type(values).__name__}")
    for value in values:
        if not isinstance(value, kinds) or value == "":  # not shown: it may be a secret of the wrong type
            found = "one that is empty" if value == "" else type(value).__name__
            raise InvalidRequest(f"{name} are texts{' or patterns' if re.Pattern in kinds else ''}, not {found}")
        if isinstance(value, re.Pattern) and not isinstance(value.pattern, str):
            raise InvalidRequest(f"{name}: {value!r} is a pattern of bytes, not of text")


def _is_named(pattern: str, word: Word) -> bool:
    if word is None:
        return False
    return fnmatch.fnmatchcase(word if "/" in pattern else word.rpartition("/")[2], pattern)


def _denies(rule: list[str], words: tuple[Word, ...], strict: bool) -> bool:
    """Is this the command? When strict, a word that is not known may be any."""
    if not _is_named(rule[0], words[0]):
        return False
    if len(rule) == 1 or not rule[1][0].isalpha():
        return _follow(rule[1:], words[1:], strict)
    return any(
        _may_be(words[at : at + 1], rule[1], strict) and _follow(rule[2:], words[at + 1 :], strict)
        for at in subcommands(words, known=not strict)
    )


def _follow(wanted: list[str], words: tuple[Word, ...], strict: bool) -> bool:
    """Do these stand among the words, in this order?"""
    others = iter(words)
    return all(any(_may_be((word,), one, strict) for word in others) for one in wanted)


def _may_be(word: tuple[Word, ...], pattern: str, strict: bool) -> bool:
    return any(strict if one is None else fnmatch.fnmatchcase(one, pattern) for one in word)


def _allows(rule: list[str], words: tuple[Word, ...]) -> bool:
    """Does the command begin with these words?"""
    if len(words) < len(rule) or not _is_named(rule[0], words[0]):
        return False
    return all(
        word is not None and fnmatch.fnmatchcase(word, one) for one, word in zip(rule[1:], words[1:], strict=False)
    )
