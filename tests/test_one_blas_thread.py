"""Products of matrices on one thread."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tile_oracle import one_blas_thread as module
from tile_oracle.one_blas_thread import one_blas_thread

_PRODUCT = """
import hashlib
import numpy as np
from tile_oracle.one_blas_thread import one_blas_thread

generator = np.random.default_rng(0)
left = generator.normal(size=(661, 347)).astype(np.float32)
right = generator.normal(size=(347, 129)).astype(np.float32)
with one_blas_thread() as found:
    print(found, hashlib.sha256((left @ right).tobytes()).hexdigest())
"""


def threads() -> list[int]:
    functions = (module._functions(path) for path in module._libraries())
    return [found[0]() for found in functions if found is not None]


@pytest.mark.skipif(not threads(), reason="NumPy was not built with OpenBLAS")
def test_the_number_of_threads_is_one_and_then_as_before() -> None:
    before = threads()
    with one_blas_thread() as found:
        assert found
        assert set(threads()) == {1}
    assert threads() == before


@pytest.mark.skipif(not threads(), reason="NumPy was not built with OpenBLAS")
def test_a_product_has_the_same_bytes_whatever_the_number_of_threads() -> None:
    found = set()
    for count in ("1", "2", "7"):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": count}
        command = [sys.executable, "-c", _PRODUCT]
        found.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1


def test_without_a_known_library_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOADED", tmp_path / "none")
    with one_blas_thread() as found:
        assert not found
        assert (np.eye(2) @ np.eye(2)).tolist() == np.eye(2).tolist()
    assert module._functions(ctypes.util.find_library("m") or "libm.so.6") is None
    assert module._functions(str(tmp_path / "none")) is None
