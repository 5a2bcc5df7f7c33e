"""Commands that start others: where, among their words, the other one stands.

Law: one row for each program, or for each subcommand of it that starts another one; who is not here, nor in
``elsewhere``, starts nothing that the text tells.
"""

from __future__ import annotations

import re
from typing import Final

from .elsewhere import ELSEWHERE
from .starter import ALL, ANY_ASSIGNMENT, PLAIN, Starter
from .subcommands import subcommands
from .words import Word, known

# What bash takes for an assignment.
_NAMED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[.*?\])?\+?=.*", re.DOTALL)
# Settings of apt that are commands, or name a program.
_APT: Final = Starter(
    "c config-file t target-release a host-architecture",
    ALL,
    settings="o option",
    runs="*invoke* *pre-install-pkgs* *hooks* dir::bin* *detect* *::binary* *pager* *tools* *status-logger*",
    own=True,
)
_FETCH: Final = Starter("", ALL, texts="upload-pack exec", own=True)
_PUSH: Final = Starter("", ALL, texts="receive-pack exec", own=True)
STARTERS: Final = {
    **ELSEWHERE,
    # -- of bash
    "exec": Starter("a"),
    "command": Starter(only_looks="v V"),
    "builtin": PLAIN,
    "coproc": Starter(assignments=_NAMED),
    "time": Starter("f o format output", assignments=_NAMED),
    "mapfile": Starter("d n O s u c", ALL, texts="C"),
    "readarray": Starter("d n O s u c", ALL, texts="C"),
    "fc": Starter("", ALL, texts="e", own=True),
    **dict.fromkeys(("complete", "compgen"), Starter("o A G X P S F", ALL, texts="C", expands="W")),
    # -- as somebody else, or elsewhere
    "sudo": Starter(
        "C D g h p R r T t U u user group host chdir chroot prompt close-from command-timeout other-user role type",
        assignments=ANY_ASSIGNMENT,
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
    "systemd-run": Starter(
        "u p E H M unit property description slice setenv machine host uid gid nice working-directory on-active"
        " on-boot on-startup on-unit-active on-unit-inactive on-calendar timer-property path-property"
        " socket-property service-type"
    ),
    "dbus-run-session": Starter("config-file dbus-daemon"),
    "xvfb-run": Starter("n e f s w p server-num error-file auth-file server-args wait xauth-protocol"),
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
    "env": Starter("u C a unset chdir argv0", assignments=ANY_ASSIGNMENT, splits="S split-string"),
    "nohup": PLAIN,
    "setsid": PLAIN,
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
    "unbuffer": PLAIN,
    **dict.fromkeys(("setarch", "linux32", "linux64", "uname26", "i386", "i686", "x86_64", "aarch64"), PLAIN),
    **dict.fromkeys(
        ("ld.so", "ld-linux.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"),
        Starter("library-path preload audit argv0 inhibit-rpath glibc-hwcaps-mask glibc-hwcaps-prepend", only_looks=""),
    ),
    **dict.fromkeys(("eatmydata", "firejail", "chronic", "catchsegv", "busybox", "toybox"), PLAIN),
    **dict.fromkeys(("torsocks", "torify", "tsocks"), PLAIN),
    **dict.fromkeys(("proxychains", "proxychains4"), Starter("f")),
    "ssh-agent": Starter("a E O P t", only_looks="k"),
    "chpst": Starter("u U b e / n l L m d o p f c t r P"),
    "proot": Starter("r b R S w k q bind rootfs pwd cwd kernel-release qemu", shell=True),
    **dict.fromkeys(("wait-for-it", "wait-for-it.sh"), Starter("h p t host port timeout", ALL, begins="--")),
    "sem": Starter("j N n jobs id semaphore-name semaphore-timeout st timeout delay joblog", joined=True),
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
    "nodemon": Starter("", ALL, texts="x exec", own=True),
    "concurrently": Starter(
        "n names p prefix c prefix-colors l prefix-length t timestamp-format m max-processes s success restart-tries"
        " restart-after kill-others-on name-separator hide default-input-target P",
        flags="kill-others hide-timing",
        each=True,
    ),
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
    "valgrind": PLAIN,
    "perf": Starter("o e p t c F C r m G u D output event pid tid count freq call-graph repeat delay cgroup", 1),
    # -- with a text for a shell among their options
    "tar": Starter(
        "f C T X b g H L V N K directory file",
        ALL,
        texts="I F use-compress-program to-command rsh-command rmt-command info-script new-volume-script",
        reaches="rsh-command",
        flags="checkpoint",
        settings="checkpoint-action",
        runs="exec",
        own=True,
        letters=True,
    ),
    "zip": Starter("b i n O t tt x", ALL, texts="TT unzip-command", own=True),
    "capsh": Starter("", ALL, names="shell", begins="-- -+", behind="bash", own=True),
    "wget": Starter("O o", ALL, texts="use-askpass", settings="e execute", runs="use*askpass", own=True),
    **dict.fromkeys(("apt", "apt-get", "apt-cache", "apt-mark", "aptitude"), _APT),
    "sort": Starter("k o S t T", ALL, texts="compress-program", own=True),
    "split": Starter("a b C l n t", ALL, texts="filter", own=True),
    "install": Starter("g m o S t", ALL, texts="strip-program", own=True),
    "rsync": Starter("f M B T filter exclude include", ALL, texts="e rsh rsync-path", reaches="e rsh", own=True),
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
    "git send-email": Starter("to cc", ALL, texts="to-cmd cc-cmd header-cmd sendmail-cmd", own=True),
}

# What these start is what the other one would.
_SAME: Final = {"docker compose": "docker-compose", "docker container": "docker", "podman container": "podman"} | {
    **{f"gcloud {stage}": "gcloud" for stage in ("alpha", "beta")},
    **{f"{name} ssh": f"{name}-ssh" for name in ("fly", "flyctl")},
    **{"gcloud compute": "gcloud-compute", "ip netns": "ip-netns", "ip vrf": "ip-vrf"},
}


def starter_of(words: tuple[Word, ...]) -> tuple[Starter | None, tuple[Word, ...]]:
    """The row of a command, by its name and its subcommand or by that alone; and its words from where that has been
    named."""
    while True:
        name, both, at = (words[0] or "").rpartition("/")[2], "", 0
        for at in subcommands(tuple(map(known, words)), known=True):
            both = f"{name} {words[at]}" if at < len(words) else ""
            if both in STARTERS:
                return STARTERS[both], words[at:]
            if both in _SAME:
                break
        if both not in _SAME:
            return STARTERS.get(name), words
        words = (_SAME[both], *words[at + 1 :])
