### trap return in sourced across
echo 'x=1; return 4' >s; trap 'echo RT' RETURN
#--- next call
. ./s; echo $?
#--- next call
trap - RETURN; . ./s
### errtrace kept
set -E; trap 'echo E:$?' ERR; f() { false; }
#--- next call
f
#--- next call
x=$(false)
#--- next call
(false; true)
#--- next call
false | true; true
#--- next call
trap -p; trap - ERR; f
### local and global across
f() { local x=1; g; }; g() { x=2; }; x=0
#--- next call
f; echo $x
### exit status chain
false
#--- next call
#
#--- next call
x=$?
#--- next call
echo $x $?
### status through alias and function
alias st='echo st $?'; f() { echo f $?; return 6; }
#--- next call
(exit 5)
#--- next call
st
#--- next call
f
#--- next call
f
#--- next call
(exit 9)
#--- next call
f
### status of syntax error then
)
#--- next call
echo $?
### status with errexit off/on
set -e
#--- next call
false || true
#--- next call
echo $?; ! true
#--- next call
echo $?
### set positional and shift and getopts
set -- -a 1 -b; getopts a:b o; echo $o $OPTARG $OPTIND
#--- next call
getopts a:b o; echo $o $OPTIND; getopts a:b o; echo $? $o
### readonly var then assignment in later calls
readonly x=1
#--- next call
x=2
#--- next call
echo $? $x
#--- next call
x=3 echo no; echo same
#--- next call
for x in a; do echo $x; done
### array in later calls
declare -A m; m[a b]=1; a[5]=x
#--- next call
m[c]=2; echo "${#m[@]} ${!a[@]}"; unset 'm[a b]'
#--- next call
echo "${!m[@]}"; declare -p a
### nameref across
x=1; declare -n r=x
#--- next call
r=5; echo $x; unset -n r
#--- next call
echo "[${r-unset}] $x"
### hash across
ls / >/dev/null; hash -t ls >/dev/null && echo hashed
#--- next call
hash -r; hash -t ls; echo $?
#--- next call
PATH=/nope; ls; echo $?
#--- next call
PATH=/usr/bin:/bin; ls -d /
### completion across
complete -W 'a b' foo
#--- next call
complete -p foo; compgen -W "$(echo x y)"
### dirstack
mkdir -p a/b; pushd a >/dev/null; pushd b >/dev/null
#--- next call
dirs -p | wc -l; popd >/dev/null; basename "$PWD"
#--- next call
popd >/dev/null; popd; echo $?
### ifs across with read
IFS=: read a b <<<x:y
#--- next call
echo $a $b; IFS=:; set -- x:y; echo $1
#--- next call
v=x:y; echo $v; unset IFS
### extglob across
shopt -s extglob
#--- next call
[[ abc == +([a-c]) ]] && echo m; case ab in !(x)) echo not x;; esac
#--- next call
shopt -u extglob
#--- next call
echo +(a)
### function redefinition and unset
f() { echo 1; }
#--- next call
f() { echo 2; }; f
#--- next call
unset -f f; f
### function with heredoc across
f() { cat <<E
v=$v
E
}
#--- next call
v=7; f
#--- next call
declare -f f
### exported state
export A=1; export -n A; B=2; export B
#--- next call
env | grep '^[AB]='; A=9 B=8 sh -c 'echo $A $B'; echo $A $B
### umask ulimit across
umask 027; ulimit -S -n 100
#--- next call
umask; ulimit -S -n; (umask 0; umask); umask
### set o across
set -o noglob -o nounset
#--- next call
echo *; echo $nope
#--- next call
set +o noglob; set +u; echo [$nope]
### err trap and status
trap 'r=$?' ERR
#--- next call
(exit 12)
#--- next call
echo $? $r
### posix kept
set -o posix
#--- next call
f() { echo $1; }; x=5 f a; echo $x; export -p | head -c 6; echo
#--- next call
unset -v y; readonly z; z=1
#--- next call
echo on $?
### fd kept
exec {fd}>out; echo a >&$fd
#--- next call
echo b >&$fd; exec {fd}>&-; cat out
#--- next call
echo c >&$fd; echo $?
### stdin fd kept
exec 4<<<$'1\n2\n3'
#--- next call
read -u 4 x; echo $x
#--- next call
cat <&4; exec 4<&-
### lastarg and bang
true & wait $!; p=$!
#--- next call
[ "$p" = "$!" ] && echo same
### exec status
exec nosuch
#--- next call
echo $?; exec 3</nope
#--- next call
echo $?
### return value kept
f() { return 77; }; f
#--- next call
echo $?
#--- next call
return 5
#--- next call
echo $?
### long pipeline status
true | (exit 3) | false
#--- next call
echo $?; set -o pipefail; (exit 3) | true
#--- next call
echo $?
### bash rematch kept
[[ ab =~ (a)(b) ]]
#--- next call
echo ${BASH_REMATCH[@]}
### random kept
RANDOM=42; echo $RANDOM $RANDOM
#--- next call
echo $RANDOM
### deleted then recreated cwd
mkdir z; cd z; rmdir ../z; mkdir ../z
#--- next call
pwd | sed 's|.*/||'; touch f; echo $?; cd .; touch f; echo $?
### cwd moved
mkdir m1; cd m1; mv ../m1 ../m2
#--- next call
basename "$PWD"; basename "$(pwd -P)"; cd ..; ls
### symlink cwd
mkdir r; ln -s r l; cd l
#--- next call
basename $PWD; cd -P .; basename $PWD; cd ..; ls
### cd with home and dash
HOME=$PWD; mkdir h; cd h
#--- next call
cd; cd - >/dev/null; basename $PWD; cd ~; basename ~
### alias with args and unalias -a
alias a='echo A' b='a '; 
#--- next call
b a; unalias -a
#--- next call
a
### alias in same call multi lines
alias k='echo k1'
k
alias k='echo k2'
k; k
### mapfile callback across
cb() { echo "cb $1 $2"; }
#--- next call
mapfile -c 1 -C cb x <<<$'a\nb'; echo ${#x[@]}
### command_not_found_handle
command_not_found_handle() { echo "h $1"; return 44; }
#--- next call
foo
#--- next call
echo $?
### ps4 and x across
PS4='+ X '; set -x
#--- next call
echo a
#--- next call
set +x
#--- next call
echo $PS4
### debug and err across
trap 'echo "D $BASH_COMMAND"' DEBUG; trap 'echo "E $BASH_COMMAND"' ERR
#--- next call
false
#--- next call
(exit 3)
#--- next call
[[ a == b ]]
#--- next call
! true
### verbose and xtrace both
set -xv
#--- next call
echo a
#--- next call
f() {
 echo in
}
f
#--- next call
set +xv
### a signal's trap after a last subshell
trap 'echo got; echo err >&2' USR1
#--- next call
(kill -USR1 $$)
#--- next call
if true; then (kill -USR1 $$; exit 3); fi
#--- next call
echo $?
### a signal's trap that reads after a last subshell
trap 'cat; echo got' TERM
#--- next call
(kill -TERM $$)
#--- next call
echo on
### a child's trap after a last subshell
trap 'echo chld' CHLD
#--- next call
(exit 3)
#--- next call
echo $?; trap - CHLD
### a signal's trap, and a debug trap that a function sets
trap 'echo usr1' USR1; f() { trap 'echo "dbg: $BASH_COMMAND"' DEBUG; }
#--- next call
f
#--- next call
echo a
#--- next call
trap - DEBUG
#--- next call
(kill -USR1 $$)
### a signal's trap, and a debug trap in a sourced file
trap 'echo usr1' USR1; printf 't%s "echo dbg" DEB%s\n' rap UG >s
#--- next call
. ./s
#--- next call
echo a; trap - DEBUG
#--- next call
(kill -USR1 $$)
### errtrace and functrace where what tells of options is disabled
enable -n echo shopt
#--- next call
set -ET; x=kept
#--- next call
type -t echo; enable echo; echo $x
### a failing exec in a sourced file
echo 'exec ./nosuch; echo in' >s
#--- next call
. ./s; echo alive
### a failing exec in a trap
trap 'exec ./nosuch; echo in' USR1
#--- next call
kill -USR1 $$; echo alive
### a failing exec in a function and in eval
f() { exec ./nosuch; echo in; }; f; eval 'exec ./nosuch; echo in'; shopt execfail
#--- next call
shopt -s execfail; echo 'exec ./nosuch; echo in' >s
#--- next call
. ./s; echo alive
### too many arguments end a line with the status that was
(exit 3); exit 1 2; echo same line
#--- next call
echo $?; ./nosuch
#--- next call
return 1 2
#--- next call
echo $?; f() { for i in 1 2; do (exit 7); break 1 2; done; echo in f; }; f; echo same line
#--- next call
echo $?; (exit 2); shift 1 2; echo same line
#--- next call
echo $?; true; exit 1 2
#--- next call
echo $?; for i in 1 2; do (exit 3); break x; done; echo same line
#--- next call
echo $?
### too many arguments behind a status of 2, traced
set -x
#--- next call
(exit 2); shift 1 2; echo same line
#--- next call
echo $?
### too many arguments behind a status of 2, echoed
set -v
#--- next call
(exit 2); shift 1 2; echo same line
#--- next call
echo $?
### an interrupt leaves a status that was as high
(exit 200); kill -INT $$; echo same line
#--- next call
echo $?
### an unset LINENO where unset variables are errors
unset LINENO; x=kept
#--- next call
set -u
#--- next call
(exit 3)
#--- next call
echo $? $x
### a LINENO without a value where unset variables are errors
unset LINENO; declare -A LINENO=([x]=1); set -u; x=kept
#--- next call
(exit 3)
#--- next call
echo $? $x
### a return trap that functions inherit, after a failure
set -T; n=0; trap 'n=$((n+1))' RETURN
#--- next call
false
#--- next call
echo $? $n
#--- next call
f() { return 4; }; f
#--- next call
echo $? $n
### a return trap that returns, after a failure
set -T; trap 'return 3' RETURN
#--- next call
(exit 5)
#--- next call
echo $?
### a return trap that fails, after a failure
set -T; trap 'declare -i q; declare q=+' RETURN
#--- next call
false
#--- next call
echo hi
### a return trap and a debug trap that functions inherit
set -T; trap 'echo r' RETURN; trap 'echo d' DEBUG
#--- next call
false
#--- next call
echo $?
