"""``python -m shellsession``, and ``shellsession``: the command line.

Law: Ctrl-C while it is loaded, which takes longer than many a command, ends it as any program: without a word.
"""

import gc

TYPE_CHECKING = False
gc.disable()  # nothing that is loaded is garbage; to look for some would take as long as to load three modules
try:
    if TYPE_CHECKING:
        import signal
    else:
        import _signal as signal  # signal makes enums of its numbers: a sixth of what a short command takes

    _at_ctrl_c = signal.getsignal(signal.SIGINT)  # under nohup it is ignored, and stays so
    if _at_ctrl_c is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
except KeyboardInterrupt:
    raise SystemExit(130) from None


def _begin() -> None:
    """All is loaded."""
    gc.enable()
    signal.signal(signal.SIGINT, _at_ctrl_c)


def main() -> int:
    """Run it; its exit status."""
    try:
        from .cli.main import main as command_line

        return command_line(begin=_begin)
    except KeyboardInterrupt:  # before a verb was begun
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
