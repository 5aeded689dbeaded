from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tile_oracle.compiling import toolchain as module
from tile_oracle.compiling.isa import resolve_isa
from tile_oracle.compiling.toolchain import compiler_environment, find_toolchain
from tile_oracle.errors import BuildError


def script(path: Path, text: str) -> str:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


def fake_compiler(path: Path, says: str, machine: str = "x86_64-linux-gnu") -> str:
    return script(path, f'case "$1" in -dumpmachine) echo {machine};; *) printf "{says}\\n";; esac')


GNU = "\\nCopyright (C) Free Software Foundation, Inc."


def test_each_compiler_is_identified_and_its_flags_hold_no_path(compiler: str) -> None:
    toolchain = find_toolchain(compiler)
    kind = {"ziglang": "clang", "clang++": "clang", "g++": r"g\+\+"}[compiler]
    assert re.fullmatch(rf"{kind} {re.escape(toolchain.version)}( \(ziglang [^)]+\))?", toolchain.identity)
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?", toolchain.version)
    assert toolchain.name == compiler
    native = toolchain.flags("cpu", resolve_isa("native"))
    assert not [flag for flag in native if os.sep in flag]
    machine = resolve_isa("native").machine
    other = resolve_isa("x86-64-v2" if machine == "x86_64" else "armv8-a")
    assert toolchain.flags("cpu", other) != native
    with pytest.raises(BuildError, match="gfx950"):
        find_toolchain(compiler).flags("gfx950", resolve_isa("native"))


def test_auto_prefers_the_wheel_to_system_compilers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    assert find_toolchain("auto").name == "ziglang"
    monkeypatch.setattr(module, "zig_folder", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"pip install ziglang.*apt install g\+\+"):
        find_toolchain("auto")
    fake_compiler(tmp_path / "g++", "g++ (D 1.2-3) 14.1.0" + GNU)
    assert find_toolchain("auto").identity == "g++ 14.1.0"
    llvm = (
        'case "$1" in -dumpmachine) echo x86_64-linux-gnu;; *) echo "Debian clang version 19.1.7 (3)";; esac'
    )
    script(tmp_path / "clang++", llvm)
    assert find_toolchain("auto").identity == "clang 19.1.7"


def test_system_compilers_differ_by_distribution_and_refuse_other_machines(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        made.append(find_toolchain(fake_compiler(tmp_path / name, f"g++ ({name}) 14.1.0" + GNU)))
    assert made[0].identity == made[1].identity
    assert made[0].fingerprint != made[1].fingerprint
    with pytest.raises(BuildError, match="pip install ziglang"):
        find_toolchain(str(tmp_path / "nothing"))
    toolchain = find_toolchain(fake_compiler(tmp_path / "g++", "g++ 14.1.0" + GNU))
    with pytest.raises(BuildError, match=r"x86_64 code, not armv8-a.*--toolchain ziglang"):
        toolchain.flags("cpu", resolve_isa("armv8-a"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo hello", r"neither clang\+\+ nor g\+\+.*hello"),
        ("exit 3", "status 3"),
        ("echo 'clang version unknown'", "has no version number"),
        ("printf 'no\\nsuch\\nlibrary' >&2; exit 1", "no such library"),
    ],
)
def test_a_program_that_is_not_a_compiler_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BuildError, match=says) as error:
        find_toolchain(script(tmp_path / "cc", text))
    assert "\n" not in str(error.value)


def test_variables_that_would_change_the_code_do_not_reach_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/elsewhere")
    environment = compiler_environment()
    assert "CPLUS_INCLUDE_PATH" not in environment
    assert environment["PATH"] == os.environ["PATH"]
