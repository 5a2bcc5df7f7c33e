### unclosed double quote
echo "abc
### unclosed single quote
echo 'abc
### unclosed backtick
echo `abc
### unclosed substitution
echo $(abc
### unclosed brace expansion
echo ${abc
### unclosed arithmetic
echo $((1+
### unclosed heredoc
cat <<EOF
abc
### if then
if then
### lone parenthesis
)
### lone brace
}
### for alone
for
### done alone
done
### if without fi
if true; then
### while without done
while true; do echo x
### case without esac
case x in
### function without body
f()
### double semicolon
echo a ;; echo b
### ampersand twice
& echo
### pipe at start
| cat
### pipe at the end
echo a |
### and at the end
echo a &&
### redirect without target
echo >
### bad token in parentheses
(echo a
### bad function name
echo hi () { :; }
### unexpected newline in subshell
( )
### empty braces
{ }
### bad for
for x in a b; echo $x; done
### bad double bracket
[[ a ==
### bad double bracket operator
[[ a b c ]]
### bad arithmetic for
for ((i=0)); do :; done
### keyword in wrong place
then echo
### esac alone
esac
### in the middle of a line
echo before; if; echo after
### less than at the end
cat <
### bad substitution name
echo ${1abc}
### two redirect operators
echo > > f
### bad array literal
a=(1 2
### do without loop
do echo
### select without word
select
### coproc without command
coproc
### unclosed process substitution
echo <(foo
### escaped newline at the end
echo a \
### dollar quote unclosed
echo $'abc
### bang alone
!
### semicolon alone
;
### time alone
TIMEFORMAT=; time
### until without do
until false
### function keyword without body
function f
### or at the end behind a comment
echo a || # why
# and another
### group without end
f() { echo a; }; { f
