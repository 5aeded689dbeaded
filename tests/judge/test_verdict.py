"""Baselines and the verdict."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.records_factory import frame, record, some_kernels, some_problems
from tile_oracle.errors import GateError
from tile_oracle.judge.baseline import Baseline, make_baseline
from tile_oracle.judge.baseline_file import baseline_path, load_baseline, save_baseline, slug
from tile_oracle.judge.criteria import Criteria
from tile_oracle.judge.failures import failures_of
from tile_oracle.judge.noise import Margin
from tile_oracle.judge.verdict import Verdict, judge
from tile_oracle.oracle import final_measurements, find_oracles
from tile_oracle.sealed_json import without_seal
from tile_oracle.selection import select

PROBLEMS = some_problems(10)
IDS = [problem.id for problem in PROBLEMS]
PICK, BEST, EXTRA = some_kernels(3, PROBLEMS[0])
IDENTITY = {
    "model": "forward_fp32_cpu",
    "model_kind": "folder",
    "target": "cpu",
    "arch": "x86_64",
    "device": "Some CPU",
    "problem_set": "forward_smoke",
    "problem_set_sha256": "ab" * 32,
    "kernel_set": "default",
    "created": "2026-01-02T03:04:05Z",
    "harness_version": "0.1.0",
}


def a_run(
    efficiencies: Sequence[float | None], extra: Sequence[dict[str, Any]] = ()
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(selection, final) of a run with these efficiencies; None: the pick was not measured."""
    problems = PROBLEMS[: len(efficiencies)]
    rows, rankings = list(extra), []
    for problem, efficiency in zip(problems, efficiencies, strict=True):
        rows.append(record(problem, BEST, 2.0))
        if efficiency is not None and efficiency > 0:
            rows.append(record(problem, PICK, 2.0 * efficiency))
        elif efficiency is not None:
            rows.append(record(problem, PICK, status="unsupported"))
        rankings += [(problem.id, PICK.name, 9.0), (problem.id, BEST.name, 1.0)]
    final = final_measurements(frame(rows))
    table = pd.DataFrame(rankings, columns=["problem", "kernel", "predicted_tflops"])
    return select(problems, final, find_oracles(final), table), final


def baseline(efficiencies: Sequence[float | None], known: Mapping[str, Mapping[str, str]] = {}) -> Baseline:
    by_problem = dict(zip(IDS, efficiencies, strict=False))
    return Baseline(**IDENTITY, efficiencies=by_problem, known_failures=known)


def judged(
    now: Sequence[float | None],
    then: Sequence[float | None],
    criteria: Criteria | None = None,
    **more: Any,
) -> Verdict:
    return judge(*a_run(now), baseline(then), criteria or Criteria(), **more)


def passed(verdict: Verdict) -> dict[str, bool | None]:
    return {criterion.name: criterion.passed for criterion in verdict.criteria}


ALL_MET = {
    "mean": True,
    "median": True,
    "P10": True,
    "largest loss": True,
    "coverage": True,
    "new failures": True,
}


