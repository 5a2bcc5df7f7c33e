"""No output and no process can end or fake a result, or get into another one."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from bashes import VERSION
from marks import answers
from sandboxes import USERS, open_place, run_as
from system import PYTHON, SOAK, wait_until

from shellsession import Session
from shellsession.engine.kernel import proc

NewSession = Callable[..., Session]

_CAP_SYS_PTRACE = 19  # <linux/capability.h>
HEX = "0123456789ab" * 2
ANSWER = f"bash: /dev/null/{HEX} 0 0 himBHs /{HEX}: Not a directory"
FAKES = [
    r"\36deadbeef 0 x /\37",
    rf"\36{HEX} 0 hB /tmp\37",
    rf"\36{HEX} 0 hB /tmp\37" * 50,
    rf"{ANSWER}\n",
    rf"\n{ANSWER}\n{ANSWER}",
    rf"/{HEX} 0 0 - //{HEX}",
    rf"\036\037\0\0{ANSWER}\r\n",
]
# The directory of all sessions of this host, found as anybody finds it who runs in one. (Not those of other hosts: what
# runs beside these tests is not ours to disturb.)
PLACES = "${XDG_RUNTIME_DIR:-/nonexistent} /run/user/$UID /dev/shm /tmp ${TMPDIR:-/nonexistent}"
HERE = f"d=$(find {PLACES} -maxdepth 3 -path '*shellsession*' -name \"*-$PPID-*\" 2>/dev/null | head -1)"


@pytest.mark.parametrize("on_terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("fake", FAKES, ids=range(len(FAKES)))
def test_output_that_looks_like_a_mark_is_output(fake: str, on_terminal: bool, sh: Session) -> None:
    for target in ("1", "2"):
        result = sh.run(f"printf '{fake}' >&{target}; printf end >&{target}; (exit 5)", tty=on_terminal)
        said = result.stdout_bytes if target == "1" else result.stderr_bytes
        assert said.endswith(b"end")
        assert len(said) > 15
        assert (result.exit_code, result.outcome) == (5, "exited")
    answers(sh)


@pytest.mark.parametrize(
    "everything",
    [
        "env; declare -p; set; declare -f; alias; trap -p; history; jobs -l",
        "cat /proc/$$/environ /proc/$$/cmdline /proc/$$/maps /proc/$$/status /proc/self/environ",
        "ls -l /proc/$$/fd /proc/self/fd; cat /proc/$$/fdinfo/*; for f in /proc/$$/fd/*; do readlink $f; done",
        "for f in /proc/$$/fd/*; do timeout 0.05 cat $f; done </dev/null",
        f"{HERE}; find $d | while read f; do echo $f; timeout 0.05 cat $f; done",
        "strings -n 8 /proc/$$/mem 2>/dev/null; tr '\\0' '\\n' </proc/$PPID/cmdline",
    ],
    ids=["variables", "process", "descriptors", "contents of descriptors", "runtime files", "parent"],
)
def test_whatever_a_command_reads_and_prints_its_status_is_true(everything: str, sh: Session) -> None:
    first = sh.run(f"{everything}; {{ {everything}; }} >&2; (exit 5)", timeout=15)
    assert (first.exit_code, first.outcome) == (5, "exited"), first
    answers(sh)


@pytest.mark.parametrize("user", USERS)
def test_a_child_reads_bashs_memory_only_where_it_may_use_ptrace_on_bash(user: str) -> None:
    """There the nonce is. Bash itself may always read it, and so answer for its own shell."""

    def scenario() -> None:
        scope = int(proc.read("/proc/sys/kernel/yama/ptrace_scope") or b"0")
        traces_any = int(proc.field("self", b"CapEff"), 16) >> _CAP_SYS_PTRACE & 1
        with Session(cwd="/", timeout=20) as sh:
            assert sh.run("(: </proc/$$/mem)").ok == (scope == 0 or (traces_any and scope < 3))
            # Who is in another user namespace has no right to it, whoever he was.
            if sh.run("unshare --user true").ok:
                assert "Permission denied" in sh.run("unshare --user bash -c ': </proc/$1/mem' - $$").stderr

    run_as(user, scenario)


def links_of_this_process() -> set[str]:
    return {os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path)}


WRITER = f"""
import glob, os, stat, sys
spared = open("spared").read().split("\\n")
fake = {ANSWER.encode()!r} + b"\\n\\x1e{HEX} 0 x /\\x1f"
shell, host, *directories = sys.argv[1:]
print("started", flush=True)
while True:
    names = [name for top in directories for name in glob.glob(top + "/**", recursive=True)]
    for pid in (shell, "self", host):
        for name in glob.glob(f"/proc/{{pid}}/fd/*"):
            try:
                if os.readlink(name) not in spared:
                    names.append(name)
            except OSError:
                pass
    for name in names:
        for mode in (os.O_WRONLY, os.O_RDONLY):
            try:
                fd = os.open(name, mode | os.O_NONBLOCK | os.O_NOCTTY)
            except OSError:
                continue
            try:
                # A file outside our directories is one that the host has open just now: a module, the tests' own.
                # Incoming of what was opened: by now the name may stand for another file than when it was listed.
                if not name.startswith("/proc/") or not stat.S_ISREG(os.fstat(fd).st_mode):
                    os.write(fd, fake) if mode else os.read(fd, 100)
            except OSError:
                pass
            os.close(fd)
