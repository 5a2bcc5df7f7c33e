### an error of expansion ends its line
echo a; echo ${x:?gone}; echo same line
echo next
### an unset variable ends its line
set -u; echo $nope; echo same line
echo next
### a readonly variable ends its line
readonly r=1; r=2; echo same line
echo next
### no match ends its line
shopt -s failglob; echo nope*; echo same line
echo next
### an error of arithmetic ends its command
echo $((1+)); echo same line
echo next
### an error in a function ends its caller
f() { echo ${y:?gone}; echo in f; }; f; echo same line
echo next
### an error in a loop ends the loop
for i in 1 2; do echo $i ${y:?gone}; done; echo same line
echo next
### an error in a subshell ends the subshell
(echo ${y:?gone}; echo in it); echo same line $?
echo next
### an error in a sourced file ends the line
echo 'echo ${y:?gone}; echo in it' >s; . ./s; echo same line
echo next
### a nested eval may be unfinished
eval "'"; echo same line $?
echo next
### a failing special builtin in posix mode
set -o posix; . ./nosuch; echo same line
echo next
### a trap with bad text
trap "echo '" USR1; kill -USR1 $$; echo same line
echo next
### an error of syntax in the middle
echo before
)
echo after
### an unbound variable in arithmetic
set -u; echo $((nope)); echo same line
echo next
### a bad subscript
a[1+]=3; echo same line
echo next
### an interrupt in the middle
kill -INT $$; echo same line
echo next
### a child that dies of an interrupt
sh -c 'kill -INT $$'; echo same line
echo next
### too many arguments
exit 1 2; echo same line
echo next
