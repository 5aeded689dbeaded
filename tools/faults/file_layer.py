"""Builds, loads and arms the library that intercepts the file calls of a process (file_layer.c)."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.faults.source_tree import search_path

SOURCE = Path(__file__).with_suffix(".c")


def build(folder: Path) -> Path:
    """Builds the library in a folder, with the system's C compiler or ziglang's. Returns its path."""
    library = folder / "file_layer.so"
    found = shutil.which("cc") or shutil.which("gcc")
    compiler = [found] if found else [sys.executable, "-m", "ziglang", "cc"]
    command = [*compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True)
    return library


def environment(library: Path) -> dict[str, str]:
    """The environment of a process that preloads the library."""
    return {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": search_path()}


def faulty_environment(library: Path, folder: Path, at: int, number: int, mark: Path) -> dict[str, str]:
    """The same; in addition, in the first process that makes `at` calls on files below `folder`, the last of
    them fails with this errno. It writes the call's name to the file `mark`."""
    asked = {"FILE_LAYER_FOLDER": str(folder), "FILE_LAYER_AT": str(at), "FILE_LAYER_ERRNO": str(number)}
    return environment(library) | asked | {"FILE_LAYER_ONCE": str(mark)}


class FileLayer:
    """The functions of the library, in a process that preloaded it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.file_layer_calls.restype = ctypes.c_long
        self._library.file_layer_failed.restype = ctypes.c_char_p

    def arm(self, folder: Path, at: int, number: int, *, every_later: bool = False) -> None:
        """Resets the count; the `at`-th call below `folder` fails (0: none), or that and every later one."""
        self._library.file_layer_arm(
            str(folder).encode(), ctypes.c_long(at), ctypes.c_int(number), ctypes.c_int(every_later)
        )

    @property
    def calls(self) -> int:
        """Number of calls since `arm`."""
        return int(self._library.file_layer_calls())

    @property
    def failed(self) -> str:
        """The name of the call that failed, or ""."""
        return bytes(self._library.file_layer_failed()).decode()
