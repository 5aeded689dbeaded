"""The common part of HIP and CUDA's driver API: the same operations under different names.

In both libraries every function returns an error number, 0 for success, and takes the addresses of its
results first. Handles (modules, functions, streams, events, graphs) and device addresses are integers here.
"""

from __future__ import annotations

import ctypes
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from tile_oracle.device.runtime.settings import Setting, Settings

_V, _I, _S, _L = c_void_p, c_int, c_size_t, c_ulonglong
_CALLS: Mapping[str, tuple[tuple[Any, ...], str, str]] = {
    "init": ((c_uint,), "cuInit", "hipInit"),
    "driver_version": ((_V,), "cuDriverGetVersion", "hipRuntimeGetVersion"),
    "device": ((_V, _I), "cuDeviceGet", "hipDeviceGet"),
    "device_name": ((c_char_p, _I, _I), "cuDeviceGetName", "hipDeviceGetName"),
    "device_pci": ((c_char_p, _I, _I), "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId"),
    "device_attribute": ((_V, _I, _I), "cuDeviceGetAttribute", ""),
    "memory_info": ((_V, _V), "cuMemGetInfo_v2", "hipMemGetInfo"),
    "allocate": ((_V, _S), "cuMemAlloc_v2", "hipMalloc"),
    "free": ((_V,), "cuMemFree_v2", "hipFree"),
    "copy_in": ((_V, _V, _S, _V), "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync"),
    "copy_out": ((_V, _V, _S, _V), "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync"),
    "copy_within": ((_V, _V, _S, _V), "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync"),
    "set_bytes": ((_V, c_ubyte, _S, _V), "cuMemsetD8Async", "hipMemsetD8Async"),
    "module_load": ((_V, _V), "cuModuleLoadData", "hipModuleLoadData"),
    "module_unload": ((_V,), "cuModuleUnload", "hipModuleUnload"),
    "module_function": ((_V, _V, c_char_p), "cuModuleGetFunction", "hipModuleGetFunction"),
    "module_global": ((_V, _V, _V, c_char_p), "cuModuleGetGlobal_v2", "hipModuleGetGlobal"),
    "launch": ((_V, *(c_uint,) * 7, _V, _V, _V), "cuLaunchKernel", "hipModuleLaunchKernel"),
    "stream_create": ((_V, c_uint), "cuStreamCreate", "hipStreamCreateWithFlags"),
    "stream_synchronize": ((_V,), "cuStreamSynchronize", "hipStreamSynchronize"),
    "event_create": ((_V, c_uint), "cuEventCreate", "hipEventCreateWithFlags"),
    "event_destroy": ((_V,), "cuEventDestroy_v2", "hipEventDestroy"),
    "event_record": ((_V, _V), "cuEventRecord", "hipEventRecord"),
    "event_elapsed": ((_V, _V, _V), "cuEventElapsedTime", "hipEventElapsedTime"),
    "capture_begin": ((_V, _I), "cuStreamBeginCapture_v2", "hipStreamBeginCapture"),
    "capture_end": ((_V, _V), "cuStreamEndCapture", "hipStreamEndCapture"),
    "graph_instantiate": ((_V, _V, _L), "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags"),
    "graph_launch": ((_V, _V), "cuGraphLaunch", "hipGraphLaunch"),
    "graph_exec_destroy": ((_V,), "cuGraphExecDestroy", "hipGraphExecDestroy"),
    "graph_destroy": ((_V,), "cuGraphDestroy", "hipGraphDestroy"),
}
"""Operation -> the types of its arguments, and its functions in CUDA's driver API and in HIP. The error
number that they return is an int in both."""
CUDA, HIP = 1, 2
"""The columns of the functions."""

_STAGED_BYTES = 1 << 12
"""Both libraries have copied this much when they return. More may be read from the host's memory later."""

CAPTURE_THREAD_LOCAL = 1
"""The capture mode that other threads cannot disturb; the same number in both libraries."""


def symbols_of(library: int) -> dict[str, str]:
    """Returns the names of a library's functions, by operation."""
    return {operation: str(row[library]) for operation, row in _CALLS.items() if row[library]}


class RuntimeMissing(Exception):
    """The library or one of its functions is missing on this machine; the message says which."""


class RuntimeFailure(Exception):
    """A call failed. sticky: this process can no longer use the device."""

    def __init__(self, call: str, code: int, name: str, *, sticky: bool) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.call, self.code, self.name, self.sticky = call, code, name, sticky


@dataclass(frozen=True)
class DeviceProperties:
    """name: the device's name for itself. arch: gfx950, sm_90. identity: its PCI address, the same in every
    process. compute_units: compute units or multiprocessors, 0 if the driver does not report them.
    """

    name: str
    arch: str
    driver: str
    identity: str
    compute_units: int


