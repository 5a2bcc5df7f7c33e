"""One driver of the kill run: each of its agents runs commands, one after the other. It may be killed at any moment.

Law: the driver writes what it is about to run to its journal first, and what came of it after that.
"""

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import ray

from shellsession import Result
from shellsession.cluster import AsyncRayAgents, RayAgents

AGENTS = 5  # a thread each: not more than asyncio.to_thread has at once
LEASE = 6.0
MARK = "SHELLSESSION_KILL_RUN"  # the variable that all processes of a driver's sessions have
NEVER = 300.0  # seconds, far longer than any command takes


class Driver:
    def __init__(self, name: str, directory: Path, agents: RayAgents | AsyncRayAgents) -> None:
        self.name, self._agents = name, agents
        self._lines = directory / "lines"
        self._journal = os.open(directory / f"{name}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.ends = False

    def _note(self, **fields: object) -> None:
        os.write(self._journal, json.dumps(fields).encode() + b"\n")

    async def _run(self, agent: str, command: str) -> Result:
        if isinstance(self._agents, AsyncRayAgents):
            return await self._agents.run(agent, command)
        return await asyncio.to_thread(self._agents.run, agent, command)

    async def works(self, agent: str) -> None:
        """Run commands until the end. Each appends a line to the file, and counts in a variable of the shell."""
        number = 0
        while not self.ends:
            number += 1
            text = f"{self.name}.{agent}.{number}"
            seconds = random.choice((0, 0, 0.05, 0.5))
            command = f"N=$((N + 1)); echo {text} >>{self._lines}; sleep {seconds}; echo {text} $N; (exit {number % 9})"
            self._note(text=text)
            try:
                result = await self._run(agent, command)
            except Exception as error:
                self._note(text=text, agent=agent, error=type(error).__name__, message=str(error))
            else:
                fields = {"outcome": result.outcome, "stdout": result.stdout, "exit_code": result.exit_code}
                self._note(text=text, agent=agent, **fields, expected=number % 9, ran=result.ran, reason=result.reason)


async def run(name: str, directory: Path) -> None:
    options: dict[str, Any] = {"lease": LEASE, "cwd": "/", "timeout": NEVER, "extra_env": {MARK: name}}
    kind = random.choice((RayAgents, AsyncRayAgents))
    agents = kind(name=name, **options)
    driver = Driver(name, directory, agents)
    work = [asyncio.create_task(driver.works(f"a{i}")) for i in range(AGENTS)]
    await asyncio.to_thread(sys.stdin.read)
    driver.ends = True
    await asyncio.gather(*work)
    if isinstance(agents, AsyncRayAgents):
        await agents.close()
    else:
        agents.close()


def main() -> int:
    address, name, directory = sys.argv[1:]
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    asyncio.run(run(name, Path(directory)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
