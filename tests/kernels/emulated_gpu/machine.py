"""A machine with emulated GPUs, which a process finds like real ones.

As a plugin (`-p tests.kernels.emulated_gpu.machine`) it shows simulated device nodes to the harness, and by a
sitecustomize to the processes of devices, which load no plugin; the rest is in the environment: libraries,
their emulated code, a compiler.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.kernels.emulated_gpu.compiler import clang
from tests.kernels.emulated_gpu.device import EmulatedGpu
from tile_oracle.compiling.gpu_toolchain import find_ptxas

ROOT = Path(__file__).resolve().parents[3]
PLUGIN = "tests.kernels.emulated_gpu.machine"
VERSIONS = {"gfx950": 90500, "gfx942": 90402, "gfx90a": 90010}
"""gfx_target_version of the KFD's topology."""
LIBRARIES = {**dict.fromkeys(VERSIONS, "libamdhip64.so"), "sm_90": "libcuda.so.1"}
VISIBLE = {**dict.fromkeys(VERSIONS, "HIP_VISIBLE_DEVICES"), "sm_90": "CUDA_VISIBLE_DEVICES"}
NODES = "EMULATED_NODES"
"""The variable that names the folder of device nodes."""


_IN_DEVICES = f"""\
import sys
if "tile_oracle.measure.device_process" in sys.orig_argv:
    import {PLUGIN}
"""


@dataclass(frozen=True)
class EmulatedMachine:
    """A machine with GPUs of one architecture, in its own folder.

    compiler: for --toolchain; its binaries run here. code: where libraries for binaries of others are filed.
    """

    arch: str
    folder: Path
    compiler: Path

    @property
    def code(self) -> Path:
        return self.folder / "code"

    @property
    def work(self) -> Path:
        """Of EmulatedGpu."""
        return self.folder / "work"

    @property
    def library(self) -> Path:
        """libamdhip64 or libcuda."""
        return self.folder / "lib" / LIBRARIES[self.arch]

    def environment(self, gpus: int = 1) -> dict[str, str]:
        """Environment variables for a process that should find this many GPUs."""
        search = {name: os.environ.get(name, "") for name in ("LD_LIBRARY_PATH", "PYTHONPATH", "PATH")}
        # The user's selection of real GPUs does not apply here: an empty variable means no selection.
        chosen = {name: "" for name in (*VISIBLE.values(), "ROCR_VISIBLE_DEVICES") if name in os.environ}
        first = {
            "LD_LIBRARY_PATH": (self.folder / "lib",),
            "PYTHONPATH": (self.folder / "site", ROOT),
            "PATH": (self.folder / "bin",),
        }
        return {
            **chosen,
            **{
                name: os.pathsep.join(filter(None, [*map(str, first[name]), search[name]])) for name in search
            },
            "EMULATED_ARCH": self.arch,
            "EMULATED_CODE": str(self.code),
            "EMULATED_GPUS": str(gpus),
            NODES: str(_nodes(self.folder / f"nodes-{gpus}", self.arch, gpus)),
        }


def make_machine(folder: Path, arch: str) -> EmulatedMachine:
    """Compiles the runtime into a folder, which several processes may share."""
    machine = EmulatedMachine(arch, folder, folder / "bin" / "emulating-clang++")
    for inner in ("lib", "bin", "code", "work", "site"):
        (folder / inner).mkdir(parents=True, exist_ok=True)
    _put(folder / "site" / "sitecustomize.py", _IN_DEVICES.encode(), 0o644)
    _put(machine.library, EmulatedGpu(machine.work).runtime(cuda=arch == "sm_90").read_bytes(), 0o644)
    version = f"clang version {clang(arch).version} (with code for the emulated GPU)"
    programs = {machine.compiler.name: ("clang", f"printf '%s\\n' {shlex.quote(version)}")}
    ptxas = find_ptxas()
    if ptxas is not None:
        programs["ptxas"] = (str(ptxas), shlex.join([str(ptxas), "--version"]))
    words = [
        sys.executable,
        str(Path(__file__).with_name("compiler.py")),
        str(machine.work),
        str(machine.code),
    ]
    for name, (program, says_version) in programs.items():
        run = shlex.join([*words, program])
        # The version is queried often, and Python starts slowly.
        script = f'#!/bin/sh\n[ "$1" = --version ] && exec {says_version}\nexec {run} "$@"\n'
        _put(folder / "bin" / name, script.encode(), 0o755)
    return machine


def _put(path: Path, content: bytes, mode: int) -> None:
    """Writes atomically: other processes may be using the old file."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_bytes(content)
    scratch.chmod(mode)
    scratch.rename(path)


def _nodes(folder: Path, arch: str, gpus: int) -> Path:
    """Device nodes of NVIDIA's driver, or nodes of the KFD's topology: a CPU's and the GPUs'."""
    dev, topology = folder / "dev", folder / "topology"
    for path in (dev, topology):
        path.mkdir(parents=True, exist_ok=True)
    if arch == "sm_90":
        for number in range(gpus):
            (dev / f"nvidia{number}").touch()
    else:
        (dev / "kfd").touch()
        for number in range(gpus + 1):
            (topology / str(number)).mkdir(exist_ok=True)
            (topology / str(number) / "gpu_id").write_text(f"{number * 4711}\n")
            version = VERSIONS[arch] if number else 0
            (topology / str(number) / "properties").write_text(f"gfx_target_version {version}\n")
    return folder


def _show_nodes() -> None:
    """Lets gpu_presence look where EMULATED_NODES says."""
    from tile_oracle.targets import gpu_presence

    folder = Path(os.environ[NODES])
    gpu_presence.KFD = folder / "dev" / "kfd"
    gpu_presence._DEV = folder / "dev"
    gpu_presence._KFD_NODES = folder / "topology"


if NODES in os.environ:
    _show_nodes()
