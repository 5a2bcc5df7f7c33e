"""phoenix's co-author trailer: a shell function in place of ``git``, so that bash itself finds each ``git commit``.

Law: git is called with what it was called with; a commit gets one more option, and nothing else is touched. A message
with a line ``---``, which git would take for its end, gets the trailer at its true end by a second, amending commit,
and so does one by an alias with options (``commit -m``), or one that an editor has written anew (``GIT_EDITOR='cp
message'``); one from a file or a pipe, which cannot be seen before, gets it where git puts it. An empty message gets
none, so that git refuses it; what comes from a pipe, or is to be written in an editor, does. Lines that begin with
``#`` are text as any other where git keeps them; in what an editor gets the trailer stands before them, as git has it.

Reached: ``git`` wherever bash runs it (lists, loops, functions, substitutions, pipes), with options before ``commit``,
and through git's own aliases of it; in isolated calls, where the command says ``commit`` behind ``git``, also by an
absolute path, in ``bash -c`` and ``sh -c``, and behind ``exec``, ``command``, ``env``, ``sudo``, ``timeout`` and their
like, and by the path that ``command -v git`` tells. Not reached, as nothing there reads a text of ours: git aliases
that are shell text, or aliases of aliases, scripts and programs that call git (``find -exec`` too), ``env -S``,
``builtin command``, and a ``git`` function of the session's own.
"""

from __future__ import annotations

import re
from typing import Final

from .contract import quoted

_GIT: Final = re.compile(r"(?<![\w.-])git(?![\w.=-])")
_COMMIT: Final = re.compile(r"\bcommit\b")
# Who asks what git is gets the truth: with no commit in sight there is nothing of ours, else see ``_FOUND``.
_ASKS: Final = re.compile(r"\b(?:command\s+-[vV]|type|hash|which|declare|typeset|compgen|unset)\b")
_TYPE: Final = re.compile(r"\btype\b[^;&|\n]*\bgit\b")  # for others it complains by the name of who called it
_PATH: Final = re.compile(r"(?<![^\s;&|(){`])/(?:[\w.+-]+/)*git(?![\w./=-])")
_BEHIND: Final = re.compile(r"\b(command|doas|env|ionice|nice|nohup|setsid|stdbuf|sudo|timeout|xargs)\b")
_SHELL: Final = re.compile(r"(?<![\w./-])((?:/(?:usr/)?bin/)?(?:ash|dash|sh))(?![\w./=-])")
# Only where each `exec` starts a git: a function cannot redirect the shell that calls it.
_EXEC: Final = re.compile(r"\bexec\b(?!\s+(?:-a\s+\S+\s+|-[cl]+\s+)*git\b)")
_BASH: Final = re.compile(r"\bbash\b")

