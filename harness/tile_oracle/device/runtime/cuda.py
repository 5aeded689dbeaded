"""CUDA's driver API (libcuda)."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p

from tile_oracle.device.runtime.driver import CUDA, DeviceProperties, Driver, RuntimeMissing, symbols_of
from tile_oracle.device.runtime.settings import Setting

LIBRARY = "libcuda.so.1"

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
_MULTIPROCESSORS = 16
_MAX_DYNAMIC_LDS = 8
_FUNCTION_ATTRIBUTES = {"lds_bytes": 1, "scratch_bytes": 3, "vgprs": 4}
"""Static shared memory, local memory per thread, registers per thread."""
_MOST_BLOCKS = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
_WARP, _REGISTER_BYTES = 32, 4
_OF_STREAM = ("cuStreamGetAttribute", "cuStreamSetAttribute")


class CudaDriver(Driver):
    """A device of NVIDIA's driver, in its primary context."""

    symbols = symbols_of(CUDA)
    # Uncorrectable ECC error; destroyed contexts; faults of a kernel: illegal address, timeout, assertion,
    # stack, illegal instruction, misaligned address, address space, program counter, other faults.
    sticky_codes = frozenset((4, 46, 214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720))

    settings_known = (
        Setting("the share of the L2 cache for persisting data", "cuCtxGetLimit", "cuCtxSetLimit", 8, 6),
        Setting("the granularity of L2 fetches", "cuCtxGetLimit", "cuCtxSetLimit", 8, 5),
        Setting("the preferred cache", "cuCtxGetCacheConfig", "cuCtxSetCacheConfig"),
        Setting("the banks of shared memory", "cuCtxGetSharedMemConfig", "cuCtxSetSharedMemConfig"),
        Setting("the stream's window of persisting L2 data", *_OF_STREAM, 32, 1, of_stream=True),
        Setting("the stream's priority", *_OF_STREAM, 4, 8, of_stream=True),
    )
    reset_cache_symbol = "cuCtxResetPersistingL2Cache"

    def _make_current(self) -> None:
        context = c_void_p()
        retain = self._function("cuDevicePrimaryCtxRetain", (c_void_p, c_int))
        self._check("cuDevicePrimaryCtxRetain", retain(byref(context), self.device))
        self._check("cuCtxSetCurrent", self._function("cuCtxSetCurrent", (c_void_p,))(context))

    def error_name(self, code: int) -> str:
        name = c_char_p()
        known = self._function("cuGetErrorName", (c_int, c_void_p))(code, byref(name)) == 0
        return name.value.decode() if known and name.value else "an unknown error"

    def properties(self) -> DeviceProperties:
        version = self._number("driver_version")
        return self._properties(
            arch=f"sm_{self._attribute(_CAPABILITY_MAJOR)}{self._attribute(_CAPABILITY_MINOR)}",
            driver=_driver_version() or f"CUDA {version // 1000}.{version % 1000 // 10}",
            compute_units=self._attribute(_MULTIPROCESSORS),
        )

    def _attribute(self, number: int) -> int:
        return self._number("device_attribute", number, self.device)

    def allow_lds(self, function: int, lds_bytes: int) -> None:
        # Always needed: the default limit is 48 KiB for dynamic and static shared memory together.
        allow = self._function("cuFuncSetAttribute", (c_void_p, c_int, c_int))
        self._check("cuFuncSetAttribute", allow(function, _MAX_DYNAMIC_LDS, lds_bytes))

    def function_facts(self, function: int, threads: int, lds_bytes: int) -> dict[str, int]:
        number = c_int()
        ask = self._function("cuFuncGetAttribute", (c_void_p, c_int, c_void_p))
        facts: dict[str, int] = {}
        for name, attribute in _FUNCTION_ATTRIBUTES.items():
            self._check("cuFuncGetAttribute", ask(byref(number), attribute, function))
            facts[name] = number.value
        most = self._function(_MOST_BLOCKS, (c_void_p, c_void_p, c_int, c_size_t))
        self._check(_MOST_BLOCKS, most(byref(number), function, threads, lds_bytes))
        return {
            **facts,
            "lds_bytes": facts["lds_bytes"] + lds_bytes,
            # kernels/gpu uses local memory for spills only.
            "spills": -(-facts["scratch_bytes"] // _REGISTER_BYTES),
            "workgroups_per_cu": number.value,
            "waves_per_cu": number.value * -(-threads // _WARP),
        }


def _driver_version() -> str:
    """Returns the version of the driver's kernel module."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            words = file.readline().split()
    except OSError:
        return ""
    numbers = [word for word in words if word[:1].isdigit() and "." in word]
    return f"NVIDIA {numbers[0]}" if numbers else ""


def open_cuda(index: int = 0, library: str = LIBRARY) -> CudaDriver:
    """Opens a device. Raises RuntimeMissing without the library, RuntimeFailure without a device."""
    try:
        loaded = ctypes.CDLL(library)
    except OSError as error:
        raise RuntimeMissing(f"{library} cannot be loaded: {error}; install NVIDIA's driver") from None
    return CudaDriver(loaded, index)