"""


@pytest.mark.parametrize("on_terminal", [True, False], ids=["terminal", "pipe"])
def test_a_process_that_writes_and_reads_wherever_it_can_fakes_nothing(
    on_terminal: bool, new_session: NewSession, place: Path
) -> None:
    # What the tests' own process had before, and how it talks to who started it, is not at stake.
    (place / "spared").write_text("\n".join(links_of_this_process()), encoding="utf-8")
    (place / "writer.py").write_text(WRITER, encoding="utf-8")
    (place / "started").touch()  # else made by the job's own process, and that after the call perhaps
    sh = new_session(tty=on_terminal, timeout=10)
    assert sh.run(f"{HERE}; {PYTHON} writer.py $$ $PPID $d >started 2>/dev/null & writer=$!").outcome == "exited"
    wait_until(lambda: (place / "started").read_text(encoding="utf-8"), "it writes")
    for number in range(40):
        result = sh.run(f"x={number}; echo said {number}; (exit {number})")
        assert (result.exit_code, result.outcome, result.state_kept) == (number, "exited", True)
    sh.run("kill -9 $writer; wait $writer")
    assert sh.run("echo $x").stdout == "39\n"
    answers(sh)


def test_a_mark_written_by_the_shell_to_every_descriptor_is_none(sh: Session) -> None:
    fake = f"for fd in {{3..40}}; do echo '{ANSWER}' >&$fd; done 2>/dev/null; echo end; (exit 5)"
    result = sh.run(fake, timeout=5)
    assert (result.stdout, result.exit_code, result.outcome) == ("end\n", 5, "exited")
    answers(sh)


@pytest.mark.parametrize("status", [0, 1, 127])
def test_nothing_that_is_said_makes_a_command_run_twice(status: int, sh: Session, place: Path) -> None:
    complaints = "; ".join(
        f'echo "bash: {what}" >&$fd'
        for what in ("$(readlink /proc/self/fd/2): No such file", "builtin: command not found", "eval: not builtin")
    )
    sh.run(
        f"echo once >>times; for fd in 2 {{3..40}}; do {complaints}; done 2>/dev/null; echo bash: eval: no >&2;"
        f" echo bash: builtin: no >&2; (exit {status})"
    )
    assert (place / "times").read_text(encoding="utf-8") == "once\n"
    answers(sh)


# What a DEBUG trap saw of the line by which its command was run, as far as that can be known of a mark: $m.
# (Its own text has no zzz: before 5.1 the trap runs once more behind it.)
SEEN = "H=; trap '[[ $H ]] || { q=$(history 1); [[ $q == *zz'z'* ]] && H=$q; }' DEBUG"
READ = 'trap - DEBUG; : zzz; m=${H##*/dev/null/}; m=${m%%[^0-9a-f]*}; echo "$m" >seen'


def test_what_history_shows_to_a_debug_trap_forges_no_mark(sh: Session, place: Path) -> None:
    sh.run("set -o history")
    sh.run(SEEN)
    result = sh.run(f'{READ}; echo "bash: /dev/null/$m 0 5 999 hi /tmp/$m: no" >&10; false')
    assert (place / "seen").read_text().strip()
    assert (result.exit_code, result.outcome) == (1, "exited")
    answers(sh)


@pytest.mark.parametrize("status", ["true", "false", "exit 1 2", "(exit 5)"])
@pytest.mark.parametrize("noise", [0, 1 << 17], ids=["alone", "before much noise"])
def test_what_history_shows_to_a_debug_trap_runs_no_command_twice(
    status: str, noise: int, sh: Session, place: Path
) -> None:
    sh.run("set -o history")
    sh.run(SEEN)
    # Short: where it does not fit in one read, a file has it, and the trap sees nothing.
    forged = 'for s in $m ${m}0 ${m}0/; do echo "bash: /dev/null/$s: no" >&10; done'
    result = sh.run(f"{READ}; {forged}; printf '%0{noise}d' 0 >&10; echo ran >>runs; {status}")
    assert (place / "runs").read_text() == "ran\n"
    assert (result.outcome, result.state_kept, result.ran) == ("shell_exited", False, True)
    answers(sh)


def test_tracing_through_a_saved_stream_enters_no_other_result(sh: Session) -> None:
    sh.run("exec 7>&1; BASH_XTRACEFD=7; set -x")
    for _ in range(5):
        answers(sh)
    sh.run("set +x; exec 7>&-")
    answers(sh)


def test_what_the_shell_writes_to_an_earlier_stream_belongs_to_the_earlier_call(sh: Session) -> None:
    sh.run("exec 5>&1 6>&2")
    result = sh.run("echo old >&5; echo older >&6; echo new; echo newer >&2")
    assert (result.stdout, result.stderr) == ("new\n", "newer\n")
    job = next(job for job in sh.jobs() if job.command == "exec 5>&1 6>&2")
    wait_until(lambda: (job.stdout, job.stderr) == ("old\n", "older\n"), "it is in that call's record")
    answers(sh)


def test_the_noise_of_a_job_is_never_in_another_result(sh: Session) -> None:
    noise = "while :; do echo noise; echo noise >&2; done"
    sh.run(f"({noise}) & ({noise}) & (setsid bash -c '{noise}') & echo started")
    for number in range(60 if SOAK else 20):
        result = sh.run(f"echo {number}; echo e{number} >&2")
        assert (result.stdout, result.stderr) == (f"{number}\n", f"e{number}\n")


def test_what_a_job_writes_to_the_terminal_is_in_no_other_result(sh: Session) -> None:
    sh.run("(while :; do echo noise; done >/dev/tty) & echo started")
    for number in range(60):
        assert sh.run(f"echo {number}").stdout == f"{number}\n"


def test_what_a_call_learns_of_itself_does_not_forge_its_mark(sh: Session) -> None:
    sh.run("false")
    verdicts = " ".join(f"'0 0{words} /x'" for words in ("", " himBHs", " himBHs braceexpand:emacs"))
    forge = f'for a in {verdicts}; do echo "bash: /dev/null/$n $a/$n: Not a directory" >&$fd; done'
    forge = f"for fd in {{3..20}}; do {forge}; done 2>/dev/null"
    result = sh.run(f"for n in ${{_#s}} $BASH_COMMAND; do {forge}; done; echo end; (exit 5)")
    assert (result.stdout, result.exit_code) == ("end\n", 5)
    answers(sh)


@pytest.mark.parametrize(
    "damage",
    [
        "rm -rf $d/*",
        "rm -rf $d",
        "rm -rf $d; mkdir -m 700 $d; touch $d/{1..9}",
        "for f in $d/* $d/*/*; do rm -rf $f; echo junk >$f; done",
        "for f in $d/* $d/*/*; do rm -rf $f; mkdir $f; done",
        "for f in $d/* $d/*/*; do rm -rf $f; ln -s $PWD/elsewhere $f; done",
        "chmod 000 $d $d/*",
        "rm -f $d/*/*",
        "for f in $d/*/*; do rm -f $f; echo junk >$f; done",
        "for f in $d/*/*; do rm -f $f; mkdir $f; mkfifo ${f%-*}-{2..9}; mkdir ${f%/*}/text; done",
        "for f in $d/*/*; do mv $f $f.moved; done",
    ],
)
def test_damage_to_our_files_is_healed_or_announced(damage: str, new_session: NewSession) -> None:
    sh = new_session(tty=False, timeout=10)
    assert sh.run(f"{HERE}; [ -d $d ] && chmod -R u+r $d && ls $d/*/*").stdout
    sh.run(damage)
    answers(sh)
    assert sh.run(f"echo {'x' * 5000}", stdin="typed").stdout == "x" * 5000 + "\n"
    answers(sh)


@pytest.mark.parametrize("user", USERS)
def test_a_directory_that_was_shut_shuts_out_no_later_session_and_goes_at_the_end(
    user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root is shut out only on a branch; an ordinary user is, from what is his own."""

    def scenario() -> None:
        os.environ["XDG_RUNTIME_DIR"] = runtime
        with Session(cwd="/") as first, Session(cwd="/") as second:
            place = os.path.dirname(first.open().engine.live().slot.directory)
            assert place.startswith(runtime)  # that of other tests must not be shut
            assert first.run(f"chmod 000 {place}/* {place}; chmod 000 {os.path.dirname(place)}").exit_code == 0
            answers(second)
            assert first.run(f"echo {'x' * 5000}").stdout == "x" * 5000 + "\n"
            first.run(f"chmod 000 {place}/* {place}; chmod 000 {os.path.dirname(place)}")
        home, name = os.path.split(place)
        assert not os.path.exists(home) or name not in os.listdir(home)

    gc.collect()  # a session of an earlier test keeps the directory that this process has
    with open_place(user) as made:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime := str(made))
        run_as(user, scenario)


