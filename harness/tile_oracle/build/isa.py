"""Instruction sets: what a build may use, and whether a machine has it.

A name is `native`, a level (`x86-64-v3`, `armv8.2-a`) or a level with extensions
(`x86-64-v4+avx512bf16`, `armv8.2-a+bf16+fp16`). Levels are those of the x86-64 psABI and of the Arm
architecture; features are named as /proc/cpuinfo names them, since that is what a machine is asked.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from tile_oracle.errors import BuildError

_X86_LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": ("cmov", "cx8", "fpu", "fxsr", "mmx", "sse", "sse2"),
    "x86-64-v2": ("cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"),
    "x86-64-v3": ("abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"),
    "x86-64-v4": ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
}
"""Level -> what it adds to the level before."""

_X86_EXTENSIONS: dict[str, str] = {
    "amx-bf16": "amx_bf16",
    "amx-tile": "amx_tile",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avx512vbmi": "avx512vbmi",
    "avx512vnni": "avx512_vnni",
    "avxvnni": "avx_vnni",
    "f16c": "f16c",
    "fma": "fma",
}
"""Extension as compilers name it -> as /proc/cpuinfo does."""

_ARM_LEVELS: dict[str, tuple[str, ...]] = {
    "armv8-a": ("asimd", "fp"),
    "armv8.1-a": ("asimdrdm", "atomics", "crc32"),
    "armv8.2-a": ("dcpop",),
    "armv8.4-a": ("asimddp", "dit", "fcma", "flagm", "ilrcpc", "jscvt", "lrcpc", "uscat"),
    "armv8.6-a": ("bf16", "frint", "i8mm", "sb"),
}

_ARM_EXTENSIONS: dict[str, tuple[str, ...]] = {
    "bf16": ("bf16",),
    "dotprod": ("asimddp",),
    "fp16": ("asimdhp", "fphp"),
    "i8mm": ("i8mm",),
    "sve": ("sve",),
    "sve2": ("sve2",),
}

_X86_INSTRUCTIONS = re.compile(
    r"3dnow\w*|abm|adx|aes|amx_\w+|avx\w*|bmi[12]|cmov|cmpccxadd|cx(8|16)|f16c|fma4?|fpu|fxsr|gfni|lahf_lm|mmx"
    r"|movbe|movdir\w+|pclmulqdq|pni|popcnt|s?sse\w*|sha\w*|sm[34]|tbm|vaes|vpclmulqdq|xop|xsave\w*"
)
"""Flags of /proc/cpuinfo that are instructions which a compiler may use. The others say what the
processor, its firmware and the version of the operating system can do, which differs between machines
that run the same code."""


@dataclass(frozen=True)
class Cpu:
    """What /proc/cpuinfo says: the machine's name, what every core can do, and which models they are."""

    machine: str
    """x86_64 or aarch64, as `uname -m` says."""
    features: frozenset[str]
    model: str
    """Vendor, family and model numbers: a compiler tunes by them even where features agree."""


@dataclass(frozen=True)
class Isa:
    """An instruction set to build for."""

    name: str
    machine: str
    flags: tuple[str, ...]
    """What a compiler is told."""
    features: tuple[str, ...]
    """What a machine must have to run the result, as /proc/cpuinfo names it, sorted."""
    fingerprint: str
    """Tells two instruction sets of one name apart: `native` means something else on every machine."""

    def missing(self, cpu: Cpu) -> tuple[str, ...]:
        """The features that `cpu` lacks."""
        return missing_features(self.machine, self.features, cpu)


