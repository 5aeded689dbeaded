"""What a user's file declares becomes data in a child process; what is wrong with it becomes one line."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from tests.compiling.triton.conftest import COPY, HEAD
from tests.processes import run_python
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.source_providers import open_kernel_source
from tile_oracle.compiling.triton.description import describe_file, read_description
from tile_oracle.compiling.triton.kernel_source import TritonSource, open_triton
from tile_oracle.errors import BuildError
from tile_oracle.operation import Kind
from tile_oracle.operations.gemm.problem import GemmProblem

KIND = Kind.of("gemm", dtype="bf16", layout="rcr")


def test_a_file_becomes_a_pool_and_this_process_imports_none_of_it(copy_file: Path) -> None:
    source = open_triton("sm_90", str(copy_file))
    (kernel,) = source.pool(KIND)
    assert kernel.name == "gemm_bf16_rcr_triton.copy.BLOCK=64.num_stages=3.num_warps=4"
    assert source.kinds == (KIND,)
    assert source.notes_on({"softmax"}) == ()
    assert source.notes_on({"gemm"}) == (
        "1 configuration of copy left out: waves_per_eu is neither an argument of it nor an option for sm_90",
    )
    unit = json.loads(source.unit(kernel))
    assert unit["launches"][0]["arguments"][2:] == [["M", "i32", "M"], ["N", "i32", "N"]]
    assert unit["launches"][0]["constants"] == {"BLOCK": 64}
    assert "triton" not in sys.modules
    assert copy_file.stem not in sys.modules
    amd = open_triton("gfx950", str(copy_file))
    assert [one.short_name.rpartition(".waves")[0] != "" for one in amd.pool(KIND)] == [False, True]
    assert amd.identity != source.identity


@pytest.mark.slow
def test_imported_files_beside_it_belong_to_its_identity(copy_file: Path) -> None:
    (copy_file.parent / "sizes.py").write_text("BLOCKS = [64]\n")
    head = HEAD + "from sizes import BLOCKS\n"
    copy_file.write_text(head + COPY)
    before = describe_file(copy_file, "sm_90")
    assert [name for name, _ in before.headers.files] == ["copying.py", "sizes.py"]
    (copy_file.parent / "sizes.py").write_text("BLOCKS = [64, 128]\n")
    assert describe_file(copy_file, "sm_90").told.identity != before.told.identity


@pytest.mark.slow
def test_constraints_become_refusals_with_their_texts(copy_file: Path) -> None:
    declared = COPY.replace(
        'layouts=["rcr"])',
        'layouts=["rcr"],\n      constraints=lambda p, meta: '
        '[p.K % meta["BLOCK"] == 0, (p.N < 4096, "N is short")])',
    )
    copy_file.write_text(HEAD + declared)
    source = open_triton("sm_90", str(copy_file))
    (kernel,) = source.pool(KIND)

    def why(n: int, k: int, split_k: int = 1) -> str | None:
        return source.refusal(kernel, GemmProblem("bf16", "rcr", 8, n, k, split_k))

    assert why(4095, 128) is None
    assert why(4095, 100) == "constraint: (K % 64) == 0"
    assert why(4096, 128) == "constraint: N is short"
    assert why(8, 128, split_k=2) == "constraint: it does not split the depth itself"


PRUNING = """
def prune(configs, named_args, **kwargs):
    assert named_args["a_ptr"].element_size() == 2 and named_args["a_ptr"].shape == (named_args["M"], 128)
    return [one for one in configs if one.kwargs["BLOCK"] <= named_args["M"]]
