"""Sessions let Arrow allocate by malloc, and leave the choice to users who have made one."""

from __future__ import annotations

import gc
import os

import pytest

from tests.processes import run_python
from tile_oracle.process.collector import paused_collector

PROGRAM = """
import os
from tile_oracle.process.arrow_memory import keep_arrow_small
{before}
keep_arrow_small()
import pyarrow
print(pyarrow.default_memory_pool().backend_name, os.environ.get("ARROW_DEFAULT_MEMORY_POOL"))
"""


def printed(before: str = "", **environment: str) -> str:
    own = {k: v for k, v in os.environ.items() if not k.startswith("ARROW_")} | environment
    return str(run_python("-c", PROGRAM.format(before=before), env=own, check=True).stdout).strip()


def test_arrow_allocates_by_malloc_and_no_child_process_inherits_that() -> None:
    assert printed() == "system None"


@pytest.mark.parametrize("pool", ["mimalloc", "system"])
def test_a_user_s_own_choice_stays(pool: str) -> None:
    assert printed(ARROW_DEFAULT_MEMORY_POOL=pool) == f"{pool} {pool}"


def test_an_arrow_that_is_in_use_is_left_alone() -> None:
    assert printed("import pyarrow").split()[1] == "None"


def test_a_session_asks_before_anything_imports_arrow() -> None:
    program = """
import sys
import pytest
class Watch:
    def pytest_configure(self, config):
        import pyarrow
        print("POOL", pyarrow.default_memory_pool().backend_name)
    pytest_configure = pytest.hookimpl(trylast=True)(pytest_configure)
words = ["--problem-set=forward_smoke", "--kernel-set=tiny", "--target=cpu", "--collect-only", "-qq"]
pytest.main([*words, "-p", "no:cacheprovider"], plugins=[Watch()])
"""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("ARROW_", "PYTEST_"))}
    done = run_python("-c", program, env=own)
    assert "POOL system" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]


# Python's collector pauses and goes on.


def test_it_goes_on_afterwards_also_after_an_error() -> None:
    def fails() -> None:
        with paused_collector():
            assert not gc.isenabled()
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert gc.isenabled()


def test_a_collector_that_the_user_has_stopped_stays_so() -> None:
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
