"""Trace files: appended as traces finish, torn ends dropped, foreign files refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tile_oracle.errors import ProblemSetError
from tile_oracle.operations.grouped_conv.problem import GroupedConvProblem
from tools.crawl.trace import Trace
from tools.crawl.trace_file import TraceFile, default_trace_file

VERSIONS = {"torch": "2.1.0", "timm": "1.0.0"}
LAYER = GroupedConvProblem.from_id("forward-bf16-n1-c3-k64-i224x224-f7x7-s2-p3")
GOOD = Trace("timm/a", "a", (224, 224), (LAYER,), (("1D", 2),), "", 0.5)
FAILED = Trace("timm/b", "b", (16, 96, 96), error="RuntimeError: no")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = TraceFile(tmp_path / "new" / "traces.jsonl", VERSIONS)
    file.add(GOOD)
    file.add(FAILED)
    return file.path


def test_added_lines_are_read_back(path: Path) -> None:
    for versions in (VERSIONS, {}):
        file = TraceFile(path, versions)
        assert list(file.traces.values()) == [GOOD, FAILED]
        assert file.versions == VERSIONS


@pytest.mark.parametrize("lost_bytes", [1, 30])
def test_a_truncated_line_is_dropped_and_writing_continues(path: Path, lost_bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:-lost_bytes])
    file = TraceFile(path, VERSIONS)
    assert list(file.traces.values()) == [GOOD]
    file.add(FAILED)
    assert list(TraceFile(path, VERSIONS).traces.values()) == [GOOD, FAILED]


def test_a_file_cut_short_in_its_first_line_begins_again(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5])
    file = TraceFile(path, VERSIONS)
    file.add(GOOD)
    assert list(TraceFile(path, VERSIONS).traces.values()) == [GOOD]


def test_traces_of_other_versions_are_not_mixed_in(path: Path) -> None:
    with pytest.raises(
        ProblemSetError, match=r"made with timm 1.0.0, torch 2.1.0, but .* torch 2.2.0 are installed"
    ):
        TraceFile(path, VERSIONS | {"torch": "2.2.0"})


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"[]\n",
        b"{}\n",
        b'{"architecture": 1}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b'{"architecture": "a", "family": "b", "resolution": [1], "layers": ["x"], "left_out": {}}\n',
    ],
)
def test_a_strange_line_is_refused_with_its_place(path: Path, line: bytes) -> None:
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(ProblemSetError) as caught:
        TraceFile(path, VERSIONS)
    assert str(caught.value).startswith(f"{path}:4: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_an_error_only_where_one_is_needed(tmp_path: Path) -> None:
    assert not TraceFile(tmp_path / "none", VERSIONS).traces
    with pytest.raises(ProblemSetError, match="does not exist"):
        TraceFile(tmp_path / "none", {})


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ProblemSetError, match="cannot be read"):
        TraceFile(tmp_path, VERSIONS)


def test_each_set_of_versions_has_its_own_file(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = default_trace_file(VERSIONS)
    assert path.is_relative_to(tmp_path)
    assert path != default_trace_file(VERSIONS | {"torch": "2.2.0"})