class TestCriteria:
    def test_an_equal_run_passes(self) -> None:
        verdict = judged([0.9, 0.8, 1.0], [0.9, 0.8, 1.0])
        assert (verdict.state, verdict.failed, verdict.compared) == ("passed", False, 3)
        assert passed(verdict) == ALL_MET

    def test_a_better_run_passes(self) -> None:
        assert judged([1.0, 1.0], [0.5, 0.6]).state == "passed"

    def test_the_mean_may_fall_by_half_a_point(self) -> None:
        then = [0.9] * 10
        within = judged([0.9 - 0.049, *then[1:]], then)
        beyond = judged([0.9 - 0.051, *then[1:]], then)
        assert passed(within) == ALL_MET
        assert passed(beyond) == {**ALL_MET, "mean": False}
        assert beyond.failed
        assert beyond.message == "criteria not met: mean"

    def test_the_median_may_fall_by_half_a_point(self) -> None:
        then = [0.7, 0.9, 0.99]
        assert passed(judged([0.71, 0.896, 0.99], then)) == ALL_MET
        assert passed(judged([0.72, 0.894, 0.99], then)) == {**ALL_MET, "median": False}

    def test_p10_may_fall_by_two_points(self) -> None:
        then = [0.5] + [0.9] * 9
        raised = [0.93] * 8
        now = [0.44, 0.9, *raised]  # P10 of ten values: the lowest + 0.9 (second lowest - lowest)
        verdict = judged(now, then)
        assert verdict.criteria[2].value == pytest.approx(100 * float(np.percentile(now, 10)))
        assert passed(verdict) == ALL_MET
        assert passed(judged([0.44, 0.83, *raised], then)) == {**ALL_MET, "P10": False}

    def test_no_problem_may_lose_more_than_ten_points(self) -> None:
        then = [0.9, 0.9, 0.6, 0.6, 0.6]
        assert passed(judged([0.801, 0.9, 0.7, 0.7, 0.7], then)) == ALL_MET
        verdict = judged([0.79, 0.78, 0.7, 0.7, 0.7], then, Criteria(p10_points=100, mean_points=100))
        assert passed(verdict) == {**ALL_MET, "largest loss": False}
        assert [loss.problem for loss in verdict.losses] == [IDS[1], IDS[0]]
        assert verdict.losses[0].loss_points == pytest.approx(12.0)
        assert verdict.criteria[3].value == pytest.approx(12.0)

    def test_a_pick_that_fails_now_loses_everything(self) -> None:
        assert judged([0.0, 0.9], [0.9, 0.9]).criteria[3].value == pytest.approx(90.0)

    def test_coverage_may_not_fall(self) -> None:
        verdict = judged([0.9, 0.9, None], [0.9, 0.9, 0.9])
        assert passed(verdict) == {**ALL_MET, "coverage": False}
        assert verdict.newly_uncovered == (IDS[2],)
        assert passed(judged([0.9, None, 0.9], [0.9, 0.9, None])) == ALL_MET

    def test_a_narrowed_run_needs_no_coverage_and_says_so(self) -> None:
        verdict = judged([0.9, None, None], [0.9, 0.9, 0.9], complete=False)
        assert (verdict.state, verdict.failed) == ("incomplete", False)
        assert passed(verdict) == {**ALL_MET, "coverage": None}
        assert verdict.message == "nothing failed, but not applied: coverage"

    def test_a_narrowed_run_can_still_fail(self) -> None:
        assert judged([0.5, None], [0.9, 0.9], complete=False).failed

    def test_only_problems_in_both_are_compared(self) -> None:
        selection, final = a_run([0.9, 0.9, 0.1])
        then = {IDS[0]: 0.9, IDS[1]: 0.9, IDS[9]: 0.1, IDS[8]: None}
        verdict = judge(selection, final, Baseline(**IDENTITY, efficiencies=then), Criteria())
        assert (verdict.state, verdict.compared) == ("passed", 2)
        assert verdict.new_problems == (IDS[2],)
        assert verdict.gone_problems == tuple(sorted([IDS[8], IDS[9]]))

    @pytest.mark.parametrize("then", [{IDS[9]: 0.9}, {IDS[0]: None, IDS[9]: 0.9}, {}])
    def test_a_baseline_with_nothing_in_common_does_not_pass(self, then: dict[str, float | None]) -> None:
        selection, final = a_run([0.9, 0.9])
        verdict = judge(selection, final, Baseline(**IDENTITY, efficiencies=then), Criteria())
        assert verdict.failed
        assert passed(verdict)["coverage"] is False
        assert passed(verdict)["mean"] is None

    def test_limits_can_be_changed(self) -> None:
        then, now = [0.9] * 4, [0.85] * 4
        assert judged(now, then).failed
        assert not judged(now, then, Criteria(mean_points=5, median_points=5, p10_points=5)).failed
        assert judged([0.9, None], [0.9, 0.9], Criteria(coverage_points=50)).state == "passed"

    @pytest.mark.parametrize("value", [-0.1, 100.5, float("nan"), float("inf"), True, "1"])
    def test_invalid_limits(self, value: Any) -> None:
        with pytest.raises(GateError, match=r"p10_points = .* is not a number of points from 0 to 100"):
            Criteria(p10_points=value)

    def test_the_verdict_is_json(self) -> None:
        document = json.loads(json.dumps(judged([0.5, 0.9], [0.9, 0.9]).to_dict(), allow_nan=False))
        assert document["state"] == "failed"
        mean = document["criteria"][0]
        assert (mean["name"], mean["unit"], mean["passed"]) == ("mean", "%", False)
        assert (mean["value"], mean["baseline"], mean["limit"]) == pytest.approx((70.0, 90.0, 89.5))
        assert document["losses"][0]["loss_points"] == pytest.approx(40.0)

    @pytest.mark.slow
    @settings(max_examples=30, deadline=None)
    @given(
        st.lists(
            st.tuples(st.one_of(st.none(), st.floats(0.01, 1.0)), st.one_of(st.none(), st.floats(0.01, 1.0))),
            min_size=1,
            max_size=10,
        )
    )
    def test_against_a_plain_restatement(self, drawn: list[tuple[float | None, float | None]]) -> None:
        verdict = judged([now for now, _ in drawn], [then for _, then in drawn])
        both = np.array([pair for pair in drawn if None not in pair], dtype=float).reshape(-1, 2) * 100
        assert verdict.compared == len(both)
        coverage = [sum(pair[i] is not None for pair in drawn) for i in (0, 1)]
        expected = {"coverage": coverage[0] >= coverage[1] and len(both) > 0, "new failures": True}
        if len(both):
            now, then = both.T
            expected |= {
                "mean": now.mean() >= then.mean() - 0.5,
                "median": np.median(now) >= np.median(then) - 0.5,
                "P10": np.percentile(now, 10) >= np.percentile(then, 10) - 2,
                "largest loss": (then - now).max() <= 10,
            }
        got = passed(verdict)
        assert {name: got[name] for name in expected} == expected
        assert verdict.failed == (not all(expected.values()))


