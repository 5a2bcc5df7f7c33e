"""phoenix's co-author trailer: a shell function in place of ``git``, so that bash itself finds each ``git commit``.

Law: git is called with what it was called with; a commit alone gets an editor of ours, which runs the one that it would
have and adds the trailer to what that has left, wherever it came from. So it is one commit, and its hooks see the
message. Where nobody is to edit, git is told to (``--edit``), and the editor does nothing else; all that a hook can see
of it is that GIT_EDITOR is not ``:``. A message that git would refuse as empty gets none, so that git refuses it. Lines
that begin with ``#`` are text as any other where git keeps them; in what an editor gets the trailer stands before them,
as git has it. Of an editor that fails git tells with our words before it (but for ``false``).

Reached: ``git`` wherever bash runs it (lists, loops, functions, substitutions, pipes), with options before ``commit``,
and through git's own aliases of it; in isolated calls, where the command says ``commit`` behind ``git``, also by an
absolute path, in ``bash -c`` and ``sh -c``, and behind ``exec``, ``command``, ``env``, ``sudo``, ``timeout`` and their
like, and by the path that ``command -v git`` tells. Not reached, as nothing there reads a text of ours: git aliases
that are shell text, or aliases of aliases, scripts and programs that call git (``find -exec`` too), ``env -S``,
``builtin command``, and a ``git`` function of the session's own.

Before bash 5.1 an assignment before ``git`` stays in posix mode, as before any function.
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
# What git runs as its editor: the commit's own one (`$0`), then the trailer comes in where there is a message. As git
# has it, one that only signs off is none, nor is one of which nothing but its template is left, without comments. `$1`
# is the file; below a line with ">8" stands what `commit -v` shows, and what that begins with marks comments, also
# where git chose it (core.commentChar=auto).
_EDIT: Final = r"""[ "$0" = : ] || /bin/sh -c "$0 \"\$@\"" "$0" "$@" || exit
[ -f "$1" ] && [ -w "$1" ] || exit 0  # git says what it lacks
export LC_ALL=C  # a message may be in any encoding
[ "$_phoenix_mark" ] || _phoenix_mark=$(sed -n "s/^\(.\) -\{24\} >8 -\{24\}\$/\1/p" <"$1")
marked() {
  git ${_phoenix_mark:+-c "core.commentChar=${_phoenix_mark%%"$newline"*}"} "$@"
}
clean() {
  sed "$_phoenix_cut" <"$1" | marked stripspace $_phoenix_strip
}
newline="
"
case $_phoenix_template in
  "") _phoenix_template=$(git config --type=path --get commit.template) ;;
  /*) ;;
  *) _phoenix_template=$GIT_PREFIX$_phoenix_template ;;
esac
text=$(clean "$1")
# A line of the message already, where git would not look for it: in another paragraph, as the subject.
case $newline$text$newline in *"$newline$_phoenix_trailer$newline"*) exit 0 ;; esac
[ -f "$_phoenix_template" ] && text=${text#"$(clean "$_phoenix_template")"}
[ "$(printf "%s\n" "$text" | sed "/^Signed-off-by: /d; /[^[:space:]]/!d")" ] || exit 0
marked -c trailer.separators=: -c trailer.ifexists=addIfDifferent -c trailer.ifmissing=add \
  interpret-trailers --in-place --no-divider --trailer "$_phoenix_trailer" "$1"
exit 0"""
# How many words of a commit stand before `--`, whether an editor gets its message, how that is cleaned, its template.
# Fails where the last option lacks its value: git is to say so. (`nocasematch` is heard by `case`, not by `${x#C}`.)
_READ: Final = r"""function _phoenix_read {
\builtin local _phoenix_asked= _phoenix_flags _phoenix_kind _phoenix_next _phoenix_value
_phoenix_cleanup=$(\builtin command "${_phoenix_git[@]}" config --get commit.cleanup)
while (( $# )) && [[ $1 != @(--|--end-of-options) ]]; do
  _phoenix_kind= _phoenix_next= _phoenix_value=${1#*=}
  case $1 in
    --e*) _phoenix_asked=1 ;;
    --no-e*) _phoenix_asked=0 ;;
    --no-cl*) _phoenix_cleanup= ;;
    --au* | --c* | --da* | --fil* | --fix* | --m* | --pathspec-from* | --ree* | --reu* | --sq* | --te* | --tr*)
      _phoenix_kind=${1:1:4}
      [[ $1 == *=* ]] || _phoenix_next=1 ;;
    -[!-]*)
      _phoenix_flags=${1%%[CFScmtu]*}
      [[ $_phoenix_flags == *e* ]] && _phoenix_asked=1
      _phoenix_value=${1#"$_phoenix_flags"}
      _phoenix_kind=${_phoenix_value:0:1} _phoenix_value=${_phoenix_value:1}
      [[ $_phoenix_kind && ! ${_phoenix_kind#[CFcmt]} && ! $_phoenix_value ]] && _phoenix_next=1
      [[ $_phoenix_kind && ! ${_phoenix_kind#C} ]] && _phoenix_kind=-reu ;;
  esac
  if [[ $_phoenix_next ]]; then
    (( $# > 1 )) || \builtin return
    _phoenix_value=$2
    (( ++_phoenix_count ))
    \builtin shift
  fi
  case $_phoenix_kind in
    -c*) _phoenix_cleanup=$_phoenix_value ;;
    t | -te*) _phoenix_template=$_phoenix_value ;;
    c | -ree) _phoenix_known=1 ;;
    F | m | -fil | -m* | -reu | -fix)
      _phoenix_known=1
      [[ $_phoenix_kind == -fix && $_phoenix_value == @(amend|reword):* ]] || _phoenix_edited=0 ;;
  esac
  (( ++_phoenix_count ))
  \builtin shift
done
_phoenix_edited=${_phoenix_asked:-$_phoenix_edited}
}
"""
# The words of an alias, as git has them. Fails where git complains of it.
_SPLIT: Final = r"""function _phoenix_split {
\builtin local _phoenix_left="$1" _phoenix_quote= _phoenix_word=
_phoenix_words=()
while [[ $_phoenix_left ]]; do
  case $_phoenix_quote${_phoenix_left:0:1} in
    [[:space:]])
      _phoenix_words+=("$_phoenix_word")
      _phoenix_word= _phoenix_left=${_phoenix_left#"${_phoenix_left%%[![:space:]]*}"}
      \builtin continue ;;
    [\'\"]) _phoenix_quote=${_phoenix_left:0:1} ;;
    "''" | '""') _phoenix_quote= ;;
    \\ | '"\')
      _phoenix_left=${_phoenix_left:1}
      _phoenix_word+=${_phoenix_left:0:1}
      [[ $_phoenix_left ]] || \builtin return ;;
    *) _phoenix_word+=${_phoenix_left:0:1} ;;
  esac
  _phoenix_left=${_phoenix_left:1}
done
_phoenix_words+=("$_phoenix_word")
[[ ! $_phoenix_quote ]]
}
"""
_MAIN: Final = r"""function _phoenix_git {
%(quiet)s
\builtin local _phoenix_at=2 _phoenix_name _phoenix_known _phoenix_git _phoenix_words _phoenix_count=1
\builtin local _phoenix_cleanup _phoenix_edited=1 _phoenix_editor=:
while (( _phoenix_at <= $# )); do
  case ${!_phoenix_at} in
    -C | -c | --git-dir | --work-tree | --namespace | --super-prefix | --config-env | --attr-source)
      (( _phoenix_at += 2 )) ;;
    -*) (( ++_phoenix_at )) ;;
    *) break ;;
  esac
done
_phoenix_name=${!_phoenix_at}
_phoenix_git=("${@:1:_phoenix_at-1}")
_phoenix_known=$_phoenix_name
if [[ $_phoenix_name == [a-zA-Z]* && $_phoenix_name != commit ]]; then
  _phoenix_known=$(\builtin command "${_phoenix_git[@]}" config --get "alias.$_phoenix_name" 2>/dev/null)
  # git does not look for an alias of what it knows itself
  [[ ${_phoenix_known%%%%[[:space:]]*} == commit &&
    $'\n'$(\builtin command "$1" --list-cmds=main)$'\n' == *$'\n'"$_phoenix_name"$'\n'* ]] && _phoenix_known=
fi
(( ++_phoenix_at ))
if [[ ${_phoenix_known%%%%[[:space:]]*} != commit || ${!_phoenix_at} == @(-h|--help) ]] ||
  ! _phoenix_split "$_phoenix_known"; then
  \builtin command "$@"
  \builtin return
fi
_phoenix_known= _phoenix_words+=("${@:_phoenix_at}")
\builtin local -x _phoenix_edit=%(edit)s
\builtin local -x _phoenix_trailer=%(trailer)s _phoenix_template= _phoenix_cut= _phoenix_strip= _phoenix_mark=
if [[ ${GIT_EDITOR@a} == *r* ]] || ! _phoenix_read "${_phoenix_words[@]:1}" ||
  { [[ $_phoenix_edited == 1 ]] && {
    ! _phoenix_editor=$(\builtin command "${_phoenix_git[@]}" var GIT_EDITOR 2>/dev/null) ||
      [[ $_phoenix_editor == @(false|*/false) ]]; }; }; then
  \builtin command "$@"  # git says what it lacks, or which editor has failed
  \builtin return
