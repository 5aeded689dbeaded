"""The plugin as pytest users see it: ids, selection, other tests, reports, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from xml.etree import ElementTree

import pandas as pd
import pytest

from tests.pytest_project import KERNELS, PROBLEMS, TWO_KERNELS, Finished, Project, junit_properties

MakeProject = Callable[[], Project]

SMALL_IDS = [f"tile_oracle::test_kernel[{p}-{k}]" for p in PROBLEMS[:2] for k in KERNELS]


@dataclass(frozen=True)
class Sweep:
    """One whole run that many tests inspect."""

    project: Project
    finished: Finished
    records: pd.DataFrame

    def first_round(self) -> pd.DataFrame:
        return self.records[self.records["round"] == 0]


@pytest.fixture(scope="module")
def sweep(make_project: MakeProject) -> Sweep:
    project = make_project()
    files = ("--junitxml=junit.xml", "--benchmark-json=bench.json")
    finished = project.pytest("--problem-set", "small.csv", *TWO_KERNELS, *files)
    return Sweep(project, finished, project.records())


# ---- the sweep --------------------------------------------------------------------------------------


def test_without_test_files_every_pair_is_measured_once(sweep: Sweep) -> None:
    assert sweep.finished.status == 0
    assert sweep.finished.counts() == {"passed": 4}
    measured = sweep.first_round()
    assert set(zip(measured["problem"], measured["kernel"], strict=True)) == {
        (problem, f"grouped_conv_forward_fp32_2d_{kernel}") for problem in PROBLEMS[:2] for kernel in KERNELS
    }
    assert len(measured) == 4
    assert set(measured["status"]) == {"ok"}
    assert (measured["tflops"] > 0).all()


def test_the_header_says_what_will_run(sweep: Sweep) -> None:
    assert "tile-oracle: small (2 problems) x tiny (2 kernels) = 4 pairs" in sweep.finished.lines
    assert any(line.startswith("target: cpu (auto: ") for line in sweep.finished.lines)
    assert "model: none" in sweep.finished.lines
    assert f"run: {sweep.project.runs[0]}" in sweep.finished.lines


def test_progress_is_a_line_a_problem_and_no_letters(sweep: Sweep) -> None:
    lines = sweep.finished.lines
    for place, problem in enumerate(PROBLEMS[:2], 1):
        (line,) = (line for line in lines if line.startswith(f"[{place}/2] {problem}  2 ok  best "))
        assert line.endswith(KERNELS)
        assert " pairs/s  0:0" in line
    assert not any(set(line) <= set(".FsxE [%]0123456789") and "." in line for line in lines if line)


def test_the_summary_comes_last_and_names_existing_files(sweep: Sweep) -> None:
    text = sweep.finished.output
    parts = ("tile-oracle: small ===", "small on cpu", "coverage  ", "pairs         4 ok")
    places = [text.index(part) for part in (*parts, "verdict", "report  ")]
    assert places == sorted(places)
    run = sweep.project.runs[0]
    assert f"report        {run}/report.html" in text
    for name in ("report.html", "summary.md", "verdict.json", "selection.parquet"):
        assert (run / name).stat().st_size > 0


def test_junit_has_the_measurement_of_each_test(sweep: Sweep) -> None:
    (suite,) = ElementTree.parse(sweep.project.folder / "junit.xml").getroot().iter("testsuite")
    cases = {case.attrib["name"]: junit_properties(case) for case in suite.iter("testcase")}
    assert len(cases) == 4
    for row in sweep.first_round().itertuples():
        kernel = row.kernel.removeprefix("grouped_conv_forward_fp32_2d_")
        facts = cases[f"test_kernel[{row.problem}-{kernel}]"]
        assert (facts["problem"], facts["kernel"], facts["status"]) == (row.problem, kernel, "ok")
        assert float(facts["latency_ms"]) == pytest.approx(row.latency_ms)
        assert float(facts["tflops"]) == pytest.approx(row.tflops)


def test_pytest_benchmark_has_the_kernels_own_times(sweep: Sweep) -> None:
    document = json.loads((sweep.project.folder / "bench.json").read_text())
    recorded = {
        f"{row.problem}-{row.kernel.removeprefix('grouped_conv_forward_fp32_2d_')}": row
        for row in sweep.first_round().itertuples()
    }
    assert len(document["benchmarks"]) == 4
    for entry in document["benchmarks"]:
        row = recorded[entry["name"].removeprefix("test_kernel[").removesuffix("]")]
        assert entry["stats"]["median"] * 1000 == pytest.approx(row.latency_ms, rel=1e-6, abs=1e-7)
        assert entry["stats"]["min"] * 1000 == pytest.approx(row.latency_min_ms, rel=1e-6, abs=1e-7)
        assert entry["stats"]["rounds"] == row.samples
        assert entry["extra_info"]["tflops"] == pytest.approx(row.tflops)
        assert entry["params"] == {"problem": row.problem, "kernel": row.kernel}


# ---- ids and selection ------------------------------------------------------------------------------


def test_ids_are_short_and_do_not_depend_on_where_pytest_runs(project: Project) -> None:
    asked = ("--collect-only", "-q", *TWO_KERNELS)
    here = project.pytest("--problem-set", "small.csv", *asked)
    elsewhere = project.folder / "below" / "it"
    elsewhere.mkdir(parents=True)
    there = project.pytest("--problem-set", "../../small.csv", "--rootdir", elsewhere, *asked, cwd=elsewhere)
    assert here.lines[:4] == there.lines[:4] == SMALL_IDS
    assert project.runs == []


def test_k_selects_by_problem_and_kernel(project: Project) -> None:
    finished = project.pytest("--problem-set", "small.csv", *TWO_KERNELS, "-k", "compv3 and f1x1", "-v")
    assert finished.status == 0
    assert finished.outcomes() == {SMALL_IDS[3]: "PASSED"}
    assert finished.counts() == {"passed": 1, "deselected": 3}
    assert len(project.records()) == 1
    assert "3 deselected" in finished.output[finished.output.index("small on cpu") :]


@pytest.mark.slow
def test_several_sets_are_measured_together_and_judged_one_by_one(project: Project) -> None:
    project.problem_set("other.csv", PROBLEMS[1:3])
    project.problem_set("more/other.csv", PROBLEMS[3:])
    finished = project.pytest("--problem-set", "small.csv,other.csv,more/other.csv", *TWO_KERNELS)
    assert finished.counts() == {"passed": 8}, "a problem of two sets is measured once"
    (run,) = project.runs
    sets = {
        json.loads(path.read_text())["run"]["problem_set"]: path.parent.name
        for path in run.glob("*/verdict.json")
    }
    assert set(sets) == {"small", "other"}
    # Two files with one name do not overwrite each other's report.
    assert len(list(run.glob("*/report.html"))) == 3


# ---- failing kernels --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def failing(make_project: MakeProject) -> tuple[Project, tuple[str, ...]]:
    """A project with a compiler that makes one of the two kernels wrong, and the arguments to use it."""
    project = make_project()
    compiler = project.compiler("bad-clang", {"TO_PACK_AB": "wrong"})
    return project, ("--problem-set", "small.csv", *TWO_KERNELS, "--toolchain", str(compiler))


@pytest.mark.slow
def test_x_stops_at_the_first_failure_and_lf_runs_it_again(failing: tuple[Project, tuple[str, ...]]) -> None:
    project, arguments = failing
    first = project.pytest(*arguments, "-x", "-v")
    assert first.status == 1
    assert first.outcomes() == {SMALL_IDS[0]: "PASSED", SMALL_IDS[1]: "FAILED"}
    assert "stopped early: stopping after 1 failures" in first.output
    again = project.pytest(*arguments, "--lf", "-v")
    assert again.outcomes() == {SMALL_IDS[1]: "FAILED"}
    assert again.status == 1
    both = project.pytest(*arguments, "--maxfail=2", "--tb=line")
    assert both.counts() == {"passed": 2, "failed": 2}
    assert "wrong: 1 of 400 values wrong" in both.output
    assert "Traceback" not in both.output
    assert f"[1/2] {PROBLEMS[0]}  1 ok, 1 wrong  best " in both.output


# ---- other people's tests ---------------------------------------------------------------------------

THEIR_TESTS = """
    import dataclasses
    import pytest
    from tile_oracle.kernel import parse_kernel_name

    asked = []

    def test_pair(problem, kernel, measure):
        first, second = measure(problem, kernel), measure(problem, kernel)
        assert first == second and first.ok and first.tflops > 1e-9
        assert (first.problem, first.kernel) == (problem, kernel)

    class TestClass:
        def test_the_pair_again(self, measure, kernel, problem):
            assert measure(problem, kernel).ok

    def test_problem(problem):
        assert problem.flops > 0

    def test_kernel(kernel):
        assert kernel.tile_m == 16

    @pytest.mark.parametrize("kernel", ["48x64x256_mem_intrawave_w1x1x1_wt6x16x1"])
    def test_kernel_of_their_own(problem, kernel, measure):
        own = parse_kernel_name("grouped_conv_forward_fp32_2d_" + kernel)
        assert measure(problem, own).ok

    def test_kernels_made_here(problem, measure):
        for tile_n in (16, 32):
            base = parse_kernel_name("grouped_conv_forward_fp32_2d_16x16x64_compv3_intrawave_w1x1x1_wt4x16x1")
            measured = measure(problem, dataclasses.replace(base, tile_n=tile_n))
            assert measured.kernel.tile_n == tile_n
            assert measured.status == "ok", measured.detail

    @pytest.mark.xfail(raises=ValueError, strict=True)
    def test_a_kernel_for_something_else(problem, measure):
        measure(problem, parse_kernel_name("grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave"))

    def test_nothing_of_ours():
        pass
