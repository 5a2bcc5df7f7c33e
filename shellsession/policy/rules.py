"""``Policy``: which commands may run and for how long, what environment they get, and which secrets are masked.

A policy decides before a command runs; it never stops a running one. Nothing here touches the system.
"""

from __future__ import annotations

import fnmatch
import inspect
import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, Final, Literal

from ..errors import InvalidRequest, PolicyRefused
from ..models import Request, check_flag, check_seconds, command_bytes, to_bytes
from ..patterns import Pattern, as_data, compiled, from_data
from ..redact import Redact
from ..search import TOO_SLOW, SearchTooSlow, limited, search
from .approval import Rule, place_of
from .commands import Analysis, analyze, lookup_variable, one_line
from .grammar import UNKNOWN
from .programs import base_name, subcommands
from .proposals import covered, plain
from .secrets import Secrets, secret_values

UNCONFIRMED: Final = "it was not confirmed"
# The value of ``confirm`` with which a question waits in the daemon.
QUEUE: Final = "queue"
_NOBODY: Final = (
    'confirm="queue" has a question wait in the daemon, and this session has none: use connect(), via=, or the command'
    " line, or pass a function"
)
# Characters that no program's name contains, and words that separate two commands.
_SYNTAX: Final = re.compile(r"""[|&;<>()$`"'\\]""")
_OPERATORS: Final = frozenset(("|", "|&", "||", "&&"))
_COROUTINE: Final = (
    "confirm is a coroutine function, which only an async tool can call: bind the tool to AsyncSession or AsyncAgents"
)
_REWRITE: Final = "split it, or write it more simply"
_OPTION: Final = re.compile("-[A-Za-z]+")
_QUOTES: Final = re.compile(r"[\\'\"]")
_SEPARATORS: Final = re.compile(r"[\s;&|<>(){}`$=]+")
_QUOTED_LENGTH: Final = 80  # characters of a command that a reason quotes
_WILD: Final = re.compile(r"(\*\*|\*|\?)")
_WILDS: Final = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
# What every redirection may write to: the terminal, and what is open already.
_ALWAYS: Final = re.compile(r"/dev/(?:null|tty|stdout|stderr|fd/[0-9]+)")

