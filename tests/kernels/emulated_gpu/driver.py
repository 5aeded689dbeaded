"""The emulated device behind the driver interface of HIP and CUDA: the part that checks need."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.kernels.emulated_gpu.device import READS, WRITES, Buffer, EmulatedGpu, EmulatedModule, buffer
from tile_oracle.device.runtime.driver import DeviceProperties, Driver, Launch, RuntimeFailure

_VIOLATION = 700


class EmulatedDriver(Driver):
    """Device memory is this process's; kernels may access what was allocated. Launches run immediately."""

    symbols: Mapping[str, str] = {}
    sticky_codes: frozenset[int] = frozenset()
    library, stream = None, 0

    def __init__(self, gpu: EmulatedGpu, arch: str, folder: Path) -> None:
        """`folder`: modules are written to it to be loaded."""
        self._gpu, self._arch, self._folder = gpu, arch, folder
        self._memory: dict[int, Buffer] = {}
        self._numbers = itertools.count(1)
        self._now_ns = 0.0
        self._events: dict[int, float] = {}
        self._modules: dict[int, EmulatedModule] = {}
        self._kernels: dict[int, tuple[EmulatedModule, str]] = {}

    def error_name(self, code: int) -> str:
        return "VIOLATION"

    def properties(self) -> DeviceProperties:
        return DeviceProperties("emulated", self._arch, "none", f"emulated-{self._arch}", 2)

    def _make_current(self) -> None:
        """There is nothing to open."""

    def allow_lds(self, function: int, lds_bytes: int) -> None:
        """Any amount is allowed: launches may use only what they request."""

    def function_facts(self, function: int, threads: int, lds_bytes: int) -> dict[str, int]:
        return {}

    def allocate(self, size_bytes: int) -> int:
        memory = buffer(f"allocation {next(self._numbers)}", size_bytes)
        self._memory[memory.address] = memory
        return memory.address

    def free(self, address: int) -> None:
        del self._memory[address]

    def free_memory_bytes(self) -> int:
        return 1 << 30

    def copy_in(self, address: int, data: bytes) -> None:
        ctypes.memmove(address, data, len(data))

    def copy_out(self, address: int, size_bytes: int) -> bytes:
        return ctypes.string_at(address, size_bytes)

    def copy_within(self, address: int, source: int, size_bytes: int) -> None:
        ctypes.memmove(address, source, size_bytes)

    def set_bytes(self, address: int, value: int, size_bytes: int) -> None:
        ctypes.memset(address, value, size_bytes)

    def load_module(self, image: bytes) -> int:
        number = next(self._numbers)
        library = self._folder / f"module_{number}.emulated"
        library.write_bytes(image)
        self._modules[number] = self._gpu.module(library)
        return number

    def unload_module(self, module: int) -> None:
        del self._modules[module]

    def function(self, module: int, name: str) -> int:
        if not self._modules[module].has(name):
            raise RuntimeFailure("function", _VIOLATION, f"no kernel {name}", sticky=False)
        number = next(self._numbers)
        self._kernels[number] = (self._modules[module], name)
        return number

    def global_bytes(self, module: int, name: str) -> bytes:
        assert name == "to_launch_info"
        return self._modules[module].launch_info()

    def launch(self, launch: Launch) -> None:
        module, name = self._kernels[launch.function]
        memory = [(memory, READS | WRITES) for memory in self._memory.values()]
        said = module.launch(name, launch.geometry, launch.arguments, memory)
        if said is not None:
            raise RuntimeFailure("launch", _VIOLATION, said, sticky=False)

        self._now_ns += self.launch_ns(name)

    def launch_ns(self, name: str) -> float:
        """How long a launch takes by this device's clock."""
        return 300_000.0 if name == "to_conv" else 1_000.0

    def make_event(self) -> int:
        return next(self._numbers)

    def record(self, event: int) -> None:
        self._events[event] = self._now_ns

    def elapsed_ns(self, events: Sequence[int]) -> list[float]:
        times = [self._events[event] for event in events]
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    def synchronize(self) -> None:
        """Whatever was launched has run."""
