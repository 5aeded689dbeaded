"""Two versions of a pool compared: real binaries in folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tile_oracle.cli import main
from tile_oracle.compiling.binary_identity import binary_identity
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.drift import drift, read_version
from tile_oracle.compiling.prebuild import prebuild
from tile_oracle.compiling.prebuilt_folder import MANIFEST
from tile_oracle.errors import BuildError
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel

MakeBuilder = Callable[..., Builder]
MakeKernel = Callable[..., GroupedConvKernel]


@pytest.fixture
def before(tmp_path: Path, make_builder: MakeBuilder, make_kernel: MakeKernel) -> Path:
    """Kernels with tile_m 1, 2 and 3."""
    with make_builder() as builder:
        prebuild(builder, [make_kernel(tile_m) for tile_m in (1, 2, 3)], tmp_path / "before")
    return tmp_path / "before"


@pytest.fixture
def after(
    tmp_path: Path, include: Path, make_builder: MakeBuilder, make_kernel: MakeKernel, before: Path
) -> Path:
    """From other headers, with tile_m 1 and 2; the third binary has another name, and a fourth is new."""
    header = include / "grouped_conv.hpp"
    header.write_text(header.read_text() + "\n// a comment changes no code\n")
    with make_builder() as builder:
        prebuild(builder, [make_kernel(tile_m) for tile_m in (1, 2, 3, 4)], tmp_path / "after")
    path = tmp_path / "after" / MANIFEST
    manifest = json.loads(path.read_text())
    kernels = manifest["kernels"]
    kernels[make_kernel(5).name] = kernels.pop(make_kernel(3).name)
    # The second name gets the fourth kernel's binary: it has changed, and two names share one binary.
    kernels[make_kernel(2).name] = kernels[make_kernel(4).name]
    path.write_text(json.dumps(manifest))
    return tmp_path / "after"


def test_differing_kernels_are_told_and_damaged_folders_refused(
    before: Path, after: Path, make_kernel: MakeKernel, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, three, four, five = (make_kernel(tile_m).name for tile_m in (1, 2, 3, 4, 5))
    found = drift(read_version(before), read_version(after))
    assert (found.gained, found.lost) == ((four,), ())
    assert found.renamed == ((three, five),)
    assert found.changed == (two,)
    assert found.same == (one,)
    assert found.a.twins() == ()
    assert found.b.twins() == (tuple(sorted((two, four))),)
    back = drift(found.b, found.a)
    assert (back.lost, back.renamed) == ((four,), ((five, three),))
    assert main(("kernels", "--diff", str(before), str(before))) == 0
    assert "no difference in 3 kernels" in capsys.readouterr().out
    assert main(("kernels", "--diff", str(before), str(after))) == 1
    text = capsys.readouterr().out
    assert "1 gained, 0 lost, 1 renamed, 1 changed, 1 the same" in text
    assert f"{make_kernel(3).name} -> {make_kernel(5).name}" in text
    assert main(("kernels", "--diff", str(before), str(after), "--json")) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["gained"] == [make_kernel(4).name]
    assert content["twins"]["b"] == [sorted((make_kernel(2).name, make_kernel(4).name))]
    binary = next((before / "binaries").iterdir())
    binary.write_bytes(binary.read_bytes()[:200])
    with pytest.raises(BuildError, match="is damaged: build it again"):
        read_version(before)


def test_comments_of_ptx_do_not_count_and_other_files_do(tmp_path: Path) -> None:
    texts = {
        "a": ".target sm_90 // made on Monday\nadd r1;",
        "b": ".target sm_90\nadd r1;",
        "c": ".target sm_90",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.ptx").write_text(text)
    same, other = (binary_identity(tmp_path / f"{name}.ptx") for name in "ac")
    assert binary_identity(tmp_path / "b.ptx") == same != other
    for name in "ab":
        (tmp_path / name).write_text(f'{{"path": "/usr//lib", "algorithm": "{name}"}}')
    assert binary_identity(tmp_path / "a") != binary_identity(tmp_path / "b")
