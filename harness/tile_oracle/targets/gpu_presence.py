"""Detects a machine's GPUs without opening them, by device nodes and libraries."""

from __future__ import annotations

import ctypes.util
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tile_oracle.compiling.gpu_toolchain import rocm_folders

KFD = Path("/dev/kfd")
_DEV = Path("/dev")
_KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
HIP_NAMES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
"""The unversioned name comes with ROCm's development packages, the others with its runtime packages."""
LIBRARY_FOLDERS = (
    *map(Path, ("/usr/local/nvidia/lib64", "/usr/local/cuda/lib64", "/opt/rocm/lib")),
    *map(Path, ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")),
)
"""Where the vendors' packages put their libraries."""


@dataclass(frozen=True)
class Presence:
    """usable: whether the target can be opened. why: what was found, or what is missing and how to get it.

    devices: number of devices, 0 when unknown. library: path or name of the runtime, or "". archs: the
    architectures of AMD's devices, in their order; empty when the driver does not report them.
    """

    usable: bool
    why: str
    devices: int = 0
    library: str = ""
    archs: tuple[str, ...] = ()

    def of(self, arch: str) -> Presence:
        """Returns the same for a target of this architecture; it cannot use GPUs of a different, known
        architecture."""
        if not self.usable or not self.archs or arch in self.archs:
            return self
        found = " and ".join(dict.fromkeys(self.archs))
        return replace(self, usable=False, why=f"the GPU here is {found}, not {arch}")


def amd_presence() -> Presence:
    """Checks that /dev/kfd exists, that this user may open it, and that libamdhip64 exists."""
    if not KFD.exists():
        return Presence(False, f"no {KFD}: there is no AMD GPU, or the amdgpu driver is not loaded")
    if not os.access(KFD, os.R_OK | os.W_OK):
        return Presence(False, f"{KFD} may not be opened by this user: add it to the groups render and video")
    of_rocm = (folder / "lib" for folder in rocm_folders())
    library = find_shared_library(HIP_NAMES, (*folders_of_loader(), *of_rocm))
    if not library:
        return Presence(False, f"{KFD} is there, but libamdhip64 is not: install ROCm (hip-runtime-amd)")
    archs = _kfd_archs()
    known = tuple(arch for arch in archs if arch)
    which = f" ({', '.join(dict.fromkeys(known))})" if known else ""
    return Presence(True, f"{KFD} and {Path(library).name} are there{which}", len(archs), library, known)


def nvidia_presence() -> Presence:
    """Checks for an NVIDIA device node and libcuda."""
    devices = _nvidia_gpus()
    if not devices and not (_DEV / "dxg").exists():
        return Presence(False, "no /dev/nvidia0: there is no NVIDIA GPU, or its driver is not loaded")
    library = find_shared_library(("libcuda.so.1",), (*folders_of_loader(), *LIBRARY_FOLDERS))
    if not library:
        why = "an NVIDIA GPU is there, but libcuda.so.1 is not: install NVIDIA's driver"
        return Presence(False, why, devices)
    return Presence(True, f"an NVIDIA GPU and {Path(library).name} are there", devices, library)


def find_shared_library(names: Sequence[str], folders: Iterable[Path]) -> str:
    """Returns the library's path in the first of the folders, else the name known to the loader, or "".

    names: of its file, the preferred one first.
    """
    places = (str(folder / name) for folder in folders for name in names if (folder / name).is_file())
    return next(places, "") or ctypes.util.find_library(names[0].partition(".")[0].removeprefix("lib")) or ""


def folders_of_loader() -> list[Path]:
    """Returns the folders of LD_LIBRARY_PATH."""
    return [Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if part]


def _nvidia_gpus() -> int:
    return sum(node.name.removeprefix("nvidia").isdigit() for node in _DEV.glob("nvidia[0-9]*"))


def _kfd_archs() -> list[str]:
    """Returns the architectures of the GPUs in the driver's topology, "" if unknown. CPU nodes have gpu_id
    0."""
    archs: list[str] = []
    for node in sorted(_KFD_NODES.glob("*/gpu_id"), key=lambda path: (len(path.parent.name), path)):
        try:
            if node.read_text().strip() not in ("", "0"):
                archs.append(_arch_of(node.with_name("properties")))
        except OSError:
            continue
    return archs


DEVICE_NUMBER = "TILE_ORACLE_DEVICE_NUMBER"
"""The environment variable with the number of a process's device, from 0."""
_VERSION = re.compile(r"^gfx_target_version (\d+)$", re.MULTILINE)


def _arch_of(properties: Path) -> str:
    """From gfx_target_version: 90402 is version 9.4.2, gfx942; 90010 is 9.0.10, gfx90a."""
    try:
        found = _VERSION.search(properties.read_text())
    except OSError:
        return ""
    version = int(found[1]) if found else 0
    major, minor, stepping = version // 10_000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}" if major else ""


def visible_device(variable: str, devices: int) -> str:
    """Returns the value of `variable` (HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES) for this process's worker.

    Several devices of a session, and workers of pytest-xdist, get one each, in turn; otherwise "", which
    leaves the variable as it is.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    number = os.environ.get(DEVICE_NUMBER, worker)
    if not number.isdigit():
        return ""
    allowed = _listed(variable)
    if variable == "HIP_VISIBLE_DEVICES":
        # HIP falls back to CUDA's variable, and numbers only the devices that ROCR leaves visible.
        allowed = allowed or _listed("CUDA_VISIBLE_DEVICES")
        devices = len(_listed("ROCR_VISIBLE_DEVICES")) or devices
    choices = allowed or [str(number) for number in range(devices)]
    return choices[int(number) % len(choices)] if len(choices) > 1 else ""


def _listed(variable: str) -> list[str]:
    return [part.strip() for part in os.environ.get(variable, "").split(",") if part.strip()]