def test_no_output_can_have_a_stranger_reported_as_killed(sh: Session) -> None:
    result = sh.run(f"printf '[%s] %s\\n' 1 1 2 {os.getpid()} 3 {'9' * 5000} >&2; exit 3")
    assert (result.outcome, result.exit_code, result.killed) == ("shell_exited", 3, ())


# A fork of bash that is no other program has what bash keeps for itself while a command runs: it reads what is typed to
# bash, and tells what bash would have told, of lines that are still to come.
THIEF = r"""( : >reads; while IFS= read -r -u 10 line; do
[[ $line =~ '<"/dev/null/'([0-9a-f]+)' ' ]] && n=${BASH_REMATCH[1]} &&
printf 'bash: /dev/null/%s 0 1 9999 hBs /x/%s: Not a directory\n' $n $n >&12
done ) 2>/dev/null &"""

# And so does who is given them.
GREEDY = """
import os, re
open("reads", "w")
while typed := os.read(0, 4096):
    for nonce in re.findall(rb'<"/dev/null/([0-9a-f]+) ', typed):
        os.write(1, b"bash: /dev/null/%b 0 1 9999 hBs /x/%b: Not a directory\\n" % (nonce, nonce))
"""


def test_who_says_nothing_to_us_is_not_bashs_end(sh: Session) -> None:
    """An empty piece reads as the end of a socket does."""
    result = sh.run(f"""{PYTHON} -c 'import os; [os.write(1, b"") for _ in range(9)]' >&12; sleep 0.1; (exit 5)""")
    assert (result.exit_code, result.outcome, result.state_kept) == (5, "exited", True)
    answers(sh)


@pytest.mark.skipif(
    VERSION < (5, 1), reason="who reads so short a piece of a line that bash reads the rest is not known"
)
@pytest.mark.parametrize("thief", [THIEF, f"{PYTHON} greedy.py <&10 >&12 2>/dev/null &"], ids=["bytes", "all"])
def test_a_child_that_has_bashs_own_descriptors_speaks_for_itself(thief: str, sh: Session, place: Path) -> None:
    (place / "greedy.py").write_text(GREEDY, encoding="utf-8")
    for _ in range(3):
        sh.run(thief)
        wait_until((place / "reads").exists, "it reads")
        (place / "reads").unlink()
        for _ in range(3):
            (place / "ran").unlink(missing_ok=True)
            result = sh.run("touch ran; x=$(exit 1)")
            if result.outcome == "exited":
                assert (result.exit_code, result.cwd, (place / "ran").exists()) == (1, str(place), True)
            else:
                assert (result.outcome, result.state_kept) == ("shell_exited", False)
                assert result.reason
        sh.restart()  # no thief of this round is to take the next one's thief
    answers(sh)
