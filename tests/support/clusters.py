"""A Ray cluster on this machine: a head without CPUs, and nodes. In the fixture, Ray checks them twice a second."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

os.environ |= {
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_worker_niceness": "15" if os.geteuid() == 0 else "0",  # only root can undo what Ray does
}

import ray
from ray.cluster_utils import Cluster

# Seconds: a safety limit for what takes Ray some of its processes, also on a busy machine.
LONG = 240.0

_STORE = 76 << 20  # bytes, the least that Ray allows
_QUICK = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
    "health_check_timeout_ms": 2000,
}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    with running(3, _QUICK) as cluster:
        yield cluster


@contextmanager
def running(nodes: int, config: dict[str, int]) -> Iterator[Any]:
    """A cluster to which this process is connected. ``config``: the options of Ray's own that are not the default."""
    head = {"num_cpus": 0, "object_store_memory": _STORE, "include_dashboard": False, "include_log_monitor": False}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": config})
    try:
        for _ in range(nodes):
            add_node(cluster, wait=False)
        cluster.wait_for_nodes(LONG)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def add_node(cluster: Any, wait: bool = True) -> None:
    cluster.add_node(num_cpus=1, object_store_memory=_STORE, wait=wait)
