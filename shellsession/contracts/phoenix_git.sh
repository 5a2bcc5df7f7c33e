# One of git's hooks, by the name it is run by: runs the repository's own hook, and adds `$trailer` to the message of a
# `git commit`. What stands before this text sets the trailer.
hook=${0##*/} ours=${0%/*}
newline='
'

# The repository's own hooks are where git finds them without our setting. A name that git does not know replaces it.
at=0
while [ "$at" -lt "${GIT_CONFIG_COUNT:-0}" ]; do
  eval "[ \"\$GIT_CONFIG_VALUE_$at\" != \"\$ours\" ]" || export "GIT_CONFIG_KEY_$at=phoenix.hooks"
  at=$((at + 1))
done
hooks=$(git rev-parse --git-path hooks) || exit
[ "$hooks" != "$ours" ] || hooks=/dev/null  # somebody has copied our setting

run_own() {
  if [ -x "$hooks/$hook" ]; then
    "$hooks/$hook" "$@"
  elif [ -e "$hooks/$hook" ]; then
    git hook run --ignore-missing "$hook" -- "$@"  # git hints that it is not executable
  fi
}

# The command of the git process $1, behind git's own options.
command_of() {
  tr '\n\0' ' \n' <"/proc/$1/cmdline" | {
    read -r word
    while read -r word; do
      case $word in
        -C | -c | --git-dir | --work-tree | --namespace | --super-prefix | --config-env | --attr-source) read -r word ;;
        -*) ;;
        *) break ;;
      esac
    done
    printf %s "$word"
  }
}

# Is our parent a `git commit`? Not one that git itself runs to go on with something else.
is_commit() {
  [ "$(command_of "$PPID")" = commit ] || return
  read -r _ _ _ parent _ <"/proc/$PPID/stat"
  { read -r program <"/proc/$parent/comm"; } 2>/dev/null && [ "$program" = git ] || return 0
  case $(command_of "$parent") in cherry-pick | rebase | revert) return 1 ;; esac
}

# Does the message lack the trailer? Not one that git refuses: without text, or no more than a sign-off. $1: how a line
# begins that is no text.
lacks_trailer() {
  text=
  while IFS= read -r line || [ "$line" ]; do
    case $line in
      "$trailer") return 1 ;;
      "$1"* | 'Signed-off-by: '*) ;;
      *[![:space:]]*) text=1 ;;
    esac
  done
  [ "$text" ]
}

# $1: the file of the message; then options of git.
add_trailer() {
  file=$1
  shift
  git "$@" -c trailer.separators=: interpret-trailers --in-place --no-divider \
    --if-exists addIfDifferent --if-missing add --trailer "$trailer" "$file"
}

case $hook in
  prepare-commit-msg)
    run_own "$@" || exit
    # Nobody edits this message: lines with "#" are text, unless there is none but what git says. A template that nobody
    # edits is no message. No line begins with \2.
    if [ "${GIT_EDITOR-}" = : ] && [ "${2-}" != template ] && is_commit; then
      if [ "${2-}" ]; then comment=$newline; else comment='#'; fi
      ! lacks_trailer "$comment" <"$1" || add_trailer "$1" -c core.commentChar="$(printf '\2')"
    fi
    ;;
  commit-msg)
    if [ "${GIT_EDITOR-}" != : ] && [ -f "$1" ] && is_commit; then
      # What `commit -v` shows below this line is no message.
      if LC_ALL=C sed '/^. -\{24\} >8 -\{24\}$/,$d' "$1" | git stripspace -s | lacks_trailer "$newline"; then
        add_trailer "$1" || exit
      fi
    fi
    run_own "$@"
    ;;
  *) run_own "$@" ;;
esac
