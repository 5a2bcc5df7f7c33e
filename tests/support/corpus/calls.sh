### variables and functions
x=1; f() { echo "f $x"; }
#--- next call
f; x=2
#--- next call
f
### exit status of the previous call
false
#--- next call
echo $?
#--- next call
(exit 42)
#--- next call
echo $?; echo $?
### status after an empty call
(exit 3)
#--- next call
# a comment
#--- next call
echo $?
### directory
mkdir -p d/e; cd d
#--- next call
cd e; cd - >/dev/null; pwd | sed 's|.*/||'
#--- next call
cd ..; ls -d d
### aliases
alias greet='echo hi'
#--- next call
greet you
#--- next call
unalias greet; greet
### options stay
set -u; shopt -s nullglob; set -o pipefail
#--- next call
echo *.none; false | true; echo $?
#--- next call
echo "$nope"
#--- next call
set +u; echo "[$nope]"
### errexit set before
set -e
#--- next call
true && false || echo caught
#--- next call
echo still
#--- next call
set +e
#--- next call
false
#--- next call
echo $?
### errexit ends the shell later
set -e
#--- next call
echo before; false; echo never
### errexit and a failing list
set -e
#--- next call
false && true
#--- next call
echo alive; set +e
### errexit and function
set -e; f() { false; echo in f; }
#--- next call
f || echo "or $?"
#--- next call
if f; then echo yes; fi; set +e
### errexit with the status kept
set -e
#--- next call
! true
#--- next call
echo "status $?"; set +e
### xtrace stays
set -x
#--- next call
echo traced
#--- next call
set +x
#--- next call
echo quiet
### verbose stays
set -v
#--- next call
echo seen
#--- next call
set +v
#--- next call
echo unseen
### err trap
trap 'echo "trapped $?"' ERR
#--- next call
false
#--- next call
true
#--- next call
(exit 4)
#--- next call
echo "$?"; trap - ERR
#--- next call
false
### err trap and lists
trap 'echo err' ERR
#--- next call
false && true
#--- next call
! true
#--- next call
f() { return 3; }; f
### debug trap
trap 'echo "dbg: $BASH_COMMAND"' DEBUG
#--- next call
echo a
#--- next call
x=1; for i in 1 2; do :; done
#--- next call
trap - DEBUG
#--- next call
echo b
### debug trap after a failure
trap 'n=$((n+1))' DEBUG; n=0
#--- next call
false
#--- next call
trap - DEBUG; echo after
### return trap
trap 'echo ret' RETURN; f() { :; }
#--- next call
f; echo x
#--- next call
echo y
### usr1 trap between calls
trap 'echo usr1 $?' USR1
#--- next call
kill -USR1 $$; echo after
### exec redirection ends with its call
echo a
#--- next call
echo b >&2
### named descriptor lives on
exec 7>f; echo one >&7
#--- next call
echo two >&7; exec 7>&-; cat f
### descriptor to read lives on
printf '1\n2\n3\n' >f; exec 8<f; read -u 8 x; echo $x
#--- next call
read -u 8 x; echo $x; exec 8<&-
#--- next call
read -u 8 x; echo $?
### ifs stays
IFS=,
#--- next call
v=a,b; set -- $v; echo $#
#--- next call
echo "$*"; unset IFS
### positional parameters stay
set -- a 'b c'
#--- next call
echo $# "$2"; shift
#--- next call
echo "$@"
### background pid is known
sleep 100 & p=$!
#--- next call
kill $p; wait $p 2>/dev/null; echo $?
### background status is waited for
(exit 9) & p=$!
#--- next call
wait $p; echo $?
### job number is known
sleep 100 &
#--- next call
kill %1; wait 2>/dev/null; echo $?
### readonly and exports
readonly r=1; export e=2
#--- next call
bash -c 'echo $e'
#--- next call
r=2
#--- next call
echo $r
### arrays and maps
declare -A m=([a]=1); a=(x y)
#--- next call
m[b]=2; a+=(z); echo ${#m[@]} ${a[2]}
### functions over builtins stay
echo() { printf 'mine: %s\n' "$*"; }
#--- next call
echo hi
#--- next call
unset -f echo; echo hi
### eval and builtin replaced
eval() { :; }; builtin() { :; }
#--- next call
echo fine
#--- next call
unset -f eval builtin; eval echo back
### syntax error in between
x=5
#--- next call
if then
#--- next call
echo "$? $x"
### unset variable error in between
x=5
#--- next call
echo ${nope:?gone}; echo never
#--- next call
echo "$? $x"
### not found in between
doesnotexist
#--- next call
echo $?
### posix mode on
set -o posix
#--- next call
echo $((1+1)); f() { echo f; }; f
#--- next call
set +o posix; echo off
### printf disabled
enable -n printf eval
#--- next call
echo ok; type -t printf
#--- next call
enable printf eval; type -t printf
### umask and ulimit
umask 077; ulimit -S -n 200
#--- next call
umask; ulimit -n
### oldpwd between calls
cd /; cd /usr
#--- next call
cd -
#--- next call
echo $OLDPWD
### random seed goes on
RANDOM=7; a=$RANDOM; b=$RANDOM; RANDOM=7
#--- next call
[ $RANDOM = $a ] && echo first
#--- next call
[ $RANDOM = $b ] && echo second
### expand aliases off
shopt -u expand_aliases; alias a='echo no'
#--- next call
a
#--- next call
shopt -s expand_aliases
#--- next call
a
### noglob stays
touch x y; set -f
#--- next call
echo *
#--- next call
set +f; echo *
### lastpipe does nothing under job control
shopt -s lastpipe
#--- next call
echo hi | read v; echo "[$v]"
### debug trap on every simple command counts
c=0; trap 'c=$((c+1))' DEBUG
#--- next call
:; :; :
#--- next call
trap - DEBUG; [ $c -ge 4 ] && echo counted
### interrupt in between
x=kept; kill -INT $$; x=lost
#--- next call
echo $x $?
### extdebug skips
shopt -s extdebug; trap '[[ $BASH_COMMAND != *skip* ]]' DEBUG
#--- next call
echo run
#--- next call
echo skip; echo run too
#--- next call
trap - DEBUG; shopt -u extdebug; echo skip no more
### comment at the end of a call
echo a # comment
#--- next call
echo b #
### debug trap where functions and errors are traced
set -ET; x=kept
#--- next call
c=0; trap 'c=$((c+1))' DEBUG
#--- next call
echo a; f() { echo f; }; f
#--- next call
trap - DEBUG; echo $((c > 3)) $x
### debug trap with extdebug off again
shopt -s extdebug; shopt -u extdebug
#--- next call
trap 'echo "d $BASH_COMMAND"' DEBUG
#--- next call
echo a
### everything traced under errexit
set -eETuo pipefail
#--- next call
trap 'echo "E $?"' ERR
#--- next call
echo a
#--- next call
echo b
### status after lines that are only continued
(exit 3)
#--- next call
 \

#--- next call
echo $?; (exit 4)
#--- next call
\
# a comment\
#--- next call
echo $?; (exit 5)
#--- next call
# a comment\
true
#--- next call
echo $?
### a last line that is only continued
echo a
\

#--- next call
echo b; \

#--- next call
\
 \
	
#--- next call
echo c
