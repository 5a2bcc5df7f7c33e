"""Commands that start others elsewhere: on another machine, in a container, or in an environment of a project.

Law: of ``starters``.
"""

from __future__ import annotations

from typing import Final

from .starter import ALL, ANY_ASSIGNMENT, PLAIN, Starter

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
_CREATE: Final = Starter(_CONTAINER, 1, names="entrypoint", flags="detach")
_IN_CLUSTER: Final = (
    "n namespace s server context cluster user kubeconfig token as as-group c container f filename l labels"
    " pod-running-timeout image env port restart image-pull-policy overrides"
)
_SSH: Final = "proxycommand localcommand remotecommand knownhostscommand"
ELSEWHERE: Final = {
    # -- on another machine
    "ssh": Starter(
        "B b c D E e F I i J L l m O P p Q R S W w",
        1,
        only_looks="G N O Q V W",
        joined=True,
        shell=True,
        settings="o",
        runs=_SSH,
    ),
    "scp": Starter("c F i J l P X", ALL, texts="D S", reaches="S", settings="o", runs=_SSH, own=True),
    "sftp": Starter("B b c F i J l P R X", ALL, texts="D S s", reaches="S", settings="o", runs=_SSH, own=True),
    "sshpass": Starter("p f d P"),
    "mosh": Starter("p port ssh-pty predict server family bind-server", 1, texts="ssh", reaches="ssh"),
    "gcloud-compute ssh": Starter("", ALL, texts="command", shell=True, begins="--", behind="ssh host", own=True),
    "vagrant ssh": Starter("", ALL, texts="c command", shell=True, begins="--", behind="ssh host", own=True),
    **dict.fromkeys(
        ("fly-ssh console", "flyctl-ssh console"),
        Starter("a app o org r region u user machine", ALL, texts="C command", shell=True),
    ),
    **dict.fromkeys(("heroku run", "heroku run:detached"), Starter("a app r remote s size e env type", shell=True)),
    "ansible": Starter(
        "e f i l m M P t T u B inventory limit module-name user forks extra-vars become-user become-method private-key"
        " key-file vault-password-file vault-id connection timeout poll background tree playbook-dir",
        ALL,
        texts="a args",
        flags="become",
        own=True,
    ),
    **dict.fromkeys(
        ("parallel-ssh", "pssh"),
        Starter(
            "h H l p t o e O x hosts host user par timeout option outdir errdir extra-args",
            joined=True,
            unless="h hosts H host",
        ),
    ),
    "minikube ssh": Starter("n node p profile", joined=True, shell=True),
    "multipass exec": Starter("d working-directory", 1),
    "limactl shell": Starter("workdir shell tty log-level", 1, shell=True),
    # -- in a container, a cluster, a network
    **{f"{program} exec": _EXEC for program in ("docker", "podman", "nerdctl", "docker-compose", "crictl")},
    **{f"{program} {verb}": _CREATE for program in ("docker", "podman", "nerdctl") for verb in ("run", "create")},
    "docker-compose run": _CREATE,
    **{
        f"{program} {verb}": Starter(_IN_CLUSTER, 1)
        for program in ("kubectl", "oc")
        for verb in ("exec", "run", "debug")
    },
    "oc rsh": Starter(f"{_IN_CLUSTER} shell timeout", 1, shell=True),
    **dict.fromkeys(("lxc exec", "incus exec"), Starter("cwd env group user mode project", 1)),
    **dict.fromkeys(("distrobox enter", "distrobox-enter"), Starter("", ALL, begins="--", own=True)),
    "machinectl shell": Starter("H M E uid setenv host machine", 1, shell=True),
    "systemd-nspawn": Starter(
        "D i u M S p E L Z n directory image template user machine uuid slice property setenv bind bind-ro tmpfs"
        " overlay chdir kill-signal network-interface network-bridge network-zone network-macvlan network-ipvlan port"
        " hostname private-users private-users-ownership capability drop-capability rlimit oom-score-adjust"
        " cpu-affinity resolv-conf timezone link-journal console personality selinux-context"
        " system-call-filter pivot-root",
        shell=True,
    ),
    "flatpak-spawn": Starter("env directory forward-fd env-fd app-path usr-path sandbox-expose sandbox-expose-ro"),
    "toolbox run": Starter("c container d distro r release"),
    **dict.fromkeys(("ip-netns exec", "ip-vrf exec"), Starter("", 1)),
    # -- in the environment of a project
    "uv run": Starter(
        "p w python with with-editable with-requirements extra group only-group no-group package env-file index"
        " default-index index-url extra-index-url find-links project directory"
    ),
    "foreman run": Starter("e f d env procfile root"),
    **dict.fromkeys(("poetry run", "pipenv run", "pdm run", "hatch run", "rye run", "bundle exec", "asdf exec"), PLAIN),
    **dict.fromkeys((f"{name} exec" for name in ("pyenv", "rbenv", "nodenv", "goenv", "jenv")), PLAIN),
    **dict.fromkeys(("npx", "pnpx", "bunx", "npm exec", "npm x", "pnpm exec", "pnpm dlx", "yarn exec"), _NODE),
    **dict.fromkeys(("yarn dlx", "bun x"), _NODE),
    **dict.fromkeys(("conda run", "mamba run", "micromamba run"), Starter("n p name prefix cwd e env")),
    **dict.fromkeys(("pixi run", "devbox run"), Starter("e environment manifest-path c config env env-file")),
    **dict.fromkeys(
        ("mise exec", "mise x"), Starter("C E j cd env jobs", ALL, texts="c command", begins="--", own=True)
    ),
    "direnv exec": Starter("", 1),
    "nix-shell": Starter("p A I E packages attr", ALL, texts="run command", pairs="arg argstr"),
    **dict.fromkeys(("nix develop", "nix shell"), Starter("", ALL, begins="-c --command", own=True)),
    # -- with the variables of a project, or its secrets
    "cross-env": Starter(assignments=ANY_ASSIGNMENT),
    "cross-env-shell": Starter(assignments=ANY_ASSIGNMENT, joined=True),
    "dotenv": Starter("", ALL, begins="--", own=True),
    "dotenv run": Starter("f file q quote e export"),
    "op run": Starter("env-file account config encoding session"),
    **dict.fromkeys(
        ("doppler run", "infisical run"),
        Starter("p project c config env path token", ALL, texts="command", begins="--", own=True),
    ),
    "chamber exec": Starter("", ALL, begins="--", own=True),
    "aws-vault exec": Starter("d duration t mfa-token region", 1, shell=True),
}