@lru_cache(maxsize=1)
def this_cpu() -> Cpu:
    """The machine that this process runs on. Without /proc/cpuinfo, one with no known features."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        text = ""
    return parse_cpuinfo(text, platform.machine())


def parse_cpuinfo(text: str, machine: str) -> Cpu:
    """Reads the text of /proc/cpuinfo: features common to all cores, models of all of them."""
    features: frozenset[str] | None = None
    models: set[str] = set()
    for block in text.split("\n\n"):
        values = dict(_pair(line) for line in block.splitlines() if ":" in line)
        flags = values.get("flags", values.get("Features"))
        if flags is None:
            continue
        core = frozenset(flags.split())
        features = core if features is None else features & core
        models.add(" ".join(values.get(name, "") for name in _MODEL_LINES).strip())
    return Cpu(machine, features or frozenset(), "; ".join(sorted(models)))


_MODEL_LINES = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part", "CPU variant")


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def resolve_isa(name: str, cpu: Cpu | None = None) -> Isa:
    """The instruction set that a name means. `native` is resolved on this machine.

    Raises BuildError for a name that is not known, with those that are.
    """
    cpu = cpu or this_cpu()
    if name == "native":
        flag = "-mcpu=native" if cpu.machine == "aarch64" else "-march=native"
        features = tuple(sorted(f for f in cpu.features if _is_instructions(f, cpu.machine)))
        text = "\n".join((cpu.machine, cpu.model, *sorted(cpu.features)))
        return Isa("native", cpu.machine, (flag,), features, hashlib.sha256(text.encode()).hexdigest())
    base, *extensions = name.split("+")
    if base in _X86_LEVELS:
        _check_extensions(name, extensions, _X86_EXTENSIONS)
        features = _level_features(_X86_LEVELS, base) + tuple(_X86_EXTENSIONS[e] for e in extensions)
        flags = (f"-march={base}", "-mtune=generic", *(f"-m{extension}" for extension in extensions))
        return Isa(name, "x86_64", flags, tuple(sorted(set(features))), name)
    if base in _ARM_LEVELS:
        _check_extensions(name, extensions, _ARM_EXTENSIONS)
        features = _level_features(_ARM_LEVELS, base)
        features += tuple(feature for e in extensions for feature in _ARM_EXTENSIONS[e])
        return Isa(name, "aarch64", (f"-march={name}",), tuple(sorted(set(features))), name)
    raise BuildError(
        f"instruction set {name!r} is not known: use native, {', '.join((*_X86_LEVELS, *_ARM_LEVELS))}, "
        "or one of these with extensions, as in x86-64-v4+avx512bf16"
    )


def _is_instructions(feature: str, machine: str) -> bool:
    return machine != "x86_64" or _X86_INSTRUCTIONS.fullmatch(feature) is not None


def _level_features(levels: Mapping[str, tuple[str, ...]], base: str) -> tuple[str, ...]:
    names = list(levels)
    return tuple(feature for name in names[: names.index(base) + 1] for feature in levels[name])


def _check_extensions(name: str, extensions: list[str], known: Collection[str]) -> None:
    unknown = [extension for extension in extensions if extension not in known]
    if unknown:
        raise BuildError(
            f"instruction set {name!r}: extension {unknown[0]!r} is not one of {', '.join(sorted(known))}"
        )


GPU_MACHINES: Mapping[str, str] = MappingProxyType({"gfx950": "amdgcn", "sm_90": "nvptx"})
"""Architecture of a GPU -> the machine that compilers make code for."""


def isa_for(arch: str, name: str) -> Isa:
    """What to build for: on cpu the named instruction set, on a GPU the architecture itself.

    Raises BuildError for an instruction set that is not known, or not the architecture's.
    """
    if arch not in GPU_MACHINES:
        return resolve_isa(name)
    if name not in ("native", arch):
        raise BuildError(f"--isa {name} is for cpu: kernels for {arch} have no other instruction set")
    return Isa(arch, GPU_MACHINES[arch], (), (), arch)


def missing_features(machine: str, features: Collection[str], cpu: Cpu) -> tuple[str, ...]:
    """What `cpu` lacks of a machine name and /proc/cpuinfo features; empty when it can run the code.

    Code for a GPU asks nothing of the CPU: whether there is such a GPU, its worker finds out.
    """
    if machine in GPU_MACHINES.values():
        return ()
    if machine != cpu.machine:
        return (machine,)
    return tuple(sorted(set(features) - cpu.features))