# `set -x` shows the call and nothing of ours; a failure is the caller's to act on, not ours. All names are prefixed,
# as a local variable inherits the export of its namesake.
_QUIET: Final = r"{ \builtin local -; \builtin set +eux; } 2>/dev/null"
# git puts a trailer before comments at the end of a message. Does this one keep them as text? So it is where nobody
# edits it, unless they are to be stripped; then none is a comment, as no line begins with the character that we name.
# What is said to be the message is in `_phoenix_said`, and a "?" for what cannot be seen: git commits no empty one; in
# `_phoenix_edited`, whether an editor gets it.
_KEEPS: Final = r"""function _phoenix_keeps {
\builtin local _phoenix_asked= _phoenix_cleanup _phoenix_flags _phoenix_kind _phoenix_value
_phoenix_cleanup=$(\builtin command "${_phoenix_git[@]}" config --get commit.cleanup)
while (( $# )) && [[ $1 != -- ]]; do
  _phoenix_kind= _phoenix_value=
  case $1 in
    --e*) _phoenix_asked=1 ;;
    --no-e*) _phoenix_asked=0 ;;
    --c*=*) _phoenix_cleanup=${1#*=} ;;
    --c*)
      _phoenix_cleanup=$2
      \builtin shift ;;
    --m*=* | --fil*=* | --reu*=*) _phoenix_edited=0 _phoenix_kind=${1:2:1} _phoenix_value=${1#*=} ;;
    --m* | --fil* | --reu*)
      _phoenix_edited=0 _phoenix_kind=${1:2:1} _phoenix_value=$2
      \builtin shift ;;
    --fixup=* | --reedit-message=* | --squash=*) _phoenix_kind=c ;;
    --fixup | --reedit-message | --squash)
      _phoenix_kind=c
      \builtin shift ;;
    --author | --date | --pathspec-from-file | --template | --trailer)
      \builtin shift ;;
    -[!-]*)
      _phoenix_flags=${1%%[CFScmtu]*}
      [[ $_phoenix_flags == *e* ]] && _phoenix_asked=1
      _phoenix_value=${1#"$_phoenix_flags"}
      _phoenix_kind=${_phoenix_value:0:1} _phoenix_value=${_phoenix_value:1}
      [[ $_phoenix_kind == [CFm] ]] && _phoenix_edited=0
      if [[ ! $_phoenix_value && $_phoenix_kind == [CFcmt] ]]; then
        _phoenix_value=$2
        \builtin shift
      fi ;;
  esac
  case $_phoenix_kind in
    m) _phoenix_said+=$_phoenix_value$'\n' ;;
    [Ff]) if [[ -f $_phoenix_value && " ${_phoenix_git[*]} " != *[[:space:]]-C[[:space:]]* ]]; then
      { _phoenix_said+=$(<"$_phoenix_value")$'\n'; } 2>/dev/null
    else
      _phoenix_said+='?'
    fi ;;
    [Ccr]) _phoenix_said+='?' ;;
  esac
  \builtin shift
done
_phoenix_edited=${_phoenix_asked:-$_phoenix_edited}
[[ $_phoenix_edited == 0 && $_phoenix_cleanup != strip ]]
}
"""
_MAIN: Final = r"""function _phoenix_git {
%(quiet)s
\builtin local _phoenix_at=2 _phoenix_name _phoenix_known _phoenix_means _phoenix_version _phoenix_git _phoenix_rest
\builtin local _phoenix_said= _phoenix_edited=1 _phoenix_call
_phoenix_call=("$@")
while (( _phoenix_at <= $# )); do
  case ${!_phoenix_at} in
    -C | -c | --git-dir | --work-tree | --namespace | --super-prefix | --config-env | --attr-source)
      (( _phoenix_at += 2 )) ;;
    -*) (( ++_phoenix_at )) ;;
    *) break ;;
  esac
done
_phoenix_name=${!_phoenix_at}
_phoenix_git=("${@:1:_phoenix_at-1}") _phoenix_rest=("${@:_phoenix_at+1}")
_phoenix_known=$_phoenix_name
if [[ $_phoenix_name == [a-zA-Z]* && $_phoenix_name != commit ]]; then
  _phoenix_known=$(\builtin command "${_phoenix_git[@]}" config --get "alias.$_phoenix_name" 2>/dev/null)
  # git does not look for an alias of what it knows itself
  [[ ${_phoenix_known%%%% *} == commit &&
    $'\n'$(\builtin command "$1" --list-cmds=main)$'\n' == *$'\n'"$_phoenix_name"$'\n'* ]] && _phoenix_known=
fi
if [[ ${_phoenix_known%%%% *} != commit || ${_phoenix_rest[0]} == @(-h|--help) ]]; then
  \builtin command "$@"
  \builtin return
fi
_phoenix_means=$_phoenix_known
# A line of the message already, where git would not look for it: in another paragraph, as the subject.
\builtin local IFS=$'\n'
if [[ $'\n'"${_phoenix_rest[*]}"$'\n' == *$'\n'%(trailer)s$'\n'* ]]; then
  \builtin command "$@"
  \builtin return
fi
_phoenix_version=$(\builtin command "$1" version)
_phoenix_version=${_phoenix_version#git version }
_phoenix_version=${_phoenix_version%%%%[!0-9.]*}.0
_phoenix_known=${_phoenix_version#*.}
_phoenix_known=${_phoenix_known%%%%.*} _phoenix_version=${_phoenix_version%%%%.*}
_phoenix_git+=(-c trailer.separators=: -c trailer.ifexists=addIfDifferent -c trailer.ifmissing=add)
if [[ $_phoenix_means == commit ]] &&
  (( _phoenix_version > 2 || _phoenix_version == 2 && _phoenix_known >= 32 )) &&
  { _phoenix_known=$(\builtin command "${_phoenix_git[@]}" log -1 --format=%%B 2>/dev/null) || :; } &&
  [[ $'\n'"${_phoenix_rest[*]}"$'\n'"$_phoenix_known"$'\n' != *$'\n'---[[:space:]]* ]]; then
  _phoenix_keeps "${_phoenix_rest[@]}" && _phoenix_git+=(-c core.commentChar=$'\1')
  if [[ $_phoenix_said && $_phoenix_said != *[![:space:]]* ]]; then
    \builtin command "$@"
    \builtin return
  fi
  _phoenix_call=("${_phoenix_git[@]}" "$_phoenix_name" --trailer %(trailer)s "${_phoenix_rest[@]}")
  if [[ $_phoenix_edited == 0 ]]; then
    \builtin command "${_phoenix_call[@]}"
    \builtin return
  fi
fi
# Before 2.32 commit knows no --trailer; a later one takes a line "---" for the end of the message; an alias may end in
# an option that takes the next word (`commit -m`); an editor may write all of it anew: the new commit is worded again.
_phoenix_known=$(\builtin command "${_phoenix_git[@]}" rev-parse -q --verify HEAD)
\builtin command "${_phoenix_call[@]}" || \builtin return
[[ $_phoenix_known == "$(\builtin command "${_phoenix_git[@]}" rev-parse -q --verify HEAD)" ]] && \builtin return
_phoenix_known=$(\builtin command "${_phoenix_git[@]}" log -1 --format=%%B)
[[ $'\n'"$_phoenix_known"$'\n' == *$'\n'%(trailer)s$'\n'* ]] && \builtin return
_phoenix_git+=(-c core.commentChar=$'\1')
_phoenix_version=$(\builtin command "${_phoenix_git[@]}" interpret-trailers --no-divider --trailer %(trailer)s \
  <<<"$_phoenix_known")
[[ $_phoenix_version == "$_phoenix_known" ]] || \builtin command "${_phoenix_git[@]}" commit --quiet --amend --only \
  --no-verify --allow-empty --cleanup=verbatim --file - <<<"$_phoenix_version"
}
\builtin declare -F git >/dev/null || function git {
%(quiet)s
_phoenix_git git "$@"
}
"""
_PLAIN: Final = """\\builtin declare -F _phoenix_git >/dev/null && function _phoenix_git {
\\builtin command "$@"
}
"""
# What starts git with another name in front: that one starts a bash which knows our function; so does a `sh -c`, whose
# text gets a function of POSIX sh before it.
_WRAP: Final = r"""function _phoenix_ask {
(
while IFS=' ' \builtin read -r _ _ _phoenix_at; do
  [[ $(\builtin declare -f "$_phoenix_at") == *_phoenix_* ]] && \builtin unset -f "$_phoenix_at"
done <<<"$(\builtin declare -F)"
\builtin "$@"
)
}
function _phoenix_into {
_phoenix_more=("$@")
\builtin local _phoenix_at _phoenix_text
_phoenix_text=$(\builtin declare -f _phoenix_git _phoenix_keeps)$'\n_phoenix_git git "$@"'
_phoenix_text=${_phoenix_text//"'"/"'\\''"}
for (( _phoenix_at = 1; _phoenix_at + 1 < $#; ++_phoenix_at )); do
  case ${_phoenix_more[_phoenix_at]} in
    -*c*)
      _phoenix_text="git() { '$BASH' -c '$_phoenix_text' bash \"\$@\"; }"
      _phoenix_more[_phoenix_at+1]="$_phoenix_text"$'\n'"${_phoenix_more[_phoenix_at+1]}"
      \builtin break ;;
    -*) ;;
    *) \builtin break ;;
  esac
done
}
function _phoenix_wrap {
\builtin local _phoenix_words _phoenix_more
if [[ $1 != @(command|exec|*/*) ]] && ! \builtin type -P "$1" >/dev/null; then
  \builtin printf '%s: line %s: %s: command not found\n' "$0" "${BASH_LINENO[1]}" "$1" >&2
  \builtin return 127
fi
_phoenix_words=()
while (( $# )); do
  case ${_phoenix_words[0]}:$1 in
    command:-*[vV]*)
      _phoenix_ask "${_phoenix_words[@]}" "$@"
      \builtin return ;;
    *:sh | *:*/sh | *:dash | *:*/dash | *:ash)
      _phoenix_into "$@"
      _phoenix_words+=("${_phoenix_more[@]}")
      \builtin set --
      \builtin break ;;
    ?*:git | ?*:*/git)
      _phoenix_words+=("$BASH" -c "$(\builtin declare -f _phoenix_git _phoenix_keeps)"$'\n''_phoenix_git "$@"' bash)
      \builtin break ;;
    sudo:-[ugpCDhRrTtU] | doas:-[uC] | env:-[uC] | timeout:-[ks] | nice:-n | ionice:-[cn] | stdbuf:-[ioe] | \
      xargs:-[adEILnPs] | exec:-a)
      _phoenix_words+=("$1")
      \builtin shift ;;
    :* | *:-* | *:*=* | *:[0-9]* | *:'{}') ;;
    *) \builtin break ;;
  esac
  _phoenix_words+=("$1")
  \builtin shift
done
\builtin command "${_phoenix_words[@]}" "$@"
}
"""
# What is told of git is a path: called by that, it is reached, too.
_FOUND: Final = rf"""if [[ :$SHELLOPTS: != *:posix:* && $(\builtin type -P git) =~ ^/[[:alnum:]/._+-]+$ ]]; then
\builtin declare -F "$BASH_REMATCH" >/dev/null || \builtin eval "function $BASH_REMATCH {{
{_QUIET}
_phoenix_git $BASH_REMATCH \"\$@\"
}}"
fi
"""


