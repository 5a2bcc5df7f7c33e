"""Commands that start others: where, among their words, the other one stands.

Law: one row for each program, or for each subcommand of it that starts another one; who is not here starts nothing that
the text tells. Where a row is in doubt, it finds a command too many rather than one too few.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Final

from .subcommands import subcommands
from .words import Word

ALL: Final = sys.maxsize  # all operands are its own


@dataclass(frozen=True, slots=True)
class Starter:
    """How the words of a starter are read.

    ``options``: letters, and names, of options that take a word. ``operands``: how many words of its own stand before
    the other command. ``assignments``: so may these (``X=1``).
    ``only_looks``: letters of options with which it starts nothing.
    ``texts``: letters, and names, of options whose word is a text of bash. ``joined``: the words that follow are one
    text, up to a word that begins with ``ends``. ``unless``: options without which all operands are its own.
    ``flags``: names of options that take nothing, and that would pass for the shortened name of one that does.
    ``shell``: it starts a shell, which reads its input, where neither a command nor a text is named.
    ``pairs``: names of options that take two words. ``each``: each operand is a text of its own.
    ``attached``: letters, and names, of options whose word is there only where it is joined to them. ``settings``: of
    options whose word is NAME=VALUE, and ``runs``: the names of those values that are texts, in small letters (of git:
    ``policy.git`` knows them). ``own``: an operand that is known at run time only is taken for one of its own, too.
    ``expands``: of options whose word is expanded. ``splits``: of those whose word is more words in its place.
    ``puts``: of options whose word stands, in the other command, for what is put there; and more words may follow it.
    ``letters``: the first operand may be letters of options, the words of which follow. ``names``: of options whose
    word names the other command, to which the operands belong.
    """

    options: str = ""
    operands: int = 0
    assignments: re.Pattern[str] | None = None
    only_looks: str = ""
    texts: str = ""
    joined: bool = False
    ends: str = ""
    unless: str = ""
    flags: str = ""
    shell: bool = False
    pairs: str = ""
    each: bool = False
    attached: str = ""
    settings: str = ""
    runs: str = ""
    own: bool = False
    expands: str = ""
    splits: str = ""
    puts: str = ""
    letters: bool = False
    names: str = ""


# What bash takes for an assignment, and what programs do; to env, a dash is an option.
_NAMED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[.*?\])?\+?=.*", re.DOTALL)
_ANY: Final = re.compile(r"-|[^=]*=.*", re.DOTALL)
_PLAIN: Final = Starter()
_NODE: Final = Starter("p w package workspace", texts="c call")
_EXEC: Final = Starter("e u w detach-keys env env-file index user workdir", 1, flags="detach")
_CONTAINER: Final = (
    "a c e h l m p u v w add-host annotation attach blkio-weight cap-add cap-drop cgroup-parent cgroupns cidfile"
    " cpu-period cpu-quota cpu-shares cpus cpuset-cpus cpuset-mems detach-keys device dns dns-option dns-search"
    " cpu-count cpu-percent device-cgroup-rule device-read-bps device-read-iops device-write-bps device-write-iops"
    " domainname env env-file expose gpus group-add health-cmd health-interval health-retries health-timeout hostname"
    " ip ip6 ipc label label-file link log-driver log-opt mac-address memory memory-reservation memory-swap"
    " memory-swappiness kernel-memory mount name network"
    " network-alias pid pids-limit platform pod publish pull restart runtime security-opt shm-size stop-signal"
    " stop-timeout storage-opt sysctl tmpfs ulimit user userns uts volume volume-driver volumes-from workdir"
)
_CREATE: Final = Starter(_CONTAINER, 1, texts="entrypoint", flags="detach")
_IN_CLUSTER: Final = (
    "n namespace s server context cluster user kubeconfig token as as-group c container f filename l labels"
    " pod-running-timeout image env port restart image-pull-policy overrides"
)
_SSH: Final = "proxycommand localcommand remotecommand knownhostscommand"
_FETCH: Final = Starter("", ALL, texts="upload-pack exec", own=True)
_PUSH: Final = Starter("", ALL, texts="receive-pack exec", own=True)
STARTERS: Final = {
    # -- of bash
    "exec": Starter("a"),
    "command": Starter(only_looks="v V"),
    "builtin": _PLAIN,
    "coproc": Starter(assignments=_NAMED),
    "time": Starter("f o format output", assignments=_NAMED),
    "mapfile": Starter("d n O s u c", ALL, texts="C"),
    "readarray": Starter("d n O s u c", ALL, texts="C"),
    "fc": Starter("", ALL, texts="e", own=True),
    **dict.fromkeys(("complete", "compgen"), Starter("o A G X P S F", ALL, texts="C", expands="W")),
    # -- as somebody else, or elsewhere
    "sudo": Starter(
        "C D g h p R r T t U u user group host chdir chroot prompt close-from command-timeout other-user role type",
        assignments=_ANY,
        only_looks="l v K e",
        shell=True,
    ),
    "doas": Starter("C u", shell=True),
    "pkexec": Starter("user u", shell=True),
    "su": Starter(
        "g G s w group supp-group shell whitelist-environment", ALL, texts="c command session-command", shell=True
    ),
    "runuser": Starter(
        "g G s w group supp-group shell whitelist-environment", texts="c command", unless="u user", shell=True
    ),
    "sg": Starter("", 1, texts="c", joined=True, shell=True),
    "newgrp": Starter("", ALL, texts="c", shell=True),
    "setpriv": Starter(
        "reuid regid ruid rgid euid egid groups inh-caps ambient-caps bounding-set securebits pdeathsig"
        " selinux-label apparmor-profile seccomp-filter landlock-access landlock-rule"
    ),
    "chroot": Starter("userspec groups", 1, shell=True),
    "unshare": Starter(
        "R w S G root wd setuid setgid propagation map-user map-group map-users map-groups setgroups monotonic"
        " boottime",
        shell=True,
    ),
    "nsenter": Starter("t S G N W target setuid setgid net-socket", flags="net", shell=True),
    "fakeroot": Starter("l s i b lib faked", shell=True),
    "ssh": Starter(
        "B b c D E e F I i J L l m O P p Q R S W w",
        1,
        only_looks="G N V",
        joined=True,
        shell=True,
        settings="o",
        runs=_SSH,
    ),
    "scp": Starter("c F i J l P X", ALL, texts="D S", settings="o", runs=_SSH, own=True),
    "sftp": Starter("B b c F i J l P R X", ALL, texts="D S s", settings="o", runs=_SSH, own=True),
    "sshpass": Starter("p f d P"),
    "systemd-run": Starter(
        "u p E H M unit property description slice setenv machine host uid gid nice working-directory on-active"
        " on-boot on-startup on-unit-active on-unit-inactive on-calendar timer-property path-property"
        " socket-property service-type"
    ),
    "dbus-run-session": Starter("config-file dbus-daemon"),
    "xvfb-run": Starter("n e f s w p server-num error-file auth-file server-args wait xauth-protocol"),
    **{f"{program} exec": _EXEC for program in ("docker", "podman", "nerdctl", "docker-compose")},
    **{f"{program} {verb}": _CREATE for program in ("docker", "podman", "nerdctl") for verb in ("run", "create")},
    "docker-compose run": _CREATE,
    **{f"{program} {verb}": Starter(_IN_CLUSTER, 1) for program in ("kubectl", "oc") for verb in ("exec", "run")},
    "uv run": Starter(
        "p w python with with-editable with-requirements extra group only-group no-group package env-file index"
        " default-index index-url extra-index-url find-links project directory"
    ),
    **dict.fromkeys(("poetry run", "pipenv run", "pdm run", "hatch run", "bundle exec"), _PLAIN),
    **dict.fromkeys(("npx", "pnpx", "bunx", "npm exec", "npm x", "pnpm exec", "pnpm dlx", "yarn exec"), _NODE),
    **dict.fromkeys(("yarn dlx", "bun x"), _NODE),
    "conda run": Starter("n p name prefix cwd"),
    **dict.fromkeys(("rye run", "asdf exec"), _PLAIN),
    **dict.fromkeys(("mise exec", "mise x"), Starter("C E j cd env jobs", texts="c command")),
    "direnv exec": Starter("", 1),
    "nix-shell": Starter("p A I E packages attr", ALL, texts="run command", pairs="arg argstr"),
    "vagrant ssh": Starter("", ALL, texts="c command", shell=True),
    **dict.fromkeys(("lxc exec", "incus exec"), Starter("cwd env group user mode project", 1)),
    # -- with other limits
    "gosu": Starter("", 1),
    "su-exec": Starter("", 1),
    "bwrap": Starter(
        "args argv0 userns userns2 pidns uid gid hostname chdir unsetenv lock-file sync-fd remount-ro exec-label"
        " file-label proc dev tmpfs mqueue dir seccomp add-seccomp-fd block-fd userns-block-fd info-fd json-status-fd"
        " cap-add cap-drop perms size overlay-src tmp-overlay ro-overlay",
        pairs="setenv bind bind-try dev-bind dev-bind-try ro-bind ro-bind-try bind-fd ro-bind-fd file bind-data"
        " ro-bind-data symlink chmod",
        flags="dev proc bind file",
    ),
    "env": Starter("u C a unset chdir argv0", assignments=_ANY, splits="S split-string"),
    "nohup": _PLAIN,
    "setsid": _PLAIN,
    "nice": Starter("n adjustment"),
    "ionice": Starter("c n class classdata", only_looks="p"),
    "chrt": Starter("T P D", 1, only_looks="p"),
    "taskset": Starter("", 1, only_looks="p"),
    "prlimit": Starter("p o pid output"),
    "numactl": Starter("i N m C l p interleave cpunodebind membind physcpubind preferred"),
    "cpulimit": Starter("l p e P limit pid exe path"),
    "cgexec": Starter("g"),
    "timeout": Starter("k s kill-after signal", 1),
    "stdbuf": Starter("i o e input output error"),
    "start-stop-daemon": Starter(
        "pid ppid p pidfile n name u user g group c chuid s signal r chroot d chdir N nicelevel P procsched I iosched"
        " k umask notify-timeout O output R retry",
        names="x exec a startas",
        flags="start",
    ),
    "flock": Starter("w E timeout conflict-exit-code", 1, texts="c command"),
    "faketime": Starter("", 1),
    "choom": Starter("n p adjust pid"),
    "tini": Starter("p e"),
    "unbuffer": _PLAIN,
    **dict.fromkeys(("setarch", "linux32", "linux64", "uname26", "i386", "i686", "x86_64", "aarch64"), _PLAIN),
    **dict.fromkeys(
        ("ld.so", "ld-linux.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"),
        Starter("library-path preload audit argv0 inhibit-rpath glibc-hwcaps-mask glibc-hwcaps-prepend", only_looks=""),
    ),
    **dict.fromkeys(("eatmydata", "firejail", "chronic", "catchsegv", "busybox", "toybox"), _PLAIN),
    **dict.fromkeys(("torsocks", "torify", "tsocks"), _PLAIN),
    **dict.fromkeys(("proxychains", "proxychains4"), Starter("f")),
    # -- again and again, watched, or in another terminal
    "xargs": Starter(
        "a d E L n P s arg-file delimiter max-args max-procs max-chars process-slot-var",
        puts="I i replace",
        attached="i replace",
    ),
    "parallel": Starter(
        "a C d j L N n S arg-file colsep delimiter jobs joblog max-args max-lines max-replace-args results retries"
        " sshlogin sshloginfile tmpdir timeout delay load memfree workdir basefile return",
        joined=True,
        ends=":::",
        puts="I",
    ),
    "hyperfine": Starter(
        "w m M r P D L N S i n warmup min-runs max-runs runs parameter-scan parameter-step-size parameter-list shell"
        " style sort time-unit export-asciidoc export-csv export-json export-markdown export-orgmode output input"
        " command-name",
        texts="p s c setup prepare conclude cleanup reference",
        flags="show-output ignore-failure",
        each=True,
    ),
    "watch": Starter("n interval q equexit s shotsdir", joined=True),
    "entr": Starter(texts="s"),
    "dumb-init": Starter("r rewrite"),
    "watchexec": Starter(
        "w W e f i d s j o E watch watch-non-recursive exts filter ignore filter-file ignore-file debounce signal"
        " stop-signal stop-timeout poll on-busy-update env shell project-origin workdir fs-events map-signal"
    ),
    "rlwrap": Starter("a b C f g H i l M m O P p q s S t w z"),
    "script": Starter(
        "B E I m o O T echo log-in log-io log-out log-timing logging-format output-limit", ALL, texts="c command"
    ),
    "tmux": Starter("L f S T c e F n s t x y l", 1, joined=True, texts="default-shell"),
    "screen": Starter("S c e h p s t T", only_looks="r x"),
    "strace": Starter(
        "e o p s u E a P I O S X U b trace abbrev verbose raw signal status quiet inject fault read write kvm output"
        " string-limit attach user env summary-sort-by summary-columns interruptible detach-on columns trace-path"
    ),
    "ltrace": Starter("e o u l n p s w A F x D a"),
    "gdb": Starter("ex eval-command iex ix x command cd d directory s symbols e exec c core p pid tty l b"),
    "valgrind": _PLAIN,
    "perf": Starter("o e p t c F C r m G u D output event pid tid count freq call-graph repeat delay cgroup", 1),
    # -- with a text for a shell among their options
    "tar": Starter(
        "f C T X b g H L V N K directory file",
        ALL,
        texts="I F use-compress-program to-command rsh-command rmt-command info-script new-volume-script",
        flags="checkpoint",
        settings="checkpoint-action",
        runs="exec",
        own=True,
        letters=True,
    ),
    "sort": Starter("k o S t T", ALL, texts="compress-program", own=True),
    "split": Starter("a b C l n t", ALL, texts="filter", own=True),
    "install": Starter("g m o S t", ALL, texts="strip-program", own=True),
    "rsync": Starter("f M B T filter exclude include", ALL, texts="e rsh rsync-path", own=True),
    "man": Starter(
        "C E e L M m p R r S s T X config-file encoding extension locale manpath preprocessor prompt recode sections"
        " systems",
        ALL,
        texts="P pager H html",
        attached="H html T X",
        own=True,
    ),
    **dict.fromkeys(("git fetch", "git pull", "git ls-remote", "git fetch-pack", "git archive"), _FETCH),
    **dict.fromkeys(("git push", "git send-pack"), _PUSH),
    "git clone": Starter("b j o", ALL, texts="u upload-pack", settings="c config", own=True),
    "git grep": Starter("A B C e f m", ALL, texts="O open-files-in-pager", attached="O open-files-in-pager", own=True),
    "git difftool": Starter("G l O S t tool", ALL, texts="x extcmd", own=True),
    "git rebase": Starter("C s X", ALL, texts="x exec", own=True),
    "git filter-branch": Starter(
        "d subdirectory-filter",
        ALL,
        texts="setup env-filter tree-filter index-filter parent-filter msg-filter commit-filter tag-name-filter",
        own=True,
    ),
    "git send-email": Starter("", ALL, texts="to-cmd cc-cmd header-cmd sendmail-cmd", own=True),
}

# What these start is what the other one would.
_SAME: Final = {"docker compose": "docker-compose", "docker container": "docker", "podman container": "podman"}


def starter_of(words: tuple[Word, ...]) -> tuple[Starter | None, tuple[Word, ...]]:
    """The row of a command, by its name or by that and its subcommand; and its words from where that has been named."""
    name = (words[0] or "").rpartition("/")[2]
    while (starter := STARTERS.get(name)) is None:
        both, rest = "", words
        for at in subcommands(words, known=True):
            both, rest = f"{name} {words[at]}" if at < len(words) else "", words[at:]
            if both in STARTERS or both in _SAME:
                break
        if both not in _SAME:
            return STARTERS.get(both), rest
        name, words = _SAME[both], (_SAME[both], *rest[1:])
    return starter, words
