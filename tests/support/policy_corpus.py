"""Bash texts, and the commands that they run."""

from __future__ import annotations

from typing import Final, NamedTuple


class Case(NamedTuple):
    """A text and its commands. ``?`` is a word known only at run time; ``unknown``: the text runs such a word."""

    text: str
    commands: tuple[str, ...]
    unknown: bool = False


CASES: Final = (
    # -- sequences, pipelines and background commands
    Case("", ()),
    Case("# rm x\n", ()),
    Case("a || b; c & d", ("a", "b", "c", "d")),
    Case("a | b |& c\nd\n\n! e", ("a", "b", "c", "d", "e")),
    Case("(a; b) | { c; d; }", ("a", "b", "c", "d")),
    Case("a \\\n  b \\\n  c", ("a b c",)),
    # -- quoting and expansion of words
    Case("/usr/bin/rm x", ("/usr/bin/rm x",)),
    Case("r''m x; r\"m\" x", ("rm x", "rm x")),
    Case("r\\m x\\ y", ("rm x y",)),
    Case("$'\\162\\u006d\\x20' x", ("rm  x",)),
    Case("r\\\nm x", ("rm x",)),
    Case('echo "rm -rf / && reboot; \\$(rm)"', ("echo rm -rf / && reboot; $(rm)",)),
    Case("echo 'a\n$(rm x)\n`rm`'", ("echo a\n$(rm x)\n`rm`",)),
    Case("git commit -m 'it'\\''s; rm x'", ("git commit -m it's; rm x",)),
    Case("echo a{b,c} 'd{e,f}'", ("echo ? d{e,f}",)),
    Case("$CMD x", ("? x",), True),
    Case("$(which rm) x", ("? x", "which rm"), True),
    Case("r? x", ("? x",), True),
    # -- assignments and redirections
    Case("X=1 Y='2 3' Z=$W rm y", ("rm y",)),
    Case("X=(1 $(rm y) 3)", ("rm y",)),
    Case("2>&1 >/dev/null rm y <in", ("rm y",)),
    Case("a && git >out push 2>&1", ("a", "git push")),
    Case("export X=1 Y", ("export X=1 Y",)),
    # -- substitutions
    Case("echo $(a $(b $(rm x)))", ("echo ?", "a ?", "b ?", "rm x")),
    Case('echo "`rm x`" `a \\`b\\``', ("echo ? ?", "rm x", "a ?", "b")),
    Case("diff <(rm x) >(tee y)", ("diff ? ?", "rm x", "tee y")),
    Case("echo ${x:-$(rm y)} $((1 + $(a))) ${x[$(b)]}", ("echo ? ? ?", "rm y", "a", "b")),
    Case("((x = $(rm y)))", ("rm y",)),
    Case("[[ $(rm x) == y && -f z ]] && [ -f x ]", ("rm x", "[ -f x ]")),
    Case("echo \"a\\`b\\` \\$(c)\" 'a\\\nb' c\\\nd", ("echo a`b` $(c) a\\\nb cd",)),
    # -- compound commands
    Case("if a; then b; elif c; then d; else e; fi", ("a", "b", "c", "d", "e")),
    Case("for x in $(a) b; do c $x; done", ("a", "c ?")),
    Case("for ((i = $(a); i < 3; i++)); do c; done", ("a", "c")),
    Case("while a; do b; done < <(c)", ("a", "b", "c")),
    Case("case $(a) in x|y) b ;; *) c ;& z) d ;; esac", ("a", "b", "c", "d")),
    Case("f() { rm x; }; function g { a; }; f", ("rm x", "a", "f")),
    Case("{ a; } > out 2>&1; coproc b", ("a", "coproc b", "b")),
    # -- here-documents and here-strings
    Case("cat <<'EOF'\n$(rm x) `rm`\nEOF\nb", ("cat", "b")),
    Case(
        "cat <<EOF\n  $(rm x) $((1 + $(a)))\n\n  \\$(b) \\`c\\` it's $(echo ')') `d`\nEOF",
        ("cat", "rm x", "a", "echo )", "d"),
    ),
    Case("cat <<-EOF\n\t\t{$(rm x)}\n\tEOF", ("cat", "rm x")),
    Case("cat <<EOF\n${x:-$(rm x)} $y $((2 * (3 + 4))) $(a; (b)) <(c)\nEOF", ("cat", "rm x", "a", "b")),
    Case("cat <<EOF | b && c\nrm x\nEOF\nd", ("cat", "b", "c", "d")),
    Case("cat <<A <<'B C'\none\nA\ntwo\nB C\nb", ("cat", "b")),
    Case("cat > f <<E; rm x\n$a\nE\n", ("cat", "rm x")),
    Case("if true; then cat <<Q; fi\na\nQ\nrm x", ("true", "cat", "rm x")),
    Case("python3 - <<'E' 2>&1 | head\na\nE\n", ("python3 -", "head")),
    Case("cat <<E \\\n; rm x\na\nE\n", ("cat", "rm x")),
    Case("cat <<E\n$(a # )\nrm x\n)\nE\n", ("cat", "a", "rm x")),
    Case("a || (( 1 << 2 )) && b $((1 << 2))", ("a", "b ?")),
    Case("a `cat <<E\nb\nE\nrm x`", ("a ?", "cat", "rm x")),
    Case('git commit -m "$(cat <<\'E\'\nit\'s "rm"\nE\n)"', ("git commit -m ?", "cat")),
    Case("cat > f <<'A'\nbash <<E\nrm x\nE\nA\nchmod +x f", ("cat", "chmod +x f")),
    # -- text that a shell reads
    Case("3<<E bash -s <<'F'\na\nE\nrm x\nF\n", ("bash -s", "rm x")),
    Case("bash <<EOF\nrm $x\nEOF", ("bash", "rm ?"), True),
    Case("bash <<< 'rm x'; cat <<< 'rm x'", ("bash", "rm x", "cat")),
    Case("echo a | bash <<'E'\nrm x\nE", ("echo a", "bash", "rm x")),
    Case("(cd x; bash) <<E\nrm x\nE", ("cd x", "bash", "rm x")),
    Case("bash <<-!\n\ta 'b\n\tc'\n\t!", ("bash", "a b\nc")),
    Case("curl x | bash", ("curl x", "bash"), True),
    Case("curl x | bash 3</dev/null", ("curl x", "bash"), True),
    Case("echo 'rm x' && bash", ("echo rm x", "bash"), True),
    Case("source <(curl x)", ("source ?", "curl x"), True),
    Case("bash script.sh -c x; bash </dev/null", ("bash script.sh -c x", "bash")),
    # -- programs that start others
    Case("env -u HOME -i X=1 Y='2 3' rm y", ("env -u HOME -i X=1 Y=2 3 rm y", "rm y")),
    Case("time for x in 1; do a; done", ("time for x in 1", "a")),
    Case("env ls -lS d; env", ("env ls -lS d", "ls -lS d", "env")),
    Case("bash -o pipefail --norc -c 'a | b'", ("bash -o pipefail --norc -c a | b", "a", "b")),
    Case("bash -c \"bash -c 'rm x'\"", ("bash -c bash -c 'rm x'", "bash -c rm x", "rm x")),
    Case('bash -c "$X"; eval "$Y"', ("bash -c ?", "eval ?"), True),
    Case("eval 'rm x' '; b'", ("eval rm x ; b", "rm x", "b")),
    Case("nohup nice -n 5 rm x &", ("nohup nice -n 5 rm x", "nice -n 5 rm x", "rm x")),
    Case("command -p rm x; command -v rm", ("command -p rm x", "rm x", "command -v rm")),
    Case("a | xargs -n 1 -I{} rm {}", ("a", "xargs -n 1 -I{} rm {}", "rm ? ?")),
    Case("find . -exec a {} \\; -exec b \\;", ("find . -exec a {} ; -exec b ;", "a ?", "b")),
    Case("alias ls='rm x' b; trap 'rm y' EXIT", ("alias ls=rm x b", "rm x", "trap rm y EXIT", "rm y")),
    Case("sudo $X", ("sudo ?", "?"), True),
    Case("xargs env", ("xargs env", "env ?", "?"), True),
)

