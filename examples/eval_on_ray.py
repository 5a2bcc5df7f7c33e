"""Evaluate 200 agents on a Ray cluster: each fixes a repository. If a node is lost, its agents begin again elsewhere.

Needs:   the extra ray
Run:     python examples/eval_on_ray.py --agents 12 --kill-node [--address auto]
Prints:  12 of 12 passed
"""

import argparse
import asyncio

import ray
from ray.cluster_utils import Cluster

from shellsession import DaemonUnavailable, OutcomeUnknown
from shellsession.cluster import AsyncRayAgents

REPOSITORY = """cd "$(mktemp -d)" && git init -q && echo 'import calc; assert calc.add(20, 22) == 42' >test_calc.py
echo 'def add(a, b): return a - b' >calc.py; git add .; git -c user.name=Ann -c user.email=ann@a.org commit -qm Add"""
TESTS, FIX, REMOVE = "python3 -B test_calc.py", "sed -i 's/a - b/a + b/' calc.py", 'cd / && rm -rf "$OLDPWD"'
SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
TURNS = asyncio.Semaphore(16)  # more agents at once would only wait for the processors


async def solve(agents: AsyncRayAgents, name: str, tries: int = 3) -> bool:
    """Do the task, as an agent would. True if its test fails before the fix, and passes after it."""
    passed = list[bool]()
    try:
        for command in (REPOSITORY, TESTS, FIX, TESTS, REMOVE):
            await asyncio.sleep(0.5)  # the model thinks
            async with TURNS:
                passed.append((await agents.run(name, command)).ok)
    except (OutcomeUnknown, DaemonUnavailable) as error:  # its node was lost, and its directory with it
        print(f"\n{name}: {error.code}, {tries - 1} tries left")
        return tries > 1 and await solve(agents, name, tries - 1)
    return passed == [True, False, True, True, True]


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--address", help="of a cluster; without it, one is started on this machine")
    parser.add_argument("--kill-node", action="store_true", help="kill a node of that, in the middle")
    options = parser.parse_args()
    if options.address is None:
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": SOON})
        nodes = [cluster.add_node(num_cpus=1, wait=False) for _ in range(3)]
    ray.init(options.address or cluster.address, log_to_driver=False, logging_level="ERROR")
    async with AsyncRayAgents(timeout=300, lease=8) as agents:
        await agents.place(names := [f"agent-{number}" for number in range(options.agents)])
        if options.kill_node:
            asyncio.get_running_loop().call_later(1.5, cluster.remove_node, nodes[0], False)
        results = list[bool]()
        for work in asyncio.as_completed([solve(agents, name) for name in names]):
            results.append(await work)
            print(f"\r{len(results)} of {options.agents} done", end="", flush=True)
        print(f"\n{sum(results)} of {options.agents} passed")


if __name__ == "__main__":
    asyncio.run(main())
