"""Texts of bash that run ``rm`` where the grammar alone does not see it, and texts like them that do not."""

from __future__ import annotations

from typing import Final

# Each runs rm in bash itself.
RUNS_IN_BASH: Final = (
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
    'echo ${x:-<(echo "a)"; rm x)}',
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
    *(f"{word} X=1 rm x" for word in ("time", "time -p", "time --", "! time", "coproc", "time time", "time env a-b=1")),
    "if time X=1 rm x; then :; fi",
    "time X+=1 Y=2 2>f rm x",
    "time a[0]=1 rm x",
    *(f"env {word} rm x" for word in ("a-b=1", "'a.b=1'", "a[0]=1", "1=2", "\u00e9=1", "X+=1", "=1", "-- a.b=1")),
    # -- by bash itself
    "jobs -x rm x",
    "jobs -x -- rm x",
    "builtin jobs -x rm x",
    "command jobs -xl rm x",
    "jobs -x bash -c 'rm x'",
)

# Each runs rm in bash, and is told to be no bash.
DOUBTED: Final = ("[ a\nrm ]", "[ a = b\nrm ]", "[ a\nrm = b ]", "[ a ==\nrm ]", "echo ${x:-$y<(rm $y)}")

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
)
