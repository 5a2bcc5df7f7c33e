PS1= PS2=
\set +m
\shopt -u checkwinsize promptvars
\shopt -s execfail
\unset MAILCHECK HISTFILE
if (( BASH_VERSINFO[0] > 4 )); then BASH_ARGV0=bash; fi
