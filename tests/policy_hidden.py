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
)

# Each runs rm in bash, and is told to be no bash.
DOUBTED: Final = ("[ a\nrm ]", "[ a = b\nrm ]", "[ a\nrm = b ]")

# Each runs rm, by way of what may not be here, or in a way that is no good to try.
HIDDEN: Final[tuple[str, ...]] = ("echo a | sort | uniq\nbash <<< 'sudo rm x' 2>f",)

# Nothing here runs rm, and nothing is doubtful.
SEEN: Final = (
    "echo a | sort | uniq\necho rm f 2>/dev/null",
    "echo a | sort | uniq # rm x\n# rm y\nls 2>/dev/null",
    "echo == \\\nrm x",
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
)
