### single quotes keep everything
echo 'a $b `c` \d "e" !f *'
### double quotes expand
v='x  y'; echo "[$v]" [$v] "\$v" "\`" "\"" "\\" "\a"
### backslash outside quotes
echo a\ b \$x \* \\ \' \" \#
### backslash newline joins
echo one \
two\
three
### backslash newline inside double quotes
echo "one\
two"
### backslash newline inside single quotes
echo 'one\
two'
### ansi c quoting
echo $'a\tb\nc\\d\'e\"f' $'\x41\101\u263a' $'\e[0m' $'\cA'
### ansi c quoting ends at nul
echo $'ab\0cd'"ef"
### locale quoting
echo $"hello $HOME" | grep -c hello
### adjacent quoting
echo 'a'"b"c$'d'\e
### empty words
set -- '' "" a '' ; echo $#; printf '<%s>' "$@"; echo
### empty unquoted expansion vanishes
e=; set -- $e $e x; echo $#
### quoted at sign in word
set -- a 'b c' d; printf '<%s>\n' "x$@y"
### quoted star joins with ifs
set -- a b c; IFS=,; echo "$*"; IFS=; echo "$*"; unset IFS; echo "$*"
### exclamation mark is plain
echo A!B "c!d" !! !$ 'e!f'
### hash in the middle of a word
echo a#b c #d
### comment after semicolon
echo a;# b
echo c
### comment with quotes in it
echo a # it's "fine`
echo b
### literal tab inside quotes
echo "a	b" 'c	d'
### multi line string
echo "line 1
  line 2

line 4"
### quotes inside command substitution
echo "$(echo "inner $(echo "in most")")"
### backticks and their escapes
echo `echo \`echo nested\`` "`echo \"q\"`" `echo '\\\\'`
### quotes in parameter default
unset u; echo "${u:-"a b"}" "${u:-'a b'}" ${u:-'a b'}
### brace inside quoted default
unset u; echo "${u:-\}}" "${u:-{x\}}"
### tilde is not expanded in quotes
cd /; echo "~" '~' \~ | cat; [ ~ = "$HOME" ] && echo same
### dollar alone
echo $ "$" $% a$ "$ x"
### escape codes by echo
echo -e 'a\tb\x41\0101\n\\c'; echo -e 'stop\chere'; echo -E 'a\tb'; echo -n x; echo
### printf q round trip
x=$'a b\n\t"\x01\\'; printf '%q\n' "$x"; eval "y=$(printf %q "$x")"; [ "$x" = "$y" ] && echo same
### transformation Q
x="it's"; echo "${x@Q}" ${x@Q}; set -- a "b c"; echo "${@@Q}"
### single quote inside double
echo "it's" 'say "hi"' "a'b'c" 'd"e"f'
### many lines with blank ones

echo a


echo b

### carriage return is data
printf '%s' $'echo a\r' | cat -A; echo
### semicolons and newlines
echo a; echo b;
echo c
### control characters
printf '%s' $'\001\002\003\036\037\177' | od -An -c
