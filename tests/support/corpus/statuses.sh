### true and false
true; echo $?; false; echo $?
### last command decides
false; true
### last is false
true; false
### exit in subshell
(exit 7)
### exit codes wrap
(exit 256); echo $?; (exit -1); echo $?; (exit 1000); echo $?
### exit with bad number
(exit abc); echo $?
### not found
doesnotexist; echo $?
### not found is the status
doesnotexist --with args
### not executable
echo x >f; ./f; echo $?
### is a directory
mkdir d; ./d; echo $?; /; echo $?
### script without shebang
printf 'echo "script $1"\n' >s; chmod +x s; ./s arg
### script with bad interpreter
printf '#!/nonexistent/interp\n' >s; chmod +x s; ./s; echo $?
### and or chains
false && true; echo $?; false || true; echo $?; true && false || echo recovered
### signal status
sh -c 'kill -TERM $$'; echo $?; sh -c 'kill -INT $$'; echo $?
### hup and quit
sh -c 'kill -HUP $$'; echo $?; sh -c 'kill -QUIT $$' 2>/dev/null; echo $?
### pipe signal
sh -c 'kill -PIPE $$'; echo $?
### background status
(exit 5) & wait $!; echo $?
### wait for unknown
wait 99999; echo $?; wait; echo $?
### command substitution status passes
x=$(false); echo $?; x=1 y=$(exit 9); echo $?
### assignment status
x=1; echo $?; false; x=2; echo $?
### empty variable as command
e=; $e; echo $?; false; $e; echo $?
### colon
: ignored args; echo $?
### negated status
! true
### pipeline last
exit_with() { return $1; }; exit_with 3 | exit_with 4
### timeout command
timeout 0.05 sleep 5; echo $?
### env and nested bash
env -i /bin/sh -c 'exit 12'; echo $?; bash -c 'exit 13'
### xargs failing
echo x | xargs false; echo $?
### grep statuses
echo a | grep -q a; echo $?; echo a | grep -q b; echo $?; grep x nofile; echo $?
### test of expr
[ 1 = 2 ]
### arithmetic false
((0))
### break status in if
for i in 1; do false; break; done; echo $?
### trap changes nothing
trap 'true' USR1; kill -USR1 $$; false; echo $?
### syntax error in dot file
echo 'if then' >s; . ./s; echo $?
### return of a function through a pipe
f() { return 3; }; f | cat; echo ${PIPESTATUS[0]}
### subshell killed
(kill -9 $BASHPID)
### let
let 0; echo $?; let 1; echo $?
### shift too far
set -- a; shift 2; echo $?; shift; shift; echo $?
### cd failing
cd /nonexistent
### large status from program
python3 -c 'import sys; sys.exit(300)'; echo $?
### unset failing
readonly q=1; unset q; echo $?; unset 'a[b'; echo $?
### redirect failing
true </nonexistent
### function not found after unset
g() { :; }; unset -f g; g
### exec format
printf '\x7fELFgarbage' >f; chmod +x f; ./f; echo $?
### comment only
# nothing here
### status of group
{ true; false; }; echo $?; { false; true; }; echo $?
### an error that throws bash out of the text
shift 1 2
### an error in a subscript behind a failure
(exit 7)
#--- next call
a[1/0]=x
### an error that leaves eval, behind success
true; shift 1 2; echo never
### an error that leaves eval, behind a failure
(exit 9); shift 1 2; echo never
### an error that leaves eval, behind a pipe
(exit 9) | true; break 1 2; echo never
### a bad subscript of an assignment, behind success
a=(1); a[1/0]=x; echo never
