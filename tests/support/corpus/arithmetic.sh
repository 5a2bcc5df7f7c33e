### operators
echo $((7/2)) $((-7/2)) $((7%3)) $((-7%3)) $((2**10)) $((1<<4)) $((255>>3)) $((6&3)) $((6|3)) $((6^3)) $((~5)) $((!5))
### precedence and grouping
echo $((1+2*3)) $(((1+2)*3)) $((2**3**2)) $((-2**2)) $((1,2,3))
### comparisons and logic
echo $((1<2)) $((2<=1)) $((1==1)) $((1!=1)) $((1&&0)) $((1||0)) $((5>3?10:20))
### assignment operators
i=10; ((i+=5)); ((i-=3)); ((i*=2)); ((i/=5)); ((i%=3)); ((i<<=4)); ((i|=3)); ((i^=1)); echo $i
### increments
i=1; echo $((i++)) $((++i)) $((i--)) $((--i)) $i
### bases
echo $((0x1f)) $((010)) $((2#1011)) $((36#z)) $((64#_)) $((16#FF))
### bad digit
echo $((08))
### division by zero
echo $((1/0))
### division by zero in a subshell
(echo $((1%0))); echo $?
### status of double parentheses
((0)); echo $?; ((1)); echo $?; (( 5 > 3 )) && echo yes; let 'x=0'; echo $?; let x=2 y=x*3; echo $x $y
### overflow wraps
echo $((9223372036854775807+1)) $((-9223372036854775808-1)) $((9223372036854775807*2))
### variables without dollar
a=3 b=4; echo $((a*a+b*b)) $(( $a + b )) $((undefined+1))
### recursive variable value
x='y+1'; y=5; echo $((x*2))
### integer attribute
declare -i n; n=2+3; echo $n; n+=5; echo $n; n=abc; echo $n
### syntax error in arithmetic
echo $((1+)); echo "after $?"
### error token
((1 1)); echo $?
### negative exponent
echo $((2**-1))
### array elements
a=(1 2 3); ((a[1]*=10)); echo ${a[@]} $((a[0]+a[2])) $((${#a[@]}-1))
### nested ternary
for x in 1 2 3; do echo $((x==1?10:x==2?20:30)); done
### comma in for
for ((i=0,s=0; i<=4; s+=i,i++)); do :; done; echo $s
### expr and bc like tools
expr 2 + 3; expr 5 \> 9; echo $?; expr abc : 'a\(.\)c'
### random range and seed
RANDOM=42; a=$RANDOM; RANDOM=42; [ $a = $RANDOM ] && echo same
### shift counts
echo $((1<<62)) $((1<<64)) $((-1>>1))
### assignment to readonly in arithmetic
readonly r=1; ((r=2)); echo "$? $r"
### whitespace and newlines
echo $((
 1 +
 2
))
### arithmetic command in condition
i=3; while ((i-- > 0)); do echo $i; done
### evaluate string with quotes
x="2"; echo $(("$x"+1)) $((x+'1'))
