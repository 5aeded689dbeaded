"""Ways to run pytest on a recorded problem set, and how each ends (docs/gate.md).

The set's sweep passes when pytest is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

OWN = "def test_own():\n    pass\n"
FAILING = "def test_own():\n    assert False\n"
_SKIP = "import pytest\ndef pytest_collection_modifyitems(items):\n    for item in {items}:\n        {do}\n"
ALL_SKIPPED = _SKIP.format(items="items", do="item.add_marker(pytest.mark.skip(reason='needs --slow'))")
HALF_SKIPPED = _SKIP.format(items="items[::2]", do="item.add_marker(pytest.mark.skip(reason='needs --slow'))")
NOT_RUN = _SKIP.format(items="items", do="item.add_marker(pytest.mark.xfail(run=False))")
HALF_GONE = _SKIP.format(items="items[::2]", do="items.remove(item)")
ALL_GONE = "def pytest_collection_modifyitems(items):\n    items.clear()\n"
SKIPS_BY_FIXTURE = (
    "import pytest\n@pytest.fixture(autouse=True)\ndef no_gpu():\n    pytest.skip('no GPU here')\n"
)
NO_PROTOCOL = "def pytest_runtest_protocol(item):\n    return True\n"
ENDS_AT = "import pytest\ndef {hook}():\n    pytest.exit('no GPU here', returncode=0)\n"
SETS_ZERO = (
    "import pytest\n@pytest.hookimpl(trylast=True)\n"
    "def pytest_sessionfinish(session):\n    session.exitstatus = 0\n"
)
EXITS = "import sys\nsys.exit(0)\n"
EXITS_AT_VERDICT = (
    "import sys\ndef pytest_runtest_logfinish(nodeid):\n    'verdict' in nodeid and sys.exit(0)\n"
)
COLLECTS_ONLY = "def pytest_configure(config):\n    config.option.collectonly = True\n"
STOPS = "def test_own():\n    raise KeyboardInterrupt\n"
ENDS_IN_SWEEP = """
import pytest

class Ends:
    ended = False

    def pytest_runtest_logfinish(self):
        if not self.ended:
            self.ended = True
            pytest.exit("no time left", returncode=0)

def pytest_configure(config):
    config.pluginmanager.register(Ends())
