"""Launches of Triton's binaries: arguments, grids, shared memory and scratch, without Triton and a GPU."""

import ctypes
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.processes import run_python
from tile_oracle.device.gpu_abi import Unlaunchable
from tile_oracle.device.loaded_kernel import load_kernel
from tile_oracle.device.runtime.driver import Launch, RuntimeFailure
from tile_oracle.operations.gemm.problem import GemmProblem
from tile_oracle.triton.archive import write_archive

PROBLEM = GemmProblem("bf16", "rcr", 500, 256, 128)
ALIGNED = ["==", ["%", "K", 16], 0]


class RecordingDriver:
    """The part of a driver that loading needs. LDS above `most_lds` is refused."""

    def __init__(self, most_lds: int = 232448) -> None:
        self.loaded: list[bytes] = []
        self.unloaded: list[int] = []
        self.functions: list[str] = []
        self.allowed: list[tuple[int, int]] = []
        self._most = most_lds

    def load_module(self, image: bytes) -> int:
        self.loaded.append(image)
        return len(self.loaded)

    def unload_module(self, module: int) -> None:
        self.unloaded.append(module)

    def function(self, module: int, name: str) -> int:
        self.functions.append(name)
        return 100 + module

    def allow_lds(self, function: int, lds_bytes: int) -> None:
        if lds_bytes > self._most:
            raise RuntimeFailure("cuFuncSetAttribute", 1, "CUDA_ERROR_INVALID_VALUE", sticky=False)
        self.allowed.append((function, lds_bytes))

    def function_facts(self, function: int, threads: int, lds_bytes: int) -> dict[str, int]:
        return {"vgprs": function, "waves_per_cu": threads, "lds_bytes": lds_bytes}


def launch(image: str = "aligned-0.cubin", **changed: object) -> dict[str, object]:
    return {
        "image": image,
        "function": "matmul",
        "threads": 256,
        "lds_bytes": 98304,
        "scratch_bytes": 0,
        "scratch_align": 1,
        "grid": [["*", ["//", ["+", "M", 127], 128], ["//", ["+", "N", 127], 128]], 1, 1],
        "arguments": [
            ["a_ptr", "*bf16", {"pointer": "first", "offset": 0}],
            ["b_ptr", "*bf16", {"pointer": "second", "offset": 0}],
            ["c_ptr", "*bf16", {"pointer": "out", "offset": 0}],
            ["M", "i32", "M"],
            ["alpha", "fp32", 0.5],
            ["stride_am", "i64", ["*", "K", 2]],
        ],
    } | changed


def archive(
    path: Path, *variants: tuple[object, list[dict[str, object]]], workspace_bytes: object = 0
) -> Path:
    told = {
        "arch": "sm_90",
        "workspace_bytes": workspace_bytes,
        "variants": [
            {"name": f"v{number}", "when": when, "launches": launches}
            for number, (when, launches) in enumerate(variants)
        ],
    }
    images = {str(one["image"]): str(one["image"]).encode() for _, launches in variants for one in launches}
    write_archive(path / "kernel.zip", told, images)
    return path / "kernel.zip"


def load(driver: RecordingDriver, path: Path) -> Any:
    return load_kernel(driver, path, 132)  # type: ignore[arg-type]


def values(made: Launch, *types: Any) -> list[object]:
    """The arguments that a launch's array of addresses leads to."""
    assert len(made.arguments.addresses) == len(types)
    return [
        ctypes.cast(address, ctypes.POINTER(type_)).contents.value
        for address, type_ in zip(made.arguments.addresses, types, strict=True)
    ]


POINTERS = (ctypes.c_void_p,) * 3
SCALARS = (ctypes.c_int32, ctypes.c_float, ctypes.c_int64)
HIDDEN = (ctypes.c_void_p,) * 2


def test_arguments_grid_and_shared_memory_are_those_of_the_problem(tmp_path: Path) -> None:
    driver = RecordingDriver()
    kernel = load(driver, archive(tmp_path, (1, [launch()])))
    run = kernel.plan(PROBLEM)
    assert (run.workspace_bytes, run.needs) == (0, "256 threads and 98,304 bytes of LDS")
    (made,) = run.launches(0xA000, 0xB000, 0xC000, 0)
    assert made.function == 101
    assert made.geometry.grid == (8, 1, 1)
    assert made.geometry.block == (256, 1, 1)
    assert made.geometry.lds_bytes == 98304
    expected = [0xA000, 0xB000, 0xC000, 500, 0.5, 256, None, None]
    assert values(made, *POINTERS, *SCALARS, *HIDDEN) == expected
    assert driver.loaded == [b"aligned-0.cubin"]
    assert driver.functions == ["matmul"]
    assert driver.allowed == [(101, 98304)]
    assert kernel.facts() == {"vgprs": 101, "waves_per_cu": 256, "lds_bytes": 98304}
    kernel.unload()
    assert driver.unloaded == [1]


