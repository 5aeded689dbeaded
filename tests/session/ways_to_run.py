"""Ways to run pytest on a recorded problem set, and how each ends (docs/gate.md).

The set's sweep passes when pytest is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
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


WAYS = (
    # ---- passed ----
    Way("no further option", 0, "passed", is_quick=True),
    Way("`-n 2`", 0, "passed", "-n 2"),
    Way("`-x`, `--maxfail=1`, `--sw`, `--ff`", 0, "passed", "-x --maxfail=1 --sw --ff"),
    Way("`-q`, `-rA`, `--durations=3`, `-s`, `--tb=no`", 0, "passed", "-q -rA --durations=3 -s --tb=no"),
    Way("`-W error`, `--strict-markers`", 0, "passed", "-W error --strict-markers"),
    Way("`--runxfail`", 0, "passed", "--runxfail"),
    Way("`--lf`, and nothing failed before", 0, "passed", "--lf"),
    Way("`tests`: the sweep runs beside the project's tests", 0, "passed", "tests", is_quick=True),
    Way("`tests -n 2`", 0, "passed", "tests -n 2"),
    Way("`tests tile_oracle`", 0, "passed", "tests tile_oracle"),
    Way("`tile_oracle::verdict[mean]`", 0, "passed", "tile_oracle::verdict[mean]"),
    Way("`testpaths` in pytest.ini: the sweep alone", 0, "passed", ini=f"{INI}testpaths = tests\n"),
    Way("`python_functions` in pytest.ini", 0, "passed", ini=f"{INI}python_functions = check_*\n"),
    Way("`PYTEST_ADDOPTS=tests`", 0, "passed", environment={"PYTEST_ADDOPTS": "tests"}),
    Way("`@FILE` with the options", 0, "passed", "@more.txt"),
    Way("`-p no:cacheprovider`, `-p no:xdist`", 0, "passed", "-p no:cacheprovider -p no:xdist"),
    Way("`-p no:benchmark`, `-p no:skipping`", 0, "passed", "-p no:benchmark -p no:skipping"),
    Way("`--noconftest`, and a conftest that skips all", 0, "passed", "--noconftest", ALL_SKIPPED),
    Way("`--baseline-dir=new --update-baseline`", 0, "passed", "--baseline-dir=new --update-baseline"),
    Way("`--model none`", 0, "passed", "--model none"),
    # ---- allowed by name ----
    Way(
        "`--benchmark-only --allow nothing-measured`",
        0,
        "nothing-measured",
        "--benchmark-only --allow nothing-measured",
        is_quick=True,
    ),
    Way("`-k PROBLEM --allow incomplete`", 0, "incomplete", "-k PROBLEM --allow incomplete"),
    Way(
        "`--baseline-dir=none --allow no-baseline`",
        0,
        "no-baseline",
        "--baseline-dir=none --allow no-baseline",
    ),
    # ---- pytest is asked to show something ----
    Way("`--collect-only -q`", 0, "nothing-measured", "--collect-only -q", is_quick=True),
    Way("`--setup-plan`", 0, "nothing-measured", "--setup-plan"),
    Way("`--fixtures`", 0, "nothing-measured", "--fixtures"),
    Way("`--help`", 0, "", "--help"),
    Way("`--markers`", 0, "", "--markers"),
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
    # ---- no verdict ----
    Way("`--baseline-dir=none`", 10, "no-baseline", "--baseline-dir=none"),
    Way(
        "`--baseline-dir=none`, and a conftest that sets the session's status to 0",
        10,
        "no-baseline",
        "--baseline-dir=none",
        SETS_ZERO,
        is_quick=True,
    ),
    # ---- a part ----
    Way("`-k PROBLEM`", 12, "incomplete", "-k PROBLEM"),
    Way("`tile_oracle::test_problem[PROBLEM]`", 12, "incomplete", "tile_oracle::test_problem[PROBLEM]"),
    Way(
        "`--deselect tile_oracle::test_problem[PROBLEM]`",
        12,
        "incomplete",
        "--deselect tile_oracle::test_problem[PROBLEM]",
    ),
    Way("`--shard 1/2`", 12, "incomplete", "--shard 1/2"),
    Way("`--pairs` of one pair", 14, "incomplete nothing-judged", "--pairs=one.csv"),
    Way(
        "a conftest that marks every second test with skip", 12, "incomplete", "", HALF_SKIPPED, is_quick=True
    ),
    Way("the same, `-n 2`", 12, "incomplete", "-n 2", HALF_SKIPPED),
    Way("the same, `--model none`", 12, "incomplete", "--model none", HALF_SKIPPED),
    Way("a conftest that removes every second test", 12, "incomplete", "", HALF_GONE),
    Way(
        "a conftest that calls `pytest.exit(returncode=0)` after a test",
        12,
        "incomplete",
        "",
        ENDS_IN_SWEEP,
    ),
    Way("`tests`, which measure one problem themselves", 12, "incomplete", "tests -k PROBLEM", own=MEASURES),
    # ---- nothing ----
    Way("`--benchmark-only -n 2`", 16, "nothing-measured", "--benchmark-only -n 2", is_quick=True),
    Way(
        "`PYTEST_ADDOPTS=--benchmark-only`",
        16,
        "nothing-measured",
        environment={"PYTEST_ADDOPTS": "--benchmark-only"},
    ),
    Way(
        "`PYTEST_ADDOPTS=--collect-only`",
        16,
        "nothing-measured",
        environment={"PYTEST_ADDOPTS": "--collect-only"},
        is_quick=True,
    ),
    Way(
        "`addopts = --setup-plan` in pytest.ini", 16, "nothing-measured", ini=f"{INI}addopts = --setup-plan\n"
    ),
    Way("`--setup-only`", 16, "nothing-measured", "--setup-only"),
    Way("`-k no_such_name`", 16, "nothing-measured", "-k no_such_name"),
    Way("`-m no_such_mark`", 16, "nothing-measured", "-m no_such_mark"),
    Way("`tests -m no_such_mark`", 16, "nothing-measured", "tests -m no_such_mark"),
    Way("`--deselect tile_oracle`", 16, "nothing-measured", "--deselect tile_oracle"),
    Way("`--lf --lfnf=none`", 16, "nothing-measured", "--lf --lfnf=none", before=""),
    Way(
        "`tests --lf`, after a session in which only one of the project's tests failed",
        16,
        "nothing-measured",
        "tests --lf",
        before="tests",
        first=FAILING,
    ),
    Way("a conftest that marks every test with skip", 16, "nothing-measured", "", ALL_SKIPPED),
    Way("the same, `-n 2`", 16, "nothing-measured", "-n 2", ALL_SKIPPED),
    Way("the same, `--model none`", 16, "nothing-measured", "--model none", ALL_SKIPPED),
    Way("an autouse fixture that skips", 16, "nothing-measured", "", SKIPS_BY_FIXTURE),
    Way("a conftest that marks every test with xfail, not to be run", 16, "nothing-measured", "", NOT_RUN),
    Way("a conftest that removes every test", 16, "nothing-measured", "", ALL_GONE),
    Way("a conftest that runs no test (`pytest_runtest_protocol`)", 16, "nothing-measured", "", NO_PROTOCOL),
    Way("a conftest that sets `collectonly`", 16, "nothing-measured", "", COLLECTS_ONLY),
    Way(
        "a conftest that calls `pytest.exit(returncode=0)` at the session's start",
        16,
        "nothing-measured",
        "",
        ENDS_AT.format(hook="pytest_sessionstart"),
    ),
    Way(
        "the same, when pytest is configured",
        16,
        "nothing-measured",
        "",
        ENDS_AT.format(hook="pytest_configure"),
    ),
)
