"""The binaries of a session: built once, on the session's machine, before a problem is given to a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
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
        self._done: SimpleQueue[Kernel] = SimpleQueue()
        self._futures: dict[Kernel, Future[BuildResult]] = {}
        self._waiting_for: dict[Kernel, list[str]] = {}
        self._missing: dict[str, int] = {}
        self._shipped: dict[str, Any] = {}

    def want(self, label: str, problem: Problem, kernels: Iterable[Kernel]) -> bool:
        """Requests the binaries of a problem. Returns whether all of them are there already; otherwise
        `ready` returns the label once they are."""
        missing = 0
        for kernel in kernels:
            if self._target.refusal(kernel, problem) is not None:
                continue
            future = self._futures.get(kernel)
            if future is None:
                future = self._futures[kernel] = self._target.build(kernel)
                if not future.done():
                    self._waiting_for[kernel] = []
                    future.add_done_callback(partial(self._built, kernel))
            if kernel in self._waiting_for:
                self._waiting_for[kernel].append(label)
                missing += 1
        if missing:
            self._missing[label] = missing
        return not missing

    @property
    def outstanding(self) -> int:
        """The number of kernels that are not built yet."""
        return len(self._waiting_for)

    def ready(self) -> list[str]:
        """Returns the labels whose last binary has been built since the last call."""
        found: list[str] = []
        while True:
            try:
                kernel = self._done.get_nowait()
            except Empty:
                return found
            for label in self._waiting_for.pop(kernel, ()):
                self._missing[label] -= 1
                if not self._missing[label]:
                    del self._missing[label]
                    found.append(label)

    def _built(self, kernel: Kernel, _: Future[BuildResult]) -> None:
        self._done.put(kernel)

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


class BuiltThere(Builds):
    """Builds nothing: the device builds what it measures."""

    def want(self, label: str, problem: Problem, kernels: Iterable[Kernel]) -> bool:
        return True
