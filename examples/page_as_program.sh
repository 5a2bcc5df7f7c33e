#!/usr/bin/env bash
# A page in Markdown that is a program: its blocks run in one shell, and what it shows is compared.
#
# Run:     bash examples/page_as_program.sh
# Needs:   the extra workflow
# Prints:  the page shows what its commands print
set -euo pipefail

place=$(mktemp -d)
trap 'rm -r "$place"' EXIT
cd "$place"

cat >runbook.md <<'PAGE'
# Count the words

First make a file. The block has a name and a time limit, and stops at its first failing command.

```bash {name=prepare timeout=30 errexit}
mkdir -p books && cd books
printf '%s\n' one two two three >words
count() { sort words | uniq -c | sort -rn; }
```

The next block sees the directory and the function. Its output must be as shown, but for `...`.

```console
$ count | head -1
      2 two
$ wc -l "$PWD/words"
4 .../books/words
$ ls nowhere
ls: ... No such file or directory
[2]
```
PAGE

shellsession workflow check runbook.md
shellsession workflow run runbook.md --markdown report.md
grep -c '| ok |' report.md
echo "the page shows what its commands print"
