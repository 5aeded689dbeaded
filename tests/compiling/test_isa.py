from __future__ import annotations

import pytest

from tile_oracle.compiling.isa import Cpu, parse_cpuinfo, resolve_isa
from tile_oracle.errors import BuildError

V3 = (
    "fpu cx8 cmov mmx fxsr sse sse2 pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm "
    "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"
)


def cpuinfo(*cores: str, model: str = "17") -> str:
    blocks = [
        f"processor\t: {i}\nvendor_id\t: V\nmodel\t\t: {model}\nflags\t\t: {c}" for i, c in enumerate(cores)
    ]
    return "\n\n".join(blocks) + "\n\n"


def test_features_are_those_that_every_core_has() -> None:
    assert parse_cpuinfo(cpuinfo("avx2 fma", "fma sse2"), "x86_64").features == {"fma"}
    text = "processor\t: 0\nFeatures\t: fp asimd bf16\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n\n"
    cpu = parse_cpuinfo(text, "aarch64")
    assert cpu.features == {"fp", "asimd", "bf16"}
    assert "0xd40" in cpu.model
    assert parse_cpuinfo("", "riscv64") == Cpu("riscv64", frozenset(), "")


def test_native_differs_by_model_and_instructions() -> None:
    machines = [
        parse_cpuinfo(cpuinfo("avx2 fma"), "x86_64"),
        parse_cpuinfo(cpuinfo("avx2 fma avx512f"), "x86_64"),
        parse_cpuinfo(cpuinfo("avx2 fma", model="18"), "x86_64"),
        parse_cpuinfo(cpuinfo("avx2 fma"), "aarch64"),
    ]
    assert len({resolve_isa("native", cpu).fingerprint for cpu in machines}) == 4
    cpu = parse_cpuinfo(cpuinfo("avx2 fma hypervisor ibpb tsc_known_freq avx512_bf16"), "x86_64")
    assert resolve_isa("native", cpu).features == ("avx2", "avx512_bf16", "fma")


@pytest.mark.parametrize(
    ("name", "flag", "needs"),
    [
        ("x86-64-v3", "-march=x86-64-v3", {"avx2", "fma", "sse2", "popcnt"}),
        ("x86-64-v4", "-mtune=generic", {"avx512f", "avx2"}),
    ],
)
def test_names_mean_flags_and_features(name: str, flag: str, needs: set[str]) -> None:
    isa = resolve_isa(name)
    assert flag in isa.flags
    assert needs <= set(isa.features)


def test_missing_features_are_named() -> None:
    v3 = parse_cpuinfo(cpuinfo(V3), "x86_64")
    assert resolve_isa("x86-64-v3").missing(v3) == ()
    assert resolve_isa("x86-64-v4").missing(v3) == ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
    assert resolve_isa("armv8-a").missing(v3) == ("aarch64",)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("avx2", "x86-64-v3"),
        ("", "native"),
        ("native+avx2", "not known"),
        ("x86-64-v3 -fplugin=evil.so", "not known"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(name: str, says: str) -> None:
    with pytest.raises(BuildError, match=says):
        resolve_isa(name)
