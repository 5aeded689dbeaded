"""Finds CK Tile in a folder given by the user, and identifies its version."""

from __future__ import annotations

import struct
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.compiling.ck_tile import toolchain
from tile_oracle.compiling.ck_tile.declarations import (
    Parameter,
    constructor_parameters,
    find_template,
    split_list,
    without_comments,
)
from tile_oracle.compiling.ck_tile.headers import CkTileHeaders, find_headers
from tile_oracle.compiling.ck_tile.offload_bundle import MAGIC, code_objects, make_bundle, target_name
from tile_oracle.compiling.ck_tile.toolchain import HIP_HEADERS, MADE, HipccToolchain, find_ck_tile_toolchain
from tile_oracle.compiling.isa import isa_for
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


# Which compiler builds CK Tile's kernels. The hipcc here is a script that prints what ROCm's prints.

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


# Reads C++ declarations by name, as in CK Tile's headers.

TEXT = """
template <typename T> struct Problem;
template <typename A_, bool Flag_ = (1 > 0), int N_ = sizeof(pair<A_, int>), template <class> class C_ = Box>
struct Problem
{
    Problem() = default;
    Problem(const pair<A_, int>& first_, void (*call_)(int, int), int last_ = 3) {}
    Problem(int one_);
    struct Inner { int x; };
    enum { last = 1 };
};
template <> struct Problem<int> {};
using Short = Problem<int>;
template <class X = int> using Alias = Problem<X>;
int outside;
"""


def test_parameters_and_the_longest_constructor_have_their_defaults() -> None:
    found = find_template(TEXT, "Problem")
    assert found.parameters == (
        Parameter("A_", None),
        Parameter("Flag_", "(1 > 0)"),
        Parameter("N_", "sizeof(pair<A_, int>)"),
        Parameter("C_", "Box"),
    )
    assert found is not None
    parameters = constructor_parameters(found)
    assert parameters is not None
    assert [(p.name, p.default) for p in parameters][::2] == [("first_", None), ("last_", "3")]
    text = "template <class A, int N = 4> struct S;\ntemplate <class A, int N> struct S { };"
    found = find_template(text, "S")
    assert found.parameters == (Parameter("A", None), Parameter("N", "4"))
    assert find_template(TEXT, "Prob") is None
    assert find_template("template <class T> struct Only;", "Only") is None
    plain = find_template("struct Plain { int x; };", "Plain")
    assert plain is not None
    assert constructor_parameters(plain) is None


def test_code_that_the_preprocessor_or_a_comment_hides_is_no_code() -> None:
    text = without_comments(
        "#if 0\nstruct A { int gone; };\n#endif\n"
        "  # if 0 // off\nstruct B {};\n  # else\nstruct C { int kept; };\n  # endif\n"
    )
    assert find_template(text, "A") is None
    assert find_template(text, "B") is None
    kept = find_template(text, "C")
    assert "int kept" in kept.body
    text = without_comments('struct A { // }\n /* } */ const char* s = "}"; int end; };')
    found = find_template(text, "A")
    assert "end" in found.body


_WORD = st.text("abcxyz_ 019", min_size=1, max_size=8).map(str.strip).filter(bool)
_PART = st.recursive(
    _WORD,
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"f<{', '.join(parts)}>"),
    max_leaves=6,
)


@given(st.lists(_PART, min_size=1, max_size=6))
def test_a_list_is_split_at_its_own_commas_only(parts: list[str]) -> None:
    assert split_list(", ".join(parts)) == parts


@given(st.text("<>(){}[],=; template struct S\n", max_size=200))
def test_no_text_makes_it_fail(text: str) -> None:
    found = find_template(without_comments(text), "S")
    if found is not None:
        constructor_parameters(found)


# Offload bundles, written and read again.


@given(st.binary(min_size=1, max_size=9000).filter(lambda code: MAGIC not in code))
def test_a_bundle_round_trips(code: bytes) -> None:
    assert code_objects(make_bundle(code, "gfx950") + b"\0" * 100) == {target_name("gfx950"): code}


def test_several_bundles_are_read_and_code_is_aligned_to_pages() -> None:
    data = make_bundle(b"one", "gfx950") + make_bundle(b"two", "gfx942")
    assert code_objects(data) == {target_name("gfx950"): b"one", target_name("gfx942"): b"two"}
    assert make_bundle(b"code", "gfx950").index(b"code") % 4096 == 0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"nothing", "not an offload bundle"),
        (b"CCOB" + b"\0" * 50, "compressed"),
        (MAGIC, "damaged"),
        (MAGIC + struct.pack("<Q", 1 << 40), "too many entries"),
        (MAGIC + struct.pack("<4Q", 1, 10, 1 << 40, 2) + b"ab", "outside"),
    ],
)
def test_invalid_bundles_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        code_objects(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tail: bytes) -> None:
    with suppress(ValueError):
        code_objects(MAGIC + tail)
