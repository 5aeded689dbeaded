"""A sample of the campaign of lies in files from elsewhere; and its judge."""

from __future__ import annotations

import pytest

from tools.faults.good_files import FORMATS
from tools.faults.lies import run, told


@pytest.mark.slow
def test_no_lie_of_a_sample_is_believed() -> None:
    outcome = run(count=len(FORMATS), seed=11)
    assert not outcome.failures
    assert sum(outcome.counts.values()) == outcome.sizes["different lies"] == len(FORMATS)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_what_says_nothing_is_believed(form) -> None:
    """Else each lie in it would be refused for another reason."""
    assert told(form, {"weather": "fine"}) == "believed"
