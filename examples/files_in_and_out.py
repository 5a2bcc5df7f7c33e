"""Put files into a session and get them out, to the byte: one file, and a whole directory.

This works over the daemon and in a sandbox, too. It needs no directory that both sides can see.

Run:     python examples/files_in_and_out.py
Prints:  1000000 bytes came back unchanged
"""

import io
import os
import shlex
import tarfile
import tempfile
from pathlib import Path

from shellsession import Limits, Session

# A larger file ends the `cat`, and `check=True` raises CommandFailed.
LIMITS = Limits(max_output=100_000_000, on_overflow="kill")


def put_file(sh: Session, path: str, data: bytes) -> None:
    sh.run(f"cat >{shlex.quote(path)}", stdin=data, check=True)


def get_file(sh: Session, path: str) -> bytes:
    return sh.run(["cat", "--", path], tty=False, limits=LIMITS, check=True).stdout_bytes


def put_directory(sh: Session, source: Path, target: str) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(source, arcname=".")
    target = shlex.quote(target)
    sh.run(f"mkdir -p {target} && tar -xC {target}", stdin=archive.getvalue(), check=True)


def main() -> None:
    data = os.urandom(1_000_000)
    with tempfile.TemporaryDirectory() as mine, tempfile.TemporaryDirectory() as theirs, Session(cwd=theirs) as sh:
        put_file(sh, "it's random.bin", data)
        assert get_file(sh, "it's random.bin") == data
        print(f"{len(data)} bytes came back unchanged")

        Path(mine, "one.txt").write_text("1")
        Path(mine, "two.txt").write_text("2")
        put_directory(sh, Path(mine), "project")
        print(f"the session has {sh.run('ls project', tty=False).stdout.split()}")


if __name__ == "__main__":
    main()
