"""Devices as actors of Ray, which is imported only when a fleet starts."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tile_oracle.errors import HarnessError, TargetError, first_line
from tile_oracle.measure.assignments import DeviceSettings, Shipment, Work
from tile_oracle.measure.device_runner import DeviceRunner
from tile_oracle.measure.engine import Event, Gone, Joined, Told

_LOOK_S = 1.0
"""How often nodes are looked for."""
_POLL_S = 1.0
_BATCH_S = 0.1
_POLLS_PER_S = 400.0
"""Calls that the driver makes to all devices together."""
_SILENT_S = 4.0
"""A device that has not answered for this long counts as gone, and may join again."""
_ANSWERS_S = 0.5
_OPEN_S = 180.0
_SUCCESSIVE_FAILURES = 4
"""Times that a device may fail without a result in between before it is given up."""
_RESTART_S = 0.5
_OPENS_S = 10.0
"""A device that failed and opens again for longer than this no longer holds its place."""


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


@dataclass
class _Slot:
    """A place for a device: one GPU or core of a node."""

    name: str
    node: str
    remote: bool
    actor: Any = None
    opening: Any = None
    poll: Any = None
    since_s: float = 0.0
    answered_s: float = 0.0
    is_open: bool = False
    silent: bool = False
    failures: int = 0
    restart_s: float = 0.0
    given_up: bool = False


class RayEngine:
    """See tile_oracle.measure.engine.Engine."""

    def __init__(
        self, address: str, settings: DeviceSettings, arch: str, devices: int | None, cache: str = ""
    ) -> None:
        """address: of a Ray cluster. devices: the most that are used. cache: the driver's folder of binaries.

        Raises RayMissingError.
        """
        self._ray = ray = import_ray()
        self._settings, self._arch, self._limit = settings, arch, devices
        self._cache = cache
        self._slots: dict[str, _Slot] = {}
        self._looked_s = 0.0
        self._stepped_s = time.monotonic()
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

    def events(self, wait_s: float) -> list[Event]:
        now = time.monotonic()
        if now - self._stepped_s > _SILENT_S / 2:
            # The driver itself was stopped or busy: that is not the devices' silence.
            for slot in self._slots.values():
                slot.answered_s += now - self._stepped_s
        found: list[Event] = []
        if now - self._looked_s >= _LOOK_S:
            self._looked_s = now
            found += self._look(now)
        waits = {
            ref: slot for slot in self._slots.values() for ref in (slot.opening, slot.poll) if ref is not None
        }
        if waits:
            ready, _ = self._ray.wait(list(waits), num_returns=len(waits), timeout=0)
            if not ready and not found:
                ready, _ = self._ray.wait(list(waits), num_returns=1, timeout=wait_s)
        else:
            time.sleep(0 if found else wait_s)
            ready = []
        now = self._stepped_s = time.monotonic()
        for ref in ready:
            found += self._answer(waits[ref], ref, now)
        for slot in self._slots.values():
            found += self._silence(slot, now)
        return found

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
                    self._slots[name] = _Slot(name, node_id, remote)
        for slot in [*self._slots.values()]:
            if slot.node not in nodes:
                if slot.is_open:
                    found.append(Gone(slot.name, "its node has left the cluster"))
                self._forget(slot)
                del self._slots[slot.name]
        answers = cache(lambda node: _answers(nodes[node]))
        for slot in self._slots.values():
            if slot.opening is not None and not answers(slot.node):
                found += self._died(slot, now, "its node does not answer")
        waiting = [slot for slot in self._slots.values() if slot.actor is None and not slot.given_up]
        for slot in sorted(waiting, key=lambda slot: slot.failures):
            if now >= slot.restart_s and not self._is_full(now):
                if answers(slot.node):
                    self._start(slot, now)
                else:
                    slot.restart_s = now + _LOOK_S
        return found

    def _is_full(self, now: float) -> bool:
        """Returns whether as many devices are in use as may be. One that failed and opens again holds its
        place for a while only, since its node may be dying; at once, two would take from each other the time
        to open."""
        used = sum(slot.is_open and not slot.silent for slot in self._slots.values())
        opening = [slot for slot in self._slots.values() if slot.opening is not None]
        used += sum(not slot.failures or now - slot.since_s < _OPENS_S for slot in opening)
        return self._limit is not None and used >= self._limit

    def _devices_of(self, resources: dict[str, float]) -> int:
        """Returns the number of devices of a node: as it declares for the architecture, or its GPUs or
        cores."""
        if self._arch in resources:
            return int(resources[self._arch])
        return int(resources.get("CPU" if self._arch == "cpu" else "GPU", 0))

    def _start(self, slot: _Slot, now: float) -> None:
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
        slot.actor = self._class.options(**options).remote(self._settings, _fetch)
        slot.opening = slot.actor.open.remote()
        slot.since_s = slot.answered_s = now
        slot.is_open = slot.silent = False

    def _answer(self, slot: _Slot, ref: Any, now: float) -> list[Event]:
        try:
            answer = self._ray.get(ref)
        except HarnessError as error:  # Ray adds where it was raised
            return self._died(slot, now, str(getattr(error, "cause", error)))
        except Exception as error:
            return self._died(slot, now, f"its process has died ({type(error).__name__})")
        slot.answered_s = now
        if ref is slot.opening:
            slot.opening = None
            if slot.failures and self._is_full(now + _OPENS_S):
                self._forget(slot)  # another has taken its place
                return []
            slot.is_open = True
            self._poll(slot)
            return [Joined(slot.name, answer, slot.remote or answer.cache != self._cache)]
        self._poll(slot)
        if slot.silent:
            # Its assignment went to another device; a new process begins with nothing.
            return self._died(slot, now, "it was silent")
        if answer:
            slot.failures = 0
            return [Told(slot.name, answer)]
        return []

    def _poll(self, slot: _Slot) -> None:
        in_use = sum(slot.actor is not None for slot in self._slots.values())
        batch_s = max(_BATCH_S, in_use / _POLLS_PER_S)
        slot.poll = slot.actor.take.remote(_POLL_S, batch_s)

    def _died(self, slot: _Slot, now: float, why: str) -> list[Event]:
        was_known = slot.is_open and not slot.silent
        self._forget(slot)
        slot.failures += 1
        slot.restart_s = now + _RESTART_S * slot.failures
        self._looked_s = 0.0  # another may begin at once
        if slot.failures >= _SUCCESSIVE_FAILURES:
            slot.given_up = True
            return [Gone(slot.name, f"{why}; given up after {slot.failures} failures", died=was_known)]
        return [Gone(slot.name, why)] if was_known else []

    def _silence(self, slot: _Slot, now: float) -> list[Event]:
        if slot.actor is None:
            return []
        if not slot.is_open:
            return self._died(slot, now, "it did not open") if now - slot.since_s > _OPEN_S else []
        if slot.silent:
            return self._died(slot, now, "it did not answer") if now - slot.answered_s > _OPEN_S else []
        if now - slot.answered_s > _SILENT_S:
            slot.silent = True
            return [Gone(slot.name, f"it has not answered for {_SILENT_S:.0f} s")]
        return []

    def _forget(self, slot: _Slot) -> None:
        actor, slot.actor, slot.opening, slot.poll = slot.actor, None, None, None
        slot.is_open = slot.silent = False
        if actor is not None:
            with suppress(Exception):
                self._ray.kill(actor)

    # ---- orders -----------------------------------------------------------------------------------------

    def assign(self, device: str, work: Work) -> None:
        slot = self._slots.get(device)
        if slot is not None and slot.actor is not None:
            slot.actor.assign.remote(work)

    def withdraw(self, device: str, number: int, kernels: Sequence[str]) -> None:
        slot = self._slots.get(device)
        if slot is not None and slot.actor is not None:
            slot.actor.withdraw.remote(number, tuple(kernels))

    def drop(self, device: str, *, again: bool) -> None:
        slot = self._slots.get(device)
        if slot is not None:
            self._forget(slot)
            slot.given_up |= not again
            slot.restart_s = time.monotonic() + _RESTART_S

    def ship(self, shipment: Shipment) -> Any:
        return self._ray.put(shipment)

    def waiting(self) -> str:
        opening = sum(slot.opening is not None for slot in self._slots.values())
        if opening:
            in_use = sum(slot.actor is not None for slot in self._slots.values())
            return f"{opening} of {in_use} are still opening"
        return "" if self._slots else f"the cluster has no {self._arch} device"

    def close(self) -> None:
        calls = []
        for slot in self._slots.values():
            if slot.actor is not None:
                with suppress(Exception):
                    calls.append(slot.actor.close.remote())
        with suppress(Exception):
            if calls:
                self._ray.wait(calls, num_returns=len(calls), timeout=10)
        for slot in self._slots.values():
            self._forget(slot)
        self._slots.clear()
        if self._owns:
            with suppress(Exception):
                self._ray.shutdown()
