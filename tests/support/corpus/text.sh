### unicode passes
echo 'héllo 世界 🎉'; s='世界'; echo ${#s} ${s:1} "${s/界/!}"
### unicode in names of files
touch 'ü ñ.txt'; ls; for f in *.txt; do echo "<$f>"; done
### unicode case
s=àéî; echo ${s^^} ${s^}
### combining and wide
printf '%s\n' $'e\u0301' $'\U1F600' | wc -m
### invalid utf8 in a variable
x=$'\xff\xfe'; echo ${#x}; printf %s "$x" | od -An -tx1
### invalid utf8 as argument
echo $'a\x80b' | od -An -tx1; [[ $'\x80' == ? ]] && echo one
### bytes in c locale
LC_ALL=C; s='é'; echo ${#s}; printf %s "${s:0:1}" | od -An -tx1
### locale change and back
LC_ALL=C; LC_ALL=C.UTF-8; s='é'; echo ${#s}
### bad locale warns
LC_ALL=xx_YY.nothing; echo $?
### globs basic
touch a1 a2 b1 .hid; echo * a? [ab]1 [!a]* *.none .h*
### nullglob and failglob
shopt -s nullglob; echo x *.none y; shopt -u nullglob; shopt -s failglob
echo *.none
### dotglob and globstar
mkdir -p d/e; touch d/e/f .dot; shopt -s globstar dotglob; echo **; echo **/f
### nocaseglob and ranges
touch File; shopt -s nocaseglob; echo f*; shopt -u nocaseglob; echo [[:upper:]]*
### extglob patterns
shopt -s extglob
touch aa ab abc b; echo a@(a|b) !(a*) +(a|b) ?(a)b *(a)
### extglob in replacement
shopt -s extglob
s='  trim  '; s=${s##+( )}; s=${s%%+( )}; echo "[$s]"
### extglob needs its option
shopt -u extglob; echo @(a|b)
### globignore
touch x.o x.c; GLOBIGNORE='*.o'; echo *
### glob in quotes and with backslash
touch '*' a; echo '*' \* "*"; rm '\*' 2>&1 | head -1; echo [*]
### glob with spaces
touch 'a b' 'c d'; for f in *; do echo "<$f>"; done; ls *' '* | wc -l
### sort and unicode
printf 'b\na\nB\nA\né\n' | sort; printf '%s\n' z a | sort -r
### sed awk grep
printf 'k=1\nk=2\n' | awk -F= '{s+=$2} END {print s}'; echo abc | sed 's/b/[&]/'; echo xyz | grep -o y
### tr and cut
echo a:b:c | cut -d: -f2; echo hello | tr -d l; echo aabb | tr -s a
### xargs
printf 'a\nb\n' | xargs -I{} echo '<{}>'; echo '1 2 3' | xargs -n 1 echo n
### find
mkdir -p d; touch d/x.c d/y.c; find d -name '*.c' | sort; find d -type f -exec echo {} + | wc -w
### long line
x=$(head -c 5000 /dev/zero | tr '\0' x); echo ${#x}; echo "$x" | wc -c
### many lines
for i in {1..1500}; do echo line $i; done | tail -2
### mixed newlines at the end
printf 'a\n\n\n'; printf '\n'; printf 'b'
### only newlines
printf '\n\nx\n\n\n'
### leading blanks kept
printf '  x'; printf '\t\ty \n'
### empty echo
echo ''; echo; echo ""
### nothing at all
:
### output looks like a mark
printf '\36deadbeef 0 x /\37'; echo 'bash: /0123456789abcdef0123456789abcdef 0 0 - //0123456789abcdef0123456789abcdef: No such file or directory' >&2
### output looks like a prompt
printf 'bash-5.2# '; echo 'root@host:~# ' >&2
### rev and tac on text without newline
printf 'abc' | rev; printf 'a\nb' | tac
### base64 round trip
head -c 100 /dev/zero | base64 -w0 | base64 -d | wc -c
