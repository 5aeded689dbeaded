"""Keeps NumPy's matrix products on one thread, so that their sums have one order.

NumPy's wheels bring OpenBLAS, which divides a product over its threads; how it does so changes the last digit
of some sums. The number of threads can only be changed by a function of the loaded library. Where that is not
found (another BLAS, another system than Linux), nothing is changed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOADED = Path("/proc/self/maps")
_NAMES = (("scipy_openblas", "64_"), ("scipy_openblas", ""), ("openblas", "64_"), ("openblas", ""))
"""How builds of OpenBLAS begin and end the names of its functions."""


@contextmanager
def one_blas_thread() -> Iterator[bool]:
    """Within it, products of matrices run on one thread. Gives whether a library was found that allows it."""
    found = [functions for path in _libraries() if (functions := _functions(path)) is not None]
    before = [get() for get, _ in found]
    try:
        for _, change in found:
            change(1)
        yield bool(found)
    finally:
        for (_, change), number in zip(found, before, strict=True):
            change(number)


def _libraries() -> list[str]:
    """The paths of the loaded BLAS libraries."""
    try:
        lines = _LOADED.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return sorted({line.split(maxsplit=5)[-1] for line in lines if "openblas" in line and "/" in line})


def _functions(path: str) -> tuple[ctypes._FuncPointer, ctypes._FuncPointer] | None:
    """The functions that give and change the number of threads."""
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None
    for begin, end in _NAMES:
        get = getattr(library, f"{begin}_get_num_threads{end}", None)
        change = getattr(library, f"{begin}_set_num_threads{end}", None)
        if get is not None and change is not None:
            return get, change
    return None
