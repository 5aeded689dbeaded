"""Runs the steps of benchmarks/gpu/run.py with a GPU kit on the emulated GPU.

    python benchmarks/gpu/make_kit.py kit --arch gfx950 --no-packages --direction forward --ndim 2 \\
        --dtype bf16 --kernel-filter "tile_m == 64 and pipeline in ('basic_v1', 'compv3') and not split_image"
    PYTHONPATH=. python tests/kernels/emulated_gpu/dry_run.py kit faults sessions

Its figures mean nothing. Every kernel of the kit is compiled for the emulator, so the kit should be small.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.gpu import run
from tests.evil_gpu_kernels.evil_gpu import evil_headers
from tests.kernels.emulated_gpu.compiler import emulated_library, file_under
from tests.kernels.emulated_gpu.device import EmulatedGpu
from tests.kernels.emulated_gpu.machine import PLUGIN, ROOT, EmulatedMachine, make_machine
from tile_oracle.compiling.prebuilt_folder import PrebuiltFolder
from tile_oracle.compiling.source import DEVICE_WORK, device_work_source, source_for
from tile_oracle.kernel import parse_kernel_name


def main(kit: Path, *steps: str) -> int:
    arch = json.loads((kit / "kit.json").read_text())["arch"]
    with tempfile.TemporaryDirectory() as folder:
        machine = make_machine(Path(folder), arch)
        for name, include in (("kernels", None), ("evil", evil_headers(Path(folder) / "evil"))):
            unpacked = kit.resolve() / "unpacked" / name
            run.unpack(kit / f"{name}.tar.xz", unpacked)
            _emulate(machine, PrebuiltFolder(unpacked), include)
        environment = {**os.environ, **machine.environment(), "PYTEST_ADDOPTS": f"-p {PLUGIN}"}
        command = [sys.executable, str(ROOT / "benchmarks" / "gpu" / "run.py"), str(kit), *steps]
        return subprocess.run(command, env=environment, check=False).returncode


def _emulate(machine: EmulatedMachine, built: PrebuiltFolder, include: Path | None) -> None:
    gpu = EmulatedGpu(machine.work)
    for number, (name, entry) in enumerate(built.entries.items(), 1):
        print(f"\r{built.folder.name}: {number} of {len(built.entries)} for the emulator", end="", flush=True)
        if name == DEVICE_WORK:
            source = device_work_source(machine.arch)
        else:
            source = source_for(parse_kernel_name(name), machine.arch)
        file_under(
            built.folder / entry.binary, emulated_library(gpu, source, machine.arch, include), machine.code
        )
    print()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
