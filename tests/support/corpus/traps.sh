### trap exit variants
trap 'echo bye $?' EXIT; (exit 3)
#--- next call
echo still; exit 4
### trap exit in function and reset
f() { trap 'echo fx' EXIT; }; f; trap - EXIT; trap -p
### trap exit in command substitution
x=$(trap 'echo bye' EXIT; echo hi); echo "$x"; echo $(trap 'echo b2' 0; exit 3) $?
### trap err nested functions
set -E; trap 'echo "ERR $? ${FUNCNAME[*]} $BASH_COMMAND"' ERR; g() { false; }; f() { g; true; }; f; (false); x=$(false)
### trap err with pipelines negation
trap 'echo E' ERR; ! false; false | true; true | false; if ! false; then :; fi; until true; do :; done; false || false
### trap debug BASH_COMMAND and LINENO parts
trap 'echo "D:$BASH_COMMAND"' DEBUG
for i in 1 2; do x=$i; done
case a in a) echo A;; esac
((1+1)); [[ a ]]; f() { echo in; }; f
trap - DEBUG; echo off
### trap debug functrace
set -T; f() { echo f; }; trap 'echo "[$FUNCNAME]$BASH_COMMAND"' DEBUG; f; (echo sub); x=$(echo cs); trap - DEBUG; set +T
### trap return source
echo 'echo sourced' >s; trap 'echo RET $?' RETURN; . ./s; trap - RETURN; set -T; trap 'echo R2' RETURN; f() { return 3; }; f; echo $?
### trap signals many
for s in HUP USR1 USR2 TERM QUIT ALRM WINCH CONT PIPE INT; do trap "echo got $s" $s; kill -$s $$; done; echo end
### trap ignore and subshell
trap '' TERM; (kill -TERM $BASHPID; echo lived); trap - TERM; trap
### trap in subshell listing
trap 'echo a' USR1; (trap); (trap -p USR1); x=$(trap); echo "$x"
### trap from inside trap
trap 'trap - USR1; echo once' USR1; kill -USR1 $$; trap -p USR1; trap 'echo u; kill -USR2 $$' USR1; trap 'echo u2' USR2; kill -USR1 $$
### trap with return status
trap 'return 5' USR1; f() { kill -USR1 $$; echo no; }; f; echo $?
### trap exit status kept
trap 'false' USR1; (exit 7); kill -USR1 $$; echo $?
### trap numeric reset
trap 'echo x' 10; trap 10; trap -p; trap 'echo y' 0 2>&1; trap - 0
### trap bad syntax
trap 'if' USR1; kill -USR1 $$; echo "$?"; trap - USR1
### kill itself int in function and loop
f() { while :; do kill -INT $$; done; }; f; echo no
#--- next call
echo $?
### exits: subshell, function, eval, source
(exit 3); echo $?; f() { (exit 4); }; f; echo $?; eval '(exit 5)'; echo $?
### exit in function
f() { exit 6; }; f; echo no
### exit in eval
eval 'exit 7'; echo no
### exit in source
echo 'exit 8' >s; . ./s; echo no
### exit in trap
trap 'exit 9' USR1; kill -USR1 $$; echo no
### exit in exit trap
trap 'exit 4' EXIT; exit 3
### exit in command substitution and pipeline
x=$(exit 3); echo $?; exit 4 | true; echo $?; true | exit 5; echo $?
### exit with bad word
(exit x); echo $?; exit 0x10
### return at top
return; echo "$?"; return 7; echo "$?"
### return in subshell in function
f() { (return 5); echo "$?"; return 6; echo no; }; f; echo $?
### break at top and in eval
break; echo $?; for i in 1 2; do eval break; done; echo $i; continue 3; echo $?
### exec variants
(exec -a foo bash -c 'echo $0'); (exec -c env | wc -l); (exec -l sh -c 'echo $0'); exec nosuch; echo $?
### exec real
exec echo replaced
### exec with redirect only
exec 3>f; echo x >&3; exec 3>&-; cat f; echo y >&3; echo $?
### exec false
exec false
### exec bash c
exec bash -c 'exit 12'
### logout
logout; echo $?
### kill signals to self
kill -TERM $$; echo term $?; kill -QUIT $$; echo quit $?; kill -TSTP $$; kill -TTIN $$; kill -TTOU $$; echo t
### kill self usr1
kill -USR1 $$
### kill self pipe
echo a; kill -PIPE $$
### kill self hup with trap
trap 'echo hup; exit 3' HUP; kill -HUP $$; echo no
### kill winch chld cont urg
kill -WINCH $$; kill -CHLD $$; kill -CONT $$; kill -URG $$; echo ok
### the command that an exit trap is told of
trap 'echo "bye: $BASH_COMMAND"' EXIT; set -e
#--- next call
echo a; false
### the command that an exit trap of a subshell is told of
(trap 'echo "bye: $BASH_COMMAND"' EXIT; set -e; echo a; false)
