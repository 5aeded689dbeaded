"""What a library offers, in a file and in words, and which sources --kernels names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tile_oracle.errors import RecordError
from tile_oracle.libraries import ask
from tile_oracle.libraries.offers import Offer, Offers, ProblemOffers, load_offers, offers_file, save_offers
from tile_oracle.problem import problem_from_id

ONE, OTHER = "gemm-bf16-rcr-m5-n7-k24", "gemm-bf16-rcr-m9-n7-k24"
OFFERS = Offers(
    *("cublaslt", "/lib/libcublasLt.so.13", "13.1.0", "a GPU", "a driver"),
    {
        ONE: ProblemOffers((Offer("a7", "00", 0, 0), Offer("a1.tile=18", "01", 64)), "", 5, 1),
        OTHER: ProblemOffers(why_none="the library has no algorithm for it"),
    },
)


def test_a_file_holds_what_was_offered(tmp_path: Path) -> None:
    save_offers(tmp_path, OFFERS)
    found = load_offers(offers_file(tmp_path, "cublaslt"))
    assert found == OFFERS
    problem = problem_from_id(ONE)
    assert [one.short_name for one in found.kernels(problem)] == ["cublaslt.a7", "cublaslt.a1.tile=18"]
    assert [one.short_name for one in found.ranking(problem)] == ["cublaslt.a7"]
    offers_file(tmp_path, "cublaslt").write_text('{"library": 7}')
    with pytest.raises(RecordError, match="is no file of a library's offers"):
        load_offers(offers_file(tmp_path, "cublaslt"))


def test_what_is_left_out_is_said() -> None:
    assert OFFERS.describe() == (
        "cublaslt: 13.1.0, 2 of 5 algorithms that it accepts, 1 need more than 32 MiB of workspace, "
        "none for 1 of 2 problems (the library has no algorithm for it)"
    )


def test_a_child_that_says_nothing_is_silent_and_one_that_ended_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "_SILENT_S", 0.01)
    answers = tmp_path / "answers"
    answers.touch()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        assert ask._wait(child, answers)
        assert child.stdin is not None
        child.stdin.close()
        monkeypatch.setattr(ask, "_SILENT_S", 60.0)
        assert not ask._wait(child, answers)
