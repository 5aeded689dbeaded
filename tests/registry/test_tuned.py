"""Tuned results on disk: used only while valid, and intact whatever happens to the file."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tile_oracle.errors import TunedError
from tile_oracle.files.locks import held
from tile_oracle.kernel import Kernel
from tile_oracle.pool import kernel_pool
from tile_oracle.problem import problem_from_id
from tile_oracle.registry import tuned
from tile_oracle.registry.tuned import Surroundings, TunedEntry, TunedResults

ROOT = Path(__file__).parents[2]
PROBLEM = problem_from_id("forward-fp32-n1-c4-k8-i7x7-f3x3-p1")
OTHER = problem_from_id("forward-fp32-n2-c4-k8-i7x7-f3x3-p1")
KERNELS = kernel_pool("forward", "fp32", 2, "cpu", "tiny")


def hash_of(kernel: Kernel) -> str:
    return "hash of " + kernel.name


HERE = Surroundings("cpu", "cpu", "a CPU", "clang 99", hash_of)
ENTRY = TunedEntry(
    problem=PROBLEM.id,
    kernel=KERNELS[0].name,
    latency_ms=0.125,
    tflops=1.5,
    kernels=8,
    target="cpu",
    arch="cpu",
    device="a CPU",
    driver="Linux 1",
    toolchain="clang 99",
    source_hash=hash_of(KERNELS[0]),
    time="2026-01-02T03:04:05+00:00",
)

LATER = "2026-03-02T03:04:05+00:00"


def results(folder: Path) -> TunedResults:
    return TunedResults("cpu", folder)


def test_added_results_are_found_here_and_by_later_processes(tmp_path: Path) -> None:
    mine = results(tmp_path)
    assert mine.find(PROBLEM, HERE) == tuned.Found()
    assert not tmp_path.joinpath("cpu.jsonl").exists()
    mine.add([ENTRY])
    for one in (mine, results(tmp_path)):
        found = one.find(PROBLEM, HERE)
        assert (found.kernel, found.entry, found.stale) == (KERNELS[0], ENTRY, "")
        assert one.find(OTHER, HERE).kernel is None
        assert (one.knows(PROBLEM), one.knows(OTHER), len(one), one.notes) == (True, False, 1, [])


def test_the_newest_entry_wins_and_surroundings_do_not_mix(tmp_path: Path) -> None:
    newer = replace(ENTRY, kernel=KERNELS[1].name, source_hash=hash_of(KERNELS[1]), time=LATER)
    elsewhere = replace(ENTRY, device="another CPU", kernel=KERNELS[2].name, source_hash=hash_of(KERNELS[2]))
    results(tmp_path).add([ENTRY, elsewhere])
    results(tmp_path).add([newer])
    again = results(tmp_path)
    assert again.find(PROBLEM, HERE).kernel == KERNELS[1]
    assert again.find(PROBLEM, replace(HERE, device="another CPU")).kernel == KERNELS[2]
    assert len(list(again.entries())) == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"device": "another CPU"}, "measured on another CPU, here it is a CPU"),
        ({"target": "sm_90"}, "measured on target sm_90, here it is cpu"),
        ({"arch": "sm_90"}, "measured for sm_90, here it is cpu"),
        (
            {"toolchain": "clang 98", "source_hash": "by clang 98"},
            "built by clang 98, here it is clang 99",
        ),
        ({"source_hash": "of yesterday"}, "the kernel's source, headers or flags have changed"),
        ({"kernel": "nonsense"}, "nonsense"),
        (
            {"kernel": kernel_pool("forward", "bf16", 2, "cpu", "tiny")[0].name},
            "is not a kernel for the problem",
        ),
    ],
)
def test_stale_results_are_not_used_and_reported(tmp_path: Path, change: dict[str, str], why: str) -> None:
    results(tmp_path).add([replace(ENTRY, **change)])  # type: ignore[arg-type]
    found = results(tmp_path).find(PROBLEM, HERE)
    assert (found.kernel, found.entry) == (None, None)
    assert found.stale.startswith("the tuned result of 2026-01-02 is stale: ")
    assert why in found.stale


def test_a_valid_older_entry_replaces_an_invalid_newer_one(tmp_path: Path) -> None:
    later = replace(ENTRY, toolchain="clang 100", source_hash="by clang 100", time=LATER)
    results(tmp_path).add([ENTRY, later])
    assert results(tmp_path).find(PROBLEM, HERE).kernel == KERNELS[0]


def test_prebuilt_kernels_are_identified_only_by_their_hash(tmp_path: Path) -> None:
    results(tmp_path).add([ENTRY])
    for toolchain in ("", "the compiler that is here, too"):
        assert results(tmp_path).find(PROBLEM, replace(HERE, toolchain=toolchain)).kernel == KERNELS[0]


# ---- files that are damaged ----------------------------------------------------------------------


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_never_gives_a_wrong_kernel(tmp_path: Path, data: st.DataObject) -> None:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    other = replace(ENTRY, problem=OTHER.id, kernel=KERNELS[1].name, source_hash=hash_of(KERNELS[1]))
    results(folder).add([ENTRY, other])
    path = folder / "cpu.jsonl"
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1), label="at")
    how = data.draw(st.sampled_from(["flip", "cut", "insert"]), label="how")
    if how == "flip":
        content[at] ^= data.draw(st.integers(1, 255), label="bits")
    elif how == "cut":
        del content[at:]
    else:
        content[at:at] = data.draw(st.binary(min_size=1, max_size=20), label="bytes")
    path.write_bytes(content)
    found = results(folder)
    for problem, kernel in ((PROBLEM, KERNELS[0]), (OTHER, KERNELS[1])):
        assert found.find(problem, HERE).kernel in (None, kernel)
    assert len(found.notes) <= 1
    if found.notes:
        assert "\n" not in found.notes[0]
        assert (
            any(found.find(p, HERE).kernel is None for p in (PROBLEM, OTHER)) or "damaged" in found.notes[0]
        )
    assert path.read_bytes() == bytes(content)  # nothing that was recorded is lost


def test_damaged_lines_are_counted_and_the_whole_ones_are_used(tmp_path: Path) -> None:
    results(tmp_path).add([ENTRY, replace(ENTRY, problem=OTHER.id)])
    path = tmp_path / "cpu.jsonl"
    path.write_bytes(path.read_bytes() + b'{"problem": "half a li')
    found = results(tmp_path)
    whole = "the whole lines of 2 problems are used"
    assert found.notes == [f"damaged lines of {path} are ignored (1); {whole}"]
    assert found.find(PROBLEM, HERE).kernel == KERNELS[0]


@pytest.mark.parametrize(
    "content",
    [b"\0" * 500, b"\xff\xfe" * 50, b"[]\n{}\nnull\n3\n", b"[" * 100_000, b'{"sha256": 1}\n', b'"\\ud800"\n'],
    ids=["zeros", "no text", "other JSON", "deep", "no entry", "surrogate"],
)
def test_a_file_of_anything_is_one_note_and_no_entry(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cpu.jsonl").write_bytes(content)
    found = results(tmp_path)
    assert (len(found), len(found.notes)) == (0, 1)
    found.add([ENTRY])
    assert results(tmp_path).find(PROBLEM, HERE).kernel == KERNELS[0]


@pytest.mark.parametrize(
    "change",
    [{"latency_ms": -1.0}, {"latency_ms": float("nan")}, {"tflops": "1"}, {"kernels": 1.5}, {"time": 3}],
)
def test_a_line_with_a_correct_checksum_and_invalid_values_is_not_an_entry(
    tmp_path: Path, change: dict[str, object]
) -> None:
    (tmp_path / "cpu.jsonl").write_bytes(tuned._lines([replace(ENTRY, **change)]))  # type: ignore[arg-type]
    assert len(results(tmp_path)) == 0


@pytest.mark.parametrize(
    ("old", "new"), [("0.125", "0.925"), ('"kernels":8', '"kernels":9'), (PROBLEM.id, OTHER.id)]
)
def test_a_line_that_reads_well_but_was_changed_is_damaged(tmp_path: Path, old: str, new: str) -> None:
    results(tmp_path).add([ENTRY])
    path = tmp_path / "cpu.jsonl"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    found = results(tmp_path)
    assert (len(found), len(found.notes)) == (0, 1)


def test_half_a_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    mine = results(tmp_path)
    (tmp_path / "cpu.jsonl").write_bytes(b'{"cut off')
    mine.add([ENTRY])
    assert results(tmp_path).find(PROBLEM, HERE).kernel == KERNELS[0]


# ---- other processes -----------------------------------------------------------------------------

_ADDS = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.registry.test_tuned import ENTRY, results
mine = results(Path(sys.argv[1]))
for number in range(20):
    mine.add([replace(ENTRY, problem=f"{sys.argv[2]}-{number}")])
"""


