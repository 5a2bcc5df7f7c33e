### indexed basics
a=(x 'y z' w); echo ${a[0]} "${a[1]}" ${#a[@]} ${!a[@]} $a
### all elements quoted
a=(x 'y z' ''); printf '<%s>' "${a[@]}"; echo; printf '<%s>' "${a[*]}"; echo; printf '<%s>' ${a[@]}; echo
### sparse
a[5]=five; a[2]=two; echo "${!a[@]}" "${a[@]}" ${#a[@]}
### append
a=(1); a+=(2 3); a[0]+=0; a+=x; echo "${a[@]}"; declare -p a
### unset element
a=(a b c); unset 'a[1]'; declare -p a; echo ${#a[@]}
### negative index
a=(a b c); echo ${a[-1]} ${a[-3]}; a[-1]=Z; echo "${a[@]}"
### negative index too far
a=(a b); echo ${a[-3]}
### slices
a=(0 1 2 3 4 5); echo ${a[@]:2:2} ${a[@]: -2} ${a[@]:4}
### associative basics
declare -A m; m[one]=1; m[two words]=2; echo "${m[one]}" "${m[two words]}" ${#m[@]}
### associative literal
declare -A m=([k]=v [x]=y); for k in k x; do echo $k=${m[$k]}; done; unset 'm[k]'; declare -p m
### associative with odd keys
declare -A m; k='a]b"c$d'; m[$k]=1; for x in "${!m[@]}"; do printf '%s\n' "$x"; done
### associative test for key
declare -A m=([a]=); [[ -v m[a] ]] && echo yes; [[ -v m[b] ]] || echo no
### subscript arithmetic
a=(10 20 30); i=1; echo ${a[i]} ${a[i+1]} ${a[$((i-1))]}; a[i*2]=x; echo ${a[2]}
### mapfile
printf 'l1\nl2\nl3\n' >f; mapfile -t a <f; declare -p a; mapfile -n 1 -s 1 b <f; declare -p b
### mapfile with delimiter and callback
cb() { echo "cb $1 $2"; }; printf 'a:b:c' >f; mapfile -d : -t -C cb -c 1 a <f; declare -p a
### read into array
read -ra a <<<'x  y z'; declare -p a
### array from command
a=($(echo 1 2 3)); echo ${#a[@]}; IFS=,; b=($(echo 4,5)); declare -p b
### array copy keeps empties
a=(1 '' 3); b=("${a[@]}"); declare -p b
### array in function scope
f() { local a=(l); echo "${a[@]}"; }; a=(g g2); f; echo "${a[@]}"
### pass array by name
show() { local -n r=$1; echo "${#r[@]}: ${r[*]}"; }; arr=(p q r); show arr
### keys loop
a=([2]=c [0]=a); for i in "${!a[@]}"; do echo "$i=${a[i]}"; done
### array element as command
c=(printf '%s-%s\n' a b); "${c[@]}"
### readonly array
readonly -a ra=(1 2); ra[0]=9
### array assignment error status
a=(1 2); a[bad index]=3; echo "$? ${a[*]}"
### string to array elements
s=abc; for ((i=0; i<${#s}; i++)); do a[i]=${s:i:1}; done; echo "${a[@]}"
### ifs joined
a=(a b c); (IFS=-; echo "${a[*]}"); echo "${a[*]}"
### declare prints attributes
declare -ir n=4; declare -x e=1; declare -a a=(1); declare -lu w=X; declare -p n e a w
### nested expansions in index
a=(0 1 2 3); i=(2); echo ${a[${i[0]}]} ${a[${#i[@]}]}
### quoted array in here string
a=(x y); cat <<<"${a[@]}"; cat <<<"${a[*]} end"
### array with glob elements
touch g1 g2; a=(g*); echo ${#a[@]} "${a[@]}"; b=('g*'); echo "${b[0]}" ${b[0]}
