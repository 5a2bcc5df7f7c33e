"""``python -m shellsession``, and ``shellsession``: the command line.

Law: Ctrl-C while it is loaded, which takes longer than many a command, ends it as any program: without a word.
"""

try:
    import signal

    _at_ctrl_c = signal.getsignal(signal.SIGINT)  # under nohup it is ignored, and stays so
    if _at_ctrl_c is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
except KeyboardInterrupt:
    raise SystemExit(130) from None


def main() -> int:
    """Run it; its exit status."""
    try:
        from .cli.main import main as command_line

        signal.signal(signal.SIGINT, _at_ctrl_c)
        return command_line()
    except KeyboardInterrupt:  # before a verb was begun
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
