"""Lists of kernel names: those of tile-oracle's families and those in Triton, for sessions and builds."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tile_oracle.cli import main
from tile_oracle.errors import RuleError
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.pool import list_of_kernels, sources_of_list
from tile_oracle.session.kernels_option import read_kernels

OWN = "gemm_bf16_rcr_mem_cshuffle_intrawave_True_True_True_False_128x128x64_4x4x1_32x32x16"
IN_TRITON = (
    "gemm_bf16_rcr_triton.few_rows.BLOCK_K=512.BLOCK_N=8.ROWS=2.STAGES=4.num_warps=4",
    "gemm_bf16_rcr_triton.persistent.BLOCK_K=64.BLOCK_M=64.BLOCK_N=128.GROUP_M=8.num_stages=5.num_warps=4",
)
OF_LIBRARY = "gemm_bf16_rcr_cublaslt.a66.stages=36.tile=20"


def write_list(folder: Path, *names: str) -> Path:
    path = folder / "few.json"
    path.write_text(json.dumps({"arch": ["sm_90"], "kernels": names}))
    return path


def test_a_list_narrows_kernels_in_triton_only_if_it_names_some(tmp_path: Path) -> None:
    pool = tuple(map(parse_kernel_name, IN_TRITON))
    mixed = list_of_kernels(str(write_list(tmp_path, OWN, IN_TRITON[1])))
    assert [kind.op for kind in mixed.kinds] == ["gemm"]
    assert mixed.narrowed(pool) == pool[1:]
    assert list_of_kernels(str(write_list(tmp_path, OWN))).narrowed(pool) == pool
    assert list_of_kernels("default").narrowed(pool) == pool


@pytest.mark.parametrize(
    ("names", "sources"),
    [((OWN,), (True, False)), (IN_TRITON, (False, True)), ((OWN, *IN_TRITON), (True, True))],
)
def test_a_list_says_which_sources_it_needs(
    tmp_path: Path, names: tuple[str, ...], sources: tuple[bool, bool]
) -> None:
    assert sources_of_list(str(write_list(tmp_path, *names))) == sources


def test_a_missing_list_is_refused_where_its_kernels_are_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing.json")
    assert sources_of_list(missing) == (True, False)
    assert main(["kernels", "--kernels", missing, "--arch", "sm_90"]) == 2
    assert "there is no such file" in capsys.readouterr().err


def test_a_librarys_algorithm_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"kernels\[1\].* is a library's algorithm"):
        list_of_kernels(str(write_list(tmp_path, OWN, OF_LIBRARY)))


@pytest.mark.parametrize(
    ("names", "given", "sources", "text"),
    [
        ((OWN,), "{}", ("native",), ""),
        (IN_TRITON, "{}", ("triton",), ""),
        ((OWN, *IN_TRITON), "{}", ("native", "triton"), "native,triton"),
        ((OWN, *IN_TRITON), "{},mine.py", ("native", "triton={here}/mine.py"), "native,triton=mine.py"),
        (IN_TRITON, "{},cublaslt", ("triton",), "triton,cublaslt"),
    ],
)
def test_a_session_gets_the_sources_of_the_listed_kernels(
    tmp_path: Path, names: tuple[str, ...], given: str, sources: tuple[str, ...], text: str
) -> None:
    path = write_list(tmp_path, *names)
    found = read_kernels(given.format(path), tmp_path)
    assert found.kernel_set == str(path)
    assert found.sources == tuple(one.format(here=tmp_path) for one in sources)
    assert found.text == text


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.slow
def test_a_list_of_both_builds_two_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_list(tmp_path, OWN, *IN_TRITON)
    built = [tmp_path / "native", tmp_path / "triton"]
    assert main(["build", "-o", str(built[0]), "--arch", "sm_90", "--kernels", str(path)]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "in Triton" in line)
    assert line.startswith(f"2 of {path} are in Triton")
    command = line.partition(": ")[2].replace("DIR", str(built[1])).split()
    assert main(command[1:]) == 0
    assert "2 kernels built" in capsys.readouterr().out
    assert (
        main(["kernels", "--kernels", "triton", "--kernel-set", str(path), "--arch", "sm_90", "--list"]) == 0
    )
    assert sorted(capsys.readouterr().out.split()) == sorted(IN_TRITON)
    folders = ",".join([str(path), *map(str, built)])
    assert read_kernels(folders, tmp_path).sources == (f"native={built[0]}", f"triton={built[1]}")