"""
MEASURES = (
    "def test_one_kernel(problem, replayed):\n    assert len(replayed(problem)) > 1\n\n"
    "def test_of_a_pair(problem, kernel, measure):\n    measure(problem, kernel)\n"
)
INI = "[pytest]\n"


@dataclass(frozen=True)
class Way:
    """How pytest is run, in words for the table; status and outcomes (of --report-json; none where pytest
    ends before a session). PROBLEM in the arguments is a problem of the set. before: a session that runs
    first, with `first` as test of the project."""

    said: str
    status: int
    outcomes: str
    arguments: str = ""
    conftest: str = ""
    own: str = OWN
    ini: str = INI
    environment: Mapping[str, str] = field(default_factory=dict)
    before: str | None = None
    first: str = OWN
    is_quick: bool = False


def _ending(status: int, outcomes: str) -> Callable[..., Way]:
    """Make ways that end so, from what is said of them, arguments, conftest and further fields."""
    return lambda said, *given, **fields: Way(said, status, outcomes, *given, **fields)


_passed, _incomplete = _ending(0, "passed"), _ending(12, "incomplete")
_shown, _printed, _nothing = _ending(0, "nothing-measured"), _ending(0, ""), _ending(16, "nothing-measured")

WAYS: tuple[Way, ...] = (
    # ---- passed ----
    _passed("no further option", is_quick=True),
    _passed("`-n 2`", "-n 2"),
    _passed("`-x`, `--maxfail=1`, `--sw`, `--ff`", "-x --maxfail=1 --sw --ff"),
    _passed("`-q`, `-rA`, `--durations=3`, `-s`, `--tb=no`", "-q -rA --durations=3 -s --tb=no"),
    _passed("`-W error`, `--strict-markers`", "-W error --strict-markers"),
    _passed("`--runxfail`", "--runxfail"),
    _passed("`--lf`, and nothing failed before", "--lf"),
    _passed("`tests`: the sweep runs beside the project's tests", "tests"),
    _passed("`tests -n 2`", "tests -n 2"),
    _passed("`tests tile_oracle`", "tests tile_oracle"),
    _passed("`tile_oracle::verdict[mean]`", "tile_oracle::verdict[mean]"),
    _passed("`testpaths` in pytest.ini: the sweep alone", ini=f"{INI}testpaths = tests\n"),
    _passed("`python_functions` in pytest.ini", ini=f"{INI}python_functions = check_*\n"),
    _passed("`PYTEST_ADDOPTS=tests`", environment={"PYTEST_ADDOPTS": "tests"}),
    _passed("`@FILE` with the options", "@more.txt"),
    _passed("`-p no:cacheprovider`, `-p no:xdist`", "-p no:cacheprovider -p no:xdist"),
    _passed("`-p no:benchmark`, `-p no:skipping`", "-p no:benchmark -p no:skipping"),
    _passed("`--noconftest`, and a conftest that skips all", "--noconftest", ALL_SKIPPED),
    _passed("`--baseline-dir=new --update-baseline`", "--baseline-dir=new --update-baseline"),
    _passed("`--model none`", "--model none"),
    # ---- allowed by name ----
    _shown("`--benchmark-only --allow nothing-measured`", "--benchmark-only --allow nothing-measured"),
    Way("`-k PROBLEM --allow incomplete`", 0, "incomplete", "-k PROBLEM --allow incomplete"),
    Way(
        "`--baseline-dir=none --allow no-baseline`",
        0,
        "no-baseline",
        "--baseline-dir=none --allow no-baseline",
    ),
    # ---- pytest is asked to show something ----
    _shown("`--collect-only -q`", "--collect-only -q"),
    _shown("`--setup-plan`", "--setup-plan"),
    _shown("`--fixtures`", "--fixtures"),
    _printed("`--help`", "--help"),
    _printed("`--markers`", "--markers"),
    # ---- a test failed ----
    Way("`tests`, and one of the project's tests fails", 1, "failed", "tests", own=FAILING),
    Way("`tests -x`, and it fails", 1, "failed incomplete", "tests -x", own=FAILING),
    Way("`tests -x -n 2`, and it fails", 2, "failed incomplete", "tests -x -n 2", own=FAILING),
    Way("`tests --sw`, and it fails", 2, "failed nothing-measured", "tests --sw", own=FAILING),
    Way(
        "`tests --continue-on-collection-errors`, and a file cannot be imported",
        1,
        "failed",
        "tests --continue-on-collection-errors",
        own="import no_such_module\n",
    ),
    # ---- pytest's own ----
    Way(
        "`tests`, and a file cannot be imported",
        2,
        "failed nothing-measured",
        "tests",
        own="import no_such_module\n",
    ),
    Way("Ctrl-C in one of the project's tests", 2, "nothing-measured", "tests", own=STOPS),
    Way("a path that is not there", 4, "nothing-measured", "no_such_tests"),
    Way("`--dist each -n 2`", 4, "", "--dist each -n 2"),
    Way("`-p no:tile_oracle`", 4, "", "-p no:tile_oracle"),
    Way("`PYTEST_ADDOPTS=--help`", 4, "", environment={"PYTEST_ADDOPTS": "--help"}, is_quick=True),
    Way("`addopts = -h` in pytest.ini", 4, "", ini=f"{INI}addopts = -h\n"),
    # ---- no verdict ----
    Way("`--baseline-dir=none`", 10, "no-baseline", "--baseline-dir=none"),
    Way(
        "`--baseline-dir=none`, and a conftest that sets the session's status to 0",
        10,
        "no-baseline",
        "--baseline-dir=none",
        SETS_ZERO,
    ),
    # ---- a part ----
    _incomplete("`-k PROBLEM`", "-k PROBLEM"),
    _incomplete("`tile_oracle::test_problem[PROBLEM]`", "tile_oracle::test_problem[PROBLEM]"),
    _incomplete(
        "`--deselect tile_oracle::test_problem[PROBLEM]`", "--deselect tile_oracle::test_problem[PROBLEM]"
    ),
    _incomplete("`--shard 1/2`", "--shard 1/2"),
    Way("`--pairs` of one pair", 14, "incomplete nothing-judged", "--pairs=one.csv"),
    _incomplete("a conftest that marks every second test with skip", "", HALF_SKIPPED, is_quick=True),
    _incomplete("the same, `-n 2`", "-n 2", HALF_SKIPPED),
    _incomplete("the same, `--model none`", "--model none", HALF_SKIPPED),
    _incomplete("a conftest that removes every second test", "", HALF_GONE),
    _incomplete("a conftest that calls `pytest.exit(returncode=0)` after a test", "", ENDS_IN_SWEEP),
    _incomplete("`tests`, which measure one problem themselves", "tests -k PROBLEM", own=MEASURES),
    # ---- nothing ----
    _nothing("`--benchmark-only -n 2`", "--benchmark-only -n 2"),
    _nothing("`PYTEST_ADDOPTS=--benchmark-only`", environment={"PYTEST_ADDOPTS": "--benchmark-only"}),
    _nothing(
        "`PYTEST_ADDOPTS=--collect-only`", environment={"PYTEST_ADDOPTS": "--collect-only"}, is_quick=True
    ),
    _nothing("`addopts = --setup-plan` in pytest.ini", ini=f"{INI}addopts = --setup-plan\n"),
    _nothing("`--setup-only`", "--setup-only"),
    _nothing("`-k no_such_name`", "-k no_such_name"),
    _nothing("`-m no_such_mark`", "-m no_such_mark"),
    _nothing("`tests -m no_such_mark`", "tests -m no_such_mark"),
    _nothing("`--deselect tile_oracle`", "--deselect tile_oracle"),
    _nothing("`--lf --lfnf=none`", "--lf --lfnf=none", before=""),
    _nothing(
        "`tests --lf`, after a session in which only one of the project's tests failed",
        "tests --lf",
        before="tests",
        first=FAILING,
    ),
    _nothing("a conftest that marks every test with skip", "", ALL_SKIPPED),
    _nothing("the same, `-n 2`", "-n 2", ALL_SKIPPED),
    _nothing("the same, `--model none`", "--model none", ALL_SKIPPED),
    _nothing("an autouse fixture that skips", "", SKIPS_BY_FIXTURE),
    _nothing("a conftest that marks every test with xfail, not to be run", "", NOT_RUN),
    _nothing("a conftest that removes every test", "", ALL_GONE),
    _nothing("a conftest that runs no test (`pytest_runtest_protocol`)", "", NO_PROTOCOL),
    Way("a conftest that calls `sys.exit(0)`", 16, "", "", EXITS, is_quick=True),
    _nothing("the same, when a verdict is reported", "", EXITS_AT_VERDICT),
    _nothing("`-o addopts=--collect-only`", "-o addopts=--collect-only"),
    _nothing("a conftest that sets `collectonly`", "", COLLECTS_ONLY),
    _nothing(
        "a conftest that calls `pytest.exit(returncode=0)` at the session's start",
        "",
        ENDS_AT.format(hook="pytest_sessionstart"),
    ),
    _nothing("the same, when pytest is configured", "", ENDS_AT.format(hook="pytest_configure")),
)
