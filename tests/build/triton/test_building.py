"""Kernels are compiled ahead by Triton in child processes, for GPUs that are not there, and cached."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.build.triton.conftest import COPY, HEAD
from tile_oracle.build.builder import Builder
from tile_oracle.build.code_facts import code_facts
from tile_oracle.build.prebuilt_folder import PrebuiltFolder
from tile_oracle.build.triton.kernel_source import open_triton
from tile_oracle.operation import Kind
from tile_oracle.triton.archive import read_archive

KIND = Kind.of("gemm", dtype="bf16", layout="rcr")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_90", "gfx950"])
def test_a_kernel_compiles_for_a_gpu_that_is_not_there(copy_file: Path, tmp_path: Path, arch: str) -> None:
    source = open_triton(arch, str(copy_file))
    kernel = source.pool(KIND)[0]
    with Builder(arch, build_dir=tmp_path / "cache", source=source, runs_here=False) as builder:
        result = builder.submit(kernel).result()
        assert result.status == "ok", result.log
        assert result.binary is not None
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
        assert again.binary is not None
        assert again.binary.path.read_bytes() == content, "the work folder leaves no trace in the binary"


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
    command = [sys.executable, "-m", "tile_oracle.cli", "build", "--arch", "sm_90", "-o", str(folder)]
    command += ["--kernels", str(copy_file), "--build-dir", str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kernels built (1 compiled, 0 from the cache), 0 failed" in done.stdout
    copy_file.unlink()
    assert len(PrebuiltFolder(folder).entries) == 2, "the kernel, and the harness's own device code"
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "from pathlib import Path\n"
        "from tile_oracle.build.builder import Builder\n"
        "from tile_oracle.build.triton.kernel_source import open_triton\n"
        f"folder = Path({str(folder)!r})\n"
        "source = open_triton('sm_90', str(folder))\n"
        "with Builder('sm_90', build_dir=folder, source=source) as builder:\n"
        "    result = builder.submit(source.pool(source.kinds[0])[0]).result()\n"
        "    print(result.status, result.cached, builder.device_work().path.name[-6:])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split()[:2] == ["ok", "True"], done.stderr
