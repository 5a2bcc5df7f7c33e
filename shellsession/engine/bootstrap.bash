PS1= PS2=
\set +m
\shopt -u checkwinsize
\unset MAILCHECK HISTFILE PIPESTATUS
