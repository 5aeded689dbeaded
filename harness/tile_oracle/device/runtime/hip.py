"""HIP's runtime (libamdhip64), through its module API."""

from __future__ import annotations

import ctypes
import re
from ctypes import c_char_p, c_int, c_void_p

from tile_oracle.device.runtime.driver import HIP, DeviceProperties, Driver, RuntimeMissing, symbols_of
from tile_oracle.device.runtime.settings import Setting
from tile_oracle.targets.gpu_presence import HIP_NAMES

_PROPERTIES = ("hipGetDevicePropertiesR0600", "hipGetDeviceProperties")
_OF_STREAM = ("hipStreamGetAttribute", "hipStreamSetAttribute")
_PROPERTIES_BYTES = 1 << 14
"""Larger than hipDeviceProp_t in any version."""
_ARCH = re.compile(rb"gfx[0-9a-f]{3,4}(?=[:\0])")


class HipDriver(Driver):
    """A device of AMD's driver."""

    symbols = symbols_of(HIP)
    # Illegal address, timeout, assertion, launch failure; runtime shutdown; uncorrectable ECC error. Most
    # faults of a kernel never become an error number: the runtime aborts the process.
    sticky_codes = frozenset((4, 214, 700, 702, 709, 710, 719, 999))

    timer_tick_ns = 10.0
    settings_known = (
        Setting("the preferred cache", "hipDeviceGetCacheConfig", "hipDeviceSetCacheConfig"),
        Setting("the banks of shared memory", "hipDeviceGetSharedMemConfig", "hipDeviceSetSharedMemConfig"),
        Setting("the stream's window of persisting L2 data", *_OF_STREAM, 32, 1, of_stream=True),
        Setting("the stream's priority", *_OF_STREAM, 4, 8, of_stream=True),
    )

    def _make_current(self) -> None:
        self._check("hipSetDevice", self._function("hipSetDevice", (c_int,))(self.device))

    def error_name(self, code: int) -> str:
        get = self._function("hipGetErrorName", (c_int,))
        get.restype = c_char_p
        name = get(code)
        return name.decode() if name else "an unknown error"

    def properties(self) -> DeviceProperties:
        version = self._number("driver_version")
        driver = f"HIP {version // 10_000_000}.{version // 100_000 % 100}.{version % 100_000}"
        return self._properties(self._arch(), driver, 0)

    def _arch(self) -> str:
        """gcnArchName. Its offset in hipDeviceProp_t depends on the version, so it is found by its
        pattern."""
        block = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        symbol = next((name for name in _PROPERTIES if hasattr(self.library, name)), _PROPERTIES[-1])
        self._check(symbol, self._function(symbol, (c_void_p, c_int))(block, self.device))
        found = _ARCH.search(block.raw)
        return found.group().decode() if found else "unknown"

    def allow_lds(self, function: int, lds_bytes: int) -> None:
        """Does nothing: a module's kernel may use all of the LDS."""

    def function_facts(self, function: int, threads: int, lds_bytes: int) -> dict[str, int]:
        """Empty: the code object has better facts."""
        return {}


def open_hip(index: int = 0, library: str | None = None) -> HipDriver:
    """Opens a device. Raises RuntimeMissing without the library, RuntimeFailure without a device."""
    names = (library,) if library is not None else HIP_NAMES
    failures: list[str] = []
    for name in names:
        try:
            return HipDriver(ctypes.CDLL(name), index)
        except OSError as error:
            failures.append(str(error))
    raise RuntimeMissing(f"{names[0]} cannot be loaded: {failures[0]}; install ROCm (hip-runtime-amd)")
