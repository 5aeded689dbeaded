"""A Ray cluster of several nodes on this machine, whose nodes can be killed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

_TRIES = 3


class RayCluster:
    """A head without devices, and nodes with one core each. Use as a context manager, or call `close`."""

    def __init__(
        self, nodes: int, environment: Mapping[str, str], settings: Mapping[str, Any] | None = None
    ) -> None:
        """environment: of this process and of all nodes. settings: of Ray itself, by its internal names."""
        os.environ.update(environment)
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": dict(settings or {})}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self._nodes: list[Any] = []
        for _ in range(nodes):
            self.add()

    @property
    def address(self) -> str:
        """For --fleet."""
        return str(self._cluster.address)

    @property
    def nodes(self) -> list[str]:
        """Ray's ids of the nodes that were added, without the head."""
        return [str(node.node_id) for node in self._nodes]

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, **environment: str) -> None:
        """A node more, with one device. It joins in the background. environment: of this node alone.

        Ray gives a node 30 s to start, which a busy machine may exceed. Then it is tried again.
        """
        for left in reversed(range(_TRIES)):
            try:
                self._nodes.append(
                    self._cluster.add_node(num_cpus=1, wait=False, env_vars=environment or None)
                )
                return
            except Exception:
                if not left:
                    raise

    def kill(self, number: int) -> None:
        """Kills all processes of a node at once."""
        node = self._nodes.pop(number)
        with suppress(Exception):
            self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        """Ends all processes of the cluster."""
        with suppress(Exception):
            self._cluster.shutdown()

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
