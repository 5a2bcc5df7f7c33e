"""Commands as coding agents run them, one call after the other, and a last one that shows whether the state is right.

All run in an empty directory. ``CANNOT`` names those that build on what no fresh shell can have.
"""

from typing import Final, NamedTuple


class Sequence(NamedTuple):
    """The calls in their order, and the last one, whose output depends on the state."""

    name: str
    steps: tuple[str, ...]
    check: str


_NVM: Final = r"""cat >nvm.sh <<'END'
NVM_DIR="${NVM_DIR:-$PWD/.nvm}"
nvm_echo() { command printf '%s\n' "$*"; }
nvm_err() { nvm_echo "$@" >&2; }
nvm_version_dir() { nvm_echo "${NVM_DIR}/versions/node"; }
nvm_match() {
  local pattern="${1-}" found=''
  case "${pattern}" in
    v*) found="${pattern}" ;;
    [0-9]*) found="v${pattern}" ;;
    *) nvm_err "N/A: version \"${pattern}\""; return 3 ;;
  esac
  nvm_echo "${found}"
}
nvm() {
  case "${1-}" in
    install) mkdir -p "$(nvm_version_dir)/$(nvm_match "$2")/bin" ;;
    use) NVM_BIN="$(nvm_version_dir)/$(nvm_match "$2")/bin"; export NVM_BIN PATH="$NVM_BIN:$PATH"; NVM_CURRENT="$2" ;;
    current) nvm_echo "${NVM_CURRENT:-none}" ;;
    *) nvm_err usage; return 127 ;;
  esac
}
END"""

