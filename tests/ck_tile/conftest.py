"""The opt-in group: CK Tile's own kernels from public headers, for gfx950. TILE_ORACLE_CK_TILE=1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[2] / ".ci" / "ck_tile_headers.py"
_UNREACHABLE = 3


@pytest.fixture(scope="session")
def headers() -> Path:
    """The folder of headers, made now unless it exists. Skips if packages cannot be downloaded."""
    if os.environ.get("TILE_ORACLE_CK_TILE") != "1":
        pytest.skip("compiles CK Tile's kernels out of public packages: set TILE_ORACLE_CK_TILE=1")
    done = subprocess.run([sys.executable, str(_SCRIPT)], capture_output=True, text=True, check=False)
    if done.returncode == _UNREACHABLE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())
