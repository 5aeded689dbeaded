"""--kernels: the kernel set, kernels written in Triton, and libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tile_oracle.compiling.prebuilt_folder import MANIFEST
from tile_oracle.compiling.triton.description import DESCRIPTION
from tile_oracle.errors import BuildError
from tile_oracle.session.kernels_option import read_kernels


@pytest.mark.parametrize(
    ("given", "sources", "text", "pool"),
    [
        ("", ("native",), "", "SET"),
        ("native", ("native",), "native", "SET"),
        ("cublaslt", (), "cublaslt", "cublaslt"),
        ("native, cublaslt=/lib/libcublasLt.so.12", ("native",), "native,cublaslt", "SET+cublaslt"),
        ("triton", ("triton",), "", "triton"),
        ("mine.py", ("triton=HERE/mine.py",), "", "mine.py"),
        ("mine.py, cublaslt", ("triton=HERE/mine.py",), "triton=mine.py,cublaslt", "mine.py+cublaslt"),
        ("native,triton", ("native", "triton"), "native,triton", "SET+triton"),
        (
            "cublaslt,mine.py,native",
            ("native", "triton=HERE/mine.py"),
            "native,triton=mine.py,cublaslt",
            "SET+mine.py+cublaslt",
        ),
        ("mine.py,triton", ("triton=HERE/mine.py", "triton"), "triton=mine.py,triton", "mine.py+triton"),
        (
            "few.json,triton=mine.py",
            ("native", "triton=HERE/mine.py"),
            "native,triton=mine.py",
            "SET+mine.py",
        ),
        ("triton,ck_tile=ck", ("ck_tile=HERE/ck", "triton"), "ck_tile,triton", "SET+triton"),
    ],
)
def test_kernels_come_from_sources_and_libraries(
    tmp_path: Path, given: str, sources: tuple[str, ...], text: str, pool: str
) -> None:
    found = read_kernels(given, tmp_path)
    assert found.sources == tuple(one.replace("HERE", str(tmp_path)) for one in sources)
    assert [library.name for library, _ in found.libraries] == ["cublaslt"] * ("cublaslt" in given)
    assert found.text == text
    assert found.kernel_set == ("few.json" if "few.json" in given else None)
    assert found.named(found.pool_name or "SET") == pool
    again = read_kernels(found.text.replace("ck_tile", "ck_tile=ck"), tmp_path)
    assert not text or (again.text, again.named("SET")) == (text, found.named("SET"))


def test_folders_say_what_they_hold_and_ck_tile_s_option_means_the_same(tmp_path: Path) -> None:
    found = read_kernels("triton", tmp_path, tmp_path / "ck")
    assert found == read_kernels("triton,ck_tile=ck", tmp_path)
    assert found.ck_tile == tmp_path / "ck"
    assert read_kernels("", tmp_path).ck_tile is None
    with pytest.raises(BuildError, match=r"native and ck_tile=.* both have the kernels of --kernel-set"):
        read_kernels("native", tmp_path, tmp_path / "ck")
    for name in ("built", "built_triton", "more_triton"):
        (tmp_path / name).mkdir()
        (tmp_path / name / MANIFEST).touch()
        if "triton" in name:
            (tmp_path / name / DESCRIPTION).touch()
    mixed = read_kernels("built_triton,built,cublaslt", tmp_path)
    assert mixed.sources == (f"native={tmp_path / 'built'}", f"triton={tmp_path / 'built_triton'}")
    assert mixed.text == "native,triton=built_triton,cublaslt"
    assert read_kernels("native=built,built_triton,cublaslt", tmp_path) == mixed
    with pytest.raises(BuildError, match=r"native=.*built_triton: it is no folder"):
        read_kernels("native=built_triton", tmp_path)
    with pytest.raises(BuildError, match="names a source twice"):
        read_kernels("built,native=built", tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("mine.py,mine.py", "names a source twice"),
        ("triton,", "'' is none of native, triton, a Python file"),
        ("cublas=/x.so", "'cublas=/x.so' is none of"),
        ("native=", "'native=' is none of"),
        ("a.json,b.json", "give one list of kernels"),
    ],
)
def test_other_words_get_one_line(tmp_path: Path, given: str, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        read_kernels(given, tmp_path)
