"""`tile-oracle doctor` on machines of several kinds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tile_oracle.cli import main
from tile_oracle.commands import doctor
from tile_oracle.commands.doctor import BAD, GOOD, NOTE, examine_installation, examine_models, examine_targets
from tile_oracle.errors import BuildError
from tile_oracle.targets.gpu_presence import Presence

DOUBLES = Path(__file__).parent.parent / "shims" / "management"
ABSENT = Presence(False, "no such GPU")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a GPU; its cache folder is the test's."""
    monkeypatch.setattr(doctor, "amd_presence", lambda: ABSENT)
    monkeypatch.setattr(doctor, "nvidia_presence", lambda: ABSENT)
    monkeypatch.setenv("TILE_ORACLE_CACHE", str(tmp_path / "cache"))


def test_a_machine_without_a_gpu_runs_on_its_cpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "target gfx950: cannot run here" in shown
    assert "target sm_90: cannot run here" in shown
    assert "target cpu: kernels can run here" in shown
    assert "--target auto takes cpu" in shown
    assert "missing device and runtime: no such GPU" in shown
    assert str(tmp_path / "cache") in shown
    assert "GiB free" in shown
    assert [found.target for found in examine_targets()] == ["gfx950", "sm_90", "cpu"]


@pytest.mark.parametrize(("name", "chosen"), [("amd_presence", "gfx950"), ("nvidia_presence", "sm_90")])
def test_auto_takes_a_gpu(
    name: str, chosen: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, name, lambda: Presence(True, "all is there", 8))
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert f"target {chosen}: kernels can run here" in shown
    assert "all is there; 8 devices" in shown
    assert f"--target auto takes {chosen}" in shown


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a"])
def test_the_architecture_of_amds_gpus_is_shown(
    arch: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "amd_presence", lambda: Presence(True, "all is there", 8, archs=(arch,) * 8))
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert f"target {arch}: kernels can run here" in shown
    assert f"--target auto takes {arch}" in shown
    assert "target gfx950" not in shown


def test_a_gpu_without_a_compiler_runs_prebuilt_kernels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(*_: object) -> None:
        raise BuildError("no compiler was found: get one")

    monkeypatch.setattr(doctor.gpu_toolchain, "find_gpu_toolchain", none)
    monkeypatch.setattr(doctor, "nvidia_presence", lambda: Presence(True, "all is there", 1))
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "target gfx950: cannot run here" in shown
    assert "target sm_90: runs kernels built elsewhere" in shown
    assert "--target auto takes sm_90" in shown, "that is what it does: the device decides"


def test_clocks_are_recorded_where_they_can_be_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monkeypatch.syspath_prepend(str(DOUBLES))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    main(["doctor"])
    shown = capsys.readouterr().out
    assert "note    clocks: not recorded with measurements: amdsmi is not installed" in shown
    assert "note    clocks: recorded with measurements" in shown
    sys.modules.pop("pynvml", None)


def test_a_machine_that_can_run_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(*_: object) -> None:
        raise BuildError("no compiler was found: get one")

    monkeypatch.setattr(doctor, "find_toolchain", none)
    monkeypatch.setattr(doctor.gpu_toolchain, "find_gpu_toolchain", none)
    monkeypatch.setattr(doctor, "amd_presence", lambda: Presence(True, "all is there", 1))
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("missing compiler: no compiler was found: get one") == 3
    assert "no target can run here" in shown


def test_an_unwritable_cache_and_a_nearly_full_disk_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    found = examine_installation(tmp_path / "file" / "cache")
    assert [f.state for f in found if f.what == "cache of kernels"] == [BAD]
    monkeypatch.setattr(doctor, "_LOW_DISK_BYTES", 1 << 62)
    found = {f.what: f for f in examine_installation(tmp_path)}
    assert found["disk"].state == NOTE
    assert "make room" in found["disk"].text
    assert found["cache of kernels"].state == GOOD


@pytest.mark.parametrize(
    ("identity", "warned"),
    [
        ("clang 22.1.8 (ziglang 0.17.0)", True),
        ("AMD clang 20.0.0 (HIP version: 7.0.1)", True),
        ("HIP version: 7.0.51831; AMD clang version 20.0.0git (https://github.com/ROCm/llvm-project)", True),
        ("clang 23.1.0", False),
        ("", False),
    ],
)
def test_compilers_that_lose_waits_are_known(identity: str, warned: bool) -> None:
    assert doctor._loses_waits(identity) == warned


def test_models_are_listed_and_a_damaged_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "mine").mkdir(parents=True)
    (tmp_path / "models" / "mine" / "feature_spec.json").write_text("{")
    mine, *shipped = examine_models()
    assert (mine.state, mine.what) == ("missing", "mine")
    assert "feature_spec.json is not JSON" in mine.text
    said = {one.what: one.text for one in shipped if one.state == "ok"}
    assert said["gemm_fp16_sm_90"] == (
        "shipped; gemm fp16 rcr on sm_90; trained on 2,311 kernels, measured on NVIDIA H200, 2026-11-24"
    )