@dataclass(frozen=True)
class Geometry:
    """A launch configuration: workgroups and threads along x, y, z; dynamic LDS in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lds_bytes: int = 0


class Arguments:
    """A kernel's arguments, kept alive with the array of their addresses that a launch takes."""

    def __init__(self, *values: Any) -> None:
        self.values = values
        self.addresses = (c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))


@dataclass(frozen=True)
class Launch:
    """A kernel with its launch configuration and arguments."""

    function: int
    geometry: Geometry
    arguments: Arguments


@dataclass(frozen=True)
class LibraryLaunch:
    """A kernel that a library launches itself. start: takes the stream, returns the runtime's error
    number."""

    what: str
    start: Callable[[int], int]


class Driver(ABC):
    """One open device. Subclasses give the names of the library's functions and implement what differs.

    Calls raise RuntimeFailure.
    """

    symbols: ClassVar[Mapping[str, str]]
    """Operation -> name of the library's function."""
    sticky_codes: ClassVar[frozenset[int]]
    settings_known: ClassVar[tuple[Setting, ...]] = ()
    timer_tick_ns: ClassVar[float] = 1.0
    """Nanoseconds of a tick of the timer that code on the device reads."""
    reset_cache_symbol: ClassVar[str] = ""
    """The function that gives reserved parts of the cache back, if there is one."""
    when_lost: Callable[[RuntimeFailure], object] = staticmethod(lambda failure: None)
    """Called with a failure after which this process can no longer use the device, before it is raised."""

    def __init__(self, library: ctypes.CDLL, index: int = 0) -> None:
        """`index`: number of the device among those visible to this process."""
        self.library = library
        self._functions: dict[str, Any] = {}
        for operation, symbol in self.symbols.items():
            self._functions[operation] = self._function(symbol, _CALLS[operation][0])
        self.call("init", 0)
        self.device = self._number("device", index)
        self._make_current()
        self.stream = self._handle("stream_create", 0)

    def _function(self, symbol: str, arguments: tuple[Any, ...]) -> Any:
        try:
            function = getattr(self.library, symbol)
        except AttributeError:
            raise RuntimeMissing(f"{self.library._name} has no {symbol}: a newer driver is needed") from None
        function.argtypes, function.restype = arguments, c_int
        return function

    # ---- implemented by subclasses ------------------------------------------------------------

    @abstractmethod
    def error_name(self, code: int) -> str:
        """Returns the library's name of an error number."""

    @abstractmethod
    def properties(self) -> DeviceProperties:
        """Properties of the open device."""

    def _properties(self, arch: str, driver: str, compute_units: int) -> DeviceProperties:
        """Adds what both drivers tell alike: the name and the PCI address."""
        name, pci = ctypes.create_string_buffer(256), ctypes.create_string_buffer(64)
        self.call("device_name", name, len(name), self.device)
        self.call("device_pci", pci, len(pci), self.device)
        words = [one.value.decode("utf-8", "replace").strip() for one in (name, pci)]
        return DeviceProperties(words[0], arch, driver, words[1].lower(), compute_units)

    @abstractmethod
    def _make_current(self) -> None:
        """Makes the open device current for the calling thread."""

    @abstractmethod
    def allow_lds(self, function: int, lds_bytes: int) -> None:
        """Allows launches of a function with this much dynamic LDS, where the runtime requires that."""

    @abstractmethod
    def function_facts(self, function: int, threads: int, lds_bytes: int) -> dict[str, int]:
        """Returns the driver's facts about a loaded kernel, with the names of compiling.code_facts.CodeFacts.

        threads: threads of a workgroup. lds_bytes: its dynamic LDS. Raises RuntimeMissing when the driver is
        too old.
        """

    # ---- calls --------------------------------------------------------------------------------

    def call(self, operation: str, *arguments: Any) -> None:
        """Calls the library. Raises RuntimeFailure."""
        self._check(self.symbols[operation], self._functions[operation](*arguments))

    def _check(self, call: str, code: int) -> None:
        if code:
            failure = RuntimeFailure(call, code, self.error_name(code), sticky=code in self.sticky_codes)
            if failure.sticky:
                self.when_lost(failure)
            raise failure

    def _handle(self, operation: str, *arguments: Any) -> int:
        value = c_void_p()
        self.call(operation, byref(value), *arguments)
        return value.value or 0

    def _number(self, operation: str, *arguments: Any) -> int:
        value = c_int()
        self.call(operation, byref(value), *arguments)
        return value.value

    def settings(self) -> Settings:
        """Returns the settings that are to stay as they are now."""
        return Settings(self.library, self.stream, self.settings_known, self.reset_cache_symbol)

    # ---- memory -------------------------------------------------------------------------------

    def allocate(self, size_bytes: int) -> int:
        """Allocates device memory and returns its address, aligned to at least 256 bytes."""
        return self._handle("allocate", max(1, size_bytes))

    def free(self, address: int) -> None:
        """Frees memory."""
        self.call("free", address)

    def free_memory_bytes(self) -> int:
        """Bytes that could be allocated now."""
        free, total = c_size_t(), c_size_t()
        self.call("memory_info", byref(free), byref(total))
        return free.value

    def copy_in(self, address: int, data: bytes) -> None:
        """Copies data from host to device, on the stream; `data` may be freed at once."""
        self.call("copy_in", address, data, len(data), self.stream)
        if len(data) > _STAGED_BYTES:
            self.synchronize()

    def copy_out(self, address: int, size_bytes: int) -> bytes:
        """Copies data from device to host, after everything launched before."""
        data = ctypes.create_string_buffer(size_bytes)
        self.call("copy_out", data, address, size_bytes, self.stream)
        self.synchronize()
        return data.raw

    def copy_within(self, address: int, source: int, size_bytes: int) -> None:
        """Copies data within the device's memory, on the stream. The ranges must not overlap."""
        self.call("copy_within", address, source, size_bytes, self.stream)

    def set_bytes(self, address: int, value: int, size_bytes: int) -> None:
        """Fills memory with one byte value, on the stream."""
        self.call("set_bytes", address, value, size_bytes, self.stream)

    # ---- code ---------------------------------------------------------------------------------

    def load_module(self, image: bytes) -> int:
        """Loads a module from a code object, a cubin or PTX text."""
        # PTX must be a C string; the extra byte does no harm to the other formats.
        return self._handle("module_load", image + b"\0")

    def unload_module(self, module: int) -> None:
        """Unloads a module with its kernels and variables."""
        self.call("module_unload", module)

    def function(self, module: int, name: str) -> int:
        """Returns a kernel of a module."""
        return self._handle("module_function", module, name.encode())

    def global_bytes(self, module: int, name: str) -> bytes:
        """Returns the content of a module's global variable."""
        address, size = c_void_p(), c_size_t()
        self.call("module_global", byref(address), byref(size), module, name.encode())
        return self.copy_out(address.value or 0, size.value)

    def launch(self, launch: Launch | LibraryLaunch) -> None:
        """Starts a kernel on the stream; returns before it has run."""
        if isinstance(launch, LibraryLaunch):
            self._check(launch.what, launch.start(self.stream))
        else:
            self.call("launch", *self._operands(launch))

    def launch_all(self, launches: Iterable[Launch | LibraryLaunch]) -> None:
        """Start several, one after the other."""
        for launch in launches:
            self.launch(launch)

    def _operands(self, launch: Launch) -> tuple[Any, ...]:
        """Returns the arguments of the library's launch function."""
        where = launch.geometry
        sizes = (*where.grid, *where.block, where.lds_bytes)
        return (launch.function, *sizes, self.stream, launch.arguments.addresses, None)

    def synchronize(self) -> None:
        """Waits until everything on the stream has run, and reports faults."""
        self.call("stream_synchronize", self.stream)

    # ---- time ---------------------------------------------------------------------------------

    def make_event(self) -> int:
        """Makes an event: a point in time on the device's clock, once it is recorded."""
        return self._handle("event_create", 0)

    def record(self, event: int) -> None:
        """Records the time when the stream reaches this point."""
        self.call("event_record", event, self.stream)

    def elapsed_ns(self, events: Sequence[int]) -> list[float]:
        """Nanoseconds from each event to the next. All events must have completed."""
        taken_ms = c_float()
        result: list[float] = []
        for begin, end in itertools.pairwise(events):
            self.call("event_elapsed", byref(taken_ms), begin, end)
            result.append(1e6 * taken_ms.value)
        return result

    def capture(self, launches: Sequence[Launch | LibraryLaunch], count: int) -> int:
        """Makes an executable graph of the launches, repeated `count` times."""
        self.call("capture_begin", self.stream, CAPTURE_THREAD_LOCAL)
        graph = c_void_p()
        try:
            calls = [self._ready(launch) for launch in launches]
            for _ in range(count):
                for what, start in calls:
                    self._check(what, start())
        finally:
            self.call("capture_end", self.stream, byref(graph))
        try:
            return self._handle("graph_instantiate", graph, 0)
        finally:
            self.call("graph_destroy", graph)

    def _ready(self, launch: Launch | LibraryLaunch) -> tuple[str, Callable[[], int]]:
        """Returns the call that starts a launch, prepared because a graph may have a hundred of them."""
        if isinstance(launch, LibraryLaunch):
            return launch.what, partial(launch.start, self.stream)
        return self.symbols["launch"], partial(self._functions["launch"], *self._operands(launch))

    def launch_graph(self, executable: int) -> None:
        """Starts a graph on the stream."""
        self.call("graph_launch", executable, self.stream)

    def destroy_graph(self, executable: int) -> None:
        """Destroys an executable graph."""
        self.call("graph_exec_destroy", executable)
