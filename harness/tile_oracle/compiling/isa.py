"""Instruction sets: what a build may use, and whether a machine has it.

A name is `native`, a level of the x86-64 psABI (`x86-64-v3`), or `armv8-a`. Features have the names of
/proc/cpuinfo, which is where a machine's features are read.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tile_oracle.errors import BuildError, TargetError

_LEVELS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "x86-64": ("cmov", "cx8", "fpu", "fxsr", "mmx", "sse", "sse2"),
        "x86-64-v2": ("cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"),
        "x86-64-v3": ("abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"),
        "x86-64-v4": ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
    },
    "aarch64": {"armv8-a": ("asimd", "fp")},
}
"""Machine -> level -> the features that it adds to the previous level."""

_X86_INSTRUCTIONS = re.compile(
    r"3dnow\w*|abm|adx|aes|amx_\w+|avx\w*|bmi[12]|cmov|cmpccxadd|cx(8|16)|f16c|fma4?|fpu|fxsr|gfni|lahf_lm|mmx"
    r"|movbe|movdir\w+|pclmulqdq|pni|popcnt|s?sse\w*|sha\w*|sm[34]|tbm|vaes|vpclmulqdq|xop|xsave\w*"
)
"""The flags of /proc/cpuinfo that are instructions for a compiler to use. The other flags describe the
processor, firmware and kernel version, and differ between machines that run the same code."""


@dataclass(frozen=True)
class Cpu:
    """A CPU according to /proc/cpuinfo: machine, the features common to all cores, models."""

    machine: str
    """x86_64 or aarch64, as printed by `uname -m`."""
    features: frozenset[str]
    model: str
    """Vendor, family and model numbers. Compilers tune for the model, even where the features are equal."""


@dataclass(frozen=True)
class Isa:
    """An instruction set to build for."""

    name: str
    machine: str
    flags: tuple[str, ...]
    """Compiler flags."""
    features: tuple[str, ...]
    """The features that a machine needs to run the result, in the names of /proc/cpuinfo, sorted."""
    fingerprint: str
    """Distinguishes instruction sets of the same name: `native` differs from machine to machine."""

    def missing(self, cpu: Cpu) -> tuple[str, ...]:
        """Returns the features that `cpu` lacks."""
        return missing_features(self.machine, self.features, cpu)


@lru_cache(maxsize=1)
def this_cpu() -> Cpu:
    """Returns the CPU of this machine. Without /proc/cpuinfo it has no known features. Raises TargetError."""
    return parse_cpuinfo(cpuinfo_text(), platform.machine())


def cpuinfo_text() -> str:
    """Returns the text of /proc/cpuinfo; "" on a system that has none.

    Raises TargetError when it cannot be read: the names of devices and instruction sets come from it.
    """
    try:
        return Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise TargetError(
            f"/proc/cpuinfo cannot be read ({error.strerror}), so this CPU has no name: make it readable"
        ) from None


def cpu_blocks(text: str) -> list[dict[str, str]]:
    """Returns what /proc/cpuinfo says of each core."""
    pairs = ([line.partition(":") for line in block.splitlines()] for block in text.strip().split("\n\n"))
    return [{name.strip(): value.strip() for name, colon, value in block if colon} for block in pairs]


def parse_cpuinfo(text: str, machine: str) -> Cpu:
    """Parses the text of /proc/cpuinfo: the features common to all cores, and all models."""
    features: frozenset[str] | None = None
    models: set[str] = set()
    for values in cpu_blocks(text):
        flags = values.get("flags", values.get("Features"))
        if flags is None:
            continue
        core = frozenset(flags.split())
        features = core if features is None else features & core
        models.add(" ".join(values.get(name, "") for name in _MODEL_LINES).strip())
    return Cpu(machine, features or frozenset(), "; ".join(sorted(models)))


_MODEL_LINES = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part", "CPU variant")


def resolve_isa(name: str, cpu: Cpu | None = None) -> Isa:
    """Returns the instruction set of a name. `native` is resolved on this machine.

    Raises BuildError, which lists the known names, for an unknown name.
    """
    cpu = cpu or this_cpu()
    if name == "native":
        flag = "-mcpu=native" if cpu.machine == "aarch64" else "-march=native"
        features = tuple(sorted(f for f in cpu.features if _is_instructions(f, cpu.machine)))
        text = "\n".join((cpu.machine, cpu.model, *sorted(cpu.features)))
        return Isa("native", cpu.machine, (flag,), features, hashlib.sha256(text.encode()).hexdigest())
    for machine, levels in _LEVELS.items():
        if name in levels:
            lower = list(levels)[: list(levels).index(name) + 1]
            features = tuple(sorted(feature for level in lower for feature in levels[level]))
            tune = ("-mtune=generic",) if machine == "x86_64" else ()
            return Isa(name, machine, (f"-march={name}", *tune), features, name)
    known = ", ".join(name for levels in _LEVELS.values() for name in levels)
    raise BuildError(f"instruction set {name!r} is not known: use native, {known}")


def _is_instructions(feature: str, machine: str) -> bool:
    return machine != "x86_64" or _X86_INSTRUCTIONS.fullmatch(feature) is not None


GPU_MACHINES: Mapping[str, str] = {
    **dict.fromkeys(("gfx950", "gfx942", "gfx90a"), "amdgcn"),
    **dict.fromkeys(("sm_90", "sm_86", "sm_89", "sm_100", "sm_120"), "nvptx"),
}
"""GPU architecture -> the compiler's target machine."""
GPU_TARGETS = ("gfx950", "gfx942", "gfx90a", "sm_90")
"""Those with pools of their own, on which sessions measure. For the others kernels in Triton are compiled."""
AMD_ARCHS = tuple(arch for arch, machine in GPU_MACHINES.items() if machine == "amdgcn")
"""The targets with AMD GPUs, the newest first."""


def isa_for(arch: str, name: str) -> Isa:
    """Returns the instruction set to build for: the named one on cpu, the architecture itself on a GPU.

    Raises BuildError for an instruction set that is unknown or does not belong to the architecture.
    """
    if arch not in GPU_MACHINES:
        return resolve_isa(name)
    if name not in ("native", arch):
        raise BuildError(f"--isa {name} is for cpu: kernels for {arch} have only one instruction set")
    return Isa(arch, GPU_MACHINES[arch], (), (), arch)


def missing_features(machine: str, features: Collection[str], cpu: Cpu) -> tuple[str, ...]:
    """Returns the machine or features that `cpu` lacks; empty when it can run the code.

    Code for a GPU requires nothing of the CPU; the worker finds out whether the GPU is present.
    """
    if machine in GPU_MACHINES.values():
        return ()
    if machine != cpu.machine:
        return (machine,)
    return tuple(sorted(set(features) - cpu.features))
