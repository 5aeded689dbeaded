"""A machine without a compiler, and programs that pretend to be one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tile_oracle.compiling import gpu_toolchain, nvcc


def program(path: Path, text: str) -> Path:
    """A program, written in Python."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


def strip_machine(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Hides every compiler and returns the only folder on PATH."""
    monkeypatch.setattr(gpu_toolchain, "zig_folder", lambda: None)
    monkeypatch.setenv("PATH", str(folder / "bin"))
    monkeypatch.setenv("ROCM_PATH", str(folder / "rocm"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(nvcc, "_CUDA", folder / "cuda")
    monkeypatch.setattr(nvcc, "_WHEELS", ("no_wheel",))
    return folder / "bin"
