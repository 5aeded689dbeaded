"""A model states what its measurements were made with, and where it is used says what differs."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tile_oracle.errors import ModelError
from tile_oracle.model.made_by import COST, MadeBy, differences, travel_note
from tile_oracle.model.store import shipped_models
from tile_oracle.training.train import MADE_BY_KEY

ZIG = "clang 22.1.8 (ziglang 0.17.0), ptxas 13.0"
H200 = shipped_models() / "grouped_conv_forward_bf16_sm_90"


def test_the_ok_measurements_count() -> None:
    records = pd.DataFrame(
        {
            "status": ["ok", "ok", "unsupported"],
            "toolchain": [ZIG, ZIG, None],
            "device": ["NVIDIA H200", "NVIDIA H200", "other"],
        }
    )
    assert MadeBy.of_records(records) == MadeBy({ZIG: 2}, {"NVIDIA H200": 2}, {})


@pytest.mark.parametrize(
    ("toolchain", "differs"),
    [
        ("clang 22.1.8 (ziglang 0.17.1), ptxas 13.0", False),
        ("clang 21.1.0, ptxas 13.0", True),
        ("clang 22.1.8 (ziglang 0.17.0), ptxas 12.8", True),
        ("nvcc 13.0.88", True),
        ("someone's compiler", True),
        ("", False),
    ],
)
def test_compiler_and_assembler_are_compared_by_their_versions(toolchain: str, differs: bool) -> None:
    found = differences(MadeBy.of_names(ZIG), MadeBy.of_names(toolchain))
    assert found == ([f"builds ({toolchain}, the model's {ZIG})"] if differs else [])


def test_files_of_other_tools_are_no_compilers() -> None:
    one, two = (MadeBy.of_names(f"imported from {name}.csv") for name in "ab")
    assert differences(one, two) == []
    assert differences(one, MadeBy.of_names("AMD clang 22.0")) == []
    assert differences(MadeBy.of_names("AMD clang 22.0"), two) == []


def test_device_and_driver_are_named() -> None:
    model, here = MadeBy.of_names(ZIG, "NVIDIA H200", "580"), MadeBy.of_names("", "NVIDIA H100", "570")
    assert differences(model, here) == [
        "devices (NVIDIA H100, the model's NVIDIA H200)",
        "drivers (570, the model's 580)",
    ]
    assert differences(MadeBy(), here) == []  # a published folder states nothing
    linux = (MadeBy.of_names(driver=f"Linux {release}") for release in ("6.1", "6.2"))
    assert differences(*linux) == []  # a CPU has no driver


def test_a_shipped_model_says_that_a_compiler_it_does_not_know_differs_and_what_that_costs() -> None:
    made_by = MadeBy.of_model(H200)
    assert [name.partition(" (")[0] for name in made_by.toolchains] == [
        "clang 22.1.8",
        "clang 22.1.8",
        "nvcc 13.0.88",
    ]
    assert list(made_by.devices) == ["NVIDIA H100 80GB HBM3", "NVIDIA H200"]
    assert travel_note([H200], made_by) == ""
    note = travel_note([H200, H200], MadeBy.of_names("nvcc 12.8.93", "NVIDIA H200"))
    assert "different builds (nvcc 12.8.93, the model's clang 22.1.8" in note
    assert note.count("nvcc 12.8.93") == 1
    assert COST in note
    assert "\n" not in note


def test_an_invalid_entry_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "train_manifest.json").write_text(json.dumps({MADE_BY_KEY: {"toolchains": ["clang"]}}))
    with pytest.raises(ModelError, match="made_by: toolchains: expected `object`, got `array`"):
        MadeBy.of_model(tmp_path)