@pytest.mark.slow
def test_processes_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path]))}
    running = [
        subprocess.Popen([sys.executable, "-c", _ADDS, str(tmp_path), str(who)], env=environment)
        for who in range(2)
    ]
    assert [process.wait() for process in running] == [0, 0]
    found = results(tmp_path)
    assert (len(found), found.notes) == (40, [])


def test_a_writer_waits_for_the_holder_of_the_lock(tmp_path: Path) -> None:
    mine = results(tmp_path)
    with held(mine.path.with_suffix(".lock")):
        adding = threading.Thread(target=lambda: results(tmp_path).add([ENTRY]))
        adding.start()
        adding.join(timeout=0.3)
        assert adding.is_alive()
        assert not mine.path.exists()
    adding.join()
    assert results(tmp_path).find(PROBLEM, HERE).kernel == KERNELS[0]


def test_an_unwritable_folder_gives_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    mine = TunedResults("cpu", tmp_path / "file" / "below")
    with pytest.raises(TunedError, match=r"tuned results cannot be written to .*cpu\.jsonl: "):
        mine.add([ENTRY])


def test_an_unreadable_file_gives_one_note(tmp_path: Path) -> None:
    path = tmp_path / "cpu.jsonl"
    path.mkdir()
    why = "it is a folder, not a regular file"
    assert results(tmp_path).notes == [f"{path} cannot be read ({why}): no tuned result is used"]


def test_the_usual_folder_is_beside_the_compiled_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILE_ORACLE_CACHE", str(tmp_path))
    TunedResults("cpu").add([ENTRY])
    assert KERNELS[0].name in (tmp_path / "tuned" / "cpu.jsonl").read_text()


@pytest.mark.parametrize("arch", ["../x", "", "a/b", "A" * 50])
def test_an_architecture_never_becomes_another_path(arch: str, tmp_path: Path) -> None:
    with pytest.raises(TunedError, match="is not the name of an architecture"):
        TunedResults(arch, tmp_path)
