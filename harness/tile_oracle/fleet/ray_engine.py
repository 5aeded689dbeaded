"""Devices as actors of Ray, which is imported only when a fleet starts."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tile_oracle.errors import HarnessError, TargetError, first_line
from tile_oracle.measure.assignments import DeviceSettings, Opened, Shipment
from tile_oracle.measure.device_runner import DeviceRunner
from tile_oracle.measure.engine import Event, Gone
from tile_oracle.measure.other_processes import Answer, DeviceProcess, OtherProcesses, Silent, Slot

_LOOK_S = 1.0
"""How often nodes are looked for."""
_POLL_S = 1.0
_BATCH_S = 0.1
_POLLS_PER_S = 400.0
"""Calls that the driver makes to all devices together."""
_SILENT_S = 4.0
"""A device that has not answered for this long is replaced."""
_SILENT_LOOK_S, _SILENT_LOOKS = 1.0, 4
_ANSWERS_S = 0.5
_OPENING_LOOKS = 180
_CLOSES_S = 10.0


class RayMissingError(HarnessError):
    """Ray is not installed, or its cluster cannot be used."""


def import_ray() -> Any:
    """Returns the module ray. Raises RayMissingError."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise RayMissingError("--fleet needs Ray: pip install 'tile-oracle[fleet]'") from None
    return ray


def _answers(node: dict[str, Any]) -> bool:
    """Returns whether a node is there. Ray itself needs up to 15 s to notice that one is dead, and an actor
    on it would not start."""
    with suppress(OSError):
        address = node["NodeManagerAddress"], node["NodeManagerPort"]
        socket.create_connection(address, timeout=_ANSWERS_S).close()
        return True
    return False


def token_hint(address: str) -> str:
    """Returns what to try if an address does not answer. Ray shows a token only to clusters that it finds
    itself."""
    token = os.environ.get("RAY_AUTH_TOKEN_PATH") or Path("~/.ray/auth_token").expanduser()
    if address == "auto" or os.environ.get("RAY_AUTH_MODE") or not Path(token).is_file():
        return ""
    return f"; if the cluster asks for the token in {token}, set RAY_AUTH_MODE=token"


def _fetch(reference: Any) -> Shipment | None:
    import ray

    try:
        found: Shipment = ray.get(reference, timeout=60)
    except Exception:
        return None  # its node has died: the kernel is compiled here
    return found


class _Actor(DeviceProcess):
    """An actor of Ray. What Ray says after `kill` is not asked for: Ray may be shut down."""

    def __init__(self, ray: Any, actor: Any, batch_s: Callable[[], float]) -> None:
        """batch_s: how long the actor collects messages."""
        self._ray, self.actor, self._batch_s = ray, actor, batch_s
        self._opening = actor.open.remote()
        self._closing: Any = None
        self._killed = False

    def call(self, method: str, *arguments: object) -> None:
        with suppress(Exception):
            self._closing = getattr(self.actor, method).remote(*arguments)

    def receive(self) -> Answer:
        opening, self._opening = self._opening, None
        try:
            answer = opening or self.actor.take.remote(_POLL_S, self._batch_s())
            # Looks, not seconds: time that passes while this process is stopped does not count.
            for _ in range(_OPENING_LOOKS if opening else _SILENT_LOOKS):
                if self._killed:
                    raise EOFError
                if self._ray.wait([answer], timeout=_SILENT_LOOK_S)[0]:
                    found: Answer = self._ray.get(answer)
                    return found
        except HarnessError as error:  # Ray adds where it was raised
            return HarnessError(str(getattr(error, "cause", error)))
        except Exception:
            raise EOFError from None
        raise Silent("it did not open" if opening else f"it has not answered for {_SILENT_S:.0f} s")

    def kill(self) -> None:
        self._killed = True
        with suppress(Exception):
            self._ray.kill(self.actor)

    def wait(self) -> None:
        with suppress(Exception):
            self._ray.wait([self._closing], timeout=_CLOSES_S)
        self.kill()


@dataclass
class _Slot(Slot):
    """A place for a device: one GPU or core of a node."""

    node: str = ""
    remote: bool = False


