"""`tally [--top N] FILE...`: the counts, one word a line."""

import argparse
from pathlib import Path

from tally.count import tally


def main() -> None:
    parser = argparse.ArgumentParser(prog="tally", description=__doc__)
    parser.add_argument("--top", type=int, default=5)
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    texts = (path.read_text(encoding="utf-8") for path in options.files)
    for word, count in tally(texts, options.top):
        print(f"{count:6} {word}")


if __name__ == "__main__":
    main()
