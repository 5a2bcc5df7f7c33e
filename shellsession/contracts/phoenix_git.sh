# The git hook that $0 names. It runs the repository's own hook, and adds `$trailer` to the message of a `git commit`. The
# lines before this text set the trailer.
hook=${0##*/} ours=${0%/*}
newline='
'

# Find the repository's own hooks: where git finds them without our setting, whose key becomes one that git ignores.
at=0
while [ "$at" -lt "${GIT_CONFIG_COUNT:-0}" ]; do
  eval "[ \"\$GIT_CONFIG_VALUE_$at\" != \"\$ours\" ]" || export "GIT_CONFIG_KEY_$at=phoenix.hooks"
  at=$((at + 1))
done
hooks=$(git rev-parse --git-path hooks) || exit
[ "$hooks" != "$ours" ] || hooks=/dev/null  # our setting was copied, to a configuration file for example

run_own() {
  if [ -x "$hooks/$hook" ]; then
    "$hooks/$hook" "$@"
  elif [ -e "$hooks/$hook" ]; then
    git hook run --ignore-missing "$hook" -- "$@"  # lets git print its hint that the hook is not executable
  fi
}

# Print the subcommand of the git process $1: the first word after git's own options.
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

# Is our parent a `git commit`, and not one that git itself runs to continue another operation?
is_commit() {
  [ "$(command_of "$PPID")" = commit ] || return
  read -r _ _ _ parent _ <"/proc/$PPID/stat"
  { read -r program <"/proc/$parent/comm"; } 2>/dev/null && [ "$program" = git ] || return 0
  case $(command_of "$parent") in cherry-pick | rebase | revert) return 1 ;; esac
}

# Does the message on stdin need the trailer? A message that git refuses does not: one without text, or with only a
# sign-off. $1: the beginning of lines that are not text.
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

# Add the trailer to the message in the file $1. The other arguments are options for git.
add_trailer() {
  file=$1
  shift
  git "$@" -c trailer.separators=: interpret-trailers --in-place --no-divider \
    --if-exists addIfDifferent --if-missing add --trailer "$trailer" "$file"
}

case $hook in
  prepare-commit-msg)
    run_own "$@" || exit
    # For a message that nobody edits. Lines with "#" are text, unless git itself wrote the whole message. A template that
    # nobody edits is not a message. The comment character is \2, with which no line begins.
    if [ "${GIT_EDITOR-}" = : ] && [ "${2-}" != template ] && is_commit; then
      if [ "${2-}" ]; then comment=$newline; else comment='#'; fi
      ! lacks_trailer "$comment" <"$1" || add_trailer "$1" -c core.commentChar="$(printf '\2')"
    fi
    ;;
  commit-msg)
    if [ "${GIT_EDITOR-}" != : ] && [ -f "$1" ] && is_commit; then
      # The diff that `commit -v` shows below this line is not part of the message.
      if LC_ALL=C sed '/^. -\{24\} >8 -\{24\}$/,$d' "$1" | git stripspace -s | lacks_trailer "$newline"; then
        add_trailer "$1" || exit
      fi
    fi
    run_own "$@"
    ;;
  *) run_own "$@" ;;
esac