def test_the_problem_decides_between_the_variants(tmp_path: Path) -> None:
    driver = RecordingDriver()
    path = archive(tmp_path, (ALIGNED, [launch()]), (1, [launch("general-0.cubin")]))
    kernel = load(driver, path)
    assert kernel.plan(PROBLEM).launches(1, 2, 3, 0)[0].function == 101
    assert driver.loaded == [b"aligned-0.cubin"], "the other variant is loaded when it is needed"
    odd = GemmProblem("bf16", "rcr", 500, 256, 130)
    assert kernel.plan(odd).launches(1, 2, 3, 0)[0].function == 102
    assert driver.loaded == [b"aligned-0.cubin", b"general-0.cubin"]


def test_workspace_scratch_and_a_second_launch_lie_in_one_piece(tmp_path: Path) -> None:
    partial = [["p", "*fp32", {"pointer": "workspace", "offset": ["*", "N", 16]}], ["M", "i32", "M"]]
    path = archive(
        tmp_path,
        (
            1,
            [
                launch(scratch_bytes=384, scratch_align=128),
                launch("aligned-1.cubin", arguments=partial, grid=["M", 2, 1], lds_bytes=0, threads=64),
            ],
        ),
        workspace_bytes=["*", "M", 100],
    )
    run = load(RecordingDriver(), path).plan(PROBLEM)
    scratch_at = 50_176  # 500 * 100, rounded up to 256
    assert run.workspace_bytes == scratch_at + 8 * 384
    first, second = run.launches(0xA000, 0xB000, 0xC000, 1 << 20)
    assert values(first, *POINTERS, *SCALARS, *HIDDEN)[-2:] == [(1 << 20) + scratch_at, None]
    assert second.geometry.grid == (500, 2, 1)
    assert values(second, ctypes.c_void_p, ctypes.c_int32, *HIDDEN) == [(1 << 20) + 4096, 500, None, None]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"grid": ["M", 70_000, 1]}, "its grid would be 500 x 70,000 x 1"),
        ({"grid": [0, 1, 1]}, "its grid would be 0 x 1 x 1"),
        ({"arguments": [["x", "i32", ["*", "M", 1 << 30]]]}, "x = .* does not fit into 32 bits"),
        ({"grid": [["//", "M", ["-", "N", 256]], 1, 1]}, "divides by zero"),
        ({"grid": ["Q", 1, 1]}, "Q is not known"),
        ({"lds_bytes": 300_000}, "needs 300,000 bytes of LDS, which the device does not have"),
    ],
)
def test_a_problem_that_it_cannot_run_is_unlaunchable(
    tmp_path: Path, changed: dict[str, object], reason: str
) -> None:
    kernel = load(RecordingDriver(), archive(tmp_path, (1, [launch(**changed)])))
    with pytest.raises(Unlaunchable, match=reason):
        kernel.plan(PROBLEM)


@pytest.mark.parametrize("damage", ["truncated", "no launch.json", "no image", "an expression", "a role"])
def test_a_damaged_archive_is_refused(tmp_path: Path, damage: str) -> None:
    path = archive(tmp_path, (1, [launch()]))
    with zipfile.ZipFile(path) as file:
        told = json.loads(file.read("launch.json"))
    one = told["variants"][0]["launches"][0]
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:200])
    elif damage == "no launch.json":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("other", "x")
    else:
        if damage == "an expression":
            one["grid"][0] = ["exec", "M", 1]
        if damage == "a role":
            one["arguments"][0][2]["pointer"] = "elsewhere"
        write_archive(path, told, {} if damage == "no image" else {"aligned-0.cubin": b"x"})
    with pytest.raises(ValueError, match="is not a Triton kernel's archive"):
        load(RecordingDriver(), path)


def test_the_worker_imports_neither_triton_nor_torch() -> None:
    imports = "import sys, tile_oracle.device.worker, tile_oracle.device.gpu; "
    code = imports + "print({'triton', 'torch'} & set(sys.modules))"
    done = run_python("-c", code, check=True)
    assert done.stdout.strip() == "set()"
