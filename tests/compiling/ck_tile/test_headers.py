"""Finds CK Tile in a folder given by the user, and identifies its version."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tile_oracle.compiling.ck_tile.headers import find_headers
from tile_oracle.errors import BuildError


def checkout(folder: Path, inner: str = "include") -> Path:
    headers = folder / inner / "ck_tile"
    (headers / "ops").mkdir(parents=True)
    (headers / "core.hpp").write_text("#pragma once\n")
    (headers / "ops" / "gemm.hpp").write_text("struct GemmKernel {};\n")
    return folder


@pytest.mark.parametrize("inner", ["include", "projects/composablekernel/include", "."])
def test_headers_are_found_in_checkouts_and_installs(tmp_path: Path, inner: str) -> None:
    found = find_headers(checkout(tmp_path, inner))
    assert found.count == 2
    assert (found.include / "ck_tile" / "core.hpp").is_file()
    assert found.text("ck_tile/ops/gemm.hpp").startswith("struct")
    assert found.text("ck_tile/none.hpp") == ""


def test_a_folder_without_headers_is_refused_with_a_fix(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"holds no CK Tile.*name a checkout of Composable Kernel"):
        find_headers(tmp_path)
    with pytest.raises(BuildError, match="holds no CK Tile"):
        find_headers(tmp_path / "none")


def test_the_digest_follows_names_and_contents(tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    first = find_headers(folder).digest
    assert find_headers(folder).digest == first
    gemm = folder / "include" / "ck_tile" / "ops" / "gemm.hpp"
    gemm.write_text("struct GemmKernel2 {};\n")
    second = find_headers(folder).digest
    gemm.rename(gemm.with_name("gemm2.hpp"))
    assert len({first, second, find_headers(folder).digest}) == 3
    (folder / "include" / "ck_tile" / "notes.txt").write_text("no header")
    assert find_headers(folder).count == 2


@pytest.mark.parametrize(
    ("file", "text", "version"),
    [
        (
            "include/ck/version.h",
            "#define CK_VERSION_MAJOR 1\n#define CK_VERSION_MINOR 2\n#define CK_VERSION_PATCH 0\n"
            "#define CK_COMMIT_ID 0123456789abcdef\n",
            "1.2.0, commit 0123456789ab",
        ),
        ("CMakeLists.txt", "cmake_minimum_required(VERSION 3.14)\nset(version 1.2.0)\n", "1.2.0"),
        (".info/version", "7.0.1-42\n", "of ROCm 7.0.1-42"),
        ("notes.txt", "1.2.0", ""),
    ],
)
def test_the_version_is_that_of_a_header_of_cmake_or_of_rocm(
    tmp_path: Path, file: str, text: str, version: str
) -> None:
    path = checkout(tmp_path) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    found = find_headers(tmp_path)
    assert found.version == version
    assert found.identity == " ".join(f"CK Tile {version} (headers {found.digest[:12]})".split())


def test_a_checkouts_version_has_the_commit(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "ck")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    for command in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        subprocess.run((*git, *command), cwd=folder, check=True, capture_output=True)
    asked = subprocess.run(
        ("git", "rev-parse", "HEAD"), cwd=folder, check=True, capture_output=True, text=True
    )
    assert find_headers(folder).version == f"commit {asked.stdout[:12]}"
    subprocess.run(("git", "pack-refs", "--all"), cwd=folder, check=True)
    assert find_headers(folder).version == f"commit {asked.stdout[:12]}"
    # Another working tree of the same repository points to it.
    other = tmp_path / "other"
    subprocess.run(("git", "worktree", "add", "-q", str(other)), cwd=folder, check=True, capture_output=True)
    assert find_headers(other).version == f"commit {asked.stdout[:12]}"
