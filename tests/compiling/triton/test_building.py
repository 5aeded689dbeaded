"""Kernels are compiled ahead by Triton in child processes, for GPUs that are not there, and cached."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compiling.triton.conftest import COPY, HEAD
from tests.processes import run_python
from tile_oracle.cli import main
from tile_oracle.compiling.builder import REFUSE, Builder
from tile_oracle.compiling.code_facts import code_facts
from tile_oracle.compiling.disassembly import find_disassembler, read_assembly
from tile_oracle.compiling.prebuilt_folder import PrebuiltFolder
from tile_oracle.compiling.triton.kernel_source import open_triton
from tile_oracle.errors import BuildError
from tile_oracle.operation import Kind
from tile_oracle.triton.archive import read_archive
from tile_oracle.verify.assembly import Function, parse_assembly
from tile_oracle.verify.verifier import verify_assembly

KIND = Kind.of("gemm", dtype="bf16", layout="rcr")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_90", "gfx950"])
def test_a_kernel_compiles_for_a_gpu_that_is_not_there(copy_file: Path, tmp_path: Path, arch: str) -> None:
    source = open_triton(arch, str(copy_file))
    kernel = source.pool(KIND)[0]
    with Builder(arch, build_dir=tmp_path / "cache", source=source, runs_here=False) as builder:
        result = builder.submit(kernel).result()
        assert result.status == "ok", result.log
        archive = read_archive(result.binary.path)
        facts = code_facts(result.binary.path, arch)
        content = result.binary.path.read_bytes()
        assert result.binary.toolchain.startswith("triton 3.")
    assert [variant.name for variant in archive.variants] == ["aligned", "general"]
    launch = archive.variants[0].launches[0]
    assert launch.threads == 4 * (32 if arch == "sm_90" else 64)
    assert launch.image[:4] == b"\x7fELF"
    assert (facts.spills, facts.scratch_bytes) == (0, 0)
    assert facts.vgprs
    # The arguments that the binary takes: those that we pass, and two addresses of scratch memory.
    assert _parameters(launch.image, arch) == len(launch.arguments) + 2
    with Builder(arch, build_dir=tmp_path / "cache", source=source, runs_here=False) as builder:
        assert builder.submit(kernel).result().cached
    with Builder(arch, build_dir=tmp_path / "other", source=source, runs_here=False) as builder:
        again = builder.submit(kernel).result()
        assert again.binary.path.read_bytes() == content, "the work folder leaves no trace in the binary"


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_86", "sm_89", "sm_100", "sm_120"])
def test_facts_are_shown_for_other_gpus(
    copy_file: Path,
    tmp_path: Path,
    arch: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TILE_ORACLE_CACHE", str(tmp_path / "cache"))
    given = ["--kernels", str(copy_file), "--arch", arch, "--facts", "--kernel-filter", "BLOCK == 64"]
    assert main(("pool", "list", *given)) == 0
    header, line = capsys.readouterr().out.splitlines()[:2]
    assert header.split()[0] == "VGPRs"
    assert int(line.split()[0]) > 0
    assert int(line.split()[4]) <= (16 if arch == "sm_100" else 12), (
        "waves/SIMD: 64 or 48 warps over 4 schedulers"
    )


GLUON = """\
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from tile_oracle.triton import gemm

@gemm(grid=[1], dtypes=["bf16"], layouts=["rcr"], configs=[{"BLOCK": 64, "num_warps": 4}])
@gluon.jit
def copy(a_ptr, c_ptr, M, BLOCK: gl.constexpr):
    rows = gl.arange(0, BLOCK, gl.BlockedLayout([1], [32], [4], [0]))
    gl.store(c_ptr + rows, gl.load(a_ptr + rows, mask=rows < M), mask=rows < M)
"""


@pytest.mark.slow
def test_a_kernel_in_gluon_compiles(copy_file: Path, tmp_path: Path) -> None:
    copy_file.write_text(GLUON)
    source = open_triton("sm_90", str(copy_file))
    with Builder("sm_90", build_dir=tmp_path / "cache", source=source, runs_here=False) as builder:
        result = builder.submit(source.pool(KIND)[0]).result()
        assert result.binary is not None, result.log
        launch = read_archive(result.binary.path).variants[0].launches[0]
    assert (launch.function, launch.threads) == ("copy", 128)
    assert _parameters(launch.image, "sm_90") == len(launch.arguments) + 2


def _parameters(image: bytes, arch: str) -> int:
    """The number of a kernel's parameters: .nv.info's records of them, or the code object's note."""
    if arch == "sm_90":
        return image.count(b"\x04\x17\x0c\x00")
    note = image[image.index(b"amdhsa.kernels") :]
    return len(re.findall(rb"\.value_kind.(?:global_buffer|by_value)", note))


