"""Which compiler builds CK Tile's kernels. The hipcc here is a script that prints what ROCm's prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tile_oracle.compiling.ck_tile import toolchain
from tile_oracle.compiling.ck_tile.headers import CkTileHeaders, find_headers
from tile_oracle.compiling.ck_tile.toolchain import HIP_HEADERS, MADE, HipccToolchain, find_ck_tile_toolchain
from tile_oracle.compiling.isa import isa_for
from tile_oracle.errors import BuildError

DOUBLE = Path(__file__).parents[1] / "ck_tile_double"
SAYS = """\
HIP version: 7.0.51831-a3e329ad8
AMD clang version 20.0.0git (https://example.org/llvm 1234)
Target: x86_64-unknown-linux-gnu
"""


@pytest.fixture
def headers() -> CkTileHeaders:
    return find_headers(DOUBLE)


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{says}END\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without ROCm; returns the folder where ROCm would be."""
    monkeypatch.setattr(toolchain, "rocm_folders", lambda: (tmp_path / "rocm",))
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: name if "/" in name else None)
    return tmp_path / "rocm"


def test_hipcc_of_rocm_is_taken_first(no_rocm: Path, headers: CkTileHeaders) -> None:
    hipcc = program(no_rocm / "bin" / "hipcc", SAYS)
    found = find_ck_tile_toolchain("auto", "gfx950", headers, {})
    assert isinstance(found, HipccToolchain)
    assert found.identity == f"hipcc 7.0.51831, CK Tile (headers {headers.digest[:12]})"
    assert headers.digest in found.fingerprint
    ((command),) = found.commands(
        "kernel.hip", "kernel.so", found.flags("gfx950", isa_for("gfx950", "native"))
    )
    assert command[:3] == (str(hipcc), "-x", "hip")
    assert {
        "--offload-arch=gfx950",
        "--no-offload-compress",
        "-shared",
        "-fPIC",
        "-std=c++20",
        str(headers.include),
    } <= set(command)
    assert command[-3:] == ("kernel.hip", "-o", "kernel.so")


def test_what_is_no_hipcc_is_missing_or_has_no_ck_tile_is_named(
    no_rocm: Path, headers: CkTileHeaders, tmp_path: Path
) -> None:
    other = program(no_rocm / "other", "Ubuntu clang version 18\n")
    with pytest.raises(BuildError, match=r"is not hipcc: its --version prints 'Ubuntu clang version 18'"):
        find_ck_tile_toolchain(str(other), "gfx950", headers, {})
    with pytest.raises(BuildError, match=r"no hipcc, and without g\+\+ .*, HIP's headers in"):
        find_ck_tile_toolchain("auto", "gfx950", headers, {HIP_HEADERS: str(tmp_path / "none")})
    with pytest.raises(BuildError, match="toolchain 'hipcc' is not on this machine"):
        find_ck_tile_toolchain("hipcc", "gfx950", headers, {})
    for arch in ("cpu", "sm_90", "gfx1250"):
        with pytest.raises(
            BuildError, match=f"for gfx950, gfx942, gfx90a, not for {arch}: give --arch gfx950"
        ):
            find_ck_tile_toolchain("auto", arch, headers, {})


def test_the_header_folders_contents_are_part_of_the_key(headers: CkTileHeaders, tmp_path: Path) -> None:
    prints = []
    for text in ("one", "two"):
        (tmp_path / MADE).write_text(text)
        found = find_ck_tile_toolchain("ziglang", "gfx950", headers, {HIP_HEADERS: str(tmp_path)})
        prints.append(found.fingerprint)
    assert prints[0] != prints[1]
