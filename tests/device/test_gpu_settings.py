"""Settings of a GPU that a kernel's code on the host leaves changed are found and restored."""

from __future__ import annotations

import ctypes
import subprocess

import pytest

from tile_oracle.compiling.toolchain import zig_folder
from tile_oracle.device.runtime.cuda import CudaDriver
from tile_oracle.device.runtime.settings import Settings

SOURCE = """
#include <string.h>
static size_t limits[8] = {1024, 0, 0, 0, 0, 64, 0};
static int cache, resets;
static char attributes[16][64];
int cuCtxGetLimit(size_t *value, int number) { *value = limits[number]; return 0; }
int cuCtxSetLimit(int number, size_t value) { limits[number] = value; return 0; }
int cuCtxGetCacheConfig(int *value) { *value = cache; return 0; }
int cuCtxSetCacheConfig(int value) { cache = value; return 0; }
int cuStreamGetAttribute(void *stream, int number, void *value) {
  memcpy(value, attributes[number], 64);
  return 0;
}
int cuStreamSetAttribute(void *stream, int number, const void *value) {
  memcpy(attributes[number], value, 64);
  return 0;
}
int cuCtxGetSharedMemConfig(int *value) { return 801; /* not supported */ }
int cuCtxResetPersistingL2Cache(void) { return ++resets, 0; }
int count_of_resets(void) { return resets; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("settings")
    (folder / "settings.c").write_text(SOURCE)
    zig = f"{zig_folder()}/zig"
    subprocess.run([zig, "cc", "-w", "-shared", "-fPIC", "settings.c", "-o", "s.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "s.so"))


@pytest.mark.parametrize("change", ["limit", "cache", "window", "priority"])
def test_a_changed_setting_is_named_and_restored(library: ctypes.CDLL, change: str) -> None:
    settings = Settings(library, 7, CudaDriver.settings_known, CudaDriver.reset_cache_symbol)
    assert settings.restored() == ()
    stream, value = ctypes.c_void_p(7), ctypes.create_string_buffer(b"\1\2\3", 64)
    words = {
        "limit": "the share of the L2 cache for persisting data",
        "cache": "the preferred cache",
        "window": "the stream's window of persisting L2 data",
        "priority": "the stream's priority",
    }
    if change == "limit":
        library.cuCtxSetLimit(6, ctypes.c_size_t(1 << 40))
    elif change == "cache":
        library.cuCtxSetCacheConfig(2)
    else:
        library.cuStreamSetAttribute(stream, 1 if change == "window" else 8, value)
    assert settings.restored() == (words[change],)
    assert settings.restored() == ()


def test_reserved_parts_of_the_cache_are_given_back(library: ctypes.CDLL) -> None:
    before = library.count_of_resets()
    Settings(library, 7, CudaDriver.settings_known, CudaDriver.reset_cache_symbol).reset_cache()
    assert library.count_of_resets() == before + 1
    Settings(library, 7, ()).reset_cache()
    assert library.count_of_resets() == before + 1