class RayEngine(OtherProcesses):
    """Devices of a cluster, whose nodes come and go."""

    def __init__(
        self, address: str, settings: DeviceSettings, arch: str, devices: int | None, cache: str = ""
    ) -> None:
        """address: of a Ray cluster. devices: the most that are used. cache: the driver's folder of binaries.

        Raises RayMissingError.
        """
        super().__init__()
        self._ray = ray = import_ray()
        self._settings, self._arch, self._limit = settings, arch, devices
        self._cache = cache
        self._looked_s = 0.0
        self._owns = not ray.is_initialized()
        if self._owns:
            self._connect(address)
        self._class = ray.remote(DeviceRunner)

    def _connect(self, address: str) -> None:
        ray = self._ray
        quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            ray.init(address=address, **quiet)
        except Exception as error:
            why = f"{first_line(error)}{token_hint(address)}"
            raise RayMissingError(f"--fleet {address}: Ray cannot be used: {why}") from None
        finally:
            # Ray ends the process at SIGTERM; the session ends in order.
            if threading.current_thread() is threading.main_thread():
                for number, handler in handlers.items():
                    signal.signal(number, handler)

    # ---- what happens -----------------------------------------------------------------------------------

    def _start_due(self, now: float) -> list[Event]:
        if now - self._looked_s < _LOOK_S:
            return []
        self._looked_s = now
        return self._look(now)

    def _look(self, now: float) -> list[Event]:
        """Finds nodes that have joined or left, and starts the devices that are due."""
        found: list[Event] = []
        try:
            nodes = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        except Exception as error:
            raise TargetError(f"the Ray cluster does not answer any more: {first_line(error)}") from None
        for node_id, node in nodes.items():
            for number in range(self._devices_of(node["Resources"])):
                name = f"{node.get('NodeManagerHostname') or node_id[:8]}/{node_id[:6]}/{number}"
                if name not in self._slots:
                    remote = node.get("NodeManagerHostname") != socket.gethostname()
                    self._slots[name] = _Slot(name, node=node_id, remote=remote)
        for slot in [*self._slots.values()]:
            if slot.node not in nodes:
                if slot.is_open:
                    found.append(Gone(slot.name, "its node has left the cluster"))
                self.drop(slot.name, again=False)
                del self._slots[slot.name]
        answers = cache(lambda node: _answers(nodes[node]))
        for slot in self._slots.values():
            if slot.is_opening and not answers(slot.node):
                found += self._died(slot, "its node does not answer")
        due = [slot for slot in self._slots.values() if slot.is_due(now)]
        for slot in sorted(due, key=lambda slot: slot.deaths):
            if self._limit is None or self._in_use < self._limit:
                if answers(slot.node):
                    self._start(slot, self._actor_on(slot))
                else:
                    slot.restart_s = now + _LOOK_S
        return found

    def _devices_of(self, resources: dict[str, float]) -> int:
        """Returns the number of devices of a node: as it declares for the architecture, or its GPUs or
        cores."""
        if self._arch in resources:
            return int(resources[self._arch])
        return int(resources.get("CPU" if self._arch == "cpu" else "GPU", 0))

    def _actor_on(self, slot: _Slot) -> _Actor:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = next(node for node in self._ray.nodes() if node["NodeID"] == slot.node)
        declared = node["Resources"]
        options: dict[str, Any] = {
            "num_cpus": 1 if self._arch == "cpu" and self._arch not in declared else 0,
            "num_gpus": 1 if self._arch != "cpu" and "GPU" in declared else 0,
            "max_restarts": 0,
            "max_concurrency": 4,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(slot.node, soft=False),
        }
        if self._arch in declared:
            options["resources"] = {self._arch: 1}
        # Not a reference that actors share: Ray would fetch it from a dead node, and wait for that for 10 s.
        actor = self._class.options(**options).remote(self._settings, _fetch)
        return _Actor(self._ray, actor, lambda: max(_BATCH_S, self._in_use / _POLLS_PER_S))

    @property
    def _in_use(self) -> int:
        return sum(slot.process is not None for slot in self._slots.values())

    def _lacks_binaries(self, slot: Slot, opened: Opened) -> bool:
        return self._slots[slot.name].remote or opened.cache != self._cache

    def drop(self, device: str, *, again: bool) -> None:
        super().drop(device, again=again)
        self._looked_s = 0.0  # another may begin at once

    def ship(self, shipment: Shipment) -> Any:
        return self._ray.put(shipment)

    def waiting(self) -> str:
        opening = sum(slot.is_opening for slot in self._slots.values())
        if opening:
            return f"{opening} of {self._in_use} are still opening"
        return "" if self._slots else f"the cluster has no {self._arch} device"

    def close(self) -> None:
        super().close()
        self._slots.clear()
        if self._owns:
            with suppress(Exception):
                self._ray.shutdown()