def function(trailer: str | None) -> str:
    """Bash text: from here on, commits carry the trailer; or, with None, no other than they are given."""
    if trailer is None:  # another tool's function may stand for git
        return _PLAIN
    return _KEEPS + _MAIN % {"quiet": _QUIET, "trailer": quoted(trailer.encode()).decode()}


def prelude(command: str, trailer: str) -> str:
    """Bash text for the subshell of one command; "" where the command does not speak of git."""
    found = _GIT.search(command)
    if found is None:
        return ""
    commits = _COMMIT.search(command, found.end()) is not None
    if not commits and _ASKS.search(command):
        return ""
    text = function(trailer)
    names = sorted({*_BEHIND.findall(command), *_SHELL.findall(command)}) if commits else []
    if commits and "exec" in command and not _EXEC.search(command):
        names.append("exec")
    asks = commits and _ASKS.search(command) is not None
    if names or asks:
        text += _WRAP
    if asks:
        text += _FOUND
    if commits and _TYPE.search(command):
        text += _stand_in("type", "_phoenix_ask")
    text += "".join(_stand_in(name, "_phoenix_wrap") for name in names)
    if commits:
        text += "".join(_stand_in(path, "_phoenix_git") for path in sorted(set(_PATH.findall(command))))
    if commits and _BASH.search(command):
        text += "\\builtin export -f git _phoenix_git _phoenix_keeps\n"
    return text


def _stand_in(name: str, call: str) -> str:
    """A function of that name, where the command has none; in posix mode no path can be one."""
    made = f'function {name} {{\n{_QUIET}\n{call} {name} "$@"\n}}'
    return f"{{\n\\builtin declare -F {name} >/dev/null || {made}\n}} 2>/dev/null\n"
