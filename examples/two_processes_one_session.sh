#!/usr/bin/env bash
# Two processes share one bash: each command line below is a process of its own, and the daemon keeps the session.
#
# Run:     bash examples/two_processes_one_session.sh
# Prints:  the second process reads: hello from /tmp
set -euo pipefail

agent=shared-$$
trap 'shellsession kill "$agent"' EXIT

# The first process changes the state, and ends.
shellsession run -s "$agent" 'cd /tmp; greeting=hello'

# The second one finds it. The exit status is that of the command.
shellsession run -s "$agent" 'echo the second process reads: $greeting from $PWD'
shellsession run -s "$agent" 'exit_with() { return "$1"; }'
shellsession run -s "$agent" 'exit_with 3' || echo "the function returned $?"