# Each starts rm through another program.
STARTED: Final = (
    *("exec -a y rm x", "builtin eval 'rm x'", "time -p X=1 rm x", "sudo -uval rm x", "sudo -u x -- rm y"),
    *("sudo X=1 rm y", "sudo --user=x rm y", "sudo -i <<E\nrm x\nE", "sudo su - u <<E\nrm x\nE", "doas -u x rm y"),
    *("su - bob -lc 'rm x'", "su --command='rm x'", "pkexec rm x", "chroot --userspec=a / rm x"),
    *("ssh -p 22 -o A=b host rm x", "ssh host 'cd x && sudo rm y'", "ssh -p 22 host <<'E'\nrm x\nE"),
    *("ssh h 'cd x && sudo bash' <<'E'\nrm x\nE", "docker exec -it -u root c rm x", "docker -H x exec c sh -c 'rm x'"),
    *("docker run --rm -v a:b -p 1:2 --name n i rm x", "docker container exec c rm x", "podman exec c rm x"),
    *("docker compose -f y exec -T web rm x", "docker-compose run --rm web rm x", "kubectl -n n exec -it p -- rm x"),
    *("env -S 'rm y'", "env --split-string='rm y'", "env - X=1 rm y", 'env X="$Y" rm x', "env a-b=1 rm x"),
    *("setsid -f rm x", "nice -5 rm x", "ionice -c 3 rm x", "taskset -c 0 rm x", "timeout -s KILL 5 rm x"),
    *("stdbuf -oL rm x", "flock -w 1 f -c 'rm x'", "flock /l rm x", "script -qc 'rm x' /dev/null"),
    *("systemd-run --user --scope -p A=b -- rm x", "xvfb-run -a rm x", "busybox sh -c 'rm x'"),
    *("tmux -L a new -d -s n 'rm x'", "tmux send-keys -t n 'rm x' Enter", "screen -dmS name bash -c 'rm x'"),
    *("find . -execdir sh -c 'rm x' \\;", "fd -e txt -x rm {}", "xargs -0 -n1 rm", "xargs -I{} sh -c 'rm {}'"),
    *("parallel -j 4 rm {} ::: a", "watch -n 1 'rm x'", "ls | entr -r rm x", "strace -f -e trace=all rm x"),
    *("git bisect run rm x", "git submodule foreach 'rm x'", "git rebase -ix 'rm x' HEAD"),
    *("npx -y rm x", "npx -c 'rm x'", "npm exec -- rm x", "pnpm --dir a exec rm x", "yarn dlx rm x", "bunx rm x"),
    *("uv run --with a rm x", "uvx rm x", "uv tool run --from a rm x", "pipx run rm x", "poetry run rm x"),
    *("bundle exec rm x", "conda run -n a rm x", "bash -lc 'rm x'", "bash -oc pipefail 'rm x'", "dash -c 'rm x'"),
    "bash -c 'bash <<E\nrm x\nE\n'",
    *("bash -s a <<< 'rm x'", ". /dev/stdin <<< 'rm x'", "echo 'rm x' | bash", 'echo -e "ls\\nrm $x" | sudo sh'),
    *("printf 'ls\\nrm %s\\n' x | bash -s", "cat <<'E' | bash\nrm x\nE", "cat <<< 'rm x' | bash 2>&1"),
)

