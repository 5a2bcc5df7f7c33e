"""The search for a model's regular expression, in its own process that has little time.

Python's ``re`` may backtrack without end, and keeps the interpreter lock meanwhile. The process loads only ``paging``.
"""

from __future__ import annotations

import pickle
import resource
import subprocess
import sys
from pathlib import Path
from typing import Final

from ..errors import InvalidRequest, ShellSessionError
from ..paging import Piece, Query, page_of

# Seconds of processor time, which the kernel counts. An ordinary search takes less than one.
_MOST: Final = 2
_ROOT: Final = str(Path(__file__).parents[2])
# Isolated, as a model may write files into the directory or the environment that Python would load from.
_PROGRAM: Final = f"import sys; sys.path.append(sys.argv[1]); from {__name__} import answer; answer()"


def search(query: Query, stream: Piece) -> str:
    """Return the text for a query about a stream, as ``page_of`` does. Raises InvalidRequest if it takes too long."""
    question = pickle.dumps((query._replace(mask=None), stream))
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, _ROOT], input=question, capture_output=True, check=False
        )
    except OSError as error:
        raise ShellSessionError(f"no process could be started for the search: {error}; try again") from error
    if done.stdout:
        return done.stdout[1:].decode("utf-8", "surrogatepass")
    pattern = "" if query.grep is None else query.grep.pattern
    if done.stderr:
        why = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ShellSessionError(f"the search for {pattern!r:.100} failed: {why}")
    raise InvalidRequest(f"grep: the search for {pattern!r:.100} takes too long: simplify the pattern")


def answer() -> None:
    """Write the answer to the question on stdin, with a byte before it that says that there is one."""
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST, _MOST))  # the process is killed at the limit
    query, stream = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(b"=" + page_of(query, stream).encode("utf-8", "surrogatepass"))