_ALL: Final = {
    "a project's directory": (
        "mkdir -p app/src/lib",
        "cd app",
        "cd src",
        "cd lib; cd ..",
        'echo "${PWD##*/} ${OLDPWD##*/}"',
    ),
    "a virtual environment": (
        *("python3 -m venv --without-pip .venv", ". .venv/bin/activate", "export APP=web", "python -c 'print(1)'"),
        'command -v python | grep -c "$PWD/.venv"; echo "$APP ${VIRTUAL_ENV##*/}"',
    ),
    "leave a virtual environment": (
        *("python3 -m venv --without-pip .venv", "before=$PATH", ". .venv/bin/activate", "mkdir -p d; cd d"),
        '[[ $PATH != "$before" ]] && deactivate; [[ $PATH == "$before" ]] && echo left; echo "${VIRTUAL_ENV-none}"',
    ),
    "nvm": (
        _NVM,
        *(". ./nvm.sh", "nvm install 20", "nvm use 20", "export NODE_ENV=test"),
        'echo "$(nvm current) $NODE_ENV ${NVM_BIN##*/node/}"; [[ $PATH == "$NVM_BIN":* ]]; echo $?',
    ),
    "exports": (
        *(
            "export DATABASE_URL=postgres://localhost/x",
            "export DEBUG=1 LEVEL=info",
            "export LEVEL=warn",
            "unset DEBUG",
        ),
        'printenv DATABASE_URL LEVEL; echo "${DEBUG-off}"',
    ),
    "a .env file": (
        *(
            "printf '%s\\n' 'KEY=\"a b\"' 'MODE=dev' >.env",
            "set -a; . ./.env; set +a",
            "MODE=prod",
            "mkdir -p web; cd web",
        ),
        'printenv KEY MODE; echo "${PWD##*/}"',
    ),
    "a value of several lines": (
        *("export MESSAGE=$'first\\nsecond $HOME `x`'", "body=$'{\\n  \"a\": [1, 2]\\n}'", "length=${#body}", "true"),
        'printenv MESSAGE; echo "$body" | wc -l; echo $length',
    ),
    "a program of its own": (
        *(
            "mkdir -p bin",
            "printf '#!/bin/sh\\necho hello $1\\n' >bin/hello; chmod +x bin/hello",
            "PATH=$PWD/bin:$PATH",
        ),
        *("hash -r; cd /", "hello again; echo ${PWD}"),
    ),
    "helper functions": (
        *("LEVEL=info", 'log() { printf \'[%s] %s\\n\' "$LEVEL" "$*"; }', 'warn() { LEVEL=warn log "$@"; }', "cd /usr"),
        'warn low; log "in ${PWD}"',
    ),
    "a library": (
        "cat >lib.sh <<'E'\n_lib_data=()\nlib_add() { _lib_data+=(\"$@\"); }\nlib_size() { echo ${#_lib_data[@]}; }\nE",
        *(". ./lib.sh", "lib_add one two", "lib_add three", "lib_size; declare -p _lib_data"),
    ),
    "an exported function": (
        *(
            'greet() { echo "hi $1 from $NAME"; }',
            "export NAME=me",
            "export -f greet",
            "cd /",
            "bash -c 'greet you'; pwd",
        ),
    ),
    "a function with a here document": (
        *("usage() {\ncat <<EOF\nusage: $tool FILE\nEOF\n}", "tool=deploy", "verbose=1", "mkdir -p out; cd out"),
        'usage; echo "$verbose ${PWD##*/}"',
    ),
    "counters of a test run": (
        'check() { if "$@"; then pass=$((pass + 1)); else fail=$((fail + 1)); fi; }',
        *("pass=0 fail=0", "check true; check test 1 = 1", "check false", 'check true; echo "$pass $fail"'),
    ),
    "an integer": ("declare -i n=0", "n+=5", "n+=n", "n=n*3+1", "n+=1; echo $n"),
    "an array of files": (
        *("touch a.py b.py c.txt", "files=(*.py)", "files+=(c.txt)", "unset 'files[0]'"),
        'echo "${#files[@]} ${!files[*]} ${files[*]}"',
    ),
    "rows of a table": (
        *("printf 'n,v\\na,1\\nb,22\\n' >t.csv", "IFS= read -r header <t.csv", "mapfile -t rows < <(tail -n +2 t.csv)"),
        *('total=0; for r in "${rows[@]}"; do ((total += ${r#*,})); done', 'echo "$header ${#rows[@]} $total"'),
    ),
    "ports by name": (
        *("declare -A port=([web]=80)", "port[db]=5432", "port['my app']=8080", "unset 'port[web]'"),
        'echo "${#port[@]} ${port[db]} ${port[my app]} ${port[web]-none}"',
    ),
    "a reference": (
        "staging=s.example; live=l.example",
        "declare -n target=staging",
        "target=t.example",
        "x=1",
        "echo $staging $target",
    ),
    "fixed settings": (
        *("readonly ROOT=/srv", "declare -r VERSION=1.2", "name=app-$VERSION", "cd /"),
        '(VERSION=2) 2>/dev/null || echo "fixed $VERSION $ROOT $name"',
    ),
    "aliases": (
        "alias ll='ls -l'",
        "alias g='grep -n'",
        "alias py=python3",
        "unalias py",
        "alias; printf 'a\\nb\\n' | g b",
    ),
    "failures of pipelines": (
        "set -o pipefail",
        "x=1",
        "mkdir -p p; cd p",
        "true",
        'false | true; echo "$? ${PWD##*/}"',
    ),
    "a strict shell": (
        "set -u",
        "set -o noclobber",
        "echo one >file",
        "x=1",
        '(echo two >file) 2>/dev/null || echo "kept $- " | tr -d hims',
    ),
    "patterns": (
        *(
            "shopt -s nullglob globstar",
            "mkdir -p a/b; touch a/b/x.c",
            "shopt -s extglob",
            'strip() { echo "${1##+(0)}"; }',
        ),
        "echo **/*.c *.none; strip 0007",
    ),
    "private files": ("umask 077", "mkdir -p keys", "cd keys", "touch a", "touch b; stat -c %a b; umask"),
    "a stack of directories": (
        *("mkdir -p one two three", "pushd one >/dev/null", "pushd ../two >/dev/null", "pushd ../three >/dev/null"),
        'popd >/dev/null; popd >/dev/null; echo "${PWD##*/} ${#DIRSTACK[@]}"',
    ),
    "arguments": ("set -- --verbose in.txt 'out file.txt'", "shift", "count=$#", "cd /", 'echo "$count $# $2"'),
    "fields": (
        "IFS=,",
        "row=a,b,c",
        'read -r -a cols <<<"$row"',
        "n=${#cols[@]}",
        'for c in $row; do printf "<%s>" $c; done; echo $n',
    ),
    "a signal's trap": (
        "count=0",
        "trap 'count=$((count + 1))' USR1",
        "kill -USR1 $$",
        "kill -USR1 $$",
        "kill -USR1 $$; echo $count",
    ),
    "a trap at the end": (
        "trap 'echo bye' EXIT",
        "work=w",
        "mkdir -p w",
        "cd w",
        'trap -p EXIT; echo "$work ${PWD##*/}"',
    ),
    "a trap for errors": ("trap 'errors=$((errors + 1))' ERR", "errors=0", "false", "false", "false; echo $errors"),
    "another language": (
        "unset LANG",
        "export LC_ALL=C",
        "x=$'\\xe9'",
        "y=é",
        "printf 'b\\nA\\n' | sort | head -1; echo ${#x} ${#y} ${LANG-unset}",
    ),
    "no proxy": (
        "export http_proxy=http://p:1 no_proxy=localhost",
        "unset http_proxy",
        "export no_proxy='*'",
        "x=1",
        'echo "${http_proxy-none} $no_proxy"',
    ),
    "credentials": (
        "export PGHOST=db PGUSER=me",
        "export PGPASSWORD='p$w'",
        'dsn="host=$PGHOST user=$PGUSER"',
        "x=1",
        'echo "$dsn"; printenv PGPASSWORD',
    ),
    "flags of a build": (
        *("mkdir -p build; cd build", "export CC=cc CFLAGS='-O2 -g'", 'configure() { echo "$CC $CFLAGS $*"; }'),
        *("options=(--prefix=/opt 'a b')", 'configure "${options[@]}"; echo "${PWD##*/}"'),
    ),
    "limits": ("ulimit -Sn 256", "ulimit -Sc 0", "x=1", "cd /", "ulimit -Sn; pwd"),
    "a prompt": ("PS1='(x) '", "PS4='+ $LINENO '", "x=1", "cd /usr", 'echo "$PS1|$PS4|$x|$PWD"'),
    "a link": (
        "mkdir -p real; ln -sfn real link",
        "cd link",
        "touch f",
        "here=$PWD",
        '[[ $PWD == "$here" ]] && echo "${PWD##*/}"; ls',
    ),
    "a scratch directory": (
        "work=$(mktemp -d ./w.XXXXXX)",
        'cd "$work"',
        "echo data >f",
        "n=1",
        "cat f; echo ${#work} $n",
    ),
    "a search path": (
        "mkdir -p src/core",
        "CDPATH=$PWD/src",
        "cd /",
        "cd core >/dev/null",
        'cd core >/dev/null; echo "${PWD##*/}"',
    ),
    "a server in the background": (
        "sleep 300 & server=$!",
        "port=8000",
        "cd /",
        "true",
        "kill -0 $server 2>/dev/null; echo $? $port",
    ),
    "an open file": ("exec 3>>log", "echo one >&3", "n=1", "echo two >&3", "echo three >&3; wc -l <log; echo $n"),
    "a coprocess": (
        "coproc CAT { cat; }",
        "n=1",
        'echo hello >&"${CAT[1]}"',
        "true",
        'read -r -t 5 line <&"${CAT[0]}"; echo $line $n',
    ),
}
SEQUENCES: Final = tuple(Sequence(name, calls[:-1], calls[-1]) for name, calls in _ALL.items())
# They build on a process or an open file.
CANNOT: Final = frozenset({"a server in the background", "an open file", "a coprocess"})
