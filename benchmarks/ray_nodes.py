"""A Ray cluster on this machine for one benchmark: a head without CPUs, and three nodes."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import product
from typing import Any

import psutil

os.environ |= {
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
}

import ray
from ray.cluster_utils import Cluster
from ray.exceptions import RayError

from shellsession.cluster.directory import NAMESPACE

# Ray asks every node twice a second, and gives up after four answers that did not come.
FAST: Mapping[str, int] = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
    "health_check_timeout_ms": 2000,
}
_STORE = 76 << 20  # bytes, the least that Ray allows


class _Bare:
    """An actor that does nothing, as a floor."""

    async def answer(self) -> None:
        pass


def bare_actor() -> Callable[[], object]:
    """A call of one, which waits for its answer."""
    actor = ray.remote(_Bare).options(num_cpus=0).remote()
    return lambda: ray.get(actor.answer.remote())


class Nodes:
    """The nodes that may have agents."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.address: str = cluster.address

    def add(self, wait: bool = True) -> None:
        self._cluster.add_node(num_cpus=1, object_store_memory=_STORE, wait=wait)

    def workers(self, kind: str = "") -> list[psutil.Process]:
        """The worker processes of Ray on all nodes, also on the head, whose titles start so."""
        return [
            worker
            for node in [self._cluster.head_node, *self._cluster.worker_nodes]
            for worker in _children(_raylet(node))
            if _title(worker).startswith(f"ray::{kind}")
        ]

    @property
    def names(self) -> list[str]:
        return [node.node_id for node in self._cluster.worker_nodes]

    def lose(self, name: str) -> float:
        """Kill Ray's processes on this node. Returns when, by the monotonic clock."""
        node = next(one for one in self._cluster.worker_nodes if one.node_id == name)
        family = [_raylet(node), *_children(_raylet(node))]
        begun = time.monotonic()
        for process in family:
            kill(process)
        self._cluster.remove_node(node, allow_graceful=False)
        return begun


def abouts(clusters: Iterable[str], names: Iterable[str]) -> list[dict[str, Any]]:
    """What the relays of these nodes say about themselves; only of those that answer soon."""
    asked = []
    for cluster, name in product(clusters, names):
        with suppress(ValueError):  # there is none
            asked.append(ray.get_actor(f"relay-{cluster}-{name}", namespace=NAMESPACE).about.remote())
    done = ray.wait(asked, num_returns=len(asked), timeout=2)[0] if asked else []
    found = []
    for answer in done:
        with suppress(RayError):
            found.append(ray.get(answer))
    return found


def kill(process: psutil.Process) -> None:
    if process.is_running():
        process.kill()


def _raylet(node: Any) -> psutil.Process:
    return psutil.Process(node.all_processes["raylet"][0].process.pid)


def _children(process: psutil.Process) -> list[psutil.Process]:
    children: list[psutil.Process] = process.children(recursive=True)
    return children


def _title(process: psutil.Process) -> str:
    try:
        return "".join(process.cmdline()[:1])
    except psutil.Error:
        return ""


@contextmanager
def nodes(count: int = 3, health: Mapping[str, int] = FAST) -> Iterator[Nodes]:
    """Nodes, and this process as a driver. ``health``: how Ray looks after them; {} for its defaults."""
    head = {"num_cpus": 0, "object_store_memory": _STORE, "include_dashboard": False, "include_log_monitor": False}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": dict(health)})
    try:
        found = Nodes(cluster)
        for _ in range(count):
            found.add(wait=False)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield found
    finally:
        ray.shutdown()
        cluster.shutdown()
