"""The binaries of a session: built once, on the session's machine, before a device is given their kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from tile_oracle.compiling.binary import Binary, BuildResult
from tile_oracle.kernel import Kernel
from tile_oracle.measure.assignments import Binaries, Shipment
from tile_oracle.measure.shipments import shipment_of
from tile_oracle.problem import Problem
from tile_oracle.targets.target import Target


class Builds:
    """Builds the kernels of problems in the background. All methods are called from one thread."""

    def __init__(self, target: Target, ship: Callable[[Shipment], Any] = lambda shipment: None) -> None:
        """ship: puts a binary where devices of other machines find it, and returns a reference for them."""
        self._target, self._ship = target, ship
        self._done: SimpleQueue[Future[BuildResult]] = SimpleQueue()
        self._futures: dict[Kernel, Future[BuildResult]] = {}
        self._waiting_for: dict[Future[BuildResult], list[tuple[str, str]]] = {}
        self._shipped: dict[str, Any] = {}

    def want(self, label: str, problem: Problem, kernels: Iterable[Kernel]) -> list[str]:
        """Requests the binaries of a problem. Returns the names of the kernels whose binaries are not there
        yet; `ready` returns them with the label as they are built."""
        missing: list[str] = []
        for kernel in kernels:
            if self._target.refusal(kernel, problem) is not None:
                continue
            future = self._futures.get(kernel)
            if future is None:
                future = self._futures[kernel] = self._target.build(kernel)
                if not future.done():
                    self._waiting_for[future] = []
                    future.add_done_callback(self._done.put)
            if future in self._waiting_for:
                self._waiting_for[future].append((label, kernel.name))
                missing.append(kernel.name)
        return missing

    def wait(self, limit_s: float) -> None:
        """Waits at most `limit_s` seconds for what `ready` would return."""
        with suppress(Empty):
            self._done.put(self._done.get(timeout=limit_s))

    def ready(self) -> list[tuple[str, str]]:
        """Returns label and name of the kernels that have been built since the last call, or have turned out
        not to build."""
        found: list[tuple[str, str]] = []
        while True:
            try:
                found += self._waiting_for.pop(self._done.get_nowait(), ())
            except Empty:
                return found

    def binaries(self, kernels: Sequence[Kernel], *, remote: bool) -> Binaries:
        """Returns what a device needs to know about these kernels. remote: it may not have this machine's
        cache.

        Raises BuildError if the build folder cannot be used.
        """
        shipped: dict[str, Any] = {}
        failed: dict[str, str] = {}
        for kernel in kernels:
            future = self._futures.get(kernel)
            if future is None or not future.done():
                continue
            result = future.result()
            if result.binary is not None:
                if remote:
                    shipped[kernel.name] = self._reference(kernel, result.binary)
            elif not result.interrupted:
                failed[kernel.name] = result.log
        return Binaries(shipped, failed)

    def _reference(self, kernel: Kernel, binary: Binary) -> Any:
        if binary.source_hash not in self._shipped:
            self._shipped[binary.source_hash] = self._ship(shipment_of(binary))
        return self._shipped[binary.source_hash]
