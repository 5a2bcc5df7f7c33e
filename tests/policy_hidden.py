"""Texts of bash that run ``rm`` where the grammar alone does not see it, and texts like them that do not."""

from __future__ import annotations

from typing import Final

from bashes import VERSION

# Before 5.1 the word that would be run behind it is --.
_ENDED: Final = ("time --",) if VERSION >= (5, 1) else ()

# Each runs rm in bash itself.
RUNS_IN_BASH: Final = (
    *("[ a\nrm ]", "[ a = b\nrm ]", "[ a\nrm = b ]", "[ a ==\nrm ]", "[ a || rm ]", "[ a|rm ]", "[ a = b & rm ]"),
    *("[ 1 > f || rm ]", "[\\\n a || rm ]", "\\\n[ a \\< b || rm ]", "X=1 [ {} || rm ]", "if [ a||rm ]; then b; fi"),
    *("`[ a || rm ]`", "x=$([ a || rm ])", ">f [ a || rm ]", 'echo "`[ a || rm ]`"', "time [ a || rm ]"),
    # -- two lines that the grammar takes for one command
    "echo a | sort | uniq\nrm f 2>/dev/null",
    "echo a | sort | uniq # c\n\n # d\n rm f 2>/dev/null",
    "echo a |& sort |& uniq\nrm f 2>/dev/null",
    "(echo a | sort | uniq\nrm f 2>/dev/null)",
    "if true; then echo a | sort | uniq\nrm f 2>/dev/null; fi",
    "for x in a; do echo a | sort | uniq\nls\nrm f >/dev/null 2>&1; done",
    "cat <<E | sort | uniq\na\nE\nrm f 2>/dev/null",
    "x=$(echo a | sort | uniq\nrm f 2>/dev/null)",
    "echo a | sort | uniq\nbash <<< 'rm x'",
    "echo a | sort | uniq\nbash <<E\nrm x\nE",
    "echo ==\nrm x",
    "echo a =~ # c\nrm x",
    "echo == =~\n\nrm x",
    "(echo == # c\nrm x)",
    "x=$(expr 1 == 2; rm x)",
    "(echo == && rm x)",
    "{ echo a =~ | rm x; }",
    "f() { echo =~;rm x\n}; f",
    "export $\nrm x",
    "unset $\nrm x",
    "echo hi > $\nrm f",
    "x=$\nrm x",
    "x=a$\nrm x",
    "declare a=$\nrm x",
    "echo $ # c\nrm x",
    "touch $; cat <$\nrm x",
    "cd /tmp\n\\rm -rf x",
    "cd /tmp # c\n\n  \\rm x",
    "x=1\n\\rm x",
    "echo a >f\n\\rm x",
    "export x\n\\rm x",
    # -- a process substitution within braces
    *(f"echo ${{x{mark}<(rm x)}}" for mark in (":-", "-", ":=")),
    *(
        f"x=aa; echo ${{x{mark}<(rm x)}}"
        for mark in ("#", "##", "%", "%%", "/a/", "//a/", "/#a/", ":+", "+", "^", ",,")
    ),
    "x=aa; echo ${x/<(rm x)/b}",
    "echo ${x:?<(rm x)}",
    "echo ${1-<(rm x)}",
    "y=${x:->(rm x)}",
    "echo ${x:-<((rm x); :)}",
    "x=a; echo ${x#$y<(rm $y)}",
    'echo ${x:-<(: "a)"; rm x)}',
    "a=(${x:-<(rm x)})",
    # -- a redirection between an assignment and its command
    "true | X=1 2>/dev/null rm f",
    "true | X=1 Y=2 >f rm x",
    "true | X=1 <<E rm x\nE",
    "true | X=1 <<<a rm x",
    "true | X=1 >f bash -c 'rm x'",
    "true | X=1 >f bash <<< 'rm x'",
    "true |& X=1 2>f <<<a rm x",
    "true && true | X=1 >f rm x; ls",
    "(true | X=1 >f rm x)",
    "true | X=1 >f Y=2 rm x >g",
    "X=1 </dev/null 2>g Y[1]=$(ls) rm x >h",
    "</dev/null 2>g X=1 rm x >h",
    "</dev/null 2>g X=1 ls=2 bash -c 'rm x' >h",
    # -- assignments and redirections alone, and what follows them
    *(f"X=$(ls) 2>/dev/null{sign}rm x" for sign in ("; ", "\n", " && ", "\t# c\n", "& ")),
    *(f"X=1 {word};rm x" for word in (">f", "&>f", ">|f", "2>&1", ">f 2>&1", "<<<a", "{fd}>f", ">f Y=2", "> >(ls)")),
    *(f">f {word};rm x" for word in ("X=1", "X=", 'X="a b"', "X+=$y", "X[1]=2", "X=(1 2) Y=3", "{fd}>g X=1", "X='>'")),
    "X=1 <<E; rm x\nE",
    "X=1 <<E\nE\nrm x",
    "(X=1 >f); rm x",
    "x=$(X=1 >f); rm x",
    "if X=1 >f; then Y=2 >f; rm x; fi",
    "{ X=1 >f; }; ! X=1 >f || rm x",
    "case a in a) X=1 >f;; esac; rm x",
    "f() { X=1 >f\n}; f && rm x",
    # -- behind a descriptor that is closed
    *(f"time {sign} rm x" for sign in ("2>&-", ">&-", "<&-", "2>&\\\n-", "2>&-\\\n")),
    *(f"time {sign} rm x" for sign in ("0>f", "0>&1", "0>&-", "00>f", "02>f", "007>&1", "00</dev/null", "00>>f")),
    "bash <<< 'rm x' 0>f 00>>f <<< 'rm x'",
    "fd=9; exec 9>f; time {fd}>&- rm x",
    *("ls|a=2>&- rm x", 'X="$(time >&- rm x)"', "ls|X=1 2>&- 3<&- rm x", "echo | X=1 >f 2>&- rm x"),
    "function f()\nuntil 2>&- 2>&- rm x </dev/null; do break; done; f",
    # -- backticks
    "`` rm x",
    "x=1 `` rm ls",
    "true && x=1 `\n ` rm x",
    "x=1 ```` rm x",
    "x=1 `` `` >f rm x",
    "(`` rm x)",
    "echo `env {fd}>f rm x`",
    "x=`nice {fd}>f rm x`",
    'echo "`env {fd}>f rm x`"',
    "`env {fd}>f rm x`",
    "echo `echo a | sort | uniq\nrm f 2>/dev/null`",
    # -- what is no blank to bash
    "cat <<E\u00a0 ; rm x\nE\u00a0",
    "cat <<E\r\nE\nE\r\nrm x",
    *(f"X=1{blank}ls rm x" for blank in "\u00a0\r\f\v\u2003"),
    "touch \u00a0; X=1 <\u00a0 rm x",
    # -- behind keywords, and behind programs that take more for an assignment
    *(f"{word} X=1 rm x" for word in ("time", "time -p", *_ENDED, "! time", "coproc", "time time", "time env a-b=1")),
    "if time X=1 rm x; then :; fi",
    "time X+=1 Y=2 2>f rm x",
    "time a[0]=1 rm x",
    *(f"env {word} rm x" for word in ("a-b=1", "'a.b=1'", "a[0]=1", "1=2", "\u00e9=1", "X+=1", "=1", "-- a.b=1")),
    # -- loops, and bodies of functions, that the grammar does not know
    'set a; for x do rm "$x"; done',
    "set a; for x \\\n do rm x; done",
    "set a; for x # in b\ndo rm x; done",
    "set a; for x; { rm x; }",
    "set a; for x\n{ rm x; }",
    "for x in a; { rm x; }",
    "for x in a; { ls; }; rm x",
    "for x in a\n\n{ rm x; } 2>&1 | cat",
    "for x # c\n in a; do rm x; done",
    "for x in $(ls; echo a); { for y in a; { rm x; }; }",
    "for x in $(set a; for y; { rm y; }); do ls; done",
    "echo 1 | select x in a; { rm x; break; }",
    "set a; echo 1 | select x do rm x; break; done",
    *(f"set a; {word} for x do rm x; done" for word in ("!", "time", "time -p", "coproc", "coproc N", "ls |")),
    *(f"set a; {word} {{ for x do rm x; done; }}; f a" for word in ("f()", "function f", "function f()")),
    *(f"{word} for x in a; {{ rm x; }}; f" for word in ("f()", "f ( )\n", "function f", "function f() # c\n")),
    "f() while rm x; do break; done; f",
    "function f until ! rm x; do break; done; f",
    "f() case a in a) rm x;; esac; f",
    "function f { coproc N { if true; then rm x; fi; }; }; f",
    "x=$((cd /tmp && rm x) || exit)",
    "((cd /tmp && rm x) || exit)",
    "cat <((ls; rm x) | sort)",
    'cat <<< "$(((1 + (2))); rm x)"',
    # -- by bash itself
    "jobs -x rm x",
    "jobs -x -- rm x",
    "builtin jobs -x rm x",
    "command jobs -xl rm x",
    "jobs -x bash -c 'rm x'",
)
# An older bash runs something else there: `--`.
SINCE: Final = {"time -- X=1 rm x": (5, 1)}

