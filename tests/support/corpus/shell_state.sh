### trap exit in subshell
(trap 'echo bye' EXIT; echo hi); (trap 'echo $?' EXIT; exit 3); echo $?
### trap err
trap 'echo "err $?"' ERR; false; (exit 3); true; false || true; if false; then :; fi; echo end
### trap err in function needs errtrace
trap 'echo err' ERR; f() { false; true; }; f; set -E; f
### trap debug
trap 'echo "d: $BASH_COMMAND"' DEBUG
echo one
x=2; echo $x
### trap return
trap 'echo ret' RETURN; f() { echo f; }; f; set -T; f
### trap listing
trap 'echo x' USR1; trap "echo 'q'" TERM; trap -p USR1 TERM; trap - USR1; trap -p USR1; echo $?
### trap usr1 to self
trap 'echo got $?' USR1; kill -USR1 $$; echo after
### trap inherited by subshells
trap 'echo parent' USR1; (kill -USR1 $BASHPID; echo no) ; echo $?
### trap ignore is inherited
trap '' USR1; bash -c 'kill -USR1 $$; echo survived'
### trap with bad signal
trap 'x' NOSUCH; echo $?
### kill subshell by signal
(kill -TERM $BASHPID); echo $?; (kill -KILL $BASHPID); echo $?
### child dies of a signal
bash -c 'kill -SEGV $$' 2>/dev/null; echo $?; sh -c 'kill -9 $$'; echo $?
### interrupt itself
kill -INT $$; echo never
### kill list
kill -l 9 15; kill -l TERM; kill -0 $$; echo $?; kill -0 999999999; echo $?
### errexit in subshell
(set -e; false; echo no); echo $?; (set -e; if false; then :; fi; false || true; echo yes); echo $?
### errexit in function
(set -e; f() { false; echo no; }; f; echo no2); echo $?
### errexit ignored after and
(set -e; false && true; echo survived); (set -e; ! true; echo too)
### nounset in subshell
(set -u; echo "$nope"; echo no); echo $?
### nounset with defaults
set -u; echo "${nope-fine}" "${#}" "$@"; set +u; echo "$nope."
### xtrace
set -x; echo a 'b c' $((1+1)); x=1; [ $x = 1 ] && echo y; f() { echo in; }; f; { set +x; } 2>/dev/null; echo off
### xtrace in loops and substitutions
set -x; for i in 1 2; do echo $(echo $i); done; case a in a) :;; esac; [[ a == b ]]; ((1))
### xtrace to another descriptor
exec 9>t; BASH_XTRACEFD=9; set -x; echo traced; set +x; exec 9>&-; unset BASH_XTRACEFD; sed 's/^+*/+/' t
### ps4
PS4='> '; set -x; echo a
### verbose
set -v
echo one
echo two; false
set +v
echo three
### noexec is ignored at a prompt
set -n; echo still
### noglob
touch x; set -f; echo *; set +f; echo *
### allexport
set -a; v=1; set +a; w=2; bash -c 'echo "[$v][$w]"'
### keyword option
set -k; bash -c 'echo [$v]' v=1; set +k
### posix mode
set -o posix; echo on; shopt -o posix; set +o posix; shopt -o posix
### noclobber through o
set -o noclobber; >f; >f; echo $?; set +o noclobber; >f; echo $?
### set lists one option
set -o | grep -E '^(errexit|nounset|pipefail|xtrace)'
### shopt query
shopt -q extglob && echo on || echo off; shopt -s extglob; shopt extglob; shopt -p nullglob; shopt nonesuch; echo $?
### positional reset
set -- -a b; echo $1; set -; set x y; echo $# $1
### invalid option
set -Z; echo $?; set -o nonesuch; echo $?
### getopts
while getopts ab:c o -a -b val -x -c; do echo "$o ${OPTARG-}"; done; echo $OPTIND
### alias next line
alias hi='echo hello'
hi there
unalias hi
hi
### alias on the same line is too late
alias q='echo aliased'; q
### alias with trailing space
alias e='echo '
alias w='word two'
e w
### alias listing
alias a1='b c' a2="d'e"; alias a1 a2; alias nosuch; echo $?; unalias nosuch; echo $?
### alias for keyword and with a pipe
alias up='tr a-z A-Z'
alias so='sort | uniq'
echo abc | up; printf 'b\na\nb\n' | so
### aliases off
shopt -u expand_aliases; alias z='echo z'
z
### cd forms
mkdir -p d/e; cd d; pwd | sed 's|.*/||'; cd e; cd ../..; cd d/e && cd - >/dev/null; pwd | sed 's|.*/||'
### cd errors
cd nowhere; echo $?; >f; cd f; echo $?; cd a b; echo $?
### cd home and cdpath
HOME=/; cd; pwd; CDPATH=/usr; cd lib; pwd
### cd through symlink
mkdir real; ln -s real link; cd link; pwd | sed 's|.*/||'; pwd -P | sed 's|.*/||'; cd -P ../link; pwd | sed 's|.*/||'
### directory stack
mkdir d; pushd d >/dev/null; dirs | wc -w; popd >/dev/null; dirs | wc -w; popd; echo $?
### oldpwd
cd /; cd /usr; echo $OLDPWD; cd -
### exports
export A=1 B; B=2; env | grep -E '^(A|B)=' | sort; export -n A; env | grep -c '^A='; unset B
### temporary environment
v=1 bash -c 'echo $v'; echo "[${v-none}]"; v=1 true; PATH= v=2 echo $v
### readonly
readonly r=1; (r=2; echo no); echo $?; unset r; echo $?
### readonly assignment ends the line
readonly r=1; r=2; echo never
### declare scopes
f() { declare x=1; declare -g y=2; }; f; echo "[${x-}][$y]"
### declare attributes
declare -u U=abc; declare -l L=ABC; declare -i I=2*3; echo $U $L $I; declare +u U; U=xy; echo $U
### declare bad
declare 1a=2; echo $?; declare -Z x; echo $?; declare -n r=r; echo $?
### nameref
x=1; declare -n r=x; r=5; echo $x ${!r}; unset -n r; r=9; echo $x
### nameref to array element
a=(1 2); declare -n r='a[1]'; r=x; echo ${a[@]}
### nameref in loop and function
a=1 b=2; declare -n n; for n in a b; do echo $n; done; set_it() { local -n t=$1; t=$2; }; set_it a new; echo $a
### nameref circular
f() { local -n v=v; v=1; }; f; echo "$?"
### unset kinds
x=1; x() { echo fx; }; unset x; echo "[${x-}]"; x; unset x; x 2>/dev/null; echo $?
### ifs weird
IFS=0123456789; echo $((10+5)); x=a5b; set -- $x; echo $#
### path empty
PATH=; echo builtin; ls; echo $?; /bin/echo full
### path unset
unset PATH; echo $?; /bin/echo x
### hash table
hash -r; ls / >/dev/null; hash -t ls >/dev/null; echo $?; hash -p /bin/false mine; mine; echo $?; hash -d mine
### type and command
type -t echo if ls nope f; f() { :; }; type f; command -v cd; command -V cd; type nope; echo $?
### builtin and enable
builtin echo b; builtin nope; echo $?; enable -n echo; type -t echo; enable echo; type -t echo
### command bypasses functions
echo() { printf 'fn\n'; }; echo; command echo cmd; unset -f echo
### shadowed builtins
printf() { builtin echo "p:$*"; }; eval() { builtin echo "e:$*"; }; set() { builtin echo "s:$*"; }; printf a; eval b; set c
### times and ulimit
ulimit -n 256; ulimit -n; ulimit -S -c 0; ulimit -c; ulimit -Z; echo $?
### umask in subshell
umask 077; (umask 000; umask); umask
### shlvl and subshell level
echo $BASH_SUBSHELL; (echo $BASH_SUBSHELL; (echo $BASH_SUBSHELL)); echo $(echo $BASH_SUBSHELL)
### seconds and epoch are numbers
SECONDS=5; [ $SECONDS -ge 5 ] && echo ok; [[ $EPOCHSECONDS =~ ^[0-9]+$ ]] && echo ok
### bash argv and dollar zero
echo $0; bash -c 'echo $0 $1' name arg
### compgen and complete
f1x() { :; }; compgen -A function f1x; complete -W 'a b' cmd; complete -p cmd; compgen -W 'one two' o
### eval
eval 'x=1; echo $x'; eval echo '$x'; eval; echo $?; eval 'false'; echo $?; eval 'echo a
echo b'
### eval syntax error keeps going
eval 'if then'; echo "after $?"
### exec of a missing command
exec /nonexistent/cmd; echo "after $?"
### exec in subshell
(exec echo replaced; echo no); (exec -a name sh -c 'echo $0'); echo $?
### let and test mixed
let a=5 'b = a + 1'; test $b -eq 6 && echo six
### caller in function
f() { caller 0 >/dev/null; echo $?; }; f; caller; echo $?
### bind and fc without line editing
fc -l; echo $?
### help is there
help true | head -1; help nosuchtopic; echo $?
### logout of a shell that is no login shell
(logout); echo $?
### ps4 expands
PS4='+ ${FUNCNAME[0]-top}: '; f() { :; }; set -x; f; set +x
### prompt operator
x='\$ $HOME \w $(echo sub)'; echo "${x@P}"; shopt promptvars