@pytest.mark.slow
def test_what_does_not_compile_is_a_build_error_with_file_and_line(copy_file: Path, tmp_path: Path) -> None:
    copy_file.write_text(HEAD + COPY.replace("mask=rows < M)\n", "mask=rows < UNKNOWN)\n"))
    source = open_triton("sm_90", str(copy_file))
    with Builder("sm_90", build_dir=tmp_path / "cache", source=source, runs_here=False) as builder:
        result = builder.submit(source.pool(KIND)[0]).result()
    assert result.status == "build_error"
    assert re.match(r"copying\.py:\d+: error: .*UNKNOWN is not defined", result.log), result.log


@pytest.mark.slow
def test_a_folder_runs_where_triton_is_not(copy_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    command = ("-m", "tile_oracle.cli", "build", "--arch", "sm_90", "-o", folder, "--kernels", copy_file)
    done = run_python(*command, "--build-dir", tmp_path / "cache")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kernel built (1 compiled, 0 from the cache), 0 failed" in done.stdout
    copy_file.unlink()
    assert len(PrebuiltFolder(folder).entries) == 2, "the kernel, and the harness's own device code"
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "from pathlib import Path\n"
        "from tile_oracle.compiling.builder import Builder\n"
        "from tile_oracle.compiling.triton.kernel_source import open_triton\n"
        f"folder = Path({str(folder)!r})\n"
        "source = open_triton('sm_90', str(folder))\n"
        "with Builder('sm_90', build_dir=folder, source=source) as builder:\n"
        "    result = builder.submit(source.pool(source.kinds[0])[0]).result()\n"
        "    print(result.status, result.cached, builder.device_work().path.name[-6:])\n"
    )
    done = run_python("-c", code)
    assert done.stdout.split()[:2] == ["ok", "True"], done.stderr


@pytest.mark.slow
def test_the_waits_of_kernels_for_amd_gpus_are_verified_without_a_disassembler(
    copy_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the text that Triton assembles the binary from: all variants, as many functions as launches."""
    source = open_triton("gfx950", str(copy_file))
    cache = tmp_path / "cache"
    with Builder("gfx950", build_dir=cache, source=source, runs_here=False, verify=REFUSE) as builder:
        kernel = source.pool(KIND)[0]
        report = builder.report(kernel)
        text = builder.assembly(kernel)
        binary = builder.need(kernel).binary
    assert [function.name for function in report.functions] == ["copy", "copy"]
    assert (report.target, report.findings, report.incomplete) == ("gfx950", (), ())
    hasty = text.replace("s_waitcnt vmcnt(0)", "s_nop 0")
    assert {finding.rule for finding in verify_assembly(hasty).findings} == {"vmcnt"}
    asked = ("kernels", "--kernels", str(copy_file), "--arch", "gfx950", "--verify")
    assert main((*asked, "--build-dir", str(cache), "--sample", "1", "--seed", "2")) == 0
    said = capsys.readouterr().out
    assert "a sample of 1 of 2 kernels (--seed 2)" in said
    assert "1 kernel verified, 0 with findings" in said
    assert binary is not None
    try:
        find_disassembler("gfx950")
    except BuildError:
        assert main(("kernels", "--verify", str(binary.path))) != 0
        error = capsys.readouterr().err
        assert "no llvm-objdump for gfx950 was found" in error
        assert "tile-oracle pool list --kernels FILE --arch gfx950 --verify" in error
    else:
        assert main(("kernels", "--verify", str(binary.path))) == 0


@pytest.mark.slow
def test_an_archive_is_disassembled_as_its_assembly_says(tmp_path: Path) -> None:
    """Kernels of one wave too, whose exchange through LDS needs no barrier."""
    try:
        find_disassembler("gfx942")
    except BuildError as error:
        pytest.skip(str(error))
    source = open_triton("gfx942", "")
    kernel = source.pool(Kind.of("rms_norm", dtype="bf16"))[0]
    assert dict(kernel.configuration)["num_warps"] == 1
    with Builder("gfx942", build_dir=tmp_path, source=source, runs_here=False, verify=REFUSE) as builder:
        text = parse_assembly(builder.assembly(kernel))
        binary = builder.need(kernel).binary
    archive = read_assembly(binary.path)
    assert archive.target == text.target == "gfx942"
    for found, of_text in zip(archive.functions, text.functions, strict=True):
        wanted = without_padding(of_text)
        assert without_padding(found)[: len(wanted)] == wanted
    assert [one.most_threads for one in archive.functions] == [one.most_threads for one in text.functions]
    assert main(("kernels", "--verify", str(binary.path))) == 0


def without_padding(function: Function) -> list[str]:
    return [line.mnemonic for line in function.lines if line.mnemonic != "s_nop"]
