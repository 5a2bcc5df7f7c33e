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
)

# These start nothing.
STARTS_NOTHING_BEHIND_OPTIONS: Final = (
    *("timeout --signal '' 5 ls rm", "docker run --name '' rm ls", "docker run --name= rm ls", "env --chdir '' ls rm"),
    *("git clone --config= rm", "timeout -s '' 5 ls rm", "runuser -c ls rm"),
)
