PS1= PS2=
\set +m
\shopt -u checkwinsize promptvars
\shopt -s execfail
\unset MAILCHECK HISTFILE