# Each runs rm in bash, and is told to be no bash.
DOUBTED: Final = ("echo ${x:-$y<(rm $y)}",)

# Each runs rm, by way of what may not be here, or in a way that is no good to try.
HIDDEN: Final = (
    *(f"sudo {word} rm x" for word in ("a-b=1", "-u me 1=2", "-- a.b=1")),
    "start-stop-daemon --start --pidfile f --exec /bin/rm -- x",
    "start-stop-daemon -Sbx /bin/sh -- -c 'rm x'",
    "start-stop-daemon -S -a /bin/sh -x ls -- -c 'rm x'",
    "start-stop-daemon -S --startas=/bin/sh -- -c 'rm x'",
    "start-stop-daemon -S -x /bin/rm",
    "env /b*/rm x",
    "env - a-b=1 rm x",
    "X=1 `` sudo rm x",
    "echo a | sort | uniq\nbash <<< 'sudo rm x' 2>f",
)

# What these run is known at run time only; rm may be it.
UNKNOWN: Final = (
    *(
        f"{starter} /bin/r? x"
        for starter in ("env", "command", "timeout 5", "find . -exec", "sudo -u me", "nice -n 5 env")
    ),
    *("xargs /bin/r?", "env [r]m x", "env ./* x", "env @(rm) x", "jobs -x r* x", "git bisect run r?"),
    *("git -c protocol.ext.allow=always ls-remote 'ext::rm x'", "git -c Protocol.Allow=user fetch x"),
    *("git config protocol.ext.allow always", "git -c protocol.allow=$X fetch x"),
    *("GIT_ALLOW_PROTOCOL=https:ext git ls-remote 'ext::rm x'", "run-parts d", "run-parts --regex=r d"),
)