"""


@pytest.mark.slow
def test_pruning_functions_are_asked_for_each_problem(copy_file: Path, tmp_path: Path) -> None:
    by = '    key=["M"],\n    prune_configs_by={"early_config_prune": prune},\n'
    copy_file.write_text(HEAD + PRUNING + COPY.replace('    key=["M"],\n', by))
    source = open_triton("gfx950", str(copy_file))
    problems = [GemmProblem("bf16", "rcr", m, 64, 128) for m in (64, 100, 128)]
    source.expect(problems)
    small, large = source.pool(KIND)
    assert [source.refusal(small, one) for one in problems] == [None] * 3
    assert [source.refusal(large, one) is None for one in problems] == [False, False, True]
    assert source.refusal(large, problems[0]) == (
        "constraint: the pruning function of copy drops it for this problem"
    )
    source.describe_in(tmp_path)
    again = TritonSource(read_description(tmp_path, "gfx950"), prebuilt_only=True)
    again.expect(problems)
    assert again.refusal(large, problems[0]) is not None, "a folder remembers what was asked when it was made"
    copy_file.write_text(
        HEAD + PRUNING.replace("element_size", "no_such") + COPY.replace('    key=["M"],\n', by)
    )
    broken = open_triton("gfx950", str(copy_file))
    with pytest.raises(BuildError, match=r"^copying\.py:6: AttributeError: .*no_such"):
        broken.expect(problems)


@pytest.mark.slow
def test_a_folder_is_opened_without_the_file(copy_file: Path, tmp_path: Path) -> None:
    source = open_triton("sm_90", str(copy_file))
    folder = tmp_path / "folder"
    folder.mkdir()
    source.describe_in(folder)
    again = TritonSource(read_description(folder, "sm_90"), prebuilt_only=True)
    assert again.pool(KIND) == source.pool(KIND)
    assert again.identity == source.identity
    assert again.unit(again.pool(KIND)[0]) == source.unit(source.pool(KIND)[0])
    with pytest.raises(BuildError, match=r"only the kernels of the folder are there: pip install"):
        again.find_toolchain("auto")
    with pytest.raises(BuildError, match="holds kernels for sm_90, not for gfx950"):
        read_description(folder, "gfx950")
    (folder / "triton.json").write_text("{}")
    with pytest.raises(BuildError, match=r"triton\.json: .*missing required field"):
        read_description(folder, "sm_90")


CASES = {
    "syntax": ("def f(:\n", r"^copying\.py:4: SyntaxError: "),
    "import": ("import no_such_module\n", r"^copying\.py:4: ModuleNotFoundError: No module named"),
    "exit": ("import sys\nsys.exit(0)\n", r"^copying\.py:5: SystemExit: 0"),
    "recursion": ("def f():\n    f()\nf()\n", r"^copying\.py:\d: RecursionError: "),
    "silent end": ("import os\nos._exit(0)\n", r"^copying\.py: its process ended without an answer: it said"),
    "kill": ("import os\nos.kill(os.getpid(), 9)\n", r"^copying\.py: its process ended .* signal 9"),
    "nothing": ("x = 1\n", r"^copying\.py declares no kernel: put @tile_oracle\.triton\.gemm"),
    "no function": ("gemm(grid=(1,))(print)\n", r"^copying\.py:4: print is not a @triton\.jit function"),
    "argument": (COPY.replace("M, N,", "M, N, OTHER,"), r"^copying\.py:5: the argument OTHER of copy has no"),
    "bias": (
        COPY.replace("M, N,", "M, N, bias_ptr,"),
        r"bias_ptr of copy has no value: .*; a bias operand cannot be declared for gemm: .*gives a_ptr, ",
    ),
    "scales": (
        COPY.replace('layouts=["rcr"]', 'arguments=lambda p: {"a_ptr": p.a_scale}'),
        r"gemm has no a_scale; scales of an operand cannot be declared .*; it has K, M, N, a, b",
    ),
    "torch": (
        "import torch\nx = int(torch.zeros(3).sum())\n",
        r"^copying\.py:5: needs torch\.zeros\(\)\.sum\(\), ",
    ),
    "grid": (
        COPY.replace('triton.cdiv(meta["M"], meta["BLOCK"])', 'min(meta["M"], 3)'),
        r"^copying\.py:5: M > 3|^copying\.py:5: 3 < M .* use where",
    ),
    "grid of no argument": (
        COPY.replace('meta["M"]', 'meta["rows"]'),
        r"^copying\.py:5: the grid of copy asks for 'rows', which is no argument of it; those are a_ptr,",
    ),
    "layout": (COPY.replace('"rcr"', '"abc"'), r"^copying\.py:5: layout 'abc' is not one of rcr, rrr"),
    "heuristics": (
        COPY.replace("@triton.jit", '@triton.heuristics({"BLOCK": lambda args: 64})\n@triton.jit'),
        r"@triton\.heuristics makes the code depend on the problem",
    ),
    "hook": (
        COPY.replace("num_warps=4)", "num_warps=4, pre_hook=lambda nargs: None)"),
        r"^copying\.py:5: a configuration has a pre_hook",
    ),
    "twice": (COPY + COPY, r"^copying\.py:\d+: .* is declared twice"),
    "constant": (
        COPY.replace("N, BLOCK", "N: tl.constexpr, BLOCK"),
        r"^copying\.py:5: N is a constexpr and depends on the problem",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_broken_or_hostile_file_gets_one_line(copy_file: Path, case: str) -> None:
    text, expected = CASES[case]
    copy_file.write_text(HEAD + text)
    with pytest.raises(BuildError, match=expected) as caught:
        describe_file(copy_file, "sm_90")
    assert "\n" not in str(caught.value)


WRAPPERS = """
import abc
import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor
from torch import *

BIG = 2 if torch.cuda.is_available() or torch.version.hip is not None else 1
TYPES = {torch.bfloat16: 1, torch.float16: 2}[torch.float16]

class Function(torch.autograd.Function):
    @staticmethod
    @torch.compile(fullgraph=True)
    def forward(ctx, x: torch.Tensor | None, y: DTensor) -> "torch.Tensor":
        return F.relu(x)

@torch.no_grad()
def wrapper(x: torch.Tensor):
    return copy[(1,)](x)

class Protocol(torch.nn.Module, torch.nn.ModuleList, abc.ABC):
    pass

apply = Function.apply
assert wrapper.__name__ == "wrapper" and not hasattr(Function, "__of_nobody__")
assert tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4)
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
def test_wrappers_need_no_torch(copy_file: Path, tmp_path: Path) -> None:
    copy_file.write_text(HEAD + WRAPPERS + COPY)
    source = TritonSource(describe_file(copy_file, "sm_90"))
    with Builder("sm_90", build_dir=tmp_path / "cache", source=source, runs_here=False) as builder:
        result = builder.submit(source.pool(KIND)[0]).result()
    assert result.status == "ok", result.log


@pytest.mark.slow
def test_a_file_named_as_an_installed_module_is_refused(copy_file: Path) -> None:
    other = copy_file.with_name("triton.py")
    other.write_text(HEAD + COPY)
    with pytest.raises(BuildError, match="triton is also an installed module: give the file another name"):
        describe_file(other, "sm_90")


def test_missing_triton_and_missing_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(HEAD + COPY)
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "from tile_oracle.compiling.triton.kernel_source import open_triton\n"
        f"open_triton('sm_90', {str(path)!r})"
    )
    done = run_python("-c", code)
    assert done.stderr.splitlines()[-1].endswith(
        "Triton is not installed in this Python: pip install 'tile-oracle[triton]', or give a folder of "
        "tile-oracle build"
    )
    with pytest.raises(BuildError, match=r"--kernels .*nothing\.py: there is no such Python file"):
        open_kernel_source("sm_90", f"triton={tmp_path / 'nothing.py'}")
