"""Commands that damage their shell: part A of HOSTILE.md, and more of that kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from bashes import LEAVES_SUCCESS_WITH, VERSION


@dataclass(frozen=True, slots=True)
class Damage:
    """A command, and what differs from "as bash at its prompt, and the next commands are exactly right".

    ``shell``: "lives"; "ends" (reported, with the status that bash itself ends with); "retires" (it could not run
    another command, so it is ended after this one, and that is reported); or "either".
    ``then``: "clean" (the next commands print exactly their own output) or "traced" (they also print what the user
    switched on, as at a prompt, and the whole sequence is compared with bash's).
    ``own``: "compared" with bash, or "open" (any result, for the reason in ``why``; the call must return).
    ``also_at_prompt``: a pattern that the reference prints at its prompt or at its end; removed from its output.
    """

    command: str
    shell: Literal["lives", "ends", "retires", "either"] = "lives"
    then: Literal["clean", "traced"] = "clean"
    own: Literal["compared", "open"] = "compared"
    also_at_prompt: bytes = b""
    status: int | None = None  # given where the reference never returns
    why: str = ""

    def __str__(self) -> str:
        return self.command[:60]


# Bash 5.0 ends when it evaluates such a text.
UNFINISHED: Final = "either" if (5, 0) <= VERSION < (5, 1) else "lives"
CLOSE_ALL: Final = 'for f in /proc/self/fd/*; do f=${f##*/}; if [ $f -gt 2 ]; then eval "exec $f>&-"; fi; done'

# HOSTILE.md A, in its order.
LISTED: Final = (
    Damage("exec >out.txt"),
    Damage("exec 2>/dev/null"),
    Damage("exec 1>&-"),
    Damage("exec 0<&-"),
    Damage(CLOSE_ALL, "either"),
    Damage('for f in /proc/self/fd/*; do eval "exec ${f##*/}>&-"; done', "either"),
    Damage("trap : ERR; set -e; false; echo no", "ends"),
    Damage("set -u"),
    Damage("set -u; echo $nope; echo no"),
    Damage("set -v", then="traced"),
    Damage("set -n"),
    Damage("set -o posix"),
    Damage("set -k"),
    Damage(
        "set -t",
        "ends",
        status=LEAVES_SUCCESS_WITH,
        why="bash leaves with the status of our whole line, which `!` has turned round",
    ),
    Damage("set -r", "retires"),
    Damage("set -r; (exit 5)", "retires"),
    Damage("IFS=0123456789"),
    Damage("PATH="),
    Damage("unset PATH"),
    Damage("PS1='$(echo hi)> '; PS2='>>>'; PS4='$(echo X >&2)+'", also_at_prompt=rb"hi> "),
    Damage("PROMPT_COMMAND="),
    Damage("unset PROMPT_COMMAND"),
    Damage("PS0='ps0 '"),
    Damage("trap 'echo bye' EXIT", also_at_prompt=rb"bye\n"),
    Damage("trap 'echo dbg' DEBUG", then="traced"),
    Damage("trap 'echo errtrap' ERR", then="traced"),
    Damage("trap 'echo ret' RETURN", then="traced"),
    Damage("shopt -s extdebug"),
    Damage("enable -n printf eval read builtin"),
    Damage("enable -n ."),
    Damage("enable -n exec"),
    Damage("eval() { :; }"),
    Damage("builtin() { :; }"),
    Damage("command() { :; }"),
    Damage("exec() { :; }"),
    Damage("set() { :; }"),
    Damage("shopt -s expand_aliases; alias printf=false eval=false builtin=false exec=false"),
    Damage("stty sane -F /dev/tty"),
    Damage("exec bash", "ends"),
    Damage("exec sleep 0.2", "ends"),
    Damage("exit 7", "ends"),
    Damage("return 3"),
    Damage("break"),
    Damage("kill -9 $$", "ends"),
    Damage("kill -STOP $$", status=0, why="the reference stays stopped; we wake it up"),
    Damage("kill -INT $$"),
    Damage("kill -HUP $$", "ends"),
    Damage("mkdir gone && cd gone && rm -rf ../gone"),
    Damage("ulimit -n 3", "retires"),
    Damage("ulimit -v 20000"),
    Damage('echo "unterminated'),
    Damage("echo 'unterminated"),
    Damage("cat <<EOF\nbody"),
    Damage("if true; then", UNFINISHED),
    Damage(")"),
    Damage("cat"),
    Damage('read x; echo "rc=$? x=$x"'),
    Damage("sleep 100 & echo started"),
    Damage(
        "(sleep 0.3; echo late; echo latee >&2) & echo now", own="open", why="whether bash has ended before is a race"
    ),
    Damage("coproc cat"),
    Damage("for i in {1..200}; do sleep 0.05 & done; wait"),
    Damage("LANG=C LC_ALL=ja_JP.UTF-8; LC_ALL=xx"),
    Damage("export BASH_ENV=/nonexistent"),
    Damage("TMOUT=1"),
    Damage("cat /proc/self/fd/*", own="open", why="it reads its own stdout, which never ends: a terminal, or its pipe"),
    Damage("POSIXLY_CORRECT=1"),
    Damage("shopt -s nullglob failglob dotglob"),
    Damage("shopt -s login_shell restricted_shell"),
    Damage("umask 777"),
    Damage("cd /; cd -"),
    Damage("hash -p /bin/false true"),
    Damage("printf 'no newline'; printf 'err no nl' >&2"),
    Damage(r"printf '\36deadbeef 0 x /\37'"),
    Damage("BASH_XTRACEFD=1; set -x", then="traced"),
    Damage("exec 5>&1 6>&2 >/dev/null 2>&1"),
    Damage("trap '' INT TERM HUP TSTP TTIN TTOU CHLD"),
    Damage("kill -STOP 0", status=0, why="the reference stays stopped; we wake it up"),
    Damage("echo <(foo", own="open", why="since bash 5.2 its eval gives 1 for it where its prompt gives 2"),
    Damage("disown -a; wait"),
    Damage("unset -f x; unset IFS"),
    Damage("cat /proc/$$/fd/0 & sleep 0.05; kill %1", own="open", why="whether the job still is there is a race"),
)

MORE: Final = (
    # Streams and descriptors.
    Damage("exec 2>&-"),
    Damage("exec >&2"),
    Damage("exec 0</nonexistent"),
    Damage("exec 10</dev/null"),
    Damage("exec 10>&-"),
    Damage("exec 11>&- 12>&- 13>&-"),
    Damage("exec 10<&1 11>&2; exec 12<&10"),
    Damage("echo >&2 10>file; echo ${x:-10>} 19<&0"),
    Damage('n=10; eval "exec $n>&-"', "either"),
    Damage('for i in {3..60}; do eval "exec $i</dev/null"; done'),
    Damage("exec {x}>&1 {y}>&2"),
    Damage("exec 255>&- 3>&-"),
    Damage("ulimit -n 15", "retires"),
    Damage("ulimit -n 40"),
    Damage("ulimit -f 0"),
    Damage("ulimit -c 0 -s 256"),
    # Options.
    Damage("trap : ERR; set -e", then="traced"),
    Damage("trap : ERR; set -euo pipefail", then="traced"),
    Damage("set -x", then="traced"),
    Damage("set -xv", then="traced"),
    Damage("BASH_XTRACEFD=2; set -x", then="traced"),
    Damage("exec 7>trace; BASH_XTRACEFD=7; set -x"),
    Damage("set -f; set -C; set +B; set -P"),
    Damage("set -a; zz=0"),
    Damage("set -m"),
    Damage("set -b; set -m; sleep 0.01 & wait"),
    Damage("set -o ignoreeof; IGNOREEOF=0", also_at_prompt=rb'Use "exit" to leave the shell.\n'),
    Damage("set -E; set -T; trap 'echo t $?' ERR RETURN", then="traced"),
    Damage("set -p"),
    Damage("set -o history; set -H"),
    Damage("set -o vi"),
    Damage("set -o emacs"),
    Damage("shopt -u interactive_comments; echo a # b"),
    Damage("shopt -s compat31 nocasematch nocaseglob"),
    Damage("shopt -s lastpipe huponexit checkjobs checkwinsize"),
    Damage("shopt -s promptvars; PS1='$(kill -9 $$)'", "ends", own="open", why="the prompt itself is the killer"),
    Damage("shopt -u execfail; exec /nonexistent"),
    Damage("shopt -u sourcepath expand_aliases progcomp"),
    Damage("set -o posix; export POSIXLY_CORRECT=y; set +o posix"),
    # Names that could break our own code in the shell.
    Damage("declare() { :; }"),
    Damage("unset() { :; }; return() { :; }; false"),
    Damage("local() { :; }; readonly() { :; }; printf() { :; }; test() { :; }"),
    Damage(":() { exit 1; }"),
    Damage("enable -n declare typeset local"),
    Damage("enable -n builtin eval command declare unset return printf exec set trap"),
    Damage("enable -n :  true false test ["),
    Damage("for b in $(compgen -b); do enable -n $b 2>/dev/null; done"),
    Damage("alias '<'=echo 2>/dev/null"),
    Damage("alias declare=: unset=: return=: zz=false"),
    Damage("alias {='echo ;' }="),
    Damage("shopt -s expand_aliases; alias echo=false; unalias -a"),
    Damage('command_not_found_handle() { echo "nf $1"; return 3; }; nosuch'),
    Damage("command_not_found_handle() { exit 9; }"),
    Damage("_() { exit 9; }; s() { exit 9; }"),
    # Variables that bash itself reads.
    Damage("readonly PIPESTATUS"),
    Damage("declare -n PIPESTATUS=x 2>/dev/null; PIPESTATUS=(9 9)"),
    Damage("PWD=/fake; OLDPWD=/fake"),
    Damage("unset PWD"),
    Damage("readonly PWD; cd /"),
    Damage("declare -n PWD=x; x=5"),
    Damage("PWD=$'a\\nb\\036c'"),
    Damage("BASH_ARGV0=zsh"),
    Damage("BASH_ARGV0=$'a very long name\\nthat goes on and on'"),
    Damage("IFS="),
    Damage("IFS=$' \\t\\n\\x01/-'"),
    Damage("GLOBIGNORE='*'; FIGNORE=x; HOSTFILE=/nonexistent"),
    Damage("export ENV=/nonexistent SHELLOPTS BASHOPTS"),
    Damage("MAILCHECK=0; MAIL=x; touch x"),
    Damage("PROMPT_COMMAND='echo PC; echo PE >&2'", also_at_prompt=rb"P[CE]\n"),
    Damage("PROMPT_COMMAND='(exit 3)'"),
    Damage("PROMPT_COMMAND='exit 3'", "ends"),
    Damage("LC_ALL=C"),
    Damage("LANGUAGE=de; LC_MESSAGES=de_DE.UTF-8", own="open", why="a warning, or none: it depends on the machine"),
    Damage("FUNCNEST=1; f() { g; }; g() { :; }; f"),
    Damage("TIMEFORMAT='%'; EXECIGNORE='*'"),
    # Traps.
    Damage("trap 'exit 9' ERR; false", "ends"),
    Damage("trap false DEBUG"),
    Damage("trap 'return 1' DEBUG", then="traced"),
    Damage("trap 'cd /' DEBUG"),
    Damage("trap 'zz=0; unset zz' DEBUG", then="traced"),
    Damage("trap 'set --; IFS=x' DEBUG"),
    Damage("shopt -s extdebug; trap false DEBUG", "either"),
    Damage("shopt -s extdebug; trap 'return 2' DEBUG", "either"),
    Damage("trap 'exit 5' INT; kill -INT $$", "ends"),
    Damage("trap 'echo int' INT; kill -INT $$"),
    Damage("trap 'echo chld' CHLD; set -m", own="compared", then="traced"),
    Damage("trap 'exec 1>&- 2>&-' USR1; kill -USR1 $$"),
    Damage("trap '' EXIT INT HUP; trap 'sleep 100' TERM"),
    # Signals, ends, and crashes.
    Damage("exit", "ends"),
    Damage("exit 300", "ends"),
    Damage("exit abc", "lives" if VERSION >= (5, 3) else "ends", why="bash 5.3 stays where it is given no number"),
    Damage("exec true", "ends"),
    Damage("exec nosuchcommand"),
    Damage("logout"),
    Damage("kill -TERM $$; kill -QUIT $$; kill -TTIN $$; kill -TTOU $$; kill -TSTP $$", status=0, why="all ignored"),
    Damage("kill -ALRM $$", "ends"),
    Damage("kill -USR1 $$", "ends"),
    Damage("kill -PIPE $$", "ends"),
    Damage("kill -SEGV $$", "ends"),
    # Before bash 5.2 this fails without job control.
    Damage("suspend -f 2>/dev/null || kill -STOP $$", status=0, why="the reference stays stopped; we wake it up"),
    Damage("ulimit -s 512; f() { f; }; f", "ends"),
    Damage("ulimit -t 1; while :; do :; done", "ends"),
    Damage("exec 9<>/dev/tty; echo x >/dev/null"),
    # Directories.
    Damage("mkdir $'n\\nl' && cd $'n\\nl'"),
    Damage("mkdir $'\\377\\036x' && cd $'\\377\\036x'"),
    Damage("mkdir 'bash: x: No such file or directory' && cd bash*"),
    Damage(f"d={'d' * 190}; for i in {{1..30}}; do mkdir $d && cd $d; done"),
    Damage("mkdir d; cd d; mv ../d ../e; chmod 0 ../e"),
    Damage("cd /proc/self"),
    Damage("pushd / >/dev/null; pushd /usr >/dev/null; dirs -c"),
    # The terminal.
    Damage("stty -F /dev/tty raw; stty -F /dev/tty echo; stty -F /dev/tty intr x"),
    Damage("stty sane </dev/tty; reset </dev/tty >/dev/null 2>&1"),
    Damage("stty -F /dev/tty opost onlcr tostop"),
    Damage("stty -F /dev/tty cols 1 rows 1"),
    Damage("printf 'typed into the terminal\\n' >/dev/tty"),
    # Unfinished text.
    Damage("echo $((1+"),
    Damage("echo ${x"),
    Damage("case x in", UNFINISHED),
    Damage("f() {", UNFINISHED),
    Damage("[[ a =="),
    Damage("cat <<'A' <<B\nx\nA\ny"),
    Damage("echo a \\\n"),
    Damage("\n\n"),
    Damage("# only a comment"),
    Damage("}"),
    Damage(";;"),
    Damage("echo $(echo 'x"),
)
