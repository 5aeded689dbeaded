"""Files of baselines: round trips, damage, and their paths."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.made_runs import BEST, EXTRA, IDENTITY, IDS, a_run, baseline
from tile_oracle.errors import GateError
from tile_oracle.files.sealed_json import without_seal
from tile_oracle.judge.baseline import (
    Baseline,
    baseline_path,
    load_baseline,
    make_baseline,
    save_baseline,
    slug,
)
from tile_oracle.judge.criteria import Criteria
from tile_oracle.judge.noise import Margin
from tile_oracle.judge.verdict import judge


class TestFiles:
    def test_round_trip(self, tmp_path: Path) -> None:
        path = tmp_path / "a" / "b.json"
        saved = baseline([0.25, None, 1.0], {IDS[0]: {EXTRA.name: "crash"}})
        save_baseline(saved, path)
        assert load_baseline(path) == saved
        assert [entry.name for entry in path.parent.iterdir()] == ["b.json"]

    def test_a_missing_file_is_not_a_baseline(self, tmp_path: Path) -> None:
        assert load_baseline(tmp_path / "none.json") is None
        assert load_baseline(tmp_path / "none" / "none.json") is None

    def test_equal_baselines_are_equal_bytes_in_any_order(self, tmp_path: Path) -> None:
        values = {IDS[0]: 0.1 + 0.2, IDS[1]: 0.5}
        known = {IDS[1]: {EXTRA.name: "crash", BEST.name: "wrong"}, IDS[0]: {BEST.name: "timeout"}}
        for name, flip in (("one", False), ("two", True)):
            order = (lambda d: dict(reversed(d.items()))) if flip else dict
            ordered = {problem: order(kernels) for problem, kernels in order(known).items()}
            save_baseline(
                Baseline(**IDENTITY, efficiencies=order(values), known_failures=ordered), tmp_path / name
            )
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()

    def test_a_baseline_from_its_file_accepts_the_run_it_was_made_of(self, tmp_path: Path) -> None:
        """Rounding in the file is not a loss."""
        selection, final = a_run([1 / 3, 2 / 3, 0.123456789123])
        save_baseline(make_baseline(selection, final, **IDENTITY), tmp_path / "b.json")
        loaded = load_baseline(tmp_path / "b.json")
        assert judge(selection, final, loaded, Criteria(0, 0, 0, 0, 0)).state == "passed"

    def test_an_unwritable_folder_gives_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(GateError, match="cannot be written"):
            save_baseline(baseline([1.0]), tmp_path / "file" / "b.json")

    @pytest.mark.parametrize(
        ("content", "what"),
        [
            (b"{", "is not JSON"),
            (b"[" * 100_000, "is not JSON"),
            (b"[]", "does not hold a JSON object"),
            (b"{}", "no baseline of schema 2"),
            (b'{"schema": 1}', "no baseline of schema 2 .it has 1.: restore it"),
        ],
    )
    def test_files_that_are_not_baselines(self, tmp_path: Path, content: bytes, what: str) -> None:
        path = tmp_path / "b.json"
        path.write_bytes(content)
        with pytest.raises(GateError, match=what) as caught:
            load_baseline(path)
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)

    def test_a_changed_value_in_the_file_is_damage(self, tmp_path: Path) -> None:
        """One flipped bit turns 0.5 into 0.7; undetected, the gate would compare with it."""
        path = tmp_path / "b.json"
        save_baseline(baseline([0.5]), path)
        path.write_text(path.read_text().replace("0.5", "0.7"))
        with pytest.raises(GateError, match=r"b\.json is damaged.*restore it from version control"):
            load_baseline(path)

    def test_the_digest_of_the_oracle_beside_it_is_checked(self, tmp_path: Path) -> None:
        path = tmp_path / "b.json"
        path.with_suffix(".parquet").write_bytes(b"rows")
        save_baseline(baseline([0.5]), path)
        assert json.loads(path.read_text())["records_sha256"] == hashlib.sha256(b"rows").hexdigest()

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            ({"device": 7}, "device: expected `str`, got `int`"),
            ({"efficiencies": []}, "efficiencies: expected `object`"),
            ({"efficiencies": {"p": 1.5}}, "efficiencies.*: expected `float` <= 1"),
            ({"efficiencies": {"p": "x"}}, "efficiencies.*: expected `float . null`, got `str`"),
            ({"known_failures": {"p": []}}, "known_failures.*: expected `object`"),
            ({"known_failures": {"p": {"k": "ok"}}}, "'k' on 'p' is known as 'ok'"),
        ],
    )
    def test_invalid_fields(self, tmp_path: Path, change: dict[str, Any], what: str) -> None:
        path = tmp_path / "b.json"
        save_baseline(baseline([0.5]), path)
        path.write_text(json.dumps({**without_seal(json.loads(path.read_text())), **change}))
        with pytest.raises(GateError, match=what):
            load_baseline(path)

    def test_not_a_number_in_json(self, tmp_path: Path) -> None:
        path = tmp_path / "b.json"
        save_baseline(baseline([0.5]), path)
        path.write_text(json.dumps(without_seal(json.loads(path.read_text()))).replace("0.5", "NaN"))
        with pytest.raises(GateError, match="NaN is no number of JSON"):
            load_baseline(path)

    def test_the_drift_of_a_pick_is_kept_and_left_out_if_there_is_none(self, tmp_path: Path) -> None:
        for drift in (0.0, -0.01):
            picks = {IDS[0]: Margin("k", -0.7, 0.1, 4.0, 0, 1.0, "o", 0.5, drift)}
            saved = dataclasses.replace(baseline([0.5]), picks=picks)
            save_baseline(saved, tmp_path / "b.json")
            assert load_baseline(tmp_path / "b.json") == saved
            assert ("drift" in (tmp_path / "b.json").read_text()) == bool(drift)

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            ({"sigma": -1.0}, "picks.*sigma: expected `float` >= 0"),
            ({"dof": 0}, "picks.*dof: expected `float` > 0"),
            ({"log_ratio": None}, "picks.*log_ratio: expected `float`"),
        ],
    )
    def test_invalid_picks(self, tmp_path: Path, change: dict[str, Any], what: str) -> None:
        path = tmp_path / "b.json"
        save_baseline(
            dataclasses.replace(baseline([0.5]), picks={IDS[0]: Margin("k", -0.7, 0.1, 4.0, 1, 1.0)}), path
        )
        document = without_seal(json.loads(path.read_text()))
        document["picks"][IDS[0]] |= change
        path.write_text(json.dumps(document))
        with pytest.raises(GateError, match=what):
            load_baseline(path)


class TestPaths:
    def test_one_file_per_model_device_problem_set_and_kernel_set(self) -> None:
        path = baseline_path(Path("root"), "m", "AMD EPYC 7B13", "forward_smoke", "tiny")
        assert path.parts[:2] == ("root", "m")
        assert path.parts[2].startswith("amd-epyc-7b13-")
        assert path.parts[3:] == ("forward_smoke", "tiny.json")

    def test_an_empty_name(self) -> None:
        with pytest.raises(GateError, match="none of them may be empty"):
            baseline_path(Path("root"), "m", "", "s")

    @given(st.text(min_size=1))
    def test_slugs_are_safe(self, name: str) -> None:
        made = slug(name)
        assert 1 <= len(made) <= 64
        assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
        assert made[0] not in ".-"

    @given(
        st.text(alphabet="aA0-._ /é", min_size=1, max_size=12),
        st.text(alphabet="aA0-._ /é", min_size=1, max_size=12),
    )
    def test_different_names_have_different_slugs(self, one: str, other: str) -> None:
        assert (slug(one) == slug(other)) == (one == other)

    def test_a_name_that_looks_hashed_is_not_mistaken_for_the_hashed_one(self) -> None:
        assert slug(slug("A B")) != slug("A B")

    def test_ordinary_names_are_unchanged(self) -> None:
        for name in ("forward_smoke", "gfx950", "v1.2-rc", "x"):
            assert slug(name) == name
