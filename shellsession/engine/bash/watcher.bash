# The watcher of one host process. It outlives the host, and then cleans up: kills the processes that carry a tag of the
# host, and removes its directory. It signals only processes that carry such a tag or write into the directory. It never
# reads what a command wrote.
# Arguments: the host's pid and start time, its lowest and highest tag, its directory; for a daemon also the path of its
# socket, and a descriptor of that file. Stdin: a pipe from the host.
pid=$1 start=$2 low=$3 high=$4 directory=$5 socket=$6 file=$7
ulimit -S -x unlimited 2>/dev/null # a host inside a session carries the tag of that: remove it, to survive its end
# Another name in ps: `pkill bash` and `killall bash` are not meant for this process.
{ printf session-guard >/proc/self/comm; } 2>/dev/null
trap '' HUP INT QUIT TERM

# Does the process live? A zombie does not, unless only its first thread has ended. The start time tells the process
# from a later one with the same pid.
lives() {
  local line
  { read -r -d '' line <"/proc/$1/stat"; } 2>/dev/null # to the end of the file: a name may contain a newline
  # Nothing was read: the process has ended, or the file cannot be opened (too many open files, or /proc hides it).
  if [[ ! $line ]]; then
    [[ -d /proc/$1 ]] || { [[ -e /proc/self/stat ]] && kill -0 "$1" 2>/dev/null; }
    return
  fi
  set -- ${line##*) }
  bottom=${26}
  [[ ($1 != [ZX] || ${18} -gt 1) && ($# -gt 0 && ($start == "${20}" || -n $any)) ]]
}

# A host that replaces itself by execve keeps its pid and start time, but has none of our state. The bottom of its stack
# has moved then. 0 means unknown: the host is becoming a zombie, or we may not look.
bottom=0
lives "$pid"
first=$bottom
is_host() {
  lives "$pid" && [[ $bottom == "$first" || $bottom == 0 || $first == 0 ]]
}

# The pipe ends when the host ends, unless a fork of the host holds it open. So check the host itself as well, if there
# is a /proc.
while read -r -t 1; (( $? > 128 )); do
  [[ ! -e /proc/self/stat ]] || is_host || break
done
# The kernel closes the files of a dying host before that is a zombie. So wait until it is one, without a limit: a host
# that has closed the pipe itself lives, and its sessions may, too. (A read of ``never`` is a sleep.)
exec {never}<> <(:)
while is_host; do
  read -r -t 0.05 -u "$never"
done

# A process that forks and ends during a search hides its child. So search until no process is new, at most 100 times.
any=1
declare -A seen=() # processes without a tag, which they cannot get later, and those that have ended
for (( round = 0; round < 100; round++ )); do
  news=()
  for process in /proc/[0-9]*; do
    [[ ! ${seen[$process]} ]] || continue
    if { mapfile -t lines <"$process/limits"; } 2>/dev/null; then
      if [[ ${lines[*]} =~ 'Max file locks'[[:space:]]+([0-9]+) ]] &&
        (( BASH_REMATCH[1] >= low && BASH_REMATCH[1] <= high )); then
        if lives "${process#/proc/}"; then
          kill -KILL "${process#/proc/}" 2>/dev/null
        else
          seen[$process]=1 # it may have forked before it ended, so search once more
        fi
      else
        seen[$process]=1
      fi
    fi
    news+=("$process/fd")
  done
  (( ${#news[@]} )) || break
  # A process that has lost its tag (su, with pam_limits) mostly still has a pipe of ours as stdout or stderr.
  while IFS= read -r -d '' stream && IFS= read -r -d '' victim; do
    victim=${victim#/proc/} victim=${victim%/fd}
    [[ $stream == "$directory"/* ]] && lives "$victim" && kill -KILL "$victim" 2>/dev/null
  done < <(find "${news[@]}" -name '[12]' -perm -200 -printf '%l\0%H\0' 2>/dev/null)
done
# A session's directory cannot be listed, and a command may have changed the modes of others. Never follow a link that
# has replaced the directory.
[[ -L $directory ]] || chmod -R u+rwx -- "$directory" 2>/dev/null
# The control groups of the host's sandboxes. Killed processes may take a while to leave them.
shopt -s nullglob
for link in "$directory"/*/group-*; do
  group=$(readlink -- "$link")
  for (( round = 0; round < 100; round++ )); do
    [[ -d $group ]] && ! rmdir -- "$group" 2>/dev/null || break
    read -r -t 0.01 -u "$never"
  done
done
rm -rf -- "$directory"
# Remove the daemon's socket, unless another daemon has made its own at the same path already. Its directory may belong
# to the user; the default one is removed below.
if [[ $socket && ! -L $socket && $socket -ef /dev/fd/$file ]]; then
  # Another daemon may start at any time. So take the same lock as it does (flock is part of util-linux).
  exec {lock}< "${socket%/*}" && flock -w 1 "$lock" 2>/dev/null
  [[ $socket -ef /dev/fd/$file ]] && rm -f -- "$socket"
fi
rmdir -- "${directory%/*}" 2>/dev/null # fails if another host of this user has its directory there