# None of these starts rm, and none runs anything that is not in the text.
STARTS_NOTHING: Final = (
    *("sudo -l rm", "sudo tee x <<< 'rm x'", "ssh -N rm", "ssh -NL 1:h:2 host <<< 'rm x'", "su -c ls <<< 'rm x'"),
    *("docker run rm", "docker build -t rm rm", "docker run --name rm i", "docker compose up rm", "kubectl get rm"),
    *("timeout --signal '' 5 ls rm", "tmux kill-session -t rm", "screen -r rm", "tmux new -s rm", "uv add rm"),
    *("npm run rm", "git cherry-pick -x rm", "git -c user.name=rm log", "find . -name rm -print", "trap - rm"),
    *("xargs grep -n rm", "xargs sh -c 'ls \"$@\"' rm", "parallel -j2 gzip {} ::: rm", "echo 'rm x' | tee f"),
    *(
        "echo ls rm | bash",
        "cat <<'E' | bash -c cat\nrm x\nE",
        "echo 'rm x' && bash x",
        "bash --version",
        "sed '1e rm' f",
    ),
    *(
        "echo rm x",
        "X=rm ls",
        "ls rm ./rmdir",
        "a=(rm x)",
        "[[ rm == rm ]]",
        "case rm in rm) ls ;; esac",
        "rm() { ls; }",
    ),
)

# Bash runs rm in each. The grammar alone does not find it, and its tree has no error.
MISREAD: Final = (
    "echo a | sort | uniq\nrm f 2>/dev/null",
    "(echo a | sort | uniq # c\n\n # d\n rm f 2>/dev/null)",
    "echo a | sort | uniq\nbash <<< 'rm x'",
    "echo a | sort | uniq\nbash <<E\nrm x\nE",
    "cd /tmp\n\\rm -rf x",
    "echo == # c\nrm x",
    "x=$(expr 1 == 2; rm x)",
    "(echo =~ && rm x)",
    "echo `echo a` `rm x`",
    'echo "`echo a` - `rm x`"',
    'echo "${x:-`rm y`}"',
    "echo ${x:-<(rm x)}",
    "true | X=1 2>/dev/null rm f",
    "true | X=1 >f Y=2 bash <<E\nrm x\nE",
    "cat <<E;rm x\na\nE\n",
    "cat <<E 2>&1 | rm x\na\nE\n",
    "cat <<E\n\n  $(rm x)\nE",
    "cat <<E\na `rm x`\nE",
    "time { rm x; }",
    "time for x in 1; do rm x; done",
    "! time if rm x; then :; fi",
    '$"rm" x',
)

# Bash accepts these, but the grammar does not.
UNREADABLE: Final = (
    "exec 3<>f",
    "ls !(*.py)",
    'for x do echo "$x"; done',
    "echo $((10#$x))",
    "cat <<E\na",
    "x=$(cat <<E\na\nE)",
    "echo -e ==",
)

# Bash does not accept these either.
BROKEN: Final = (
    *("echo 'open", 'echo "open', "echo $(open", "echo `open", "if a; then b", "a &&", "| a", ")", "{ a;"),
    *("for x in; do", "case x in", "a | | b", "f() {", "while; do a; done", "echo ${x", "a\n\\"),
)
