"""Texts of bash that start a program behind options, however these and their words are written, and texts that only
look as if they did."""

from __future__ import annotations

from typing import Final

# Each of these starts rm.
STARTED_BEHIND_OPTIONS: Final = (
    # an option that has its word, of no letters
    *("timeout --signal= 5 rm x", "env --chdir= rm x", "nice --adjustment='' rm x", 'stdbuf --output="" rm x'),
    *("xargs --delimiter='' rm", "strace --output= rm x", "systemd-run --unit= rm x", "flock --timeout= f rm x"),
    *("docker run --rm --entrypoint='' i rm x", "docker run --name= i rm x", "docker run --entrypoint= i sh -c 'rm x'"),
    *("docker exec --workdir='' c rm x", "kubectl exec --container= p -- rm x", "sudo --user= rm x"),
    *("runuser --user=u rm x", "runuser -uu rm x", "runuser -lu u -- rm x", "runuser --user= rm x"),
    # a text that a host stands behind
    *("GIT_SSH_COMMAND='rm x' git fetch", "git -c core.sshCommand='ssh -o ProxyCommand=rm' fetch", "GIT_SSH=rm git x"),
    *("rsync -e 'ssh h rm;' a b:", "rsync --rsh='sudo rm' a b:", "scp -S 'env rm' a b:", "RSYNC_RSH='rm x' rsync a b:"),
    *("mosh --ssh='rm x' h", "SVN_SSH='sudo rm' svn up", "ssh -O exit h -o ProxyCommand='rm x'"),
    # an assignment with a value that is not known
    *('env X="$Y" rm x', 'env "X=$Y" rm x', 'sudo env -i X="$Y"/a:"${Z}" rm x', 'sudo X="$(ls)" bash -c "rm x"'),
    *(
        'env X="`rm x`" ls',
        'cross-env X="$Y" rm x',
        "bash -c 'rm x #\ue002'",
        "eval 'rm x \ue002'",
        "bash -x -c 'rm x'",
    ),
    # a value that is known in part
    *(
        'tar --to-command="rm $x" -xf a',
        'git rebase --exec="rm $r" HEAD',
        "rsync --rsh='rm '$y a b:",
        'tar -I"rm `x`" -c a',
    ),
    *(
        'docker run --name="$X" i rm x',
        'sudo --user="$U" rm x',
        'env --chdir="$D"/a rm x',
        'nice "--adjustment=$N" rm x',
    ),
    # a setting, or a test, that is a command
    *("zip a.zip -T -TT rm f", "zip a.zip -TT 'rm x' f", "zip a.zip -T --unzip-command=rm f", "capsh -- -c 'rm x'"),
    *("capsh --shell=/bin/rm -- x", "capsh --print == -- -c rm", "wget --use-askpass=rm u", "wget -e use_askpass=rm u"),
    *(f"{name} -o APT::Update::Pre-Invoke::=rm update" for name in ("apt", "apt-get", "aptitude")),
    *("apt-get -oDPkg::Pre-Invoke::='rm x' install y", "apt-get update --option=APT::Update::Post-Invoke::='rm x'"),
    *("apt-get -o APT::Update::Pre-Invoke::= rm update", "apt-get -o=DPkg::Post-Invoke::=rm install y"),
    *("apt-get -o DPkg::Options::=--pre-invoke=rm install y", "apt -o Dir::Bin::dpkg=/bin/rm install y"),
    *("bash -c 'rm x' --version", "bash </dev/null <<< 'rm x'", 'docker exec c env X="$Y" rm x'),
)

