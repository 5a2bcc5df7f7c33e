"""Hooks of MkDocs for this site: they write the reference of the command line, and refuse what other hosts serve."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.exceptions import PluginError

from shellsession.cli.arguments import VERBS, parser_of

_PLACE: Final = "<!-- every verb -->"
_CODE_IN_TABLE: Final = re.compile(r"^\|.*`.*$", re.MULTILINE)
_CODE: Final = re.compile(r"`[^`\n]+`")
# What a browser loads by itself; a link that a reader follows is none. For a diagram, the theme's own script would.
_LOADED: Final = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc(?:set)?=["']?(?:https?:)?//[^>]*>"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|icon|preload|preconnect|prefetch|dns-prefetch|manifest))"""
    r"""[^>]*\bhref=["']?(?:https?:)?//[^>]*>|(?:@import\s+|url\()["']?(?:https?:)?//[^"')]*|class="mermaid\"""",
    re.IGNORECASE,
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page as MkDocs reads it, with a section for each verb of the command line, made from its parser."""
    if _PLACE in markdown:
        markdown = markdown.replace(_PLACE, "\n".join(map(_section, VERBS)))
    # Elsewhere a `|` in a table's code needs a backslash, which MkDocs would show.
    return _CODE_IN_TABLE.sub(lambda row: _CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), markdown)


def _section(verb: str) -> str:
    parser = parser_of(verb)
    examples = (parser.epilog or "").partition("\n")[2].replace("\n  ", "\n").strip()
    lines = [
        *("", f"## {verb}", "", "```text", parser.format_usage().removeprefix("usage: ").strip(), "```", ""),
        *(str(parser.description), "", "| argument | meaning |", "|---|---|"),
        *(_row(action) for action in parser._actions if action.help != argparse.SUPPRESS),
        *("", "```bash", examples, "```"),
    ]
    return "\n".join(lines)


def _row(action: argparse.Action) -> str:
    value = str(action.metavar or ",".join(map(str, action.choices or ())))
    names = [f"{option} {value}".strip() for option in action.option_strings] or [value]
    said = (action.help or "") % vars(action)
    return f"| {', '.join(f'`{name}`' for name in names)} | {said} |"


def on_post_build(config: Any) -> None:
    """Raise an error if a built page or style sheet loads anything from another host."""
    built = Path(config["site_dir"])
    pages = [path for path in built.rglob("*") if path.suffix in (".html", ".css")]
    found = [
        f"{path.relative_to(built)}: {loaded[:200]}" for path in pages for loaded in _LOADED.findall(path.read_text())
    ]
    if found or not pages:
        raise PluginError("the site would load from other hosts:\n" + "\n".join(found))
