"""`make picture`: draws docs/demo.svg, the picture of the README, from a real run of the demo."""

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from shellsession import Session

PICTURE = Path(__file__).parent.parent / "docs" / "demo.svg"
SHOWN = ("1", "8", "9", "12", "15", "16")  # the numbers of the steps
COLUMNS = 88
# rich loads its font from a server. The picture takes a font of the reader's instead.
LOADED_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> None:
    with Session(extra_env={"TERM": "xterm-256color"}, size=(COLUMNS, 50)) as session:
        demo = session.run([sys.executable, "-m", "benchmarks.demo"], check=True)
    steps = re.split(r"\n(?=\n\x1b\[1m *\d+/)", "\n" + demo.stdout)
    shown = [step.strip("\n") for step in steps if (found := re.search(r"(\d+)/", step)) and found[1] in SHOWN]
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi("\n\n".join(shown).replace("\n\n\n", "\n\n")))
    svg = console.export_svg(title="make demo", theme=MONOKAI, unique_id="demo")
    svg = LOADED_FONT.sub("", svg).replace("Fira Code", "Menlo, Consolas, DejaVu Sans Mono")
    PICTURE.write_text(re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE), encoding="utf-8")


if __name__ == "__main__":
    main()
