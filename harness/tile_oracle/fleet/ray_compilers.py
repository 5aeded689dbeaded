"""Compilers as actors of Ray: one on every node with CPUs, which returns binaries by content hash."""

from __future__ import annotations

import socket
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tile_oracle.errors import HarnessError, first_line
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.measure.assignments import DeviceSettings, Shipment
from tile_oracle.measure.engine import Compiler
from tile_oracle.measure.shipments import shipment_of
from tile_oracle.measure.target_of_settings import open_target

_LOOK_S = 1.0
"""How often nodes are looked for."""
_OPEN_S = 60.0
"""How long kernels wait for a node that starts, or that has no free CPU, while no other compiles."""
_IDLE_S = 5.0
"""The actors end, and give their CPUs back, when nothing has been asked for so long."""
_LONGEST_S = 700.0
"""A kernel that takes longer on an actor is compiled elsewhere. A compiler may take 300 s, after another."""
_MOST_JOBS = 32
_MOST_FAILURES = 2
"""Times that an actor of a node, or all actors with one kernel, may die."""


class CompilerOpened(NamedTuple):
    """A machine can compile. identity: `Target.source_identity`, which must be the session's own."""

    host: str
    identity: str


class CompileRunner:
    """The compilers of one machine. Once it is open, `build` may be called from any thread."""

    def __init__(self, settings: DeviceSettings, jobs: int) -> None:
        """jobs: compilers that run at once."""
        options = replace(settings.options, jobs=jobs, elsewhere=True)
        self._settings = replace(settings, options=options)

    def open(self) -> CompilerOpened:
        """Opens the target: where this is, and what its binaries would be. Raises HarnessError."""
        self._target = open_target(self._settings)
        return CompilerOpened(socket.gethostname(), self._target.source_identity())

    def build(self, kernel: str) -> Shipment | None:
        """Returns the binary of a kernel, compiled or from this machine's cache; None if it does not build
        here."""
        result = self._target.build(parse_kernel_name(kernel)).result()
        return None if result.binary is None else shipment_of(result.binary)

    def close(self) -> None:
        """Stops the compilers."""
        self._target.close()


@dataclass
class _Place:
    """A node. since_s: when its actor was started."""

    compiler: Compiler
    node: str
    jobs: int
    actor: Any = None
    opening: Any = None
    since_s: float = 0.0
    alive: bool = True
    failures: int = 0

    @property
    def compiles(self) -> bool:
        return self.actor is not None and self.opening is None

    @property
    def starts(self) -> bool:
        """Whether it has no actor now, and is given one soon."""
        return self.actor is None and self.alive and not self.compiler.why


