### background and wait
(echo bg >f) & wait; cat f; echo $?
### wait for pid
(exit 4) & p=$!; wait $p; echo $?
### wait for job spec
(exit 6) & wait %1; echo $?
### wait n
(sleep 0.05; exit 2) & wait -n; echo $?
### two jobs in order
(echo 1 >a) & (echo 2 >b) & wait; cat a b
### kill a job
sleep 100 & kill $!; wait $! 2>/dev/null; echo $?
### kill by job spec
sleep 100 & kill %1; wait %1 2>/dev/null; echo $?
### no such job
kill %7; echo $?; fg %7 2>/dev/null; echo $?; disown %7; echo $?
### jobs when none
jobs; echo $?
### jobs p is one pid
sleep 100 & [ "$(jobs -p)" = $! ] && echo same; kill $!; wait 2>/dev/null
### disown
sleep 100 & p=$!; disown; jobs; kill $p; echo $?
### background gets no input
cat & wait; echo $?
### background list
{ echo a >f; echo b >>f; } & wait; cat f
### and list in background
true && echo yes >f & wait; cat f
### background function
f() { echo fn >o; return 8; }; f & wait $!; echo $?; cat o
### nested background
( (echo in >f) & wait ); cat f
### exit status of last background unaffected
false & wait; true; echo $?
### bang is empty at first
echo "[${!-}]"
### wait interrupted by trap
trap 'echo usr1' USR1; (kill -USR1 $$) & wait $!; echo done
### pipeline in background
echo abc | tr a-z A-Z >f & wait; cat f
### ampersand separates
echo one >a & echo two; wait; cat a
### coproc echo
coproc { echo from; }; read -u ${COPROC[0]} x; echo $x; wait
### named coproc
coproc N { tr a-z A-Z; }; fd=${N[1]}; exec {o}<&${N[0]}; echo abc >&$fd; exec {fd}>&-; cat <&$o
### suspended child is seen and continued
set +m; sleep 100 & kill -STOP $!; kill -CONT $!; kill -9 $!; wait $! 2>/dev/null; echo $?
### monitor flag off and on
set +m; (exit 3) & wait $!; echo $?; set -m; true & wait; echo $?
### stdin of a pipeline in the background
echo x | { cat >f; } & wait; cat f
### subshell sees last pid
true & p=$!; (echo $(( $! == p ))); wait
### ignored hup
nohup true 2>/dev/null; echo $?
### setsid waits
setsid -w sh -c 'echo own session; exit 3'; echo $?
### children of a substitution
x=$(echo a & wait; echo b); echo $x
