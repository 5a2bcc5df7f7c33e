PS1= PS2=
\set +m +o history
\history -c
\shopt -u checkwinsize
\unset MAILCHECK HISTFILE PIPESTATUS