class TestFailures:
    CRASH = record(PROBLEMS[0], EXTRA, status="crash", detail="signal 11")

    def test_a_new_failure_fails(self) -> None:
        selection, final = a_run([0.9], [self.CRASH])
        verdict = judge(selection, final, baseline([0.9]), Criteria())
        assert passed(verdict) == {**ALL_MET, "new failures": False}
        (failure,) = verdict.new_failures
        assert (failure.problem, failure.kernel, failure.status) == (IDS[0], EXTRA.name, "crash")
        assert (failure.detail, failure.known) == ("signal 11", None)

    def test_a_known_failure_passes(self) -> None:
        known = {IDS[0]: {EXTRA.name: "crash"}}
        verdict = judge(*a_run([0.9], [self.CRASH]), baseline([0.9], known), Criteria())
        assert (verdict.state, verdict.new_failures) == ("passed", ())
        assert [failure.known for failure in verdict.known_failures] == ["crash"]

    def test_a_known_failure_that_fails_differently_is_reported(self) -> None:
        known = {IDS[0]: {EXTRA.name: "timeout"}}
        verdict = judge(*a_run([0.9], [self.CRASH]), baseline([0.9], known), Criteria())
        assert verdict.state == "passed"
        assert verdict.notes == ("known failures that now fail in another way: 1",)

    def test_a_healed_failure_is_reported(self) -> None:
        known = {IDS[0]: {EXTRA.name: "crash", BEST.name: "wrong"}, IDS[1]: {BEST.name: "wrong"}}
        verdict = judge(*a_run([0.9]), baseline([0.9], known), Criteria())
        assert [(f.problem, f.kernel, f.known) for f in verdict.healed] == [(IDS[0], BEST.name, "wrong")]

    def test_failures_of_the_machine_are_not_failures_of_a_kernel(self) -> None:
        rows = [
            record(PROBLEMS[0], EXTRA, status="noisy"),
            record(PROBLEMS[1], EXTRA, status="device_lost"),
            record(PROBLEMS[2], EXTRA, status="unsupported"),
        ]
        assert failures_of(final_measurements(frame(rows))).empty

    def test_the_most_severe_failure_comes_first(self) -> None:
        kernels = some_kernels(4, PROBLEMS[0])
        statuses = ["build_error", "timeout", "crash", "wrong"]
        rows = [record(PROBLEMS[0], k, status=s) for k, s in zip(kernels, statuses, strict=True)]
        assert failures_of(final_measurements(frame(rows)))["status"].tolist() == statuses[::-1]


class TestWithoutABaseline:
    def test_the_state_is_no_baseline(self) -> None:
        verdict = judge(*a_run([0.1], [TestFailures.CRASH]), None, Criteria())
        assert (verdict.state, verdict.failed, verdict.criteria) == ("no baseline", False, ())
        assert "--update-baseline" in verdict.message
        assert len(verdict.new_failures) == 1

    def test_without_a_model_there_is_nothing_to_judge(self) -> None:
        final = final_measurements(frame([record(PROBLEMS[0], BEST, 1.0)]))
        verdict = judge(select(PROBLEMS[:1], final, find_oracles(final), None), final, None, Criteria())
        assert (verdict.state, verdict.failed) == ("no model", False)

    def test_update_baseline_is_not_offered_without_an_efficiency(self) -> None:
        verdict = judge(*a_run([None]), None, Criteria())
        assert "--update-baseline" not in verdict.message


