"""Hooks of MkDocs for this site.

They write the reference of the command line and the pages of examples/, and refuse what other hosts serve.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

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
_EXAMPLES: Final = Path(__file__).parent.parent / "examples"
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^):]+)\)")
_LANGUAGES: Final = {".py": "python", ".sh": "bash", ".service": "ini", "": "dockerfile"}


def on_files(files: Any, config: Any) -> Any:
    """Return the files of the site with a page for the table of examples/, and one for each file that it links to."""
    table = (_EXAMPLES / "README.md").read_text(encoding="utf-8")
    pages = {"index.md": _LINK.sub(_linked, table)}
    for _, target in _LINK.findall(table):
        if page := _page(target):
            path = _file(target)
            text = path.read_text(encoding="utf-8").rstrip("\n")
            pages[page] = f"# {path.name}\n\n````{_LANGUAGES[path.suffix]}\n{text}\n````\n"
    for name, text in pages.items():
        files.append(File.generated(config, f"examples/{name}", content=text))
    return files


def _file(target: str) -> Path:
    """The file behind a link of the table; for a directory with one file, that."""
    path = _EXAMPLES / target
    return next(path.iterdir()) if path.is_dir() else path


def _page(target: str) -> str | None:
    """The name of a linked file's page. The models, which are many, have none."""
    return None if target == "models" else f"{target.replace('.', '_')}.md"


def _linked(link: re.Match[str]) -> str:
    page = _page(link[2])
    return f"[{link[1]}]({page})" if page else f"`{link[1]}`"


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
