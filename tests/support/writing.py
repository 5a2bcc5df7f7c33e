"""Bash texts that hypothesis makes from a small grammar: each line is complete, ends, and prints the same each time."""

from __future__ import annotations

from bashes import VERSION
from hypothesis import settings, strategies as st
from system import SOAK

Text = st.SearchStrategy[str]

# Each text costs three bashes.
_examples = settings().max_examples
some_texts = settings(max_examples=_examples * 4 if SOAK else _examples * 2 // 5)

# The reference needs the whole text in bash's input buffer of 1024 bytes (128 before 5.1).
_LONGEST = 960
_LONGEST_CALLS = _LONGEST if VERSION >= (5, 1) else 104

_BARE = st.sampled_from(["a", "b1", "x.y", "12", "-n", "--", "é", "a=b", "*", "?1", "~", "50"])
_INSIDE = st.sampled_from(["", " ", "a  b", "世界", "*", "\t", "#", "!x", "(", "]", "a;b", "|", "\\\\", "50"])
_PATTERNS = st.sampled_from(["a", "*", "?", "[ab]*", "1", "*b", "é"])
_VARIABLES = st.sampled_from(["v", "w"])


def _glue(*parts: str | Text) -> Text:
    """The concatenation of strings and of strategies for strings."""
    return st.tuples(*(st.just(part) if isinstance(part, str) else part for part in parts)).map("".join)


def _some(of: Text, separator: str = " ", least: int = 0, most: int = 3) -> Text:
    return st.lists(of, min_size=least, max_size=most).map(separator.join)


def _sums() -> Text:
    atom = st.sampled_from(["0", "1", "7", "v", "w", "i", "0x1f", "${#v}"])
    operator = st.sampled_from(["+", "-", "*", "/", "%", "<", "==", "&&", "||", "&", "^", "<<", ","])
    return st.one_of(atom, _glue(atom, " ", operator, " ", atom), _glue("(", atom, operator, atom, ") * ", atom))


def _words(commands: Text) -> Text:
    operators = st.sampled_from([":-d", "-", ":+x y", "%b*", "#*a", "//a/_", ":1", ":0:2", "^^", "@Q"])
    expansion = st.one_of(
        _glue("$", _VARIABLES),
        _glue("${", _VARIABLES, operators, "}"),
        _glue("${#", _VARIABLES, "}"),
        _glue("$((", _sums(), "))"),
        _glue("$(", commands, ")"),
        st.sampled_from(["$?", "$#", "$*", "${a[*]}", "${#a[@]}", "${a[1]-}", "${nope:?gone}", "${!v-}"]),
    )
    return st.one_of(
        _BARE,
        _glue("'", _INSIDE, "'"),
        _glue('"', _INSIDE, expansion, _INSIDE, '"'),
        expansion,
        _glue("$'", st.sampled_from(["\\x41", "\\n", "\\377", "\\e[0m"]), "'"),
        st.sampled_from(["{1..3}", "{a,b}c", '"$@"', '"${a[@]}"', "pre{,fix}"]),
    )


def _simple(words: Text, functions: bool, traced: bool) -> Text:
    plain = [
        _glue("echo ", _some(words)),
        _glue("echo ", _some(words), " >&2"),
        _glue("printf '<%s>' ", _some(words)),
        _glue(_VARIABLES, "=", words),
        _glue("a=(", _some(words), ")"),
        _glue("a+=(", _some(words, least=1), ")"),
        _glue("set -- ", _some(words)),
        _glue("(exit ", st.sampled_from(["0", "1", "3", "255"]), ")"),
        _glue("((", _sums(), "))"),
        _glue("[[ x", words, " == ", _PATTERNS, " ]]"),
        _glue("[ ", words, " = ", words, " ]"),
        _glue("read ", _VARIABLES, " <<<", words),
        _glue("eval ", _some(words, least=1, most=2)),
        st.sampled_from(["true", "false", ":", "nosuch", "shift", "cd /nope", "unset v"]),
        st.sampled_from(["read v", "cat", "wc -c", "cat f1"]),
        st.sampled_from(["set -f", "set -o pipefail", "shopt -s nullglob", "IFS=,", "unset IFS"]),
        st.sampled_from(["trap 'echo E$?' ERR", "trap - ERR", "set -E"]),
        st.sampled_from(["trap 'echo D' DEBUG", "trap - DEBUG", "set -T"]),
        st.sampled_from(["break", "return 4", "exit 5"]),
    ]
    if traced:
        plain.append(st.sampled_from(["set -x", "set +x", "set -v", "set +v"]))
    if functions:
        plain.append(_glue("f ", _some(words)))
    return st.one_of(*plain)


def _compound(commands: Text, words: Text, functions: bool, traced: bool) -> Text:
    several = _some(commands, "; ", least=1, most=2)
    redirected = st.sampled_from([">f1; cat f1", "2>&1", ">/dev/null", "2>/dev/null", "<<<here", ">&2"])
    kinds = [
        _glue("if ", commands, "; then ", several, "; else ", commands, "; fi"),
        _glue("for ", _VARIABLES, " in ", _some(words), "; do ", several, "; done"),
        _glue("case ", words, " in ", _PATTERNS, ") ", several, ";; *) ", commands, ";; esac"),
        _glue("i=0; while ((i++ < 2)); do ", several, "; done"),
        _glue("{ ", several, "; }"),
        _glue("( ", several, " )"),
        _glue(commands, st.sampled_from([" && ", " || "]), commands),
        _glue("! ", commands),
        _glue("{ ", commands, "; } ", redirected),
    ]
    if not traced:  # with a trace two processes would print at once, in any order
        filters = [" | cat", " | tr a-z A-Z", " | wc -c", ' | { read v; cat; echo "$v"; }', " |& cat"]
        kinds += [_glue(commands, st.sampled_from(filters)), _glue("cat <( ", commands, " )")]
    if functions:
        kinds.append(_glue("f() { ", several, "; }"))
    return st.one_of(*kinds)


def _commands(depth: int, traced: bool, functions: bool = False) -> Text:
    if depth == 0:
        return st.sampled_from(["true", "false", "echo x", "echo e >&2", "echo $v", "(exit 9)", "v=1"])
    inner = _commands(depth - 1, traced)
    words = _words(inner)
    simple = _simple(words, functions, traced)
    return st.one_of(simple, simple, _compound(inner, words, functions, traced))


def _lines(traced: bool) -> st.SearchStrategy[bytes]:
    kinds = [_commands(3, traced, functions=True)]
    if not traced:  # the notice of a command repeats its lines, so keep the command short
        kinds.append(_glue(_commands(0, traced), " & wait"))
    lines = _some(st.one_of(kinds), "\n", least=1, most=6)
    return lines.map(str.encode).filter(lambda text: len(text) <= _LONGEST)


def texts() -> st.SearchStrategy[bytes]:
    """One to six lines."""
    return st.one_of(_lines(traced=False), _lines(traced=True))


# Each line is a call of its own: states of a session, and commands that leave a status or make bash abandon a line.
_STATES = r"""
set -u
set -x
set +x
set -v
set +v
set -f
set -E
set -C
set -a
set -o pipefail
shopt -s failglob
shopt -s nullglob
shopt -s inherit_errexit
unset LINENO
trap 'echo E$? >&2' ERR
trap - ERR
trap 'echo R' RETURN
trap 'echo T$?' EXIT
trap 'echo U' USR1
trap 'echo D >&2' DEBUG
trap - DEBUG
trap '' INT
IFS=x
IFS=
unset IFS
LC_ALL=C
PS4=
umask 777
umask 022
unset PATH
exec 3>/dev/null
exec 3>&-
x=1; readonly y=2
declare -i n=3
eval() { echo EV; }
printf() { echo PF; }
unset -f eval printf
f() { return 3; }
g() { f; echo g$?; }
alias e=echo r='return 3'
alias echo='echo A'
unalias -a
set -- a b
PIPESTATUS=5
"""
_ENDS = r"""
shift 1 2
exit 1 2
return 1 2
break x
for i in 1; do break 1 2; done
builtin shift 1 2
{ shift 1 2; } 2>/dev/null; echo x
eval 'shift 1 2'; echo no
command exit 1 2
echo ${q:?msg}
readonly r=1; r=2
y=3
n=1/0
echo $((1/0))
let 1/0
a[1/0]=1
echo ${x!}
(echo ${q?no}); echo $?
exec 9<nofile
. ./nofile
: <nofile
local z
printf -v 'a b' x
echo *zz
unset -v y
cd nodir
exec ./nofile
nosuch
./nofile
{ kill -USR1 $$; } 2>/dev/null
return 4
break
exit
exit 6
hash -r
f
g
(exit 1)
(exit 2)
(exit 130)
(exit 200)
true
false
!
! false
{ true | (exit 2); } 2>/dev/null
cat
echo hi
echo $?
echo "$x:${y-}:$*"
echo a >&3
read v; echo $?
{ echo b; } 2>&1
e a
wait
type f
f() { trap 'echo r' RETURN; }; f
source /dev/stdin <<<'echo s; return 5'
((0))
# only
"""
_EXIT_TRAP = b"trap 'echo T$?' EXIT"
# With these the output of the EXIT trap is lost. Before bash 5.2 its `$?` also differs if a signal ends the shell.
_WITHOUT_EXIT_TRAP = {b"set -x", b"set -v", b"trap 'echo D >&2' DEBUG"}
if VERSION < (5, 2):
    _WITHOUT_EXIT_TRAP.add(b"{ kill -USR1 $$; } 2>/dev/null")


def calls() -> st.SearchStrategy[tuple[bytes, ...]]:
    """Two to eight calls that end in unusual ways, or run in an unusual session."""
    one = st.sampled_from(_STATES.encode().splitlines()[1:]) | st.sampled_from(_ENDS.encode().splitlines()[1:])
    several = st.lists(one, min_size=2, max_size=8).map(tuple)
    return several.filter(
        lambda lines: (
            len(b"\n".join(lines)) <= _LONGEST_CALLS
            and (_EXIT_TRAP not in lines or _WITHOUT_EXIT_TRAP.isdisjoint(lines))
        )
    )
