"""The waits of kernels in Triton that copy to LDS: rings of buffers that their compiler chose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tile_oracle.cli import main
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.kernel_source import KernelSource
from tile_oracle.compiling.source_providers import open_kernel_source
from tile_oracle.compiling.triton.kernel_source import shipped_file
from tile_oracle.verify.verifier import verify_assembly

MX = shipped_file().parent / "scaled_gemm_mx.py"
ODD = Path(__file__).parent / "odd_gemm.py"
SHIPPED = {
    "gemm": r"gemm_bf16_rcr_triton\.tiles\.BLOCK_K=64\.BLOCK_M=64\.BLOCK_N=64\..*num_stages=2\.num_warps=4",
    "attention": r"attention_bf16_d64_causal1_triton\.attention_prefill\.BLOCK_M=64\.BLOCK_N=32\..*=2.*",
}
_TARGET = "\t.amdgcn_target"
_WAIT = r"\ts_waitcnt .*vmcnt\(\d+\).*"
_BARRIER = r"\ts_barrier"


def _assembly(source: KernelSource, name: str, folder: Path) -> str:
    """The first variant that copies to LDS."""
    kernel = next(one for kind in source.kinds for one in source.pool(kind) if re.fullmatch(name, one.name))
    with Builder("gfx950", build_dir=folder, runs_here=False, source=source) as builder:
        parts = [_TARGET + part for part in builder.assembly(kernel).split(_TARGET)[1:]]
    return next(part for part in parts if re.search(r"^\tbuffer_load.* lds$", part, re.MULTILINE))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("triton")
    shipped = open_kernel_source("gfx950", "triton")
    own = open_kernel_source("gfx950", f"triton={ODD}")
    found = {name: _assembly(shipped, pattern, folder) for name, pattern in SHIPPED.items()}
    return found | {"odd": _assembly(own, ".*odd.*", folder)}


def _without_each(text: str, pattern: str) -> Iterator[tuple[int, str]]:
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if re.fullmatch(pattern, line):
            yield at + 1, "\n".join([*lines[:at], "\ts_nop 0", *lines[at + 1 :]])


@pytest.mark.slow
def test_operands_through_registers_and_by_copies_use_different_bytes(texts: dict[str, str]) -> None:
    """Both are in flight at once; the addresses show that this is right."""
    assert re.search(r"^\tds_write_b\d+ ", texts["odd"], re.MULTILINE)
    report = verify_assembly(texts["odd"])
    assert report.findings == report.not_proven == ()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "spare"), [("gemm", 0), ("attention", 0), ("odd", 1)])
def test_each_barrier_and_each_wait_for_copies_is_needed(
    texts: dict[str, str], name: str, spare: int
) -> None:
    """Without one, a tile is read or overwritten too early, whatever the number of buffers.

    spare: barriers that nothing needs. Triton puts one in front of the stores, where those that read the same
    buffer are a round behind, in front of the loop's other barrier.
    """
    report = verify_assembly(texts[name])
    assert report.findings == report.not_proven == ()
    found = [bool(verify_assembly(text).findings) for _, text in _without_each(texts[name], _BARRIER)]
    assert found.count(True) >= 2
    assert found.count(False) == spare
    waits = list(_without_each(texts[name], _WAIT))
    assert waits
    for line, text in waits:
        assert verify_assembly(text).findings, f"wait of line {line}"


@pytest.mark.slow
def test_kernels_of_mx_have_no_findings(tmp_path: Path) -> None:
    source = open_kernel_source("gfx950", f"triton={MX}")
    for rows in (64, 16):
        name = rf"scaled_gemm_fp4_e2m1_mx_triton\.mx_tiles\..*BLOCK_M={rows}\.BLOCK_N=64\..*"
        text = _assembly(source, name, tmp_path)
        assert "v_mfma_scale_f32_16x16x128_f8f6f4" in text
        report = verify_assembly(text)
        assert report.findings == report.not_proven == ()


@pytest.mark.slow
def test_the_command_counts_what_is_not_proven_apart(
    texts: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a place of the ring from an argument, the exit status is 3 and JSON names both instructions."""
    file = tmp_path / "kernel.amdgcn"
    file.write_text(texts["gemm"])
    assert main(("kernels", "--verify", str(file))) == 0
    assert "1 kernel verified, 0 with findings\n" in capsys.readouterr().out
    lines = texts["gemm"].splitlines()
    places = [at for at, line in enumerate(lines) if re.match(r"\ts_add_i32 m0, s\d+, ", line)]
    for at in places:
        lines[at] = re.sub(r"s\d+, ", "s15, ", lines[at].replace("m0, ", "m0, ", 1), count=1)
    file.write_text("\n".join(lines))
    assert main(("kernels", "--verify", str(file))) == 3
    said = capsys.readouterr().out
    assert "1 kernel verified, 0 with findings, 1 not proven" in said
    assert "if the addresses meet: one is not known" in said
    assert main(("kernels", "--verify", str(file), "--json")) == 3
    assert '"not_proven": [' in capsys.readouterr().out
