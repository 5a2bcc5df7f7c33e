### default values
unset u; e=; echo ${u-d} ${u:-d} "[${e-d}]" ${e:-d}
### assign defaults
unset u; echo ${u:=new} $u; e=; : ${e=kept}; echo "[$e]"
### alternate values
unset u; s=1; e=; echo "[${u+x}][${s+x}][${e+x}][${e:+x}]"
### length
s=héllo; echo ${#s} ${#u}; a=(x yy zzz); echo ${#a[@]} ${#a[2]}; set -- 1 2 3; echo ${#} ${#@}
### substring
s=abcdef; echo ${s:2} ${s:1:3} ${s: -2} ${s:0:-1} "${s:9}" ${s:(-3):2}
### substring of positionals
set -- a b c d e; echo ${@:2:2} ${@: -1} "${@:4}"
### remove prefix and suffix
p=/usr/local/lib/x.tar.gz; echo ${p#*/} ${p##*/} ${p%.*} ${p%%.*} ${p#nope}
### replace
s=banana; echo ${s/a/A} ${s//a/A} ${s/#b/B} ${s/%a/Z} ${s//an} ${s/x/y}
### replace with pattern and slash
p=a/b/c; echo ${p//\//:} ${p/b*/X} "${p//[ac]/_}"
### replace ampersand
s=abc; r='<&>'; echo "${s/b/$r}" "${s/b/<&>}" "${s/b/\&}"
### case changes
s='hello World'; echo "${s^}" "${s^^}" "${s,,}" "${s^^[lo]}" "${s~~}"
### indirect
x=y; y=value; echo ${!x} ${!nothing-none}
### names with prefix
qq_a=1 qq_b=2; echo ${!qq_*} "${!qq_@}"
### transformations
s='a b'; echo "${s@U}" "${s@u}" "${s@Q}" "${s@A}"; declare -i n=3; echo ${n@a} "${n@A}"
### transformation E
s='a\tb'; echo "${s@E}"
### word splitting
v=' a  b	c '; set -- $v; echo $#; printf '<%s>' "$@"; echo
### splitting with other separators
IFS=:; v='a:b::c:'; set -- $v; echo $#; printf '<%s>' "$@"; echo
### splitting with mixed separators
IFS=' ,'; v='a , b,,c '; set -- $v; echo $#; printf '<%s>' "$@"; echo
### no splitting in assignment
v='a   b'; w=$v; echo "$w"
### brace expansion
echo {a,b}{1,2} {1..5} {5..1} {a..e} {01..10..3} x{,y}z {a} {a,}
### brace expansion with quotes and variables
v=1; echo {$v,"b c"} '{a,b}' \{a,b\} a{b,c\,d}e
### nested braces
echo {a,{b,c},d{e,f}} {{1..3},x}
### tilde forms
HOME=/h; echo ~ ~/x ~+ a~ x=~ ; PATH2=~:~/b; echo $PATH2
### command substitution strips newlines
x=$(printf 'a\n\n\n'); echo "[$x]"; y=$(printf '\n\na'); echo "[$y]"
### command substitution status
x=$(exit 3); echo $?; local_x=$(true)$(exit 4); echo $?
### command substitution from file
printf 'one\ntwo\n' >f; echo "$(<f)"; echo $(<f); x=$(<nofile); echo $? "[$x]"
### nested command substitution
echo $(echo a $(echo b $(echo c)))
### nul bytes in command substitution
x=$(printf 'a\0b'); echo "${#x}"
### arithmetic in expansion
i=5; echo $((i*2)) $((i++)) $i ${a[i]-none} $[1+2]
### positional beyond nine
set -- a b c d e f g h i j k; echo $10 ${10} ${11} $#
### special parameters
set -- x y; echo $# $* "$@" $?; false; echo $?; (exit 9); echo $?
### at with empty list
set --; printf '<%s>' "$@"; printf '<%s>' "x$@"; echo; f() { echo $#; }; f "$@"; f "$*"
### error when unset
echo ${nope:?is missing}
### error when unset keeps going in next call
(echo ${nope?}) ; echo "after $?"
### bad substitution
echo ${a b}
### bad substitution in subshell
(echo "${!}${x@Z}"); echo $?
### default with command substitution
unset u; echo ${u:-$(echo computed)} ${u:-`echo again`}
### pattern with quotes is literal
s='a*b'; echo "${s%\**}" "${s%'*'b}" "${s/'*'/x}"
### lists in patterns
set -- one.txt two.txt; echo "${@%.txt}" "${@/#/pre-}"; a=(x1 y1); echo ${a[@]/1/2}
### quoted empty preserves
e=; printf '<%s>' $e "$e" ''$e; echo
### globs after expansion
touch a.x b.x; g='*.x'; echo $g "$g"; set -f; echo $g; set +f
### unset and set difference
unset v; echo "${v-unset}"; v=; echo "${v-unset}"; v=1; unset -v v; echo "${v-unset}"
### expansion order on one line
i=1; i=2 echo $i; echo $i; i=3; echo $i
### assignment from substitution and continue
a=1 b=$a c=$((b+1)); echo $a $b $c
### underscore default of missing index
a=([3]=x); echo "${a[0]:-empty}" "${a[3]}" "${a[-1]}"
