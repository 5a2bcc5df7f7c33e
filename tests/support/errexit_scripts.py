"""Short scripts that say where ``set -e`` ends them."""

from __future__ import annotations

import re
from typing import Final

# One on each line, but for a heredoc.
_ALL: Final = r"""
false; echo never
true; echo yes; false; echo never
f() { false; echo in f; }; f; echo never
f() { false; echo in f; }; f || echo caught; echo on
if false; then echo a; else echo b; fi; false; echo never
false || true; echo on; ! true; echo on2
! false; echo on
false && echo x; echo on
x=$(false); echo never
x=$(false; echo y); echo "$x"
local_f() { local x=$(false); echo on; }; local_f; echo end
f() { local x; x=$(false); echo never; }; f; echo never
for i in 1 2 3; do echo $i; test $i -lt 2; done; echo never
while false; do :; done; echo on
i=0; while test $i -lt 3; do i=$((i+1)); [ $i = 2 ] && break; done; echo $i
(false; echo never); echo never
(exit 3); echo never
(false) || echo caught
eval false | cat; echo on
eval nosuch_x | cat
eval 'false; echo never' | cat; echo on
echo a | eval 'cat; false; echo never'; echo never
f() { false; echo never; }; f | cat; echo on
. /dev/stdin <<<false | cat; echo on
{ false; echo never; } | cat; echo on
eval false & wait $!; echo never
cat <(eval false; echo never); echo on
x=$(eval false; echo y); echo $x
echo a | false | cat; echo on
set -o pipefail; false | cat; echo never
set +e; false; echo on; set -e; false; echo never
f() { set +e; false; echo on; }; f; false; echo still
f() { return 4; }; f; echo never
f() { g; echo never; }; g() { h; echo never; }; h() { (exit 5); echo never; }; f; echo never
eval 'false; echo never'; echo never
eval 'exit_status() { return 7; }'; exit_status; echo never
source /dev/stdin <<<'false; echo never'; echo never
((0)); echo never
((1)); echo on
[[ a = b ]]; echo never
let x=0; echo never
case x in x) false; echo never;; esac; echo never
{ false; echo never; }; echo never
{ false; echo in; } || echo caught; echo on
f() { false; }; if f; then echo a; else echo b; fi; f; echo never
f() { echo start; false; echo on; }; f && echo ok; echo end
test -f /nope; echo never
test -f /nope || echo missing; ls /nope 2>/dev/null; echo never
cd /nope 2>/dev/null; echo never
cd /tmp; pwd; cd /nope 2>/dev/null || pwd; false; pwd
x=5; (( x == 4 )) && echo four; echo on
arr=(1 2); echo ${arr[5]-none}; unset arr; false; echo never
until true; do :; done; select_x() { :; }; select_x; echo on
echo $(false) on; echo on
echo $(false; echo y); echo on
declare y=$(false); echo on
export z=$(false); echo on
readonly r=$(false); echo on
v=$(false) true; echo on
true | f_undefined 2>/dev/null; echo never
f_undefined 2>/dev/null; echo never
command false; echo never
builtin false; echo never
time false 2>/dev/null; echo never
coproc false; wait $! ; echo never
false & wait $!; echo never
false & echo on; wait; echo on2
cat <<E | grep -q zzz
abc
E
read x </dev/null; echo never
printf '%s\n' a b | while read l; do echo $l; false; echo never; done; echo never
if ! f; then echo nof; fi 2>/dev/null; false
set -e; set -e; false; echo never
shopt -s nullglob; for f in /nope/*; do echo $f; done; false; echo never
f() { ( false; echo never ); echo never; }; f; echo never
f() { if true; then false; fi; echo never; }; f; echo never
a() { b || return 3; echo on; }; b() { false; echo in b; }; a; echo after
a() { b; }; b() { return 1; }; a || echo caught; a; echo never
x=$(f() { false; echo never; }; f); echo never
[ -n "" ]; echo never
[ -n "" ] || [ -z "x" ] || echo neither; [ -n "" ] && echo x; echo end
false | true; echo on
true && false; echo never
true && false || echo rescued; echo on
exec 7>/dev/null; echo hi >&7; false; echo never
mkdir /proc/x 2>/dev/null; echo never
echo one; { echo two; (exit 9); }; echo never
f() { for i in 1 2; do false; done; echo never; }; f
while read l; do [ "$l" = b ] && false; echo $l; done <<<$'a\nb\nc'; echo end
while read l; do if [ "$l" = b ]; then false; fi; echo $l; done <<<$'a\nb\nc'; echo never
kill -0 999999 2>/dev/null; echo never
f() { eval "false"; echo never; }; f; echo never
f() { . /dev/stdin <<<'return 3'; echo never; }; f; echo never
return_it() { return $1; }; return_it 0; echo on; return_it 6; echo never
g() { echo g; false; }; x=$(g); echo never
x=`false`; echo never
x=1; x=$((x/0)) 2>/dev/null; echo never
let "1/0" 2>/dev/null; echo never
wait 99999 2>/dev/null; echo never
printf %d abc 2>/dev/null; echo never
type nope_cmd >/dev/null 2>&1; echo never
hash nope_cmd 2>/dev/null; echo never
shift 3; echo never
getopts a: o -b 2>/dev/null; echo never
unset -v BASH_VERSION_NOPE; echo on; unset 2>/dev/null; echo on
f() { local a=1; false; echo never; }; f; echo $a
"""
SCRIPTS: Final = tuple(re.findall(r"(?:[^\n]*<<E[^\n]*\n(?s:.*?)\nE$|[^\n]+)", _ALL.strip(), re.MULTILINE))

# Each of these fails, or looks as if it did; and where it may be.
_COMMANDS: Final = (
    *("false", "(exit 3)", "[[ a = b ]]", "((0))", "ls /nope 2>/dev/null", "r", "eval false", "x=$(false)", "! true"),
    *("false | false", "true | false", "false | true", "test -f /nope", ". /dev/stdin <<<false", "{ false; }", "true"),
    *("command false", "let x=0", "nosuch_x 2>/dev/null", "[ -n x ] && false", "false || false"),
    *("time false 2>/dev/null", "declare y=$(false)", "(false; echo in sub)"),
)
_PLACES: Final = r"""
%; echo after
f() { %; echo in; }; f; echo after
if %; then echo t; else echo e; fi; echo after
% || echo c; echo after
% && echo c; echo after
( %; echo in ); echo after
x=$(%; echo in); echo "$x"
for i in 1 2; do %; echo $i; done; echo after
while %; do echo l; break; done; echo after
until %; do break; done; echo after
case x in x) %; echo in;; esac; echo after
{ %; echo in; } | cat; echo after
eval '%; echo in'; echo after
f() { %; echo in; }; f || echo c; echo after
g() { f; echo g; }; f() { %; }; g; echo after
{ %; echo in; } & wait $!; echo after
! { %; echo in; }; echo after
set +e; %; echo on; set -e; %; echo on2
set -o pipefail; { %; } | cat; echo after
echo a | while read l; do %; echo $l; done; echo after
f() { local z; z=$(%; echo in); echo "$z"; }; f; echo after
shopt -s inherit_errexit; x=$(%; echo in); echo "$x"
f() { ( %; echo sub ); echo in; }; f; echo after
coproc { %; echo in; } 2>/dev/null; wait $! ; echo after
"""
MADE: Final = tuple(
    "r() { return 4; }; " + place.replace("%", command)
    for place in _PLACES.strip().splitlines()
    for command in _COMMANDS
)
