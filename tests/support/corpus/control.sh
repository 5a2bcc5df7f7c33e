### if elif else
for x in 1 2 3; do if [ $x = 1 ]; then echo one; elif [ $x = 2 ]; then echo two; else echo many; fi; done
### if without match is zero
false; if false; then :; fi; echo $?
### while and until
i=0; while [ $i -lt 3 ]; do echo $i; i=$((i+1)); done; until [ $i = 0 ]; do i=$((i-1)); done; echo $i
### break and continue levels
for i in 1 2 3; do for j in a b c; do [ $j = b ] && continue 2; [ $i = 3 ] && break 2; echo $i$j; done; done
### break out of range
for i in 1; do break 0; done; echo $?; for i in 1; do continue 99; done; echo $?
### break outside a loop
break; echo $?; continue; echo $?
### for without list
set -- a 'b c'; for x; do echo "<$x>"; done
### for with empty list
for x in; do echo never; done; echo "$? [${x-unset}]"
### arithmetic for
for ((i=0, j=9; i<3; i++, j--)); do echo $i $j; done; for ((;;)); do break; done; echo $?
### loop status
for i in 1 2; do (exit $i); done; echo $?
### loop with redirection
for i in 1 2; do echo $i; done >f; while read x; do echo "r$x"; done <f
### loop in pipeline keeps outer variable
n=0; printf '1\n2\n' | while read x; do n=$x; done; echo $n
### lastpipe
set +m; shopt -s lastpipe; printf '1\n2\n' | while read x; do n=$x; done; echo $n
### case basics
for w in apple b1 '' 'x y' '*'; do case $w in a*) echo A;; b[0-9]) echo B;; '') echo empty;; '*') echo star;; *) echo "other $w";; esac; done
### case fallthrough
case a in a) echo 1;& b) echo 2;; c) echo 3;; esac; case ab in a*) echo x;;& *b) echo y;; esac
### case alternatives and quotes
case 'a|b' in a|b) echo no;; 'a|b') echo yes;; esac; case x in (x|y) echo paren;; esac
### case without match
false; case q in z) ;; esac; echo $?
### case with extglob
shopt -s extglob
case foo.tar.gz in *.@(zip|tar.gz)) echo archive;; esac
### nocasematch
shopt -s nocasematch; case ABC in abc) echo same;; esac; [[ A == a ]] && echo also
### and or lists
true && echo a || echo b; false && echo a || echo b; false || false; echo $?; ! true; echo $?
### negation
! false; echo $?; ! (exit 5); echo $?; if ! grep -q x /dev/null; then echo none; fi
### grouping
{ echo a; echo b; } | tr ab xy; (echo c; exit 3); echo $?
### braces need separators
{ echo one; { echo two; }; }
### nested subshells
x=0; (x=1; (x=2; echo $x); echo $x); echo $x
### double bracket
a='x y'; [[ $a == x* ]] && echo glob; [[ $a == "x*" ]] || echo quoted; [[ -z '' && -n x || 1 -gt 2 ]] && echo logic
### regex match
[[ foo123bar =~ ([a-z]+)([0-9]+) ]] && echo "${BASH_REMATCH[@]}"; [[ x =~ ^y ]] || echo no; r='^a b$'; [[ 'a b' =~ $r ]] && echo var
### bad regex
[[ x =~ [ ]]; echo $?
### test builtin
[ a = a -a b = b ]; echo $?; [ 1 -eq 1 ] && [ ! -e nofile ]; echo $?; test; echo $?; [ x ]; echo $?
### test errors
[ 1 -eq x ]; echo $?; [ a b ]; echo $?; [ a = ; echo $?
### file tests
touch f; mkdir d; [ -f f ] && [ -d d ] && [ ! -s f ] && echo ok; [[ f -ot d || ! f -nt d ]]; echo $?; [ -t 0 ]; echo $?
### select reads end of file
select x in a b; do echo $x; done; echo $?
### coproc basics
coproc cat; echo hi >&${COPROC[1]}; read -u ${COPROC[0]} x; echo "got $x"; eval "exec ${COPROC[1]}>&-"; wait $COPROC_PID 2>/dev/null; echo done
### time keyword formats
TIMEFORMAT=t; time true; time { :; }; TIMEFORMAT='%%'; time :
### compound on one line
if true; then for i in 1 2; do case $i in 1) echo one;; *) while :; do echo two; break; done;; esac; done; fi
### long and list
true && true && false && echo no; echo $?; true || echo no; true; echo $?
### until false status
i=0; until (( i++ == 2 )); do :; done; echo $? $i
### command in condition sets status
if (exit 3); then :; else echo $?; fi; while (exit 4); do :; done; echo $?