# Nothing here runs rm, and nothing is doubtful.
SEEN: Final = (
    "echo a | sort | uniq\necho rm f 2>/dev/null",
    "echo a | sort | uniq # rm x\n# rm y\nls 2>/dev/null",
    "echo == \\\nrm x",
    "(expr a == b && [ a == b ] && [[ a == b || a =~ c ]]; echo rm ==b =~ a==b)",
    "if ls; then\n  ls | cat | cat -\nelse\n  echo $a 1>&2\n  exit 1\nfi",
    "if ls | cat | cat\nthen\n  ls\n  ls >f\nelif ls | cat | cat\nthen\n ls 2>f\nelse\n ls 2>f\nfi",
    "for x in $(ls | cat | cat\necho a >f)\ndo\n if ! ls\n then ls\n fi 2>f\ndone",
    "echo a | cat | cat\nwhile ls\ndo\n{\nls\n} >f\nbreak\ndone\nls 2>f",
    "echo a | cat | cat\nfunction f {\nls 2>f\n}\ncase x in\na) ls 2>f;;\nesac\nf 2>f",
    "echo '$\nrm x' \"$\nrm x\"",
    'x="a$\nrm" y="==\nrm"\nls',
    "a=(1\nrm\n2) && declare -a b=(1\nrm)",
    "[[ a == b &&\n  rm ]]",
    "echo a |\n  cat - # rm\n",
    "for x in a rm\ndo echo $x\ndone >f",
    "echo ${x:-a} \\\n  rm 2>&1 | cat",
    "echo $((1 +\n2)) $ rm",
    "if [ a = b ]\nthen ls\nfi\nls",
    "cat <<E | sort | uniq\nrm x\nE\nls 2>/dev/null",
    "echo a | sort | uniq;\necho rm 2>f",
    'echo ${x:-a}${x#rm}${x/</>} "${x:-<(rm x)}" ${x:-"<(rm x)"} ${x:-\'<(rm x)\'} ${x:-\\<\\(rm\\)}',
    "true | X=1 2>/dev/null",
    "true | X=1 2>/dev/null ls rm",
    "`` ls rm; echo `` rm; for x in `` rm; do ls; done; case `` in rm) ls ;; esac",
    'x=`` ls; echo a`` `` rm "``" ``a rm',
    "[[ -z `` ]] && [ -z `` ] && a=(`` rm)",
    'echo `echo rm "a b"` "`ls 2>&1 | sort`"',
    "echo rm\u00a0x\u00a0",
    "time -p ls X=1 rm; command time 'X=1'; env a-b=1 ls rm; env - X=1",
    "jobs; jobs -l rm; jobs %x rm",
    "env [ -f rm ]; find . -exec [ -f {} ] \\; -exec test -f rm \\;",
    "env ls *.rm; command ls [rm] r?",
    "git status; git diff -- 'rm*' r?; git add *",
    "git -c protocol.ext.allow=never -c protocol.file.allow=always status",
    "GIT_ALLOW_PROTOCOL=https:ssh git status",
    "run-parts --test /etc/cron.daily",
    "start-stop-daemon --status --pidfile rm",
    "echo a\r\nif true; then echo rm\r\nfi",
    "X=$(ls rm) 2>/dev/null || X=1 >f; >f X=rm\ntrue | X=1 >f Y=2 ls rm >g; ls >f X=1 rm",
    "exec 3>&- 4<&-; ls 2>&-; (ls rm <&-) >&-; { ls; }>&-|ls 2>&- rm >f 2>&- rm; ls 2>&-#rm; ls >&-rm",
    "echo a\\;#b rm; echo a\\ #b rm; ls",
    "X=1 2>&1; case rm in X=1) >f ls;; X=2) X=1 >f;; esac; then=1 >f ls rm; a=(rm) >f",
    'for x do echo "$x"; done; for x in rm; { echo "$x"; }; for x; { ls rm; } >f',
    "case x in for) { ls rm; };; esac; echo for x do rm; echo for x in rm; { ls; }",
    "for do do ls rm; done; for in in in rm; do ls; done; for ((x = 0; x < 1; x++)) { ls rm; }",
    "f() for x do ls rm; done; x=(); while ! ls rm; do break; done",
    "echo $(((1 + 2) * 3)) $(( (1) + (2) )); (((x = 1) + 2)); x=$((ls rm) || ls)",
)
