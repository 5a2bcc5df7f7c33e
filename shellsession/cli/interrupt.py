"""``shellsession interrupt``: end the running command, whoever started it, and keep the session.

Law: what the command printed until then is shown, so that nothing of it is lost.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from . import arguments, results

EXAMPLES: Final = (
    ("shellsession interrupt builder", "as Ctrl-C would, and harder if it does not listen"),
    ("shellsession interrupt --json builder", "what it had done by then, for programs"),
)
_DESCRIPTION: Final = """\
End the command that runs in the agent's session, also one that another process waits for, and keep the session.
Prints what is known of its output. It exits with 0 when that has ended and the session's state is kept, and with 125
where no command runs."""


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("interrupt", "[OPTIONS] AGENT", _DESCRIPTION, EXAMPLES)
    arguments.add_json(own, "print the whole result as one JSON object")
    arguments.add_socket(own)
    arguments.add_agent(own)
    return own


def main(words: Sequence[str]) -> int:
    given = own_parser().parse_args(words)
    from ..daemon.client.admin import Visit

    with Visit(given.agent, given.socket) as visit:
        result = visit.interrupt()
    results.tell(result, given.agent, given.json)
    return 0 if result.state_kept else results.status(result)
