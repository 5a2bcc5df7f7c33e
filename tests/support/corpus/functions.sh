### define and call
f() { echo "in f: $1 $#"; }; f a b
### keyword definition
function g { echo g; }; function h() { echo h; }; g; h
### return status
f() { return 5; }; f; echo $?; g() { false; }; g; echo $?; h() { return; }; false; h; echo $?
### last status
f() { return 7; }; f
### return out of range
f() { return 256; }; f; echo $?; g() { return -1; }; g; echo $?; h() { return 300; }; h; echo $?
### return with bad word
f() { return abc; }; f; echo $?
### recursion
fac() { (( $1 < 2 )) && echo 1 || echo $(( $1 * $(fac $(($1-1))) )); }; fac 6
### locals
x=g; f() { local x=l; g; echo $x; }; g() { echo $x; x=changed; }; f; echo $x
### local without value
x=1; f() { local x; echo "[${x-unset}]"; x=2; }; f; echo $x
### positional are restored
set -- a b; f() { set -- z; echo $1; }; f; echo $1 $#
### function body redirection
f() { echo out; echo err >&2; } >f.log 2>&1; f; cat f.log
### subshell body
f() ( cd /; x=2; pwd ); x=1; f; echo $x; [ "$PWD" != / ] && echo here
### function in pipeline
f() { while read l; do echo "<$l>"; done; }; printf 'a\nb\n' | f
### declare f prints
f() { if true; then echo "a b"; fi; for i in 1 2; do :; done; }; declare -f f
### unset function
f() { echo f; }; unset -f f; f; echo $?
### override builtin and call it
cd() { echo "cd to $1"; builtin cd "$1"; }; cd /; builtin pwd; unset -f cd
### function named like command
ls() { echo fake; }; ls; command ls -d / ; unset -f ls; ls -d /
### funcname
f() { echo "${FUNCNAME[0]}"; g; }; g() { echo "${FUNCNAME[0]} ${FUNCNAME[1]}"; }; f
### exported function
f() { echo "exported $1"; }; export -f f; bash -c 'f x'
### function with heredoc
f() { cat <<E
hi $1
E
}; f there
### nested definition
f() { g() { echo inner; }; }; f; g
### local array and loop variable
f() { local i a=(); for i in 1 2; do a+=($i); done; echo "${a[*]}"; }; i=out; f; echo $i
### dynamic unset of local
x=1; f() { local x=2; unset x; echo "[${x-none}]"; }; f; echo $x
### function name with dash and dot
my-f.x() { echo odd; }; my-f.x
### return outside
return 3; echo "after $?"
### arguments with spaces
f() { for a in "$@"; do echo "<$a>"; done; }; f 'a b' '' c
### shift inside
f() { shift 2; echo "$@"; shift 9; echo $?; }; f 1 2 3
### local dash
f() { local -; set -u; echo ${-//[!u]/}; }; f; echo "[${-//[!u]/}]"
### recursion limit
FUNCNEST=5; f() { f; }; f
### return in sourced file
echo 'echo a; return 4; echo b' >s; . ./s; echo $?
### source with arguments
echo 'echo $# $1; x=set' >s; . ./s q w; echo $x; source ./nofile; echo $?
### env assignment before function
f() { echo $v; }; v=1; v=2 f; echo $v