fi
[[ $_phoenix_known || $_phoenix_cleanup == verbatim ]] && _phoenix_template=/dev/null
if [[ $_phoenix_edited == 1 ]]; then
  _phoenix_cut='/^. -\{24\} >8 -\{24\}$/,$d'
else  # an editor all the same, and what comes of none
  [[ $_phoenix_cleanup == @(|default|scissors) ]] && _phoenix_cleanup=whitespace
  [[ $_phoenix_cleanup == strip ]] || _phoenix_mark=$'\2'  # begins no line: none is a comment (4.4 exports \1 as two)
  _phoenix_git+=(-c advice.waitingForEditor=false)
  _phoenix_words=("${_phoenix_words[@]:0:_phoenix_count}" --edit --no-status "--cleanup=$_phoenix_cleanup"
    "${_phoenix_words[@]:_phoenix_count}")
fi
[[ $_phoenix_cleanup == @(|default|strip) ]] && _phoenix_strip=-s
_phoenix_editor=${_phoenix_editor//"'"/"'\\''"}
GIT_EDITOR="/bin/sh -c \"\$_phoenix_edit\" '$_phoenix_editor'" \
  \builtin command "${_phoenix_git[@]}" "${_phoenix_words[@]}"
}
\builtin declare -F git >/dev/null || if [[ $- == *i* ]] && (( BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 501 )); then
# An interactive bash before 5.1 that gives back what `local -` has kept reads on from fd 0: a subshell is none.
function git {
(
%(quiet)s
_phoenix_git git "$@"
)
}
else
function git {
%(quiet)s
_phoenix_git git "$@"
}
fi
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
_phoenix_text=$(\builtin declare -f _phoenix_git _phoenix_read _phoenix_split)$'\n_phoenix_git git "$@"'
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
      _phoenix_more=$(\builtin declare -f _phoenix_git _phoenix_read _phoenix_split)
      _phoenix_words+=("$BASH" -c "$_phoenix_more"$'\n''_phoenix_git "$@"' bash)
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
    words = {"edit": quoted(_EDIT.encode()), "trailer": quoted(trailer.encode())}
    return _READ + _SPLIT + _MAIN % {"quiet": _QUIET, **{name: word.decode() for name, word in words.items()}}


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
        text += "\\builtin export -f git _phoenix_git _phoenix_read _phoenix_split\n"
    return text


def _stand_in(name: str, call: str) -> str:
    """A function of that name, where the command has none; in posix mode no path can be one."""
    made = f'function {name} {{\n{_QUIET}\n{call} {name} "$@"\n}}'
    return f"{{\n\\builtin declare -F {name} >/dev/null || {made}\n}} 2>/dev/null\n"
