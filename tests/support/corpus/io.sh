### both streams
echo out; echo err >&2; printf 'no newline'; printf 'none here' >&2
### order of duplicates
{ echo a; echo b >&2; } 2>&1 | cat; { echo c; echo d >&2; } >f 2>&1; cat f; { echo e >&2; } 2>&1 >/dev/null | tr e E
### append and truncate
echo 1 >f; echo 2 >>f; cat f; : >f; [ -s f ] || echo empty
### noclobber
echo 1 >f; set -C; echo 2 >f; echo $?; echo 3 >|f; cat f
### input redirection
printf 'l1\nl2\n' >f; read x <f; echo $x; cat <f; tr l L <f
### missing input file
cat <nofile; echo $?; { echo never; } <nofile; echo $?
### redirect to a directory
mkdir d; echo x >d; echo $?
### failing redirection of a builtin
: >/nonexistent/x; echo $?
### failing redirection of a special builtin
exec 5</nonexistent; echo "after $?"
### numbered descriptors
exec 5>f; echo five >&5; exec 5>&-; cat f; echo x >&5; echo $?
### read and write descriptor
exec 6<>f; echo hello >&6; cat f; exec 6>&-
### moving descriptors
exec 7>f; exec 8>&7-; echo moved >&8; { echo x >&7; } 2>/dev/null; echo $?; exec 8>&-; cat f
### named descriptors
exec {fd}>f; [ $fd -ge 10 ] && echo big; echo named >&$fd; exec {fd}>&-; cat f
### swap the streams
{ echo out; echo err >&2; } 3>&1 1>&2 2>&3 3>&-
### close stdout for one command
echo hi >&-; echo $?
### close stderr for one command
ls /nonexistent 2>&-; echo $?
### both with ampersand
{ echo a; echo b >&2; } &>f; cat f; { echo c; echo d >&2; } &>>f; wc -l <f
### pipe both
{ echo a; echo b >&2; } |& tr ab xy
### exec redirects the rest of the call
exec >f; echo inside; exec >&2; echo to stderr; cat f
### exec and back
exec 3>&1 >f; echo inside; exec >&3 3>&-; echo back; cat f
### dev null
echo x >/dev/null; cat /dev/null; echo $?; ls /nope 2>/dev/null; echo $?
### dev fd and stdout
echo a >/dev/stderr; echo c | cat /dev/stdin -; echo d | cat /dev/fd/0
### stdin is at end of file
cat; read x; echo "$? [$x]"; wc -c
### stdin is dev null
[ -c /dev/stdin ] && [ -t 0 ] || echo no terminal; ls -l /proc/self/fd/0 | sed 's/.*-> //'
### here string
cat <<<hello; read a b <<<'x y z'; echo "$b"; tr a-z A-Z <<<"$(echo sub)"; wc -c <<<''
### heredoc plain
v=val; cat <<EOF
a $v $(echo sub) $((1+1)) \$v \\ `echo tick` "q" 'q'
  indented
EOF
### heredoc quoted
v=val; cat <<'EOF'
a $v $(echo sub) \$v `x`
EOF
### heredoc partly quoted delimiter
cat <<E"O"F
$HOME stays
EOF
### heredoc with tabs stripped
cat <<-EOF
	one
		two
	EOF
echo after
### two heredocs in one command
cat <<A; cat <<B
in a
A
in b
B
### two heredocs on two descriptors
cat /dev/fd/3 - 3<<A <<B
first
A
second
B
### heredoc then pipeline
cat <<EOF | tr a-z A-Z | sed 's/$/!/'
shout
EOF
### heredoc in loop
for i in 1 2; do cat <<EOF
item $i
EOF
done
### heredoc in function and command substitution
x=$(cat <<EOF
inner $(echo deep)
EOF
); echo "[$x]"
### heredoc with continuation lines
cat <<EOF
one \
two
three\\
EOF
### heredoc empty and delimiter like text
cat <<EOF
EOF
cat <<END
EOF
 END
END
echo ok
### heredoc into while read
while IFS=: read -r a b; do echo "$b-$a"; done <<EOF
x:1
y:2
EOF
### heredoc with unset and defaults
cat <<EOF
${nope:-default} ${HOME:+set} $'not ansi' "double"
EOF
### unterminated heredoc in quotes of eval
eval 'cat <<EOF
text
EOF'
### process substitution
cat <(echo a) <(echo b); diff <(printf '1\n2\n') <(printf '1\n3\n'); echo $?
### output process substitution
echo text > >(tr a-z A-Z >f; echo x >done); while [ ! -e done ]; do :; done; cat f
### process substitution in loop
while read x; do n=$((n+x)); done < <(printf '1\n2\n3\n'); echo $n
### pipeline status
true | false; echo $?; false | true; echo $?; (exit 2) | (exit 3) | true; echo "${PIPESTATUS[@]}"
### pipefail
set -o pipefail; false | true; echo $?; (exit 3) | (exit 2) | true; echo $?
### broken pipe is silent
yes | head -1; seq 100000 | head -2 | tail -1; echo $?
### long pipeline
seq 100 | grep 5 | sort -rn | head -3 | tr '\n' ' ' | sed 's/ $//'; echo
### negated pipeline
! echo a | grep -q b; echo $?
### write error on full device
echo x >/dev/full; echo $?; printf y >/dev/full; echo $?; /bin/echo z >/dev/full; echo $?
### tee and descriptors
echo t | tee f /dev/stderr | cat; cat f
### many bytes in order
seq 5000 | md5sum; seq 5000 | tail -1
### large output without a newline
head -c 70000 /dev/zero | tr '\0' x | wc -c; head -c 3000 /dev/zero | tr '\0' y
### carriage returns are kept
printf '1%%\r2%%\r3%%\n'; printf 'a\r\nb\r\n'
### terminal escapes are kept
printf '\033[31mred\033[0m\n\033]8;;http://x\033\\link\033]8;;\033\\\n\a\b\f\v'
### bell and backspace to stderr
printf 'a\bb\a\r\n' >&2
### redirection in the middle and before
>f echo a b; echo >>f c d 2>&1; <f cat
### ambiguous redirection
v='a b'; echo x >$v; echo $?; echo y > *.none; echo $?; ls
### brace group with several redirections
{ read a; read -u 4 b; echo $a $b; } <<<one 4<<<two
### cat of closed stdin
cat <&-; echo $?
### output to closed descriptor of a builtin
printf 'x\n' >&9; echo $?
### umask and file mode
umask 027; >f; stat -c %a f; umask; umask -S
### sort of reading and writing the same file
printf 'b\na\n' >f; sort -o f f; cat f
### printf to fd three through exec
exec 3>&2; printf 'via three\n' >&3; exec 3>&-
