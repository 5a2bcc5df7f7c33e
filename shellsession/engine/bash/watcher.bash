# Outlives one host process, and then removes what that one left behind: processes by their mark, then its directory.
# Law: it touches nothing but what has the mark, or writes into the directory. It never reads what a command wrote.
# Arguments: the host's pid and start time, the lowest and highest mark, the directory; of a daemon its socket's path
# and a descriptor of that file. Stdin: a pipe from the host.
pid=$1 start=$2 low=$3 high=$4 directory=$5 socket=$6 file=$7
ulimit -S -x unlimited 2>/dev/null # a host inside a session has that session's mark: we must survive its end
# `pkill bash`, `killall bash`: who wants bashes ended does not mean this one.
{ printf session-guard >/proc/self/comm; } 2>/dev/null
trap '' HUP INT QUIT TERM

# A zombie is gone, unless only its first thread is one; the start time tells a new owner of the number from the old.
lives() {
  local line
  { read -r -d '' line <"/proc/$1/stat"; } 2>/dev/null # to its end: a name may hold a newline
  # It is gone, or could not be opened (too many files are open, or /proc hides it): then more is not known.
  if [[ ! $line ]]; then
    [[ -d /proc/$1 ]] || { [[ -e /proc/self/stat ]] && kill -0 "$1" 2>/dev/null; }
    return
  fi
  set -- ${line##*) }
  bottom=${26}
  [[ ($1 != [ZX] || ${18} -gt 1) && ($# -gt 0 && ($start == "${20}" || -n $any)) ]]
}

# A host that replaces itself (execve) keeps its number and start time, but nothing of ours. The bottom of its stack is
# elsewhere then; 0 tells nothing: of who is about to be a zombie, or where we may not look.
bottom=0
lives "$pid"
first=$bottom
is_host() {
  lives "$pid" && [[ $bottom == "$first" || $bottom == 0 || $first == 0 ]]
}

# End of file on the pipe is the host's end, unless a fork of it holds the pipe: so look as well, if there is a /proc.
while read -r -t 1; (( $? > 128 )); do
  [[ ! -e /proc/self/stat ]] || is_host || break
done
# The kernel closes a dying host's files before the host is a zombie: look until it is one, at something never readable.
# For however long: a host that has closed the pipe itself lives, and so may its sessions.
exec {never}<> <(:)
while is_host; do
  read -r -t 0.05 -u "$never"
done

any=1
for (( round = 0; round < 100; round++ )); do
  found=
  for limits in /proc/[0-9]*/limits; do
    { mapfile -t lines <"$limits"; } 2>/dev/null || continue
    [[ ${lines[*]} =~ 'Max file locks'[[:space:]]+([0-9]+) ]] || continue
    (( BASH_REMATCH[1] >= low && BASH_REMATCH[1] <= high )) || continue
    victim=${limits#/proc/} victim=${victim%/limits}
    lives "$victim" && found=1 && kill -KILL "$victim" 2>/dev/null
  done
  # Who has shed the mark (su, with pam_limits) mostly talks to us still: its stdout or stderr is a pipe of ours.
  while IFS= read -r -d '' stream && IFS= read -r -d '' victim; do
    victim=${victim#/proc/} victim=${victim%%/*}
    [[ $stream == "$directory"/* ]] && lives "$victim" && found=1 && kill -KILL "$victim" 2>/dev/null
  done < <(find /proc/[0-9]*/fd/[12] -perm -200 -printf '%l\0%p\0' 2>/dev/null)
  [[ $found ]] || break
done
# A session's directory cannot be listed, and a command may have shut any. Not what a link in its place leads to.
[[ -L $directory ]] || chmod -R u+rwx -- "$directory" 2>/dev/null
# The control groups of its sandboxes: what was killed may take a while to leave them.
shopt -s nullglob
for link in "$directory"/*/group-*; do
  group=$(readlink -- "$link")
  for (( round = 0; round < 100; round++ )); do
    [[ -d $group ]] && ! rmdir -- "$group" 2>/dev/null || break
    read -r -t 0.01 -u "$never"
  done
done
rm -rf -- "$directory"
# Somebody may have started the next daemon already: its socket has the same name. The directory that it is in may be
# its user's own; the one that is ours where nobody names another is removed below.
if [[ $socket && ! -L $socket && $socket -ef /dev/fd/$file ]]; then
  # It may start between two words of ours: alone with the directory, as one is that starts (flock is of util-linux).
  exec {lock}< "${socket%/*}" && flock -w 1 "$lock" 2>/dev/null
  [[ $socket -ef /dev/fd/$file ]] && rm -f -- "$socket"
fi
rmdir -- "${directory%/*}" 2>/dev/null # unless another host of this user is in it