class TestMakingABaseline:
    def test_accepted_efficiencies_pass(self) -> None:
        selection, final = a_run([0.9, 0.4, None], [TestFailures.CRASH])
        made = make_baseline(selection, final, **IDENTITY)
        assert made.efficiencies == pytest.approx({IDS[0]: 0.9, IDS[1]: 0.4, IDS[2]: None})
        assert made.known_failures == {IDS[0]: {EXTRA.name: "crash"}}
        assert made.coverage_percent == pytest.approx(200 / 3)
        assert judge(selection, final, made, Criteria()).state == "passed"

    def test_unmeasured_problems_are_kept(self) -> None:
        known = {IDS[0]: {BEST.name: "crash"}, IDS[1]: {EXTRA.name: "timeout"}, IDS[9]: {PICK.name: "wrong"}}
        before = baseline([0.5, 0.6, 0.7], known)
        made = make_baseline(*a_run([0.9, None]), previous=before, **IDENTITY)
        assert made.efficiencies == pytest.approx({IDS[0]: 0.9, IDS[1]: 0.6})
        assert made.known_failures == {IDS[1]: {EXTRA.name: "timeout"}}

    def test_a_run_without_efficiencies_makes_no_baseline(self) -> None:
        with pytest.raises(GateError, match="no problem of this run has an efficiency"):
            make_baseline(*a_run([None, None]), **IDENTITY)


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
            (b"", "is not JSON"),
            (b"{", "is not JSON"),
            (b"\xff\xfe", "is not JSON"),
            (b"[" * 100_000, "is not JSON"),
            (b"[]", "not a JSON object"),
            (b"{}", "schema is None"),
            (b'{"schema": 3}', "schema is 3, this version reads 1 and 2"),
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
        with pytest.raises(GateError, match=r"b\.json is damaged.*--update-baseline"):
            load_baseline(path)

    def test_the_digest_of_the_oracle_beside_it_is_checked(self, tmp_path: Path) -> None:
        path = tmp_path / "b.json"
        path.with_suffix(".parquet").write_bytes(b"rows")
        save_baseline(baseline([0.5]), path)
        assert json.loads(path.read_text())["records_sha256"] == hashlib.sha256(b"rows").hexdigest()

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            ({"device": 7}, "its device is not text"),
            ({"efficiencies": []}, "no efficiencies"),
            ({"known_failures": None}, "no efficiencies or no known_failures"),
            ({"efficiencies": {"p": 1.5}}, "efficiency of 'p' is 1.5"),
            ({"efficiencies": {"p": True}}, "efficiency of 'p' is True"),
            ({"efficiencies": {"p": "x"}}, "efficiency of 'p' is 'x'"),
            ({"known_failures": {"p": []}}, "known_failures of 'p'"),
            ({"known_failures": {"p": {"k": "ok"}}}, "'k' on 'p' is known as 'ok'"),
            ({"known_failures": {"p": {"k": ["crash"]}}}, "'k' on 'p' is known as"),
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
        with pytest.raises(GateError, match="is nan, not a fraction"):
            load_baseline(path)

    def test_a_changed_efficiency_is_damage(self, tmp_path: Path) -> None:
        path = tmp_path / "b.json"
        save_baseline(baseline([0.5]), path)
        path.write_text(path.read_text().replace("0.5", "0.4"))
        with pytest.raises(GateError, match="is damaged or was edited by hand"):
            load_baseline(path)

    def test_files_without_picks_are_read(self, tmp_path: Path) -> None:
        path = tmp_path / "b.json"
        save_baseline(baseline([0.5, None]), path)
        document = without_seal(json.loads(path.read_text())) | {"schema": 1}
        path.write_text(json.dumps({k: v for k, v in document.items() if k not in ("picks", "ranked_by")}))
        assert load_baseline(path) == baseline([0.5, None])

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            ({"sigma": -1.0}, "the sigma of the pick"),
            ({"dof": 0}, "the dof of the pick"),
            ({"pick": 3}, "the pick of the pick"),
            ({"log_ratio": None}, "the log_ratio of the pick"),
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

    def test_a_directory_in_its_place(self, tmp_path: Path) -> None:
        with pytest.raises(GateError, match="cannot be read"):
            load_baseline(tmp_path)


class TestPaths:
    def test_one_file_per_model_device_problem_set_and_kernel_set(self) -> None:
        path = baseline_path(Path("root"), "m", "AMD EPYC 7B13", "forward_smoke", "tiny")
        assert path.parts[:2] == ("root", "m")
        assert path.parts[2].startswith("amd-epyc-7b13-")
        assert path.parts[3:] == ("forward_smoke", "tiny.json")

    @pytest.mark.parametrize(
        "name", ["../../etc/passwd", "/abs", "..", ".", "a/b", "a\\b", "con\x00", "CON", "é" * 300]
    )
    def test_names_never_become_paths_unchecked(self, name: str) -> None:
        path = baseline_path(Path("root"), name, name, name, name)
        assert len(path.parts) == 5
        assert all(len(part) <= 72 and not part.startswith(".") for part in path.parts)

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


def test_a_baseline_is_not_changed_by_judging() -> None:
    then = baseline([0.9, 0.8], {IDS[0]: {EXTRA.name: "crash"}})
    copy = dataclasses.replace(then, efficiencies=dict(then.efficiencies))
    judge(*a_run([0.9, 0.8]), then, Criteria())
    assert then == copy
