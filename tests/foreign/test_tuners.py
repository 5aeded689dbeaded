"""Files of Kernel Tuner (cache, T4) and NVBench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems
from tile_oracle.errors import RecordError
from tile_oracle.foreign.importers import import_file, write_records
from tile_oracle.record.dataset import load_records

PROBLEMS, KERNELS = make_problems(2), make_kernels()
WHEN = "2026-01-02T03:04:05Z"
TIMES_MS = [0.01, 0.011]
STATUSES = ("ok", "unsupported", "build_error", "wrong", "crash", "timeout")
WORDS = {
    "kernel-tuner": ("", "InvalidConfig", "CompilationFailedConfig", *["RuntimeFailedConfig"] * 3),
    "t4": ("correct", "constraints", "compile", "correctness", "runtime", "timeout"),
}
"""What the tuners write of a configuration with such a status."""


def written(folder: Path, form: str) -> Path:
    """A file of a kernel that ran twice, and of others that failed, each in another way."""
    entries = []
    for kernel, word in zip(KERNELS, WORDS[form], strict=False):
        times = TIMES_MS if kernel is KERNELS[0] else []
        mean = sum(times) / len(times) if times else word
        plain = {name: one for name, one in kernel.as_row().items() if isinstance(one, str | int | float)}
        named = {"kernel": kernel.name, "problem": PROBLEMS[0].id}
        measured = [{"name": name, "value": value} for name, value in named.items()]
        measured += [{"name": "time", "value": mean, "unit": "ms"}] if times else []
        if form == "t4":
            correct = {"invalidity": word, "correctness": int(word != "correctness")}
            one = {"configuration": plain, "times": {"runtimes": times}, **correct, "measurements": measured}
        else:
            one = {**plain, "kernel": kernel.name, "time": mean, **({"times": times} if times else {})}
        entries.append({**one, "timestamp": WHEN})
    about = {"device_name": "gfx950", "problem_size": PROBLEMS[0].id, "tune_params_keys": ["tile_m"]}
    cache = {**about, "cache": {str(place): one for place, one in enumerate(entries)}}
    path = folder / f"{form}.json"
    path.write_text(json.dumps({"results": entries} if form == "t4" else cache))
    return path


@pytest.mark.parametrize("form", ["kernel-tuner", "t4"])
def test_what_tuners_write_becomes_records(tmp_path: Path, form: str) -> None:
    back = import_file(written(tmp_path, form), "gfx950").records
    assert back["kernel"].tolist() == [kernel.name for kernel in KERNELS[:6]]
    assert set(back["problem"]) == {PROBLEMS[0].id}
    as_read = {"wrong": "crash", "timeout": "crash"} if form == "kernel-tuner" else {}
    assert back["status"].tolist() == [as_read.get(status, status) for status in STATUSES]
    assert back["latency_ms"].dropna().tolist() == [pytest.approx(0.0105)]
    assert back["samples"].dropna().tolist() == [2]
    assert back["tile_m"].tolist() == [kernel.tile_m for kernel in KERNELS[:6]]
    assert set(back["time"]) == {pd.Timestamp(WHEN)}


def test_a_cache_of_a_tuning_that_goes_on_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, "kernel-tuner")
    whole = import_file(path, "gfx950").records
    document = json.loads(path.read_text())
    opened = json.dumps(document)[:-2] + ",\n"
    path.write_text(opened)
    assert len(import_file(path, "gfx950").records) == len(whole)


def test_configurations_that_are_no_kernel_are_refused_and_counted(tmp_path: Path) -> None:
    path = written(tmp_path, "t4")
    document = json.loads(path.read_text())
    document["results"][0]["measurements"][0]["value"] = "grouped_conv_of_someone_else"
    document["results"][1]["invalidity"] = "tired"
    path.write_text(json.dumps(document))
    summary = import_file(path, "gfx950").summary
    assert summary.refused["kernel cannot be read"] == 1
    assert summary.refused["the status is unknown"] == 1
    foreign = {"results": [{"configuration": {"block_size_x": 16}, "times": {}, "invalidity": "correct"}]}
    path.write_text(json.dumps(foreign))
    with pytest.raises(RecordError, match="holds no usable row; kernel cannot be read"):
        import_file(path, "gfx950")


def state(kernel: str, mean_s: str, **axes: Any) -> dict[str, Any]:
    values = {"mean": mean_s, "stdev/relative": "0.02"}
    summaries = [
        {"tag": f"nv/cold/time/gpu/{name}", "data": [{"name": "value", "type": "float64", "value": value}]}
        for name, value in values.items()
    ]
    count = {"tag": "nv/cold/sample_size", "data": [{"name": "value", "type": "int64", "value": "640"}]}
    named = [{"name": name, "type": "int64", "value": str(value)} for name, value in axes.items()]
    axis = {"name": "Kernel", "type": "string", "value": kernel}
    return {"axis_values": [axis, *named], "summaries": [*summaries, count], "is_skipped": False}


def test_nvbench_states_are_records_with_cold_caches(tmp_path: Path) -> None:
    problem, kernel = PROBLEMS[0], KERNELS[0]
    axes = {name: value for name, value in problem.as_row().items() if isinstance(value, int)}
    skipped = {
        **state(KERNELS[1].name, "0", **axes),
        "summaries": [],
        "is_skipped": True,
        "skip_reason": "odd",
    }
    document = {
        "meta": {"version": {"json": {"string": "1.0.0"}}},
        "benchmarks": [{"name": "conv", "states": [state(kernel.name, "0.000125", **axes), skipped]}],
    }
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(document))
    found = import_file(path, "gfx950").records.set_index("kernel")
    row = found.loc[kernel.name]
    assert (row["problem"], row["status"], row["cache"], row["samples"]) == (problem.id, "ok", "cold", 640)
    assert row["latency_ms"] == pytest.approx(0.125)
    assert row["tflops"] == pytest.approx(problem.tflops(0.125))
    assert row["spread"] == pytest.approx(0.02698)
    assert (found.loc[KERNELS[1].name, "status"], found.loc[KERNELS[1].name, "detail"]) == (
        "unsupported",
        "odd",
    )


def t4(value: float, unit: str, **changed: Any) -> str:
    """One result in the T4 format."""
    measured = [
        {"name": "problem", "value": PROBLEMS[0].id},
        {"name": "time", "value": value, "unit": unit},
    ]
    one = {
        "configuration": {"kernel": KERNELS[0].name},
        "invalidity": "correct",
        "correctness": 1,
        "times": {"runtimes": []},
        "measurements": measured,
    }
    return json.dumps({"schema_version": "1.0.0", "results": [one | changed]})


@pytest.mark.parametrize(
    ("value", "unit"), [(0.0125, "ms"), (12.5, "us"), (12500, "nanoseconds"), (1.25e-5, "s")]
)
def test_times_of_t4_have_their_unit(tmp_path: Path, value: float, unit: str) -> None:
    (tmp_path / "t4.json").write_text(t4(value, unit))
    assert import_file(tmp_path / "t4.json", "gfx950").records["latency_ms"].tolist() == pytest.approx(
        [0.0125]
    )


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (t4(12.5, "fortnights"), "the unit of time is unknown"),
        (t4(12.5, "ms", times={"runtimes": [0.0125, 0.013]}), "latency is not a positive number"),
        (t4(1250, "s"), "slower than any run of one kernel"),
    ],
)
def test_a_time_that_cannot_be_is_refused(tmp_path: Path, text: str, refused: str) -> None:
    (tmp_path / "t4.json").write_text(text)
    with pytest.raises(RecordError, match=refused):
        import_file(tmp_path / "t4.json", "gfx950")


def test_a_result_of_t4_that_is_not_correct_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "t4.json").write_text(t4(0.0125, "ms", correctness=0))
    assert import_file(tmp_path / "t4.json", "gfx950").records["status"].tolist() == ["wrong"]


def nvbench(*states: dict[str, Any], devices: tuple[str, ...] = ()) -> str:
    listed = [{"id": place, "name": name} for place, name in enumerate(devices)]
    return json.dumps({"devices": listed, "benchmarks": [{"name": "b", "states": list(states)}]})


def on(device: int, mean_s: str, **summaries: str) -> dict[str, Any]:
    one = state(KERNELS[0].name, mean_s)
    one["axis_values"].append({"name": "problem", "type": "string", "value": PROBLEMS[0].id})
    for summary in one["summaries"]:
        name = summary["tag"].rsplit("/", 1)[1]
        summary["data"][0]["value"] = summaries.get(name, summary["data"][0]["value"])
    return {**one, "device": device}


def test_states_of_two_gpus_are_no_repeats(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    states = (on(0, "1.25e-5"), on(1, "9e-5"))
    path.write_text(nvbench(*states, devices=("NVIDIA H100", "NVIDIA RTX A400")))
    found = import_file(path, "sm_90")
    assert found.records["latency_ms"].tolist() == pytest.approx([0.0125])
    assert dict(found.summary.refused) == {"device states another architecture": 1}
    path.write_text(nvbench(*states, devices=("NVIDIA H100", "NVIDIA H100 PCIe")))
    with pytest.raises(RecordError, match=r"several devices, NVIDIA H100, NVIDIA H100 PCIe: choose one"):
        import_file(path, "sm_90")
    assert import_file(path, "sm_90", device="NVIDIA H100 PCIe").summary.ok == 1


@pytest.mark.parametrize(
    ("summaries", "refused"),
    [
        ({"relative": "inf"}, "spread is no such number"),
        ({"relative": "-1"}, "spread is no such number"),
        ({"relative": "much"}, "spread is no such number"),
        ({"sample_size": "-5"}, "samples is no such number"),
        ({"mean": "1.25e-8"}, "faster than the device can be"),
    ],
)
def test_figures_of_nvbench_that_cannot_be_are_refused(
    tmp_path: Path, summaries: dict[str, str], refused: str
) -> None:
    (tmp_path / "b.json").write_text(nvbench(on(0, "1.25e-5", **summaries)))
    with pytest.raises(RecordError, match=refused):
        import_file(tmp_path / "b.json", "gfx950")


def test_one_sample_of_nvbench_has_no_spread(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(nvbench(on(0, "1.25e-5", relative="inf", sample_size="1")))
    found = import_file(tmp_path / "b.json", "gfx950").records
    assert found["spread"].isna().all()
    write_records(found, tmp_path / "o.parquet")
    assert len(load_records(tmp_path / "o.parquet")) == 1


def test_a_cache_says_what_it_was_measured_on(tmp_path: Path) -> None:
    path = written(tmp_path, "kernel-tuner")
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"device_name": "NVIDIA H100"}))
    with pytest.raises(RecordError, match="device_name states another architecture"):
        import_file(path, "gfx950")


@pytest.mark.slow
def test_a_cut_cache_gives_its_finished_entries(tmp_path: Path) -> None:
    """Wherever the file ends: the entries before that place, and one refusal if it is inside an entry."""
    path = written(tmp_path, "kernel-tuner")
    text, whole = path.read_text(), import_file(path, "gfx950").records
    entries = len(json.loads(text)["cache"])
    seen = set()
    for end in range(text.index('"cache"') + 12, len(text), 331):
        path.write_text(text[:end])
        try:
            found = import_file(path, "gfx950")
        except RecordError:
            assert end < len(text) / 2
            continue
        assert found.records["kernel"].tolist() == whole["kernel"].tolist()[: len(found.records)]
        assert len(found.records) <= entries
        assert set(found.summary.refused) <= {"the file is cut or damaged inside an entry"}
        seen.add(len(found.records))
    assert seen >= {1, entries - 1}
