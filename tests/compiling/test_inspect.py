from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compiling.small_family import make_kernel
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.code_object import EXPORTS, inspect_binary
from tile_oracle.compiling.isa import this_cpu
from tile_oracle.errors import BuildError


@pytest.fixture
def library(make_builder: Callable[..., Builder], compiler: str) -> Path:
    with make_builder(toolchain=compiler) as builder:
        binary = builder.need(make_kernel()).binary
    return binary.path


def test_facts_are_those_of_the_file(library: Path) -> None:
    facts = inspect_binary(library)
    assert facts.machine == this_cpu().machine
    assert set(EXPORTS) <= facts.exports
    assert facts.imports == {"memset"}
    assert facts.libraries == ()
    assert ctypes.CDLL(str(library)).to_abi_version() == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + b"\0" * 58, b"\x7fELF\x02\x01" + b"\xff" * 90],
)
def test_a_file_that_is_not_a_shared_object_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.so").write_bytes(content)
    with pytest.raises(BuildError, match="not a 64-bit ELF"):
        inspect_binary(tmp_path / "x.so")


@pytest.mark.parametrize("compiler", ["ziglang"], indirect=True)
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(library: Path, data: st.DataObject) -> None:
    content = bytearray(library.read_bytes())
    # Offsets and counts are in the headers: the ELF header, and the section headers at the end.
    places = st.one_of(st.integers(0, 63), st.integers(len(content) - 900, len(content) - 1))
    for place in data.draw(st.lists(places, min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(len(content) // 2, len(content))) :]
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(content)
        file.flush()
        with suppress(BuildError):
            inspect_binary(Path(file.name))