_LISTS: Final = ("deny", "deny_commands", "allow", "write", "hide_prefixes", "hide_names", "hide_values", "secrets")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The request as it may run. If ``question`` is not empty, ``confirm`` must return True for it first.

    ``remembered``: the rules by which no question is asked.
    """

    request: Request
    question: str = ""
    remembered: Sequence[Rule] = ()


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Rules for the commands of tools. A policy catches mistakes and can ask people; it is not a security boundary.

    **Rules about commands.** ``deny_commands`` and ``allow`` name commands, such as ``"sudo"`` or ``"git push"``.
    Each word may be a pattern (``*``, ``?``, ``[...]``). A name without a slash matches the program in any directory.
    The rules cover everything that a text runs: in ``a && b``, ``$(b)``, loops and functions, and in here-documents
    that a shell reads. They cover the commands of programs that start others (``env X=1 b``, ``bash -c 'b'``,
    ``ssh host b``; ``policy.programs`` lists them). They ignore text in comments and in quotes that does not run. They
    do not see into files, interpreters (``python -c``, ``awk``, ``make``), or words that are put together at run time.

    * ``deny_commands``: commands that must not run. A second word that begins with a letter is the subcommand, the
      first word that is not an option: "git push" matches ``git -C x push`` but not ``git stash push``. Other words
      (``--force``, ``/etc``, ``*``) may come anywhere after it, in the order of the rule. The letters of an option may
      be apart or in another order: "rm -rf" matches ``rm -f -r``. A mapping gives each rule a reason for the model,
      such as ``{"curl": "use the mirror"}``; "" is none.
    * ``allow``: the only commands that may run; a command must begin with the words of a rule. Any other command is
      refused, or put to ``confirm`` if there is one. The same goes for a text, or an ``env=``, that sets PATH, ENV or
      LD_*, as these change which program a name means.
    * ``write``: the only files that redirections may write (``>``, ``>>``, ``>|``, ``&>``, ``>&``, ``<>``), as
      patterns of absolute paths. ``*`` and ``?`` match within a directory, ``**`` across directories. Another target is
      refused, or put to ``confirm``, as a command is that ``allow`` does not cover. So is one that is known only at run
      time (``$X``, ``~``), and a relative one after a ``cd``. /dev/null, /dev/tty and descriptors are always allowed.
      What commands write by themselves (``tee``, ``cp``) is not judged. With ``allow`` the default is that
      redirections may write no other file.
    * ``strict``: refuse a text that cannot be parsed as bash, and one that runs something it does not spell out
      (``$CMD x``, ``curl x | bash``). Without ``strict``, ``deny_commands`` ignores such parts. ``allow`` never allows
      them.
    * ``deny``: texts that a command must not contain, also in quotes; and regular expressions (``re.compile(...)``).
      The expressions are searched for in the text and, with any of the rules above, in each command of it.

    ``allow``, ``write`` and ``strict`` refuse a text that cannot be parsed as bash. ``deny_commands`` refuses it if the
    words of a rule occur anywhere in it. All four refuse a text of over 65536 bytes without its here-documents, or 2^20
    in all. The daemon, AsyncSession and tools refuse one that takes the parser over 0.2 seconds of processor time. The
    daemon also refuses one if its other rules take longer than that, such as an expression that backtracks.

    **Questions.** ``confirm`` is a function of (command, agent, cwd), or for async tools a coroutine function. It is
    called for every command; with ``allow`` or ``write``, only for those that they do not cover. The command is refused
    unless ``confirm`` returns True within ``confirm_timeout`` seconds (None: no limit). With ``confirm="queue"`` the
    question waits in the daemon until a person answers it (``shellsession approvals``).

    **Limits.** ``max_command``: the most bytes a command may have. ``min_timeout``, ``max_timeout``: bounds for every
    time limit, in seconds.

    **Environment.** ``hide_prefixes``, ``hide_names``, ``hide_values``: variables that an agent's bash does not get, by
    the beginning of a name, by patterns in names, and by patterns in values.

    **Secrets.** ``mask_secrets``: results and logs of tools show ``***`` for hidden values, and for secrets of the
    host's environment: values of variables such as TOKEN, and passwords in URLs. Values shorter than six characters are
    not masked. ``secrets``: values that are always masked, however short. Files are not masked, nor is the output file
    of a phoenix command in the background.

    Raises InvalidRequest, and MissingExtra if a parser of bash is needed and not installed (the extra ``policy``).
    """

    deny: Sequence[Pattern] = ()
    deny_commands: Sequence[str] | Mapping[str, str] = ()
    allow: Sequence[str] | None = None
    write: Sequence[str] | None = None
    confirm: Callable[[str, str, str], Any] | Literal["queue"] | None = None
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
        for name in ("hide_prefixes", "secrets"):
            _check_texts(name, getattr(self, name), (str,))
        _check_texts("deny_commands", tuple(self.deny_commands) if self._has_reasons else self.deny_commands, (str,))
        for name in ("allow", "write"):
            if getattr(self, name) is not None:
                _check_texts(name, getattr(self, name), (str,))
        for path in self.write or ():
            if not path.startswith("/"):
                raise InvalidRequest(f"write: {path!r} is not an absolute path, nor a pattern of one like '/tmp/**'")
        for rule in (*self.deny_commands, *(self.allow or ())):
            if not (words := rule.split()):
                raise InvalidRequest(f"{rule!r} names no command: write one, like 'git push'")
            if _SYNTAX.search(words[0]) or not _OPERATORS.isdisjoint(words):
                raise InvalidRequest(
                    f"{rule!r} matches no command: a rule is one program and words of its arguments, like 'git push';"
                    " use deny= to match text"
                )
        for secret in self.secrets:
            to_bytes("secrets", secret)
        for name in ("strict", "mask_secrets"):
            check_flag(name, getattr(self, name))
        if self.confirm not in (None, QUEUE) and not callable(self.confirm):
            raise InvalidRequest(
                f'confirm must be a function of (command, agent, cwd), or "queue", not {self.confirm!r}'
            )
        for name in ("confirm_timeout", "min_timeout", "max_timeout"):
            check_seconds(name, getattr(self, name))
        if self.min_timeout is not None and self.max_timeout is not None and self.min_timeout > self.max_timeout:
            raise InvalidRequest(f"min_timeout {self.min_timeout} is over max_timeout {self.max_timeout}")
        size = self.max_command
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise InvalidRequest(f"max_command must be a number of bytes, 1 or more, or None, not {size!r}")
        for name in ("hide_names", "hide_values"):
            object.__setattr__(self, name, [compiled(name, one) for one in getattr(self, name)])
        for name in _LISTS:  # in one form: two policies with the same rules are equal
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, dict(value) if isinstance(value, Mapping) else tuple(value))
        if self._reads:
            analyze("")  # raises if the parser is missing

    @property
    def _reads(self) -> bool:
        return bool(self.deny_commands) or not (self.allow is self.write is None) or self.strict

    @property
    def _has_reasons(self) -> bool:
        """Whether ``deny_commands`` is a mapping. Raises InvalidRequest for a reason that is no text."""
        if not isinstance(self.deny_commands, Mapping):
            return False
        for rule, reason in self.deny_commands.items():
            if not isinstance(reason, str):
                kind = type(reason).__name__
                raise InvalidRequest(f"deny_commands: the reason of {rule!r} must be a text, not {kind}")
        return True

    @property
    def _writable(self) -> Sequence[str] | None:
        """The files that redirections may write; None if that is not judged."""
        return () if self.write is None and self.allow is not None else self.write

    def to_dict(self) -> dict[str, Any]:
        """Return the rules that are set, as values for JSON. Raises InvalidRequest if ``confirm`` is a function."""
        if callable(self.confirm):
            raise InvalidRequest("a policy with confirm= cannot be written as data, as a function cannot: leave it out")
        given = {one.name: (getattr(self, one.name), one.default) for one in fields(self)}
        return {
            name: [as_data(one) for one in value] if isinstance(value, tuple) else value
            for name, (value, default) in given.items()
            if value != default
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Policy:
        """Return the policy from which ``to_dict`` made this. Raises InvalidRequest."""
        known = {one.name for one in fields(cls)}
        if unknown := sorted(map(str, given.keys() - known)):
            raise InvalidRequest(f"a policy as data has no {', '.join(unknown)}: it has {', '.join(sorted(known))}")
        rules: dict[str, Any] = {**given}
        for name in _LISTS:
            if isinstance(given.get(name), list):
                rules[name] = [from_data(name, one) for one in given[name]]
        return cls(**rules)

    def check(self, request: Request | str | bytes | Sequence[str], agent: str = "", cwd: str = "") -> Request:
        """Return the request as it may run, with its time limit. For a session that does not hold this policy:

            session.run(policy.check("make").command)

        It calls ``confirm`` and waits for it without a limit. Raises PolicyRefused; InvalidRequest if ``confirm`` is a
        coroutine function, which only async tools can call.
        """
        if not isinstance(request, Request):
            request = Request(command_bytes(request))
        refuse_queue(self)
        verdict = self.judge(request, lambda: cwd)
        arguments = verdict.question, agent, place_of(request.cwd, cwd)
        if verdict.question and not (callable(self.confirm) and yes(ask(self.confirm, arguments))):
            raise refused(UNCONFIRMED)
        return verdict.request

    def judge(
        self,
        request: Request,
        cwd: Callable[[], str] = str,
        clock: Callable[[], float] = float,
        remembered: Collection[Rule] = (),
    ) -> Verdict:
        """Apply the rules, without calling ``confirm``. Raises PolicyRefused.

        ``cwd`` returns the working directory, or "" if it is not known. It is called for relative targets alone.
        ``clock`` returns seconds and bounds the parsing; by default it is not bounded. ``remembered``: what a
        person has accepted for good.
        """
        if self.max_command is not None and len(request.command) > self.max_command:
            raise refused(f"it is {len(request.command)} bytes long, over {self.max_command}: put it into a file")
        request = replace(request, timeout=self.limit(request.timeout))
        text = request.command.decode("utf-8", "surrogateescape")
        if not text:
            return Verdict(request)  # it runs nothing
        analysis = analyze(text, clock) if self._reads else Analysis()
        analysis.lookup_variable = analysis.lookup_variable or lookup_variable(request.env or ())
        try:
            with limited():
                self._deny(text, analysis)
                objection = self._objection(analysis)
                objection = objection or self._write_objection(analysis, lambda: place_of(request.cwd, cwd()))
        except SearchTooSlow:
            raise refused("applying the rules to it takes too long: simplify their patterns, or split it") from None
        if objection and self.confirm is None:
            raise refused(objection)
        asks = self.confirm is not None and (self.allow is self.write is None or bool(objection))
        if asks and (found := self._covered(text, request, remembered)):
            return Verdict(request, "", found)
        return Verdict(request, text if asks else "")

    def _covered(self, text: str, request: Request, remembered: Collection[Rule]) -> tuple[Rule, ...]:
        """The remembered rules that cover the request, where ``allow`` does not; () if they do not."""
        if not remembered or not is_bare(request):
            return ()
        allowed = [
            Rule(words) for words in plain(text) or () if any(_allows(rule.split(), words) for rule in self.allow or ())
        ]
        return tuple(rule for rule in covered(text, [*remembered, *allowed]) if rule in remembered)

    def _deny(self, text: str, analysis: Analysis) -> None:
        lines = [text, *map(one_line, analysis.commands)]
        for pattern in self.deny:
            if isinstance(pattern, str):
                if pattern in text:
                    raise refused(f"it contains {pattern!r}")
            elif any(search(pattern, line) for line in lines):
                raise refused(f"it matches {pattern.pattern!r}")
        if analysis.unread and (self.strict or self.deny_commands):
            raise refused(f"it is too long to be parsed ({analysis.unread}): put it into a file")
        if self.strict and analysis.fault:
            raise refused(f"{_unreadable(analysis)}: {_REWRITE}")
        if self.strict and analysis.unknown:
            raise refused(f"{analysis.unknown[0]} is known only at run time: write it out")
        for rule in self.deny_commands:
            if any(_denies(rule.split(), words, self.strict) for words in analysis.commands):
                raise refused(f"{rule!r} is denied{self._reason(rule)}")
            if analysis.fault and _is_mentioned(rule.split(), text):
                raise refused(
                    f"{_unreadable(analysis)}, and it names {rule!r}, which is denied{self._reason(rule)}: {_REWRITE}"
                )

    def _reason(self, rule: str) -> str:
        reason = self.deny_commands[rule] if isinstance(self.deny_commands, Mapping) else ""
        return f": {reason}" if reason else ""

    def _objection(self, analysis: Analysis) -> str:
        """Why ``allow`` does not cover the whole text, or ""."""
        if self.allow is None:
            return ""
        if analysis.fault:
            return f"{_unreadable(analysis)}: {_REWRITE}"
        for words in analysis.commands:
            if not any(_allows(rule.split(), words) for rule in self.allow):
                allowed = ", ".join(self.allow) or "nothing"
                return f"{one_line(words)[:_QUOTED_LENGTH]!r} is not allowed; allowed: {allowed}"
        if analysis.lookup_variable:
            return f"{analysis.lookup_variable} changes which program a name means"
        if analysis.unread:
            return f"it is too long to be parsed: {analysis.unread}"
        return f"{analysis.unknown[0]} is known only at run time" if analysis.unknown else ""

    def _write_objection(self, analysis: Analysis, cwd: Callable[[], str]) -> str:
        """Why ``write`` does not cover all redirections of the text, or ""."""
        if (patterns := self._writable) is None:
            return ""
        if analysis.fault:
            return f"{_unreadable(analysis)}: {_REWRITE}"
        if analysis.unread:
            return f"it is too long to be parsed: {analysis.unread}"
        for target in analysis.written:
            path = target
            if not target.startswith("/"):
                place = "" if UNKNOWN in target else cwd()
                path = posixpath.join(place, target) if place.startswith("/") else UNKNOWN
            path = posixpath.normpath(path)
            if UNKNOWN in path:
                shown = target.replace(UNKNOWN, "?")[:_QUOTED_LENGTH]
                return f"it is not known which file the redirection to {shown!r} writes: write an absolute path"
            if not (_ALWAYS.fullmatch(path) or any(_matches(path, pattern) for pattern in patterns)):
                shown, allowed = target[:_QUOTED_LENGTH], ", ".join(patterns) or "none"
                return f"a redirection to {shown!r} is not allowed; files that can be written: {allowed}"
        return ""

    def limit(self, timeout: float | None) -> float | None:
        """Return a time limit as the policy bounds it, in seconds."""
        if self.max_timeout is not None:
            timeout = self.max_timeout if timeout is None else min(timeout, self.max_timeout)
        return timeout if timeout is None or self.min_timeout is None else max(timeout, self.min_timeout)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment without hidden variables. A tool bound to Agents starts an agent's bash with it."""
        hidden = self._hidden(environ)
        return {name: value for name, value in environ.items() if name not in hidden}

    def _hidden(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that are hidden. Raises InvalidRequest if the search for them takes too long."""
        beginnings = tuple(self.hide_prefixes)
        try:
            with limited():
                return {
                    name: value
                    for name, value in environ.items()
                    if name.startswith(beginnings)
                    or any(search(compiled("hide_names", one), name) for one in self.hide_names)
                    or any(search(compiled("hide_values", one), value) for one in self.hide_values)
                }
        except SearchTooSlow:
            raise InvalidRequest(f"hide_names, hide_values: the search {TOO_SLOW}") from None

    def known_secrets(self, *environs: Mapping[str, str], redact: Redact = False) -> Secrets:
        """The secrets to mask in results and logs, for these environments. ``redact``: see ``Session``."""
        if not self.mask_secrets:
            return Secrets({}, named=self.secrets, redact=redact)
        hidden = [value for environ in environs for value in self._hidden(environ).values()]
        return Secrets({}, [*hidden, *chain.from_iterable(map(secret_values, environs))], self.secrets, redact)


def secrets_of(policy: Policy | None, redact: Redact, *environs: Mapping[str, str], logged: bool = False) -> Secrets:
    """The secrets that tools mask by the options of a session.

    ``logged``: those that logs mask. They include the secrets of the environments, whatever the options are.
    """
    policy = policy or Policy()
    return (replace(policy, mask_secrets=True) if logged else policy).known_secrets(*environs, redact=redact)


def is_bare(request: Request) -> bool:
    """Does the command get neither variables nor input of its own? Rules are about words alone."""
    return not request.env and request.stdin is None


def ask(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call ``confirm`` and return its answer.

    Raises InvalidRequest for a coroutine function, as a coroutine object would count as a yes.
    """
    if not inspect.iscoroutinefunction(function):
        answer = function(*arguments)
        if not inspect.isawaitable(answer):
            return answer
        if inspect.iscoroutine(answer):
            answer.close()  # otherwise Python warns that it was never awaited
    raise InvalidRequest(_COROUTINE)


def yes(answer: object) -> bool:
    """The answer as a bool. Raises InvalidRequest for a true value other than True, such as the text "no"."""
    if answer and answer is not True:
        raise InvalidRequest(f"confirm returned {answer!r:.60}: return True or False")
    return bool(answer)


def refused(reason: str) -> PolicyRefused:
    """A PolicyRefused with this reason."""
    return PolicyRefused(f"refused by policy: {reason}")


def refuse_queue(policy: Policy | None) -> None:
    """Raise InvalidRequest for a policy whose questions wait in the daemon, where there is none."""
    if policy is not None and policy.confirm == QUEUE:
        raise InvalidRequest(_NOBODY)


def _check_texts(name: str, values: object, kinds: tuple[type, ...]) -> None:
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InvalidRequest(f"{name} must be a list of texts, not {type(values).__name__}")
    for value in values:
        if not isinstance(value, kinds) or value == "":  # the value may be a secret: do not print it
            found = "an empty one" if value == "" else type(value).__name__
            raise InvalidRequest(f"{name} takes texts{' or patterns' if re.Pattern in kinds else ''}, not {found}")
        if isinstance(value, re.Pattern) and not isinstance(value.pattern, str):
            raise InvalidRequest(f"{name}: {value!r} is a pattern for bytes: pass one for text")


def _is_named(pattern: str, word: str) -> bool:
    """Does this word name the program? A pattern without a slash matches in any directory."""
    name = word if "/" in pattern else base_name(word)
    return UNKNOWN not in name and fnmatch.fnmatchcase(name, pattern)


def _denies(rule: list[str], words: Sequence[str], strict: bool) -> bool:
    """Does the rule deny this command? If ``strict``, a word known only at run time matches any pattern."""
    if not _is_named(rule[0], words[0]):
        return False
    if len(rule) == 1 or not rule[1][0].isalpha():
        return _follow(rule[1:], words[1:], strict)
    return any(
        _may_be(words[at], rule[1], strict) and _follow(rule[2:], words[at + 1 :], strict)
        for at in subcommands(base_name(words[0]), words)
    )


def _follow(wanted: Sequence[str], words: Sequence[str], strict: bool) -> bool:
    """Do words that match these patterns follow in this order, perhaps with others between them?"""
    others = iter(words)
    return all(_comes(one, others, strict) for one in wanted)


def _comes(pattern: str, words: Iterator[str], strict: bool) -> bool:
    """Does one of the words match the pattern, or do several have together the letters of this option?"""
    letters = set(pattern[1:] if _OPTION.fullmatch(pattern) else "")
    missing = set(letters)
    for word in words:
        if _may_be(word, pattern, strict):
            return True
        if _OPTION.fullmatch(word) and letters.issuperset(word[1:]):
            missing.difference_update(word[1:])
            if not missing:
                return True
    return False


def _may_be(word: str, pattern: str, strict: bool) -> bool:
    return strict if UNKNOWN in word else fnmatch.fnmatchcase(word, pattern)


def _allows(rule: list[str], words: Sequence[str]) -> bool:
    """Does the command begin with the words of the rule?"""
    if len(words) < len(rule) or UNKNOWN in words[0] or not _is_named(rule[0], words[0]):
        return False
    return all(_may_be(word, one, False) for one, word in zip(rule[1:], words[1:], strict=False))


def _matches(path: str, pattern: str) -> bool:
    """Does the path match the pattern of files that can be written?"""
    parts = _WILD.split(pattern)
    return re.fullmatch("".join(_WILDS.get(part) or re.escape(part) for part in parts), path, re.DOTALL) is not None


def _is_mentioned(rule: list[str], text: str) -> bool:
    """Do the words of the rule occur in the text in this order, whatever their role there?"""
    words = iter(_SEPARATORS.split(_QUOTES.sub("", text)))
    return any(_is_named(rule[0], word) for word in words if word) and _follow(rule[1:], [*words], strict=False)


def _unreadable(analysis: Analysis) -> str:
    return f"it cannot be parsed as bash ({analysis.fault})"
