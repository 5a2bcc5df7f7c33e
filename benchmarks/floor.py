"""The floor: a loop of ten lines on raw pipes to one bash. It promises nothing but the exit status."""

import os
import subprocess
from typing import Self

# This last byte alone marks the end of a command: any output could forge it.
MARK = b"\nprintf '\\036%s\\037' $?\n"


class Floor:
    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(["bash", "--noprofile", "--norc"], stdin=pipe, stdout=pipe, bufsize=0)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._write, self._read = self._process.stdin.fileno(), self._process.stdout.fileno()

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, command: str) -> bytes:
        os.write(self._write, command.encode() + MARK)
        got = b""
        while not got.endswith(b"\x1f"):
            got += os.read(self._read, 65536)
        return got

    def close(self) -> None:
        with self._process:
            self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
