"""Files of Kernel Tuner (cache, T4) and NVBench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.made_records import make_kernels, make_problems, make_records
from tile_oracle.cli import main
from tile_oracle.errors import RecordError
from tile_oracle.foreign.importers import import_file, write_records
from tile_oracle.record.dataset import load_records

PROBLEMS, KERNELS = make_problems(2), make_kernels()
STATUSES = ("unsupported", "build_error", "wrong", "crash", "timeout")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Two problems; of the first one, five kernels fail, each in another way."""
    table = make_records(PROBLEMS, KERNELS).assign(time=pd.Timestamp("2026-01-02T03:04:05Z"))
    for place, status in enumerate(STATUSES):
        table.loc[place, ["status", "latency_ms", "tflops"]] = [status, None, None]
    again = table[table["status"] == "ok"].assign(round=1)
    again["latency_ms"] *= 1.1
    again["tflops"] /= 1.1
    write_records(pd.concat([table, again], ignore_index=True), tmp_path / "made.parquet")
    return tmp_path / "made.parquet"


def exported(records: Path, form: str) -> list[Path]:
    folder = records.parent / form
    assert main(["export-records", str(records), "--format", form, "-o", str(folder)]) == 0
    return sorted(folder.iterdir())


@pytest.mark.parametrize("form", ["kernel-tuner", "t4"])
def test_records_come_back(records: Path, form: str) -> None:
    files = exported(records, form)
    assert [path.stem for path in files] == sorted(problem.id for problem in PROBLEMS)
    back = pd.concat([import_file(path, "gfx950").records for path in files]).set_index(["problem", "kernel"])
    made = load_records(records).query("round == 0").set_index(["problem", "kernel"])
    assert set(back.index) == set(made.index)
    as_read = {"wrong": "crash", "timeout": "crash"} if form == "kernel-tuner" else {}
    expected = made["status"].replace(as_read)
    assert (back["status"] == expected.reindex(back.index)).all()
    ok = back[back["status"] == "ok"]
    assert ok["latency_ms"].to_numpy() == pytest.approx(
        1.05 * made["latency_ms"].reindex(ok.index).to_numpy()
    )
    assert (ok["samples"] == 2).all()
    assert (back["tile_m"] == made["tile_m"].reindex(back.index)).all()
    assert set(back["time"]) == {pd.Timestamp("2026-01-02T03:04:05Z")}


def test_a_cache_has_what_kernel_tuner_reads(records: Path) -> None:
    """The required members of its schema, and a key that joins the parameters' values."""
    cache = json.loads(exported(records, "kernel-tuner")[0].read_text())
    needed = {
        "schema_version",
        "device_name",
        "kernel_name",
        "problem_size",
        "tune_params_keys",
        "tune_params",
    }
    assert needed | {"objective", "cache"} <= set(cache)
    assert len(cache["cache"]) == len(KERNELS)
    for key, entry in cache["cache"].items():
        values = [entry[name] for name in cache["tune_params_keys"]]
        assert key == ",".join(map(str, values))
        assert all(entry[name] in cache["tune_params"][name] for name in cache["tune_params_keys"])
        times = {f"{name}_time" for name in ("compile", "verification", "benchmark", "strategy", "framework")}
        assert {"time", "timestamp"} | times <= set(entry)


def test_a_cache_of_a_tuning_that_goes_on_is_read(records: Path) -> None:
    path = exported(records, "kernel-tuner")[0]
    whole = import_file(path, "gfx950").records
    document = json.loads(path.read_text())
    opened = json.dumps(document)[:-2] + ",\n"
    path.write_text(opened)
    assert len(import_file(path, "gfx950").records) == len(whole)


def test_configurations_that_are_no_kernel_are_refused_and_counted(records: Path) -> None:
    path = exported(records, "t4")[0]
    document = json.loads(path.read_text())
    document["results"][0]["measurements"][-2]["value"] = "grouped_conv_of_someone_else"
    document["results"][1]["invalidity"] = "tired"
    path.write_text(json.dumps(document))
    summary = import_file(path, "gfx950").summary
    assert summary.refused["kernel cannot be read"] == 1
    assert summary.refused["unknown invalidity"] == 1
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
