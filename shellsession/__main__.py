"""``python -m shellsession``, and ``shellsession``: the command line."""

import sys


def main() -> int:
    """Run it; its exit status."""
    try:
        from .cli.main import main as command_line

        return command_line()
    except KeyboardInterrupt:  # while it was loaded, which takes longer than many a command
        return 130


if __name__ == "__main__":
    sys.exit(main())
