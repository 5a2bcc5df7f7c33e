### printf basics
printf '%s %d %x %o %c|\n' str 42 255 8 char
### printf widths
printf '[%5s][%-5s][%05d][%+d][%.2s][%*d][%-*d]\n' ab ab 42 42 abcdef 4 7 4 7
### printf floats
printf '%.2f %e %g %5.1f|\n' 3.14159 12345.678 0.0001 2.25
### printf reuses format
printf '%s-%s\n' a b c; printf '<%s>' ; echo; printf '%d,' 1 2 3; echo
### printf escapes
printf 'a\tb\n\101\x42\u00e9\\ %%\n'; printf '%b|%s\n' 'x\ty' 'x\ty'
### printf stops at c
printf '%b' 'abc\cdef'; printf '|\n'
### printf quotes
printf '%q %q %q\n' 'a b' "it's" $'n\nl'; printf '%Q\n' 'a b'
### printf characters codes
printf '%d %d %d\n' "'A" '"é' "'"; printf '%x\n' 0xff 010
### printf bad number
printf '%d\n' abc; echo $?; printf '%d\n' 12abc; echo $?
### printf bad format
printf '%z\n' x; echo $?
### printf without arguments
printf; echo $?; printf ''; echo $?; printf -- '-x\n'
### printf v
printf -v x '%03d' 7; echo $x; printf -v 'a[2]' z; declare -p a
### printf time
TZ=UTC0 printf '%(%Y-%m-%d %H:%M)T\n' 0
### printf nul bytes
printf 'a\0b\0' | od -An -c; printf '\0'; printf 'x\000y\n'
### printf wide
printf '%300s|\n' x | wc -c; printf '%.10s|\n' héllowörld
### read basics
read a b c <<<'1 2 3 4'; echo "$a|$b|$c"; read <<<'  whole  '; echo "[$REPLY]"
### read raw and cooked
read a <<<'x\ty\\z'; echo "$a"; read -r a <<<'x\ty\\z'; echo "$a"
### read with ifs
IFS=, read -r a b <<<'1,2,3'; echo "$a $b"; IFS= read -r l <<<'  keep  '; echo "[$l]"
### read delimiter and count
read -d : x <<<'ab:cd'; echo $x; read -n 3 x <<<abcdef; echo $x; read -N 4 x <<<'a b c'; echo "[$x]"
### read at end without newline
printf 'last' | { read x; echo "$? $x"; }
### read at end of input
read x; echo $?; read x y </dev/null; echo "$? [$x][$y]"
### read timeout on empty pipe
mkfifo p; exec 4<>p; read -t 0.01 -u 4 x; echo $(($? > 128)); read -t 0 -u 4; echo $?
### read continuation
printf 'a\\\nb\n' | { read x; echo $x; }
### read several lines
printf '1\n2\n3\n' | while read -r n; do echo $((n*n)); done
### read into bad name
read 1x <<<v; echo $?
### read prompt goes to stderr only on a terminal
read -p 'prompt> ' x <<<v; echo $x
### read nul delimited
printf 'a\0b c\0' | while IFS= read -r -d '' x; do echo "<$x>"; done
### read invalid descriptor
read -u 33 x; echo $?
### echo options
echo -n a; echo -e 'b\n'; echo -ne 'c\n'; echo -x; echo --; echo - ; echo -en 'd\c' e; echo
### printf percent at end
printf '100%%\n'; printf '%'; echo $?
### cat of binary
printf '\377\376\000\200abc\n'
### every byte
for i in {0..255}; do printf "\\x$(printf %x $i)"; done
### printf stars with negative
printf '[%*s][%.*f]\n' -5 a 2 1.005
### printf to variable with newline
printf -v x 'a\n'; echo "${#x}"; printf '%s' "$x"