"""


@pytest.fixture(scope="module")
def theirs(make_project: MakeProject) -> tuple[Project, Finished]:
    project = make_project()
    project.write("test_theirs.py", THEIR_TESTS)
    return project, project.pytest("test_theirs.py", "--problem-set", "small.csv", *TWO_KERNELS, "-v")


@pytest.mark.slow
def test_the_fixtures_serve_other_peoples_tests(theirs: tuple[Project, Finished]) -> None:
    _, finished = theirs
    assert finished.status == 0, finished.output
    outcomes = finished.outcomes()
    here = "test_theirs.py::"
    for problem in PROBLEMS[:2]:
        for kernel in KERNELS:
            assert outcomes[f"{here}test_pair[{problem}-{kernel}]"] == "PASSED"
            assert outcomes[f"{here}TestClass::test_the_pair_again[{problem}-{kernel}]"] == "PASSED"
        assert outcomes[f"{here}test_problem[{problem}]"] == "PASSED"
        own = "48x64x256_mem_intrawave_w1x1x1_wt6x16x1"
        assert {
            f"{here}test_kernel_of_their_own[{a}-{b}]" for a, b in ((problem, own), (own, problem))
        } & set(outcomes)
        assert outcomes[f"{here}test_kernels_made_here[{problem}]"] == "PASSED"
        assert outcomes[f"{here}test_a_kernel_for_something_else[{problem}]"] == "XFAIL"
    assert outcomes[f"{here}test_kernel[grouped_conv_forward_fp32_2d_{KERNELS[0]}]"] == "PASSED"
    assert outcomes[f"{here}test_nothing_of_ours"] == "PASSED"
    assert not any("tile_oracle::" in name for name in outcomes)


@pytest.mark.slow
def test_a_pair_is_measured_once_however_many_tests_ask(theirs: tuple[Project, Finished]) -> None:
    project, _ = theirs
    records = project.records()
    assert not records.duplicated(["problem", "kernel", "round"]).any()
    # 2 planned, 2 of their own; tile_n 16 is a planned kernel.
    assert len(records[records["round"] == 0]) == 2 * 4


@pytest.mark.slow
def test_kernels_of_their_own_are_resumed_too(theirs: tuple[Project, Finished]) -> None:
    project, _ = theirs
    before = project.records()
    resumed = project.pytest("test_theirs.py", "--problem-set", "small.csv", *TWO_KERNELS, "--resume")
    assert resumed.status == 0, resumed.output
    pd.testing.assert_frame_equal(project.records(), before)


def test_without_a_problem_set_they_are_skipped_with_the_reason(project: Project) -> None:
    project.write("test_theirs.py", THEIR_TESTS)
    finished = project.pytest("test_theirs.py", "-rs")
    assert finished.status == 0
    assert finished.counts()["passed"] == 1
    assert "needs --problem-set, e.g. pytest --problem-set forward_smoke" in finished.output


@pytest.mark.slow
def test_a_projects_own_fixtures_of_these_names_are_left_alone(project: Project) -> None:
    project.write(
        "test_mine.py",
        """
        import dataclasses
        import pytest

        class TestTheirs:
            @pytest.fixture
            def problem(self):
                return "a problem of mathematics"

            @pytest.fixture(params=["pop", "corn"])
            def kernel(self, request):
                return request.param

            def test_both(self, problem, kernel):
                assert (problem, kernel) in (("a problem of mathematics", k) for k in ("pop", "corn"))

        class TestBuiltUponOurs:
            @pytest.fixture
            def kernel(self, kernel):
                return dataclasses.replace(kernel, tile_n=32)

            def test_it(self, problem, kernel, measure):
                assert kernel.tile_n == 32
                assert measure(problem, kernel).ok

        @pytest.mark.parametrize("problem", [1, 2])
        def test_marked(problem):
            assert problem in (1, 2)

        @pytest.mark.parametrize("other, kernel", [(1, 2)], indirect=["kernel"])
        def test_marked_indirectly(other, kernel):
            assert (other, kernel) == (1, 2)
        """,
    )
    finished = project.pytest("test_mine.py", "--problem-set", "small.csv", *TWO_KERNELS, "-v")
    assert finished.status == 0, finished.output
    names = [name.removeprefix("test_mine.py::") for name in finished.outcomes()]
    assert [name for name in names if "BuiltUpon" not in name] == [
        "TestTheirs::test_both[pop]",
        "TestTheirs::test_both[corn]",
        "test_marked[1]",
        "test_marked[2]",
        "test_marked_indirectly[1-2]",
    ]
    assert len(names) == 9
    assert set(project.records()["tile_n"]) == {32}
    assert project.pytest("test_mine.py").counts() == {"passed": 5, "skipped": 1}


@pytest.mark.parametrize("name", ["problem", "kernel", "measure"])
def test_a_fixture_that_hides_one_of_the_sweep_is_named(project: Project, name: str) -> None:
    own = f"import pytest\n\n@pytest.fixture\ndef {name}():\n    return print\n"
    project.write("conftest.py", own)
    finished = project.pytest("--problem-set", "small.csv", *TWO_KERNELS)
    assert f"\na conftest or plugin hides the fixture {name}: rename it\n" in finished.output
    assert (finished.status, finished.counts()) == (2, {"error": 1})


# ---- the plugin and pytest --------------------------------------------------------------------------


def test_the_plugin_can_be_left_out(project: Project) -> None:
    project.write("test_plain.py", "def test_plain():\n    pass\n")
    finished = project.pytest("-p", "no:tile_oracle", "--problem-set", "small.csv")
    assert finished.status == 4
    assert "unrecognized arguments: --problem-set" in finished.output
    assert project.pytest("-p", "no:tile_oracle", "test_plain.py").counts() == {"passed": 1}


@pytest.mark.slow
def test_no_other_plugin_is_needed(project: Project) -> None:
    arguments = ("--problem-set", "small.csv", *TWO_KERNELS, "-k", "f1x1")
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    finished = project.pytest("-p", "tile_oracle.plugin", *arguments, environment=alone)
    assert finished.counts() == {"passed": 2, "deselected": 2}
    assert "plugins:" not in finished.output
    silent = [f"-pno:{name}" for name in ("terminal", "junitxml", "cacheprovider")]
    assert project.pytest(*arguments, *silent, "--resume").status == 0
    assert len(project.records().query("round == 0")) == 2


def test_an_unused_plugin_imports_nothing_heavy_and_is_not_rewritten(project: Project) -> None:
    """pytest rewrites the assertions of plugins: parsing 290 modules took as long as a whole replay."""
    project.write(
        "test_plain.py",
        """
        import sys

        def test_plain():
            heavy = {"pandas", "pyarrow", "lightgbm", "numpy"}
            heavy |= {"tile_oracle.session.session", "tile_oracle.kernel"}
            assert "tile_oracle.plugin" in sys.modules
            assert not heavy & sys.modules.keys()

        def test_then():
            import tile_oracle.kernel
            import tile_oracle.problem

            for module in (tile_oracle.kernel, tile_oracle.problem):
                assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
        """,
    )
    process = project.start("test_plain.py", "-p", "no:hypothesispytest")  # executed: a fork has it all
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output


# ---- mistakes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--problem-set", "forward_smok"], "is called 'forward_smok': did you mean forward_smoke?"),
        (["--problem-set", "bad.csv"], "bad.csv:2: "),
        (["--kernel-filter", "tile_m == 7"], "has no kernel for forward fp32 2D on cpu"),
        (["--criteria", "publishd"], "--criteria publishd is none of interval, published"),
        (["--model", "gemm_bf16_sm9"], "under models/; did you mean gemm_bf16_sm_90?"),
        (["--model", "rofline"], "under models/; did you mean roofline?"),
        (["--target", "gfx95O"], "replay; did you mean gfx950?"),
        (["--toolchain", "no-such-clang"], "toolchain 'no-such-clang' is not a program on this machine"),
        (["--isa", "mips"], "instruction set 'mips' is not known"),
        (["--run-name", "../escape"], "--run-name '../escape' is not a plain name"),
        (["-n2", "--dist=each"], "--dist each would measure every pair once a worker"),
    ],
)
def test_a_mistake_gives_one_clear_line(project: Project, arguments: list[str], message: str) -> None:
    project.write("bad.csv", "N,C,K,Hi,Wi,Y,X\n1,8,8,six,6,3,3\n")
    given = arguments if "--problem-set" in arguments else ["--problem-set", "small.csv", *arguments]
    finished = project.pytest("--kernel-set=tiny", *given)
    assert finished.status == 4
    (error,) = (line for line in finished.lines if line.startswith("ERROR: "))
    assert message in error
    assert "Traceback" not in finished.output
    assert not (project.folder / "escape").exists()


def test_an_unwritable_cache_ends_the_session_with_one_message(project: Project) -> None:
    project.write("a-file", "")
    finished = project.pytest("--problem-set", "small.csv", *TWO_KERNELS, "--build-dir", "a-file/below")
    assert finished.status == 2
    assert finished.counts() == {"failed": 1}
    assert "a-file/below cannot be written" in finished.output
    assert "Traceback" not in finished.output
