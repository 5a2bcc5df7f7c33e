PS1= PS2=
set +o history
unset HISTFILE
