### set H on with text
set -H; echo "hi!"; echo done
#--- next call
echo !!
#--- next call
echo !x
#--- next call
set +H; echo !x
### set e and compound
set -e; if false; then :; fi; while false; do :; done; ! true; false || :; echo alive; set +e
### set e in pipeline
set -e; false | true; echo alive; set -o pipefail; false | true; echo no
### set e and assignment substitution
set -e; local_() { local x=$(false); echo l; }; local_; x=$(false); echo no
### set e and arithmetic
set -e; ((0)) || echo z; ((0)); echo no
### set e with test
set -e; [ 1 = 2 ] && echo no; echo alive; [[ 1 == 2 ]]; echo no
### set e with subshell
set -e; (exit 3) || echo "$?"; (exit 4); echo no
### set e function or
set -e; f() { false; echo in; }; f && echo and; f; echo no
### set e eval
set -e; eval false || echo caught; eval 'false; echo no'; echo no
### set e source
echo 'false; echo in' >s; set -e; . ./s || echo caught; . ./s; echo no
### set e trap err
set -e; trap 'echo ERR $? $BASH_COMMAND' ERR; true; false; echo no
### set e trap exit
set -e; trap 'echo EXIT $?' EXIT; (exit 9)
### set e with command substitution inherit
shopt -s inherit_errexit; set -e; x=$(false; echo no) || echo "c$?"; set +e; echo "[$x]"
### set u array
set -u; a=(); echo "${a[@]}"; echo "${#a[@]}"; echo ${a[0]}
echo next
### set u positional
set -u; echo $1
echo "$?"
### set u bang
set -u; echo $!
echo "$?"
### pipefail
set -o pipefail; (exit 3) | (exit 4) | true; echo "$? ${PIPESTATUS[*]}"
### noglob and filename
touch 'a*' ab; set -f; ls a*; set +f; ls a*
### set n in a subshell
(set -n; echo no); echo "$?"
### set v multi
set -v
f() {
  echo f
}
f
set +v
### set v with eval
set -v; eval 'echo in'
echo x
### set v heredoc
set -v
cat <<E
x
E
### set x function and local
set -x; f() { local z=1; return 3; }; f; echo $?; set +x
### set x case select
set -x; case x in a|x) echo m;; esac; until true; do :; done; set +x
### set x subst assignment
set -x; x=$(echo a; echo b); y=`echo c`; set +x
### set b
set -b; (exit 3) & wait; echo $?
### set H P
ln -s / l; set -P; cd l; pwd; set +P
### set a
set -a; x=1; f() { echo exported; }; bash -c 'echo $x; f'; set +a
### set k
set -k; f() { echo "$x $*"; }; f a x=5; set +k
### set B
set +B; echo {a,b}; set -B; echo {a,b}
### set C
set -C; echo a >f; echo b >f; echo $?; echo c >|f; cat f
### extglob patterns
shopt -s extglob
touch a.txt b.md c.txt; ls !(*.txt); echo @(a|b).*; case foo in +(o|f)) echo m;; esac; x=aaab; echo ${x/+(a)/_} ${x##*(a)}
### extglob off function parse
f() { echo !(x); }; f
### globstar
shopt -s globstar; mkdir -p a/b/c; touch a/b/c/f a/g; echo **/f **; shopt -u globstar
### nullglob failglob
shopt -s nullglob; echo [n]one*; shopt -s failglob; echo [n]one*; echo same
echo next "$?"
### dotglob globignore
touch .h v; shopt -s dotglob; echo *; GLOBIGNORE=v; echo *
### nocaseglob nocasematch
touch AbC; shopt -s nocaseglob; echo abc*; shopt -s nocasematch; [[ ABC == abc ]] && echo m; case X in x) echo c;; esac; [[ ABC =~ b ]] && echo r
### lastpipe with monitor off
set +m; shopt -s lastpipe; echo hi | read v; echo "[$v]"
### xpg echo
shopt -s xpg_echo; echo 'a\nb'; shopt -u xpg_echo; echo 'a\nb'
### autocd
shopt -s autocd; mkdir d; d; pwd
### cdspell
shopt -s cdspell; mkdir direct; cd diretc && pwd
### cdable
shopt -s cdable_vars; v=/usr; cd v; pwd
### dirspell sourcepath
shopt -u sourcepath; echo 'echo sourced' >s; . s; PATH=.:$PATH; shopt -s sourcepath; . s
### localvar inherit
shopt -s localvar_inherit; x=5; f() { local x; echo "[$x]"; }; f; shopt -u localvar_inherit; f; shopt -s localvar_unset; g() { local x=1; unset x; echo "[${x-none}]"; }; g
### expand aliases same line
alias x1='echo al'; x1
x1 next
alias x2='for i in'
x2 a b; do echo $i; done
### alias to multiple commands
alias m='echo a; echo b'
m
alias e=
e echo after empty
### alias recursion
alias ls='ls -d'; alias a=b b=a
ls /
a
### alias in function at definition
alias q='echo old'
f() { q; }
alias q='echo new'
f; q
### alias in substitution and eval
alias z='echo zz'
echo $(z); eval z; bash -c z
### alias with newline
alias nl='echo 1
echo 2'
nl
### alias set in earlier call
alias c1='echo one'; alias c2='c1 '
#--- next call
c1; c2 c1; \c1; 'c1'
#--- next call
unalias c1; type c2; c1
### assoc expand once and others
shopt -s assoc_expand_once patsub_replacement 2>/dev/null; x=abc; echo ${x/b/[&]}; shopt -u patsub_replacement; echo ${x/b/[&]}
### interactive comments off
shopt -u interactive_comments
#--- next call
echo a # b
### POSIXLY
POSIXLY_CORRECT=1; set -o | grep posix; unset POSIXLY_CORRECT; set -o | grep posix
### posix special builtin assignment
set -o posix; x=1 :; echo "[$x]"; export y z=2; y=3 eval 'echo $y'; echo $y
### posix errors
set -o posix; readonly r=1; r=2; echo same
echo next
### posix shift error
set -o posix; shift 9; echo same $?
echo next
### posix unset and exports
set -o posix; unset -v nope; export -p | grep -c declare; echo $?
