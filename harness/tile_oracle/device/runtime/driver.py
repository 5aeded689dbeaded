"""What HIP and CUDA's driver have in common: the same operations under other names.

Every function of both libraries returns an error number, 0 for success, and takes its results' addresses
first. Handles (modules, functions, streams, events, graphs) and device addresses are integers here.
"""

from __future__ import annotations

import ctypes
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

_SIGNATURES: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "init": (c_uint,),
        "driver_version": (c_void_p,),
        "device_count": (c_void_p,),
        "device": (c_void_p, c_int),
        "device_name": (c_char_p, c_int, c_int),
        "device_pci": (c_char_p, c_int, c_int),
        "device_attribute": (c_void_p, c_int, c_int),
        "memory_info": (c_void_p, c_void_p),
        "allocate": (c_void_p, c_size_t),
        "free": (c_void_p,),
        "copy_in": (c_void_p, c_void_p, c_size_t),
        "copy_out": (c_void_p, c_void_p, c_size_t),
        "set_bytes": (c_void_p, c_ubyte, c_size_t),
        "module_load": (c_void_p, c_void_p),
        "module_unload": (c_void_p,),
        "module_function": (c_void_p, c_void_p, c_char_p),
        "module_global": (c_void_p, c_void_p, c_void_p, c_char_p),
        "launch": (c_void_p, *(c_uint,) * 7, c_void_p, c_void_p, c_void_p),
        "stream_create": (c_void_p, c_uint),
        "stream_synchronize": (c_void_p,),
        "event_create": (c_void_p, c_uint),
        "event_destroy": (c_void_p,),
        "event_record": (c_void_p, c_void_p),
        "event_elapsed": (c_void_p, c_void_p, c_void_p),
        "capture_begin": (c_void_p, c_int),
        "capture_end": (c_void_p, c_void_p),
        "graph_instantiate": (c_void_p, c_void_p, c_ulonglong),
        "graph_launch": (c_void_p, c_void_p),
        "graph_exec_destroy": (c_void_p,),
        "graph_destroy": (c_void_p,),
    }
)
"""Operation -> what its function takes. The error number that it returns is an int in both libraries."""

CAPTURE_THREAD_LOCAL = 1
"""Of the capture modes, the one that other threads cannot disturb; the same number in both libraries."""


class RuntimeMissing(Exception):
    """The library, or a function of it, is not on this machine; the message says which."""


class RuntimeFailure(Exception):
    """A call failed. sticky: nothing in this process can use the device any more."""

    def __init__(self, call: str, code: int, name: str, *, sticky: bool) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.call, self.code, self.name, self.sticky = call, code, name, sticky


@dataclass(frozen=True)
class DeviceProperties:
    """name: the device's own. arch: gfx950, sm_90. identity: its PCI address, the same in every process.

    compute_units: compute units or multiprocessors, 0 where nothing says.
    """

    name: str
    arch: str
    driver: str
    identity: str
    compute_units: int


@dataclass(frozen=True)
class Geometry:
    """How a kernel is launched: workgroups and threads along x, y, z; dynamic LDS in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lds_bytes: int = 0


class Arguments:
    """A kernel's arguments, kept alive with the array of their addresses that a launch takes."""

    def __init__(self, *values: Any) -> None:
        self._values = values
        self.addresses = (c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))


@dataclass(frozen=True)
class Launch:
    """A kernel with all that it takes to start it."""

    function: int
    geometry: Geometry
    arguments: Arguments


@dataclass(frozen=True)
class LibraryLaunch:
    """What a library starts by itself. start: takes the stream, gives the runtime's error number."""

    what: str
    start: Callable[[int], int]