class RayCompilers:
    """See tile_oracle.measure.engine.Compilers."""

    def __init__(self, ray: Any, settings: DeviceSettings, arch: str, identity: str) -> None:
        """identity: `Target.source_identity` of the session; a node with another one compiles nothing."""
        self._ray, self._settings, self._arch, self._identity = ray, settings, arch, identity
        self._class = ray.remote(CompileRunner)
        self._queue: deque[Kernel] = deque()
        self._running: dict[Any, tuple[Kernel, _Place, float]] = {}
        self._places: dict[str, _Place] = {}
        self._deaths: Counter[Kernel] = Counter()
        self._looked_s = self._busy_s = 0.0

    @property
    def places(self) -> Sequence[Compiler]:
        return [place.compiler for place in self._places.values()]

    def submit(self, kernel: Kernel) -> None:
        self._queue.append(kernel)

    def finished(self) -> list[tuple[Kernel, Shipment | None]]:
        now = time.monotonic()
        if not self._queue and not self._running:
            if now - self._busy_s > _IDLE_S:
                self._release()
            return []
        self._busy_s = now
        if now - self._looked_s >= _LOOK_S:
            self._looked_s = now
            with suppress(Exception):  # the devices' side says what is wrong with a cluster
                self._look(now)
        found = self._take(now)
        self._give(now)
        if not self._running and not any(self._may_compile(place, now) for place in self._places.values()):
            found += [(kernel, None) for kernel in self._queue]
            self._queue.clear()
        return found

    def close(self) -> None:
        self._queue.clear()
        self._release()

    # ---- nodes ------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        """Finds nodes with CPUs, and starts their actors."""
        for node in self._ray.nodes():
            cpus = int(node["Resources"].get("CPU", 0)) if node["Alive"] else 0
            if cpus and node["NodeID"] not in self._places:
                name = f"{node.get('NodeManagerHostname') or ''}/{node['NodeID'][:6]}"
                # For target cpu, the cores are devices as well: one stays free for a kernel that is timed.
                jobs = cpus - 1 if self._arch == "cpu" else min(_MOST_JOBS, cpus // 2)
                self._places[node["NodeID"]] = _Place(Compiler(name), node["NodeID"], max(1, jobs))
            place = self._places.get(node["NodeID"])
            if place is None:
                continue
            place.alive = bool(node["Alive"])
            if place.starts:
                self._start(place, now)
            elif not place.alive:
                self._end(place)

    def _start(self, place: _Place, now: float) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        place.actor = self._class.options(
            num_cpus=0 if self._arch == "cpu" else place.jobs,
            max_restarts=0,
            max_concurrency=2 * place.jobs + 2,
            scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False),
        ).remote(self._settings, place.jobs)
        place.opening, place.since_s = place.actor.open.remote(), now

    def _may_compile(self, place: _Place, now: float) -> bool:
        opens = place.opening is not None and now - place.since_s < _OPEN_S
        return place.compiles or place.starts or opens

    def _end(self, place: _Place) -> None:
        actor, place.actor, place.opening = place.actor, None, None
        if actor is not None:
            with suppress(Exception):
                self._ray.kill(actor)

    def _release(self) -> None:
        closing = []
        if self._running:  # otherwise there is no compiler to stop
            for place in self._places.values():
                if place.compiles:
                    with suppress(Exception):
                        closing.append(place.actor.close.remote())
        with suppress(Exception):
            if closing:
                self._ray.wait(closing, num_returns=len(closing), timeout=5)
        self._running.clear()
        for place in self._places.values():
            self._end(place)

    # ---- kernels ----------------------------------------------------------------------------------------

    def _take(self, now: float) -> list[tuple[Kernel, Shipment | None]]:
        opening = {place.opening: place for place in self._places.values() if place.opening is not None}
        waits = [*opening, *self._running]
        ready = self._ray.wait(waits, num_returns=len(waits), timeout=0)[0] if waits else []
        found: list[tuple[Kernel, Shipment | None]] = []
        for ref in ready:
            if ref in opening:
                self._opened(opening[ref], ref)
            else:
                found += self._built(ref)
        for ref in [ref for ref, (_, _, since_s) in self._running.items() if now - since_s > _LONGEST_S]:
            kernel, place, _ = self._running.pop(ref)
            found += self._failed(kernel, place, "it does not answer")
        return found

    def _opened(self, place: _Place, ref: Any) -> None:
        try:
            opened = self._ray.get(ref)
        except HarnessError as error:  # Ray adds where it was raised
            place.compiler.why = first_line(getattr(error, "cause", error))
            self._end(place)
            return
        except Exception as error:
            self._died(place, type(error).__name__)
            return
        place.opening, place.compiler.host = None, opened.host
        if opened.identity != self._identity:
            place.compiler.why = "its compiler, its CPU or its sources are not those of the session's machine"
            self._end(place)

    def _built(self, ref: Any) -> list[tuple[Kernel, Shipment | None]]:
        kernel, place, _ = self._running.pop(ref)
        try:
            shipment = self._ray.get(ref)
        except HarnessError:
            return [(kernel, None)]
        except Exception as error:
            return self._failed(kernel, place, type(error).__name__)
        place.compiler.compiled += shipment is not None
        return [(kernel, shipment)]

    def _failed(self, kernel: Kernel, place: _Place, why: str) -> list[tuple[Kernel, Shipment | None]]:
        self._died(place, why)
        self._deaths[kernel] += 1
        if self._deaths[kernel] >= _MOST_FAILURES:
            return [(kernel, None)]
        self._queue.appendleft(kernel)
        return []

    def _died(self, place: _Place, why: str) -> None:
        if place.actor is None:
            return  # known
        self._end(place)
        place.failures += 1
        if place.failures >= _MOST_FAILURES:
            place.compiler.why = f"its process died {place.failures} times ({why})"

    def _give(self, now: float) -> None:
        counts = Counter(place.node for _, place, _ in self._running.values())
        open_places = [place for place in self._places.values() if place.compiles]
        while self._queue and open_places:
            place = min(open_places, key=lambda one: counts[one.node] / one.jobs)
            if counts[place.node] >= 2 * place.jobs:
                return
            counts[place.node] += 1
            kernel = self._queue.popleft()
            self._running[place.actor.build.remote(kernel.name)] = kernel, place, now
