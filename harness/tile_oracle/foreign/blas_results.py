"""Results of hipblaslt-bench and rocblas-bench: what they print, redirected to a file.

    [0]:transA,transB,grouped_gemm,batch_count,m,n,k,...,a_type,b_type,...,hipblaslt-Gflops,hipblaslt-GB/s,us
        N,N,0,1,4096,4096,4096,...,bf16_r,bf16_r,...,591344,576.241,88.9724
        --Solution index: 300662
        --Solution name:  Cijk_Ailk_Bljk_BBS_BH_...

The kernel is the library's solution: gemm_bf16_rrr_hipblaslt.s300662. hipblaslt-bench prints it with
--print_kernel_info or --algo_method. rocblas-bench does not: a line with its command, before the result,
gives --solution_index, and the types where the result has none (--log_datatype).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tile_oracle.errors import HarnessError, first_line
from tile_oracle.foreign.contract import MORE, UNUSED, Field, is_false, number_of, same_dtype
from tile_oracle.foreign.dialect import GEMM_FIELDS
from tile_oracle.foreign.pairs import PairRows
from tile_oracle.kernel.named import NamedKernel
from tile_oracle.operations.gemm.blas_call import READ, SIZES, gemm_of, members_of, not_dense, why_no_gemm

_NUMBERED = re.compile(r"\s*\[\d+\]:")
_SPEEDS = {"hipblaslt-Gflops": "hipblaslt", "rocblas-Gflops": "rocblas"}
_SOLUTION = re.compile(r"\s*--Solution (?P<what>index|name):\s*(?P<value>\S+)")
_WINNER = "Winner:"
_FP8 = ("f8_r", "f8_fnuz_r", "f8_ocp_r")
"""Their results are of another type."""
_READ = frozenset(
    {*READ.values(), *SIZES, "splitK", "wgm", "us", "hot_iters", "rotating_buffer", "d_type", "atol", "rtol"}
    | {f"{library}-{what}" for library in _SPEEDS.values() for what in ("Gflops", "GB/s")}
)
"""Members that name the pair, or become figures and status."""


def _exact(text: str, _: object) -> bool:
    return "xf32" not in text and "fast" not in text


_FIELDS: Mapping[str, Field] = {
    "alpha": GEMM_FIELDS["alpha"],
    **dict.fromkeys(
        ("activation_type", "bias_vector", "swizzle_a", "swizzle_b", "use_e", "gradient", "scalea", "scaleb",
         "scalec", "scaled", "scalealpha_vector", "amaxd"),
        Field(holds=is_false, why=MORE),
    ),
    "d_type": Field(holds=same_dtype, of="problem", why="is not the type of A and B"),
    "compute_type": Field(holds=_exact, why="is not exact in fp32"),
    **dict.fromkeys(("c_type", "bias_type", "norm_error", "cpu-us", "cpu-gflops", "cold_iters"), UNUSED),
    **dict.fromkeys((f"stride_{operand}" for operand in "abcd"), UNUSED),
}  # fmt: skip
"""What a result states besides sizes and figures. Other columns mean what they mean in any table."""
_LONGEST_DETAIL = 300


@dataclass
class _Result:
    """One line of values, and what belongs to it."""

    library: str
    members: dict[str, str]
    line: str
    solution: dict[str, str] = field(default_factory=dict)


def is_blas_results(text: str) -> bool:
    """Whether a text has a header of these results."""
    return "-Gflops" in text and any(_header(line) is not None for line in text.splitlines())


def _header(line: str) -> tuple[str, list[str]] | None:
    """The library and the names of the values in the next line; None for other lines."""
    if "-Gflops" not in line:
        return None
    names = [name.strip() for name in _NUMBERED.sub("", line, count=1).split(",")]
    library = next((_SPEEDS[name] for name in names if name in _SPEEDS), None)
    return (library, names) if library is not None and {"transA", "transB"} <= set(names) else None


def read_blas_results(text: str) -> PairRows:
    """The measurements in a text. Results without a solution, of batches, with beta, of padded matrices and
    with anything else that is no dense product are refused."""
    found = PairRows(own=_FIELDS)
    for result in _results(text.splitlines()):
        try:
            why = _refusal(result)
            if not why:
                _add(found, result)
        except HarnessError as error:
            why = first_line(error)
        if why:
            found.refused.append((why, result.line))
    return found


def _results(lines: Sequence[str]) -> Iterator[_Result]:
    """Every result once: the winner is printed again at the end."""
    called: dict[str, str] = {}
    header: tuple[str, list[str]] | None = None
    result: _Result | None = None
    again = False
    for line in lines:
        solution = _SOLUTION.match(line)
        if solution and result is not None:
            result.solution[solution["what"]] = solution["value"]
        elif header is not None and "," in line:
            if result is not None:
                yield result
            library, names = header
            values = (value.strip().strip('"') for value in line.split(","))
            members = {**called, **_known(dict(zip(names, values, strict=False)))}
            result = None if again else _Result(library, members, line.strip())
            header, again = None, False
        elif (found := _header(line)) is not None:
            header = found
        elif line.strip() == _WINNER:
            again = True
        elif (command := members_of(line)) is not None:
            called = command
    if result is not None:
        yield result


def _known(members: Mapping[str, str]) -> dict[str, str]:
    return {READ.get(name, name): value for name, value in members.items()}


def _refusal(result: _Result) -> str:
    """Why a result is no measurement of a dense product by a known solution; "" if it is one."""
    members = result.members
    if why := why_no_gemm(members):
        return why
    if what := next(not_dense(members), ""):
        return f"{what}: no dense product"
    if (
        "precision" not in members
        and "a_type" not in members
        and members.get("function") not in ("hgemm", "sgemm")
    ):
        return "no data type: print it by --log_datatype"
    if _solution_of(result) is None:
        return (
            "no solution index: hipblaslt-bench --print_kernel_info or rocblas-bench --solution_index has it"
        )
    return ""


def _solution_of(result: _Result) -> int | None:
    text = result.solution.get("index", result.members.get("solution_index", ""))
    # 0 and less ask rocBLAS and hipBLASLt for their own choice.
    least = 0 if "index" in result.solution else 1
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) and int(text) >= least else None


def _add(found: PairRows, result: _Result) -> None:
    """Adds a result's row. Raises HarnessError."""
    members = result.members
    problem = gemm_of(members)
    values = {name: int(members[name]) for name in ("splitK", "wgm") if members.get(name, "").isdigit()}
    kernel = NamedKernel(problem.kind, result.library, f"s{_solution_of(result)}", tuple(values.items()))
    failed = "failed" in (members.get("atol"), members.get("rtol"))
    gflops, gb_per_s = (members.get(f"{result.library}-{what}") or None for what in ("Gflops", "GB/s"))
    found.add(
        {
            **{name: value for name, value in members.items() if name not in _READ},
            "d_type": "" if members.get("a_type") in _FP8 else members.get("d_type"),
            **{"kernel": kernel.name, "problem": problem.id, "gflops": gflops, "gb_per_s": gb_per_s},
        },
        [number_of(members.get("us")) / 1000.0],
        status="wrong" if failed else "ok",
        detail=result.solution.get("name", "")[:_LONGEST_DETAIL],
        samples=members.get("hot_iters") or None,
        cache="cold" if members.get("rotating_buffer", "0") not in ("0", "") else "warm",
    )