# These start nothing.
STARTS_NOTHING_BEHIND_OPTIONS: Final = (
    *("zip -r a.zip rm -x 'rm/*'", "zip -T a.zip", "capsh --print", "wget -qO- u/rm", 'wget -O "$F" "$U" rm'),
    *("apt-get -y -o Dpkg::Options::=--force-confold install rm", "apt-get install -y --no-install-recommends rm"),
    *('apt-get -o "Dpkg::Options::=$X" install rm', "apt-get -o Acquire::Retries=3 update", "apt-cache policy rm"),
    *("timeout --signal '' 5 ls rm", "docker run --name '' rm ls", "docker run --name= rm ls", "env --chdir '' ls rm"),
    *("git clone --config= rm", "timeout -s '' 5 ls rm", "runuser -c ls rm"),
    *('GIT_SSH_COMMAND="ssh -i rm" git clone git@github.com:x/y', "git config core.sshCommand 'ssh -i rm'"),
    *("git -c core.sshCommand='ssh -i rm' fetch", "GIT_SSH=ssh git fetch", "git clone -c core.sshCommand=ssh u rm"),
    *("rsync -avz -e ssh ./ rm:/d", "rsync -e 'ssh -p 2222' ./ rm:", "RSYNC_RSH=ssh rsync a rm:", "scp -S ssh a rm:"),
    *("ssh -O exit rm", "ssh -Q cipher", "ssh -W a:22 rm", "ssh -o ProxyCommand='ssh -W %h:%p rm' host ls"),
    *("bash --version", "bash -version", "bash --norc --help -c rm", "ssh -T git@github.com </dev/null"),
    *(
        'tar -C"$D" -xzf"$F" rm',
        'git clone --depth="$N" -b"$B" u rm',
        "git fetch --depth=$N -j$N rm",
        'git push "-f$X" rm',
    ),
    *("rsync -a --exclude={'a','b'} --bwlimit=$N a rm:", 'sort -t"$S" -k"$N" rm', 'tar --exclude="$X" -cf rm a'),
    *(
        'git -c "user.name=$X" commit',
        'git -c user.name="$X rm" commit',
        'ssh -o "ConnectTimeout=$T" rm ls',
    ),
    *('export "X=$Y" Z="($N rm)" "$A=$B"', 'declare "x=$1" y=$2; read -p "$P rm? " z', 'docker run "-eX=$Y" rm ls'),
    *('git send-email --to="$X" --cc "$Y" rm', 'env --unset="$X" ls rm'),
    *('split -b"$N" rm', 'install -m"$M" a rm', 'timeout --signal="$S" 5 ls rm', 'xargs --max-args="$N" ls rm'),
    *('env PYTHONPATH="$PWD" ls rm', 'env -i PATH="$PATH" HOME="$HOME" ls', 'sudo X="$Y" ls "$Z"', 'env "X=$Y rm" ls'),
)

# What these start is known at run time only.
UNTOLD_BEHIND_OPTIONS: Final = (
    *(
        'tar --to-command="$x"',
        'tar -I"$x" -c a',
        "tar -I$x -c a",
        "tar -I`x` -c a",
        'tar -cI"$x" a',
        'tar "--rsh-command=$x" a',
    ),
    *('rsync --rsh="$y" a b', 'rsync -ave"$y" a b', 'sort --compress-program="$x" f', 'split --filter="gzip $x" f'),
    *(
        'man -P"$x" ls',
        'man -H"$x" ls',
        'git clone --upload-pack="$x" a',
        'git -C a rebase --exec="$x" HEAD',
        'hash -p"$x" a',
    ),
    *(
        'git clone --config="core.pager=$x" a',
        'git -c "core.pager=$x" log',
        'git -c "core.$x" log',
        "git -c a.b=$x log",
    ),
    *(
        'tar --checkpoint-action="exec=$x" a',
        'tar --checkpoint-action="$x" a',
        'ssh -o "Proxy$x" h ls',
        'fd --exec="$x"',
    ),
    # the rest of the name of an option
    *(
        'rsync -a"$x" b c',
        "rsync -a{v,erm} b c",
        "rsync --{rsh=rm,a} b c",
        'git fetch --up"$x" b',
        'tar "--$x" b',
        'sort "-$x" b',
    ),
    *(
        'sudo -n"$x" ls',
        'sudo -u"$x" ls',
        "sudo -u$x ls",
        'sudo --us"$x" ls',
        "sudo --user=$x ls",
        "docker run --name=$x i ls",
    ),
    # an assignment in quotes
    *(
        'export "PAGER=$X"',
        'readonly "GIT_SSH_COMMAND=ssh -i $X"',
        'declare -x P"AGER=`x`"',
        '\\export "PAGER=$X"',
        'alias "l$x"',
    ),
    *("env X=$Y ls", 'env X="$@" ls', 'env X="a"$Y ls', 'env X={a,b}"$Y" ls', 'env -S X="$Y" ls', 'env "$X" ls'),
    *('eval X="$Y"', 'bash -c X="$Y"', 'ssh h X="$Y" ls', 'watch X="$Y"', 'command X="$Y"', 'complete -W X="$Y" z'),
    *('env PAGER="$X" git log', 'env BASH_ENV="$X" ls', 'ssh -o ProxyCommand="$X" h ls', 'alias e=eval; e X="$Y"'),
    *("ssh -T git@github.com", "bash -x --version", 'rsync -e "$X" a b:', 'GIT_SSH_COMMAND="ssh -i k;" git x; ssh h'),
    *("bash </dev/null 0<&3", "bash <<< ls 0>&3", "bash <<< ls 00<&3", "ssh h </dev/nullx"),
)