class Driver(ABC):
    """One open device. Subclasses name the library's functions and say what differs.

    Calls raise RuntimeFailure.
    """

    symbols: ClassVar[Mapping[str, str]]
    """Operation -> the library's name for it."""
    sticky_codes: ClassVar[frozenset[int]]

    def __init__(self, library: ctypes.CDLL, index: int = 0) -> None:
        """`index` counts among the devices that the environment lets this process see."""
        self.library = library
        self._functions: dict[str, Any] = {}
        for operation, symbol in self.symbols.items():
            self._functions[operation] = self._function(symbol, _SIGNATURES[operation])
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

    # ---- what subclasses say ------------------------------------------------------------------

    @abstractmethod
    def error_name(self, code: int) -> str:
        """The library's name of an error number."""

    @abstractmethod
    def properties(self) -> DeviceProperties:
        """What the open device is."""

    @abstractmethod
    def _make_current(self) -> None:
        """Makes the open device the calling thread's own."""

    @abstractmethod
    def allow_lds(self, function: int, lds_bytes: int) -> None:
        """Lets a function be launched with this much dynamic LDS, where that must be said beforehand."""

    @abstractmethod
    def function_facts(self, function: int, threads: int, lds_bytes: int) -> dict[str, int]:
        """What the driver says of a loaded kernel, by the names of tile_oracle.build.code_facts.CodeFacts.

        threads: of a workgroup; lds_bytes: its dynamic LDS. Raises RuntimeMissing for a driver too old.
        """

    # ---- calls --------------------------------------------------------------------------------

    def call(self, operation: str, *arguments: Any) -> None:
        """Calls the library. Raises RuntimeFailure."""
        self._check(self.symbols[operation], self._functions[operation](*arguments))

    def _check(self, call: str, code: int) -> None:
        if code:
            raise RuntimeFailure(call, code, self.error_name(code), sticky=code in self.sticky_codes)

    def _handle(self, operation: str, *arguments: Any) -> int:
        value = c_void_p()
        self.call(operation, byref(value), *arguments)
        return value.value or 0

    def _number(self, operation: str, *arguments: Any) -> int:
        value = c_int()
        self.call(operation, byref(value), *arguments)
        return value.value

    def device_count(self) -> int:
        """How many devices this process sees."""
        return self._number("device_count")

    # ---- memory -------------------------------------------------------------------------------

    def allocate(self, size_bytes: int) -> int:
        """The address of fresh device memory, aligned to 256 bytes at least."""
        return self._handle("allocate", max(1, size_bytes))

    def free(self, address: int) -> None:
        """Gives memory back."""
        self.call("free", address)

    def free_memory_bytes(self) -> int:
        """How much could be allocated now."""
        free, total = c_size_t(), c_size_t()
        self.call("memory_info", byref(free), byref(total))
        return free.value

    def copy_in(self, address: int, data: bytes) -> None:
        """Host to device."""
        self.call("copy_in", address, data, len(data))

    def copy_out(self, address: int, size_bytes: int) -> bytes:
        """Device to host, after all that was launched before."""
        self.synchronize()
        data = ctypes.create_string_buffer(size_bytes)
        self.call("copy_out", data, address, size_bytes)
        return data.raw

    def set_bytes(self, address: int, value: int, size_bytes: int) -> None:
        """Fills memory with one byte value."""
        self.call("set_bytes", address, value, size_bytes)

    # ---- code ---------------------------------------------------------------------------------

    def load_module(self, image: bytes) -> int:
        """A module of a code object, a cubin or the text of PTX."""
        # PTX is a C string; the byte after a code object's end is read by nobody.
        return self._handle("module_load", image + b"\0")

    def unload_module(self, module: int) -> None:
        """Unloads a module and all that is in it."""
        self.call("module_unload", module)

    def function(self, module: int, name: str) -> int:
        """A kernel of a module."""
        return self._handle("module_function", module, name.encode())

    def global_bytes(self, module: int, name: str) -> bytes:
        """The content of a module's global variable."""
        address, size = c_void_p(), c_size_t()
        self.call("module_global", byref(address), byref(size), module, name.encode())
        return self.copy_out(address.value or 0, size.value)

    def launch(self, launch: Launch | LibraryLaunch) -> None:
        """Starts a kernel on the stream; returns before it has run."""
        if isinstance(launch, LibraryLaunch):
            self._check(launch.what, launch.start(self.stream))
            return
        where = launch.geometry
        self.call(
            "launch",
            *(launch.function, *where.grid, *where.block, where.lds_bytes),
            *(self.stream, launch.arguments.addresses, None),
        )

    def synchronize(self) -> None:
        """Waits until all that was started on the stream has run; reports its faults."""
        self.call("stream_synchronize", self.stream)

    # ---- time ---------------------------------------------------------------------------------

    def make_event(self) -> int:
        """A point in time on the device's own clock, once it is recorded."""
        return self._handle("event_create", 0)

    def record(self, event: int) -> None:
        """Notes the time when the stream comes to this point."""
        self.call("event_record", event, self.stream)

    def elapsed_ns(self, events: Sequence[int]) -> list[float]:
        """Nanoseconds from each event to the next; all have happened."""
        taken_ms = c_float()
        result: list[float] = []
        for begin, end in itertools.pairwise(events):
            self.call("event_elapsed", byref(taken_ms), begin, end)
            result.append(1e6 * taken_ms.value)
        return result

    def capture(self, launches: Sequence[Launch | LibraryLaunch], count: int) -> int:
        """An executable graph of some launches, `count` times in a row."""
        self.call("capture_begin", self.stream, CAPTURE_THREAD_LOCAL)
        graph = 0
        try:
            for _ in range(count):
                for launch in launches:
                    self.launch(launch)
        finally:
            graph = self._capture_end()
        try:
            return self._handle("graph_instantiate", graph, 0)
        finally:
            self.call("graph_destroy", graph)

    def _capture_end(self) -> int:
        graph = c_void_p()
        self.call("capture_end", self.stream, byref(graph))
        return graph.value or 0

    def launch_graph(self, executable: int) -> None:
        """Starts a graph on the stream."""
        self.call("graph_launch", executable, self.stream)

    def destroy_graph(self, executable: int) -> None:
        """Gives an executable graph back."""
        self.call("graph_exec_destroy", executable)


def text_of(buffer: ctypes.Array[ctypes.c_char]) -> str:
    """A C string's text, for names that devices give themselves."""
    return buffer.value.decode("utf-8", "replace").strip()
