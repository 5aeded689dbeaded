"""Options in an environment that is shared: nobody's option collides with one of the plugin's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pytest_project import Project
from tests.samples import ONE_AND_TWO_WORKERS, sampled
from tests.session.recorded import SET, Recorded
from tile_oracle.session.option_names import OPENING, PREFIX, in_full
from tile_oracle.session.options import OPTIONS

OPTIONS_OF_OTHERS = "def pytest_addoption(parser):\n" + "".join(
    f"    parser.addoption('--{name}', action='store_true')\n"
    if option.is_flag
    else f"    parser.addoption('--{name}', default='theirs')\n"
    for name, option in OPTIONS.items()
)
"""A conftest or plugin that has every option of ours."""
TARGET_OF_OTHERS = "def pytest_addoption(parser):\n    parser.addoption('--target', default='esp32')\n"
OWN = "def test_own(request):\n    assert request.config.getoption('--target') == '{value}'\n"
LONG = (f"{PREFIX}problem-set={SET}", f"{PREFIX}target=replay", f"{PREFIX}allow=no-baseline")
SHORT = ("--problem-set", SET, "--target", "replay", "--allow", "no-baseline")


@pytest.fixture
def bare(recorded: Recorded) -> Project:
    """The project without conftest, tests and configuration."""
    for name in ("conftest.py", "others.py", "test_own.py", "pyproject.toml", "args.txt"):
        (recorded.project.folder / name).unlink(missing_ok=True)
    recorded.project.write("pytest.ini", "[pytest]\n")
    return recorded.project


@pytest.mark.parametrize("asked", [(), ("-p", "others")], ids=["conftest", "plugin"])
def test_a_plain_run_is_not_ended_by_options_of_others(bare: Project, asked: tuple[str, ...]) -> None:
    bare.write("others.py" if asked else "conftest.py", OPTIONS_OF_OTHERS)
    bare.write("test_own.py", OWN.format(value="theirs"))
    done = bare.pytest(*asked, "test_own.py")
    assert (done.status, done.counts()) == (0, {"passed": 1}), done.output
    own = bare.pytest(*asked, "--target=mine", "--oracle=db", "--problem-set=p", "--resume", "test_own.py")
    assert own.status == 1
    assert "'mine' == 'theirs'" in own.output


@pytest.mark.slow
@pytest.mark.parametrize("asked", [(), ("-p", "others")], ids=["conftest", "plugin"])
@pytest.mark.parametrize("more", ONE_AND_TWO_WORKERS)
def test_the_long_spelling_always_works(bare: Project, asked: tuple[str, ...], more: tuple[str, ...]) -> None:
    bare.write("others.py" if asked else "conftest.py", OPTIONS_OF_OTHERS)
    bare.write("test_own.py", OWN.format(value="mine"))
    done = bare.pytest(*asked, *LONG, "--target=mine", *more, "test_own.py")
    assert (done.status, done.counts()["passed"]) == (0, 13), done.output


@pytest.mark.parametrize("way", sampled(["PYTEST_ADDOPTS", "pytest.ini", "pyproject.toml", "@FILE"], every=4))
def test_short_names_work_wherever_options_are_given(bare: Project, way: str) -> None:
    environment = {}
    arguments: tuple[str, ...] = SHORT
    if way == "PYTEST_ADDOPTS":
        environment, arguments = {way: " ".join(SHORT)}, ()
    elif way == "pytest.ini":
        bare.write(way, f"[pytest]\naddopts = {' '.join(SHORT)}\n")
        arguments = ()
    elif way == "@FILE":
        bare.write("args.txt", "\n".join(SHORT))
        arguments = ("@args.txt",)
    else:
        (bare.folder / "pytest.ini").unlink()
        table = '[tool.pytest.ini_options]\n[tool.tile-oracle]\ntarget = "replay"\nallow = ["no-baseline"]\n'
        bare.write(way, f"{table}cold-cache = true\nfirst = 2\n")  # which a replay does not read
        arguments = ("--problem-set", SET)
    done = bare.pytest(*arguments, "-q", environment=environment)
    assert (done.status, done.counts()["passed"]) == (0, 12), done.output
    assert "cold" not in done.output  # nor in the name of the baseline


def test_values_are_no_files_of_tests_and_need_a_session(bare: Project) -> None:
    """pytest loads the conftests of the files that are named, and those of `testpaths` if none are."""
    bare.write("pytest.ini", "[pytest]\ntestpaths = deep\n")
    bare.write("deep/conftest.py", "def pytest_report_header():\n    return 'the conftest of testpaths'\n")
    assert "the conftest of testpaths" in bare.pytest(*SHORT).output
    done = bare.pytest("--target", "cpu")
    assert done.status == pytest.ExitCode.USAGE_ERROR
    assert "tile-oracle: --target: only in sessions, with --problem-set or --oracle" in done.output
    assert "did you mean: --kernel-filter" in bare.pytest(*SHORT, "--kernel-filtr=x").output


def test_help_shows_how_options_are_given_and_shared_names_are_refused(bare: Project) -> None:
    whole = bare.pytest("--help").output
    plain = whole[whole.index("\ntile-oracle: does the model") :]
    assert all(f"\n  --{name}" in plain for name in OPTIONS)
    bare.write("conftest.py", TARGET_OF_OTHERS)
    shared = bare.pytest("--help").output
    assert "\n  --tile-oracle-target=NAME" in shared
    assert "\n  --model=MODEL" in shared
    bare.write("conftest.py", TARGET_OF_OTHERS)
    done = bare.pytest(*SHORT)
    assert done.status == pytest.ExitCode.USAGE_ERROR
    said = "--target is also an option of another plugin or conftest: --tile-oracle-target is tile-oracle's"
    (line,) = filter(None, done.lines)
    assert line.startswith(f"ERROR: {said}")


words = st.sampled_from([*(f"--{name}" for name in OPTIONS), "--target=x", "-k", "tests", "--", "--x"])


@given(st.lists(words))
def test_arguments_are_respelt_once_and_up_to_the_separator(args: list[str]) -> None:
    found = in_full(args)
    assert in_full(found) == found
    assert len(found) == len(args)
    end = args.index("--") if "--" in args else len(args)
    assert found[end:] == args[end:]
    for before, after in zip(args[:end], found, strict=False):
        ours = before.startswith("--") and before.partition("=")[0][2:] in OPTIONS
        assert after == (PREFIX + before[2:] if ours else before)


def test_two_options_open_a_session() -> None:
    assert set(OPENING) == {"problem-set", "oracle"}
