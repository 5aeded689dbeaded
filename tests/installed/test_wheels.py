"""The wheels: the native selector runs without a compiler, and answers like the sources."""

from __future__ import annotations

import json
import re
import struct
import zipfile
from pathlib import Path

import pytest

from tests.installed.environment import KINDS, MADE, run, wheel_of
from tests.selector.made_problems import random_problems
from tile_oracle.files.data_files import data_folder
from tile_oracle.pool import pool_of_kind
from tile_oracle.problem import Kind
from tile_oracle.selector import native_library, prebuilt_library
from tile_oracle.selector.ranker import NativeRanker

pytestmark = pytest.mark.skipif(not MADE, reason="make installed")

FORWARD = Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2)
MODEL = "grouped_conv_forward_bf16_gfx950"
ELF_MACHINE = {"x86_64": 62, "aarch64": 183}
NATIVE = f"tile_oracle/{prebuilt_library.FOLDER}"


@pytest.mark.parametrize("machine", prebuilt_library.MACHINES)
def test_a_platform_s_wheel_has_a_library_for_its_machine_and_an_old_glibc(machine: str) -> None:
    with zipfile.ZipFile(wheel_of(prebuilt_library.platform_tag(machine))) as archive:
        library = archive.read(f"{NATIVE}/{prebuilt_library.LIBRARY_FILE}")
        facts = json.loads(archive.read(f"{NATIVE}/{prebuilt_library.FACTS_FILE}"))
    assert facts == {"built_from": native_library.built_from(), "machine": machine}
    assert library[:5] == b"\x7fELF\x02"
    assert struct.unpack_from("<H", library, 18) == (ELF_MACHINE[machine],)
    versions = {tuple(map(int, v.split(b"."))) for v in re.findall(rb"GLIBC_([0-9.]+)\0", library)}
    assert max(versions) <= tuple(map(int, prebuilt_library.GLIBC.split(".")))
    assert b"libstdc++" not in library


def test_the_wheel_for_any_platform_has_no_library() -> None:
    names = zipfile.ZipFile(wheel_of(KINDS["any"])).namelist()
    assert not [name for name in names if name.startswith(NATIVE)]


def test_an_installed_wheel_picks_like_the_sources_without_a_compiler(tmp_path: Path) -> None:
    problems = random_problems(FORWARD, 60, seed=9)
    program = f"""
        from tile_oracle.files.data_files import data_folder
        from tile_oracle.pool import pool_of_kind
        from tile_oracle.problem import Kind, problem_from_id
        from tile_oracle.selector.ranker import NativeRanker

        kind = Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2)
        ranker = NativeRanker.load(data_folder("models") / {MODEL!r}, pool_of_kind(kind, "gfx950", "tiny"))
        for text in {[problem.id for problem in problems]!r}:
            problem = problem_from_id(text)
            print(ranker.select(problem).name, ranker.log_time(problem).tobytes().hex())
    """
    said = run("native", program, tmp_path).splitlines()
    ranker = NativeRanker.load(data_folder("models") / MODEL, pool_of_kind(FORWARD, "gfx950", "tiny"))
    expected = [f"{ranker.select(p).name} {ranker.log_time(p).tobytes().hex()}" for p in problems]
    assert said == expected
    assert not (tmp_path / "cache").exists()
