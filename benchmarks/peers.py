"""The alternatives to shellsession, each used as its own documentation says."""

import asyncio
import logging
import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import pexpect.replwrap
from langchain.agents.middleware import HostExecutionPolicy
from langchain.agents.middleware.shell_tool import ShellSession
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest
from swerex.runtime.local import LocalRuntime

from benchmarks.floor import Floor
from shellsession import Session


class Peer(Protocol):
    """What every peer can do."""

    def run(self, command: str, timeout: float = 60.0) -> str: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Kind:
    """One peer: how to open it, and what it reports about a command besides its output."""

    name: str
    open: Callable[[], Peer]
    exit_code: str
    stderr: str


class Ours:
    def __init__(self) -> None:
        self.session = Session()

    def run(self, command: str, timeout: float = 60.0) -> str:
        return self.session.run(command, timeout=timeout).stdout

    def close(self) -> None:
        self.session.close()


class Bare:
    """The floor. It has no timeout, so no benchmark asks it for one."""

    def __init__(self) -> None:
        self._floor = Floor()

    def run(self, command: str, timeout: float = 60.0) -> str:
        return self._floor.run(command).decode(errors="replace")

    def close(self) -> None:
        self._floor.close()


class FreshProcess:
    def run(self, command: str, timeout: float = 60.0) -> str:
        argv = ["bash", "-c", command]
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False).stdout

    def close(self) -> None:
        pass


class LangChain:
    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="shellsession-bench-")
        logging.getLogger("langchain").setLevel(logging.CRITICAL)  # it logs each timeout
        policy, workspace = HostExecutionPolicy(), Path(self._directory.name)
        self.session = ShellSession(workspace, policy, ("/bin/bash",), dict(os.environ))
        self.session.start()

    def run(self, command: str, timeout: float = 60.0) -> str:
        result = self.session.execute(command, timeout=timeout)
        if result.timed_out:
            raise TimeoutError(command)
        return str(result.output)

    def close(self) -> None:
        self.session.stop(1.0)
        self._directory.cleanup()


class ReplWrap:
    def __init__(self) -> None:
        self._wrapper = pexpect.replwrap.bash()

    def run(self, command: str, timeout: float = 60.0) -> str:
        return str(self._wrapper.run_command(command, timeout=timeout))

    def close(self) -> None:
        self._wrapper.child.close(force=True)


class SweRex:
    def __init__(self) -> None:
        logging.getLogger("rex-session").setLevel(logging.CRITICAL)
        self.runner = asyncio.Runner()
        self.runtime = LocalRuntime()
        self.runner.run(self.runtime.create_session(CreateBashSessionRequest()))

    def run(self, command: str, timeout: float = 60.0) -> str:
        action = BashAction(command=command, timeout=timeout, check="silent")
        return str(self.runner.run(self.runtime.run_in_session(action)).output)

    def close(self) -> None:
        self.runner.run(self.runtime.close())
        self.runner.close()


FLOOR = Kind("floor (raw pipes)", Bare, "yes", "not read")
OURS = Kind("shellsession", Ours, "yes", "split")
PEERS = (
    Kind("subprocess.run", FreshProcess, "yes", "split"),
    Kind(f"langchain {version('langchain')} ShellSession", LangChain, "yes", "prefixed"),
    Kind(f"pexpect {version('pexpect')} replwrap", ReplWrap, "no", "merged"),
    Kind(f"swe-rex {version('swe-rex')} LocalRuntime", SweRex, "2nd call", "merged"),
)
