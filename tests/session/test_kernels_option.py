"""--kernels: the kernel set, kernels written in Triton, and libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tile_oracle.build.prebuilt_folder import MANIFEST
from tile_oracle.build.triton.description import DESCRIPTION
from tile_oracle.errors import BuildError
from tile_oracle.session.kernels_option import read_kernels
from tile_oracle.vendor.libraries import read_sources


@pytest.mark.parametrize(
    ("given", "source", "more", "text"),
    [
        ("", "", (), ""),
        ("native", "", (), "native"),
        ("cublaslt", "", (), "cublaslt"),
        ("native,cublaslt=/lib/libcublasLt.so.12", "", (), "native,cublaslt=/lib/libcublasLt.so.12"),
        ("triton", "triton", (), ""),
        ("mine.py", "HERE/mine.py", (), ""),
        ("mine.py, cublaslt", "HERE/mine.py", (), "native,cublaslt"),
        ("native,triton", "", ("triton",), "native,triton"),
        ("cublaslt,mine.py,native", "", ("triton=HERE/mine.py",), "native,triton=mine.py,cublaslt"),
        ("mine.py,triton", "HERE/mine.py", ("triton",), "native,triton"),
        ("few.json,triton=mine.py", "", ("triton=HERE/mine.py",), "native,triton=mine.py"),
    ],
)
def test_kernels_come_from_three_places(
    tmp_path: Path, given: str, source: str, more: tuple[str, ...], text: str
) -> None:
    found = read_kernels(given, tmp_path)
    assert found.source == source.replace("HERE", str(tmp_path))
    assert found.more == tuple(one.replace("HERE", str(tmp_path)) for one in more)
    assert found.sources == text
    assert found.kernel_set == ("few.json" if "few.json" in given else None)
    sources = read_sources(found.sources)
    assert read_sources(sources.text).text == sources.text
    assert len(sources.triton) == len(more)


def test_folders_say_themselves_what_they_hold(tmp_path: Path) -> None:
    for name in ("built", "built_triton", "more_triton"):
        (tmp_path / name).mkdir()
        (tmp_path / name / MANIFEST).touch()
        if "triton" in name:
            (tmp_path / name / DESCRIPTION).touch()
    mixed = read_kernels("built,built_triton,cublaslt", tmp_path)
    assert mixed.build_dir == tmp_path / "built"
    assert (mixed.source, mixed.more) == ("", (f"triton={tmp_path / 'built_triton'}",))
    assert read_kernels("native=built,built_triton,cublaslt", tmp_path) == mixed
    alone = read_kernels("built_triton", tmp_path)
    assert (alone.source, alone.build_dir) == (str(tmp_path / "built_triton"), tmp_path / "built_triton")
    two = read_kernels("built_triton,more_triton", tmp_path)
    assert (two.build_dir, two.more) == (alone.build_dir, (f"triton={tmp_path / 'more_triton'}",))
    with pytest.raises(BuildError, match=r"native=.*built_triton: it is no folder"):
        read_kernels("native=built_triton", tmp_path)
    with pytest.raises(BuildError, match="give one folder"):
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
