"""--kernels: the kernel set, kernels written in Triton, and libraries."""

from __future__ import annotations

import pytest

from tile_oracle.errors import BuildError
from tile_oracle.vendor.libraries import read_sources, split_kernels


@pytest.mark.parametrize(
    ("given", "triton", "native", "libraries"),
    [
        ("", None, True, []),
        ("native", None, True, []),
        ("cublaslt", None, False, ["cublaslt"]),
        ("native,cublaslt=/lib/libcublasLt.so.12", None, True, ["cublaslt"]),
        ("triton", "triton", True, []),
        ("mine.py", "mine.py", True, []),
        ("mine.py, cublaslt", "mine.py", True, ["cublaslt"]),
    ],
)
def test_kernels_come_from_three_places(
    given: str, triton: str | None, native: bool, libraries: list[str]
) -> None:
    found, rest = split_kernels(given)
    sources = read_sources(rest)
    assert found == triton
    assert (sources.native, [library.name for library, _ in sources.libraries]) == (native, libraries)


@pytest.mark.parametrize("given", ["mine.py,other.py", "native,triton"])
def test_kernels_have_one_place_beside_libraries(given: str) -> None:
    with pytest.raises(BuildError, match="give one of native, triton, a Python file or a folder"):
        split_kernels(given)
