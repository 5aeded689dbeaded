"""Detecting GPUs on simulated machines made of files, and the target that `auto` chooses there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.targets.conftest import Resolve
from tile_oracle.errors import TargetError
from tile_oracle.targets import gpu_presence
from tile_oracle.targets.gpu_presence import amd_presence, nvidia_presence, visible_device


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any GPU: dev, nodes (of the KFD driver), rocm and lib below the folder."""
    for name in ("dev", "nodes", "rocm/lib", "lib"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(gpu_presence, "KFD", tmp_path / "dev" / "kfd")
    monkeypatch.setattr(gpu_presence, "_DEV", tmp_path / "dev")
    monkeypatch.setattr(gpu_presence, "_KFD_NODES", tmp_path / "nodes")
    monkeypatch.setattr(gpu_presence, "LIBRARY_FOLDERS", (tmp_path / "lib",))
    monkeypatch.setattr(gpu_presence, "rocm_folders", lambda: (tmp_path / "rocm",))
    monkeypatch.setattr(gpu_presence.ctypes.util, "find_library", lambda name: None)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    return tmp_path


def add_amd(machine: Path, gpus: int = 2) -> None:
    (machine / "dev" / "kfd").touch()
    (machine / "rocm" / "lib" / "libamdhip64.so.6").touch()
    for number in range(gpus + 1):
        (machine / "nodes" / str(number)).mkdir()
        (machine / "nodes" / str(number) / "gpu_id").write_text(f"{number * 4711}\n")  # node 0 is the CPU


def add_nvidia(machine: Path, gpus: int = 3) -> None:
    for name in (*(f"nvidia{number}" for number in range(gpus)), "nvidiactl", "nvidia-uvm"):
        (machine / "dev" / name).touch()
    (machine / "lib" / "libcuda.so.1").touch()


def test_an_amd_machine(machine: Path) -> None:
    add_amd(machine)
    found = amd_presence()
    assert found.usable
    assert found.devices == 2
    assert found.library == str(machine / "rocm" / "lib" / "libamdhip64.so.6")
    assert not nvidia_presence().usable


def test_an_nvidia_machine(machine: Path) -> None:
    add_nvidia(machine)
    found = nvidia_presence()
    assert (found.usable, found.devices) == (True, 3)
    assert found.library == str(machine / "lib" / "libcuda.so.1")
    assert not amd_presence().usable


def test_missing_parts_are_named_with_the_way_to_get_them(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "amdgpu driver is not loaded" in amd_presence().why
    assert "no /dev/nvidia0" in nvidia_presence().why
    add_amd(machine)
    (machine / "rocm" / "lib" / "libamdhip64.so.6").unlink()
    assert "install ROCm" in amd_presence().why
    add_nvidia(machine)
    (machine / "lib" / "libcuda.so.1").unlink()
    assert "install NVIDIA's driver" in nvidia_presence().why
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "groups render and video" in amd_presence().why


def test_the_loaders_path_comes_first(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_amd(machine)
    own = machine / "own"
    own.mkdir()
    (own / "libamdhip64.so").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{own}")
    assert amd_presence().library == str(own / "libamdhip64.so")


@pytest.mark.parametrize(
    ("add", "name"),
    [(add_amd, "gfx950"), (add_nvidia, "sm_90"), (None, "cpu")],
    ids=["amd", "nvidia", "none"],
)
def test_auto_takes_what_is_there_and_says_why(
    machine: Path, resolve: Resolve, add: object, name: str
) -> None:
    if callable(add):
        add(machine)
    target, why = resolve("auto")
    assert target.name == target.arch == name
    assert why.startswith("auto: ")
    assert ("are there" in why) == (name != "cpu")
    if name == "cpu":
        assert "no AMD GPU" in why
        assert "no NVIDIA GPU" in why


def test_amd_is_preferred(machine: Path, resolve: Resolve) -> None:
    add_nvidia(machine)
    add_amd(machine)
    assert resolve("auto")[0].name == "gfx950"


def name_archs(machine: Path, *versions: int) -> None:
    """The GPUs' architectures in the driver's topology."""
    for number, version in enumerate(versions, 1):
        text = f"cpu_cores_count 0\nsimd_count 1216\ngfx_target_version {version}\nvendor_id 4098\n"
        (machine / "nodes" / str(number) / "properties").write_text(text)


@pytest.mark.slow
@pytest.mark.parametrize(("version", "name"), [(90402, "gfx942"), (90010, "gfx90a"), (90500, "gfx950")])
def test_auto_takes_the_architecture_that_the_driver_names(
    machine: Path, resolve: Resolve, version: int, name: str
) -> None:
    add_amd(machine)
    name_archs(machine, version, version)
    target, why = resolve("auto")
    assert target.name == target.arch == name
    assert Path(target.device_options()["work"]).suffix == ".hsaco"
    assert why.endswith(f"are there ({name})")
    for other in {"gfx950", "gfx942", "gfx90a"} - {name}:
        with pytest.raises(
            TargetError, match=f"{other} cannot run here: the GPU here is {name}, not {other}"
        ):
            resolve(other)


def test_auto_skips_gpus_without_a_target(machine: Path, resolve: Resolve) -> None:
    add_amd(machine)
    name_archs(machine, 110_000, 90402)
    assert amd_presence().archs == ("gfx1100", "gfx942")
    assert resolve("auto")[0].name == "gfx942"
    name_archs(machine, 110_000, 110_000)
    target, why = resolve("auto")
    assert target.name == "cpu"
    assert "gfx1100" in why
    assert "is no target" in why


@pytest.mark.parametrize("name", ["gfx950", "gfx942", "gfx90a", "sm_90"])
def test_a_missing_target_gives_one_line(machine: Path, resolve: Resolve, name: str) -> None:
    with pytest.raises(
        TargetError, match=rf"^--target {name} cannot run here: no /dev/.*$|cannot run here: no .*kfd"
    ):
        resolve(name)


@pytest.mark.slow
def test_a_target_gives_its_worker_what_it_needs(
    machine: Path, resolve: Resolve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # with it, each worker has its own device
    add_amd(machine)
    given = resolve("gfx950")[0].device_options()
    assert Path(given["work"]).suffix == ".hsaco"
    assert given["library"].endswith("libamdhip64.so.6")
    assert given["visible"] == ""


@pytest.mark.parametrize(
    ("worker", "variable", "devices", "visible"),
    [
        ("", "", 4, ""),
        ("gw0", "", 4, "0"),
        ("gw5", "", 4, "1"),
        ("gw1", "3,6", 4, "6"),
        ("gw2", "3, 6", 4, "3"),
        ("gw1", "3", 4, ""),  # one device, already assigned
        ("gw1", "", 1, ""),
        ("gw1", "", 0, ""),
        ("master", "", 4, ""),
    ],
)
def test_workers_of_xdist_take_the_devices_in_turn(
    worker: str, variable: str, devices: int, visible: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    for name in ("ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", variable)
    assert visible_device("HIP_VISIBLE_DEVICES", devices) == visible


@pytest.mark.parametrize(
    ("given", "hip", "cuda"),
    [
        # HIP numbers the devices that ROCR leaves visible; clusters assign devices in this way.
        ({"ROCR_VISIBLE_DEVICES": "4,6"}, "1", "3"),
        ({"ROCR_VISIBLE_DEVICES": "5"}, "", "3"),
        # If its own variable is not set, HIP uses CUDA's.
        ({"CUDA_VISIBLE_DEVICES": "2,5"}, "5", "5"),
        ({"CUDA_VISIBLE_DEVICES": "1,0", "ROCR_VISIBLE_DEVICES": "4,6"}, "0", "0"),
        ({"CUDA_VISIBLE_DEVICES": "2,5", "HIP_VISIBLE_DEVICES": "3,6"}, "6", "5"),
    ],
)
def test_devices_hidden_by_the_user_are_not_used(
    given: dict[str, str], hip: str, cuda: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw3")
    for name in ("ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, given.get(name, ""))
    assert visible_device("HIP_VISIBLE_DEVICES", 8) == hip
    assert visible_device("CUDA_VISIBLE_DEVICES", 8) == cuda
