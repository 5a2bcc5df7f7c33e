### heredoc quoted delimiter with spaces
cat <<'END OF IT'
$x `y` \
END OF IT
### heredoc delimiter with backslash
cat <<\EOF
$HOME \$x
EOF
### heredoc tabs nested
if true; then
	cat <<-EOF
		indented	tab
	  spaces $((1+1))
	EOF
fi
### heredoc in substitution in heredoc
cat <<A
outer $(cat <<B
inner $(echo deep)
B
) end
A
### heredoc nested in a function twice
f() {
cat <<A; cat <<'B'
one $1
A
two $1
B
}
f x; declare -f f
### heredoc unterminated inside function
f() { cat <<EOF
body
### heredoc unterminated with tabs
cat <<-EOF
	body
	EOF2
### heredoc unterminated twice
cat <<A <<B
x
A
y
### heredoc backslash newline at the end
cat <<EOF
a\
b
c\\
EOF
### heredoc delimiter from the quoted parts
cat <<E"O"F
$HOME
EOF
### heredoc on a descriptor, read by two
exec 5<<EOF
l1
l2
EOF
read -u 5 a; read -u 5 b; echo "$a-$b"; exec 5<&-
### heredoc with empty delimiter
cat <<''
line

echo after
### heredoc with arithmetic and bad substitution
cat <<EOF
$((1/0))
EOF
echo "$?"
### heredoc with bad substitution
cat <<EOF
${a b}
EOF
echo "$?"
### heredoc in case in loop
for i in 1 2; do case $i in 1) cat <<A ;; *) cat <<B ;; esac
one
A
two
B
done
### here string multi
cat <<<"a
b"; cat <<<$'x\ty'; cat <<< a\ b; read x <<<''; echo "$?[$x]"
### here string with unset
set -u; cat <<<"$nope"; echo $?
### line continuation in words
echo a\
b "c\
d" 'e\
f'
ec\
ho joined; if tr\
ue; then echo y\
es; fi
### continuation before operators
true \
 && echo and \
 || echo or
echo a |
 cat
true &&
 echo later
### multi line if
if false
then
  echo no
elif true
then
  echo elif
else
  echo no
fi
### multi line nested loops
for i in 1 2
do
  while :
  do
    echo $i
    break
  done
done | cat
### multi-line function and case
f()
{
  case "$1" in
    (a|b)
      echo ab
      ;;
    *)
      echo other
  esac
}
f a
f c
### multi line array
a=(
  one # comment
  "two three"

  [5]=five
)
declare -p a
### multi line double bracket
if [[ a == a &&
      b == b ||
      c == d ]]
then echo ok; fi
### multi line arithmetic
echo $((1 +
2 *
3))
((
x = 5,
y = 6
)); echo $x $y
### multi line quotes
echo "a
  b
c"; echo 'x

y'
### multi-line command substitution
x=$(
  echo a
  # comment with ' quote
  echo b
)
echo "$x"
### case in substitution
x=$(case a in a) echo A;; esac); echo $x
### for with semicolon newline
for x
do echo $x; done
for ((i=0;
i<2;
i++)); do echo $i; done
### select
select x in a b c; do echo "$x $REPLY"; break; done <<<2
### select bad reply
PS3='pick> '; select x in a b; do echo "[$x] $REPLY"; [ -n "$x" ] && break; done <<<$'9\n\n1'
### coproc
coproc cat; echo hi >&${COPROC[1]}; read -u ${COPROC[0]} x; echo $x; eval "exec ${COPROC[1]}>&-"; wait; echo $?
