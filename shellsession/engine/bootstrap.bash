PS1= PS2=
\set +m
\shopt -u checkwinsize
\shopt -s execfail
\unset MAILCHECK HISTFILE
